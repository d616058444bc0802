"""Drive an agent over ACP from a script: one method per op, one error that says what was awaited.

Nothing is ever retried and nothing is waited for without a bound: a wait ends because the thing happened,
because the agent died, or because its time is over, and the message always names which, with the end of the
agent's stderr.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import msgspec

from onetake.errors import OnetakeError
from onetake.snapshot import script as ops
from onetake.snapshot.env import World
from onetake.snapshot.livelog import LiveLogs, log_condition
from onetake.snapshot.process import AgentProcess
from onetake.snapshot.rpc import Frame, Peer

PROTOCOL_VERSION = 1
STDERR_TAIL_LINES = 20

_FIRST_POLL_S = 0.002
_SLOWEST_POLL_S = 0.05
T = TypeVar("T")


class DriveError(OnetakeError):
    """The script could not be carried through. `exit_code`: 1 the agent did something else, 3 it died."""

    def __init__(self, message: str, exit_code: int = 1) -> None:
        super().__init__(message)
        self.exit_code = exit_code


class Timeouts(msgspec.Struct, frozen=True):
    """How long the driver waits, in seconds."""

    wait: float = 10.0
    prompt: float = 60.0


def timeouts_for(mode: str, timeout_s: float | None) -> Timeouts:
    """The defaults, or `timeout_s` for both; a prompt that reaches a real model has at least ten minutes."""
    wait, prompt = (timeout_s, timeout_s) if timeout_s is not None else (10.0, 60.0)
    return Timeouts(wait, max(prompt, 600.0) if mode == "record" else prompt)


class AcpDriver:
    """One scenario's conversation with one agent (and its successors after `restart`)."""

    def __init__(
        self,
        script: ops.Script,
        world: World,
        timeouts: Timeouts,
        start: Callable[[Callable[[bytes], None]], AgentProcess],
    ) -> None:
        self.peer = Peer(send=self._send, on_request=self._asked, on_notification=self._told)
        self.exit_code: int | None = None
        self._script = script
        self._world = world
        self._timeouts = timeouts
        self._start = start
        self._process: AgentProcess | None = None
        self._logs = LiveLogs(world.sessions)
        self._answers = list(script.permission_answers)
        self.session_ids: list[str] = []
        """The sessions that the script opened, in order."""
        self._capabilities: Frame = {}
        self._open_prompts: dict[str, asyncio.Future[Frame]] = {}
        self._said: dict[str, str] = {}
        self._refused: str | None = None
        self._place = "start"

    async def run(self) -> None:
        """Carry out every step, wait until all is quiet, and let the agent end. Raises `DriveError`,
        `AgentError`."""
        try:
            self._process = self._start(self.peer.feed)
            for number, step in enumerate(self._script.steps, 1):
                self._place = f"step {number} ({type(step).__struct_config__.tag})"
                await self._step(step)
            await self._finish()
        finally:
            if self._process is not None:
                exited = self._process.exited.done()
                code = await self._process.end()
                self.exit_code = code if exited else None

    async def _step(self, step: ops.Step) -> None:
        match step:
            case ops.Initialize(terminal_output=terminal):
                await self._initialize(terminal)
            case ops.NewSession():
                result = await self._result("session/new", self._new_session_params(None))
                self.session_ids.append(self._string(result, "sessionId", "session/new"))
            case ops.NewSessionExpectError(additional_directories=directories):
                await self._error("session/new", self._new_session_params(directories))
            case ops.Prompt(text=text):
                await self._settle(await self._prompt([{"type": "text", "text": text}]))
            case ops.PromptContent(content=content):
                await self._settle(await self._prompt(content))
            case ops.PromptExpectError(text=text):
                session = await self._prompt([{"type": "text", "text": text}])
                frame = await self._answer_to_prompt(session)
                if "error" not in frame:
                    raise self._failure(f"the prompt was to fail, but was answered with {_short(frame)}")
            case ops.PromptAndCancel(text=text, wait_for_file=waited):
                session = await self._prompt([{"type": "text", "text": text}])
                if waited is not None:
                    await self._wait_for_file(
                        waited.path, waited.timeout_ms, unless=self._open_prompts[session]
                    )
                self.peer.notify("session/cancel", {"sessionId": session})
                await self._settle(session)
            case ops.PromptAndWaitForAgentMessage(text=text, wait_for_text=wanted):
                session = await self._prompt([{"type": "text", "text": text}])
                await self._wait_for_message(session, wanted)
            case ops.Cancel(wait_for_file=waited):
                if waited is not None:
                    await self._wait_for_file(waited.path, waited.timeout_ms)
                self.peer.notify("session/cancel", {"sessionId": self._session()})
            case ops.WaitForFile(path=path, timeout_ms=timeout_ms):
                await self._wait_for_file(path, timeout_ms)
            case ops.Kill(signal=name):
                await self._kill(name)
            case ops.Restart():
                await self._restart()
            case ops.ResumeSession():
                await self._resume()
            case _:
                await self._wait_for_log(step)

    async def _initialize(self, terminal_output: bool) -> None:
        capabilities: Frame = {"fs": {"readTextFile": False, "writeTextFile": False}, "terminal": False}
        if terminal_output:
            capabilities["_meta"] = {"terminal_output": True}
        params = {"protocolVersion": PROTOCOL_VERSION, "clientCapabilities": capabilities}
        result = await self._result("initialize", params)
        offered = result.get("agentCapabilities")
        self._capabilities = offered if isinstance(offered, dict) else {}

    def _new_session_params(self, additional_directories: list[str] | None) -> Frame:
        params: Frame = {"cwd": str(self._world.cwd), "mcpServers": []}
        if additional_directories is not None:
            params["additionalDirectories"] = additional_directories
        return params

    async def _prompt(self, content: list[Any]) -> str:
        """Send a prompt to the current session, after its previous one was answered; the session's id."""
        session = self._session()
        if session in self._open_prompts:
            await self._settle(session)
        self._said[session] = ""
        self._open_prompts[session] = self.peer.request(
            "session/prompt", {"sessionId": session, "prompt": content}
        )
        return session

    async def _answer_to_prompt(self, session: str) -> Frame:
        future = self._open_prompts[session]
        frame = await self._await(future, "the answer to session/prompt", self._timeouts.prompt)
        del self._open_prompts[session]
        return frame

    async def _settle(self, session: str) -> None:
        """Wait for the answer to the open prompt; an error is a failure."""
        frame = await self._answer_to_prompt(session)
        if "error" in frame:
            raise self._failure(f"session/prompt was answered with {_short(frame)}")

    async def _kill(self, name: str) -> None:
        number = getattr(signal, name, None)
        if not isinstance(number, signal.Signals):
            raise DriveError(f"{self._place}: {name!r} is no signal of this system", 2)
        process = self._running()
        process.signal(number)
        what = f"the end of the agent after {name}"
        self.exit_code = await self._await(process.exited, what, self._timeouts.wait, dies=True)
        self._gone()

    async def _restart(self) -> None:
        if self._process is not None:
            await self._shut_down()
        self._process = self._start(self.peer.feed)

    def _gone(self) -> None:
        self._process = None
        self._open_prompts.clear()
        self.peer.forget()

    async def _resume(self) -> None:
        params = {"sessionId": self._session(), "cwd": str(self._world.cwd), "mcpServers": []}
        extra = self._capabilities.get("sessionCapabilities")
        if self._capabilities.get("loadSession"):
            await self._result("session/load", params)
        elif isinstance(extra, dict) and "resume" in extra:
            await self._result("session/resume", params)
        else:
            raise self._failure("the agent offers neither `loadSession` nor `sessionCapabilities.resume`")

    async def _wait_for_file(
        self, path: str, timeout_ms: int | None, *, unless: asyncio.Future[Frame] | None = None
    ) -> None:
        file = self._world.cwd / path
        timeout = self._timeouts.wait if timeout_ms is None else timeout_ms / 1000

        def there() -> bool:
            if file.exists():
                return True
            if unless is not None and unless.done():
                raise self._failure(
                    f"the prompt was answered before the file {path} appeared: {_short(unless.result())}"
                )
            return False

        await self._poll(there, f"the file {path}", timeout)

    async def _wait_for_message(self, session: str, wanted: str) -> None:
        def said() -> bool:
            answer = self._open_prompts[session]
            if answer.done() and "error" in answer.result():
                raise self._failure(f"session/prompt was answered with {_short(answer.result())}")
            return wanted in self._said[session]

        await self._poll(said, f"an agent message with {wanted!r}", self._timeouts.prompt)

    async def _wait_for_log(self, step: ops.LogStep) -> None:
        what, condition = log_condition(step, self._logs, self._session(), self.session_ids)
        await self._poll(condition, f"{what} in the session log", self._timeouts.wait)

    async def _finish(self) -> None:
        """All prompts answered, all sessions idle, stdin closed, exit 0."""
        self._place = "after the last step"
        if self._process is None:
            return
        for session in list(self._open_prompts):
            await self._settle(session)
        await self._poll(
            lambda: all(log.idle for log in self._logs.read()), "all sessions to be idle", self._timeouts.wait
        )
        await self._shut_down()

    async def _shut_down(self) -> None:
        process = self._running()
        process.close_stdin()
        code = await self._await(
            process.exited, "the agent to exit after the end of its input", self._timeouts.wait, dies=True
        )
        self.exit_code = code
        if code != 0:
            raise self._failure(
                f"the agent {_ended(code)} after the end of its input; it must exit with 0", 3
            )
        if process.partial:
            raise self._failure(
                f"the agent's stdout ended in the middle of a line: {process.partial[:200]!r}"
            )
        self._gone()

    async def _poll(self, condition: Callable[[], bool], what: str, timeout: float) -> None:
        async def until() -> None:
            delay = _FIRST_POLL_S
            while not condition():
                await asyncio.sleep(delay)
                delay = min(delay * 1.5, _SLOWEST_POLL_S)

        await self._await(until(), what, timeout)

    async def _await(self, awaited: Awaitable[T], what: str, timeout: float, *, dies: bool = False) -> T:
        """Wait for something, but not longer than allowed and not past the agent's death (unless it is to
        die)."""
        process = self._running()
        task = asyncio.ensure_future(awaited)
        watched: list[asyncio.Future[Any]] = [task] if dies else [task, process.exited]
        try:
            await asyncio.wait(watched, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
            if self._refused is not None:
                raise self._failure(self._refused)
            if task.done():
                return task.result()
        finally:
            if not dies:
                task.cancel()
        if process.exited.done() and not dies:
            raise self._failure(
                f"the agent {_ended(process.exited.result())} while the runner awaited {what}", 3
            )
        raise self._failure(f"timed out after {timeout:g} s awaiting {what}")

    async def _answer(self, method: str, params: Frame) -> Frame:
        self._running()
        future = self.peer.request(method, params)
        return await self._await(future, f"the answer to {method}", self._timeouts.wait)

    async def _result(self, method: str, params: Frame) -> Frame:
        frame = await self._answer(method, params)
        result = frame.get("result")
        if "error" in frame or "result" not in frame:
            raise self._failure(f"{method} was answered with {_short(frame)}")
        return result if isinstance(result, dict) else {}

    async def _error(self, method: str, params: Frame) -> None:
        frame = await self._answer(method, params)
        if "error" not in frame:
            raise self._failure(f"{method} was to be refused, but was answered with {_short(frame)}")

    def _send(self, data: bytes) -> None:
        if self._process is not None:
            self._process.send(data)

    def _told(self, method: str, params: Any) -> None:
        """A notification: collect what the agent says."""
        if method != "session/update" or not isinstance(params, dict):
            return
        update = params.get("update")
        if isinstance(update, dict) and update.get("sessionUpdate") == "agent_message_chunk":
            content = update.get("content")
            session = str(params.get("sessionId"))
            if isinstance(content, dict) and isinstance(content.get("text"), str):
                self._said[session] = self._said.get(session, "") + content["text"]

    def _asked(self, method: str, params: Any) -> Frame:
        """A request of the agent: permission questions are answered from the script, all else is refused."""
        if method != "session/request_permission":
            return {"error": {"code": -32601, "message": f"Method not found: {method}"}}
        if not self._answers:
            return {"result": {"outcome": {"outcome": "cancelled"}}}
        kind = self._answers.pop(0).kind
        options = params.get("options") if isinstance(params, dict) else None
        offered = (
            [option for option in options if isinstance(option, dict)] if isinstance(options, list) else []
        )
        for option in offered:
            if option.get("kind") == kind:
                return {"result": {"outcome": {"outcome": "selected", "optionId": option.get("optionId")}}}
        kinds = ", ".join(str(option.get("kind")) for option in offered) or "nothing"
        self._refused = f"permissionAnswers has {kind!r} next, but the agent offered {kinds}"
        return {"result": {"outcome": {"outcome": "cancelled"}}}

    def _session(self) -> str:
        if not self.session_ids:
            raise DriveError(f"{self._place}: no session is open: put a `newSession` step before it", 2)
        return self.session_ids[-1]

    def _running(self) -> AgentProcess:
        if self._process is None:
            raise DriveError(f"{self._place}: the agent does not run: put a `restart` step before it", 2)
        return self._process

    def _string(self, result: Frame, key: str, method: str) -> str:
        value = result.get(key)
        if not isinstance(value, str):
            raise self._failure(f"the result of {method} has no string `{key}`: {_short(result)}")
        return value

    def _failure(self, message: str, exit_code: int = 1) -> DriveError:
        lines = [f"{self._place}: {message}"]
        if self.peer.stray:
            lines.append(
                f"stdout also held {len(self.peer.stray)} line(s) that are no frames, "
                f"first: {self.peer.stray[0][:200]!r}"
            )
        lines.append(stderr_tail(self._world))
        return DriveError("\n".join(lines), exit_code)


def stderr_tail(world: World) -> str:
    """The last lines of the agent's stderr, for messages."""
    try:
        text = world.stderr.read_bytes()[-8000:].decode("utf-8", "replace").strip("\n")
    except FileNotFoundError:
        text = ""
    if not text:
        return "the agent's stderr is empty"
    tail = text.split("\n")[-STDERR_TAIL_LINES:]
    return "\n".join(["the end of the agent's stderr:", *(f"    {line}" for line in tail)])


def _ended(code: int) -> str:
    if code < 0:
        with contextlib.suppress(ValueError):
            return f"was killed by {signal.Signals(-code).name}"
    return f"exited with code {code}"


def _short(value: Any) -> str:
    text = msgspec.json.encode(value).decode()
    return text if len(text) <= 400 else f"{text[:400]}..."
