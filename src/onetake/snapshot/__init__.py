"""The snapshot suite: drive a real agent from a script, compare what it did with what it did once."""
