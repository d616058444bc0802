"""The request of Anthropic's Messages format, written and read.

What goes where:

- `system` is text. Given as blocks, the texts are joined by a line feed, and `settings["system"]` keeps the
  rest of each block (its cache mark) and the `length` of its text.
- A tool's `input_schema` is our `parameters`; a provider's own tool has no schema and stays as it is.
- What the model said comes apart as `messages_blocks` says; the states of a message's blocks are its
  `source.replayState.blocks`, as they are on the finish of the answer.
- A tool result keeps its place among the parts of its message. Parts of a type that we do not know stay as
  they are, and so do unknown fields: on the block, or under `extra` of the message.

Writing merges neighbouring messages of one role, leaves out empty texts, which the endpoint refuses, and
reasoning that comes from elsewhere: the endpoint takes none without its own signature. `max_tokens` is
required, so there is a default.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from onetake.model.types import Block, Message
from onetake.wire.chat_request import WireError
from onetake.wire.format import WireRequest
from onetake.wire.messages_blocks import OURS, read_said, write_said

if TYPE_CHECKING:
    from onetake.model.request import ModelRequest

_READ = frozenset({"model", "messages", "tools", "system"})
_PLAIN_FIELDS = (("maxTokens", "max_tokens"), ("temperature", "temperature"), ("topP", "top_p"))
_ROLES = ("user", "assistant", "system")
_DEFAULT_MAX_TOKENS = 8192
_BUDGETS = {"minimal": 1024, "low": 2048, "medium": 8192, "high": 16384}


class MessagesDialect(msgspec.Struct, frozen=True, kw_only=True):
    """How an endpoint differs from the plain format."""

    extra: dict[str, Any] = {}
    """Fields to send along with every request, as they are; they win over computed ones."""


def encode_request(
    request: ModelRequest, dialect: MessagesDialect | None = None, *, stream: bool = True
) -> dict[str, Any]:
    """Return the body of a model call. Raises WireError for content that the format cannot carry."""
    messages: list[dict[str, Any]] = []
    for message in request.messages:
        content = _encode_content(message)
        if content and messages and messages[-1]["role"] == message["role"]:
            messages[-1]["content"] += content
        elif content:
            messages.append({"role": message["role"], "content": content})
    body: dict[str, Any] = {"model": request.config["model"], **_encode_settings(request.config)}
    if request.system:
        body["system"] = request.system
    body["messages"] = messages
    if request.tools:
        body["tools"] = [_encode_tool(tool) for tool in request.tools]
    body["stream"] = stream
    return body | (dialect.extra if dialect is not None else {})


def decode_request(body: Any) -> WireRequest:
    """Read a request body. Raises WireError, naming the field, when it is not of the format."""
    if not isinstance(body, dict) or not isinstance(body.get("model"), str):
        raise WireError("the request must be an object with a model")
    raw = body.get("messages")
    if not isinstance(raw, list) or not raw:
        raise WireError("messages must be a list that is not empty")
    settings = {key: body[key] for key in body if key not in _READ}
    system = body.get("system")
    if isinstance(system, list):
        settings["system"], system = _decode_system(system)
    elif system is not None and not isinstance(system, str):
        raise WireError("system must be a string or a list of text blocks")
    return WireRequest(
        model=body["model"],
        system=system,
        tools=_decode_tools(body.get("tools")),
        messages=[_decode_message(message, f"messages[{place}]") for place, message in enumerate(raw)],
        config=_decode_settings(body),
        settings=settings,
        stream=body.get("stream") is True,
        include_usage=True,
    )


def _encode_settings(config: dict[str, Any]) -> dict[str, Any]:
    settings: dict[str, Any] = {"max_tokens": _DEFAULT_MAX_TOKENS}
    settings |= {theirs: config[ours] for ours, theirs in _PLAIN_FIELDS if config.get(ours) is not None}
    budget = _BUDGETS.get(config.get("reasoningEffort") or "off")
    if budget is not None:
        settings["thinking"] = {"type": "enabled", "budget_tokens": budget}
        settings["max_tokens"] += budget  # the thoughts count among the tokens
    return settings


def _decode_settings(body: dict[str, Any]) -> dict[str, Any]:
    config = {ours: body[theirs] for ours, theirs in _PLAIN_FIELDS if body.get(theirs) is not None}
    thinking, output = body.get("thinking"), body.get("output_config")
    effort = output.get("effort") if isinstance(output, dict) else None
    if isinstance(thinking, dict) and thinking.get("type") == "disabled":
        effort = "off"
    return config if effort is None else {**config, "reasoningEffort": effort}


def _encode_tool(tool: dict[str, Any]) -> dict[str, Any]:
    if "parameters" not in tool:
        return tool
    return {("input_schema" if key == "parameters" else key): item for key, item in tool.items()}


def _decode_tools(tools: Any) -> list[dict[str, Any]] | None:
    if tools is None:
        return None
    if not isinstance(tools, list) or not all(isinstance(tool, dict) for tool in tools):
        raise WireError("tools must be a list of objects")
    return [
        tool
        if "input_schema" not in tool or "parameters" in tool
        else {("parameters" if key == "input_schema" else key): item for key, item in tool.items()}
        for tool in tools
    ]


def _decode_system(blocks: list[Any]) -> tuple[list[dict[str, Any]], str]:
    for place, block in enumerate(blocks):
        if not isinstance(block, dict) or not isinstance(block.get("text"), str):
            raise WireError(f"system[{place}] must be a text block")
    rest = [
        {**{key: item for key, item in block.items() if key != "text"}, "length": len(block["text"])}
        for block in blocks
    ]
    return rest, "\n".join(block["text"] for block in blocks)


def _encode_content(message: Message) -> list[dict[str, Any]]:
    content = [block for block in message["content"] if block["type"] != "text" or block["text"]]
    if message["role"] != "assistant":
        return [_encode_part(block) for block in content]
    source = message.get("source")
    found = source.get("replayState") if isinstance(source, dict) else None
    states = found.get("blocks") if isinstance(found, dict) else None
    if not isinstance(states, list) or len(states) != len(message["content"]):
        states = [None] * len(message["content"])
    pairs = [pair for pair in zip(message["content"], states, strict=True) if pair[0] in content]
    return [
        write_said(block, state) for block, state in pairs if not (block["type"] == "reasoning" and not state)
    ]


def _encode_part(block: Block) -> dict[str, Any]:
    kind = block["type"]
    if kind == "image" and isinstance(block.get("data"), str):
        source = {"type": "base64", "media_type": block.get("mediaType", "image/png"), "data": block["data"]}
        rest = {key: item for key, item in block.items() if key not in ("data", "mediaType")}
        return {**rest, "source": source}
    if kind == "tool-result":
        rest = {
            key: item
            for key, item in block.items()
            if key not in ("type", "toolCallId", "content", "isError")
        }
        part = {"type": "tool_result", "tool_use_id": block["toolCallId"], **rest}
        part["content"] = [_encode_part(inner) for inner in block["content"]]
        return part | ({"is_error": True} if block.get("isError") else {})
    if kind in OURS or (kind == "image" and "source" not in block):
        raise WireError(f"a block of type {kind!r} cannot be sent (an image needs its base64 data)")
    return dict(block)


def _decode_message(message: Any, place: str) -> Message:
    if not isinstance(message, dict) or message.get("role") not in _ROLES:
        raise WireError(f"{place} must be an object whose role is user or assistant")
    content = message.get("content")
    parts = [{"type": "text", "text": content}] if isinstance(content, str) else content
    if not isinstance(parts, list):
        raise WireError(f"{place}.content must be a string or a list of blocks")
    decoded: Message = {"role": message["role"]}
    places = [f"{place}.content[{number}]" for number in range(len(parts))]
    if message["role"] == "assistant":
        said = [read_said(part, at) for part, at in zip(parts, places, strict=True)]
        decoded["content"] = [block for block, _ in said]
        decoded["source"] = {"kind": "client", "replayState": {"blocks": [_stated(s) for _, s in said]}}
    else:
        decoded["content"] = [_decode_part(part, at) for part, at in zip(parts, places, strict=True)]
    extra = {key: item for key, item in message.items() if key not in ("role", "content")}
    return decoded | ({"extra": extra} if extra else {})


def _stated(state: dict[str, Any]) -> dict[str, Any]:
    return {key: item for key, item in state.items() if item not in (None, "")}


def _decode_part(part: Any, place: str) -> Block:
    if not isinstance(part, dict) or not isinstance(part.get("type"), str) or part["type"] in OURS:
        raise WireError(f"{place} must be a content block with a type")
    if part["type"] == "text" and not isinstance(part.get("text"), str):
        raise WireError(f"{place}.text must be a string")
    if part["type"] == "tool_result":
        return _decode_result(part, place)
    source = part.get("source")
    if part["type"] == "image" and isinstance(source, dict) and _is_plain_image(source):
        rest = {key: item for key, item in part.items() if key != "source"}
        return {**rest, "data": source["data"], "mediaType": source["media_type"]}
    return dict(part)


def _is_plain_image(source: dict[str, Any]) -> bool:
    known = set(source) == {"type", "media_type", "data"} and source["type"] == "base64"
    return known and isinstance(source["data"], str)


def _decode_result(part: dict[str, Any], place: str) -> Block:
    call_id, content = part.get("tool_use_id"), part.get("content")
    if not isinstance(call_id, str):
        raise WireError(f"{place}.tool_use_id must be a string")
    if isinstance(content, str):
        content = [{"type": "text", "text": content}]
    if content is not None and not isinstance(content, list):
        raise WireError(f"{place}.content must be a string or a list of blocks")
    inner = [_decode_part(each, f"{place}.content[{number}]") for number, each in enumerate(content or ())]
    rest = {
        key: item for key, item in part.items() if key not in ("type", "tool_use_id", "content", "is_error")
    }
    failed = part.get("is_error") is True
    return {"type": "tool-result", "toolCallId": call_id, "content": inner, "isError": failed, **rest}
