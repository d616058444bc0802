"""What holds for a stored log when the machine fails it: what was acknowledged is there, or the loss is told.

A subject reads the bytes of a store, whole or not. It gives the events that it could read and the number of
bytes that it left out as an unfinished write, or it refuses. What it must never do is to give something else
than what was written without a word.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from onetake.session.events import Event
from onetake.testing.errors import InvariantViolation


class Loaded(NamedTuple):
    """What a store read."""

    events: Sequence[Event]
    torn: int
    """Bytes at the end that it left out, and said so; 0 for a clean end."""


class Written(NamedTuple):
    """A log as it was written."""

    raw: bytes
    events: Sequence[Event]
    acknowledged: Sequence[tuple[int, int]]
    """After each flush: the bytes in the file and the events in them; the first is the publication."""
    ends: frozenset[int]
    """The sizes at which nothing is unfinished: behind each line of a plain store, each frame of another."""


Load = Callable[[bytes], Loaded]


def check_whole(load: Load, written: Written) -> None:
    """A log that nothing happened to is read whole, and without a complaint."""
    try:
        loaded = load(written.raw)
    except Exception as error:
        raise InvariantViolation(f"the whole log is read: came {type(error).__name__}: {error}") from error
    if list(loaded.events) != list(written.events) or loaded.torn:
        raise InvariantViolation(
            f"the whole log: expected {len(written.events)} events, came {len(loaded.events)} and "
            f"{loaded.torn} bytes left out"
        )


def check_cut(load: Load, written: Written, cut: int) -> None:
    """Behind its publication a log may be cut anywhere: whole batches stay, and the rest is named."""
    try:
        loaded = load(written.raw[:cut])
    except Exception as error:
        raise InvariantViolation(
            f"cut at byte {cut}: what was acknowledged is read: came {type(error).__name__}: {error}"
        ) from error
    kept = max(count for size, count in written.acknowledged if size <= cut)
    if len(loaded.events) < kept:
        raise InvariantViolation(
            f"cut at byte {cut}: {kept} events were acknowledged, {len(loaded.events)} were read"
        )
    _check_beginning(loaded, written, f"cut at byte {cut}")
    if cut not in written.ends:
        _check_told(loaded, f"cut at byte {cut}")


def check_flip(load: Load, written: Written, at: int, bit: int, refusal: type[Exception]) -> None:
    """Of a store with checksums: a flipped bit is refused, or told as a torn end behind a true beginning."""
    changed = bytes([written.raw[at] ^ (1 << bit)])
    try:
        loaded = load(written.raw[:at] + changed + written.raw[at + 1 :])
    except refusal:
        return
    where = f"bit {bit} of byte {at} flipped"
    _check_beginning(loaded, written, where)
    if list(loaded.events) != list(written.events):
        _check_told(loaded, where)


def _check_beginning(loaded: Loaded, written: Written, where: str) -> None:
    count = len(loaded.events)
    if list(loaded.events) != list(written.events[:count]):
        raise InvariantViolation(f"{where}: what was read is not the beginning of what was written")


def _check_told(loaded: Loaded, where: str) -> None:
    if not loaded.torn:
        raise InvariantViolation(f"{where}: an unfinished write was left out, and nothing is said of it")
