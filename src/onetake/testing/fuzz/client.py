"""The client of one run: carries out a script against the agent, with the scripted model behind it.

Every wait has a bound and ends early when a rule is broken or the agent dies, so a run always ends: quietly,
or with the `Finding` that it raises. Whatever happens, no process of the run is left when it has ended.
"""

from __future__ import annotations

import asyncio
import signal
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from onetake import jsontext
from onetake.gateway.mock import MockModel
from onetake.snapshot.drive.base import ended, stderr_tail
from onetake.snapshot.drive.process import AgentProcess
from onetake.snapshot.drive.strays import find_strays, kill_strays, left_running
from onetake.testing.fuzz.judge import Finding, Frame, Judge
from onetake.testing.fuzz.peer import Peer
from onetake.testing.fuzz.steps import (
    HELLO,
    AwaitModel,
    Cancel,
    Case,
    NewSession,
    Pause,
    Prompt,
    Restart,
    Settle,
    Step,
    Stray,
)
from onetake.testing.fuzz.target import Place, Target

AT_START = "at the start"
"""How findings name what comes before the first step."""
_MODEL_S = 2.0
_FIRST_POLL_S = 0.001
_SLOWEST_POLL_S = 0.02
_LAST_WORDS_S = 0.02
"""How long an agent that ends by itself after its last answer has to show it."""
_NO_SESSION = "no-such-session"
_UNKNOWN = "_onetake/unknown"


class Bounds(msgspec.Struct, frozen=True):
    """How long things may take, in seconds."""

    answer: float = 20.0
    """An answer, and the end of a turn whose model does not hang."""
    cancel: float = 5.0
    """The answer to a prompt that was cancelled."""
    exit: float = 5.0
    """The end of the agent after the end of its input."""


class Outcome(msgspec.Struct):
    """What was seen in a run that may have ended at any place."""

    ends: Counter[str] = msgspec.field(default_factory=Counter)
    """How prompts ended: stop reasons, and `error`."""
    requests: list[Any] = []
    """What the model was asked."""
    capabilities: Frame = {}
    """What the agent said that it can do."""
    refusal: str | None = None
    """The last error that a session or a prompt was answered with."""


class _Turn(msgspec.Struct):
    answer: asyncio.Future[Frame]
    cancelled: bool = False


def run_case(case: Case, target: Target, bounds: Bounds, run_dir: Path, outcome: Outcome) -> None:
    """Carry out a case with new processes in a directory of its own. Raises Finding, AgentError."""
    place = target.settle(run_dir)
    try:
        asyncio.run(_run(case, target, bounds, place, outcome))
    except Finding as finding:
        text = str(finding).removeprefix(f"{finding.check}: ")
        raise Finding(finding.check, f"{text}\n{stderr_tail(place.stderr)}") from None
    finally:
        kill_strays(run_dir)


async def _run(case: Case, target: Target, bounds: Bounds, place: Place, outcome: Outcome) -> None:
    async with MockModel(case.model) as model:
        outcome.requests = model.requests
        client = _Client(case, target, bounds, place, model, outcome)
        try:
            await client.run()
        finally:
            await client.kill()


