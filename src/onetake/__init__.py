"""onetake: record an agent once, replay it forever without a key, and see every change it makes.

The package itself imports nothing: start-up time of `onetake acp` is a feature, so each room is imported by
who needs it.
"""

__version__ = "0.1.0"
