"""Where two runs differ: every leaf of every line of a file, aligned by event."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from onetake.fixture.gaps import without_gaps
from onetake.snapshot.diff.pairing import pair_events, parse_line, plain_changes
from onetake.snapshot.modes.judge import surface_of
from onetake.snapshot.render.pins import session_index


class Place(msgspec.Struct, frozen=True):
    """The first leaf at which runs differ."""

    file: str
    line: int
    """From 1, on the side of the live run."""
    path: tuple[str | int, ...]
    """Where in the line's JSON; empty for plain text."""
    record: Any
    """The line's JSON value in the live run."""
    values: tuple[Any, ...]
    """What the runs have there, the live run first."""

    @property
    def surface(self) -> str:
        """The surface of the file."""
        return surface_of(self.file) or ""


def places(file: str, one: bytes | None, other: bytes | None) -> Iterator[Place]:
    """Every leaf at which a file of two runs differs."""
    if one is None or other is None:
        if one != other:
            yield Place(file, 1, (), None, (one is not None, other is not None))
        return
    if session_index(file) is not None:
        one, other = without_gaps(one), without_gaps(other)
    old, new = one.split(b"\n"), other.split(b"\n")
    changes = pair_events(old, new).changes if file.endswith(".jsonl") else plain_changes(old, new)
    for change in changes if one != other else ():
        mine = old[change.old] if change.old is not None else b""
        theirs = new[change.new] if change.new is not None else b""
        line = (change.old if change.old is not None else change.new or 0) + 1
        was, now = parse_line(mine), parse_line(theirs)
        if change.old is None or change.new is None:
            yield Place(
                file,
                line,
                (),
                was if was is not None else now,
                (change.old is not None, change.new is not None),
            )
        elif was is None or now is None:
            texts = (mine.decode("utf-8", "replace"), theirs.decode("utf-8", "replace"))
            yield Place(file, line, (), None, texts)
        else:
            for path, left, right in _leaves((), was, now):
                yield Place(file, line, path, was, (left, right))


def where(one: Mapping[str, bytes], other: Mapping[str, bytes]) -> set[tuple[str, int, object]]:
    """The leaves at which two runs differ."""
    names = {*one, *other}
    found = [place for name in names for place in places(name, one.get(name), other.get(name))]
    return {(place.file, place.line, place.path) for place in found}


def _leaves(
    path: tuple[str | int, ...], was: Any, now: Any
) -> Iterator[tuple[tuple[str | int, ...], Any, Any]]:
    if isinstance(was, dict) and isinstance(now, dict) and list(was) == list(now):
        for key in was:
            yield from _leaves((*path, key), was[key], now[key])
    elif isinstance(was, list) and isinstance(now, list) and len(was) == len(now):
        for index, (left, right) in enumerate(zip(was, now, strict=True)):
            yield from _leaves((*path, index), left, right)
    elif was != now or type(was) is not type(now):
        yield path, was, now
