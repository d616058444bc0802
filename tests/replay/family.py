"""Whole runs within this process: the real agent, its sub-agents and a tool, in virtual time.

A run is recorded from a script, or replayed from the fixtures of another run. Each has values of its own
(ids, folders, what the tool finds) and takes its own time, so whatever depends on either shows.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from onetake.agent.agent import Agent, AgentConfig
from onetake.agent.context import AppContext
from onetake.fixture.lineage import session_facts
from onetake.fixture.projection import project
from onetake.fixture.tokens import LogView, TokenTable
from onetake.model.registry import ModelInfo
from onetake.model.request import ModelRequest
from onetake.replay.binding import bind
from onetake.replay.provider import Replay, ReplayProvider, make_recording
from onetake.runfile import RunFile
from onetake.session.jsonl import read_log
from onetake.session.log import SessionLog
from onetake.testing import virtual_time
from onetake.testing.strategies.conversations import END, Task, spoken
from onetake.toolkit.delegation.config import DelegationConfig
from onetake.toolkit.delegation.plugin import delegation
from onetake.tools.registry import ToolContext
from tests.agent.fakes import add_tool

TOOLS = {"look": "tool", "spawn": "subagent", "fork": "subagent_fork"}
MINT = [("found ([0-9a-f]{6})", "found")]
MODELS = {"m": ModelInfo(id="m")}
Fixtures = dict[str, bytes]
Source = Callable[["World"], Any]


class World(NamedTuple):
    """What is new in each run, and how long things take in it."""

    number: int
    ctx: AppContext
    pace: Sequence[int]
    logs: list[SessionLog]
    """Those of all sessions so far, closed ones too."""

    async def wait(self, session_id: str) -> None:
        """Take the time that a session takes for everything, by its place among those that began."""
        place = next(place for place, log in enumerate(self.logs) if log.id == session_id)
        await asyncio.sleep(self.pace[place % len(self.pace)] / 1000)

    @property
    def nonce(self) -> str:
        return f"n0nce{self.number}"

    @property
    def roots(self) -> dict[str, str]:
        return {name: f"/tmp/ot/{self.nonce}-{name[0]}" for name in ("cwd", "home", "spill")}

    def fixtures(self, logs: Sequence[SessionLog]) -> Fixtures:
        """Logs of this run as fixtures, by name; headers are pinned in full."""
        numbers = bind([session_facts(log.header, log.events) for log in logs])
        views = [LogView(numbers[log.id], log.header, log.events) for log in logs]
        table = TokenTable.build(self.roots, views, mint=MINT, nonce=self.nonce)
        return {
            f"session.{view.index}.jsonl": project(
                view.header, view.events, table, lambda kind, text: repr(text)
            )
            for view in sorted(views, key=lambda view: view.index)
        }

    async def look(self, arguments: Mapping[str, Any], ctx: ToolContext) -> str:
        """Find something that is new in each run, and the same for whoever looks for it in one."""
        await self.wait(ctx.session_id)
        wanted = arguments.get("text", "")
        found = f"{self.number:02x}" + wanted.encode("utf-8", "replace").hex()[:4].rjust(4, "0")
        return f"found {found} in {ctx.cwd} {{{{cwd}}}}"


def play(script: Sequence[Task], pace: Sequence[int], number: int, source: Source) -> World:
    """Have the real agent go through a script; what it leaves."""
    return virtual_time.run(_play(script, pace, number, source))


async def _play(script: Sequence[Task], pace: Sequence[int], number: int, source: Source) -> World:
    ctx = AppContext(config_dir=Path("/nowhere"), environ={"HOME": "/nowhere"}, run=RunFile(mode="replay"))
    world = World(number, ctx, pace, [])
    ctx.agent_config = AgentConfig(provider="fake", model="m", max_steps=4)
    ctx.providers.register(Paced(source(world), world.wait))
    add_tool(ctx, TOOLS["look"], world.look)
    create = ctx.create_session

    async def watched(*args: Any, **more: Any) -> Agent:
        agent = await create(*args, **more)
        world.logs.append(agent.log)
        return agent

    ctx.create_session = watched

    async def talk(agent: Agent, prompts: Sequence[str]) -> None:
        for prompt in prompts:
            await world.wait(agent.id)
            await agent.ask(prompt)

    async with delegation(ctx, DelegationConfig(max_depth=2)):
        agents = [await ctx.create_session(Path(world.roots["cwd"])) for _ in script]
        for agent in agents:
            agent.log.append("session/title", {"title": "A talk"})
        await asyncio.gather(*(talk(agent, task.prompts) for agent, task in zip(agents, script, strict=True)))
        await ctx.close()
    return world


class Paced:
    """A provider that takes its time."""

    id = "fake"
    models = MODELS

    def __init__(self, provider: Any, wait: Callable[[str], Any]) -> None:
        self._provider = provider
        self._wait = wait

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Any, None]:
        await self._wait(request.session_id)
        async for chunk in self._provider.stream(request):
            await self._wait(request.session_id)
            yield chunk


class Scripted:
    """A model that says what the script says, quoting values of the run."""

    def __init__(self, script: Sequence[Task], world: World) -> None:
        self._tasks = {task.name: task for root in script for task in root.family()}
        self._world = world
        self._made: dict[str, int] = {}

    async def stream(self, request: ModelRequest) -> AsyncIterator[Any]:
        texts = [block["text"] for m in request.messages for block in m["content"] if block["type"] == "text"]
        results = re.findall(MINT[0][0], repr(request.messages))
        told = [text.split(" ")[0] for text in texts if text.split(" ")[0] in self._tasks]
        task = self._tasks[told[-1]]
        number = self._made[request.session_id] = self._made.get(request.session_id, 0) + 1
        answer = task.answers[number - 1] if number <= len(task.answers) else END
        known = {
            "cwd": self._world.roots["cwd"],
            "session": request.session_id,
            "message": request.messages[-1]["id"],
            "found": results[-1] if results else "",
        }
        for chunk in spoken(answer, known, TOOLS):
            yield chunk


def record(script: Sequence[Task], pace: Sequence[int]) -> World:
    """Run a script."""
    return play(script, pace, 1, lambda world: Scripted(script, world))


def replay(script: Sequence[Task], pace: Sequence[int], fixtures: Fixtures, by: Any = Replay) -> Fixtures:
    """Run a script again, answered from its fixtures; the fixtures that this leaves."""

    def source(world: World) -> ReplayProvider:
        logs = [read_log(raw, name) for name, raw in fixtures.items()]
        recordings = [make_recording(log.name, log.header, log.events) for log in logs]
        live = by(
            recordings,
            lambda: [agent.log for agent in world.ctx.agents.values()],
            roots=world.roots,
            workspace=Path("/nowhere"),
            mint=MINT,
            nonce=world.nonce,
        )
        return ReplayProvider("fake", MODELS, live)

    world = play(script, pace, 2, source)
    return world.fixtures(world.logs)
