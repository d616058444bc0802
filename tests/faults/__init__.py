"""Bugs on purpose, each of which the properties must find."""
