"""One turn from its first message to its end: steps, each a model request plus the tools that it calls.

The rules, all of which the log shows:

- Model-visible means logged. The messages of every request are compared with what the log derives; a
  difference is a bug of the harness or of a plugin, and it ends the turn before the model is asked.
- A step's `tool/call` rows come first, in model order. The tools run concurrently (up to a limit, started in
  model order) and their results are committed in model order, each as soon as all before it are.
- Every tool call gets exactly one result. A cancelled turn gives constant texts to the calls whose results
  were not committed, whatever they had done by then, so that the log does not depend on a race.
- Before anything leaves the process (a request, a tool that acts on the world) the log is flushed.
- A step that was started is ended, and so is a turn, whatever happens in between.

Later features take their place in the methods that are here: a retry policy around `_call_model`, compaction
before it, approvals and hooks around `ToolRun._execute` (in `tooling`).
"""

from __future__ import annotations

from contextlib import aclosing
from typing import TYPE_CHECKING, Any

from onetake.agent.inbox import Inbox
from onetake.agent.interrupt import Interrupt, Interrupted
from onetake.agent.tooling import ToolRun
from onetake.errors import OnetakeError
from onetake.model.assembler import BlockAssembler
from onetake.model.request import ModelRequest
from onetake.model.types import Block, Message, new_id
from onetake.session.history import derive_messages
from onetake.session.log import SessionLog

if TYPE_CHECKING:
    from onetake.agent.agent import Agent

STEP_LIMIT = "STEP_LIMIT"
INTERNAL = "INTERNAL"
ABORTED: dict[str, Any] = {"kind": "aborted"}
"""Stands for the end of a cancelled turn until `Turn.run` adds the reason."""
_UNEXPLAINED = {"message": "the provider ended the call without an explanation", "code": INTERNAL}


class UnloggedInput(OnetakeError):
    """A request would have shown the model something else than the log holds."""


def check_model_input(messages: list[Message], log: SessionLog) -> None:
    """Compare a request's messages with what the log derives; raises UnloggedInput where they differ."""
    logged = derive_messages(log.events)
    if messages == logged:
        return
    at = next(
        (index for index, (ours, theirs) in enumerate(zip(messages, logged, strict=False)) if ours != theirs),
        min(len(messages), len(logged)),
    )
    raise UnloggedInput(
        f"the model would see what the log does not hold: the request has {len(messages)} messages, the log "
        f"derives {len(logged)}, and they differ from message {at} on; append a surface event instead"
    )


