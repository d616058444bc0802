"""Refresh: harness output is rewritten, model input is not, and nothing else is touched."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from onetake.session.jsonl import encode_log, read_log
from onetake.snapshot import attempt
from onetake.snapshot.drive.execute import execute
from onetake.snapshot.guard.contents import staged_problems
from onetake.snapshot.modes import commit
from onetake.snapshot.modes.refresh import chunk_problems
from onetake.snapshot.render.pins import Pins, load_pins
from tests.snapshot.lab import Lab, failures, red


def test_twice_changes_nothing(lab: Lab) -> None:
    """What was recorded is what refresh would write."""
    before = lab.files()
    for _ in range(2):
        outcomes = lab.refresh()
        assert red(outcomes) == {}, failures(outcomes)
        assert all(not outcome.verdict.written for outcome in outcomes.values())
    assert lab.changed_since(before) == set()


def test_a_value_that_changes_from_run_to_run_is_not_written(lab: Lab) -> None:
    """It would be red in the next replay; the rule that covers it is shown."""
    lab.break_agent("stamped_results")
    before = lab.files()
    outcomes = lab.refresh("tools")
    assert red(outcomes)["tools"] >= {"log"}
    assert "the refreshed run (-) and a replay of it (+) disagree [unstable]" in failures(outcomes)
    advice = outcomes["tools"].verdict.advice
    assert advice is not None and "paste into suite.toml and refresh again:" in advice.text
    assert re.search("prints a value that changes from run to run: `7a7[0-9a-f]{12}7`, `7a7", advice.text)
    assert "[[normalize.log.mask]]" in advice.rules and "(job [0-9a-f]{16}" in advice.rules
    assert lab.changed_since(before) == set()


@pytest.mark.parametrize(("changed", "runs"), [("", 1), ("output", 2), ("spelling", 2)])
def test_only_what_would_be_written_runs_twice(
    lab: Lab, monkeypatch: pytest.MonkeyPatch, changed: str, runs: int
) -> None:
    """Whatever changes in it: also what replay takes for equal."""
    if changed == "output":
        lab.break_agent("lost_event")
    if changed == "spelling":
        lab.edit("snapshots/tools/session.jsonl", "{{system:hello}}", "{{system}}")
    modes = []

    async def counted(suite: Any, scenario: Any, mode: str, *more: Any) -> Any:
        modes.append(mode)
        return await execute(suite, scenario, mode, *more)

    monkeypatch.setattr(attempt, "execute", counted)
    assert red(lab.refresh("tools")) == {}
    assert modes == ["refresh", "replay"][:runs]


def test_files_that_no_replay_would_take_are_not_written(lab: Lab) -> None:
    """The old ones are red for it as well; but a write must not pass for a repair."""
    end = '"block":{"type":"text","text":"'
    lab.edit("snapshots/tools/session.jsonl", f"{end}Both", f"{end}None")
    before = lab.files()
    outcomes = lab.refresh("tools")
    assert red(outcomes) == {"tools": {"model-input"}}, failures(outcomes)
    assert "its deltas say 'Both ran.', and its end says 'None ran.'" in failures(outcomes)
    assert "nothing was written; a replay of it would be red for this" in failures(outcomes)
    assert lab.changed_since(before) == set()


def test_what_is_staged_is_judged_as_it_will_lie_there(lab: Lab) -> None:
    """Every guard that looks into files of one scenario, with the pins as they are after the write."""
    scenario = lab.suite.scenarios["tools"]
    files = {path.name: path.read_bytes() for path in scenario.dir.glob("*.jsonl")}
    pins = load_pins(lab.suite)

    def guards(changed: dict[str, bytes], known: Pins = pins) -> set[str]:
        found = staged_problems(scenario, lab.suite, {**files, **changed}, known)
        assert all("nothing was written" in problem.remedy for problem in found)
        return {problem.guard for problem in found}

    log = files["session.jsonl"]
    assert guards({}) == set()
    assert guards({}, Pins([], ["hello"])) == {"unknown-pin"}
    assert "orphan-file" in guards({"session.2.jsonl": log})
    assert guards({"requests.expected.jsonl": b'{"a": 1}\n'}) == {"non-canonical"}
    end = b'"block":{"type":"text","text":"'
    assert guards({"session.jsonl": log.replace(end + b"Both", end + b"None")}) == {"model-input"}
    assert "underivable" in guards({"session.jsonl": log[: log.rindex(b'{"type":"assistant/chunk"')]})


def test_one_scenario_only(lab: Lab) -> None:
    """A change that shows everywhere is accepted where it was asked for."""
    lab.break_agent("lost_event")
    before = lab.files()
    outcomes = lab.refresh("tools")
    assert red(outcomes) == {}, failures(outcomes)
    assert lab.changed_since(before) == {"tools/session.jsonl"}
    assert set(red(lab.replay())) == {"hello", "echo", "fails"}


def test_a_dry_run_knows_what_follows_from_a_pin(lab: Lab) -> None:
    """The other scenarios are judged by the pin as it would be."""
    lab.edit("agent.yml", "careful engineer", "cautious engineer")
    before = lab.files()
    outcomes = lab.refresh(dry_run=True)
    assert red(outcomes) == {}, failures(outcomes)
    assert outcomes["hello"].verdict.written == ["system-prompt.expected.md"]
    assert [name for name, outcome in outcomes.items() if outcome.verdict.written] == ["hello"]
    assert lab.changed_since(before) == set()


def test_a_scenario_whose_pin_is_stale_is_refused(lab: Lab) -> None:
    """Its header would name a text that is not the one it sent; the message says what to refresh first."""
    lab.edit("agent.yml", "careful engineer", "cautious engineer")
    before = lab.files()
    outcomes = lab.refresh("tools")
    assert red(outcomes) == {"tools": {"unpinned-header"}}
    assert "refresh the pin first: onetake refresh" in failures(outcomes)
    assert "-k hello" in failures(outcomes) and "+ You are a cautious engineer." in failures(outcomes)
    assert lab.changed_since(before) == set()


def test_a_scenario_with_a_prompt_of_its_own_becomes_a_pin(lab: Lab) -> None:
    """Prompts and schemas are named independently: the schemas are still those of the first pin."""
    (lab.folder / "other.yml").write_text((lab.folder / "agent.yml").read_text().replace("careful", "bold"))
    overlay = (lab.folder / "agent.snapshot.yml").read_text().replace("agent.yml", "other.yml")
    (lab.folder / "other.snapshot.yml").write_text(overlay)
    lab.edit("snapshots/suite.toml", "[scenarios.tools]", '[scenarios.tools]\nconfig = "../other.yml"')
    outcomes = lab.refresh("tools")
    assert red(outcomes) == {"tools": {"unpinned-header"}}
    assert "pins_header = true in [scenarios.tools]" in failures(outcomes)
    lab.edit("snapshots/suite.toml", "[scenarios.tools]", "[scenarios.tools]\npins_header = true")
    before = lab.files()
    outcomes = lab.refresh("tools")
    assert red(outcomes) == {}, failures(outcomes)
    assert lab.changed_since(before) == {
        "tools/session.jsonl",
        "tools/requests.expected.jsonl",
        "tools/system-prompt.expected.md",
    }
    header = next(
        json.loads(line)["data"]["header"]
        for line in (lab.snapshots / "tools/session.jsonl").read_text().split("\n")
        if '"request/header"' in line
    )
    assert (header["system"], header["tools"]) == ("{{system:tools}}", "{{tools:hello}}")
    assert red(lab.replay()) == {}


def test_unnamed_tokens_are_read_and_written_with_their_name(lab: Lab) -> None:
    """`{{system}}` means the suite's only pin."""
    for name in ("session.jsonl", "requests.expected.jsonl"):
        lab.edit(f"snapshots/tools/{name}", "{{system:hello}}", "{{system}}")
        lab.edit(f"snapshots/tools/{name}", "{{tools:hello}}", "{{tools}}")
    assert red(lab.replay()) == {}
    before = lab.files()
    assert red(lab.refresh("tools")) == {}
    assert lab.changed_since(before) == {"tools/session.jsonl", "tools/requests.expected.jsonl"}
    assert "{{system}}" not in (lab.snapshots / "tools/session.jsonl").read_text()


