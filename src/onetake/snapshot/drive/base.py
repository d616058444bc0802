"""What every driver does: start the agent, wait for things, and say what was awaited when they do not come.

Nothing is ever retried and nothing is waited for without a bound: a wait ends because the thing happened,
because the agent died, or because its time is over, and the message always names which, with the end of the
agent's stderr.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import msgspec

from onetake import jsontext
from onetake.errors import OnetakeError, UsageError
from onetake.fixture.normalize import Rules
from onetake.snapshot.drive.conditions import idle, log_condition
from onetake.snapshot.drive.env import World
from onetake.snapshot.drive.livelog import LiveLogs
from onetake.snapshot.drive.process import AgentProcess, Launch
from onetake.snapshot.render.transcript import Transcript
from onetake.snapshot.suites import ops

STDERR_TAIL_LINES = 20

_FIRST_POLL_S = 0.002
_SLOWEST_POLL_S = 0.05
T = TypeVar("T")
Frame = dict[str, Any]
What = str | Callable[[], str]
"""What is awaited, in words; a function says it when it is needed."""


class DriveError(OnetakeError):
    """The script could not be carried through. `exit_code`: 1 the agent did something else, 3 it died."""

    def __init__(self, message: str, exit_code: int = 1) -> None:
        super().__init__(message)
        self.exit_code = exit_code


class Timeouts(msgspec.Struct, frozen=True):
    """How long the driver waits, in seconds."""

    wait: float = 10.0
    prompt: float = 60.0
    turn: float = 10.0
    """For what turns bring that nobody asked for by a prompt: those of children, and of notices."""


def timeouts_for(mode: str, timeout_s: float | None) -> Timeouts:
    """The defaults, or `timeout_s` for all; what reaches a real model has at least ten minutes."""
    wait, prompt = (timeout_s, timeout_s) if timeout_s is not None else (10.0, 60.0)
    if mode == "record":
        return Timeouts(wait, max(prompt, 600.0), max(wait, 600.0))
    return Timeouts(wait, prompt, wait)


class Driver(ABC):
    """One scenario's conversation with one agent. A subclass says what `_step` and `_finish` mean."""

    known_ops: ClassVar[tuple[type[Any], ...]]
    """The ops that make sense in this protocol."""
    opening: ClassVar[Sequence[Frame]] = ()
    """The steps before the first prompt of a new scenario."""

    @classmethod
    def check(cls, script: ops.Script, place: str) -> None:
        """Refuse a script that this driver cannot carry out. Raises `UsageError`; `place` is the file."""
        for number, step in enumerate(script.steps, 1):
            if not isinstance(step, cls.known_ops):
                known = ", ".join(tag(op) for op in cls.known_ops)
                raise UsageError(
                    f"{place}: step {number} ({tag(type(step))}): the suite's driver has no such op; "
                    f"its ops: {known}"
                )

    @staticmethod
    @abstractmethod
    def render(
        frames: Sequence[bytes], tokenize: Callable[[Any], Any], rules: Rules, *, joined: bool
    ) -> Transcript:
        """The stdout surface; see `onetake.snapshot.render.transcript`."""

    def __init__(
        self, script: ops.Script, world: World, timeouts: Timeouts, launch: Launch, logs: LiveLogs
    ) -> None:
        self.exit_code: int | None = None
        """Of the last process; None when it never started or the runner had to kill it."""
        self.frames: list[bytes] = []
        """The raw lines of stdout, without their newline."""
        self.stray: list[bytes] = []
        """Those that do not belong to the protocol."""
        self.session_ids: list[str] = []
        """The sessions that the script opened, in order."""
        self.left_running: list[str] = []
        """Command lines of what agents that ended left in their groups."""
        self.unused_answers: list[ops.PermissionAnswer] = []
        """The permission answers that nobody asked for so far."""
        self._script = script
        self._world = world
        self._timeouts = timeouts
        self._launch = launch
        self._process: AgentProcess | None = None
        self._logs = logs
        self._place = "start"

    async def run(self) -> None:
        """Carry out every step, wait until all is quiet, and let the agent end. Raises `DriveError`,
        `AgentError`."""
        try:
            await self._begin()
            for number, step in enumerate(self._script.steps, 1):
                self._place = f"step {number} ({tag(type(step))})"
                await self._step(step)
            self._place = "after the last step"
            await self._finish()
        finally:
            if self._process is not None:
                exited = self._process.exited.done()
                code = await self._process.end()
                self.exit_code = code if exited else None

    @abstractmethod
    async def _begin(self) -> None:
        """Before the first step: start the agent, unless a step does."""

    @abstractmethod
    async def _step(self, step: ops.Step) -> None:
        """Carry out one step."""

    @abstractmethod
    async def _finish(self) -> None:
        """After the last step: wait for what is unfinished, and for the end of the agent."""

    def _objection(self) -> str | None:
        """What the agent has done meanwhile that ends every wait; None: nothing."""
        return None

    def _gone(self) -> None:
        """The process is gone, and was meant to be."""
        self._process = None

    async def _kill(self, name: str) -> int:
        """Send a signal and wait for the end; its number."""
        number = getattr(signal, name, None)
        if not isinstance(number, signal.Signals):
            raise DriveError(f"{self._place}: {name!r} is no signal of this system", 2)
        process = self._running()
        process.signal(number)
        await self._exit(f"the end of the agent after {name}")
        return number

    async def _exit(self, what: str) -> int:
        """Wait for the end of the process, which is `what`; its exit code."""
        process = self._running()
        self.exit_code = await self._await(process.exited, what, self._timeouts.wait, dies=True)
        self.left_running += process.left_running
        return self.exit_code

    async def _wait_for_file(
        self, path: str, timeout_ms: int | None, *, unless: asyncio.Future[Frame] | None = None
    ) -> None:
        """Wait for a file of the workspace, but not longer than for the answer to the prompt (`unless`)."""
        file = self._world.cwd / path
        timeout = self._timeouts.wait if timeout_ms is None else timeout_ms / 1000

        def there() -> bool:
            if file.exists():
                return True
            if unless is not None and unless.done():
                raise self._failure(
                    f"the prompt was answered before the file {path} appeared: {short(unless.result())}"
                )
            return False

        await self._poll(there, f"the file {path}", timeout)

    async def _wait_for_log(self, step: ops.LogStep) -> None:
        what, condition = log_condition(step, self._logs, self._session(), self.session_ids)
        await self._poll(condition, what, self._timeouts.turn)

    async def _wait_until_idle(self) -> None:
        what, condition = idle(self._logs)
        await self._poll(condition, what, self._timeouts.turn)

    async def _poll(self, condition: Callable[[], bool], what: What, timeout: float) -> None:
        async def until() -> None:
            delay = _FIRST_POLL_S
            while not condition():
                await asyncio.sleep(delay)
                delay = min(delay * 1.5, _SLOWEST_POLL_S)

        try:
            await self._await(until(), what, timeout)
        except DriveError:
            # It may have happened after the last look, and before the agent ended.
            if self._objection() is not None or not condition():
                raise

    async def _await(self, awaited: Awaitable[T], what: What, timeout: float, *, dies: bool = False) -> T:
        """Wait for something, but not longer than allowed and not past the agent's death (unless it is to
        die)."""
        process = self._running()
        task = asyncio.ensure_future(awaited)
        watched: list[asyncio.Future[Any]] = [task] if dies else [task, process.exited]
        try:
            await asyncio.wait(watched, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
            objection = self._objection()
            if objection is not None:
                raise self._failure(objection)
            if task.done():
                return task.result()
        finally:
            if not dies:
                task.cancel()
        what = what if isinstance(what, str) else what()
        if process.exited.done() and not dies:
            raise self._failure(
                f"the agent {ended(process.exited.result())} while the runner awaited {what}", 3
            )
        raise self._failure(f"timed out after {timeout:g} s awaiting {what}")

    def _session(self) -> str:
        if not self.session_ids:
            raise DriveError(f"{self._place}: no session is open: put a `newSession` step before it", 2)
        return self.session_ids[-1]

    def _running(self) -> AgentProcess:
        if self._process is None:
            raise DriveError(f"{self._place}: the agent does not run: put a `restart` step before it", 2)
        return self._process

    def _failure(self, message: str, exit_code: int = 1) -> DriveError:
        lines = [f"{self._place}: {message}"]
        if self.stray:
            lines.append(
                f"stdout also held {len(self.stray)} line(s) that are no frames, "
                f"first: {self.stray[0][:200]!r}"
            )
        lines.append(stderr_tail(self._world.stderr))
        return DriveError("\n".join(lines), exit_code)

    def _refuse_half_line(self, process: AgentProcess) -> None:
        if process.partial:
            raise self._failure(
                f"the agent's stdout ended in the middle of a line: {process.partial[:200]!r}"
            )


def stderr_tail(stderr: Path) -> str:
    """The last lines of the agent's stderr, which that file holds, for messages."""
    try:
        text = stderr.read_bytes()[-8000:].decode("utf-8", "replace").strip("\n")
    except FileNotFoundError:
        text = ""
    if not text:
        return "the agent's stderr is empty"
    tail = text.split("\n")[-STDERR_TAIL_LINES:]
    return "\n".join(["the end of the agent's stderr:", *(f"    {line}" for line in tail)])


def tag(op: type[Any]) -> str:
    """What a script calls an op."""
    name: str = op.__struct_config__.tag
    return name


def ended(code: int) -> str:
    """How a process ended, as the rest of a sentence."""
    if code < 0:
        with contextlib.suppress(ValueError):
            return f"was killed by {signal.Signals(-code).name}"
    return f"exited with code {code}"


def short(value: Any) -> str:
    """A JSON value for a message."""
    text = jsontext.dumps(value).decode()
    return text if len(text) <= 400 else f"{text[:400]}..."
