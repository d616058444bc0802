"""Children that go on while their parent does something else, and how it learns of their ends.

Where the answer of a child enters its parent's log must not depend on how fast the child was:

- A child starts when the result of the call that ordered it is committed. A call that is cancelled before
  has started nothing.
- Within a turn the model gets an answer only by asking for it (`subagent_wait`).
- What it did not ask for comes as notices, between turns: each opens a turn of its own, in the order in which
  the children were ordered, whoever is done first. What was said to the parent meanwhile goes first.
- When the agent ends, so do its children, without a notice.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from onetake.agent.agent import Agent
from onetake.session.events import SUBAGENT_ID, TOOL_RESULT, Event
from onetake.toolkit.delegation.children import Ending, Order
from onetake.tools.registry import ToolContext, ToolResult, error_result

Run = Callable[[Agent, Order], Awaitable[Ending]]


class Job:
    """One child in the background, from its order to the moment at which its parent knows how it ended."""

    def __init__(self, number: int, order: Order) -> None:
        self.number = number
        self.order = order
        self.task: asyncio.Task[None] | None = None
        """Runs the child; None until the order is committed."""
        self.ending: Ending | None = None
        self.told = False
        """Whether the parent's log holds the ending, as a result or as a notice."""

    @property
    def id(self) -> str:
        """What the model calls it."""
        return f"agent-{self.number}"


class Background:
    """The children in the background of all sessions."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._jobs: dict[str, dict[str, Job]] = {}
        """By the parent's session id and the job's id."""

    def order(self, parent: Agent, number: int, order: Order) -> ToolResult:
        """Take an order, the `number`-th of the session, and give the result that starts the child."""
        job = Job(number, order)
        if parent.id not in self._jobs:
            self._jobs[parent.id] = {}
            parent.log.subscribe(lambda event: self._committed(parent, event))
            parent.after_turn.append(lambda: self._after_turn(parent))
        self._jobs[parent.id][job.id] = job
        text = (
            f"{job.id} has started in the background. Its answer will come as a message after this turn; "
            "to have it within the turn, ask for it with subagent_wait."
        )
        return ToolResult(content=[{"type": "text", "text": text}], meta={SUBAGENT_ID: job.id})

    async def wait(self, parent: Agent, job_id: str, call: ToolContext) -> ToolResult:
        """The answer of a child that an earlier step ordered, once it is there."""
        step = (call.turn, call.step)
        known = {
            job.id: job
            for job in self._in_order(parent)
            if (job.order.spawn["turn"], job.order.spawn["step"]) != step  # decided by a race otherwise
        }
        job = known.get(job_id)
        if job is None or job.task is None:
            there = ", ".join(known) or "none"
            text = f"Error: there is no sub-agent {job_id!r} in the background; there is {there}"
            return error_result(text, name="SubagentError", code="NOT_FOUND")
        await asyncio.shield(job.task)
        assert job.ending is not None, "the parent runs, so its child was started"
        result = job.ending.result()
        result.meta = {SUBAGENT_ID: job.id}
        return result

    async def drained(self) -> None:
        """Wait until no child is left, and their parents know or are about to be told."""
        jobs = [job for jobs in self._jobs.values() for job in jobs.values()]
        tasks = [job.task for job in jobs if job.task is not None]
        if tasks:
            await asyncio.wait(tasks)  # which, unlike `gather`, leaves them alone when it is cancelled

    def _in_order(self, parent: Agent) -> list[Job]:
        # Calls of one step may reach `order` in any order.
        return sorted(self._jobs.get(parent.id, {}).values(), key=lambda job: job.number)

    def _committed(self, parent: Agent, event: Event) -> None:
        meta = event["data"].get("meta") if event["type"] == TOOL_RESULT else None
        job = self._jobs[parent.id].get(meta.get(SUBAGENT_ID, "")) if meta is not None else None
        if job is None:
            return
        if job.task is None:
            job.task = asyncio.create_task(self._work(parent, job), name=f"{job.id} of {parent.id}")
        else:
            job.told = True

    async def _work(self, parent: Agent, job: Job) -> None:
        if parent.status == "disposed":  # the agent ended right after the commit
            return
        try:
            job.ending = await self._run(parent, job.order)
        except Exception as error:
            job.ending = Ending(None, {"kind": "error", "error": {"message": str(error)}}, "")
        if parent.status == "idle":
            self._tell(parent)

    def _after_turn(self, parent: Agent) -> None:
        jobs = self._jobs[parent.id]
        for job in [job for job in jobs.values() if job.task is None]:  # its order was cancelled
            del jobs[job.id]
        self._tell(parent)

    def _tell(self, parent: Agent) -> None:
        """Queue the next notice, if the parent has nothing else to do and the next child is done."""
        if parent.status == "disposed" or parent.inbox.pending():
            return
        job = next((job for job in self._in_order(parent) if not job.told), None)
        if job is not None and job.ending is not None:
            job.told = True
            content, source = _notice(job, job.ending)
            parent.followup(content, source=source)


def _notice(job: Job, ending: Ending) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """The content and the source of the message that tells how a child ended."""
    who = f"The sub-agent {job.id} ({job.order.label})"
    summary = f"{who} is done." if ending.failure is None else f"{who} {ending.failure}."
    texts = [summary]
    if ending.text:
        texts += ["Its answer:" if ending.failure is None else "Its last words before that:", ending.text]
    source = {"kind": "subagent-settled", "form": "notice", "summary": summary, SUBAGENT_ID: job.id}
    if ending.session is not None:
        source["senderSessionId"] = ending.session
    return [{"type": "text", "text": text} for text in texts], source
