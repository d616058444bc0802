"""Recording: model input from the live run, all else from its replay, and a doubtful take is refused."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from onetake import jsontext
from onetake.replay.script import derive_calls
from onetake.session.jsonl import read_log
from onetake.snapshot.modes.record import record_scenario
from tests.snapshot.lab import REPLIES, USAGE, Lab, command, failures, red


def log_text(lab: Lab, scenario: str) -> str:
    """The fixture of a scenario."""
    return (lab.snapshots / scenario / "session.jsonl").read_text(encoding="utf-8")


def said(lab: Lab, scenario: str) -> list[list[str]]:
    """The text deltas of each recorded call."""
    log = read_log(log_text(lab, scenario).encode(), scenario)
    return [
        [chunk["text"] for chunk in call.chunks if chunk["type"] == "text-delta"]
        for call in derive_calls(log.events)
    ]


def test_what_the_model_said_is_kept_as_it_came(lab: Lab) -> None:
    """Delta by delta, with the echoed path as a token in the delta where it starts."""
    assert said(lab, "hello")[0] == ["He", "ll", "o!"]
    deltas = said(lab, "echo")[1]
    assert "".join(deltas) == "You are in {{cwd}} right now."
    assert "{{cwd}}" in next(delta for delta in deltas if "{{" in delta)
    assert deltas.count("") > 10, "the deltas that held the rest of the path are empty"


def test_no_generated_value_is_committed(lab: Lab) -> None:
    """No path and no id of the run is in any file."""
    everything = b"".join(lab.files().values()).decode()
    assert "/ot-" not in everything
    assert not [
        line for line in everything.split("\n") if '"id":"' in line and "-4" in line.split('"id":"')[1][:20]
    ]


def test_headers_are_named_and_committed_once(lab: Lab) -> None:
    """Every fixture names the pin; its sidecars hold the texts."""
    for scenario in ("hello", "tools", "echo", "fails"):
        assert '"system":"{{system:hello}}","tools":"{{tools:hello}}"' in log_text(lab, scenario)
    prompt = (lab.snapshots / "hello/system-prompt.expected.md").read_text()
    assert prompt.endswith("Your workspace is {{cwd}}.\n")
    assert json.loads((lab.snapshots / "hello/tool-schemas.expected.json").read_text())[0]["name"] == "bash"


def test_a_request_line_is_short(lab: Lab) -> None:
    """Messages that the log holds are named; the second call says how much it kept."""
    lines = [
        json.loads(line)
        for line in (lab.snapshots / "hello/requests.expected.jsonl").read_text().splitlines()
    ]
    assert [(line["session"], line["call"], line["purpose"], line["kept"]) for line in lines] == [
        (0, 1, "main", 0),
        (0, 2, "main", 1),
    ]
    assert lines[0]["messages"] == ["{{msg:0.1}}"]
    assert lines[1]["messages"] == ["{{msg:1.1}}", "{{msg:1.2}}"]
    assert lines[1]["system"] == "{{system:hello}}" and lines[1]["tools"] == "{{tools:hello}}"
    assert list(lines[0]) == ["session", "call", "purpose", "config", "system", "tools", "kept", "messages"]


def test_recording_again_touches_the_selected_scenario_only(lab: Lab) -> None:
    """Another answer changes the files of one scenario."""
    before = lab.files()
    replies: list[dict[str, Any]] = json.loads(json.dumps(REPLIES).replace("Both ran.", "They both ran."))
    outcomes = lab.record("tools", replies=replies)
    assert red(outcomes) == {}, failures(outcomes)
    changed = lab.changed_since(before)
    assert changed == {"tools/session.jsonl", "tools/stdout.expected.jsonl"}
    assert set(outcomes["tools"].verdict.written) == {"session.jsonl", "stdout.expected.jsonl"}
    assert red(lab.replay()) == {}


def test_a_dry_run_shows_and_writes_nothing(lab: Lab) -> None:
    """`--dry-run` names the files that would change."""
    before = lab.files()
    replies = json.loads(json.dumps(REPLIES).replace("Both ran.", "They both ran."))
    outcomes = lab.record("tools", replies=replies, dry_run=True)
    assert set(outcomes["tools"].verdict.written) == {"session.jsonl", "stdout.expected.jsonl"}
    assert any('+ "They both ran."' in change.message for change in outcomes["tools"].verdict.changes)
    assert lab.changed_since(before) == set()


def test_an_authored_scenario_is_not_recorded(lab: Lab) -> None:
    """It is skipped by the command, and refused by the function."""
    before = lab.files()
    outcomes = lab.record("fails")
    assert outcomes["fails"].skipped

    async def never(mode: str, scenario: object, folder: Path) -> Any:
        raise AssertionError("an authored scenario must not run in record mode")

    suite = lab.suite
    verdict = asyncio.run(record_scenario(never, suite.scenarios["fails"], suite))
    assert [problem.guard for problem in verdict.problems] == ["authored"]
    assert lab.changed_since(before) == set()


def test_a_failed_run_leaves_the_old_bytes(lab: Lab) -> None:
    """The endpoint has no answer: nothing is written, and the message says why."""
    before = lab.files()
    outcomes = lab.record("hello", replies=[])
    assert red(outcomes) == {"hello": {"drive"}}, failures(outcomes)
    assert "no scripted reply fits" in failures(outcomes)
    assert lab.changed_since(before) == set()


def test_a_live_run_that_its_replay_does_not_repeat_is_refused(lab: Lab) -> None:
    """The difference is shown, and nothing is written."""
    lab.break_agent("different_live")
    before = lab.files()
    outcomes = lab.record("hello")
    assert red(outcomes) == {"hello": {"stdout"}}, failures(outcomes)
    assert "the live run (-) and its replay (+) disagree" in failures(outcomes)
    assert lab.changed_since(before) == set()


def test_replays_that_disagree_are_refused(lab: Lab) -> None:
    """A value that changes from run to run is found by the two replays."""
    lab.break_agent("random_text")
    before = lab.files()
    outcomes = lab.record("hello")
    assert red(outcomes) == {"hello": {"stdout"}}
    assert "params.at" in failures(outcomes)
    advice = outcomes["hello"].verdict.advice
    assert advice is not None and advice.rules == '[normalize.stdout]\ndrop = ["params.at"]'
    assert lab.changed_since(before) == set()


def test_two_replays_that_differ_where_live_was_quiet(lab: Lab) -> None:
    """What only the second replay shows is refused too."""
    lab.break_agent("second_replay")
    before = lab.files()
    outcomes = lab.record("hello")
    assert red(outcomes) == {"hello": {"stdout"}}, failures(outcomes)
    assert "two replays of this recording disagree" in failures(outcomes)
    assert lab.changed_since(before) == set()


@pytest.mark.parametrize("secret", ["sk-4bcdefghijklmnopqrstuvwx", "value-of-the-variable"])
def test_a_secret_that_the_model_repeats_is_refused(
    lab: Lab, monkeypatch: pytest.MonkeyPatch, secret: str
) -> None:
    """Also when it came in deltas; the message hides it."""
    monkeypatch.setenv("SOME_API_KEY", "value-of-the-variable")
    replies = [
        {"match": "Say hello", "reply": {"text": f"Your key is {secret}.", "deltaChars": 3, "usage": USAGE}}
    ]
    replies.insert(0, REPLIES[0])
    before = lab.files()
    outcomes = lab.record("hello", replies=replies)
    assert red(outcomes) == {"hello": {"secret"}}, failures(outcomes)
    assert secret not in failures(outcomes)
    assert lab.changed_since(before) == set()


def test_a_part_of_a_generated_path_is_refused(lab: Lab) -> None:
    """No later run could restore it; the message offers ways out."""
    replies = json.loads(json.dumps(REPLIES))
    for reply in replies:
        if "reasoning" in reply["reply"] and "It printed" in reply["reply"]["reasoning"]:
            reply["reply"]["text"] = "The run is {{fromRequest:/ot-([a-z0-9]+)-}}."
    before = lab.files()
    outcomes = lab.record("echo", replies=replies)
    assert red(outcomes) == {"echo": {"nonce"}}, failures(outcomes)
    assert "`mint` rule" in failures(outcomes)
    assert lab.changed_since(before) == set()


def test_a_linked_temporary_directory_shows_in_no_spelling(
    lab: Lab, own_tmp: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its agent lives under the resolved path and hears of no other: whatever asks where it is says that."""
    link = tmp_path / "link"
    link.symlink_to(own_tmp)
    monkeypatch.setenv("TMPDIR", str(link))
    asks = "pwd; pwd -L; pwd -P; echo $PWD $HOME $TMPDIR; cd .. && cd work && pwd; ls -d $PWD"
    replies = [
        {"match": "Run both", "reply": {"toolCalls": [command("call_a", asks)], "usage": USAGE}},
        {"match": "Run both", "reply": {"text": "Done.", "usage": USAGE}},
    ]
    outcomes = lab.record("tools", replies=replies)
    assert red(outcomes) == {}, failures(outcomes)
    log = (lab.snapshots / "tools" / "session.jsonl").read_text()
    assert r"{{cwd}}\n{{cwd}}\n{{cwd}}\n{{cwd}} {{home}}\n{{cwd}}\n{{cwd}}\n" in log
    assert own_tmp.name not in log and str(link) not in log
    monkeypatch.delenv("TMPDIR")
    assert red(lab.replay("tools")) == {}


