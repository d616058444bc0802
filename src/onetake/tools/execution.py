"""Run one tool call so that whatever happens inside it ends in one result.

A model must learn from a failed call, and a turn must survive it: an unknown name, arguments that are no use
and a handler that raises all become error results, and so does one that cancels itself. Only cancellation by
the caller passes through, because what a cancelled call leaves in the log is a matter of the loop.
"""

from __future__ import annotations

import asyncio

from onetake.tools.arguments import BadArguments, BadSchema, check, parse
from onetake.tools.registry import Tool, ToolContext, ToolRegistry, ToolResult, error_result, text_result

UNKNOWN_TOOL = "UNKNOWN_TOOL"
INVALID_ARGUMENTS = "INVALID_ARGUMENTS"
TOOL_ERROR = "TOOL_ERROR"

_SHOWN_CHARACTERS = 2000


async def execute(registry: ToolRegistry, name: str, raw_arguments: str, ctx: ToolContext) -> ToolResult:
    """Serve a call; `raw_arguments` is the text that the model wrote, unchecked.

    Never raises an ordinary exception: the failures are `UNKNOWN_TOOL`, `INVALID_ARGUMENTS` and `TOOL_ERROR`
    results.
    """
    tool = registry.get(name)
    if tool is None:
        there = ", ".join(registry.names()) or "none"
        return error_result(
            f"Error: there is no tool {_short(name, 100)!r}; the tools are: {there}",
            name="UnknownToolError",
            code=UNKNOWN_TOOL,
        )
    try:
        arguments = check(parse(raw_arguments), tool.parameters)
        ready = arguments if tool.convert is None else _converted(tool, arguments)
    except BadArguments as error:
        return error_result(
            f"Error: invalid arguments for {tool.name}: {error}",
            name="InvalidArgumentsError",
            code=INVALID_ARGUMENTS,
        )
    except BadSchema as error:
        return _failed(tool, f"its parameter schema is invalid: {error}", "BadSchema")
    return await _run(tool, ready, ctx)


def _converted(tool: Tool, arguments: object) -> object:
    """Hand the arguments to the tool's class; what only the class can refuse is bad arguments too."""
    assert tool.convert is not None
    try:
        return tool.convert(arguments)  # type: ignore[arg-type]
    except ValueError as error:
        raise BadArguments(_short(str(error), _SHOWN_CHARACTERS)) from None


async def _run(tool: Tool, arguments: object, ctx: ToolContext) -> ToolResult:
    try:
        answer: object = await tool.handler(arguments, ctx)
    except asyncio.CancelledError:
        task = asyncio.current_task()
        assert task is not None
        if task.cancelling():
            raise
        return _failed(tool, "it was cancelled from inside, by nobody who uses it", "CancelledError")
    except Exception as error:
        return _failed(tool, str(error) or type(error).__name__, type(error).__name__)
    if isinstance(answer, str):
        return text_result(answer)
    if not isinstance(answer, ToolResult):
        return _failed(tool, f"it answered with {type(answer).__name__}, not a result", "TypeError")
    return answer


def _failed(tool: Tool, why: str, name: str) -> ToolResult:
    return error_result(
        f"Error: {tool.name} failed: {_short(why, _SHOWN_CHARACTERS)}", name=name, code=TOOL_ERROR
    )


def _short(text: str, limit: int) -> str:
    return text if len(text) <= limit else text[:limit] + "..."