def test_recorded_gaps_stay(lab: Lab) -> None:
    """They are the recording's, and no replay has them."""
    path = lab.snapshots / "hello/session.jsonl"
    lines = path.read_text().split("\n")
    row = next(number for number, line in enumerate(lines) if line.startswith('{"type":"text-chunks"'))
    record = json.loads(lines[row])
    record["data"]["dt"] = [7] * len(record["data"]["dt"])
    lines[row] = json.dumps(record, separators=(",", ":"))
    path.write_text("\n".join(lines))
    before = lab.files()
    assert red(lab.replay("hello")) == {}
    lab.break_agent("lost_event")
    assert red(lab.refresh("hello")) == {}
    assert lab.changed_since(before) == {"hello/session.jsonl"}
    assert '"dt":[7' in path.read_text()


def test_what_the_model_said_is_never_rewritten(lab: Lab) -> None:
    """An agent that logs other chunks than it got is refused."""
    lab.break_agent("changed_chunks")
    before = lab.files()
    outcomes = lab.refresh("hello")
    assert "chunks-changed" in red(outcomes)["hello"], failures(outcomes)
    assert "refresh would change what the model said" in failures(outcomes)
    assert lab.changed_since(before) == set()


@pytest.mark.parametrize("scenario", ["hello", "tools", "echo"])
def test_every_field_of_every_chunk_is_model_input(lab: Lab, scenario: str) -> None:
    """Usage, ids, reasons and tool arguments as much as text. Only where a call stands may change."""
    suite = lab.suite
    old = (lab.snapshots / scenario / "session.jsonl").read_bytes()

    def refused(change: Callable[[list[dict[str, Any]]], None]) -> bool:
        log = read_log(old, "session.jsonl")
        change([event["data"] for event in log.events if event["type"] == "assistant/chunk"])
        new = encode_log(log.header, log.events, project=True)
        return bool(
            chunk_problems({"session.jsonl": old}, {"session.jsonl": new}, suite.scenarios[scenario], suite)
        )

    def moved(chunks: list[dict[str, Any]]) -> None:
        for data in chunks:
            data["turn"] += 3

    def exchanged(chunks: list[dict[str, Any]]) -> None:
        chunks[0]["chunk"], chunks[1]["chunk"] = chunks[1]["chunk"], chunks[0]["chunk"]

    assert not refused(lambda chunks: None) and not refused(moved)
    assert refused(exchanged)
    kinds = set()
    for number, data in enumerate(c["data"] for c in chunk_events(old)):
        for path in leaves(data["chunk"]):
            kinds.add((data["chunk"]["type"], path[-1]))
            assert refused(lambda chunks, n=number, p=path: alter(chunks[n]["chunk"], p)), (data, path)
    said = ("block-end", "arguments" if scenario == "tools" else "text")
    assert {("usage", "inputTokens"), ("finish", "kind"), said} <= kinds


