"""The composition's way to sub-agents: `use: delegation`, with depth and presets as its config."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager

from onetake.agent.agent import Agent
from onetake.agent.context import AppContext
from onetake.toolkit.delegation.background import Background
from onetake.toolkit.delegation.children import Ending, Order
from onetake.toolkit.delegation.config import DelegationConfig
from onetake.toolkit.delegation.tools import delegation_tools, run_order


@asynccontextmanager
async def delegation(ctx: AppContext, config: DelegationConfig) -> AsyncIterator[None]:
    """Give the agent's models the tools of sub-agents while the app runs."""

    async def run(parent: Agent, order: Order) -> Ending:
        return await run_order(ctx, config, parent, order)

    background = Background(run)
    with ExitStack() as stack:
        for tool in delegation_tools(ctx, config, background):
            stack.callback(ctx.tools.register(tool))
        ctx.background.append(background.drained)
        stack.callback(ctx.background.remove, background.drained)
        try:
            yield
        finally:
            await background.drained()
