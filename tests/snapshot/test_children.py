"""Sub-agents as subjects: each child has its place in the recording, whatever the scheduler does."""

from __future__ import annotations

import json
import random
import re
from pathlib import Path

import pytest

from onetake.snapshot.modes.judge import judge
from onetake.snapshot.render.pins import load_pins
from tests.snapshot.children import Children
from tests.snapshot.lab import failures, red


@pytest.fixture
def children(tmp_path: Path) -> Children:
    return Children(tmp_path / "agent")


def test_four_children_replay_alike_however_they_are_scheduled(children: Children, nightly: bool) -> None:
    """Same user text, different system text, replies that echo an id: always the same bytes."""
    arrivals = set()
    for seed in range(100 if nightly else 3):
        children.disturb("shuffled", seed=seed)
        suite = children.suite
        harvest = children.run("four-gates")
        try:
            verdict = judge(harvest, suite.scenarios["four-gates"], suite, load_pins(suite))
            assert verdict.ok, f"seed {seed}: {[p.text() for p in verdict.problems]} {verdict.differences}"
            arrivals.add(tuple(harvest.bindings[request["session"]] for request in harvest.requests))
        finally:
            harvest.discard()
    assert len(arrivals) > 1, "the shuffling does nothing, so the test proves nothing"


def test_the_whole_suite_replays_alike_however_it_is_scheduled(children: Children, nightly: bool) -> None:
    for seed in random.Random(7).sample(range(10_000), 20 if nightly else 1):
        children.disturb("shuffled", seed=seed)
        outcomes = children.replay()
        assert red(outcomes) == {}, f"seed {seed}\n{failures(outcomes)}"


def test_refresh_changes_nothing_however_it_is_scheduled(children: Children) -> None:
    before = children.files()
    children.disturb("shuffled", seed=3)
    assert red(children.refresh("gates or background")) == {}
    assert children.changed_since(before) == {"suite.toml"}


def test_a_child_that_is_told_something_else_is_a_difference_that_refresh_accepts(children: Children) -> None:
    before = children.files()
    children.disturb("polite")
    outcomes = children.replay("spawn or two-gates")
    assert red(outcomes) == {"spawn": {"log"}, "two-gates": {"log"}}
    files = {d.file for d in outcomes["two-gates"].verdict.differences}
    assert files == {"two-gates/session.1.jsonl", "two-gates/session.2.jsonl"}
    assert "Please: Issue a badge" in failures(outcomes)
    assert red(children.refresh("spawn or two-gates")) == {}
    assert children.changed_since(before) == {"suite.toml", "spawn/session.1.jsonl", *files}
    assert red(children.replay("spawn or two-gates")) == {}


def test_an_edited_first_message_of_a_child_is_a_difference_too(children: Children) -> None:
    before = children.files()
    children.edit("tests/snapshots/two-gates/session.1.jsonl", "Issue a badge to Ada", "Issue one to Ada")
    assert red(children.replay("two-gates")) == {"two-gates": {"log"}}
    assert red(children.refresh("two-gates")) == {}
    assert children.changed_since(before) == set()


def test_swapped_ids_are_red(children: Children) -> None:
    children.disturb("swapped")
    outcomes = children.replay("two-gates")
    assert red(outcomes) == {"two-gates": {"log"}}
    (difference,) = outcomes["two-gates"].verdict.differences
    assert difference.file == "two-gates/session.jsonl"
    assert "North gate: {{badge:1/1}}" in difference.message
    assert "North gate: {{badge:2/1}}" in difference.message


def test_ids_that_are_all_new_are_not(children: Children) -> None:
    """The badges of two runs have nothing in common, and both runs are what the recording says."""
    numbers = []
    for _ in range(2):
        harvest = children.run("two-gates")
        try:
            suite = children.suite
            assert judge(harvest, suite.scenarios["two-gates"], suite, load_pins(suite)).ok
            numbers.append(set(re.findall(r"badge ([0-9a-f]{8})", json.dumps(harvest.requests))))
        finally:
            harvest.discard()
    assert len(numbers[0]) == len(numbers[1]) == 2 and not numbers[0] & numbers[1]


def test_swapped_sessions_in_a_fixture_are_red(children: Children) -> None:
    """Two notices that name each other's child."""
    path = children.snapshots / "background" / "session.jsonl"
    one, two = '"senderSessionId":"{{sessionId:1}}"', '"senderSessionId":"{{sessionId:2}}"'
    text = path.read_text()
    assert one in text and two in text
    path.write_text(text.replace(one, "\0").replace(two, one).replace("\0", two))
    assert red(children.replay("background and not wait")) == {"background": {"log"}}


def test_text_that_looks_like_a_token_survives(children: Children) -> None:
    harvest = children.run("two-gates")
    try:
        told = [m["content"][0] for m in harvest.requests[-1]["messages"] if m["source"]["kind"] == "tool"]
        texts = [block["content"][0]["text"] for block in told]
    finally:
        harvest.discard()
    assert len(texts) == 2 and all(text.endswith("I would write {{badge:1/1}}.") for text in texts)
    fixture = (children.snapshots / "two-gates" / "session.jsonl").read_text()
    assert r"I would write {{\\badge:1/1}}." in fixture


def test_a_child_without_a_place_is_a_violation_that_names_it(children: Children) -> None:
    (children.snapshots / "failing" / "session.2.jsonl").unlink()
    outcomes = children.replay("failing")
    (problem,) = [p for p in outcomes["failing"].verdict.problems if p.guard == "unbound-session"]
    assert "which holds session.jsonl, session.1.jsonl" in problem.message
    assert "spawned by call call_2_manual in turn 1, step 1" in problem.message


def test_a_missing_child_is_left_over_and_renumbers_no_other(children: Children) -> None:
    before = children.files()
    children.disturb("lazy")
    outcomes = children.replay("failing")
    assert red(outcomes) == {"failing": {"log", "leftover", "requests"}}
    (leftover,) = outcomes["failing"].verdict.problems
    assert (leftover.file, leftover.message) == (
        "failing/session.1.jsonl",
        "1 model calls are recorded, and the agent made 0",
    )
    files = {d.file for d in outcomes["failing"].verdict.differences}
    assert files == {"failing/session.1.jsonl", "failing/requests.expected.jsonl"}
    assert red(children.refresh("failing")) == {"failing": {"leftover"}}
    assert children.changed_since(before) == {"suite.toml"}
