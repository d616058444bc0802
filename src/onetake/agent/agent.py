"""An agent: one conversation with its log, its inbox, and the task that works the inbox off.

Everything that happens to an agent goes through the few methods here, and everything that an agent does is in
its log (`agent.log.subscribe` follows it). The worker exists only while there is work; a turn is never
cancelled from outside but through `cancel`, which lets it write down how it ended.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from onetake.agent.inbox import Inbox, Target, new_message
from onetake.agent.interrupt import Interrupt
from onetake.agent.loop import Turn
from onetake.agent.prompt import PromptRegistry, SessionFacts
from onetake.errors import OnetakeError
from onetake.model.types import Block
from onetake.session.log import SessionLog
from onetake.tools.registry import ToolRegistry

if TYPE_CHECKING:
    from onetake.agent.context import AppContext
    from onetake.session.writer import SessionWriter

Content = str | list[Block]
Status = Literal["idle", "running", "disposed"]


class AgentConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How an agent calls its model, and how far a turn may go."""

    provider: str
    """Id of a registered provider."""
    model: str
    """Model id in that provider's catalogue."""
    effort: str | None = None
    """Reasoning effort to ask for; None leaves it to the provider."""
    max_output: int | None = None
    """Most tokens of one answer; None leaves it to the provider."""
    max_steps: int = 200
    """Model requests within one turn before the turn is ended as failed."""
    parallel_tools: int = 8
    """Tool calls of one step that run at the same time; 1 runs them one after the other."""

    def __post_init__(self) -> None:
        for name in ("max_steps", "parallel_tools"):
            if getattr(self, name) < 1:
                raise ValueError(f"`{name}` must be at least 1")

    def request_config(self) -> dict[str, Any]:
        """The call settings as the request header logs them; what is left to the provider is left out."""
        config: dict[str, Any] = {"provider": self.provider, "model": self.model}
        if self.max_output is not None:
            config["maxTokens"] = self.max_output
        if self.effort is not None:
            config["reasoningEffort"] = self.effort
        return config


