"""The composition's way to the bash tool: `use: bash`, with the limits as its config."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from onetake.agent.context import AppContext
from onetake.toolkit.bash.tool import BashConfig, bash_tool


@asynccontextmanager
async def bash(ctx: AppContext, config: BashConfig) -> AsyncIterator[None]:
    """Give the agent's models the `bash` tool while the app runs."""
    unregister = ctx.tools.register(bash_tool(config))
    try:
        yield
    finally:
        unregister()
