"""The bash tool: a command in a fresh shell, bounded in time and output, that leaves no process behind."""
