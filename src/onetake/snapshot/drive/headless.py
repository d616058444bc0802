"""Drive an agent that takes one prompt, prints JSON events and ends: `onetake run`, and what talks like it.

The prompt is what `{prompt}` stands for in the command; a command without it gets the prompt on stdin. Each
line of stdout is a JSON object with a string `type`; of three types the driver must know more:

    {type: "session", sessionId}           needed for steps that read the log
    {type: "message", message}             an assistant's `message.content` is what it said
    {type: "result", ending, exitCode}     the last line

How a run ended is part of what is compared, twice: the result line stands in the transcript, and the process
must end with the exit code that the line names. A run that ends otherwise than its script says (`prompt`: not
`error` nor `cancelled`, `promptExpectError`: `error`, after a cancellation: `cancelled`) is a failure, so
that no recording can take an accident for what was meant. Cancelling is what Ctrl-C does: SIGINT.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Iterator
from typing import get_args

from onetake.errors import UsageError
from onetake.snapshot.drive.base import Driver, Frame, Timeouts, ended, short, tag
from onetake.snapshot.drive.env import World
from onetake.snapshot.drive.livelog import LiveLogs
from onetake.snapshot.drive.process import Launch
from onetake.snapshot.render import transcript
from onetake.snapshot.suites import ops

_PROMPTS = (ops.Prompt, ops.PromptExpectError, ops.PromptAndCancel, ops.PromptAndWaitForAgentMessage)
_LAST = (ops.Prompt, ops.PromptExpectError, ops.PromptAndCancel, ops.Cancel, ops.Kill)
"""The ops after which the run is over."""


class HeadlessDriver(Driver):
    """The one who starts the agent and reads what it prints."""

    known_ops = (*_PROMPTS, ops.Cancel, ops.WaitForFile, ops.Kill, *get_args(ops.LogStep))
    render = staticmethod(transcript.render_events)

    @classmethod
    def check(cls, script: ops.Script, place: str) -> None:
        """One prompt, first; nothing after the end; nothing that the protocol lacks."""
        super().check(script, place)
        for fault in _faults(script):
            raise UsageError(f"{place}: {fault}")

    def __init__(
        self, script: ops.Script, world: World, timeouts: Timeouts, launch: Launch, logs: LiveLogs
    ) -> None:
        super().__init__(script, world, timeouts, launch, logs)
        self._result: asyncio.Future[Frame] = asyncio.get_running_loop().create_future()
        self._late: list[bytes] = []
        """Lines after the result line."""
        self._said = ""

    async def _begin(self) -> None:
        """Nothing: it is the prompt that starts the agent."""

    async def _step(self, step: ops.Step) -> None:
        match step:
            case ops.Prompt(text=text):
                self._prompt(text)
                await self._end()
            case ops.PromptExpectError(text=text):
                self._prompt(text)
                await self._end("error")
            case ops.PromptAndCancel(text=text, wait_for_file=waited):
                self._prompt(text)
                await self._cancel(waited)
            case ops.PromptAndWaitForAgentMessage(text=text, wait_for_text=wanted):
                self._prompt(text)
                await self._poll(
                    lambda: self._has_said(wanted), f"an agent message with {wanted!r}", self._timeouts.prompt
                )
            case ops.Cancel(wait_for_file=waited):
                await self._cancel(waited)
            case ops.WaitForFile(path=path, timeout_ms=timeout_ms):
                await self._wait_for_file(path, timeout_ms, unless=self._result)
            case ops.Kill(signal=name):
                await self._kill_with(name)
            case _:
                assert isinstance(step, ops.LogStep), "`check` refuses everything else"
                await self._poll(lambda: bool(self.session_ids), "the session line", self._timeouts.wait)
                await self._wait_for_log(step)

    async def _finish(self) -> None:
        if self._process is not None:
            await self._end()

    def _prompt(self, text: str) -> None:
        """Start the agent with its prompt."""
        if self._launch.takes_prompt:
            self._process = self._launch.start(self._take, prompt=text)
        else:
            self._process = self._launch.start(self._take)
            self._process.send(text.encode())
        self._process.close_stdin()

    def _take(self, line: bytes) -> None:
        """Take one line of stdout."""
        self.frames.append(line)
        event = transcript.event_of(line)
        if event is None:
            self.stray.append(line)
        if self._result.done():
            self._late.append(line)
        elif event is not None:
            self._understand(event)

    def _understand(self, event: Frame) -> None:
        if event["type"] == "session" and isinstance(event.get("sessionId"), str):
            self.session_ids.append(event["sessionId"])
        elif event["type"] == "message" and isinstance(event.get("message"), dict):
            self._said += _text_of(event["message"])
        elif event["type"] == "result":
            self._result.set_result(event)

    def _has_said(self, wanted: str) -> bool:
        if wanted not in self._said and self._result.done():
            raise self._failure(f"the run was over before it said {wanted!r}: {short(self._result.result())}")
        return wanted in self._said

    async def _cancel(self, waited: ops.WaitedFile | None) -> None:
        if waited is not None:
            await self._wait_for_file(waited.path, waited.timeout_ms, unless=self._result)
        self._running().signal(signal.SIGINT)
        await self._end("cancelled")

    async def _kill_with(self, name: str) -> None:
        """Send a signal; the agent may die of it, or end with a result."""
        number = await self._kill(name)
        if self.exit_code == -number:
            self._gone()
        else:
            await self._end(None)

    async def _end(self, wanted: str | None = "") -> None:
        """Wait for the result line and the end of the process, and check that they agree.

        `wanted` is the ending that the script expects; empty: any that is no failure; None: any.
        """
        process = self._running()
        result = await self._await(self._result, "the result line", self._timeouts.prompt)
        code = await self._exit("the agent to exit after its result line")
        if self._late:
            raise self._failure(f"stdout went on after the result line: {self._late[0][:200]!r}")
        self._refuse_half_line(process)
        if result.get("exitCode") != code:
            died = 3 if code < 0 else 1
            raise self._failure(
                f"the agent {ended(code)}, but its result line says exitCode {short(result.get('exitCode'))}",
                died,
            )
        ending = result.get("ending")
        if wanted == "" and (ending in ("error", "cancelled") or not isinstance(ending, str)):
            raise self._failure(f"the run failed: {short(result)}")
        if wanted and ending != wanted:
            raise self._failure(f"the run was to end with {wanted!r}, but it ended so: {short(result)}")
        for log in self._logs.read():
            if not log.closed:
                raise self._failure("the agent ended, but a turn is still open in a session log")
            if ending == "completed" and not log.idle:
                raise self._failure(
                    f"the run is {ending}, but in the log of session {log.id} {log.unfinished}"
                )
        self._gone()


def _text_of(message: Frame) -> str:
    """What an assistant's message says; nothing for others."""
    content = message.get("content")
    if message.get("role") != "assistant" or not isinstance(content, list):
        return ""
    texts = [
        block.get("text") for block in content if isinstance(block, dict) and block.get("type") == "text"
    ]
    return "".join(text for text in texts if isinstance(text, str))


def _faults(script: ops.Script) -> Iterator[str]:
    """What is wrong with a script of ops that are all known."""
    if script.permission_answers:
        yield "permissionAnswers: the headless driver is never asked"
    over = ""
    for number, step in enumerate(script.steps, 1):
        place = f"step {number} ({tag(type(step))})"
        if over:
            more = "; give each prompt a scenario of its own" if isinstance(step, _PROMPTS) else ""
            yield f"{place}: the run is over with {over}{more}"
        if isinstance(step, _PROMPTS) != (number == 1):
            yield f"{place}: a run takes one prompt, and begins with it"
        if isinstance(step, _PROMPTS) and not _sendable(step.text):
            yield f"{place}: text: cannot be given to a process: it is empty, not UTF-8 or holds NUL"
        if isinstance(step, ops.PromptAndCancel) and step.wait_for_file is None:
            yield f"{place}: needs waitForFile: a signal before the turn has begun would be a race"
        if isinstance(step, _LAST):
            over = place


def _sendable(text: str) -> bool:
    try:
        data = text.encode()
    except UnicodeEncodeError:
        return False
    return bool(text.strip()) and b"\0" not in data
