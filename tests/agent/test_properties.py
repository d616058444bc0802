"""Whatever is said to an agent, and whenever: the log stays a log that can be read, repaired and replayed.

A state machine says things, cancels and lets virtual time pass; the model and the tools do what they like.
At every moment, and at the end, the log must satisfy every invariant of a well-formed conversation.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, TypeVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from onetake.agent.agent import Agent, AgentConfig
from onetake.agent.context import AppContext
from onetake.agent.inbox import Inbox
from onetake.errors import OnetakeError
from onetake.model.failures import ModelFailure, failure
from onetake.model.registry import ModelInfo
from onetake.model.request import ModelRequest
from onetake.session.events import make_header
from onetake.session.log import SessionLog
from onetake.session.repair import close_interrupted
from onetake.testing.errors import InvariantViolation
from onetake.testing.invariants import conversation as holds
from onetake.testing.invariants.session import check_seqs
from onetake.testing.strategies.schedules import CallPlan, ToolPlan, call_plans, delays, tool_plans
from onetake.testing.virtual_time import VirtualTimeLoop
from onetake.tools.registry import ToolContext
from tests.agent.fakes import add_tool, calls, finish, says, text

Event = dict[str, Any]
TOOLS = ("a", "b")
T = TypeVar("T")


MOST_CALLS = 200
"""More than any machine here can cause."""


class Endless(BaseException):
    """The agent goes on and on; no `except Exception` of the loop may swallow that."""


class PlannedModel:
    """A model that follows its plans, checks what it is shown, and says little when they are used up."""

    id = "fake"
    models = {"m": ModelInfo(id="m")}  # noqa: RUF012

    def __init__(self, plans: list[CallPlan], log: Callable[[], SessionLog]) -> None:
        self._plans = plans
        self._log = log
        self._calls = 0

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Any, None]:
        holds.check_request(self._log().events, request.messages)
        number, self._calls = self._calls, self._calls + 1
        if number > MOST_CALLS:
            raise Endless
        plan = self._plans[number] if number < len(self._plans) else CallPlan("says", 0.0)
        for chunk in chunks_of(plan, number):
            await asyncio.sleep(plan.seconds)
            yield chunk
        if plan.kind == "throws":
            raise ModelFailure(failure("no", "X"))


def chunks_of(plan: CallPlan, number: int) -> list[Any]:
    """What the model says by a plan."""
    match plan.kind:
        case "calls":
            # Ids repeat across calls of one step on purpose: models do that.
            asked = ((f"call_{number}_{n // 2}", name, "{}") for n, name in enumerate(plan.tools))
            return list(calls(*asked))
        case "max-tokens":
            return [*text("a"), *calls(("x", "a", "{"))[1:2], *finish("max-tokens")]
        case "error":
            return [*text("a"), *finish("error", failure={"message": "no", "code": "X"})]
        case "throws":
            return text("a")[:2]
        case _:
            return list(says("a", "b"))


def answer_of(call_id: str, name: str) -> str:
    """What a tool says to a call."""
    return f"{name} for {call_id}"


class Conversation(RuleBasedStateMachine):
    """An agent, and everything that may be done to it."""

    fault: Callable[[], AbstractContextManager[Any]] = nullcontext
    """What is wrong with the agent, for those who want to see it found."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = VirtualTimeLoop()
        self.said: list[str] = []
        self.statuses: list[str] = []
        self.agent: Agent | None = None
        self._patched = type(self).fault()
        self._patched.__enter__()

    @initialize(
        plans=st.lists(call_plans(TOOLS), max_size=8),
        tools=st.tuples(tool_plans(), tool_plans()),
        parallel=st.integers(1, 3),
        max_steps=st.integers(1, 4),
    )
    def begin(
        self, plans: list[CallPlan], tools: tuple[ToolPlan, ...], parallel: int, max_steps: int
    ) -> None:
        ctx = AppContext(config_dir=Path("/nowhere"), environ={"HOME": "/nowhere", "ONETAKE_RUN": "x"})
        ctx.providers.register(PlannedModel(plans, lambda: self.log))
        ctx.agent_config = AgentConfig(
            provider="fake", model="m", parallel_tools=parallel, max_steps=max_steps
        )
        for name, plan in zip(TOOLS, tools, strict=True):
            add_tool(ctx, name, handler(name, plan))
        self.agent = self.run(ctx.create_session(Path("/nowhere")))

    @property
    def log(self) -> SessionLog:
        assert self.agent is not None
        return self.agent.log

    def run(self, main: Coroutine[Any, Any, T]) -> T:
        """Run something in the loop, to its end."""
        try:
            return self.loop.run_until_complete(main)
        except Endless:
            raise InvariantViolation("the agent does not come to an end") from None

    def do(self, what: Callable[[Agent], Any]) -> Any:
        """Do something inside of the loop, and let it go round once."""

        async def inside() -> Any:
            assert self.agent is not None
            done = what(self.agent)
            await asyncio.sleep(0)
            return done

        return self.run(inside())

    @rule(how=st.sampled_from(["followup", "steer", "inject"]))
    def say(self, how: str) -> None:
        def words(agent: Agent) -> str:
            return agent.inject("i", plugin="p") if how == "inject" else getattr(agent, how)(how)

        if self.statuses[-1] == "disposed":
            with pytest.raises(OnetakeError, match="is closed"):
                self.do(words)
        else:
            self.said.append(self.do(words))

    @rule()
    def cancel(self) -> None:
        self.do(lambda agent: agent.cancel())

    @rule(seconds=delays())
    def wait(self, seconds: float) -> None:
        self.run(asyncio.sleep(seconds))

    @rule()
    def settle(self) -> None:
        assert self.agent is not None
        self.run(self.agent.when_idle())
        if self.agent.status != "disposed":
            holds.check_conversation(self.log.events, self.said)

    @precondition(lambda self: len(self.said) > 3)
    @rule()
    def dispose(self) -> None:
        assert self.agent is not None
        self.run(self.agent.close())

    @invariant()
    def holds_at_every_moment(self) -> None:
        if self.agent is None:
            return
        self.statuses.append(self.agent.status)
        holds.check_statuses(self.statuses)
        check_seqs(self.log.events)

    def teardown(self) -> None:
        try:
            if self.agent is None:
                return
            self.run(self.agent.close())
            events = self.log.events
            broken = [data for data in map(ending, events) if "the request shows" in data]
            if broken:
                raise InvariantViolation(broken[0])
            holds.check_conversation(events, self.said)
            holds.check_results(events, answer_of)
            assert close_interrupted(events) == []
        finally:
            self._patched.__exit__(None, None, None)
            self.loop.close()


