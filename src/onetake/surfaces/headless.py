"""One prompt in, JSON events out, and an exit code that says how it ended: an agent for scripts and jobs.

stdout gets one JSON object a line, each with a `type`. Lines are about the session of the prompt only; what
its sub-agents do shows in the results of the calls that started them, and in the notices of their ends.

    {type: "session", sessionId, cwd}                                        the first line
    {type: "message", turn, step, message, usage?, interrupted?}             what the user said, or the model
    {type: "tool-call", turn, step, callId, name, arguments}                 `arguments` as the model wrote
    {type: "tool-result", turn, step, callId, isError, content, error?}      `error`: {name, code}
    {type: "result", sessionId, ending, exitCode, output, usage, error?}     the last line

A `message` has `role`, `content` (blocks), `source` and `id`. It is shown when it is committed, whole; one
that was cut off by a cancellation as far as it came, with `interrupted`. `output` is the text of the last
thing that the model said, `usage` the sum over the session's calls, and `error` the failure behind the
endings `error` and `step-limit`. The process ends with `exitCode`:

    completed    0      the model has said its last word, and nothing is left in the background
    error        4      a turn failed: the model could not be asked, or the harness is at fault
    max-tokens   5      an answer was cut off at the output limit
    step-limit   6      the turn did not end within the steps that the composition allows
    blocked      7      the turn was refused
    cancelled    130    by SIGINT (143: by SIGTERM); the turn is closed in the log like any other

Without a result line: 1 a fault of onetake itself, 2 wrong usage or malformed input, 3 the agent could not be
started, 130 and 143 it was cancelled before it had started, 141 whoever read stdout has gone.

The run goes on while sub-agents work in the background, through the turns that their notices open. It ends
with the first turn that does not complete; what is left in the background is then cancelled. When the result
line is written, every log is closed and durable.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from onetake import jsontext
from onetake.agent.context import AppContext
from onetake.agent.loop import INTERNAL, STEP_LIMIT
from onetake.session.events import (
    ASSISTANT_MESSAGE,
    TOOL_CALL,
    TOOL_RESULT,
    TURN_END,
    TURN_START,
    USER_MESSAGE,
    Event,
)
from onetake.surfaces.stdio import open_writer

Line = dict[str, Any]

EXIT_CODES = {"completed": 0, "error": 4, "max-tokens": 5, "step-limit": 6, "blocked": 7, "cancelled": 130}
"""Ending -> exit code of the process."""
READER_GONE = 141

_ENDINGS = {"aborted": "cancelled", "interrupted": "cancelled"}
"""Where the name of an ending is not that of the turn's reason."""
_CLOSING_SECONDS = 5.0
"""How long a reader that has stopped reading can hold up a cancelled run."""
_STARTING_SECONDS = 1.0
"""How long an agent that is being started can hold up its cancellation; then it gets to its result line."""


class Stop:
    """Why a run is to end early: nothing yet, or the exit code that stands for who asked for it."""

    def __init__(self) -> None:
        self._asked: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    @property
    def code(self) -> int | None:
        """The exit code of the first one who asked; None: nobody has."""
        return self._asked.result() if self._asked.done() else None

    def ask(self, code: int) -> None:
        """Ask for the end."""
        if not self._asked.done():
            self._asked.set_result(code)

    async def asked(self) -> None:
        """Wait until somebody asks."""
        await asyncio.shield(self._asked)

    @contextmanager
    def hurried(self) -> Iterator[None]:
        """Cancel the task that runs the block, if it goes on for a second after somebody asked."""
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        assert task is not None
        late: list[asyncio.TimerHandle] = []
        over = False

        def hurry(_: asyncio.Future[int]) -> None:
            if not over:
                late.append(loop.call_later(_STARTING_SECONDS, task.cancel))

        self._asked.add_done_callback(hurry)
        try:
            yield
        finally:
            over = True
            self._asked.remove_done_callback(hurry)
            for handle in late:
                handle.cancel()

    def on_signals(self) -> None:
        """Let SIGINT and SIGTERM ask. A second signal finds no handler: it ends the process at once."""
        loop = asyncio.get_running_loop()
        numbers = (signal.SIGINT, signal.SIGTERM)

        def caught(number: int) -> None:
            self.ask(128 + number)
            for other in numbers:
                loop.remove_signal_handler(other)
                signal.signal(other, signal.SIG_DFL)

        for number in numbers:
            loop.add_signal_handler(number, caught, number)


