"""What is done with a run: `judge` it (replay), `record` or `refresh` it; plus `migrate` and safe writing."""
