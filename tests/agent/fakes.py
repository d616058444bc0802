"""A scripted provider and small tools, so that the loop can be watched at every point of a turn."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from onetake.agent.agent import Agent, AgentConfig
from onetake.agent.context import AppContext
from onetake.model.registry import ModelInfo
from onetake.model.request import ModelRequest
from onetake.tools.registry import ToolContext, define_tool

Chunk = dict[str, Any]


class Gate:
    """A point that the test can wait for, and that waits for the test."""

    def __init__(self) -> None:
        self.reached = asyncio.Event()
        self.opened = asyncio.Event()

    async def pass_through(self) -> None:
        self.reached.set()
        await self.opened.wait()


Item = Chunk | Gate | Exception | Callable[[ModelRequest], None]


def text(*parts: str, index: int = 0) -> list[Chunk]:
    """A text block that arrives in parts."""
    block = {"type": "text", "text": "".join(parts)}
    return [
        {"type": "block-start", "index": index, "blockType": "text"},
        *({"type": "text-delta", "index": index, "text": part} for part in parts),
        {"type": "block-end", "index": index, "block": block},
    ]


def tool_call(call_id: str, name: str, arguments: str = "{}", index: int = 0) -> list[Chunk]:
    """A tool call in one delta."""
    block = {"type": "tool-call", "id": call_id, "name": name, "arguments": arguments}
    delta = {
        "type": "tool-call-delta",
        "index": index,
        "id": call_id,
        "name": name,
        "argumentsDelta": arguments,
    }
    return [
        {"type": "block-start", "index": index, "blockType": "tool-call"},
        delta,
        {"type": "block-end", "index": index, "block": block},
    ]


def finish(kind: str, **more: Any) -> list[Chunk]:
    """Usage and the end of a call."""
    usage = {"type": "usage", "usage": {"inputTokens": 1, "outputTokens": 1}}
    return [usage, {"type": "finish", "reason": {"kind": kind, **more}}]


def says(*parts: str) -> list[Item]:
    """A whole call that answers with a text."""
    return [*text(*parts), *finish("stop")]


def calls(*wanted: tuple[str, str, str]) -> list[Item]:
    """A whole call that asks for tools, given as (id, name, arguments)."""
    chunks = [chunk for index, call in enumerate(wanted) for chunk in tool_call(*call, index=index)]
    return [*chunks, *finish("tool-calls")]


class FakeProvider:
    """Plays one list of items per call; runs out loudly."""

    id = "fake"
    models = {"m": ModelInfo(id="m")}  # noqa: RUF012

    def __init__(self, script: list[list[Item]]) -> None:
        self.script = script
        self.requests: list[ModelRequest] = []

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Chunk, None]:
        self.requests.append(request)
        for item in self.script[len(self.requests) - 1]:
            if isinstance(item, Gate):
                await item.pass_through()
            elif isinstance(item, Exception):
                raise item
            elif callable(item):
                item(request)
            else:
                await asyncio.sleep(0)
                yield item


@asynccontextmanager
async def agent_with(
    script: list[list[Item]], tmp_path: Path, **config: Any
) -> AsyncIterator[tuple[Agent, FakeProvider]]:
    """An agent without a store whose model plays the script, with the tools `echo` and, per gate, `wait`."""
    ctx = AppContext(config_dir=tmp_path, environ={"HOME": str(tmp_path), "ONETAKE_RUN": "x"})
    provider = FakeProvider(script)
    ctx.providers.register(provider)
    ctx.agent_config = AgentConfig(provider="fake", model="m", **config)
    agent = await ctx.create_session(tmp_path)
    add_tool(ctx, "echo", say)
    try:
        yield agent, provider
    finally:
        await ctx.close()


async def say(arguments: dict[str, Any], ctx: ToolContext) -> str:
    return str(arguments.get("text", "nothing"))


def add_tool(ctx: AppContext, name: str, handler: Callable[[Any, ToolContext], Any]) -> None:
    """Register a tool that takes an optional text."""
    spec = {"type": "object", "properties": {"text": {"type": "string"}}}
    ctx.tools.register(define_tool(name, f"Does {name}.", spec, handler))


def types(agent: Agent) -> list[str]:
    """The event types of a log in order."""
    return [event["type"] for event in agent.log.events]


def events(agent: Agent, type_: str) -> list[Any]:
    """The data of all events of one type."""
    return [event["data"] for event in agent.log.events if event["type"] == type_]


def endings(agent: Agent) -> list[Any]:
    """The reasons of all turn ends."""
    return [data["reason"] for data in events(agent, "turn/end")]


def results(agent: Agent) -> list[tuple[str, str, bool, str | None]]:
    """(call id, text, is error, error code) of all tool results in order."""
    found = []
    for data in events(agent, "tool/result"):
        answer = data["message"]["content"][0]
        code = data["error"]["code"] if "error" in data else None
        found.append((answer["toolCallId"], answer["content"][0]["text"], answer["isError"], code))
    return found
