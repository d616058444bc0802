"""Two states of a file: what differs first, aligned by event, and which scenarios differ for one cause."""
