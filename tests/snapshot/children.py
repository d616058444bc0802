"""A copy of the example with sub-agents, and a plugin that disturbs it: its scheduling, or what it does.

The plugin stands in the composition of the copy and takes its kind from the environment, which the copy's
suite.toml sets.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
from pathlib import Path
from typing import Any

from onetake.gateway.mock import MockModel
from onetake.snapshot.drive.execute import execute
from onetake.snapshot.drive.harvest import Harvest
from tests.conftest import ROOT
from tests.snapshot.lab import OPENING, Lab

EXAMPLE = ROOT / "examples" / "subagents"

DISTURB = '''\
"""Disturbs the agent, as the environment says."""

import asyncio
import random
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import msgspec

from onetake.agent.context import AppContext


class Config(msgspec.Struct, forbid_unknown_fields=True):
    """Nothing to configure."""


def none(ctx):
    pass


def shuffled(ctx):
    """Let tasks overtake each other wherever two of them may run at the same time."""
    import onetake.agent.tooling as tooling
    from onetake.replay.provider import Replay

    dice = random.Random(ctx.env["DISTURB_SEED"])
    execute, stream, create = tooling.execute, Replay.stream, ctx.create_session

    async def dawdle():
        for _ in range(dice.randrange(6)):
            await asyncio.sleep(0)
        if dice.random() < 0.2:
            await asyncio.sleep(dice.random() / 200)

    async def executed(*arguments):
        await dawdle()
        result = await execute(*arguments)
        await dawdle()
        return result

    async def streamed(self, request):
        await dawdle()
        async for chunk in stream(self, request):
            await dawdle()
            yield chunk

    async def created(*arguments, **more):
        await dawdle()
        return await create(*arguments, **more)

    tooling.execute, Replay.stream, ctx.create_session = executed, streamed, created


def polite(ctx):
    """Say something else to each child."""
    from onetake.agent.agent import Agent

    ask = Agent.ask

    def asked(self, content, **more):
        return ask(self, f"Please: {content}" if self.depth else content, **more)

    Agent.ask = asked


def _wrap_children(change):
    import onetake.toolkit.delegation.tools as tools

    run = tools.run_child

    async def changed(ctx, parent, order, preset):
        return await change(lambda: run(ctx, parent, order, preset), order)

    tools.run_child = changed


def late_notices(ctx):
    """Let time pass between the end of a child and the moment at which its parent hears of it."""
    dice = random.Random(ctx.env["DISTURB_SEED"])

    async def change(run, order):
        ending = await run()
        await asyncio.sleep(dice.random() / 4)
        return ending

    _wrap_children(change)


def late_children(ctx):
    """Let the children that are counted first start last, after a while."""
    dice = random.Random(ctx.env["DISTURB_SEED"])

    async def change(run, order):
        if order.spawn["callId"].startswith("call_1"):
            await asyncio.sleep(0.1 + dice.random() / 5)
        return await run()

    _wrap_children(change)


def stuck_child(ctx):
    """Let the children that are counted first never start."""

    async def change(run, order):
        if order.spawn["callId"].startswith("call_1"):
            await asyncio.Event().wait()
        return await run()

    _wrap_children(change)


def swapped(ctx):
    """Give each of two parallel calls the other one's badge."""
    endings, both = [], asyncio.Event()

    async def change(run, order):
        mine = await run()
        endings.append(mine)
        if len(endings) == 2:
            both.set()
        await both.wait()
        theirs = next(ending for ending in endings if ending is not mine)
        badge = re.compile("[0-9a-f]{8}")
        text = badge.sub(badge.search(theirs.text)[0], mine.text, count=1)
        return msgspec.structs.replace(mine, text=text)

    _wrap_children(change)


def lazy(ctx):
    """Do not start the child that calls the plumber, and say that it failed."""
    from onetake.toolkit.delegation.children import Ending

    async def change(run, order):
        if "plumber" not in order.label:
            return await run()
        return Ending(None, {"kind": "error", "error": {"message": "the line is dead"}}, "")

    _wrap_children(change)


@asynccontextmanager
async def disturb(ctx: AppContext, config: Config) -> AsyncIterator[None]:
    globals()[ctx.env.get("DISTURB", "none")](ctx)
    yield
'''


class Children(Lab):
    """The copy, with the commands that a user has."""

    def __init__(self, folder: Path) -> None:
        shutil.copytree(EXAMPLE, folder, ignore=shutil.ignore_patterns(".onetake", "__pycache__"))
        super().__init__(folder)
        self.snapshots = folder / "tests" / "snapshots"
        (folder / "disturb.py").write_text(DISTURB)
        with (folder / "agent.yml").open("a") as composition:
            composition.write("\n- id: disturb\n  use: disturb:disturb\n")
        self._suite_text = (self.snapshots / "suite.toml").read_text()

    def disturb(self, kind: str, *, seed: int = 0) -> None:
        """Say how the agent is disturbed from now on; `seed` is also that of its string hashes."""
        env = f'env = {{ DISTURB = "{kind}", DISTURB_SEED = "{seed}", PYTHONHASHSEED = "{seed}" }}\n'
        text = self._suite_text.replace("[agent]\n", f"[agent]\n{env}")
        (self.snapshots / "suite.toml").write_text(text)

    def script(self, name: str, *steps: dict[str, Any]) -> None:
        """Give a scenario another script after its opening."""
        script = {"steps": [*OPENING, *steps]}
        (self.snapshots / name / "input.json").write_text(json.dumps(script))

    def run(self, name: str, mode: str = "replay") -> Harvest:
        """Run one scenario and look at what it left; the caller discards it. `record` asks the example's
        scripted model."""
        suite = self.suite

        async def run() -> Harvest:
            async with MockModel(json.loads((EXAMPLE / "tests" / "mock-model.json").read_text())) as model:
                environ = {**os.environ, "MODEL_URL": model.base_url, "MODEL_KEY": "none"}
                return await execute(suite, suite.scenarios[name], mode, environ=environ)

        return asyncio.run(run())
