"""Align two sequences of lines: which were kept, which went, which came.

`difflib` needs minutes for two long logs that differ everywhere, and a red run must explain itself at once.
Here a common head and tail are cut off, what lies between is anchored on lines that occur once on both sides
(the patience method), and only small gaps are solved exactly. Large gaps without an anchor count as replaced.
The result is always a correct alignment, not always a shortest one, in about n log n.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Hashable, Sequence
from itertools import pairwise

import msgspec

_EXACT = 10_000
"""Largest gap (lines of one side times lines of the other) that is solved exactly."""


class Block(msgspec.Struct, frozen=True):
    """`size` equal lines: old[old_at:old_at+size] == new[new_at:new_at+size]."""

    old_at: int
    new_at: int
    size: int


class Gap(msgspec.Struct, frozen=True):
    """Lines between two blocks: old[a0:a1] was replaced by new[b0:b1] (either may be empty, not both)."""

    a0: int
    a1: int
    b0: int
    b1: int


def blocks(old: Sequence[Hashable], new: Sequence[Hashable]) -> list[Block]:
    """The aligned runs of equal lines, in order, merged when adjacent."""
    pairs: list[tuple[int, int]] = []
    _align(old, new, 0, len(old), 0, len(new), pairs)
    merged: list[Block] = []
    for a, b in pairs:
        last = merged[-1] if merged else None
        if last is not None and last.old_at + last.size == a and last.new_at + last.size == b:
            merged[-1] = Block(last.old_at, last.new_at, last.size + 1)
        else:
            merged.append(Block(a, b, 1))
    return merged


def gaps(old: Sequence[Hashable], new: Sequence[Hashable]) -> list[Gap]:
    """The places where the two differ, in order; empty when they are equal."""
    result = []
    a = b = 0
    for block in [*blocks(old, new), Block(len(old), len(new), 0)]:
        if a < block.old_at or b < block.new_at:
            result.append(Gap(a, block.old_at, b, block.new_at))
        a, b = block.old_at + block.size, block.new_at + block.size
    return result


def _align(
    old: Sequence[Hashable],
    new: Sequence[Hashable],
    a0: int,
    a1: int,
    b0: int,
    b1: int,
    pairs: list[tuple[int, int]],
) -> None:
    # A work list instead of recursion: nesting can be as deep as the log is long. Parts are pushed in
    # reverse, so that pairs come out in order.
    work = [(a0, a1, b0, b1)]
    while work:
        a0, a1, b0, b1 = work.pop()
        while a0 < a1 and b0 < b1 and old[a0] == new[b0]:
            pairs.append((a0, b0))
            a0, b0 = a0 + 1, b0 + 1
        tail = 0
        while a0 < a1 - tail and b0 < b1 - tail and old[a1 - tail - 1] == new[b1 - tail - 1]:
            tail += 1
        if tail:
            work.append((a1 - tail, a1, b1 - tail, b1))
            a1, b1 = a1 - tail, b1 - tail
        if a0 == a1 or b0 == b1:
            continue
        anchors = _anchors(old, new, a0, a1, b0, b1)
        if anchors:
            bounds = [*anchors, (a1, b1)]
            parts = [(a0, bounds[0][0], b0, bounds[0][1])]
            parts += [(a, e, b, f) for (a, b), (e, f) in pairwise(bounds)]
            work.extend(reversed(parts))
        elif (a1 - a0) * (b1 - b0) <= _EXACT:
            _exact(old, new, a0, a1, b0, b1, pairs)


def _anchors(
    old: Sequence[Hashable], new: Sequence[Hashable], a0: int, a1: int, b0: int, b1: int
) -> list[tuple[int, int]]:
    """Pairs of lines that are unique on both sides, reduced to a longest rising chain."""
    there = _unique(new, b0, b1)
    candidates = [(a, there[line]) for line, a in _unique(old, a0, a1).items() if line in there]
    tops: list[int] = []
    at: list[int] = []
    before: list[int] = []
    for i, (_, b) in enumerate(candidates):
        place = bisect_left(tops, b)
        before.append(at[place - 1] if place else -1)
        if place == len(tops):
            tops.append(b)
            at.append(i)
        else:
            tops[place] = b
            at[place] = i
    chain = []
    i = at[-1] if at else -1
    while i >= 0:
        chain.append(candidates[i])
        i = before[i]
    return chain[::-1]


def _unique(lines: Sequence[Hashable], start: int, end: int) -> dict[Hashable, int]:
    seen: dict[Hashable, int] = {}
    for i in range(start, end):
        line = lines[i]
        seen[line] = -1 if line in seen else i
    return {line: i for line, i in seen.items() if i >= 0}


def _exact(
    old: Sequence[Hashable],
    new: Sequence[Hashable],
    a0: int,
    a1: int,
    b0: int,
    b1: int,
    pairs: list[tuple[int, int]],
) -> None:
    """Longest common subsequence of a small gap by the textbook table."""
    width = b1 - b0 + 1
    table = [[0] * width for _ in range(a1 - a0 + 1)]
    for i in range(a1 - a0 - 1, -1, -1):
        row, below, line = table[i], table[i + 1], old[a0 + i]
        for j in range(width - 2, -1, -1):
            row[j] = below[j + 1] + 1 if line == new[b0 + j] else max(below[j], row[j + 1])
    i = j = 0
    while i < a1 - a0 and j < b1 - b0:
        if old[a0 + i] == new[b0 + j]:
            pairs.append((a0 + i, b0 + j))
            i, j = i + 1, j + 1
        elif table[i + 1][j] >= table[i][j + 1]:
            i += 1
        else:
            j += 1
