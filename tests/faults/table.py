"""Find each seeded fault, and say how long that took and how small the failing case became."""

from __future__ import annotations

import re
import time
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from onetake.testing.errors import InvariantViolation
from tests.faults.fault import Fault

_OTHERS = frozenset({"__init__", "__main__", "fault", "table"})
_SHRINK = (Phase.explicit, Phase.generate, Phase.shrink)


@dataclass(frozen=True)
class Found:
    """How a fault was found."""

    seconds: float
    """To the first failing case; the table's figure is with shrinking."""
    message: str
    """What the invariant said of the smallest case."""
    size: int
    """Characters of that message: it holds the case."""


def all_faults() -> list[tuple[str, Fault]]:
    """All faults of the list, each with its room."""
    folder = Path(__file__).parent
    rooms = sorted(
        p.stem for p in folder.glob("*.py") if p.stem not in _OTHERS and not p.stem.startswith("test_")
    )
    return [(room, fault) for room in rooms for fault in import_module(f"tests.faults.{room}").FAULTS]


def find(room: str, fault: Fault, *, shrink: bool = False) -> Found | None:
    """Run the property on the faulty subject; None: it holds, so nobody would notice the fault.

    With some more examples than the properties have: which ones are drawn changes with every strategy, and a
    bug that one example in twelve shows would otherwise be missed now and then.
    """
    chosen = settings(
        max_examples=settings().max_examples * 5,
        deadline=None,
        derandomize=True,
        database=None,
        phases=_SHRINK if shrink else _SHRINK[:2],
        report_multiple_bugs=False,
        print_blob=False,
        stateful_step_count=20,
        suppress_health_check=list(HealthCheck),
    )
    started = time.monotonic()
    try:
        if isinstance(fault.prove, type):
            run_state_machine_as_test(fault.prove, settings=chosen)
        else:
            chosen(fault.prove)()
    except InvariantViolation as error:
        text = re.sub(r"\s+", " ", str(error))
        return Found(time.monotonic() - started, text, len(text))
    return None
