"""Our example agent, driven from another harness's recordings: the same frames, the same tool results.

The corpus was recorded by a harness that we did not write. Its model input and its scripts, replayed through
our real agent, show that wire facts, stop reasons and tool output are not merely consistent with themselves.
"""

from __future__ import annotations

import asyncio
import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from onetake.session.jsonl import read_log
from onetake.snapshot.drive.execute import execute
from onetake.snapshot.drive.harvest import Harvest
from onetake.snapshot.modes.judge import judge
from onetake.snapshot.render.pins import load_pins
from onetake.snapshot.suites.suite import load_suite

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "acp-agent"
SCENARIOS = {
    "text-turn": "T1",
    "product-subagent-codex": "T1",
    "cancel": "T1",
    "error-finish": "T1",
    "reject-extra-dirs": "T1",
    "bash-tool-turn": "T2",
    "bash-spill": "T2",
    "cancel-tool-calls": "T2",
}
SUBAGENTS = ("subagent-spawn-in-process", "subagent-fork-in-process", "subagent-depth-two-rejection")
"""Scenarios of a later tier whose children use no tool that the example agent lacks."""
SUITE = """
[suite]
surfaces = ["stdout"]

[agent]
command = ["onetake", "acp", "--config", "{{config}}"]
config = "agent.yml"

[normalize.stdout]
drop = ["result.agentInfo", "result.agentCapabilities"]

[scenarios.{name}]
recorded = false
overridden = {overridden}
model_turn = {model_turn}
{needs}
"""
AGENT = """
base: {example}/agent.yml
patches:
  - id: shell
    config:
      max_output_bytes: 800
  - insert:
      - id: delegation
        use: delegation
        config:
          max_depth: 2
"""
OVERLAY = """
base: agent.yml
patches:
  - id: deepseek
    disabled: true
  - insert:
      - id: replay
        use: replay
    after: deepseek
"""


@pytest.mark.parametrize("name", [*SCENARIOS, *SUBAGENTS, "packed-chunks"])
def test_frames_and_tool_results_equal_the_corpus(name: str, shared_dir: Path, tmp_path: Path) -> None:
    """The transcript is theirs, frame for frame, and so is every result of a command that ran."""
    theirs = shared_dir / "dsh-corpus" / "acp-agent" / name
    suite = load_suite(make_suite(theirs, tmp_path))
    scenario = suite.scenarios[name]
    harvest = asyncio.run(execute(suite, scenario, "replay"))
    try:
        verdict = judge(harvest, scenario, suite, load_pins(suite))
        assert not verdict.differences, "\n".join(f"{d.message}\n{d.diff}" for d in verdict.differences)
        assert not verdict.problems, "\n".join(problem.text() for problem in verdict.problems)
        recorded = read_log((theirs / "session.jsonl").read_bytes(), name).events
        live = [event for log in harvest.sessions for event in log.events]
        ran = tool_results(recorded)
        assert {call: result for call, result in tool_results(live).items() if call in ran} == ran
    finally:
        harvest.discard()


def test_a_changed_frame_of_the_corpus_is_red(shared_dir: Path, tmp_path: Path) -> None:
    """The comparison above can fail: one word of the expected transcript is enough."""
    path = make_suite(shared_dir / "dsh-corpus" / "acp-agent" / "text-turn", tmp_path)
    expected = path.parent / "text-turn" / "stdout.expected.jsonl"
    expected.write_text(expected.read_text().replace("PONG", "PING"))
    suite = load_suite(path)
    harvest: Harvest = asyncio.run(execute(suite, suite.scenarios["text-turn"], "replay"))
    try:
        verdict = judge(harvest, suite.scenarios["text-turn"], suite, load_pins(suite))
    finally:
        harvest.discard()
    assert [d.surface for d in verdict.differences] == ["stdout"]


def test_the_list_is_complete(shared_dir: Path) -> None:
    """Every scenario of the tiers that a bash-only agent covers is driven."""
    index = json.loads((shared_dir / "dsh-corpus" / "index.json").read_text())
    covered = {
        entry["id"].removeprefix("acp-agent/"): entry["tier"]
        for entry in index["scenarios"]
        if entry["suite"] == "acp-agent" and entry["tier"] in ("T1", "T2")
    }
    assert covered == SCENARIOS


def make_suite(theirs: Path, tmp_path: Path) -> Path:
    """Lay out one corpus scenario as a suite of ours, around the example agent; return its suite.toml."""
    folder = tmp_path / theirs.name
    folder.mkdir()
    children = [path.name for path in theirs.glob("session.*.jsonl")]
    for file in ("input.json", "session.jsonl", "replay.override.json", *children):
        if (theirs / file).exists():
            shutil.copyfile(theirs / file, folder / file)
    frames = [json.loads(line) for line in (theirs / "stdout.expected.jsonl").read_text().splitlines()]
    for frame in frames:
        for key in ("agentInfo", "agentCapabilities"):
            frame.get("result", {}).pop(key, None)
    text = "".join(json.dumps(frame, ensure_ascii=False, separators=(",", ":")) + "\n" for frame in frames)
    (folder / "stdout.expected.jsonl").write_text(text)
    calls_model = "assistant/chunk" in (theirs / "session.jsonl").read_text()
    uses_node = "node -e" in (theirs / "session.jsonl").read_text()
    (tmp_path / "suite.toml").write_text(
        SUITE.format(
            name=theirs.name,
            overridden=json.dumps((theirs / "replay.override.json").exists()),
            model_turn=json.dumps(calls_model),
            needs='needs = ["node"]' if uses_node else "",
        )
    )
    if uses_node and shutil.which("node") is None:
        pytest.skip("the recorded commands call node, which is not on PATH")
    (tmp_path / "agent.yml").write_text(AGENT.format(example=EXAMPLE))
    (tmp_path / "agent.snapshot.yml").write_text(OVERLAY)
    return tmp_path / "suite.toml"


def tool_results(events: list[dict[str, Any]]) -> dict[str, tuple[bool, list[str]]]:
    """By call id, what each command that ran answered.

    Calls that were cancelled, or refused by a policy of the other harness, ran no command: what is said of
    them is each harness's own wording.
    """
    found = {}
    for event in events:
        if event["type"] == "tool/result" and event["data"].get("error", {}).get("name") != "AbortError":
            (block,) = event["data"]["message"]["content"]
            texts = [without_spill_details(part["text"]) for part in block["content"]]
            if not any(text.startswith("Error: bash is disabled") for text in texts):
                found[block["toolCallId"]] = (block["isError"], texts)
    return found


def without_spill_details(text: str) -> str:
    """A shortened result without what depends on the length of a temp path: notice and kept filler."""
    body, notice, _ = text.partition("\n\n(")
    if not notice:
        return text
    return re.sub(r"x{100,}", "x...", body) + " (shortened, with a notice)"
