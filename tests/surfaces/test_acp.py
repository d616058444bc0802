"""The ACP server as a real process: the facts that clients and recordings rely on."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.surfaces.agents import Client, command, environment, write_agent


@pytest.fixture
def client(tmp_path: Path) -> Iterator[Client]:
    with Client(tmp_path) as client:
        yield client


def test_initialize_offers_what_is_there(client: Client) -> None:
    for asked in (1, 0, 99):
        assert client.call("initialize", protocolVersion=asked)["result"] == {
            "protocolVersion": 1,
            "agentInfo": {"name": "onetake", "version": "0.1.0"},
            "agentCapabilities": {
                "promptCapabilities": {"image": False, "audio": False, "embeddedContext": False}
            },
            "authMethods": [],
        }
    assert client.call("authenticate", methodId="any")["result"] == {}
    assert client.close() == 0
    assert client.stderr() == "plugin undone\n"


def test_a_text_turn_shows_each_committed_text_once(client: Client) -> None:
    session = client.new_session()
    answer = client.answer(client.prompt(session, "think"))
    assert answer == {"jsonrpc": "2.0", "id": 3, "result": {"stopReason": "end_turn"}}
    assert client.frames[-2] == {
        "jsonrpc": "2.0",
        "method": "session/update",
        "params": {
            "sessionId": session,
            "update": {"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": "ab"}},
        },
    }
    assert len(client.updates(session)) == 1
    events = client.log(session)
    assert events[-1]["type"] == "turn/end", "the log is on disk before the answer"
    assert client.close() == 0


def test_tools_run_silently_by_default_and_their_results_are_logged(client: Client) -> None:
    session = client.new_session()
    assert client.answer(client.prompt(session, "tool"))["result"] == {"stopReason": "end_turn"}
    texts = [update["content"]["text"] for update in client.updates(session)]
    assert texts == ["Looking.", "DONE"]
    shown = [
        event["data"]["message"]["content"][0]["content"][0]["text"]
        for event in client.log(session)
        if event["type"] == "tool/result"
    ]
    assert shown[0].strip() == "hi" and "[exit code: 3]" in shown[1] and "Error" in shown[2]


def test_what_editors_see_when_streaming_is_on(tmp_path: Path) -> None:
    with Client(tmp_path, stream=True) as client:
        session = client.new_session()
        client.answer(client.prompt(session, "think"))
        said = [(u["sessionUpdate"], u["content"]["text"]) for u in client.updates(session)]
        assert said == [
            ("agent_thought_chunk", "hmm"),
            ("agent_message_chunk", "a"),
            ("agent_message_chunk", "b"),
        ]
        client.frames.clear()
        client.answer(client.prompt(session, "tool"))
        updates = client.updates(session)
        assert [(u["sessionUpdate"], u.get("toolCallId"), u.get("status")) for u in updates] == [
            ("agent_message_chunk", None, None),
            ("tool_call", "c1", "in_progress"),
            ("tool_call", "c2", "in_progress"),
            ("tool_call", "c3", "in_progress"),
            ("tool_call_update", "c1", "completed"),
            ("tool_call_update", "c2", "completed"),
            ("tool_call_update", "c3", "failed"),
            ("agent_message_chunk", None, None),
        ]
        assert updates[1]["title"] == "Say hi" and updates[1]["kind"] == "execute"
        assert updates[1]["rawInput"] == {"command": "echo hi", "description": "Say hi"}
        assert updates[2]["title"] == "bash" and "rawInput" not in updates[3]
        assert "hi" in updates[4]["content"][0]["content"]["text"]


def test_a_failed_turn_is_an_internal_error_and_the_session_goes_on(client: Client) -> None:
    session = client.new_session()
    assert client.answer(client.prompt(session, "fail"))["error"] == {
        "code": -32603,
        "message": "Internal error: turn failed: no credit",
    }
    assert client.answer(client.prompt(session, "say ok"))["result"] == {"stopReason": "end_turn"}


def test_max_tokens_ends_like_any_turn_and_too_many_steps_do_not(client: Client) -> None:
    session = client.new_session()
    assert client.answer(client.prompt(session, "cut"))["result"] == {"stopReason": "end_turn"}
    assert client.answer(client.prompt(session, "say on"))["result"] == {"stopReason": "end_turn"}
    assert [u["content"]["text"] for u in client.updates(session)] == ["cut", "on"]
    assert client.answer(client.prompt(session, "loop"))["result"] == {"stopReason": "max_turn_requests"}


def test_cancelling_a_stream_commits_what_was_said_first(client: Client) -> None:
    session = client.new_session()
    prompt = client.prompt(session, "hang")
    client.wait_for(client.folder / "ready")
    client.send("session/cancel", {"sessionId": session}, notify=True)
    assert client.answer(prompt)["result"] == {"stopReason": "cancelled"}
    assert [update["content"]["text"] for update in client.updates(session)] == ["partial"]
    assert client.answer(client.prompt(session, "say again"))["result"] == {"stopReason": "end_turn"}


def test_cancelling_a_tool_ends_its_process(client: Client) -> None:
    session = client.new_session()
    prompt = client.prompt(session, "sleep")
    client.wait_for(client.folder / "ready")
    client.send("session/cancel", {"sessionId": session}, notify=True)
    assert client.answer(prompt)["result"] == {"stopReason": "cancelled"}
    (result,) = [event["data"] for event in client.log(session) if event["type"] == "tool/result"]
    assert result["error"] == {"name": "AbortError", "code": "ABORTED"}


def test_one_prompt_at_a_time_per_session_and_many_sessions(client: Client) -> None:
    one = client.new_session()
    two = client.call("session/new", cwd=str(client.workspace), mcpServers=[])["result"]["sessionId"]
    first = client.prompt(one, "hang")
    client.wait_for(client.folder / "ready")
    assert client.answer(client.prompt(one, "say no"))["error"] == {
        "code": -32600,
        "message": "Invalid request: this session has a prompt in flight; wait for its answer or cancel it",
    }
    assert client.answer(client.prompt(two, "say yes"))["result"] == {"stopReason": "end_turn"}
    assert [update["content"]["text"] for update in client.updates(two)] == ["yes"]
    client.send("session/cancel", {"sessionId": "unknown"}, notify=True)
    client.send("session/cancel", {"sessionId": one}, notify=True)
    assert client.answer(first)["result"] == {"stopReason": "cancelled"}
    assert client.close() == 0


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"additionalDirectories": ["/extra"], "cwd": "x"}, "additionalDirectories is not supported"),
        ({"mcpServers": [{"name": "x"}]}, "mcpServers is not supported"),
        ({"cwd": "relative"}, "cwd must be an absolute path"),
        ({"cwd": None}, "cwd must be an absolute path"),
        ({"cwd": "/no/such/directory"}, "cwd must be an existing directory"),
    ],
)
def test_sessions_that_cannot_be_had_are_refused(client: Client, params: Any, message: str) -> None:
    wanted = {"cwd": str(client.workspace), "mcpServers": [], **params}
    assert client.call("session/new", **wanted)["error"] == {
        "code": -32602,
        "message": f"Invalid params: {message}",
    }


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"sessionId": "nope"}, "unknown session 'nope'"),
        ({"sessionId": 5}, "sessionId must be a string"),
        ({"prompt": []}, "prompt must be a non-empty list of content blocks"),
        ({"prompt": ["x"]}, "prompt[0] must be a content block with a type"),
        ({"prompt": [{"type": "text"}]}, "prompt[0].text must be a string"),
        (
            {"prompt": [{"type": "text", "text": "a"}, {"type": "image", "data": "", "mimeType": "x"}]},
            "prompt[1]: content of type 'image' is not supported",
        ),
        ({"prompt": [{"type": "resource_link", "name": "a"}]}, "prompt[0].uri must be a string"),
    ],
)
def test_prompts_that_cannot_be_taken_are_refused(client: Client, params: Any, message: str) -> None:
    session = client.new_session()
    wanted = {"sessionId": session, "prompt": [{"type": "text", "text": "say x"}], **params}
    assert client.call("session/prompt", **wanted)["error"] == {
        "code": -32602,
        "message": f"Invalid params: {message}",
    }
    assert client.answer(client.prompt(session, "say still here"))["result"] == {"stopReason": "end_turn"}


def test_a_linked_resource_becomes_text(client: Client) -> None:
    session = client.new_session()
    blocks = [
        {"type": "text", "text": "say x"},
        {"type": "resource_link", "name": "notes.txt", "uri": "file:///notes.txt"},
    ]
    client.call("session/prompt", sessionId=session, prompt=blocks)
    (message,) = [event["data"] for event in client.log(session) if event["type"] == "user/message"]
    assert message["content"] == [
        {"type": "text", "text": "say x"},
        {"type": "text", "text": "Linked resource notes.txt: file:///notes.txt"},
    ]


@pytest.mark.parametrize(
    ("line", "id_", "code", "message"),
    [
        (b"{nonsense", None, -32700, "Parse error: "),
        (b"\xff\xfe", None, -32700, "Parse error: "),
        (b"[]", None, -32600, "Invalid request: a frame must be a JSON object"),
        (b'"text"', None, -32600, "Invalid request: a frame must be a JSON object"),
        (b'{"id":7,"method":"initialize"}', 7, -32600, 'Invalid request: jsonrpc must be "2.0"'),
        (b'{"jsonrpc":"2.0","id":7}', 7, -32600, "Invalid request: method must be a string"),
        (b'{"jsonrpc":"2.0","id":7,"method":5}', 7, -32600, "Invalid request: method must be a string"),
        (b'{"jsonrpc":"2.0","id":{},"method":"x"}', None, -32600, "Invalid request: id must be a string"),
        (b'{"jsonrpc":"2.0","id":"a","method":"no/such"}', "a", -32601, "Method not found: no/such"),
        (
            b'{"jsonrpc":"2.0","id":7,"method":"initialize","params":[]}',
            7,
            -32602,
            "Invalid params: params",
        ),
        (
            b'{"jsonrpc":"2.0","id":7,"method":"initialize"}',
            7,
            -32602,
            "Invalid params: protocol",
        ),
        (
            b'{"jsonrpc":"2.0","id":7,"method":"session/cancel"}',
            7,
            -32600,
            "Invalid request: session",
        ),
    ],
)
def test_frames_that_are_no_requests_get_the_code_of_the_specification(
    client: Client, line: bytes, id_: Any, code: int, message: str
) -> None:
    client.write(b"\r\n \n" + line + b"\n")
    frame = client.frame()
    assert (frame["jsonrpc"], frame["id"], frame["error"]["code"]) == ("2.0", id_, code)
    assert frame["error"]["message"].startswith(message)
    assert "result" in client.call("initialize", protocolVersion=1), "the connection goes on"


def test_notifications_and_responses_are_never_answered(client: Client) -> None:
    client.write(b'{"jsonrpc":"2.0","method":"no/such"}\n')
    client.write(b'{"jsonrpc":"2.0","method":"$/cancel","params":[]}\n')
    client.write(b'{"jsonrpc":"2.0","id":99,"result":{}}\n')
    client.write(b'{"jsonrpc":"2.0","id":99,"error":{"code":1,"message":"x"}}\n')
    client.call("initialize", protocolVersion=1)
    assert len(client.frames) == 1


def test_lines_may_be_long_and_arrive_in_pieces(client: Client) -> None:
    session = client.new_session()
    long = "é" * 300_000
    frame = {
        "jsonrpc": "2.0",
        "id": "long",
        "method": "session/prompt",
        "params": {"sessionId": session, "prompt": [{"type": "text", "text": f"say {long}"}]},
    }
    data = json.dumps(frame, ensure_ascii=False).encode() + b"\n"
    for start in range(0, len(data), 100_001):
        client.write(data[start : start + 100_001])
    while "id" not in client.frame():
        pass
    assert client.updates(session)[0]["content"]["text"] == long


def test_nothing_but_frames_reaches_stdout(client: Client) -> None:
    session = client.new_session()
    assert client.answer(client.prompt(session, "print"))["result"] == {"stopReason": "end_turn"}
    assert client.close() == 0
    assert "stray text from a plugin\n" in client.stderr()
    assert "stray bytes from a plugin\n" in client.stderr()


@pytest.mark.parametrize("ending", ["eof", "SIGTERM", "SIGINT"])
def test_shutting_down_cancels_flushes_answers_and_exits_cleanly(client: Client, ending: str) -> None:
    session = client.new_session()
    prompt = client.prompt(session, "hang")
    client.wait_for(client.folder / "ready")
    if ending != "eof":
        client.process.send_signal(getattr(signal, ending))
        assert client.process.wait(30) == 0
    assert client.close() == 0
    assert client.frames[-1] == {"jsonrpc": "2.0", "id": prompt, "result": {"stopReason": "cancelled"}}
    events = client.log(session)
    assert events[-1]["data"]["reason"] == {"kind": "aborted", "reason": {"kind": "shutdown"}}
    assert events[-3]["type"] == "assistant/message"
    assert "plugin undone" in client.stderr()


def test_a_client_that_goes_away_ends_the_agent(client: Client) -> None:
    session = client.new_session()
    client.prompt(session, "hang")
    client.wait_for(client.folder / "ready")
    assert client.process.stdout is not None
    client.process.stdout.close()
    client.send("session/cancel", {"sessionId": session}, notify=True)
    assert client.process.wait(30) == 0
    assert client.log(session)[-1]["type"] == "turn/end"


def test_a_reader_that_is_slow_gets_everything(client: Client) -> None:
    session = client.new_session()
    long = "x" * 400_000
    prompt = client.prompt(session, f"say {long}")
    while not client.stored(session) or client.stored(session)[-1]["type"] != "turn/end":
        time.sleep(0.01)
    assert client.frames[-1]["id"] == 2, "nothing was read meanwhile, and the turn ended all the same"
    assert client.answer(prompt)["result"] == {"stopReason": "end_turn"}
    assert client.updates(session)[0]["content"]["text"] == long


def test_plain_files_serve_as_stdin_and_stdout(tmp_path: Path) -> None:
    frames = [
        {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"protocolVersion": 1}},
        {
            "jsonrpc": "2.0",
            "id": 2,
            "method": "session/new",
            "params": {"cwd": str(tmp_path), "mcpServers": []},
        },
    ]
    # The last line has no newline: at the end of the input it counts all the same.
    (tmp_path / "in").write_text("\n".join(map(json.dumps, frames)), encoding="utf-8")
    config = write_agent(tmp_path)
    with (tmp_path / "in").open("rb") as source, (tmp_path / "out").open("wb") as target:
        subprocess.run(
            command(config), stdin=source, stdout=target, env=environment(tmp_path), check=True, timeout=60
        )
    lines = (tmp_path / "out").read_bytes().split(b"\n")
    assert [json.loads(line)["id"] for line in lines[:-1]] == [1, 2] and lines[-1] == b""


def test_what_cannot_be_watched_serves_too(tmp_path: Path) -> None:
    """The event loop refuses /dev/null; the agent must see the end of its input there, not wait for ever."""
    subprocess.run(
        command(write_agent(tmp_path)),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        env=environment(tmp_path),
        check=True,
        timeout=60,
    )


def test_a_log_that_cannot_be_written_fails_the_prompt(client: Client) -> None:
    if os.geteuid() == 0:
        (client.folder / "logs").write_text("a file where the folder should be")
    else:
        (client.folder / "logs").mkdir(mode=0o500)
    session = client.new_session()
    error = client.answer(client.prompt(session, "say x"))["error"]
    assert error["code"] == -32603 and "cannot be written" in error["message"]


def test_a_broken_composition_is_reported_on_stderr_with_exit_code_2(tmp_path: Path) -> None:
    config = write_agent(tmp_path)
    config.write_text("- {id: a, use: nope}\n", encoding="utf-8")
    done = subprocess.run(command(config), capture_output=True, env=environment(tmp_path), timeout=60)
    assert done.returncode == 2 and done.stdout == b""
    assert b"agent.yml: row 'a': use: there is no plugin 'nope'" in done.stderr
    assert b"Traceback" not in done.stderr


def test_other_spellings_of_the_arguments_work_too(tmp_path: Path) -> None:
    program = command(write_agent(tmp_path))[:-2]
    config = f"--config={tmp_path / 'agent.yml'}"
    frame = b'{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":1}}\n'
    done = subprocess.run(
        [*program, config],
        input=frame,
        capture_output=True,
        env=environment(tmp_path),
        timeout=60,
        check=True,
    )
    assert done.returncode == 0 and json.loads(done.stdout)["id"] == 1
    done = subprocess.run(program, capture_output=True, env=environment(tmp_path), timeout=60)
    assert done.returncode == 2 and b"--config" in done.stderr