class Agent:
    """One conversation. Made by `AppContext.create_session`; its methods need a running event loop."""

    def __init__(
        self,
        ctx: AppContext,
        log: SessionLog,
        *,
        cwd: Path,
        config: AgentConfig,
        writer: SessionWriter | None = None,
        calls: int = 0,
        prompt: PromptRegistry | None = None,
        tools: ToolRegistry | None = None,
    ) -> None:
        self.ctx = ctx
        self.log = log
        self.cwd = cwd
        self.config = config
        self.prompt = ctx.prompt if prompt is None else prompt
        """The system prompt of this session; by default the app's."""
        self.tools = ctx.tools if tools is None else tools
        """The tools of this session; by default the app's."""
        self.inbox = Inbox(log)
        self.calls = calls
        """Model calls so far in this session's whole life, earlier processes included."""
        self.logged_header: dict[str, Any] = {}
        """The request header that the last request of this process logged; empty before it."""
        self.last_turn_end: dict[str, Any] | None = None
        """The reason of the last `turn/end` of this process."""
        self.reader_ready: Callable[[], Awaitable[None]] | None = None
        """Awaited before each request: lets a surface make the agent wait until its reader has caught up."""
        self.after_turn: list[Callable[[], None]] = []
        """Called after each turn, when its end is durable and those who asked for it were told."""
        self._writer = writer
        self._turns = max((e["data"]["turn"] for e in log.events if e["type"] == "turn/start"), default=0)
        self._worker: asyncio.Task[None] | None = None
        self._interrupt = Interrupt()
        self._cancellable = False
        self._disposed = False
        self._shutdown: dict[str, Any] | None = None
        self._failure: Exception | None = None
        self._waiters: dict[str, asyncio.Future[dict[str, Any]]] = {}

    @property
    def id(self) -> str:
        """The session id."""
        return self.log.id

    @property
    def depth(self) -> int:
        """How many levels of delegation lie above: 0 for a session that a client opened."""
        depth: int = self.log.header.get("delegationDepth", 0)
        return depth

    @property
    def status(self) -> Status:
        """`running` while anything is in work or queued, `disposed` once `close` was called."""
        if self._disposed:
            return "disposed"
        return "running" if self._worker is not None else "idle"

    @property
    def spill_dir(self) -> Path:
        """Where tools of this session put output too long for the model; they create it when needed."""
        return self.ctx.spill_root / self.id

    # -- what may be said to an agent ----------------------------------------------------------------------

    def followup(self, content: Content, *, source: dict[str, Any] | None = None) -> str:
        """Queue a message that opens a turn of its own; returns its id. Raises OnetakeError once closed."""
        return self._put("next-turn", content, source)

    def steer(self, content: Content, *, source: dict[str, Any] | None = None) -> str:
        """Say something to the running turn, before its next request.

        Without a running turn, or when it is being cancelled, the message opens a turn.
        """
        joins = self._cancellable and self._interrupt.reason is None
        return self._put("next-step" if joins else "next-turn", content, source)

    def inject(self, content: Content, *, plugin: str, target: Target = "next-turn", **details: Any) -> str:
        """Queue a message that a plugin says; `details` become part of its source (form, summary, ...)."""
        return self._put(target, content, {"kind": "plugin", "plugin": plugin, **details})

    def ask(
        self, content: Content, *, source: dict[str, Any] | None = None
    ) -> asyncio.Future[dict[str, Any]]:
        """Like `followup`; the future gives the reason of the turn's end once the log is flushed.

        A message that `close` drops from the queue gives `{"kind": "aborted", ...}`.
        """
        future: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self._waiters[self.followup(content, source=source)] = future
        return future

    def _put(self, target: Target, content: Content, source: dict[str, Any] | None) -> str:
        if self._disposed:
            raise OnetakeError(f"session {self.id} is closed")
        message = new_message(content, source)
        self.inbox.put(target, message)
        if self._worker is None:
            self._cancellable = True
            self._worker = asyncio.create_task(self._work(), name=f"agent {self.id}")
        return str(message["id"])

    def cancel(self, reason: dict[str, Any] | None = None) -> bool:
        """Cancel the running turn (or the one about to start) and what was said to it; False: there is none.

        Messages that wait for a turn of their own stay queued. `reason` is logged; the default is the user.
        """
        if not self._cancellable:
            return False
        self._interrupt.trigger(reason or {"kind": "user"})
        return True

    async def when_idle(self) -> None:
        """Wait until nothing is in work or queued. Raises StoreError when the log could not be written."""
        await self._finished()
        if self._failure is not None:
            failure, self._failure = self._failure, None
            raise failure

    async def flush(self) -> None:
        """Wait until everything logged so far is durable. Raises StoreError when it cannot be written."""
        if self._writer is not None:
            await self._writer.flush()

    def stop(self, reason: dict[str, Any] | None = None) -> None:
        """Take nothing more from now on and cancel what runs, without waiting for its end: `close` does."""
        if not self._disposed:
            self._disposed = True
            self._shutdown = reason or {"kind": "shutdown"}
            self.cancel(self._shutdown)

    async def close(self, reason: dict[str, Any] | None = None) -> None:
        """Cancel what runs, durably drop what is queued, flush and close the log. Closing twice is fine.

        Raises StoreError when the log cannot be written to its end.
        """
        self.stop(reason)
        if self._shutdown is None:
            return
        ending, self._shutdown = {"kind": "aborted", "reason": self._shutdown}, None
        await self._finished()
        for target in ("next-step", "next-turn"):
            for message in self.inbox.cancel(target):
                self._settle(message["id"], ending)
        if self._writer is not None:
            await self._writer.close()

    # -- the worker ----------------------------------------------------------------------------------------

    async def _work(self) -> None:
        """Run turns until the inbox is empty, the agent is closed or the log cannot be written."""
        try:
            while self.inbox.pending() and not self._disposed:
                await self._run_turn()
        except Exception as error:
            self._failure = error
            for future in self._waiters.values():
                if not future.done():
                    future.set_exception(error)
            self._waiters.clear()
        finally:
            self._cancellable = False
            self._worker = None

    async def _finished(self) -> None:
        while self._worker is not None:
            await asyncio.shield(self._worker)

    async def _run_turn(self) -> None:
        self._turns += 1
        self._cancellable = True
        turn = Turn(self, self._turns, self._interrupt)
        reason = self.last_turn_end = await turn.run()
        self._cancellable = False
        self._interrupt = Interrupt()
        await self.flush()
        for message_id in turn.opened_by:
            self._settle(message_id, reason)
        for tell in self.after_turn:
            tell()

    def _settle(self, message_id: str, reason: dict[str, Any]) -> None:
        future = self._waiters.pop(message_id, None)
        if future is not None and not future.done():
            future.set_result(reason)

    # -- what the loop needs -------------------------------------------------------------------------------

    def request_header(self) -> dict[str, Any]:
        """The header of the next request: call settings, system prompt, tools; absent parts are left out."""
        header: dict[str, Any] = {"config": self.config.request_config()}
        system = self.prompt.assemble(SessionFacts(session_id=self.id, cwd=self.cwd))
        if system is not None:
            header["system"] = system
        tools = self.tools.specs()
        if tools:
            header["tools"] = tools
        return header

    def header_reason(self) -> str:
        """Why a header that differs from `logged_header` is logged: `initial`, `resume` or `change`."""
        if self.logged_header:
            return "change"
        return "resume" if any(e["type"] == "request/header" for e in self.log.events) else "initial"
