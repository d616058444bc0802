"""What happened: the session log, in memory, as text, on disk, and as the history that a model sees."""
