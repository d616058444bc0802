"""What a broken invariant raises."""

from __future__ import annotations


class InvariantViolation(AssertionError):
    """A subject broke an invariant: the text says which, what was expected and what came."""
