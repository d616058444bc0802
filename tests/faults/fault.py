"""What a seeded fault is: a bug that some harness had or could have had, and the property that finds it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from hypothesis.stateful import RuleBasedStateMachine


@dataclass(frozen=True)
class Fault:
    """A bug in a test-only variant of a subject."""

    name: str
    """A few words with hyphens."""
    story: str
    """One sentence: what the bug does."""
    prove: Callable[[], object] | type[RuleBasedStateMachine]
    """A property of Hypothesis (a function under `@given`, or a state machine) that runs the room's strategy
    and invariant on the faulty variant; it has to fail."""
