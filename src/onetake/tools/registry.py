"""What a tool is, what it is told about its call, what it answers, and where the agent's tools are kept."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from onetake.errors import UsageError
from onetake.model.types import Block, Json
from onetake.tools.schema import Schema, Spec, SpecError, compile_spec

Arguments = TypeVar("Arguments")


class ToolContext(msgspec.Struct, kw_only=True):
    """What a handler knows about the call that it serves."""

    session_id: str
    """The session whose model calls."""
    call_id: str
    """The model's id of the call; not unique, since models choose it."""
    turn: int
    """The turn of the call, from 1."""
    step: int
    """The step of the call within its turn, from 1."""
    ordinal: int = 1
    """The place of the call among the calls of its step in model order, from 1. Names derived from turn, step
    and ordinal are unique in a session and the same in every replay."""
    cwd: Path
    """The session's workspace."""
    spill_dir: Path
    """A directory of the session for output that is too long to show; it may not exist yet."""
    env: dict[str, str]
    """The environment for what the tool starts."""


class ToolResult(msgspec.Struct, kw_only=True):
    """What a call came to."""

    content: list[Block]
    """The blocks that the model sees."""
    is_error: bool = False
    """Whether the model is told that the call failed."""
    error: dict[str, Any] | None = None
    """For programs: `name` and `code` of the failure."""
    meta: dict[str, Any] | None = None
    """Facts for the log and for surfaces that the model does not see."""


def text_result(text: str) -> ToolResult:
    """Return a plain answer."""
    return ToolResult(content=[{"type": "text", "text": text}])


def error_result(text: str, *, name: str, code: str) -> ToolResult:
    """Return a failure: `text` for the model, `name` and `code` for the log."""
    return ToolResult(
        content=[{"type": "text", "text": text}], is_error=True, error={"name": name, "code": code}
    )


Handler = Callable[[Any, ToolContext], Awaitable[ToolResult | str]]


class Tool(msgspec.Struct, kw_only=True):
    """Something that the model may call. `define_tool` builds one from a spec or from a class."""

    name: str
    """The name that the model uses."""
    description: str
    """What it does and when to use it, for the model."""
    parameters: Schema
    """The JSON Schema of the arguments."""
    handler: Handler
    """Serves a call. Its first argument is the checked arguments with the defaults filled in; what it raises
    becomes an error result. A string that it returns is a result of one text block."""
    convert: Callable[[dict[str, Json]], Any] | None = None
    """Turns checked arguments into what the handler takes; None hands over the dictionary. It may raise
    ValueError for arguments that the schema cannot rule out."""


def define_tool(
    name: str,
    description: str,
    parameters: Spec | type[Arguments],
    handler: Callable[[Any, ToolContext], Awaitable[ToolResult | str]],
) -> Tool:
    """Build a tool whose parameters are given as a spec or as an annotated class.

    See `schema` for the one, `typed` for the other. With a class the handler gets an instance of it. Raises
    `SpecError`, naming tool and place, for parameters that make no sense.
    """
    try:
        if isinstance(parameters, dict):
            return Tool(
                name=name, description=description, parameters=compile_spec(parameters), handler=handler
            )
        from onetake.tools.typed import converter, schema_of

        return Tool(
            name=name,
            description=description,
            parameters=schema_of(parameters),
            handler=handler,
            convert=converter(parameters),
        )
    except SpecError as error:
        raise SpecError(f"tool {name!r}: {error}") from None


class ToolRegistry:
    """The tools of a running agent, in the order in which they were registered."""

    def __init__(self) -> None:
        self._tools: dict[str, Tool] = {}

    def register(self, tool: Tool) -> Callable[[], None]:
        """Add a tool and return what removes it again. Raises UsageError when its name is taken."""
        if tool.name in self._tools:
            raise UsageError(f"tool {tool.name!r} is registered twice; disable one of the rows that bring it")
        self._tools[tool.name] = tool

        def unregister() -> None:
            if self._tools.get(tool.name) is tool:
                del self._tools[tool.name]

        return unregister

    def get(self, name: str) -> Tool | None:
        """Return the tool of that name, or None."""
        return self._tools.get(name)

    def names(self) -> list[str]:
        """Return the names of all tools in registration order."""
        return list(self._tools)

    def specs(self) -> list[dict[str, Any]]:
        """Return what the model is told about each tool, in registration order."""
        return [
            {"name": tool.name, "description": tool.description, "parameters": tool.parameters}
            for tool in self._tools.values()
        ]
