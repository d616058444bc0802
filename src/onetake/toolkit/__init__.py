"""The tools themselves. Each has a folder of its own with a plugin function that a composition can name."""
