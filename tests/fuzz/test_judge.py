"""The judge: what breaks a rule, and what only looks as if it did."""

from __future__ import annotations

from typing import Any

import pytest

from onetake import jsontext
from onetake.testing.fuzz.judge import Judge


def opened(*sessions: str) -> Judge:
    """A judge that has seen these sessions being opened."""
    judge = Judge()
    for number, session in enumerate(sessions, 100):
        judge.sent(number, "session/new")
        told(judge, id=number, result={"sessionId": session})
    assert judge.finding is None
    return judge


def told(judge: Judge, **fields: Any) -> Any:
    """Let the agent write a frame; what the client gets of it."""
    return judge.received(jsontext.dumps({"jsonrpc": "2.0", **fields}))


def update(judge: Judge, session: Any) -> None:
    told(judge, method="session/update", params={"sessionId": session, "update": {}})


def finding(judge: Judge) -> str:
    assert judge.finding is not None
    return str(judge.finding)


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"debug",
        b"[]",
        b'{"id": 1, "result": null}',
        b'{"jsonrpc": "2.0", "id": 1}',
        b'{"jsonrpc": "2.0", "id": 1, "result": null, "error": {}}',
        b'{"jsonrpc": "2.0", "result": null}',
        b'{"jsonrpc": "2.0", "method": 1}',
        b"\xff" * 300,
    ],
)
def test_a_line_that_is_no_frame_is_found(line: bytes) -> None:
    """Real clients stop reading there."""
    judge = opened()
    assert judge.received(line) is None
    assert finding(judge).startswith("pure-stdout: a line is not JSON")


def test_after_a_finding_nothing_is_looked_at() -> None:
    """The first finding is what is reported; what follows may follow from it."""
    judge = opened()
    judge.received(b"debug")
    judge.sent(1, "initialize")
    assert told(judge, id=1, result={}) is None
    assert "debug" in finding(judge)


@pytest.mark.parametrize("id", [2, "1", None, True, 1.0])
def test_an_answer_to_nothing_is_found(id: Any) -> None:
    """An id that differs in its type is another id."""
    judge = opened()
    judge.sent(1, "initialize")
    told(judge, id=id, result={})
    assert finding(judge).startswith("answers-once: an answer to no open request came: ")


def test_a_second_answer_is_found() -> None:
    """The request was open once."""
    judge = opened()
    judge.sent(1, "initialize")
    assert told(judge, id=1, result={})["id"] == 1
    told(judge, id=1, result={})
    assert finding(judge).startswith("answers-once: ")


def test_a_request_that_no_parser_must_take_may_be_refused_without_its_id() -> None:
    """Half a surrogate pair is JSON, but no text to most languages; the client learns which was meant."""
    judge = opened("a")
    judge.sent(1, "session/prompt")
    judge.sent(2, "session/prompt", readable=False)
    assert told(judge, id=None, error={"code": -32700, "message": "no"})["id"] == 2
    told(judge, id=None, error={"code": -32700, "message": "no"})
    assert finding(judge).startswith("answers-once: ")


@pytest.mark.parametrize(
    "result", [None, {}, {"stopReason": "stop"}, {"stopReason": None}, {"stopReason": []}]
)
def test_a_prompt_without_a_stop_reason_is_found(result: Any) -> None:
    """There are five, and each means something to a client."""
    judge = opened("a")
    judge.sent(1, "session/prompt")
    told(judge, id=1, result=result)
    assert finding(judge).startswith("stop-reason: session/prompt was answered with ")
    assert "cancelled" in finding(judge)


def test_an_error_is_an_answer_to_a_prompt() -> None:
    """Models fail."""
    judge = opened("a")
    judge.sent(1, "session/prompt")
    assert told(judge, id=1, error={"code": 1, "message": "no"}) is not None
    assert judge.finding is None


@pytest.mark.parametrize("result", [None, {}, {"sessionId": 1}, {"sessionId": "a"}])
def test_a_session_without_an_id_of_its_own_is_found(result: Any) -> None:
    """Two sessions with one id are one."""
    judge = opened("a")
    judge.sent(1, "session/new")
    told(judge, id=1, result=result)
    assert finding(judge).startswith("live-sessions: session/new gave ")


@pytest.mark.parametrize("session", ["b", None, 1])
@pytest.mark.parametrize("method", ["session/update", "session/request_permission"])
def test_news_of_a_session_that_is_not_open_are_found(method: str, session: Any) -> None:
    """The client has nowhere to show them."""
    judge = opened("a")
    assert told(judge, method=method, params={"sessionId": "a"}) is not None
    told(judge, method=method, params={"sessionId": session})
    assert finding(judge) == f"live-sessions: {method} came for session {session!r}, which is not open"


def test_parameters_that_are_no_object_name_no_session() -> None:
    """The judge does not fall over them."""
    judge = opened("a")
    told(judge, method="session/update", params=[1])
    assert finding(judge).startswith("live-sessions: ")


def test_an_update_may_come_just_before_its_session_is_told() -> None:
    """Agents send what commands they have; the id must then be that of the session."""
    judge = opened()
    judge.sent(1, "session/new")
    update(judge, "a")
    told(judge, id=1, result={"sessionId": "a"})
    assert judge.finding is None

    judge.sent(2, "session/new")
    update(judge, "c")
    told(judge, id=2, result={"sessionId": "b"})
    assert finding(judge).startswith("live-sessions: session/update came for session 'c'")


def test_a_new_process_knows_nothing_of_the_old_one() -> None:
    """Its sessions are gone, and its requests can no longer be answered."""
    judge = opened("a")
    judge.sent(1, "session/prompt")
    judge.restarted()
    assert judge.sessions == []
    told(judge, id=1, result={"stopReason": "end_turn"})
    assert finding(judge).startswith("answers-once: ")


def test_what_an_agent_asks_goes_to_the_client() -> None:
    """Whatever it is, the client answers."""
    judge = opened()
    assert told(judge, id="x", method="fs/read_text_file")["method"] == "fs/read_text_file"
    assert judge.finding is None
