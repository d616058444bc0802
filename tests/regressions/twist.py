"""What an agent may do otherwise than it did."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field


def blue() -> str:
    """Look up."""
    return "blue"


@dataclass(frozen=True)
class Twist:
    """One behaviour; the defaults are the recorded one."""

    system: str = "You are brief."
    tool: str = "Looks up."
    look: Callable[[], str] = blue
    stops_early: bool = False
    """It does not go on after its first call."""
    repeats: int = 0
    """How often it makes each call, or its whole run, once more."""
    asks_more: bool = False
    """It asks something new at the end."""
    pieces: list[str] = field(default_factory=list)
    """Where it notes each piece of text that it is sent."""


RECORDED = Twist()
