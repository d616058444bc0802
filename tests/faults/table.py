"""Find each seeded fault, and say how long that took and how small the failing case became."""

from __future__ import annotations

import re
import time
import traceback
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
    """To the first failing case, or to the smallest one when that was asked for."""
    invariant: str
    """The function of the library that objected."""
    case: str
    """The failing case, as Hypothesis prints it, without line ends."""


def all_faults() -> list[tuple[str, Fault]]:
    """All faults of the list, each with its room."""
    folder = Path(__file__).parent
    rooms = sorted(
        p.stem for p in folder.glob("*.py") if p.stem not in _OTHERS and not p.stem.startswith("test_")
    )
    return [(room, fault) for room in rooms for fault in import_module(f"tests.faults.{room}").FAULTS]


def find(room: str, fault: Fault, *, shrink: bool = False) -> Found | None:
    """Run the property on the faulty subject; None: it holds, so nobody would notice the fault.

    With many more examples than the properties have, of which few are needed: the first that fails ends it.
    Even without randomness, other ones are drawn whenever anything changes, since Hypothesis also draws the
    constants of all modules that are loaded; and some bugs show in one example of a hundred.
    """
    chosen = settings(
        max_examples=settings().max_examples * 50,
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
        seconds = time.monotonic() - started
        return Found(seconds, _invariant(error), re.sub(r"\s+", " ", " ".join(error.__notes__)))
    return None


def _invariant(error: BaseException) -> str:
    """Where it was raised first: a violation may be raised again with more words."""
    while isinstance(error.__cause__, InvariantViolation):
        error = error.__cause__
    names = [frame.name for frame in traceback.extract_tb(error.__traceback__)]
    return next((name for name in reversed(names) if name.startswith("check_")), names[-1])
