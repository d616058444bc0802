"""What decoding would forgive is red: repeated keys, `true` for 1, half lines, lines that are no requests."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from onetake import jsontext
from onetake.errors import UsageError
from onetake.fixture.normalize import Rules
from onetake.gateway.script import load_script as load_mock_script
from onetake.replay.override import parse_override
from onetake.session.jsonl import read_log
from onetake.snapshot.drive.harvest import Harvest
from onetake.snapshot.drive.written import REQUEST, VIOLATION, log_fault, read_lines
from onetake.snapshot.modes.judge import harvest_problems
from onetake.snapshot.render.transcript import render_events, render_transcript
from onetake.snapshot.suites.ops import load_script
from tests.snapshot.driving import OPENING, drive, drive_steps, make_suite, prompts

LINE = '{"session":"s","call":1,"purpose":"main","messages":[]}\n'
HEADER = b'{"type":"session","version":0,"id":"s","createdAt":17,"delegationDepth":0}\n'
EVENT = b'{"type":"turn/start","seq":0,"time":18,"data":{"turn":1}}\n'


def error_of(harvest: Harvest) -> str:
    """Why the run failed."""
    harvest.discard()
    return harvest.error or ""


# frames -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"id": 1,', '"id": true,'),
        ('"jsonrpc": "2.0"', '"jsonrpc": "1.0", "jsonrpc": "2.0"'),
        ('"result": {', '"result": "a lie", "result": {'),
    ],
)
def test_a_frame_that_decoding_forgives_is_stray(tmp_path: Path, old: str, new: str) -> None:
    """It answers nothing, and the transcript names it."""
    rewritten = f"env = {{ FAKE_REWRITE = {json.dumps(json.dumps([old, new]))} }}"
    harvest = drive_steps(tmp_path, OPENING, agent=rewritten, suite="timeout_s = 1")
    assert "awaiting the answer to initialize" in error_of(harvest)
    assert "stdout also held 1 line(s) that are no frames" in (harvest.error or "")
    (stray,) = render_transcript(harvest.frames, lambda value: value, Rules()).stray
    assert "stdout line 1 is no JSON-RPC frame" in stray


def test_an_event_with_a_repeated_key_is_stray() -> None:
    """Also of agents that print events."""
    line = b'{"type":"note","text":"one","text":"two"}'
    assert render_events([line], lambda value: value, Rules()).stray != []
    assert render_events([b'{ "type": "note" }'], lambda value: value, Rules()).stray == []


# authored files ---------------------------------------------------------------------------------------------


def test_a_repeated_key_in_an_authored_file(tmp_path: Path) -> None:
    """Of two values one would silently not count."""
    path = tmp_path / "input.json"
    path.write_text('{"steps": [{"op": "initialize"}], "steps": [{"op": "newSession"}]}')
    with pytest.raises(UsageError, match=r"input\.json: line 1, column 35: the key 'steps' is there twice"):
        load_script(path)
    with pytest.raises(UsageError, match="the key 'kind' is there twice"):
        parse_override(b'[{"kind": "hang", "kind": "hang"}]', "replay.override.json")
    with pytest.raises(UsageError, match="the key 'replies' is there twice"):
        load_mock_script(b'{"replies": [], "replies": []}', "mock.json")


def test_strict_reading_keeps_what_is_said_once() -> None:
    """Layout, escapes and odd numbers are no reason to refuse anything."""
    for text in ('{"a": 1, "b": {"a": 2}}', '{"\\u0061":1}', '[1.50, -0, 1e+21, {"":""}]', '{"a":"\\ud800"}'):
        assert jsontext.loads_strict(text.encode()) == jsontext.loads(text)
    for text in ('{"a":1,"a":1}', '[{"b":{"a":1, "\\u0061":2}}]'):
        with pytest.raises(jsontext.JsonError, match="the key 'a' is there twice"):
            jsontext.loads_strict(text.encode())


# logs -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (b'"createdAt":17', b'"createdAt":true', "line 1: `createdAt` is True, not of type int"),
        (b'"createdAt":17', b'"createdAt":"17"', "line 1: `createdAt` is '17'"),
        (b'"createdAt":17,', b"", "line 1: `createdAt` is None"),
        (b'"id":"s"', b'"id":"r","id":"s"', "line 1: the key 'id' is there twice"),
        (b'"turn":1', b'"turn":2,"turn":1', "line 2: the key 'turn' is there twice"),
        (b'"time":18', b'"time":true', "line 2: `time` is True"),
        (b'"time":18,', b"", "line 2: `time` is None"),
        (b'"seq":0,', b"", "line 2: `seq` is None"),
    ],
)
def test_a_live_log_is_taken_as_it_is(old: bytes, new: bytes, message: str) -> None:
    """Rendering drops times and numbers, so what is odd about them must be said before."""
    assert log_fault(read_log(HEADER + EVENT, "log", live=True)) is None
    assert old in HEADER + EVENT
    fault = log_fault(read_log((HEADER + EVENT).replace(old, new), "log", live=True))
    assert fault is not None and message in fault


def test_rows_have_their_own_envelope() -> None:
    """A packed row names the first of its events."""
    data = b'"data":{"turn":1,"step":1,"index":0,"dt":[0,0],"texts":["a","b","c"]}}\n'
    good = HEADER + b'{"type":"text-chunks","seq0":0,"time0":5,' + data
    assert log_fault(read_log(good, "log", live=True)) is None
    fault = log_fault(read_log(good.replace(b'"time0":5,', b""), "log", live=True))
    assert fault is not None and "line 2: `time0` is None" in fault


def test_a_repeated_key_in_a_log_fails_the_run(tmp_path: Path) -> None:
    """The runner says which log."""
    error = error_of(drive_steps(tmp_path, prompts("repeat")))
    assert "the agent wrote a log that cannot be taken as it is: " in error
    assert "the key 'turn' is there twice" in error and "session.jsonl: line" in error


def test_two_logs_of_one_session(tmp_path: Path) -> None:
    """Only one of them would be compared."""
    assert "the agent left two logs of one session: " in error_of(drive_steps(tmp_path, prompts("copy")))


# files of the runner ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        (LINE + "no json\n", "requests.jsonl, line 2: expecting value (byte 0): b'no json'"),
        ("5\n" + LINE, "requests.jsonl, line 1: no JSON object: b'5'"),
        ("\n", "requests.jsonl, line 1: expecting value"),
        (LINE.replace("1", '"x"'), "line 1: `call` is 'x', not of type int"),
        (LINE.replace("1", "true"), "line 1: `call` is True, not of type int"),
        (LINE.replace('"s"', "null"), "line 1: `session` is None, not of type str"),
        (LINE.replace('"call"', '"call":2,"call"'), "line 1: the key 'call' is there twice"),
        (LINE.replace('"messages":[]', '"messages":null'), "line 1: `messages` is None, not of type list"),
    ],
)
def test_a_line_that_is_no_request_is_named(tmp_path: Path, text: str, fault: str) -> None:
    """File, line and what is wrong with it; never a crash of the runner."""
    path = tmp_path / "requests.jsonl"
    path.write_text(text)
    found, faults, torn = read_lines(path, REQUEST)
    assert len(faults) == 1 and fault in faults[0] and torn == b""
    assert found == ([json.loads(LINE)] if LINE in text else [])


def test_a_file_that_is_not_there_holds_nothing(tmp_path: Path) -> None:
    """An agent without a violation writes no such file."""
    assert read_lines(tmp_path / "violations.jsonl", VIOLATION) == ([], [], b"")


@pytest.mark.parametrize("file", ["requests", "violations"])
def test_half_a_line_of_an_agent_that_ended_is_an_error(tmp_path: Path, file: str) -> None:
    """It ended by itself, with code 0: nothing cut it short."""
    error = error_of(drive_steps(tmp_path, prompts(f"half {file}")))
    assert f"""{file}.jsonl ends in the middle of a line: b'{{"kind":'""" in error


def test_half_a_line_of_a_killed_agent(tmp_path: Path) -> None:
    """A kill can cut a request; but a violation is written before anything else happens."""
    for file, wrong in (("requests", False), ("violations", True)):
        harvest = drive_steps(tmp_path / file, [*prompts(f"half {file}"), {"op": "kill"}])
        assert bool(error_of(harvest)) is wrong


# scripted answers, and the end ------------------------------------------------------------------------------


def unused(tmp_path: Path, answers: list[str]) -> str:
    """What is said about the permission answers of a run that asks once."""
    suite = make_suite(tmp_path, {"one": prompts("ask")}, answers=answers)
    harvest = drive(suite)
    harvest.discard()
    found = harvest_problems(harvest, suite, suite.scenarios["one"])
    return "\n".join(p.text() for p in found if p.guard == "unused-answer")


def test_an_answer_that_nobody_asks_for(tmp_path: Path) -> None:
    """Like a recorded call that is not made: something that was scripted did not happen."""
    assert unused(tmp_path, ["allow_once"]) == ""
    text = unused(tmp_path, ["allow_once", "reject_once", "allow_always"])
    assert "one/input.json: the agent did not ask for the last 2 of the permissionAnswers" in text
    assert "reject_once, allow_always" in text


def test_an_agent_that_ends_before_its_input_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It answered, and is gone with code 0: a client would lose it between two prompts."""
    monkeypatch.setattr("onetake.snapshot.drive.acp._LAST_WORDS_S", 20)  # however slow the machine is
    harvest = drive_steps(tmp_path, prompts("leave"))
    assert "the agent exited with code 0 by itself, before the end of its input" in error_of(harvest)
    assert harvest.error_exit == 3


def test_a_harvest_knows_what_it_may_not_say() -> None:
    """The guard keeps quiet when the run failed anyway."""
    suite: Any = None
    facts: Any = {"unused_answers": ["allow_once"], "error": "it died", "error_exit": 3}
    harvest = Harvest(scenario="one", mode="replay", run_dir=Path(), workspace=Path(), **facts)
    scenario: Any = type("S", (), {"name": "one"})
    assert [problem.guard for problem in harvest_problems(harvest, suite, scenario)] == ["drive"]