class _Client:
    def __init__(
        self, case: Case, target: Target, bounds: Bounds, place: Place, model: MockModel, outcome: Outcome
    ) -> None:
        self._case = case
        self._target = target
        self._bounds = bounds
        self._place = place
        self._model = model
        self._outcome = outcome
        self._judge = Judge()
        self._peer = Peer(self._judge, self._send, case.permission_answers, self._is_over)
        self._process: AgentProcess | None = None
        self._turns: dict[str, _Turn] = {}
        self._asked_before = 0
        self._at = AT_START

    async def run(self) -> None:
        try:
            await self._begin([])
            for number, step in enumerate(self._case.steps, 1):
                self._at = f"in step {number} ({step.__struct_config__.tag})"
                await self._step(step)
            self._at = "after the last step"
            for session in list(self._turns):
                await self._settle(session)
            await self._recover()
            self._at = "at the end"
            await self._end()
        except Finding as finding:
            text = str(finding).removeprefix(f"{finding.check}: ")
            raise Finding(finding.check, f"{self._at}: {text}") from None

    async def kill(self) -> None:
        if self._process is not None:
            await self._process.end()

    # -- the process -----------------------------------------------------------------------------------------

    async def _begin(self, sessions: list[str]) -> None:
        """Start the agent, load the sessions again where it can, and see that there is one."""
        self._process = self._target.start(self._place, self._model.base_url, self._peer.feed)
        capabilities = {"fs": {"readTextFile": False, "writeTextFile": False}, "terminal": False}
        params: Frame = {"protocolVersion": 1, "clientCapabilities": capabilities}
        answer = self._peer.request("initialize", params)
        try:
            frame = await self._await(answer, self._bounds.answer, "answers-once", "the answer to initialize")
        except Finding as finding:
            if finding.check not in ("alive", "answers-once") or self._judge.finding is not None:
                raise
            raise Finding("starts", str(finding).removeprefix(f"{finding.check}: ")) from None
        if "error" in frame:
            raise Finding("starts", f"initialize was refused: {_said(frame)}")
        offered = frame["result"].get("agentCapabilities") if isinstance(frame["result"], dict) else None
        self._outcome.capabilities = offered if isinstance(offered, dict) else {}
        if self._outcome.capabilities.get("loadSession") is True:
            for session in sessions:
                await self._load(session)
        if not self._judge.sessions:
            await self._new_session()

    async def _new_session(self) -> None:
        frame = await self._ask("session/new", self._workspace())
        if "error" in frame:
            self._outcome.refusal = f"session/new: {_said(frame)}"

    async def _load(self, session: str) -> None:
        """Load a session: it is open from now on, since its history comes before the answer."""
        self._judge.sessions.append(session)
        frame = await self._ask("session/load", {"sessionId": session, **self._workspace()})
        if "error" in frame:
            self._judge.sessions.remove(session)

    async def _end(self) -> None:
        """Close the agent's stdin and judge how it ends. Turns in flight need no answer."""
        process = self._running()
        await self._until(lambda: False, _LAST_WORDS_S, "its input was still open")
        process.close_stdin()
        await asyncio.wait([process.exited], timeout=self._bounds.exit)
        self._raise_finding()
        if not process.exited.done():
            raise Finding("exits", f"it still runs {self._bounds.exit:g} s after the end of its input")
        code = process.exited.result()
        if code != 0:
            raise Finding("exits", f"it {ended(code)} after the end of its input; it must exit with 0")
        if process.partial:
            raise Finding("pure-stdout", f"stdout ends in the middle of a line: {process.partial[:200]!r}")
        strays = await left_running(lambda: find_strays(self._place.run_dir))
        left = sorted({*process.left_running, *strays})
        if left:
            raise Finding("no-orphans", f"it exited, and left running: {'; '.join(left)}")
        self._gone()

    async def _recover(self) -> None:
        """See that nothing that has happened stays with a session: a sound model answers it from now on."""
        self._at = "in the plain prompts at the end"
        self._model.follow(Case().model)
        for session in self._judge.sessions:
            params = {"sessionId": session, "prompt": HELLO}
            frame = await self._ask("session/prompt", params)
            if "error" in frame:
                raise Finding(
                    "recovers", f"a plain prompt to session {session!r} was refused: {_said(frame)}"
                )

    async def _restart(self, how: str) -> None:
        sessions = list(self._judge.sessions)
        if how == "eof":
            await self._end()
        else:
            process = self._running()
            process.signal(signal.SIGKILL)
            await process.end()
            kill_strays(self._place.run_dir)
            self._raise_finding()
            self._gone()
        await self._begin(sessions)

    def _gone(self) -> None:
        for turn in self._turns.values():
            if turn.answer.done():
                self._count(turn.answer.result())
        self._process = None
        self._judge.restarted()
        self._peer.forget()
        self._turns.clear()

    def _running(self) -> AgentProcess:
        assert self._process is not None
        return self._process

    # -- steps -----------------------------------------------------------------------------------------------

    async def _step(self, step: Step) -> None:
        self._raise_finding()
        match step:
            case NewSession():
                await self._new_session()
            case Prompt(session=number, content=content):
                await self._prompt(self._session(number), content)
            case Cancel(session=number):
                self._cancel(self._session(number))
            case Settle(session=number):
                await self._settle(self._session(number))
            case Pause(ms=ms):
                await self._until(lambda: False, ms / 1000, "nothing was asked of it")
            case AwaitModel():
                await self._until(self._model_was_asked, _MODEL_S, "a question to the model was awaited")
            case Stray(what=what):
                await self._stray(what)
            case Restart(how=how):
                await self._restart(how)

    def _session(self, number: int) -> str | None:
        """The session of that number; None where the agent gave none."""
        sessions = self._judge.sessions
        return sessions[number % len(sessions)] if sessions else None

    async def _prompt(self, session: str | None, content: list[dict[str, Any]]) -> None:
        if session is None:
            return
        await self._settle(session)
        self._asked_before = len(self._model.requests)
        answer = self._peer.request("session/prompt", {"sessionId": session, "prompt": content})
        self._turns[session] = _Turn(answer)

    def _cancel(self, session: str | None) -> None:
        if session is None:
            return
        self._peer.notify("session/cancel", {"sessionId": session})
        if session in self._turns:
            self._turns[session].cancelled = True
        self._peer.release(session)

    async def _settle(self, session: str | None) -> None:
        """Wait for the end of a session's turn; one that nothing else can end is cancelled."""
        turn = self._turns.get(session) if session is not None else None
        if turn is None or session is None:
            return
        answer = turn.answer
        if not turn.cancelled:
            await self._until(
                lambda: answer.done() or self._hangs(session),
                self._bounds.answer,
                f"{_awaited(session)} was awaited",
            )
            if not answer.done() and self._hangs(session):
                self._cancel(session)
        if turn.cancelled:
            what = f"{_awaited(session)} after it was cancelled"
            frame = await self._await(answer, self._bounds.cancel, "cancel-settles", what)
        else:
            frame = await self._await(answer, 0, "answers-once", _awaited(session), self._bounds.answer)
        del self._turns[session]
        self._count(frame)

    def _hangs(self, session: str) -> bool:
        return self._model.hanging > 0 or self._peer.holds(session)

    def _is_over(self, session: str) -> bool:
        turn = self._turns.get(session)
        return turn is None or turn.cancelled

    def _model_was_asked(self) -> bool:
        idle = all(turn.answer.done() for turn in self._turns.values())
        return len(self._model.requests) > self._asked_before or idle

    async def _stray(self, what: str) -> None:
        if what == "request":
            await self._ask(_UNKNOWN, {})
        elif what == "prompt":
            await self._ask("session/prompt", {"sessionId": _NO_SESSION, "prompt": HELLO})
        elif what == "cancel":
            self._peer.notify("session/cancel", {"sessionId": _NO_SESSION})
        else:
            self._peer.notify(_UNKNOWN, {})

    def _send(self, data: bytes) -> None:
        self._running().send(data)

    def _count(self, frame: Frame) -> None:
        if "error" in frame:
            self._outcome.ends["error"] += 1
            self._outcome.refusal = f"session/prompt: {_said(frame)}"
        else:
            self._outcome.ends[frame["result"]["stopReason"]] += 1

    def _workspace(self) -> Frame:
        return {"cwd": str(self._place.cwd), "mcpServers": []}

    # -- waiting ---------------------------------------------------------------------------------------------

    async def _ask(self, method: str, params: Frame) -> Frame:
        session = params.get("sessionId")
        what = f"the answer to {method}" if session is None else _awaited(session, method)
        return await self._await(
            self._peer.request(method, params), self._bounds.answer, "answers-once", what
        )

    async def _await(
        self, answer: asyncio.Future[Frame], bound: float, check: str, what: str, waited: float = 0
    ) -> Frame:
        """Wait for an answer; `waited` seconds were spent on it already. Raises Finding."""
        await self._until(answer.done, bound, f"{what} was awaited")
        if not answer.done():
            raise Finding(check, f"{what} did not come within {bound + waited:g} s")
        return answer.result()

    async def _until(self, condition: Callable[[], bool], bound: float, what: str) -> None:
        """Wait until a condition holds, or for `bound` seconds. Raises Finding when a rule is broken."""
        process = self._running()
        loop = asyncio.get_running_loop()
        deadline, poll = loop.time() + bound, _FIRST_POLL_S
        while True:
            self._raise_finding()
            if condition():
                return
            if process.exited.done():
                raise self._death(f"while {what}")
            left = deadline - loop.time()
            if left <= 0:
                return
            await asyncio.sleep(min(poll, left))
            poll = min(poll * 1.5, _SLOWEST_POLL_S)

    def _raise_finding(self) -> None:
        if self._judge.finding is not None:
            raise self._judge.finding

    def _death(self, when: str) -> Finding:
        return Finding("alive", f"the agent {ended(self._running().exited.result())} {when}")


def _awaited(session: str, method: str = "session/prompt") -> str:
    return f"the answer to {method} of session {session!r}"


def _said(frame: Frame) -> str:
    error = frame.get("error")
    message = error.get("message") if isinstance(error, dict) else None
    return message if isinstance(message, str) else jsontext.dumps(error).decode()
