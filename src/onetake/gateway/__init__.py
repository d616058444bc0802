"""The model endpoint for agents that are not ours, and for tests: a small server on the wire codecs."""
