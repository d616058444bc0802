"""One prompt in, events out: what is shown, how each ending is told, and that nothing is left running."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from onetake.agent.agent import AgentConfig
from onetake.agent.context import AppContext
from onetake.model.failures import ModelFailure
from onetake.model.registry import ModelInfo
from onetake.model.request import ModelRequest
from onetake.session.store import SessionStore, read_file
from onetake.surfaces.headless import EXIT_CODES, READER_GONE, Events, Stop, result_line, run_headless
from onetake.toolkit.delegation.config import DelegationConfig
from onetake.toolkit.delegation.plugin import delegation
from tests.agent.fakes import Gate, Item, add_tool, calls, finish, say, says, text
from tests.surfaces.agents import environment, write_agent

Line = dict[str, Any]
During = Callable[[AppContext, Stop], Awaitable[None]]


class Answers:
    """A provider that answers by the last text that was said to it; each answer is used once."""

    id = "fake"
    models = {"m": ModelInfo(id="m")}  # noqa: RUF012

    def __init__(self, script: dict[str, list[list[Item]]]) -> None:
        self.script = script

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Line, None]:
        said = [m for m in request.messages if m["role"] == "user" and "text" in m["content"][0]]
        for item in self.script[said[-1]["content"][0]["text"]].pop(0):
            if isinstance(item, Gate):
                await item.pass_through()
            elif isinstance(item, Exception):
                raise item
            else:
                assert isinstance(item, dict)
                await asyncio.sleep(0)
                yield item


def run(
    folder: Path,
    script: dict[str, list[list[Item]]],
    *,
    during: During | None = None,
    store: SessionStore | None = None,
    **config: Any,
) -> tuple[int, list[Line]]:
    """Run the prompt `go` in this process; the exit code and the lines."""

    async def main() -> int:
        ctx = AppContext(config_dir=folder, environ={"HOME": str(folder)})
        ctx.providers.register(Answers(script))
        ctx.agent_config = AgentConfig(provider="fake", model="m", **config)
        ctx.store = store
        add_tool(ctx, "echo", say)
        stop = Stop()
        async with delegation(ctx, DelegationConfig()):
            running = asyncio.ensure_future(
                run_headless(ctx, "go", folder, os.open(folder / "out", os.O_WRONLY | os.O_CREAT), stop)
            )
            if during is not None:
                await during(ctx, stop)
            code = await running
            assert not ctx.agents, "every session is closed"
        assert not ctx.background
        return code

    code = asyncio.run(main())
    return code, [json.loads(line) for line in (folder / "out").read_bytes().splitlines()]


def behind(prompt: str) -> tuple[str, str, str]:
    """A call that starts a sub-agent in the background."""
    arguments = {"description": prompt, "prompt": prompt, "run_in_background": True}
    return "c", "subagent", json.dumps(arguments)


def shape(lines: list[Line]) -> list[Any]:
    """The lines without ids and long texts."""
    return [
        (line["type"], line["message"]["role"], line["turn"], line["step"])
        if line["type"] == "message"
        else line["type"]
        for line in lines
    ]


def test_a_turn_with_a_tool(tmp_path: Path) -> None:
    """Messages when they are committed, calls and results beside them, the sum at the end."""
    code, lines = run(
        tmp_path, {"go": [calls(("c1", "echo", '{"text": "hi"}'), ("c2", "no", "{}")), says("Done")]}
    )
    assert code == 0
    assert shape(lines) == [
        "session",
        ("message", "user", 1, 1),
        ("message", "assistant", 1, 1),
        "tool-call",
        "tool-call",
        "tool-result",
        "tool-result",
        ("message", "assistant", 1, 2),
        "result",
    ]
    session = lines[0]["sessionId"]
    assert lines[0] == {"type": "session", "sessionId": session, "cwd": str(tmp_path)}
    assert lines[1]["message"]["content"] == [{"type": "text", "text": "go"}]
    assert lines[2]["usage"] == {"inputTokens": 1, "outputTokens": 1}
    assert lines[3] == {
        "type": "tool-call",
        "turn": 1,
        "step": 1,
        "callId": "c1",
        "name": "echo",
        "arguments": '{"text": "hi"}',
    }
    assert lines[5] == {
        "type": "tool-result",
        "turn": 1,
        "step": 1,
        "callId": "c1",
        "isError": False,
        "content": [{"type": "text", "text": "hi"}],
    }
    assert lines[6]["isError"] and lines[6]["error"]["code"] == "UNKNOWN_TOOL"
    assert lines[-1] == {
        "type": "result",
        "sessionId": session,
        "ending": "completed",
        "exitCode": 0,
        "output": "Done",
        "usage": {"inputTokens": 2, "outputTokens": 2},
    }


def test_the_run_goes_on_with_what_comes_from_the_background(tmp_path: Path) -> None:
    """The sub-agent takes its time after the turn; its notice opens another, whose answer is the output."""
    gate = Gate()
    told = "The sub-agent agent-1 (look) is done."
    script = {
        "go": [calls(behind("look")), says("Wait.")],
        "look": [[gate, *says("42")]],
        told: [says("It is 42.")],
    }

    async def during(ctx: AppContext, stop: Stop) -> None:
        await gate.reached.wait()
        agent = next(iter(ctx.agents.values()))
        await agent.when_idle()
        for _ in range(20):
            await asyncio.sleep(0)
        gate.opened.set()

    code, lines = run(tmp_path, script, during=during)
    assert code == 0
    assert [line["turn"] for line in lines if line["type"] == "message"] == [1, 1, 1, 2, 2]
    assert [line["type"] for line in lines].count("session") == 1, "the child's lines are not shown"
    assert lines[-1]["output"] == "It is 42."


def test_a_turn_that_fails_ends_the_run_and_what_is_in_the_background(tmp_path: Path) -> None:
    """Nobody waits for a sub-agent whose parent has failed."""
    gate = Gate()
    failure = ModelFailure({"message": "no credit", "code": "QUOTA"})
    script: dict[str, list[list[Item]]] = {"go": [calls(behind("look")), [gate, failure]], "look": [[Gate()]]}
    children: list[Any] = []

    async def during(ctx: AppContext, stop: Stop) -> None:
        await gate.reached.wait()
        while len(ctx.agents) < 2:
            await asyncio.sleep(0)
        children.extend(list(ctx.agents.values())[1:])
        gate.opened.set()

    code, lines = run(tmp_path, script, during=during)
    assert code == EXIT_CODES["error"] == lines[-1]["exitCode"] == 4
    assert lines[-1]["ending"] == "error"
    assert lines[-1]["error"] == {"message": "no credit", "code": "QUOTA"}
    assert [child.last_turn_end["kind"] for child in children] == ["aborted"]


def test_a_failed_turn_is_the_last_one(tmp_path: Path) -> None:
    """What waits for a turn of its own is dropped, and the log says so."""
    gate = Gate()
    script: dict[str, list[list[Item]]] = {"go": [[gate, *text("cut"), *finish("max-tokens")]]}
    agents: list[Any] = []

    async def during(ctx: AppContext, stop: Stop) -> None:
        await gate.reached.wait()
        agents.extend(ctx.agents.values())
        agents[0].followup("and then")
        gate.opened.set()

    code, lines = run(tmp_path, script, during=during)
    assert (code, lines[-1]["ending"], lines[-1]["output"]) == (5, "max-tokens", "cut")
    kinds = [event["type"] for event in agents[0].log.events]
    assert kinds.count("turn/start") == kinds.count("turn/end") == 1
    assert agents[0].log.events[-1]["data"]["outcome"] == "canceled"


def test_a_cancelled_stream_is_shown_as_far_as_it_came(tmp_path: Path) -> None:
    """The ending names who asked; the log is closed like any other."""
    gate = Gate()
    agents: list[Any] = []

    async def during(ctx: AppContext, stop: Stop) -> None:
        await gate.reached.wait()
        agents.extend(ctx.agents.values())
        stop.ask(143)
        stop.ask(130)  # the first one counts

    code, lines = run(tmp_path, {"go": [[*text("par")[:-1], gate]]}, during=during)
    assert code == 143
    assert lines[-2]["interrupted"] is True
    assert lines[-1] | {"sessionId": ""} == {
        "type": "result",
        "sessionId": "",
        "ending": "cancelled",
        "exitCode": 143,
        "output": "par",
        "usage": {},
    }
    assert agents[0].log.events[-1]["data"]["reason"] == {"kind": "aborted", "reason": {"kind": "user"}}


def test_a_run_that_only_waits_for_the_background_can_be_cancelled(tmp_path: Path) -> None:
    """No turn is cancelled then, but the run did not complete."""
    gate = Gate()

    async def during(ctx: AppContext, stop: Stop) -> None:
        await gate.reached.wait()
        await next(iter(ctx.agents.values())).when_idle()
        stop.ask(130)

    script: dict[str, list[list[Item]]] = {"go": [calls(behind("look")), says("Wait.")], "look": [[gate]]}
    code, lines = run(tmp_path, script, during=during)
    assert (code, lines[-1]["ending"], lines[-1]["output"]) == (130, "cancelled", "Wait.")


def test_a_signal_before_the_first_request_cancels_too(tmp_path: Path) -> None:
    async def during(ctx: AppContext, stop: Stop) -> None:
        stop.ask(130)

    code, lines = run(tmp_path, {}, during=during)
    assert (code, lines[-1]["ending"]) == (130, "cancelled")


def test_a_log_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    """It is told like a failure of the model: the run did not do what was asked."""
    (tmp_path / "logs").write_text("in the way")
    code, lines = run(tmp_path, {"go": [says("hi")]}, store=SessionStore(tmp_path / "logs", project="p"))
    assert (code, lines[-1]["ending"]) == (4, "error")
    assert str(tmp_path / "logs") in lines[-1]["error"]["message"]


def test_a_step_limit_has_a_code_of_its_own(tmp_path: Path) -> None:
    code, lines = run(tmp_path, {"go": [calls(("c", "echo", "{}"))]}, max_steps=1)
    assert (code, lines[-1]["ending"], lines[-1]["error"]["code"]) == (6, "step-limit", "STEP_LIMIT")


@pytest.mark.parametrize(
    ("reason", "stopped", "ending", "code"),
    [
        ({"kind": "blocked"}, None, "blocked", 7),
        ({"kind": "interrupted"}, None, "cancelled", 130),
        ({"kind": "aborted"}, 143, "cancelled", 143),
        ({"kind": "completed"}, 130, "completed", 0),
    ],
)
def test_endings(reason: Line, stopped: int | None, ending: str, code: int) -> None:
    line = result_line("s", Events(), reason, stopped)
    assert (line["ending"], line["exitCode"]) == (ending, code)


def test_exit_codes_are_told_apart() -> None:
    """No two endings share a code, and none is taken by what onetake itself ends with."""
    assert len(set(EXIT_CODES.values())) == len(EXIT_CODES)
    assert not {1, 2, 3, READER_GONE} & set(EXIT_CODES.values())


def test_the_second_signal_finds_no_handler() -> None:
    """So whoever presses Ctrl-C twice does not wait for an orderly end."""

    async def main() -> None:
        stop = Stop()
        stop.on_signals()
        assert stop.code is None
        os.kill(os.getpid(), signal.SIGTERM)
        await stop.asked()
        assert stop.code == 143
        assert signal.getsignal(signal.SIGINT) is signal.getsignal(signal.SIGTERM) is signal.SIG_DFL

    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        asyncio.run(main())
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


# -- the command, as a process -----------------------------------------------------------------------------


def start(folder: Path, *arguments: str, **options: Any) -> subprocess.Popen[bytes]:
    """Start `onetake run` with the scripted model in a folder."""
    command = [sys.executable, "-m", "onetake", "run", "--config", str(write_agent(folder)), *arguments]
    pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options}
    return subprocess.Popen(command, env=environment(folder), cwd=folder, **pipes)


def finished(process: subprocess.Popen[bytes], given: bytes | None = None) -> tuple[int, list[Line], str]:
    """Exit code, lines and stderr."""
    out, err = process.communicate(given, timeout=60)
    return process.returncode, [json.loads(line) for line in out.splitlines()], err.decode()


def wait_for(path: Path, process: subprocess.Popen[bytes]) -> None:
    """Wait until a file exists, as long as the process lives."""
    end = time.monotonic() + 60
    while not path.exists():
        assert process.poll() is None and time.monotonic() < end
        time.sleep(0.01)


def test_stdout_is_for_events_only(tmp_path: Path) -> None:
    """What plugins print goes to stderr, where their last words go too."""
    code, lines, err = finished(start(tmp_path, "print"))
    assert (code, lines[-1]["output"]) == (0, "printed")
    assert "stray text from a plugin" in err and "stray bytes from a plugin" in err and "plugin undone" in err


def test_the_prompt_can_come_from_stdin_and_the_work_be_elsewhere(tmp_path: Path) -> None:
    """The newline at its end is not part of it."""
    process = start(tmp_path, "--cwd", "work", "-", stdin=subprocess.PIPE)
    code, lines, _ = finished(process, b"say \xc3\xa4\n")
    assert (code, lines[-1]["output"]) == (0, "\u00e4")
    assert lines[0]["cwd"] == str(tmp_path / "work")


@pytest.mark.parametrize(("number", "prompt"), [(signal.SIGINT, "hang"), (signal.SIGTERM, "sleep")])
def test_a_signal_ends_the_run_in_order(tmp_path: Path, number: signal.Signals, prompt: str) -> None:
    """The result is told, the log has its turn closed, and the exit code is that of the signal."""
    process = start(tmp_path, prompt)
    wait_for(tmp_path / "ready", process)
    process.send_signal(number)
    code, lines, err = finished(process)
    assert code == lines[-1]["exitCode"] == 128 + number
    assert lines[-1]["ending"] == "cancelled"
    assert "Traceback" not in err and "plugin undone" in err
    (log,) = (tmp_path / "logs").rglob("session.jsonl")
    read = read_file(log)
    assert read.events[-1]["data"]["reason"] == {"kind": "aborted", "reason": {"kind": "user"}}
    assert read.torn is None


STUCK = """\
import asyncio, contextlib, pathlib
import msgspec

