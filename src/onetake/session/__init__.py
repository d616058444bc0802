"""What happened: the append-only session log, in memory, as text, on disk, and as the history a model sees."""
