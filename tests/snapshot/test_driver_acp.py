"""Driving an agent: every op, every way in which an agent can fail to play along, and nothing left behind."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from onetake.errors import UsageError
from onetake.snapshot.drive.base import timeouts_for
from onetake.snapshot.drive.execute import execute
from onetake.snapshot.drive.harvest import Harvest
from tests.snapshot.driving import OPENING, alive, drive, drive_steps, make_suite, processes_in, prompts, said

SHORT = "timeout_s = 2"
LASTING = """
import json, subprocess, sys, time
child = subprocess.Popen(["sleep", "60"])
for line in sys.stdin:
    answer = {"jsonrpc": "2.0", "id": json.loads(line)["id"], "result": {"sessionId": "s"}}
    print(json.dumps(answer), flush=True)
time.sleep(60)
"""
"""Long enough for a loaded machine to start the fake agent, short enough to wait for."""


def answers(harvest: Harvest) -> dict[Any, Any]:
    """The answers of the agent by the id of the request."""
    frames = [json.loads(frame) for frame in harvest.frames]
    return {frame["id"]: frame.get("result", frame.get("error")) for frame in frames if "method" not in frame}


def finished(harvest: Harvest) -> Harvest:
    """The harvest of a run that went through; its folder is removed."""
    harvest.discard()
    assert harvest.error is None
    assert harvest.exit_code == 0
    return harvest


def failed(harvest: Harvest, exit_code: int) -> str:
    """The error of a run that did not go through; its folder is removed."""
    harvest.discard()
    assert harvest.error is not None
    assert harvest.error_exit == exit_code
    return harvest.error


def test_a_conversation_is_numbered_and_kept_as_bytes(tmp_path: Path) -> None:
    harvest = finished(drive_steps(tmp_path, prompts("hello", "again")))
    assert list(answers(harvest)) == [1, 2, 3, 4]
    assert said(harvest) == "HELLOAGAIN"
    assert harvest.frames[0].startswith(b'{"jsonrpc": "2.0", "id": 1, "result": {"protocolVersion": 1')
    assert [request["call"] for request in harvest.requests] == [1, 2]
    assert [log.id for log in harvest.sessions] == [answers(harvest)[2]["sessionId"]]


def test_content_blocks_are_sent_as_they_are(tmp_path: Path) -> None:
    content = [{"type": "text", "text": "two "}, {"type": "text", "text": "blocks \ud83d"}]
    steps = [*OPENING, {"op": "promptContent", "content": content}]
    assert said(finished(drive_steps(tmp_path, steps))) == "TWO BLOCKS \ud83d"


def test_a_line_of_a_megabyte_is_one_frame(tmp_path: Path) -> None:
    assert len(said(finished(drive_steps(tmp_path, prompts("big 1000000"))))) == 1_000_000


def test_a_prompt_of_a_megabyte_is_sent_whole(tmp_path: Path) -> None:
    assert said(finished(drive_steps(tmp_path, prompts("y" * 1_000_000)))) == "Y" * 1_000_000


def test_terminal_output_is_a_client_capability(tmp_path: Path) -> None:
    plain = finished(drive_steps(tmp_path / "a", [{"op": "initialize"}]))
    offered = finished(drive_steps(tmp_path / "b", [{"op": "initialize", "terminalOutput": True}]))
    assert answers(plain)[1]["asked"] is None
    assert answers(offered)[1]["asked"] == {"terminal_output": True}


def test_a_refused_session_is_expected(tmp_path: Path) -> None:
    refused = {"op": "newSessionExpectError", "additionalDirectories": ["/x"]}
    harvest = finished(drive_steps(tmp_path, [{"op": "initialize"}, refused]))
    assert answers(harvest)[2]["code"] == -32602
    assert harvest.sessions == []


def test_a_session_that_was_to_be_refused_fails(tmp_path: Path) -> None:
    error = failed(drive_steps(tmp_path, [{"op": "initialize"}, {"op": "newSessionExpectError"}]), 1)
    assert error.startswith("step 2 (newSessionExpectError): session/new was to be refused, but was answered")


def test_a_session_that_is_refused_fails(tmp_path: Path) -> None:
    error = failed(drive_steps(tmp_path, OPENING, agent='env = { FAKE = "refuses-sessions" }'), 1)
    assert "step 2 (newSession): session/new failed: no such session today (code -32602)" in error
    assert "no such session today" in error


def test_a_session_needs_an_id(tmp_path: Path) -> None:
    error = failed(drive_steps(tmp_path, OPENING, agent='env = { FAKE = "nameless" }'), 1)
    assert "the result of session/new has no string `sessionId`: {}" in error


def test_a_failing_prompt_is_expected(tmp_path: Path) -> None:
    harvest = finished(drive_steps(tmp_path, [*OPENING, {"op": "promptExpectError", "text": "fail"}]))
    assert answers(harvest)[3] == {"code": -32603, "message": "the model said no"}


def test_a_prompt_that_was_to_fail_but_did_not_fails(tmp_path: Path) -> None:
    error = failed(drive_steps(tmp_path, [*OPENING, {"op": "promptExpectError", "text": "hello"}]), 1)
    assert "step 3 (promptExpectError): the prompt was to fail, but was answered with" in error


def test_a_prompt_that_fails_unexpectedly_fails(tmp_path: Path) -> None:
    error = failed(drive_steps(tmp_path, prompts("fail")), 1)
    assert "step 3 (prompt): session/prompt failed: the model said no (code -32603)" in error
    assert "the model said no" in error


def test_a_prompt_is_cancelled_when_the_file_is_there(tmp_path: Path) -> None:
    step = {"op": "promptAndCancel", "text": "wait started", "waitForFile": {"path": "started"}}
    harvest = finished(drive_steps(tmp_path, [*OPENING, step]))
    assert answers(harvest)[3] == {"stopReason": "cancelled"}


def test_a_prompt_is_cancelled_at_once(tmp_path: Path) -> None:
    harvest = finished(drive_steps(tmp_path, [*OPENING, {"op": "promptAndCancel", "text": "wait x"}]))
    assert answers(harvest)[3] == {"stopReason": "cancelled"}


def test_a_prompt_that_is_answered_before_the_file_is_there_fails_at_once(tmp_path: Path) -> None:
    step = {"op": "promptAndCancel", "text": "hello", "waitForFile": {"path": "never"}}
    error = failed(drive_steps(tmp_path, [*OPENING, step]), 1)
    assert "the prompt was answered before the file never appeared" in error


def test_a_later_cancel_ends_what_still_runs(tmp_path: Path) -> None:
    steps = [
        *OPENING,
        {"op": "promptAndWaitForAgentMessage", "text": "ask", "waitForText": "outcome"},
        {"op": "prompt", "text": "hello"},
        {"op": "cancel", "waitForFile": {"path": "."}},
    ]
    finished(drive_steps(tmp_path, steps))


def test_a_file_of_the_workspace_is_awaited(tmp_path: Path) -> None:
    step = {"op": "promptAndCancel", "text": "wait made", "waitForFile": {"path": "made"}}
    finished(drive_steps(tmp_path / "a", [*OPENING, step, {"op": "waitForFile", "path": "made"}]))
    steps = [*OPENING, {"op": "waitForFile", "path": "never", "timeoutMs": 50}]
    error = failed(drive_steps(tmp_path / "b", steps), 1)
    assert "step 3 (waitForFile): timed out after 0.05 s awaiting the file never" in error


def test_an_agent_message_is_awaited_and_the_answer_comes_later(tmp_path: Path) -> None:
    steps = [
        *OPENING,
        {"op": "promptAndWaitForAgentMessage", "text": "hello", "waitForText": "LL"},
        {"op": "prompt", "text": "again"},
    ]
    assert said(finished(drive_steps(tmp_path, steps))) == "HELLOAGAIN"


def test_an_awaited_message_that_never_comes_is_named(tmp_path: Path) -> None:
    step = {"op": "promptAndWaitForAgentMessage", "text": "hello", "waitForText": "goodbye"}
    error = failed(drive_steps(tmp_path / "a", [*OPENING, step], suite=SHORT), 1)
    assert "timed out after 2 s awaiting an agent message with 'goodbye'" in error
    step = {"op": "promptAndWaitForAgentMessage", "text": "fail", "waitForText": "goodbye"}
    error = failed(drive_steps(tmp_path / "b", [*OPENING, step]), 1)
    assert "session/prompt failed: the model said no" in error


def test_the_log_is_awaited(tmp_path: Path) -> None:
    steps = [
        *prompts("background"),
        {"op": "waitForInboxMessage", "text": "background"},
        {"op": "waitForSubagentTurnEnd"},
        {"op": "waitForSubagentTurnEnd", "child": 1, "minimumTurn": 2},
        {"op": "waitForTurnStart", "minimumTurn": 2},
        {"op": "waitForTurnEnd"},
        {"op": "waitForEventAfterTurnEnd", "type": "goal/change"},
    ]
    harvest = finished(drive_steps(tmp_path, steps))
    assert said(harvest) == "the job is done"
    assert harvest.bindings == {log.id: index for index, log in enumerate(harvest.sessions)}
    assert [log.header.get("parentSession") for log in harvest.sessions] == [None, harvest.sessions[0].id]


@pytest.mark.parametrize(
    ("step", "awaited"),
    [
        ({"op": "waitForTurnStart", "minimumTurn": 9}, "the start of turn 9 in the session log"),
        ({"op": "waitForEventAfterTurnEnd", "type": "x"}, "an event of type x after the end of the turn"),
        ({"op": "waitForInboxMessage", "text": "x"}, "a message with 'x' in the inbox in the session log"),
        ({"op": "waitForSubagentTurnEnd", "child": 2}, "the end of turn 1 of child 2 in the session log"),
        ({"op": "waitForSubagentTurnEnd"}, "the end of turn 1 of child (any) in the session log"),
    ],
)
def test_what_the_log_never_shows_is_named(tmp_path: Path, step: dict[str, Any], awaited: str) -> None:
    error = failed(drive_steps(tmp_path, [*prompts("hello"), step], suite=SHORT), 1)
    assert f"step 4 ({step['op']}): timed out after 2 s awaiting {awaited}" in error


def test_the_end_of_a_turn_needs_a_turn(tmp_path: Path) -> None:
    error = failed(drive_steps(tmp_path, [*OPENING, {"op": "waitForTurnEnd"}], suite=SHORT), 1)
    assert "awaiting the end of the turn in the session log" in error


def test_permission_is_answered_by_kind_and_then_cancelled(tmp_path: Path) -> None:
    harvest = finished(drive_steps(tmp_path, prompts("ask", "ask"), answers=["allow_once"]))
    selected, cancelled = said(harvest).split("}}{")
    assert json.loads(selected + "}}") == {"outcome": {"outcome": "selected", "optionId": "yes-1"}}
    assert json.loads("{" + cancelled) == {"outcome": {"outcome": "cancelled"}}


def test_a_kind_that_is_not_offered_fails(tmp_path: Path) -> None:
    error = failed(drive_steps(tmp_path, prompts("ask"), answers=["reject_always"]), 1)
    assert "permissionAnswers has 'reject_always' next, but the agent offered allow_once" in error


def test_other_requests_of_the_agent_are_refused(tmp_path: Path) -> None:
    harvest = finished(drive_steps(tmp_path, prompts("ask fs/read_text_file")))
    assert json.loads(said(harvest)) == {"code": -32601, "message": "Method not found: fs/read_text_file"}


def test_stray_output_is_kept_where_it_stands(tmp_path: Path) -> None:
    harvest = finished(drive_steps(tmp_path, prompts("print")))
    assert harvest.frames[2] == b"a stray print"


def test_stray_output_is_named_when_a_wait_fails(tmp_path: Path) -> None:
    steps = [*prompts("print"), {"op": "waitForFile", "path": "never", "timeoutMs": 1}]
    error = failed(drive_steps(tmp_path, steps), 1)
    assert "stdout also held 1 line(s) that are no frames, first: b'a stray print'" in error


def test_an_agent_that_dies_at_its_start(tmp_path: Path) -> None:
    harvest = drive_steps(tmp_path, OPENING, agent='env = { FAKE = "dies-at-start" }')
    error = failed(harvest, 3)
    assert (
        "step 1 (initialize): the agent exited with code 4 while the runner awaited the answer to init"
        in error
    )
    assert error.endswith("the end of the agent's stderr:\n    cannot find my configuration")
    assert harvest.exit_code == 4


def test_an_agent_that_cannot_be_started(tmp_path: Path) -> None:
    (tmp_path / "agent").write_text("#!/no/such/interpreter\n")
    (tmp_path / "agent").chmod(0o755)
    error = failed(drive_steps(tmp_path, OPENING, command=["./agent"]), 3)
    assert "the agent could not be started: " in error
    assert "No such file or directory" in error


def test_an_agent_that_dies_in_the_middle(tmp_path: Path) -> None:
    harvest = drive_steps(tmp_path, prompts("die 9"))
    error = failed(harvest, 3)
    assert (
        "step 3 (prompt): the agent exited with code 9 while the runner awaited the answer to session/p"
        in error
    )
    assert "    the last words" in error
    assert harvest.exit_code == 9
    assert len(harvest.sessions) == 1


def test_an_agent_that_crashes(tmp_path: Path) -> None:
    error = failed(drive_steps(tmp_path, prompts("segfault")), 3)
    assert "the agent was killed by SIGSEGV while the runner awaited" in error


def test_an_agent_that_hangs(tmp_path: Path) -> None:
    harvest = drive_steps(tmp_path, prompts("hang"), suite=SHORT)
    error = failed(harvest, 1)
    assert "step 3 (prompt): timed out after 2 s awaiting the answer to session/prompt" in error
    assert "    about to hang" in error
    assert harvest.exit_code is None


def test_an_agent_that_ignores_the_end_of_its_input(tmp_path: Path) -> None:
    error = failed(drive_steps(tmp_path, OPENING, suite=SHORT, agent='env = { FAKE = "ignores-eof" }'), 1)
    assert (
        "after the last step: timed out after 2 s awaiting the agent to exit after the end of its i" in error
    )


def test_an_agent_that_outlives_its_input_is_ended_where_the_suite_says_so(tmp_path: Path) -> None:
    """With its children: the suite says that this is how it ends, so none of it is red."""
    (tmp_path / "script.json").write_text('{"replies": []}')
    (tmp_path / "lasting.py").write_text(LASTING)
    command = [sys.executable, str(tmp_path / "lasting.py")]
    gateway = '[gateway]\nscript = "script.json"'
    options = {"command": command, "suite": SHORT, "extra": gateway}
    harvest = drive_steps(tmp_path, OPENING, "record", agent="ends_with_input = false", **options)
    assert harvest.error is None and harvest.exit_code == -15
    assert processes_in(tmp_path) == []


def test_an_update_is_awaited(tmp_path: Path) -> None:
    said = {"op": "waitForUpdate", "kind": "agent_message_chunk"}
    finished(drive_steps(tmp_path / "a", [*prompts("hello"), said]))
    never = [*prompts("hello"), said | {"kind": "plan"}]
    error = failed(drive_steps(tmp_path / "b", never, suite=SHORT), 1)
    assert "step 4 (waitForUpdate): timed out after 2 s awaiting a session update 'plan'" in error


def test_an_agent_that_ends_badly(tmp_path: Path) -> None:
    harvest = drive_steps(tmp_path, OPENING, agent='env = { FAKE = "bad-exit" }')
    error = failed(harvest, 3)
    assert "the agent exited with code 7 after the end of its input; it must exit with 0" in error
    assert "    something broke late" in error
    assert harvest.exit_code == 7


def test_an_agent_that_stops_in_the_middle_of_a_line(tmp_path: Path) -> None:
    error = failed(drive_steps(tmp_path, OPENING, agent='env = { FAKE = "half-line" }'), 1)
    assert """the agent's stdout ended in the middle of a line: b'{"jsonrpc":'""" in error


def test_a_session_that_never_gets_idle(tmp_path: Path) -> None:
    error = failed(drive_steps(tmp_path, prompts("never-idle"), suite=SHORT), 1)
    assert "after the last step: timed out after 2 s awaiting all sessions to be idle" in error


@pytest.mark.parametrize("file", ["requests", "violations"])
def test_a_file_that_the_agent_spoiled_is_an_error(tmp_path: Path, file: str) -> None:
    error = failed(drive_steps(tmp_path, prompts(f"garbage {file}")), 1)
    number = 1 if file == "violations" else 2
    assert f"the agent wrote what cannot be read: {file}.jsonl, line {number}: expecting value" in error


def test_a_log_without_a_header_is_an_error(tmp_path: Path) -> None:
    steps = [*prompts("headless"), {"op": "waitForSubagentTurnEnd"}]
    error = failed(drive_steps(tmp_path, steps, suite=SHORT), 1)
    assert "awaiting the end of turn 1 of child (any)" in error
    assert "project/broken/session.jsonl, line 1" in error


def test_updates_without_text_say_nothing(tmp_path: Path) -> None:
    step = {"op": "promptAndWaitForAgentMessage", "text": "image", "waitForText": "done"}
    harvest = finished(drive_steps(tmp_path, [*OPENING, step, {"op": "waitForFile", "path": "."}]))
    assert len(harvest.frames) == 9


def test_an_unanswered_prompt_is_awaited_at_the_end(tmp_path: Path) -> None:
    steps = [
        *OPENING,
        {"op": "promptAndWaitForAgentMessage", "text": "linger", "waitForText": "more"},
        {"op": "waitForTurnEnd"},
    ]
    harvest = finished(drive_steps(tmp_path, steps))
    assert answers(harvest)[3] == {"stopReason": "end_turn"}


def test_an_unanswered_prompt_of_a_killed_agent_is_forgotten(tmp_path: Path) -> None:
    steps = [
        *OPENING,
        {"op": "promptAndWaitForAgentMessage", "text": "linger", "waitForText": "more"},
        {"op": "kill"},
        {"op": "restart"},
        {"op": "initialize"},
    ]
    assert list(answers(finished(drive_steps(tmp_path, steps)))) == [1, 2, 4]


def test_a_broken_log_is_an_error(tmp_path: Path) -> None:
    harvest = drive_steps(tmp_path, prompts("torn"))
    assert "the agent exited with 0 but left a broken log" in failed(harvest, 1)


def test_killed_restarted_and_resumed(tmp_path: Path) -> None:
    again = [
        {"op": "restart"},
        {"op": "initialize"},
        {"op": "resumeSession"},
        {"op": "prompt", "text": "two"},
    ]
    steps = [*prompts("one"), {"op": "kill", "signal": "SIGKILL"}, *again, *again]
    harvest = finished(drive_steps(tmp_path, steps))
    assert said(harvest) == "ONETWOTWO"
    assert list(answers(harvest)) == list(range(1, 10))
    assert answers(harvest)[5] == {"how": "session/load"}
    assert len(harvest.sessions) == 1


def test_a_session_is_resumed_as_the_agent_offers(tmp_path: Path) -> None:
    resume = [*OPENING, {"op": "resumeSession"}]
    harvest = drive_steps(tmp_path / "a", resume, agent='env = { FAKE_RESUME = "resume" }')
    assert answers(finished(harvest))[3] == {"how": "session/resume"}
    error = failed(drive_steps(tmp_path / "b", resume, agent='env = { FAKE_RESUME = "no" }'), 1)
    assert "the agent offers neither `loadSession` nor `sessionCapabilities.resume`" in error


def test_a_script_may_end_with_a_kill(tmp_path: Path) -> None:
    harvest = drive_steps(tmp_path, [*prompts("hello"), {"op": "kill", "signal": "SIGTERM"}])
    harvest.discard()
    assert harvest.error is None
    assert harvest.exit_code == -signal.SIGTERM


@pytest.mark.parametrize(
    ("steps", "message"),
    [
        (
            [{"op": "prompt", "text": "x"}],
            "step 1 (prompt): no session is open: put a `newSession` step before it",
        ),
        ([*OPENING, {"op": "kill", "signal": "KILL"}], "step 3 (kill): 'KILL' is no signal of this system"),
        (
            [*OPENING, {"op": "kill"}, {"op": "prompt", "text": "x"}],
            "step 4 (prompt): the agent does not run",
        ),
    ],
)
def test_a_script_that_makes_no_sense_is_malformed_input(
    tmp_path: Path, steps: list[dict[str, Any]], message: str
) -> None:
    assert message in failed(drive_steps(tmp_path, steps), 2)


def test_what_an_agent_left_running_is_ended(tmp_path: Path) -> None:
    harvest = finished(drive_steps(tmp_path, prompts("orphan")))
    assert not alive(int(said(harvest)))


def test_a_cancelled_runner_leaves_nothing(tmp_path: Path, own_tmp: Path) -> None:
    suite = make_suite(tmp_path, {"one": prompts("orphan", "hang")})

    async def cancelled() -> None:
        task = asyncio.ensure_future(execute(suite, suite.scenarios["one"], "replay"))
        while not any(b"about to hang" in path.read_bytes() for path in own_tmp.glob("*/stderr.txt")):
            await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(cancelled())
    assert not list(own_tmp.iterdir())
    assert not processes_in(own_tmp)


def test_time_outs() -> None:
    assert (timeouts_for("replay", None).wait, timeouts_for("replay", None).prompt) == (10, 60)
    assert (timeouts_for("record", None).wait, timeouts_for("record", None).prompt) == (10, 600)
    assert (timeouts_for("refresh", 5).wait, timeouts_for("refresh", 5).prompt) == (5, 5)
    assert (timeouts_for("record", 5).wait, timeouts_for("record", 5).prompt) == (5, 600)
    assert [timeouts_for(mode, None).turn for mode in ("replay", "record")] == [10, 600]


def test_the_scenario_time_out_wins(tmp_path: Path) -> None:
    tables = {"one": "model_turn = false\ntimeout_s = 1.5"}
    error = failed(drive_steps(tmp_path, prompts("hang"), suite="timeout_s = 60", tables=tables), 1)
    assert "timed out after 1.5 s" in error


@pytest.mark.parametrize(
    ("missing", "mode", "message"),
    [
        ("agent.snapshot.yml", "replay", "agent.snapshot.yml does not exist; replay boots it"),
        ("agent.yml", "record", "agent.yml does not exist; record boots it"),
        (
            "one/session.jsonl",
            "replay",
            "session.jsonl: the fixture is missing; make it with `onetake refresh",
        ),
        (
            "one/replay.override.json",
            "replay",
            "replay.override.json: missing, but the scenario is `overridden`",
        ),
    ],
)
def test_what_is_missing_is_named_before_the_agent_starts(
    tmp_path: Path, missing: str, mode: str, message: str
) -> None:
    suite = make_suite(tmp_path, {"one": OPENING}, tables={"one": "overridden = true"})
    (tmp_path / "one" / "replay.override.json").write_text("[]")
    (tmp_path / missing).unlink()
    with pytest.raises(UsageError) as caught:
        drive(suite, mode=mode)
    assert message in str(caught.value)


def test_a_recorded_scenario_without_fixture_is_to_be_recorded(tmp_path: Path) -> None:
    suite = make_suite(tmp_path, {"one": OPENING}, tables={"one": ""})
    (tmp_path / "one" / "session.jsonl").unlink()
    with pytest.raises(UsageError, match=r"make it with `onetake record .* -k one`"):
        drive(suite, mode="refresh")


def test_refresh_makes_the_first_fixture_of_an_authored_scenario(tmp_path: Path) -> None:
    suite = make_suite(tmp_path, {"one": OPENING})
    (tmp_path / "one" / "session.jsonl").unlink()
    finished(drive(suite, mode="refresh"))


def test_sys_executable_is_the_interpreter_of_the_fake(tmp_path: Path) -> None:
    assert sys.executable in make_suite(tmp_path, {"one": OPENING}).settings.agent.command