def ending(event: Event) -> str:
    """What a turn says of its failure; nothing for other events."""
    reason = event["data"]["reason"] if event["type"] == "turn/end" else {}
    return str(reason.get("error", {}).get("message", ""))


def handler(name: str, plan: ToolPlan) -> Callable[[Any, ToolContext], Any]:
    async def run(arguments: Any, ctx: ToolContext) -> str:
        await asyncio.sleep(plan.seconds)
        if plan.fails:
            raise ValueError("fail")
        return answer_of(ctx.call_id, name)

    return run


TestConversation = Conversation.TestCase
TestConversation.settings = settings(stateful_step_count=20)


INBOX_OPS = st.sampled_from(["turn", "step", "take", "take step", "drop", "hold", "release"])


@given(ops=st.lists(INBOX_OPS, max_size=40))
def test_an_inbox_and_its_replay_from_the_log_agree(ops: list[str]) -> None:
    log = SessionLog(make_header("s", created_at=0), clock=lambda: 0)
    inbox = Inbox(log)
    for number, op in enumerate(ops):
        if op in ("turn", "step"):
            message = {"content": [], "source": {"kind": "user"}, "role": "user", "id": str(number)}
            inbox.put("next-turn" if op == "turn" else "next-step", message)
        elif op == "take":
            inbox.take_for_turn()
        elif op == "take step":
            inbox.take_for_step()
        elif op == "drop":
            inbox.cancel("next-step")
        elif op == "hold":
            inbox.release()
            inbox.hold()
        else:
            inbox.release()
        again = Inbox(SessionLog(log.header, log.events))
        assert again._queues == inbox._queues


GOOD = [
    ("agent/inbox/spliced", {"target": "next-turn", "start": 0, "inserted": [{"id": "m"}]}),
    ("turn/start", {"turn": 1}),
    ("agent/inbox/spliced", {"target": "next-turn", "start": 0, "removedCount": 1, "inserted": []}),
    ("step/start", {"turn": 1, "step": 1}),
    ("user/message", {"id": "m"}),
    ("tool/call", {"turn": 1, "step": 1, "callId": "a"}),
    ("tool/call", {"turn": 1, "step": 1, "callId": "b"}),
    ("tool/result", {"turn": 1, "step": 1, "message": {"source": {"callId": "a"}}}, 5),
    ("tool/result", {"turn": 1, "step": 1, "message": {"source": {"callId": "b"}}}, 6),
    ("step/end", {"turn": 1, "step": 1}),
    ("turn/end", {"turn": 1}),
]


def built(rows: list[Any]) -> list[Event]:
    return [
        {"type": row[0], "seq": seq, "data": row[1], "sourceEventSeqs": list(row[2:])}
        for seq, row in enumerate(rows)
    ]


def test_the_invariants_accept_a_good_log() -> None:
    assert holds.faults(built(GOOD), ["m"]) == []


@pytest.mark.parametrize("dropped", range(len(GOOD)))
def test_the_invariants_notice_every_dropped_event(dropped: int) -> None:
    events = built(GOOD)
    del events[dropped]
    assert holds.faults(events, ["m"]) != []


@pytest.mark.parametrize("first", [3, 5, 7, 9])
def test_the_invariants_notice_swapped_events(first: int) -> None:
    events = built(GOOD)
    events[first], events[first + 1] = events[first + 1], events[first]
    # Swapping the two calls is fine: each result still has its own call before it.
    assert (holds.faults(events, ["m"]) != []) == (first != 5)
