"""A tool whose answer is new in every run: a badge with a number that nobody can know before."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import msgspec

from onetake.agent.context import AppContext
from onetake.tools.registry import ToolContext, define_tool


class Badge(msgspec.Struct):
    """What the model passes."""

    holder: str


class Config(msgspec.Struct, forbid_unknown_fields=True):
    """There is nothing to configure."""


@asynccontextmanager
async def plugin(ctx: AppContext, config: Config) -> AsyncIterator[None]:
    """Let the model issue badges while the agent runs."""

    async def issue(arguments: Badge, call: ToolContext) -> str:
        return f"badge {secrets.token_hex(4)} for {arguments.holder}"

    unregister = ctx.tools.register(define_tool("badge", "Issue a badge to a visitor.", Badge, issue))
    try:
        yield
    finally:
        unregister()
