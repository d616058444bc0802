"""The tools of one step: started together, committed one after the other, each call answered exactly once."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from onetake.agent.interrupt import Interrupt, Interrupted
from onetake.model.types import Block, new_id
from onetake.session.events import Event
from onetake.tools.execution import execute
from onetake.tools.registry import ToolContext, ToolResult

if TYPE_CHECKING:
    from onetake.agent.agent import Agent

_ABORTED = ("ABORTED", "Error: the turn was cancelled before this call gave its result.")
_NOT_STARTED = ("ABORTED_BEFORE_DISPATCH", "Error: the turn was cancelled before this call was started.")


class ToolRun:
    """Executes the tool calls of one step."""

    def __init__(self, agent: Agent, turn: int, step: int, calls: list[Block], interrupt: Interrupt) -> None:
        self.agent = agent
        self.interrupt = interrupt
        self.log = agent.log
        self.place = {"turn": turn, "step": step}
        self.calls = calls
        self.rows: list[Event] = []
        self.started = 0
        self.committed = 0

    async def run(self) -> None:
        """Log all calls, execute them, and commit one result for each, whatever happens."""
        self.rows = [
            self.log.append(
                "tool/call",
                {**self.place, "callId": call["id"], "name": call["name"], "arguments": call["arguments"]},
            )
            for call in self.calls
        ]
        try:
            await self.interrupt.guard(self._execute_all())
        except Interrupted:
            pass
        finally:
            while self.committed < len(self.calls):
                self._commit(_cancelled(_ABORTED if self.committed < self.started else _NOT_STARTED))

    async def _execute_all(self) -> None:
        await self.agent.flush()
        slots = asyncio.Semaphore(self.agent.config.parallel_tools)
        numbered = enumerate(self.calls, 1)
        tasks = [asyncio.create_task(self._execute(call, ordinal, slots)) for ordinal, call in numbered]
        try:
            for task in tasks:
                self._commit(await task)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _execute(self, call: Block, ordinal: int, slots: asyncio.Semaphore) -> ToolResult:
        """Execute one call when its turn comes; the semaphore wakes waiters in the order of the calls."""
        async with slots:
            if self.interrupt.reason is not None:  # a cancelled call has just left its slot to this one
                raise Interrupted
            self.started += 1
            context = ToolContext(
                session_id=self.agent.id,
                call_id=call["id"],
                turn=self.place["turn"],
                step=self.place["step"],
                ordinal=ordinal,
                cwd=self.agent.cwd,
                spill_dir=self.agent.spill_dir,
                env=dict(self.agent.ctx.tool_env),
            )
            return await execute(self.agent.tools, call["name"], call["arguments"], context)

    def _commit(self, result: ToolResult) -> None:
        call, row = self.calls[self.committed], self.rows[self.committed]
        self.committed += 1
        answer = {
            "type": "tool-result",
            "toolCallId": call["id"],
            "content": result.content,
            "isError": result.is_error,
        }
        message = {
            "source": {"kind": "tool", "callId": call["id"]},
            "content": [answer],
            "role": "user",
            "id": new_id(),
        }
        data: dict[str, Any] = {**self.place, "message": message}
        if result.error is not None:
            data["error"] = result.error
        if result.meta is not None:
            data["meta"] = result.meta
        self.log.append("tool/result", data, source_event_seqs=[row["seq"]], surface_op="append")


def _cancelled(why: tuple[str, str]) -> ToolResult:
    code, text = why
    return ToolResult(
        content=[{"type": "text", "text": text}], is_error=True, error={"name": "AbortError", "code": code}
    )
