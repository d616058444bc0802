"""What must never pass silently: the registry of guards, those that need no process, and the secret check."""