def test_generated_paths_are_tokens_in_every_spelling_and_authored_ones_are_text(lab: Lab) -> None:
    """What tools print and what the model repeats; a folder that the suite names is nobody's to rename."""
    parent = lab.folder / "authored"
    parent.mkdir()
    lab.edit(
        "snapshots/suite.toml", "[scenarios.tools]", '[scenarios.tools]\nworkspace_parent = "../authored"'
    )
    asks = r"""echo file://$PWD/a "${PWD//\//%2F}" "${PWD//\//\\/}"; dirname $PWD; echo /tmp/mine/work"""
    told = "Look at {{fromRequest:(file://[a-z0-9/._-]+/a)}}, not at /tmp/mine/work."
    replies = [
        {"match": "Run both", "reply": {"toolCalls": [command("call_a", asks)], "usage": USAGE}},
        {"match": "Run both", "reply": {"text": told, "deltaChars": 3, "usage": USAGE}},
    ]
    outcomes = lab.record("tools", replies=replies)
    assert red(outcomes) == {}, failures(outcomes)
    log = log_text(lab, "tools")
    shown = rf"file://{{{{cwd}}}}/a {{{{cwd|P}}}} {{{{cwd|j}}}}\n{parent.resolve()}\n/tmp/mine/work\n"
    assert shown in log, log
    assert "".join(said(lab, "tools")[1]) == "Look at file://{{cwd}}/a, not at /tmp/mine/work."
    assert red(lab.replay("tools")) == {} and not list(parent.iterdir())


