"""One child session: how it is made, what its log records about the call that spawned it, how it ends.

A child does one turn: a prompt in, its last words out. Whatever becomes of it, its session is closed and its
log is whole when `run_child` is over, also when that is cancelled.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from onetake.agent.agent import Agent
from onetake.agent.context import AppContext
from onetake.agent.prompt import PromptRegistry, SessionFacts
from onetake.errors import UsageError
from onetake.session.events import ASSISTANT_MESSAGE, SUBAGENT_DESCRIPTOR, TURN_END, Event
from onetake.toolkit.delegation.config import Preset
from onetake.tools.registry import ToolRegistry, ToolResult, error_result, text_result

DESCRIPTOR_VERSION = 2
_CODES = {"max-tokens": "MAX_TOKENS", "error": "FAILED"}


class Order(msgspec.Struct, frozen=True, kw_only=True):
    """What a model wants to have done, and by which call it said so."""

    label: str
    prompt: str
    fork: bool
    """Whether the child goes on from the completed turns of its parent."""
    preset: str | None = None
    spawn: dict[str, Any]
    """The spawning call: `turn`, `step`, `callId` and, when calls of the step share that id, `ordinal`."""


class Ending(msgspec.Struct, frozen=True):
    """How a child's turn ended."""

    session: str | None
    """Its session id; None when it could not be started."""
    reason: dict[str, Any]
    """As in its `turn/end`."""
    text: str
    """What it said last; empty when it said nothing."""

    @property
    def failure(self) -> str | None:
        """What went wrong, as the rest of a sentence that begins with the sub-agent; None: nothing did."""
        kind = self.reason["kind"]
        if kind == "completed":
            return None
        if kind == "max-tokens":
            return "was cut off at its token limit"
        return f"failed: {self.reason['error']['message']}" if kind == "error" else "was cancelled"

    def result(self) -> ToolResult:
        """What the call that spawned it, or waited for it, comes to."""
        if self.failure is None:
            return text_result(self.text or "(the sub-agent ended without an answer)")
        said = f"\nIts last words before that:\n{self.text}" if self.text else ""
        code = _CODES.get(self.reason["kind"], "CANCELLED")
        return error_result(f"Error: the sub-agent {self.failure}{said}", name="SubagentError", code=code)


async def run_child(ctx: AppContext, parent: Agent, order: Order, preset: Preset | None) -> Ending:
    """Have a child do what `order` says, up to the end of its turn; `preset` is the one that it names.

    Raises UsageError for a preset with tools that the parent lacks, StoreError when the child's log cannot be
    written.
    """
    child = await ctx.create_session(
        parent.cwd,
        parent=parent,
        seed=completed_turns(parent.log.events) if order.fork else None,
        preset=order.preset,
        prompt=_prompt(parent, preset),
        tools=_tools(parent, order.preset, preset),
    )
    try:
        descriptor = {
            "version": DESCRIPTOR_VERSION,
            "mode": "one-shot",
            "provider": "fork" if order.fork else "spawn",
            "label": order.label,
            "spawn": order.spawn,
        }
        child.log.append(SUBAGENT_DESCRIPTOR, descriptor)
        reason = await child.ask(order.prompt)
        return Ending(child.id, reason, last_words(own_events(child)))
    finally:
        await ctx.close_session(child.id, {"kind": "parent"})


def completed_turns(events: Sequence[Event]) -> list[Event]:
    """The events up to the end of the last turn that ended; the open turn is left out."""
    for position in range(len(events) - 1, -1, -1):
        if events[position]["type"] == TURN_END:
            return list(events[: position + 1])
    return []


def own_events(agent: Agent) -> list[Event]:
    """The events of a session without the history that it was seeded with."""
    return agent.log.events[agent.log.header.get("seedLength") or 0 :]


def last_words(events: Sequence[Event]) -> str:
    """The text of the last committed message that has any."""
    for event in reversed(events):
        if event["type"] == ASSISTANT_MESSAGE:
            content = event["data"]["message"]["content"]
            text = "\n\n".join(block["text"] for block in content if block["type"] == "text")
            if text.strip():
                return text
    return ""


def _prompt(parent: Agent, preset: Preset | None) -> PromptRegistry:
    if preset is None or preset.system is None:
        return parent.prompt
    text = preset.system

    def fill(facts: SessionFacts) -> str:
        return text.replace("{cwd}", str(facts.cwd))

    prompt = PromptRegistry()
    prompt.register("preset", fill)
    return prompt


def _tools(parent: Agent, name: str | None, preset: Preset | None) -> ToolRegistry:
    if preset is None or preset.tools is None:
        return parent.tools
    there = parent.tools.names()
    for wanted in preset.tools:
        if wanted not in there:
            raise UsageError(
                f"the preset {name!r} names the tool {wanted!r}; its parent has {', '.join(there)}"
            )
    tools = ToolRegistry()
    for known in there:
        tool = parent.tools.get(known)
        if known in preset.tools and tool is not None:
            tools.register(tool)
    return tools
