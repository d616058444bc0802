"""The errors users meet, and the exit code each of them means.

One hierarchy, so that the command line can turn any of our errors into one clear line and the right exit
code, and a program that embeds onetake can catch `OnetakeError` alone.
"""

from __future__ import annotations

import re


class OnetakeError(Exception):
    """Any error that onetake reports on purpose; its text is meant for people and names the remedy."""

    exit_code = 1


class UsageError(OnetakeError):
    """Wrong usage, or missing or malformed input: the text names file, place and remedy (exit code 2)."""

    exit_code = 2


class AgentError(OnetakeError):
    """The agent could not be started, or it died (exit code 3)."""

    exit_code = 3


PATTERN_ERRORS = (re.error, OverflowError, RecursionError)
"""What `re.compile` raises for a text that is no regular expression, or that asks too much of it."""