class Turn:
    """Runs one turn of an agent; `run` is called once."""

    def __init__(self, agent: Agent, number: int, interrupt: Interrupt) -> None:
        self.agent = agent
        self.log = agent.log
        self.inbox: Inbox = agent.inbox
        self.number = number
        self.interrupt = interrupt
        self.opened_by: list[str] = []
        """The ids of the messages that this turn began with."""

    async def run(self) -> dict[str, Any]:
        """Run the turn to its `turn/end` and return the reason that it gives. Never raises an `Exception`."""
        self.log.append("turn/start", {"turn": self.number})
        messages = self.inbox.take_for_turn()
        self.opened_by = [message["id"] for message in messages]
        try:
            reason = await self._steps(messages)
            if self.interrupt.reason is not None:
                reason = {"kind": "aborted", "reason": self.interrupt.reason}
        except Exception as error:
            reason = self._failed(error)
        if self.interrupt.reason is not None:
            self.inbox.cancel("next-step")
        self.log.append("turn/end", {"turn": self.number, "reason": reason})
        return reason

    def _failed(self, error: Exception) -> dict[str, Any]:
        if not isinstance(error, OnetakeError):
            import traceback

            traceback.print_exception(error)
        return {"kind": "error", "error": {"message": str(error) or type(error).__name__, "code": INTERNAL}}

    async def _steps(self, messages: list[Message]) -> dict[str, Any]:
        limit = self.agent.config.max_steps
        step = 0
        while True:
            step += 1
            self.log.append("step/start", {"turn": self.number, "step": step})
            try:
                for message in messages:
                    self.log.append("user/message", message, surface_op="append")
                reason, owed = await self._step(step)
            finally:
                self.log.append("step/end", {"turn": self.number, "step": step})
            if reason is not None:
                return reason
            if not owed and not self.inbox.waiting("next-step"):
                return {"kind": "completed"}
            if step >= limit:
                text = f"the turn did not end within {limit} steps"
                return {"kind": "error", "error": {"message": text, "code": STEP_LIMIT}}
            messages = self.inbox.take_for_step()

    async def _step(self, step: int) -> tuple[dict[str, Any] | None, bool]:
        """One request and its tools: why the turn ends here (or None), and whether it owes another step."""
        assembler = BlockAssembler()
        seqs: list[int] = []
        self.inbox.hold()
        try:
            try:
                await self.interrupt.guard(self._call_model(step, assembler, seqs))
            except Interrupted:
                if not assembler.finished:  # otherwise the call was over, and its answer counts
                    self._commit(step, assembler.interrupted_blocks(), assembler, seqs, interrupted=True)
                    return ABORTED, False
            finish = assembler.finish
            if finish["kind"] in ("error", "aborted"):
                return {"kind": "error", "error": finish.get("failure", _UNEXPLAINED)}, False
            content = assembler.blocks()
            self._commit(step, content, assembler, seqs, interrupted=False)
        finally:
            self.inbox.release()
        if finish["kind"] == "max-tokens":
            return {"kind": "max-tokens"}, False
        calls = [block for block in content if block["type"] == "tool-call"]
        if calls:
            await ToolRun(self.agent, self.number, step, calls, self.interrupt).run()
        return (ABORTED if self.interrupt.reason else None), bool(calls)

    async def _call_model(self, step: int, assembler: BlockAssembler, seqs: list[int]) -> None:
        """Ask the model and log each chunk as it comes; `assembler` and `seqs` hold what came so far."""
        self._log_header()
        await self.agent.flush()
        if self.agent.reader_ready is not None:
            await self.agent.reader_ready()
        request = self._request()
        check_model_input(request.messages, self.log)
        async with aclosing(self.agent.ctx.providers.stream(request)) as chunks:
            async for chunk in chunks:
                event = self.log.append(
                    "assistant/chunk", {"turn": self.number, "step": step, "chunk": chunk}
                )
                seqs.append(event["seq"])
                assembler.push(chunk)

    def _log_header(self) -> None:
        """Log the header of the next request when it is the first one or differs from the last."""
        agent = self.agent
        header = agent.request_header()
        if header == agent.logged_header:
            return
        self.log.append("request/header", {"header": header, "reason": agent.header_reason()})
        config = header["config"]
        self.log.append("request/context", {"provider": config["provider"], "model": config["model"]})
        agent.logged_header = header

    def _request(self) -> ModelRequest:
        agent = self.agent
        header = agent.logged_header
        agent.calls += 1
        return ModelRequest(
            session_id=agent.id,
            call=agent.calls,
            config=header["config"],
            system=header.get("system"),
            tools=header.get("tools"),
            messages=self.log.messages(),
        )

    def _commit(
        self,
        step: int,
        content: list[Block],
        assembler: BlockAssembler,
        seqs: list[int],
        *,
        interrupted: bool,
    ) -> None:
        """Make what the model said part of the conversation; nothing is committed when it said nothing."""
        if not content:
            return
        config = self.agent.logged_header["config"]
        source = {"kind": "model", "provider": config["provider"], "model": config["model"]}
        message = assembler.message(source, new_id())
        message["content"] = content
        data: dict[str, Any] = {"turn": self.number, "step": step, "message": message}
        if assembler.usage is not None:
            data["usage"] = assembler.usage
        if interrupted:
            data["interrupted"] = True
        self.log.append("assistant/message", data, source_event_seqs=seqs, surface_op="append")