class Config(msgspec.Struct, forbid_unknown_fields=True):
    seconds: float

@contextlib.asynccontextmanager
async def plugin(ctx, config: Config):
    (ctx.config_dir / "ready").touch()
    try:
        await asyncio.sleep(config.seconds)
    finally:
        print("start undone")
    yield
"""


@pytest.mark.parametrize(("seconds", "endings"), [(3600, []), (0.3, ["cancelled"])])
def test_a_signal_ends_an_agent_that_does_not_get_started(
    tmp_path: Path, seconds: float, endings: list[str]
) -> None:
    """One that takes a moment gets to its result line; what was started is undone."""
    (tmp_path / "stuck.py").write_text(STUCK)
    agent = write_agent(tmp_path)
    agent.write_text(
        agent.read_text() + f"\n- {{id: stuck, use: 'stuck:plugin', config: {{seconds: {seconds}}}}}\n"
    )
    command = [sys.executable, "-m", "onetake", "run", "--config", str(agent), "hang"]
    process = subprocess.Popen(
        command,
        env=environment(tmp_path),
        cwd=tmp_path,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    wait_for(tmp_path / "ready", process)
    process.send_signal(signal.SIGTERM)
    code, lines, err = finished(process)
    assert code == 143
    assert [line["ending"] for line in lines if line["type"] == "result"] == endings
    assert "start undone" in err and "plugin undone" in err and "Traceback" not in err


def test_a_reader_that_leaves_cancels_the_run(tmp_path: Path) -> None:
    """`| head -1` is no success, and no traceback."""
    process = start(tmp_path, "sleep")
    wait_for(tmp_path / "ready", process)
    assert process.stdout is not None
    process.stdout.close()
    assert process.wait(60) == 141
    assert process.stderr is not None
    assert b"Traceback" not in process.stderr.read()
    process.stderr.close()


@pytest.mark.parametrize(
    ("arguments", "given", "message"),
    [
        ([""], b"", "the prompt is empty"),
        (["-"], b" \n", "the prompt is empty"),
        (["-"], b"\xff", "the prompt on stdin is not UTF-8"),
        (["--cwd", "nowhere", "hi"], b"", "--cwd nowhere: is not a directory"),
        ([], b"", "the following arguments are required: PROMPT"),
        (["--hi"], b"", "the following arguments are required: PROMPT"),
        (["--", "--hi"], b"", "agent.yml: "),
    ],
)
def test_wrong_usage(tmp_path: Path, arguments: list[str], given: bytes, message: str) -> None:
    """Nothing on stdout, one line on stderr, exit code 2."""
    process = start(tmp_path, *arguments, stdin=subprocess.PIPE)
    if "--" in arguments:
        (tmp_path / "agent.yml").write_text("- {id: a, use: nothing}\n")
    code, lines, err = finished(process, given)
    assert (code, lines) == (2, [])
    assert message in err and "Traceback" not in err