class Events:
    """Translates the log events of one session into lines, and keeps what the result line says."""

    def __init__(self) -> None:
        self.output = ""
        self.usage: dict[str, int] = {}
        self.ended: dict[str, Any] | None = None
        """The reason of the first turn that did not complete."""
        self._turn = 0
        self._step = 0

    def of(self, event: Event) -> Iterator[Line]:
        """The lines that an event is; most are none."""
        kind, data = event["type"], event["data"]
        if kind == TURN_START:
            self._turn, self._step = data["turn"], 0
        elif kind == "step/start":
            self._step = data["step"]
        elif kind == USER_MESSAGE:
            yield {"type": "message", **self._place(), "message": data}
        elif kind == ASSISTANT_MESSAGE:
            yield self._said(data)
        elif kind == TOOL_CALL:
            yield {"type": "tool-call", **data}
        elif kind == TOOL_RESULT:
            yield _result(data)
        elif kind == TURN_END and data["reason"]["kind"] != "completed" and self.ended is None:
            self.ended = data["reason"]

    def _place(self) -> Line:
        return {"turn": self._turn, "step": self._step}

    def _said(self, data: dict[str, Any]) -> Line:
        blocks = data["message"]["content"]
        text = "\n\n".join(block["text"] for block in blocks if block["type"] == "text")
        self.output = text or self.output
        for name, count in data.get("usage", {}).items():
            self.usage[name] = self.usage.get(name, 0) + count
        return {"type": "message", **data}


def _result(data: dict[str, Any]) -> Line:
    answer = data["message"]["content"][0]
    line = {
        "type": "tool-result",
        "turn": data["turn"],
        "step": data["step"],
        "callId": answer["toolCallId"],
        "isError": answer["isError"],
        "content": answer["content"],
    }
    return {**line, "error": data["error"]} if "error" in data else line


def result_line(session_id: str, events: Events, reason: dict[str, Any], stopped: int | None) -> Line:
    """The last line. `reason` is that of a turn's end, `stopped` the exit code of whoever cancelled it."""
    kind = reason["kind"]
    ending = _ENDINGS.get(kind, kind)
    if kind == "error" and reason["error"].get("code") == STEP_LIMIT:
        ending = "step-limit"
    code = EXIT_CODES[ending]
    if ending == "cancelled" and stopped is not None:
        code = stopped
    line = {
        "type": "result",
        "sessionId": session_id,
        "ending": ending,
        "exitCode": code,
        "output": events.output,
        "usage": events.usage,
    }
    return {**line, "error": reason["error"]} if kind == "error" else line


async def run_headless(ctx: AppContext, prompt: str, cwd: Path, stdout: int, stop: Stop) -> int:
    """Run one prompt in `cwd`, write its lines to a file descriptor, which is closed, and return the exit
    code.

    Raises UsageError when the composition has no `agent` row.
    """
    gone = asyncio.Event()
    writer = await open_writer(stdout, on_lost=gone)
    watcher = asyncio.create_task(_ask_when(gone, stop))
    try:

        def write(line: Line) -> None:
            writer.write(jsontext.dumps(line) + b"\n")

        last = await _run(ctx, prompt, cwd, write, writer.drain, stop)
        write(last)
    finally:
        watcher.cancel()
        await writer.close(None if stop.code is None else _CLOSING_SECONDS)
    return READER_GONE if stop.code == READER_GONE else int(last["exitCode"])


async def _ask_when(gone: asyncio.Event, stop: Stop) -> None:
    await gone.wait()
    stop.ask(READER_GONE)


async def _run(
    ctx: AppContext,
    prompt: str,
    cwd: Path,
    write: Callable[[Line], None],
    drain: Callable[[], Any],
    stop: Stop,
) -> Line:
    """Everything before the result line, which is returned once the logs are closed."""
    agent = await ctx.create_session(cwd)
    agent.reader_ready = drain
    write({"type": "session", "sessionId": agent.id, "cwd": str(cwd)})
    events = Events()
    failed = asyncio.Event()

    def show(event: Event) -> None:
        for line in events.of(event):
            write(line)
        if events.ended is not None and not failed.is_set():
            failed.set()
            agent.stop()  # no further turn, whoever would open one

    agent.log.subscribe(show)
    work = asyncio.ensure_future(_work(ctx, agent.ask(prompt)))
    waits = [work, asyncio.ensure_future(stop.asked()), asyncio.ensure_future(failed.wait())]
    await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    complete = work.done() and not failed.is_set()
    fault: BaseException | None = None
    try:
        await ctx.close_session(agent.id, {"kind": "user"} if stop.code is not None else None)
    except Exception as error:
        fault = error
    fault = await _end(waits) or fault
    if fault is not None:
        reason = {"kind": "error", "error": {"message": str(fault), "code": INTERNAL}}
    else:
        reason = {"kind": "completed"} if complete else events.ended or {"kind": "aborted"}
    return result_line(agent.id, events, reason, stop.code)


async def _work(ctx: AppContext, answer: asyncio.Future[dict[str, Any]]) -> None:
    await answer
    await ctx.settled()


async def _end(tasks: list[asyncio.Task[Any]]) -> BaseException | None:
    """Cancel what still waits; what was raised first, if anything was."""
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)
    raised = [task.exception() for task in tasks if not task.cancelled()]
    return next((error for error in raised if error is not None), None)
