"""Waits for sub-agents: they mean what they say, however late a child or a notice is."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from onetake.fixture.lineage import session_facts
from tests.snapshot.children import Children
from tests.snapshot.lab import failures, red

START = {"op": "prompt", "text": "Start two surveys in the background and say that they run."}
ROOF, CELLAR = "call_1_roof", "call_2_cellar"
"""The calls that spawn child 1 and child 2; `late_children` starts the first last."""
KILL = {"op": "kill", "signal": "SIGKILL"}


@pytest.fixture
def children(tmp_path: Path) -> Children:
    return Children(tmp_path / "agent")


def cut(children: Children) -> None:
    """Let the scenario `background` end with its first prompt: the rest are turns of notices."""
    children.script("background", START)
    path = children.snapshots / "background" / "session.jsonl"
    text = path.read_text()
    end = text.index("\n", text.index('"type":"turn/end","data":{"turn":3')) + 1
    path.write_text(text[:end])
    assert red(children.refresh("background and not wait")) == {}


def killed_after(children: Children, wait: dict[str, Any], mode: str = "replay") -> list[str]:
    """Which children had ended when the wait was over, by the calls that spawned them."""
    children.script("background", START, {"op": "waitForSubagentTurnEnd", **wait}, KILL)
    harvest = children.run("background", mode)
    try:
        assert harvest.error is None, harvest.error
        return sorted(
            spawn.call_id
            for log in harvest.sessions
            if (spawn := session_facts(log.header, log.events).spawn) is not None
            and any(event["type"] == "turn/end" for event in log.events)
        )
    finally:
        harvest.discard()


def test_the_end_waits_for_notices_that_are_owed(children: Children, nightly: bool) -> None:
    cut(children)
    for seed in range(30 if nightly else 2):
        children.disturb("late_notices", seed=seed)
        outcomes = children.replay("background and not wait")
        assert red(outcomes) == {}, f"seed {seed}\n{failures(outcomes)}"


def test_waiting_for_quiet_includes_notices_that_are_owed(children: Children, nightly: bool) -> None:
    """The example's script: a prompt, `waitForIdle`, and a prompt that comes after the notices."""
    for seed in range(30 if nightly else 2):
        children.disturb("late_notices", seed=seed)
        outcomes = children.replay("background and not wait")
        assert red(outcomes) == {}, f"seed {seed}\n{failures(outcomes)}"


@pytest.mark.parametrize("mode", ["replay", "record"])
def test_child_1_is_no_other_child(children: Children, nightly: bool, mode: str) -> None:
    for seed in range(30 if nightly else 1):
        children.disturb("late_children", seed=seed)
        assert ROOF in killed_after(children, {"child": 1}, mode), f"seed {seed}"


def test_child_2_of_a_recording_need_not_wait_for_child_1(children: Children) -> None:
    children.disturb("stuck_child")
    assert killed_after(children, {"child": 2}) == [CELLAR]
    assert killed_after(children, {}) == [CELLAR]


def test_child_2_is_known_once_child_1_is_over_while_it_is_recorded(
    children: Children, nightly: bool
) -> None:
    for seed in range(30 if nightly else 1):
        children.disturb("late_children", seed=seed)
        assert killed_after(children, {"child": 2}, "record") == [ROOF, CELLAR], f"seed {seed}"


def test_children_of_a_killed_agent_are_not_waited_for(children: Children, nightly: bool) -> None:
    for seed in range(30 if nightly else 1):
        children.disturb("shuffled", seed=seed)
        outcomes = children.replay("killed")
        assert red(outcomes) == {}, f"seed {seed}\n{failures(outcomes)}"


def test_an_agent_that_is_restarted_ends_its_children_first(children: Children) -> None:
    """Unlike a killed one: their turns are closed, so that there is nothing to wait for either."""
    script = json.loads((children.snapshots / "killed" / "input.json").read_text())
    steps = [step for step in script["steps"][2:] if step["op"] != "kill"]
    children.script("killed", *steps)
    harvest = children.run("killed")
    try:
        assert (harvest.error, harvest.violations, harvest.leftovers) == (None, [], [])
        ends = [log.events[-1]["data"]["reason"]["kind"] for log in harvest.sessions]
    finally:
        harvest.discard()
    assert ends == ["completed", "aborted", "aborted", "completed", "completed"]
