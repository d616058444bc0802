"""What holds for replaying: the same again, whoever comes first; and anything else is seen."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

from onetake.model.types import Chunk
from onetake.testing.errors import InvariantViolation

Run = Any
"""What a harness leaves of a run, in whatever shape the subject works with."""


def check_replayed(recorded: bytes, replayed: bytes, equal: Callable[[bytes, bytes], bool]) -> None:
    """A run that was recorded and its replay are one fixture."""
    if not equal(recorded, replayed):
        at = next((n for n, (a, b) in enumerate(_lines(recorded, replayed)) if a != b), -1)
        pair = _lines(recorded, replayed)[at]
        raise InvariantViolation(f"line {at + 1}: recorded {pair[0]!r}, replayed {pair[1]!r}")


def check_seen(fixture_of: Callable[[Run], bytes], run: Run, changed: Run) -> None:
    """A harness that did one thing otherwise leaves another fixture, unless it changed nothing."""
    if run != changed and fixture_of(run) == fixture_of(changed):
        raise InvariantViolation(f"nobody sees that {run!r} became {changed!r}")


async def check_served(
    answer: Callable[[int], AsyncIterator[Chunk]], recorded: Sequence[Sequence[Chunk]], order: Sequence[int]
) -> None:
    """Sessions that are answered at the same time each get what was recorded for them.

    `answer` begins the next call of a session, `recorded` holds what each session's call is answered with,
    and `order` says who goes on next, as session numbers; who is not done at its end goes on in turn.
    """
    streams = [answer(number) for number in range(len(recorded))]
    heard: list[list[Chunk]] = [[] for _ in recorded]
    going = set(range(len(recorded)))
    for number in [*order, *sorted(range(len(recorded))) * (1 + max(map(len, recorded), default=0))]:
        if number not in going:
            continue
        try:
            heard[number].append(await anext(streams[number]))
        except StopAsyncIteration:
            going.discard(number)
        await asyncio.sleep(0)
    for number, (came, expected) in enumerate(zip(heard, recorded, strict=True)):
        if came != list(expected):
            raise InvariantViolation(f"session {number}: expected {expected!r}, came {came!r}")


def check_bound(
    bind: Callable[[Sequence[Any]], dict[str, int]], sessions: Sequence[Any], shuffled: Sequence[Any]
) -> None:
    """Sessions get the same numbers, each its own, in whatever order they began."""
    one, other = bind(sessions), bind(shuffled)
    if one != other:
        raise InvariantViolation(f"numbers depend on who began first: {one}, {other}")
    if sorted(one.values()) != list(range(len(sessions))):
        raise InvariantViolation(f"{len(sessions)} sessions have the numbers {sorted(one.values())}")


def _lines(one: bytes, other: bytes) -> list[tuple[bytes, bytes]]:
    a, b = one.split(b"\n"), other.split(b"\n")
    length = max(len(a), len(b))
    padded = (lines + [b""] * (length - len(lines)) for lines in (a, b))
    return list(zip(*padded, strict=True))