def chunk_events(fixture: bytes) -> list[dict[str, Any]]:
    """The events of a fixture that hold a chunk."""
    return [e for e in read_log(fixture, "session.jsonl").events if e["type"] == "assistant/chunk"]


def leaves(value: Any) -> Iterator[tuple[Any, ...]]:
    """The path to every string and number of a JSON value."""
    for key, item in value.items() if isinstance(value, dict) else enumerate(value):
        if isinstance(item, dict | list):
            yield from ((key, *rest) for rest in leaves(item))
        else:
            yield (key,)


def alter(value: Any, path: tuple[Any, ...]) -> None:
    """Change one leaf of a JSON value."""
    for key in path[:-1]:
        value = value[key]
    leaf = value[path[-1]]
    value[path[-1]] = f"{leaf}X" if isinstance(leaf, str) else leaf + 1


def test_recorded_calls_may_not_vanish(lab: Lab) -> None:
    """A fixture of a child that no longer runs holds model input too."""
    suite = lab.suite
    hello = suite.scenarios["hello"]
    fixture = (lab.snapshots / "hello/session.jsonl").read_bytes()
    found = chunk_problems(
        {"session.jsonl": fixture, "session.1.jsonl": fixture}, {"session.jsonl": fixture}, hello, suite
    )
    assert [(p.guard, p.file) for p in found] == [("chunks-changed", "hello/session.1.jsonl")] * 2
    assert "no call now" in found[0].message


