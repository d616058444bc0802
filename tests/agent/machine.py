"""A state machine that does to an agent whatever may be done to it, in virtual time, and judges its log."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from onetake.agent.agent import Agent
from onetake.agent.loop import STEP_LIMIT
from onetake.errors import OnetakeError
from onetake.session.events import Event
from onetake.session.repair import close_interrupted
from onetake.testing.errors import InvariantViolation
from onetake.testing.invariants import conversation as holds
from onetake.testing.invariants.session import check_seqs
from onetake.testing.strategies.schedules import (
    MOMENTS,
    SAYINGS,
    CallPlan,
    ToolPlan,
    call_plans,
    delays,
    tool_plans,
)
from onetake.testing.virtual_time import Standstill, VirtualTimeLoop
from tests.agent.planned import TOOLS, PlannedModel, answer_of, planned_agent, say

DOINGS = (*SAYINGS, "cancel")


class Conversation(RuleBasedStateMachine):
    """An agent, and everything that may be done to it."""

    fault: Callable[[], AbstractContextManager[Any]] = nullcontext
    """What is wrong with the agent, for those who want to see it found."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = VirtualTimeLoop()
        self.loop.set_exception_handler(self.surprised)
        self.did: list[str] = []
        self.said: list[str] = []
        self.statuses: list[str] = []
        self.broken: list[InvariantViolation] = []
        self.reader = holds.ConversationReader()
        self.seen = 0
        self._patched = type(self).fault()
        self._patched.__enter__()

    @initialize(
        plans=st.lists(call_plans(TOOLS), max_size=8),
        tools=st.tuples(tool_plans(), tool_plans()),
        parallel=st.integers(1, 3),
        max_steps=st.integers(1, 4),
        flush=delays(),
        settles=st.booleans(),
    )
    def begin(
        self,
        plans: list[CallPlan],
        tools: tuple[ToolPlan, ...],
        parallel: int,
        max_steps: int,
        flush: float,
        settles: bool,
    ) -> None:
        self.settles = settles
        self.model = PlannedModel(plans)
        made = planned_agent(self.model, tools, flush=flush, parallel_tools=parallel, max_steps=max_steps)
        self.agent: Agent = self.loop.run_until_complete(made)
        self.broken = self.model.broken
        self.asked: dict[str, asyncio.Future[Any]] = {}

    # -- what may happen -----------------------------------------------------------------------------------

    @rule(what=st.sampled_from(DOINGS))
    def do(self, what: str) -> None:
        """Do something, and let the loop go round once."""

        async def inside() -> None:
            self.perform(what)
            await asyncio.sleep(0)

        self.run(what, inside())

    @rule(what=st.sampled_from(DOINGS), seconds=delays())
    def do_later(self, what: str, seconds: float) -> None:
        """Do something at the very moment at which a model or a tool may be done."""
        self.did.append(f"{what} in {seconds:g}")
        self.loop.call_later(seconds, self.perform, what)

    @rule(what=st.sampled_from(DOINGS), moment=st.sampled_from(MOMENTS))
    def react(self, what: str, moment: str) -> None:
        """Do something as soon as the log says something, from inside of the one who logs it."""
        self.did.append(f"{what} at {moment}")

        def watch(event: Event) -> None:
            if event["type"] == moment:
                unsubscribe()
                self.perform(what)

        unsubscribe = self.agent.log.subscribe(watch)

    @rule(seconds=delays())
    def wait(self, seconds: float) -> None:
        self.run(f"wait {seconds:g}", asyncio.sleep(seconds))

    @rule()
    def settle(self) -> None:
        self.run("settle", self.agent.when_idle())

    @precondition(lambda self: len(self.said) > 3)
    @rule()
    def dispose(self) -> None:
        self.run("dispose", self.agent.close())

    def run(self, what: str, doing: Any) -> None:
        """Let something happen in the loop, and say what when nothing can go on from there."""
        self.did.append(what)
        with self.telling():
            self.loop.run_until_complete(doing)

    def perform(self, what: str) -> None:
        """Do something, inside of the loop."""
        if what == "cancel":
            self.agent.cancel()
        elif self.agent.status != "disposed":
            id = say(self.agent, what)
            self.said.append(id)
            if what == "ask":
                self.asked[id] = self.agent._waiters[id]
        else:
            try:
                say(self.agent, what)
            except OnetakeError:
                return
            self.broken.append(InvariantViolation("an agent that is closed takes a message"))

    def surprised(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Something failed that nobody waits for."""
        self.broken.append(InvariantViolation(f"the loop reports {context}"))

    # -- what must hold ------------------------------------------------------------------------------------

    @contextmanager
    def telling(self) -> Iterator[None]:
        """Say with a violation what was done until then."""
        try:
            yield
        except InvariantViolation as violation:
            raise InvariantViolation(f"{violation}; after: {', '.join(self.did)}") from violation

    @invariant()
    def holds_at_every_moment(self) -> None:
        with self.telling():
            self.judge()

    def judge(self) -> None:
        """Judge what is new."""
        events = self.agent.log.events
        self.statuses.append(self.agent.status)
        holds.check_statuses(self.statuses)
        if len(events) > self.seen:
            check_seqs(events)
            new, self.seen = events[self.seen :], len(events)
            for event in new:
                self.reader.take(event)
            self.broken += map(InvariantViolation, [*self.reader.wrong, *filter(None, map(mishap, new))])
            if not self.broken:
                holds.check_repair(close_interrupted, events)
        if self.statuses[-1] == "idle":
            holds.check_conversation(events, self.said)
        if self.broken:
            raise self.broken[0]

    def teardown(self) -> None:
        try:
            if not self.statuses:
                return
            if self.settles:
                self.settle()
            self.run("dispose", self.agent.close())
            with self.telling():
                self.judge()
                holds.check_conversation(self.agent.log.events, self.said)
                holds.check_results(self.agent.log.events, answer_of)
                self.check_asked()
        finally:
            self.end()
            self._patched.__exit__(None, None, None)

    def end(self) -> None:
        """End what a violation has left at work, so that nothing speaks up once the loop is gone."""
        self.loop.set_exception_handler(lambda loop, context: None)
        with suppress(Standstill):
            if left := asyncio.all_tasks(self.loop):
                for task in left:
                    task.cancel()
                self.loop.run_until_complete(asyncio.wait(left))
            self.loop.run_until_complete(self.loop.shutdown_asyncgens())
        self.loop.close()

    def check_asked(self) -> None:
        """Whoever asked was told how the turn ended that took the message, or that none will."""
        turn, ends, took = 0, {}, {}
        for event in self.agent.log.events:
            if event["type"] == "turn/start":
                turn = event["data"]["turn"]
            elif event["type"] == "turn/end":
                ends[turn] = event["data"]["reason"]
            elif event["type"] == "user/message":
                took[event["data"]["id"]] = turn
        for id, future in self.asked.items():
            if not future.done():
                raise InvariantViolation(f"whoever asked {id} was never told how it ended")
            expected = ends[took[id]] if id in took else {"kind": "aborted", "reason": {"kind": "shutdown"}}
            if future.result() != expected:
                raise InvariantViolation(f"{id} ended with {expected}, whoever asked heard {future.result()}")


def mishap(event: Event) -> str:
    """What a turn says of a failure that no plan holds; nothing for other events."""
    reason = event["data"]["reason"] if event["type"] == "turn/end" else {}
    unplanned = reason.get("kind") == "error" and reason["error"]["code"] not in ("X", STEP_LIMIT)
    return f"a turn failed: {reason['error']}" if unplanned else ""
