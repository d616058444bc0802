"""Binding live sessions to recorded ones by lineage."""

from __future__ import annotations

from onetake.fixture.lineage import SessionFacts, Spawn
from onetake.replay.binding import bind


def child(name: str, parent: str, turn: int, step: int, call: str, ordinal: int = 0) -> SessionFacts:
    return SessionFacts(name, parent, Spawn(turn, step, call, ordinal))


P = SessionFacts("p")
A = child("a", "p", 1, 1, "call-a")
B = child("b", "p", 1, 1, "call-b")
B2 = child("b2", "p", 1, 1, "call-b", 1)
C = child("c", "p", 2, 1, "call-a")
AA = child("aa", "a", 1, 1, "call-x")
RECORDED = [P, A, AA, B, B2, C]


def test_children_are_numbered_depth_first_whatever_started_first() -> None:
    assert bind([P, C, B2, AA, B, A]) == {"p": 0, "a": 1, "aa": 2, "b": 3, "b2": 4, "c": 5}


def test_a_part_of_the_sessions_gets_the_same_numbers() -> None:
    assert bind([P, C, AA, B2, A], RECORDED) == {"p": 0, "a": 1, "aa": 2, "b2": 4, "c": 5}


def test_further_top_level_sessions_and_foreign_children_go_by_creation() -> None:
    two, x, y = SessionFacts("q"), SessionFacts("x", "p"), SessionFacts("y", "p")
    assert bind([P, two, y, x, A]) == {"p": 0, "a": 1, "y": 2, "x": 3, "q": 4}
    recorded = bind([P, A, y, x, two])
    assert bind([P, two, y], [P, A, y, x, two]) == {"p": 0, "q": 4, "y": 2} and recorded["q"] == 4


def test_an_unknown_parent_makes_a_top_level_session() -> None:
    assert bind([P, SessionFacts("o", "gone")]) == {"p": 0, "o": 1}


def test_a_moved_call_is_still_known_by_its_id() -> None:
    moved = child("live", "p", 3, 2, "call-b")
    assert bind([P, moved], RECORDED)["live"] == 3


def test_an_ambiguous_or_new_call_has_no_place() -> None:
    assert bind([P, child("live", "p", 3, 1, "call-a")], RECORDED)["live"] == len(RECORDED)
    assert bind([P, child("live", "p", 1, 1, "new")], RECORDED)["live"] == len(RECORDED)
    assert bind([P, SessionFacts("live", "p")], RECORDED)["live"] == len(RECORDED)


def test_children_of_a_foreign_recording_go_by_creation() -> None:
    one, two, three = (child(name, "p", 1, 1, f"call-{name}") for name in ("one", "two", "three"))
    recorded = [P, SessionFacts("x", "p"), SessionFacts("y", "p")]
    assert bind([P, one, two, three], recorded) == {"p": 0, "one": 1, "three": 2, "two": 3}


def test_children_of_a_session_without_a_place_have_none_either() -> None:
    stray = child("s", "p", 1, 1, "new")
    below = child("t", "s", 1, 1, "call-x")
    assert bind([P, stray, below], RECORDED) == {"p": 0, "s": 6, "t": 7}


def test_more_top_level_sessions_than_recorded_have_no_place() -> None:
    assert bind([P, SessionFacts("q")], [P]) == {"p": 0, "q": 1}
    assert bind([P], []) == {"p": 0}
