"""The items of OpenAI's Responses format, which answers hold and clients send back, as blocks of ours.

One item is one block. Its state is the item as it came, without the text that the block already holds, so
that ids, encrypted reasoning and unknown fields survive. An item of several parts is kept whole. An item that
we do not know (a search of the provider's) is reasoning without a text.
"""

from __future__ import annotations

from typing import Any

from onetake.model.types import Block
from onetake.wire.chat_request import WireError

KINDS = {"message": "text", "function_call": "tool-call", "custom_tool_call": "tool-call"}
ARGUMENTS = {"function_call": "arguments", "custom_tool_call": "input"}
_PARTS = {"message": ("content", "output_text"), "reasoning": ("summary", "summary_text")}


def kind_of(item: dict[str, Any]) -> str:
    """The type of the block that an item becomes."""
    return KINDS.get(str(item.get("type")), "reasoning")


def text_of(item: dict[str, Any]) -> str:
    """The text of an item, of all its parts, or the arguments of its call."""
    kind = str(item.get("type"))
    if kind in ARGUMENTS:
        return _text(item.get(ARGUMENTS[kind]))
    if kind not in _PARTS:
        return ""
    parts = item.get(_PARTS[kind][0])
    if isinstance(parts, str):
        return parts
    found = [part for part in parts if isinstance(part, dict)] if isinstance(parts, list) else []
    return "".join(_text(part.get("text", part.get("refusal"))) for part in found)


def state_of_item(item: dict[str, Any]) -> dict[str, Any]:
    """What of an item its block does not hold."""
    kind = str(item.get("type"))
    if kind in ARGUMENTS:
        return {key: value for key, value in item.items() if key not in (ARGUMENTS[kind], "call_id", "name")}
    key, part_type = _PARTS.get(kind, ("", ""))
    parts = item.get(key)
    if isinstance(parts, list) and len(parts) == 1 and isinstance(parts[0], dict):
        part = parts[0]
        if part.get("type") == part_type and isinstance(part.get("text"), str):
            return {**item, key: [{name: value for name, value in part.items() if name != "text"}]}
    return dict(item)


def block_of_item(item: dict[str, Any], place: str) -> Block:
    """The block of a whole item. Raises WireError, naming the place, for a call without its fields."""
    kind = kind_of(item)
    if kind != "tool-call":
        return {"type": kind, "text": text_of(item)}
    for key in ("call_id", "name", ARGUMENTS[item["type"]]):
        if not isinstance(item.get(key), str):
            raise WireError(f"{place}.{key} must be a string")
    return {"type": kind, "id": item["call_id"], "name": item["name"], "arguments": text_of(item)}


def item_of_block(block: Block, state: Any, item_id: str | None = None) -> dict[str, Any]:
    """The item for a block; `item_id` names one without a state. Raises WireError for an image."""
    named = {} if item_id is None else {"id": item_id, "status": "completed"}
    known = state if isinstance(state, dict) and kind_of(state) == block["type"] else None
    if block["type"] == "tool-call":
        item = known or {"type": "function_call", **named}
        key = ARGUMENTS[item["type"]]
        return {**item, "call_id": block["id"], "name": block["name"], key: block["arguments"]}
    if block["type"] not in ("text", "reasoning"):
        raise WireError(f"an answer cannot carry a block of type {block['type']!r}")
    kind = "message" if block["type"] == "text" else "reasoning"
    if known is None:
        key, part_type = _PARTS[kind]
        new = {"type": part_type, "text": block["text"]}
        if kind == "message":
            return {"type": kind, **named, "role": "assistant", key: [{**new, "annotations": []}]}
        return {"type": kind, **named, key: [new] if block["text"] else []}
    key, part_type = _PARTS.get(str(known.get("type")), ("", ""))
    parts = known.get(key)
    part = parts[0] if isinstance(parts, list) and len(parts) == 1 else None
    if isinstance(part, dict) and part.get("type") == part_type and "text" not in part:
        return {**known, key: [{**part, "text": block["text"]}]}
    return dict(known)


def states_for(blocks: list[Block], states: Any) -> list[Any]:
    """The state of each block, None where there is none; of a `replayState`'s `blocks`, one for each item.

    An answer that was cut has lost its calls, but not their states, which must not become those of others.
    """
    known = list(states) if isinstance(states, list) else []
    if len(known) > len(blocks):
        known = [state for state in known if not isinstance(state, dict) or kind_of(state) != "tool-call"]
    return known if len(known) == len(blocks) else [None] * len(blocks)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""