def test_an_override_may_say_something_else(lab: Lab) -> None:
    """What it replaces is no model input."""
    path = lab.snapshots / "fails/replay.override.json"
    entry = {"kind": "throw", "message": "down", "code": "SERVER", "chunks": []}
    entry["chunks"] = [{"type": "block-start", "index": 0, "blockType": "text"}]
    path.write_text(json.dumps([entry]))
    assert "log" in red(lab.replay("fails"))["fails"]
    outcomes = lab.refresh("fails")
    assert red(outcomes) == {}, failures(outcomes)
    path.write_text(json.dumps({"patches": [{"at": 0, "entry": {**entry, "message": "still down"}}]}))
    outcomes = lab.refresh("fails")
    assert red(outcomes) == {}, failures(outcomes)
    assert red(lab.replay("fails")) == {}


def test_a_secret_in_harness_output_is_refused(lab: Lab) -> None:
    """Refresh writes files as record does, and looks at them as record does."""
    lab.break_agent("leaked_key")
    before = lab.files()
    outcomes = lab.refresh("hello")
    assert red(outcomes) == {"hello": {"secret"}}, failures(outcomes)
    assert "bearer token" in failures(outcomes)
    assert lab.changed_since(before) == set()


def test_missing_expected_files_are_written(lab: Lab) -> None:
    """A new surface, or a lost file, needs no recording."""
    before = lab.files()
    (lab.snapshots / "hello/stdout.expected.jsonl").unlink()
    (lab.snapshots / "opened/session.jsonl").unlink()
    assert red(lab.replay("hello or opened")) == {"hello": {"missing-file"}, "opened": {"missing-file"}}
    assert red(lab.refresh("hello or opened")) == {}
    assert lab.changed_since(before) == set()


def test_a_log_that_is_not_compared_stays_as_it_is(lab: Lab) -> None:
    """Its scenario says that it is not stable; requests then spell out what the log would have held."""
    lab.edit("snapshots/suite.toml", "[scenarios.tools]", "[scenarios.tools]\ncompares_log = false")
    lab.break_agent("lost_event")
    before = lab.files()
    assert red(lab.refresh("tools")) == {}
    assert lab.changed_since(before) == {"tools/requests.expected.jsonl"}
    assert "one\\n" in (lab.snapshots / "tools/requests.expected.jsonl").read_text()
    assert red(lab.replay("tools")) == {}


def test_two_refreshes_at_a_time_that_write_the_same_agree(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second finds its work done."""
    write_files = commit.write_files

    def twice(directory: Path, files: dict[str, bytes | None], *, check: Callable[[], None]) -> list[str]:
        write_files(directory, files)
        return write_files(directory, files, check=check)

    monkeypatch.setattr(commit, "write_files", twice)
    lab.break_agent("lost_event")
    assert red(lab.refresh()) == {} and red(lab.replay()) == {}


@pytest.mark.parametrize("mode", ["record", "refresh"])
def test_what_another_command_records_meanwhile_is_not_undone(
    lab: Lab, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    """Neither overwritten with what this one had read, nor left as a mix of both."""
    write_files = commit.write_files
    folder = lab.snapshots / "tools"

    def late(directory: Path, files: dict[str, bytes | None], *, check: Callable[[], None]) -> list[str]:
        if directory == folder:
            said = (folder / "session.jsonl").read_bytes()
            (folder / "session.jsonl").write_bytes(said.replace(b"Both ran.", b"Both have run."))
            (folder / "session.1.jsonl").write_bytes(b"of a child\n")
        return write_files(directory, files, check=check)

    monkeypatch.setattr(commit, "write_files", late)
    lab.edit("agent.yml", "text: You", "text: Now you")
    lab.edit("snapshots/tools/input.json", "Run both", "Now Run both")
    before = lab.files()
    outcomes = lab.record("hello or tools") if mode == "record" else lab.refresh("hello or tools")
    assert red(outcomes) == {"tools": {"input"}}
    assert "session.1.jsonl, session.jsonl changed while this command ran" in failures(outcomes)
    assert lab.changed_since(before) == {
        "hello/system-prompt.expected.md",
        "tools/session.jsonl",
        "tools/session.1.jsonl",
    }
    assert b"Both have run." in (folder / "session.jsonl").read_bytes()