def test_streamed_frames_are_compared_joined(lab: Lab) -> None:
    """With deltas on stdout, a path that the live run cut comes whole in the replay."""
    lab.edit("agent.yml", "use: acp}", "use: acp, config: {stream: true}}")
    outcomes = lab.record()
    assert red(outcomes) == {}, failures(outcomes)
    assert red(lab.replay("hello or tools or echo")) == {}
    frames = [
        json.loads(line) for line in (lab.snapshots / "echo/stdout.expected.jsonl").read_text().splitlines()
    ]
    assert any("{{cwd}}" in jsontext.dumps(frame).decode() for frame in frames)


@pytest.mark.parametrize("mode", ["record", "refresh"])
def test_ci_refuses_before_anything_runs(lab: Lab, monkeypatch: pytest.MonkeyPatch, mode: str) -> None:
    """A job that can rewrite its own goldens cannot fail."""
    monkeypatch.setenv("CI", "true")
    outcomes = lab.record("hello") if mode == "record" else lab.refresh("hello")
    assert red(outcomes) == {"hello": {"input"}}
    assert "is refused because CI is set" in failures(outcomes)


def test_a_recording_without_a_log_is_refused(lab: Lab) -> None:
    """There would be no model input to keep."""
    script = {"steps": [{"op": "initialize"}]}
    (lab.snapshots / "hello/input.json").write_text(json.dumps(script))
    outcomes = lab.record("hello")
    assert red(outcomes) == {"hello": {"no-log"}}, failures(outcomes)
    assert "model_turn = false" in failures(outcomes)


def test_a_rule_that_cannot_be_used_is_an_error(lab: Lab) -> None:
    """A mint rule must not take a name with a meaning."""
    lab.edit(
        "snapshots/suite.toml",
        "[scenarios.hello]",
        '[normalize]\nmint = [{ pattern = "(x)", as = "msg" }]\n\n[scenarios.hello]',
    )
    outcomes = lab.replay("hello")
    assert outcomes["hello"].exit_code == 2, failures(outcomes)
    assert "as = 'msg': the name is taken" in failures(outcomes)
