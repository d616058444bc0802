"""An agent whose model and tools follow plans, in virtual time: what a schedule is played on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from pathlib import Path
from typing import Any

from onetake import jsontext
from onetake.agent.agent import Agent, AgentConfig
from onetake.agent.context import AppContext
from onetake.model.failures import ModelFailure, failure
from onetake.model.registry import ModelInfo
from onetake.model.request import ModelRequest
from onetake.testing.errors import InvariantViolation
from onetake.testing.invariants import conversation as holds
from onetake.testing.strategies.schedules import CallPlan, ToolPlan
from onetake.tools.registry import ToolContext
from tests.agent.fakes import add_tool, calls, finish, says, text

TOOLS = ("a", "b")
ENDLESS = 150


class PlannedModel:
    """A model that follows its plans, checks what it is shown, and says little when they are used up."""

    id = "fake"
    models = {"m": ModelInfo(id="m")}  # noqa: RUF012 (nobody changes it)

    def __init__(self, plans: Sequence[CallPlan]) -> None:
        self.agent: Agent | None = None
        self.broken: list[InvariantViolation] = []
        self._plans = plans
        self._calls = 0

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Any, None]:
        assert self.agent is not None
        try:
            holds.check_request(self.agent.log.events, request.messages)
        except InvariantViolation as violation:
            self.broken.append(violation)
        number, self._calls = self._calls, self._calls + 1
        if number > ENDLESS:  # a loop without an end would hold the test: this ends it as a standstill
            await asyncio.Event().wait()
        plan = self._plans[number] if number < len(self._plans) else CallPlan("says", 0.0)
        for chunk in chunks_of(plan, number):
            try:
                await asyncio.sleep(plan.seconds)
            except asyncio.CancelledError:
                if not plan.lingers:
                    raise
                await asyncio.sleep(plan.lingers)
                yield chunk
                raise
            yield chunk
        if plan.kind == "throws":
            raise ModelFailure(failure("no", "X"))


def chunks_of(plan: CallPlan, number: int) -> list[Any]:
    """What the model says by a plan."""
    match plan.kind:
        case "calls":
            # Ids repeat across calls of one step on purpose: models do that.
            asked = enumerate(plan.tools)
            return list(
                calls(*((f"c{number}.{n // 2}", name, f'{{"text":"{number}.{n}"}}') for n, name in asked))
            )
        case "max-tokens":
            return [*text("a"), *calls(("x", "a", "{"))[1:2], *finish("max-tokens")]
        case "error":
            return [*text("a"), *finish("error", failure={"message": "no", "code": "X"})]
        case "throws":
            return text("a")[:2]
        case _:
            return list(says("a", "b"))


class SlowWriter:
    """Stands for a log on a disk: whoever waits for it waits for a while."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds

    async def flush(self) -> None:
        await asyncio.sleep(self._seconds)

    async def close(self) -> None:
        await self.flush()


async def planned_agent(
    model: PlannedModel, tools: Sequence[ToolPlan], *, flush: float = 0.0, **config: Any
) -> Agent:
    """An agent with this model and the tools of `TOOLS`, whose log takes `flush` seconds to be written."""
    ctx = AppContext(config_dir=Path("/nowhere"), environ={"HOME": "/nowhere", "ONETAKE_RUN": "x"})
    ctx.providers.register(model)
    ctx.agent_config = AgentConfig(provider="fake", model="m", **config)
    for name, plan in zip(TOOLS, tools, strict=True):
        add_tool(ctx, name, handler(name, plan))
    agent = model.agent = await ctx.create_session(Path("/nowhere"))
    agent._writer = SlowWriter(flush)
    return agent


def handler(name: str, plan: ToolPlan) -> Callable[[Any, ToolContext], Any]:
    """What a tool does by its plan."""

    async def run(arguments: Any, ctx: ToolContext) -> str:
        try:
            await asyncio.sleep(plan.seconds)
        except asyncio.CancelledError:
            await asyncio.sleep(plan.lingers)
            raise
        if plan.kind == "fails":
            raise ValueError("fail")
        if plan.kind == "gives-up":
            raise asyncio.CancelledError
        return answer_of({"name": name, "arguments": jsontext.dumps(arguments).decode()})

    return run


def answer_of(call: dict[str, Any]) -> str:
    """What a tool says to a call, which is different for each call."""
    return f"{call['name']} for {call['arguments']}"


def say(agent: Agent, how: str) -> str:
    """Say something in one of the ways of `SAYINGS`; returns the id of the message."""
    match how:
        case "inject":
            return agent.inject("i", plugin="p")
        case "inject-step":
            return agent.inject("j", plugin="p", target="next-step")
        case "ask":
            future = agent.ask("q")
            return next(id for id, waiter in agent._waiters.items() if waiter is future)
        case _:
            said: str = getattr(agent, how)(how)
            return said
