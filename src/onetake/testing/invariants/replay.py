"""What holds for replaying: the same again, whoever comes first; and anything else is seen."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from onetake.model.types import Chunk
from onetake.session.events import Event
from onetake.testing.errors import InvariantViolation

Run = Any
"""What a harness leaves of a run, in whatever shape the subject works with."""
Surfaces = Mapping[str, bytes]
"""What is compared of a run, by name: fixtures, say, one per session."""
Equal = Callable[[bytes, bytes], bool]
"""Whether two surfaces are equal, such as `onetake.fixture.gaps.same_fixture`."""


def check_replayed(recorded: Surfaces, replayed: Surfaces, equal: Equal) -> None:
    """A run that was recorded and its replay leave the same, however long things took in each."""
    if recorded.keys() != replayed.keys():
        raise InvariantViolation(f"recorded {sorted(recorded)}, replayed {sorted(replayed)}")
    for name in recorded:
        if not equal(recorded[name], replayed[name]):
            at, one, other = _difference(recorded[name], replayed[name], equal)
            raise InvariantViolation(f"{name}, line {at}: recorded {one!r}, replayed {other!r}")


def check_seen(surfaces_of: Callable[[Run], Surfaces], run: Run, changed: Run, equal: Equal) -> None:
    """A harness that did one thing otherwise leaves something else, unless it changed nothing."""
    if run == changed:
        return
    one, other = surfaces_of(run), surfaces_of(changed)
    if one.keys() == other.keys() and all(equal(one[name], other[name]) for name in one):
        raise InvariantViolation(f"nobody sees that {run!r} became {changed!r}")


def check_calls(
    derive: Callable[[Sequence[Event]], Sequence[Sequence[Chunk]]],
    events: Sequence[Event],
    made: Sequence[Sequence[Chunk]],
) -> None:
    """The calls that are read from a log are those that were made: each whole, none twice, in order."""
    found = [list(chunks) for chunks in derive(events)]
    if found != [list(chunks) for chunks in made]:
        raise InvariantViolation(f"the calls: expected {made!r}, came {found!r}")


def check_bound(
    bind: Callable[[Sequence[Any]], Mapping[str, int]], sessions: Sequence[Any], shuffled: Sequence[Any]
) -> None:
    """Sessions get the same numbers, each its own, in whatever order they began."""
    one, other = bind(sessions), bind(shuffled)
    if one != other:
        raise InvariantViolation(f"numbers depend on who began first: {one}, {other}")
    if sorted(one.values()) != list(range(len(sessions))):
        raise InvariantViolation(f"{len(sessions)} sessions have the numbers {sorted(one.values())}")


def check_rebound(
    bind: Callable[[Sequence[Any]], Mapping[str, int]], started: Sequence[Any], numbers: Mapping[str, int]
) -> None:
    """A run that goes on as it was recorded has the recorded numbers at every moment.

    `started` are its sessions in the order in which they begin, each with an `id` that `numbers` knows.
    """
    for count in range(1, len(started) + 1):
        bound = dict(bind(started[:count]))
        expected = {session.id: numbers[session.id] for session in started[:count]}
        if bound != expected:
            raise InvariantViolation(f"after {count} sessions: expected {expected}, came {bound}")


def _difference(one: bytes, other: bytes, equal: Equal) -> tuple[int, bytes, bytes]:
    """The number of the first line that differs, from 1, and both lines."""
    a, b = one.split(b"\n"), other.split(b"\n")
    length = max(len(a), len(b))
    padded = (lines + [b""] * (length - len(lines)) for lines in (a, b))
    pairs = enumerate(zip(*padded, strict=True), 1)
    return next(((at, x, y) for at, (x, y) in pairs if not equal(x, y)), (0, one, other))
