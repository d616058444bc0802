"""The tools that a model delegates with: what they take, what they refuse, and how calls are numbered.

Whatever a model has to repeat is an ordinal: `agent-2` is what the second delegating call of the session
started. It follows from the log alone, so it does not matter which of several calls is served first.
"""

from __future__ import annotations

from typing import Any

from onetake.agent.agent import Agent
from onetake.agent.context import AppContext
from onetake.errors import OnetakeError
from onetake.session.events import TOOL_CALL, Event
from onetake.toolkit.delegation.background import Background
from onetake.toolkit.delegation.children import Ending, Order, own_events, run_child
from onetake.toolkit.delegation.config import DelegationConfig
from onetake.tools.registry import Tool, ToolContext, ToolResult, define_tool, error_result

SPAWN, FORK, WAIT = "subagent", "subagent_fork", "subagent_wait"

_SPAWN_DESCRIPTION = (
    "Have a sub-agent do a task and get its answer. It works in the same workspace, but it knows nothing of "
    "this conversation: say in the prompt all that it needs, and what to answer. Calls of one message run at "
    "the same time, so split independent work. By default you wait for the answer: it is the result of the "
    "call. With `run_in_background` the call returns at once and the answer comes later, as a message."
)
_FORK_DESCRIPTION = (
    "Have a copy of yourself do a task and get its answer. The copy knows this conversation up to the end of "
    "the last completed turn, but not what was said since: repeat in the prompt what it needs of that."
)
_WAIT_DESCRIPTION = "Wait for a sub-agent that was started in the background, and get its answer."
_LABEL = {"type": "string", "description": "The task in a few words, for the person who watches."}
_PROMPT = {"type": "string", "description": "The task, complete, and the form of the answer."}


def delegation_tools(ctx: AppContext, config: DelegationConfig, background: Background) -> list[Tool]:
    """The tools, for a running agent."""

    async def spawn(arguments: dict[str, Any], call: ToolContext) -> ToolResult:
        return await _delegate(arguments, call, fork=False)

    async def fork(arguments: dict[str, Any], call: ToolContext) -> ToolResult:
        return await _delegate(arguments, call, fork=True)

    async def wait(arguments: dict[str, Any], call: ToolContext) -> ToolResult:
        return await background.wait(_agent(ctx, call), arguments["subagent_id"], call)

    async def _delegate(arguments: dict[str, Any], call: ToolContext, *, fork: bool) -> ToolResult:
        parent = _agent(ctx, call)
        in_background = arguments.get("run_in_background", False)
        refusal = _refusal(parent, config, in_background=in_background)
        if refusal is not None:
            return refusal
        order = Order(
            label=arguments["description"],
            prompt=arguments["prompt"],
            fork=fork,
            preset=arguments.get("preset"),
            spawn=spawn_record(parent.log.events, call),
        )
        if in_background:
            return background.order(parent, number_of(own_events(parent), call), order)
        return (await run_order(ctx, config, parent, order)).result()

    return [
        define_tool(SPAWN, _SPAWN_DESCRIPTION, _spawn_parameters(config), spawn),
        define_tool(FORK, _FORK_DESCRIPTION, _parameters(_BACKGROUND), fork),
        define_tool(WAIT, _WAIT_DESCRIPTION, _WAIT_PARAMETERS, wait),
    ]


async def run_order(ctx: AppContext, config: DelegationConfig, parent: Agent, order: Order) -> Ending:
    """Have a child do what the order says, with the preset that it names."""
    preset = config.presets[order.preset] if order.preset is not None else None
    return await run_child(ctx, parent, order, preset)


def spawn_record(events: list[Event], call: ToolContext) -> dict[str, Any]:
    """The call as the log of its child records it: unique among all calls of its session."""
    record: dict[str, Any] = {"turn": call.turn, "step": call.step, "callId": call.call_id}
    earlier = _step_calls(events, call)[: call.ordinal - 1]
    twins = sum(row["callId"] == call.call_id for row in earlier)
    return record | {"ordinal": twins} if twins else record


def number_of(events: list[Event], call: ToolContext) -> int:
    """Which delegating call of its session this one is, from 1; `events` are the session's own."""
    rows = [event["data"] for event in events if event["type"] == TOOL_CALL]
    step = _step_calls(events, call)
    before = rows[: len(rows) - len(step)]
    return sum(row["name"] in (SPAWN, FORK) for row in [*before, *step[: call.ordinal]])


def _step_calls(events: list[Event], call: ToolContext) -> list[dict[str, Any]]:
    """The rows of all calls of the running step, in model order: they are logged before any is served."""
    place = (call.turn, call.step)
    rows = []
    for event in reversed(events):
        if event["type"] == TOOL_CALL:
            if (event["data"]["turn"], event["data"]["step"]) != place:
                break
            rows.append(event["data"])
    return rows[::-1]


def _agent(ctx: AppContext, call: ToolContext) -> Agent:
    agent = ctx.agents.get(call.session_id)
    if agent is None:
        raise OnetakeError("the session is being closed")
    return agent


def _refusal(parent: Agent, config: DelegationConfig, *, in_background: bool) -> ToolResult | None:
    if parent.depth >= config.max_depth:
        text = (
            f"Error: this sub-agent would be {parent.depth + 1} levels deep, and the limit is "
            f"{config.max_depth}: do the task yourself"
        )
        return error_result(text, name="SubagentError", code="DEPTH_LIMIT")
    if in_background and parent.depth:
        # A sub-agent lives for one turn, and a notice would come after it.
        text = "Error: a sub-agent cannot have sub-agents in the background: leave run_in_background out"
        return error_result(text, name="SubagentError", code="NO_BACKGROUND")
    return None


_BACKGROUND: dict[str, Any] = {
    "run_in_background": {
        "type": "boolean",
        "default": False,
        "description": "Return at once; the answer comes as a message after the turn, or by subagent_wait.",
    }
}
_WAIT_PARAMETERS: dict[str, Any] = {
    "type": "object",
    "properties": {
        "subagent_id": {"type": "string", "description": "The id that the call returned, such as agent-1."}
    },
    "required": ["subagent_id"],
}


def _parameters(more: dict[str, Any]) -> dict[str, Any]:
    properties = {"description": _LABEL, "prompt": _PROMPT, **more}
    return {"type": "object", "properties": properties, "required": ["description", "prompt"]}


def _spawn_parameters(config: DelegationConfig) -> dict[str, Any]:
    if not config.presets:
        return _parameters(_BACKGROUND)
    kinds = "; ".join(f"{name}: {preset.description}" for name, preset in config.presets.items())
    described = f"The kind of sub-agent; without one it is like you. {kinds}"
    preset = {"type": "string", "enum": list(config.presets), "description": described}
    return _parameters({"preset": preset, **_BACKGROUND})
