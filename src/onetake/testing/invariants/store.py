"""What holds for a stored log when the machine fails it: what was acknowledged is there, or the loss is told.

A subject reads the bytes of a store, whole or not. It gives the events that it could read and the number of
bytes that it left out as an unfinished write, or it refuses. What it must never do is to give something else
than what was written without a word.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import NamedTuple

from onetake.session.events import Event
from onetake.testing.errors import InvariantViolation
from onetake.testing.invariants.session import check_seqs


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


class Continued(NamedTuple):
    """A log after somebody went on with it."""

    raw: bytes
    events: Sequence[Event]
    """What was appended, repairs included."""
    aside: bytes
    """What was cut off its end, and kept elsewhere."""


Load = Callable[[bytes], Loaded]


def check_whole(load: Load, written: Written) -> None:
    """A log that nothing happened to is read whole, and without a complaint."""
    _check_read(load, written.raw, written.events, "the whole log")


def check_cut(load: Load, written: Written, cut: int, refusal: type[Exception]) -> None:
    """A log may be cut at any byte: whole batches stay, and the rest is named.

    It may be refused, with its place, where nothing was acknowledged yet.
    """
    where = f"cut at byte {cut}"
    kept = max((count for size, count in written.acknowledged if size <= cut), default=0)
    try:
        loaded = load(written.raw[:cut])
    except refusal as error:
        if kept:
            raise InvariantViolation(f"{where}: what was acknowledged is read, came {error}") from error
        _check_place(error, where, empty=not cut)
        return
    except Exception as error:
        raise InvariantViolation(f"{where}: came {type(error).__name__}: {error}") from error
    if len(loaded.events) < kept:
        raise InvariantViolation(f"{where}: {kept} events were acknowledged, {len(loaded.events)} were read")
    _check_beginning(loaded, written, where)
    if cut not in written.ends and not loaded.torn:
        raise InvariantViolation(f"{where}: an unfinished write was left out, and nothing is said of it")


def check_flip(load: Load, written: Written, at: int, bit: int, refusal: type[Exception]) -> None:
    """Of a store with checksums: a flipped bit changes nothing, or is refused with its place."""
    where = f"bit {bit} of byte {at} flipped"
    loaded = _load_flipped(load, written, at, bit, refusal)
    if loaded is not None and (list(loaded.events) != list(written.events) or loaded.torn):
        raise InvariantViolation(
            f"{where}: expected a refusal, came {len(loaded.events)} of {len(written.events)} events and "
            f"{loaded.torn} bytes left out, or other events"
        )


def check_flip_in_lines(load: Load, written: Written, at: int, bit: int, refusal: type[Exception]) -> None:
    """Of plain lines, which have no checksum: a flipped bit is refused with its place, or changes only what
    its own line says."""
    loaded = _load_flipped(load, written, at, bit, refusal)
    if loaded is None:
        return
    start = written.raw.rfind(b"\n", 0, at) + 1
    end = written.raw.index(b"\n", at) + 1
    before = len(load(written.raw[:start]).events) if start else 0
    behind = list(written.events)[len(load(written.raw[:end]).events) :]
    came, where = list(loaded.events), f"bit {bit} of byte {at} flipped"
    own = len(came) - before - len(behind)
    alike = came[:before] == list(written.events)[:before] and came[before + own :] == behind
    if loaded.torn or not alike or own < (1 if start else 0):
        raise InvariantViolation(f"{where}: more than the line changed: {written.events!r} became {came!r}")


def check_continued(go_on: Callable[[bytes], Continued], load: Load, written: Written, cut: int) -> None:
    """A log that broke off goes on: what could be read stays, the new comes behind, the torn end is kept."""
    torn = written.raw[:cut]
    where = f"continued behind a cut at byte {cut}"
    try:
        before, after = load(torn), go_on(torn)
    except Exception as error:
        raise InvariantViolation(f"{where}: came {type(error).__name__}: {error}") from error
    loaded = _check_read(load, after.raw, [*before.events, *after.events], where)
    check_seqs(loaded.events)
    aside = torn[len(torn) - before.torn :]
    if after.aside != aside or not after.raw.startswith(torn[: len(torn) - before.torn]):
        raise InvariantViolation(f"{where}: {aside!r} is cut off and kept: came {after.aside!r}")


def _check_read(load: Load, raw: bytes, events: Sequence[Event], what: str) -> Loaded:
    try:
        loaded = load(raw)
    except Exception as error:
        raise InvariantViolation(f"{what} is read: came {type(error).__name__}: {error}") from error
    if list(loaded.events) != list(events) or loaded.torn:
        raise InvariantViolation(
            f"{what}: expected {len(events)} events, came {len(loaded.events)}, or others, and "
            f"{loaded.torn} bytes left out"
        )
    return loaded


def _load_flipped(load: Load, written: Written, at: int, bit: int, refusal: type[Exception]) -> Loaded | None:
    changed = bytes([written.raw[at] ^ (1 << bit)])
    try:
        return load(written.raw[:at] + changed + written.raw[at + 1 :])
    except refusal as error:
        _check_place(error, f"bit {bit} of byte {at} flipped")
        return None
    except Exception as error:
        raise InvariantViolation(
            f"bit {bit} of byte {at} flipped: it is read or refused: came {type(error).__name__}: {error}"
        ) from error


def _check_beginning(loaded: Loaded, written: Written, where: str) -> None:
    count = len(loaded.events)
    if list(loaded.events) != list(written.events[:count]):
        raise InvariantViolation(f"{where}: what was read is not the beginning of what was written")


def _check_place(error: Exception, where: str, *, empty: bool = False) -> None:
    if not empty and not _PLACE.search(str(error)):
        raise InvariantViolation(f"{where}: a refusal names the place: came {error}")


_PLACE = re.compile(r"\b(byte|line|frame|record|event) \d")
