"""Sessions and values keep their places in a recording, whichever process or child has them first."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from onetake.gateway.mock import MockModel
from onetake.snapshot.run import run_all, select
from tests.snapshot.children import Children
from tests.snapshot.lab import OPENING, Lab, command, failures, red

DRAW = "tr -dc a-f < /dev/urandom | head -c 8"
"""A new value in every run."""


def add(lab: Lab, name: str, steps: Sequence[dict[str, Any]]) -> None:
    """One more scenario."""
    (lab.snapshots / name).mkdir()
    (lab.snapshots / name / "input.json").write_text(json.dumps({"steps": steps}))
    with (lab.snapshots / "suite.toml").open("a") as suite:
        suite.write(f"\n[scenarios.{name}]\n")


def prompt(text: str) -> dict[str, Any]:
    return {"op": "prompt", "text": text}


def reply(match: str, text: str = "", *calls: dict[str, Any]) -> dict[str, Any]:
    return {"match": match, "reply": {"text": text, "toolCalls": list(calls), "deltaChars": 3}}


@pytest.mark.parametrize("kill", [[], [{"op": "kill", "signal": "SIGKILL"}]], ids=["ended", "killed"])
def test_a_session_after_a_restart_is_not_taken_for_the_first(lab: Lab, kill: list[dict[str, Any]]) -> None:
    steps = [*OPENING, prompt("One"), *kill, {"op": "restart"}, *OPENING, prompt("Two")]
    add(lab, "reborn", steps)
    outcomes = lab.record("reborn", replies=[reply("One", "First."), reply("Two", "Second.")])
    assert red(outcomes) == {}, failures(outcomes)
    assert "Second." in (lab.snapshots / "reborn" / "session.1.jsonl").read_text()
    assert red(lab.replay("reborn")) == {}


def test_a_session_that_was_told_nothing_takes_no_place(lab: Lab) -> None:
    add(lab, "silent", [*OPENING, {"op": "newSession"}, prompt("One")])
    outcomes = lab.record("silent", replies=[reply("One", "First.")])
    assert red(outcomes) == {}, failures(outcomes)
    assert red(lab.replay("silent")) == {}


def test_a_value_at_the_end_of_a_message_is_one_though_the_next_message_runs_on(lab: Lab) -> None:
    add(lab, "seam", [*OPENING, prompt("Where")])
    replies = [
        reply("Where", "", command("call_a", "pwd")),
        reply("Where", "It is {{fromRequest:(/[a-z0-9/-]+/work)}}", command("call_b", "true")),
        reply("Where", "as I said"),
    ]
    outcomes = lab.record("seam", replies=replies)
    assert red(outcomes) == {}, failures(outcomes)


@pytest.mark.parametrize(
    ("scenario", "settings", "remedy"),
    [
        ("hello", "", "record the scenario again: onetake record"),
        ("hello", "recorded = false", "change the fixtures of hello by hand"),
        ("fails", "", "change fails/replay.override.json"),
        ("opened", "", "remove `model_turn = false` of opened from suite.toml"),
    ],
)
def test_the_way_out_of_a_call_too_many_is_one_that_is_open(
    lab: Lab, scenario: str, settings: str, remedy: str
) -> None:
    """`record` refuses authored scenarios."""
    lab.edit("snapshots/suite.toml", f"[scenarios.{scenario}]\n", f"[scenarios.{scenario}]\n{settings}\n")
    path = lab.snapshots / scenario / "input.json"
    script = json.loads(path.read_text())
    script["steps"].append({"op": "promptExpectError", "text": "One more."})
    path.write_text(json.dumps(script))
    problems = lab.replay(scenario)[scenario].verdict.problems
    (found,) = [problem for problem in problems if problem.guard in ("extra-call", "unbound-session")]
    assert remedy in found.remedy


def test_a_child_in_an_overridden_scenario_needs_a_recording(tmp_path: Path) -> None:
    children = Children(tmp_path / "agent")
    suite, spawn = children.snapshots / "suite.toml", children.snapshots / "spawn"
    suite.write_text(suite.read_text().replace("[scenarios.fork]", "overridden = true\n\n[scenarios.fork]"))
    (spawn / "replay.override.json").write_text('{"patches": []}')
    (spawn / "session.1.jsonl").unlink()
    problems = children.replay("spawn")["spawn"].verdict.problems
    (found,) = [problem for problem in problems if problem.guard == "unbound-session"]
    assert "spawn/replay.override.json scripts session.jsonl only" in found.remedy


@pytest.mark.parametrize(("one", "two"), [("a", "b"), ("b", "a")])
def test_children_may_see_one_value_in_any_order(tmp_path: Path, one: str, two: str) -> None:
    """The recording names it by the child that was called first; the other one sees and repeats it first."""
    children = Children(tmp_path / "agent")
    badge = 'pattern = "badge ([0-9a-f]{8})"\nas = "badge"'
    stamp = 'pattern = "stamp ([a-f]{8})"\nas = "stamp"'
    children.edit("tests/snapshots/suite.toml", badge, stamp)
    add(children, "shared", [*OPENING, prompt("Have it looked at.")])
    seen = r"I saw {{fromRequest:\nstamp ([a-f]{8})}} and {{fromRequest:own stamp ([a-f]{8})}}."
    look = f"echo stamp $(cat stamp); echo own stamp $({DRAW})"

    def spawn(call: str, task: str) -> dict[str, Any]:
        return {"id": call, "name": "subagent", "arguments": {"description": task, "prompt": task}}

    first, second = r"\A[^\n]*\n?[^\n]*\n?slow", r"\A[^\n]*\n?[^\n]*\n?quick"
    replies = [
        reply(first, "", command("s", f"sleep 0.2; {look}")),
        reply(second, "", command("q", look)),
        reply(first, seen),
        reply(second, seen),
        reply("Have it", "", command("c", f"{DRAW} > stamp")),
        reply("Have it", "", spawn(one, "slow"), spawn(two, "quick")),
        reply("Have it", "Both saw it."),
    ]
    outcomes = _record(children, "shared", replies)
    assert red(outcomes) == {}, failures(outcomes)
    assert red(children.replay("shared")) == {}
    number = "ab".index(one) + 1
    for fixture in ("session.1.jsonl", "session.2.jsonl"):
        assert f"I saw {{{{stamp:{number}/1}}}} and" in (children.snapshots / "shared" / fixture).read_text()


def _record(children: Children, name: str, replies: list[dict[str, Any]]) -> dict[str | None, Any]:
    async def run() -> dict[str | None, Any]:
        async with MockModel({"replies": replies}) as model:
            with pytest.MonkeyPatch.context() as patch:
                patch.delenv("CI", raising=False)
                patch.setitem(os.environ, "MODEL_URL", model.base_url)
                patch.setitem(os.environ, "MODEL_KEY", "none")
                outcomes = await run_all(
                    select([children.suite], name), "record", jobs=1, dry_run=False, on_outcome=lambda _: None
                )
        return {outcome.name: outcome for outcome in outcomes}

    return asyncio.run(run())
