"""Align two sequences of lines: which were kept, which went, which came.

`difflib` needs minutes for two long logs that differ everywhere, and a red run must explain itself at once.
Here a common head and tail are cut off, what lies between is anchored on lines that occur once on both sides
(the patience method), and a gap without an anchor is solved exactly where a few edits are enough (Myers'
method, quick when little differs). What would need more counts as replaced. The result is always a correct
alignment, not always a shortest one, in about n log n.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Hashable, Iterator, Sequence
from itertools import pairwise

import msgspec

_EDITS = 200
"""Most lines that may come and go in a gap without an anchor; all of it counts as replaced beyond that."""


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
        else:
            _shortest(old, new, a0, a1, b0, b1, pairs)


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


def _shortest(
    old: Sequence[Hashable],
    new: Sequence[Hashable],
    a0: int,
    a1: int,
    b0: int,
    b1: int,
    pairs: list[tuple[int, int]],
) -> None:
    """The pairs of a shortest edit script of at most `_EDITS` edits; none when it would need more.

    `reach[k]` is how far into `old` some script of `edits` edits gets on diagonal k (`a - b`, both relative).
    """
    reach = {1: 0}
    steps: list[dict[int, int]] = []
    for edits in range(min(_EDITS, a1 - a0 + b1 - b0) + 1):
        steps.append(dict(reach))
        for k in range(-edits, edits + 1, 2):
            down = k == -edits or (k != edits and reach[k - 1] < reach[k + 1])
            a = reach[k + 1] if down else reach[k - 1] + 1
            while a0 + a < a1 and b0 + a - k < b1 and old[a0 + a] == new[b0 + a - k]:
                a += 1
            reach[k] = a
            if a >= a1 - a0 and a - k >= b1 - b0:
                pairs += reversed(list(_walk_back(steps, a0, b0, a1 - a0, b1 - b0)))
                return


def _walk_back(
    steps: Sequence[dict[int, int]], a0: int, b0: int, a: int, b: int
) -> Iterator[tuple[int, int]]:
    """The equal lines along the script that reached (a, b), last first."""
    for edits in range(len(steps) - 1, -1, -1):
        reach, k = steps[edits], a - b
        down = k == -edits or (k != edits and reach[k - 1] < reach[k + 1])
        start = max(0, reach[k + 1] if down else reach[k - 1] + 1)
        while a > start:
            a, b = a - 1, b - 1
            yield a0 + a, b0 + b
        a, b = (a, b - 1) if down else (a - 1, b)
