"""Align two sequences of lines: which were kept, which went, which came.

`difflib` needs minutes for two long logs that differ everywhere, and a red run must explain itself at once.
Here a common head and tail are cut off, what lies between is anchored on lines that occur once on both sides
(the patience method), and a gap without an anchor is solved exactly where a few edits are enough (Myers'
method, quick when little differs). What would need more counts as replaced. The result is always a correct
alignment, not always a shortest one, in about n log n.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Hashable, Iterator, Mapping, Sequence
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
    """Lines between two blocks: old[a0:a1] was replaced by new[b0:b1] (in a result not both are empty)."""

    a0: int
    a1: int
    b0: int
    b1: int


def blocks(old: Sequence[Hashable], new: Sequence[Hashable]) -> list[Block]:
    """The aligned runs of equal lines, in order, merged when adjacent."""
    merged: list[Block] = []
    for a, b in _align(old, new):
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


def _align(old: Sequence[Hashable], new: Sequence[Hashable]) -> list[tuple[int, int]]:
    """The pairs of equal lines, in order."""
    pairs: list[tuple[int, int]] = []
    # A work list instead of recursion: nesting can be as deep as the log is long. Parts are pushed in
    # reverse, so that pairs come out in order.
    work = [Gap(0, len(old), 0, len(new))]
    while work:
        gap = work.pop()
        a0, a1, b0, b1 = gap.a0, gap.a1, gap.b0, gap.b1
        while a0 < a1 and b0 < b1 and old[a0] == new[b0]:
            pairs.append((a0, b0))
            a0, b0 = a0 + 1, b0 + 1
        tail = 0
        while a0 < a1 - tail and b0 < b1 - tail and old[a1 - tail - 1] == new[b1 - tail - 1]:
            tail += 1
        if tail:
            work.append(Gap(a1 - tail, a1, b1 - tail, b1))
            a1, b1 = a1 - tail, b1 - tail
        if a0 == a1 or b0 == b1:
            continue
        gap = Gap(a0, a1, b0, b1)
        anchors = _anchors(old, new, gap)
        if anchors:
            bounds = [*anchors, (a1, b1)]
            parts = [Gap(a0, bounds[0][0], b0, bounds[0][1])]
            parts += [Gap(a, e, b, f) for (a, b), (e, f) in pairwise(bounds)]
            work.extend(reversed(parts))
        else:
            pairs += _shortest(old, new, gap)
    return pairs


def _anchors(old: Sequence[Hashable], new: Sequence[Hashable], gap: Gap) -> list[tuple[int, int]]:
    """Pairs of lines that are unique on both sides, reduced to a longest rising chain."""
    there = _unique(new, gap.b0, gap.b1)
    candidates = [(a, there[line]) for line, a in _unique(old, gap.a0, gap.a1).items() if line in there]
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


def _shortest(old: Sequence[Hashable], new: Sequence[Hashable], gap: Gap) -> list[tuple[int, int]]:
    """The pairs of a shortest edit script of at most `_EDITS` edits; none when it would need more.

    `reach[k]` is how far into `old` some script of `edits` edits gets on diagonal k (`a - b`, both relative).
    """
    a0, b0, length, other = gap.a0, gap.b0, gap.a1 - gap.a0, gap.b1 - gap.b0
    reach = {1: 0}
    steps: list[dict[int, int]] = []
    for edits in range(min(_EDITS, length + other) + 1):
        steps.append(dict(reach))
        for k in range(-edits, edits + 1, 2):
            a = reach[k + 1] if _comes_down(reach, edits, k) else reach[k - 1] + 1
            while a < length and a - k < other and old[a0 + a] == new[b0 + a - k]:
                a += 1
            reach[k] = a
            if a >= length and a - k >= other:
                return list(_walk_back(steps, gap))[::-1]
    return []


def _comes_down(reach: Mapping[int, int], edits: int, k: int) -> bool:
    """Whether the last edit on diagonal k is a line that came: it gets further than one that went."""
    return k == -edits or (k != edits and reach[k - 1] < reach[k + 1])


def _walk_back(steps: Sequence[Mapping[int, int]], gap: Gap) -> Iterator[tuple[int, int]]:
    """The equal lines along the script that reached the end of the gap, last first."""
    a, b = gap.a1 - gap.a0, gap.b1 - gap.b0
    for edits in range(len(steps) - 1, -1, -1):
        reach, k = steps[edits], a - b
        down = _comes_down(reach, edits, k)
        start = max(0, reach[k + 1] if down else reach[k - 1] + 1)
        while a > start:
            a, b = a - 1, b - 1
            yield gap.a0 + a, gap.b0 + b
        a, b = (a, b - 1) if down else (a - 1, b)
