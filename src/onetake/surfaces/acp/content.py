"""What a client may put into a prompt, translated into the blocks of a user message."""

from __future__ import annotations

from typing import Any

from onetake.model.types import Block
from onetake.surfaces.acp.jsonrpc import invalid_params


def prompt_blocks(prompt: Any) -> list[Block]:
    """The blocks of a `session/prompt`: text as it is, a resource link as text that names it.

    Raises RpcError for anything that the agent's capabilities do not offer.
    """
    if not isinstance(prompt, list) or not prompt:
        raise invalid_params("prompt must be a non-empty list of content blocks")
    return [_block(item, f"prompt[{index}]") for index, item in enumerate(prompt)]


def _block(item: Any, place: str) -> Block:
    kind = item.get("type") if isinstance(item, dict) else None
    if kind == "text":
        return {"type": "text", "text": _text(item, "text", place)}
    if kind == "resource_link":
        name, uri = _text(item, "name", place), _text(item, "uri", place)
        return {"type": "text", "text": f"Linked resource {name}: {uri}"}
    if isinstance(kind, str):
        raise invalid_params(f"{place}: content of type {kind!r} is not supported")
    raise invalid_params(f"{place} must be a content block with a type")


def _text(item: dict[str, Any], key: str, place: str) -> str:
    value = item.get(key)
    if not isinstance(value, str):
        raise invalid_params(f"{place}.{key} must be a string")
    return value
