"""Alignment: right for every input, and quick for large ones."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from onetake.snapshot.diff.align import Block, Gap, blocks, gaps

LINES = st.lists(st.sampled_from("abcdef"), max_size=40)


@given(LINES, LINES)
def test_blocks_are_equal_runs_in_rising_order(old: list[str], new: list[str]) -> None:
    """Whatever is aligned is equal, and no line is used twice."""
    a = b = 0
    for block in blocks(old, new):
        assert block.size > 0 and block.old_at >= a and block.new_at >= b
        assert old[block.old_at : block.old_at + block.size] == new[block.new_at : block.new_at + block.size]
        a, b = block.old_at + block.size, block.new_at + block.size


@given(LINES, LINES)
def test_applying_the_gaps_gives_the_new_text(old: list[str], new: list[str]) -> None:
    """Gaps and what lies between them cover both sides."""
    result, at = [], 0
    for gap in gaps(old, new):
        result += old[at : gap.a0] + new[gap.b0 : gap.b1]
        at = gap.a1
    assert result + old[at:] == new


@given(LINES)
def test_equal_texts_have_no_gap(lines: list[str]) -> None:
    """And unequal ones have at least one."""
    assert gaps(lines, lines) == []
    assert gaps([*lines, "x"], lines) == [Gap(len(lines), len(lines) + 1, len(lines), len(lines))]


def test_small_gaps_are_solved_exactly() -> None:
    """Repeated lines, no anchor: the longest common subsequence is found."""
    assert blocks(list("xabab"), list("ababa")) == [Block(1, 0, 4)]
    assert sum(block.size for block in blocks(list("aabb"), list("abab"))) == 3


def test_unique_lines_anchor_what_moved_around_them() -> None:
    """Two unique lines that changed places: one of them stays aligned."""
    old, new = ["1", "a", "2", "b", "3"], ["1", "b", "2", "a", "3"]
    assert sum(block.size for block in blocks(old, new)) == 3


def test_anchors_keep_many_changes_apart() -> None:
    """More edits than are solved exactly: what is unique between them still says what belongs together."""
    old = [line for number in range(500) for line in (f"kept {number}", f"old {number}")]
    new = [line for number in range(500) for line in (f"kept {number}", f"new {number}")]
    assert gaps(old, new) == [Gap(at, at + 1, at, at + 1) for at in range(1, 1_000, 2)]


def test_ten_thousand_lines_that_differ_everywhere() -> None:
    """The work grows with n log n: counted in comparisons, not in seconds."""
    compared = 0

    class Line:
        def __init__(self, text: str) -> None:
            self.text = text

        def __hash__(self) -> int:
            return hash(self.text)

        def __eq__(self, other: object) -> bool:
            nonlocal compared
            compared += 1
            return isinstance(other, Line) and self.text == other.text

    chance = random.Random(7)
    old = [Line(str(chance.randrange(3_000))) for _ in range(10_000)]
    new = [Line(str(chance.randrange(3_000))) for _ in range(10_000)]
    gaps(old, new)
    unrelated = [Line(f"n{number}") for number in range(10_000)]
    assert gaps(old, unrelated) == [Gap(0, 10_000, 0, 10_000)]
    assert compared < 1_000_000
