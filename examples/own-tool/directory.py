"""A tool of your own: a class for the arguments, a handler, and the plugin that registers it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import msgspec

from onetake.agent.context import AppContext
from onetake.tools.registry import ToolContext, define_tool


class Lookup(msgspec.Struct):
    """What the model passes."""

    desk: str


class Config(msgspec.Struct, forbid_unknown_fields=True):
    """What agent.yml may set."""

    prefix: str = "4"


@asynccontextmanager
async def plugin(ctx: AppContext, config: Config) -> AsyncIterator[None]:
    """Give the model a phone directory while the agent runs."""

    async def look_up(arguments: Lookup, call: ToolContext) -> str:
        return f"{arguments.desk}: extension {config.prefix}{len(arguments.desk):02}"

    unregister = ctx.tools.register(
        define_tool("directory", "Find the extension of a desk.", Lookup, look_up)
    )
    try:
        yield
    finally:
        unregister()
