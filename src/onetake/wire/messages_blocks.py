"""The content blocks of Anthropic's Messages, and what they are in our own shape.

What the model said comes apart into a block of ours and a *state*: the block's `type` on the wire and the
fields that only the provider understands (a thinking block's `signature`, what is in `redacted_thinking`).
States travel in `replayState.blocks`, one for each block of the message in its order, and together with their
blocks they make the wire's blocks again. Fields that are null say nothing and are left out: SDKs add them.

A block of a type that we do not know (a provider's own tools) stays as it is. A cache mark is the client's
and stays on the block.
"""

from __future__ import annotations

from typing import Any

from onetake import jsontext
from onetake.model.types import Block
from onetake.wire.chat_request import WireError

OURS = ("tool-call", "tool-result", "reasoning")
"""Types of our own blocks: no block of the wire may pass for one."""
_READ = {
    "text": ("text",),
    "thinking": ("thinking",),
    "redacted_thinking": (),
    "tool_use": ("id", "name"),
}
_CLIENT = ("cache_control",)
OBJECTS = "tool_use"
"""The type, in a state, of calls whose arguments are sent as an object: their spelling gets lost."""
INVALID_JSON = "INVALID_JSON"
"""Anthropic's documented wrapping for a tool input that is no JSON object."""


def read_said(part: Any, place: str) -> tuple[Block, dict[str, Any]]:
    """Read a block that the model said: our block, and its state. Raises WireError, naming the place."""
    if not isinstance(part, dict) or not isinstance(part.get("type"), str) or part["type"] in OURS:
        raise WireError(f"{place} must be a content block with a type")
    kind = part["type"]
    if kind not in _READ:
        return dict(part), {"type": kind}
    for key in _READ[kind]:
        if not isinstance(part.get(key), str):
            raise WireError(f"{place}.{key} must be a string")
    block: Block
    if kind == "text":
        block = {"type": "text", "text": part["text"]}
    elif kind == "tool_use":
        block = {"type": "tool-call", "id": part["id"], "name": part["name"]}
        block["arguments"] = written_input(part.get("input"))
    else:
        block = {"type": "reasoning", "text": part.get("thinking", "") if kind == "thinking" else ""}
    block |= {key: part[key] for key in _CLIENT if key in part}
    return block, state_of_part(part)


def state_of_part(part: dict[str, Any]) -> dict[str, Any]:
    """What of a block of a known type is not in our block."""
    kind = part["type"]
    read = {*_READ[kind], *_CLIENT, *(("input",) if kind == "tool_use" else ())}
    return {key: value for key, value in part.items() if key not in read and value is not None}


def write_said(block: Block, state: dict[str, Any] | None = None) -> dict[str, Any]:
    """Write a block that the model said. Raises WireError for one that an answer cannot hold."""
    kind, state = block["type"], dict(state or {})
    marks = {key: block[key] for key in _CLIENT if key in block}
    if kind == "text":
        return {"type": "text", "text": block["text"], **state, **marks}
    if kind == "reasoning":
        if state.get("type") == "redacted_thinking":
            return state | marks
        return {"type": "thinking", "thinking": block["text"], "signature": "", **state, **marks}
    if kind == "tool-call":
        called = {"id": block["id"], "name": block["name"], "input": read_input(block["arguments"])}
        return {"type": "tool_use", **called, **state, **marks}
    if kind in OURS or "type" not in state:
        raise WireError(f"an answer cannot carry a block of type {kind!r}")
    return dict(block)


def read_input(arguments: str) -> Any:
    """The input of a tool as the object that the wire wants; no arguments are an empty one."""
    try:
        value = jsontext.loads(arguments) if arguments.strip() else {}
    except ValueError:
        return {INVALID_JSON: arguments}
    return value if isinstance(value, dict) else {INVALID_JSON: arguments}


def written_input(value: Any) -> str:
    """The arguments of a tool as text, as our blocks have them."""
    if isinstance(value, dict) and list(value) == [INVALID_JSON] and isinstance(value[INVALID_JSON], str):
        return str(value[INVALID_JSON])
    return jsontext.dumps({} if value is None else value).decode()
