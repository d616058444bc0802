"""The request of OpenAI's Responses format, written and read.

`instructions` are the system prompt. Neighbouring items that a model said (messages of the assistant,
reasoning, calls) are one assistant message, with one state for each block in its `replayState`; an output of
a call is a tool result. What else an item or a part holds stays under `extra` of the message
or on the block.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from onetake.model.types import Block, Message
from onetake.wire.chat_request import WireError
from onetake.wire.format import WireRequest
from onetake.wire.responses_items import block_of_item, item_of_block, state_of_item, states_for

if TYPE_CHECKING:
    from onetake.model.request import ModelRequest

_READ = frozenset({"model", "instructions", "tools", "input", "previous_response_id"})
_OUTPUTS = ("function_call_output", "custom_tool_call_output")
_SETTINGS = (("maxTokens", "max_output_tokens"), ("temperature", "temperature"), ("topP", "top_p"))


def decode_request(body: Any) -> WireRequest:
    """Read a request body. Raises WireError, naming the field, when it is not of the format."""
    if not isinstance(body, dict) or not isinstance(body.get("model"), str):
        raise WireError("the request must be an object with a model")
    system, previous = body.get("instructions"), body.get("previous_response_id")
    if not isinstance(system, str | None):
        raise WireError("instructions must be a string")
    if not isinstance(previous, str | None):
        raise WireError("previous_response_id must be a string")
    items = body.get("input", [])
    if isinstance(items, str):
        items = [{"role": "user", "content": items}]
    if not isinstance(items, list):
        raise WireError("input must be a string or a list of items")
    config = {ours: body[theirs] for ours, theirs in _SETTINGS if body.get(theirs) is not None}
    reasoning = body.get("reasoning")
    effort = reasoning.get("effort") if isinstance(reasoning, dict) else None
    if effort is not None:
        config["reasoningEffort"] = "off" if effort == "none" else effort
    return WireRequest(
        model=body["model"],
        system=system,
        tools=_decode_tools(body.get("tools")),
        messages=_messages(items),
        config=config,
        settings={key: value for key, value in body.items() if key not in _READ},
        stream=body.get("stream") is True,
        include_usage=True,
        previous=previous,
    )


def encode_request(request: ModelRequest, *, stream: bool = True) -> dict[str, Any]:
    """Return the body of a model call. Raises WireError for content that the format cannot carry."""
    body: dict[str, Any] = {"model": request.config["model"]}
    if request.system:
        body["instructions"] = request.system
    body["input"] = [item for message in request.messages for item in _encode_message(message)]
    if request.tools:
        body["tools"] = [_encode_tool(tool) for tool in request.tools]
    for ours, theirs in _SETTINGS:
        if request.config.get(ours) is not None:
            body[theirs] = request.config[ours]
    effort = request.config.get("reasoningEffort")
    if effort is not None:
        body["reasoning"] = {"effort": "none" if effort == "off" else effort}
    return {**body, "include": ["reasoning.encrypted_content"], "store": False, "stream": stream}


def _messages(items: list[Any]) -> list[Message]:
    messages: list[Message] = []
    for number, item in enumerate(items):
        place = f"input[{number}]"
        if not isinstance(item, dict):
            raise WireError(f"{place} must be an object")
        kind = item.get("type", "message")
        if kind in _OUTPUTS:
            messages.append(_decode_output(item, place))
        elif kind == "message" and item.get("role") != "assistant":
            messages.append(_decode_said(item, place))
        else:
            item = {**item, "type": kind}
            if not messages or messages[-1]["role"] != "assistant":
                state: dict[str, Any] = {"blocks": []}
                source = {"kind": "model", "replayState": state}
                messages.append({"role": "assistant", "content": [], "source": source})
            messages[-1]["content"].append(block_of_item(item, place))
            messages[-1]["source"]["replayState"]["blocks"].append(state_of_item(item))
    return messages


def _decode_said(item: dict[str, Any], place: str) -> Message:
    role = item.get("role")
    if role not in ("user", "system", "developer"):
        raise WireError(f"{place}.role must be user, system, developer or assistant")
    extra = {key: value for key, value in item.items() if key not in ("role", "content")}
    if role == "developer":
        extra["role"] = role
    content = _decode_content(item.get("content"), f"{place}.content")
    message: Message = {"role": "user" if role == "user" else "system", "content": content}
    return {**message, "extra": extra} if extra else message


def _decode_output(item: dict[str, Any], place: str) -> Message:
    if not isinstance(item.get("call_id"), str):
        raise WireError(f"{place}.call_id must be a string")
    extra = {key: value for key, value in item.items() if key not in ("call_id", "output")}
    content = _decode_content(item.get("output"), f"{place}.output")
    result = {"type": "tool-result", "toolCallId": item["call_id"], "content": content, "isError": False}
    if extra == {"type": "function_call_output"}:
        return {"role": "user", "content": [result]}
    return {"role": "user", "content": [result], "extra": extra}


def _decode_content(content: Any, place: str) -> list[Block]:
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    if not isinstance(content, list) or not all(isinstance(part, dict) for part in content):
        raise WireError(f"{place} must be a string or a list of parts")
    return [_decode_part(part) for part in content]


def _decode_part(part: dict[str, Any]) -> Block:
    kind, url = part.get("type"), part.get("image_url")
    if kind == "input_text" and isinstance(part.get("text"), str):
        return {**part, "type": "text"}
    if kind == "input_image" and isinstance(url, str):
        head, comma, data = url.partition(";base64,")
        if comma and head.startswith("data:"):
            rest = {key: value for key, value in part.items() if key not in ("type", "image_url")}
            return {**rest, "type": "image", "data": data, "mediaType": head[len("data:") :]}
    return {"type": "image" if kind == "input_image" else "file", "part": part}


def _encode_message(message: Message) -> list[dict[str, Any]]:
    content, extra = message["content"], message.get("extra") or {}
    if message["role"] == "assistant":
        source = message.get("source")
        state = source.get("replayState") if isinstance(source, dict) else None
        states = states_for(content, state.get("blocks") if isinstance(state, dict) else None)
        pairs = zip(content, states, strict=True)
        return [item_of_block(block, each) for block, each in pairs if _sendable(block, each)]
    items: list[dict[str, Any]] = []
    for block in content:
        if block["type"] == "tool-result":
            output = _encode_content(block["content"])
            items.append(
                {"type": "function_call_output", **extra, "call_id": block["toolCallId"], "output": output}
            )
    others = [block for block in content if block["type"] != "tool-result"]
    if others or not content:
        items.append({"role": message["role"], **extra, "content": _encode_content(others)})
    return items


def _sendable(block: Block, state: Any) -> bool:
    """Reasoning of another provider has no id, and the endpoint refuses reasoning that it does not know."""
    return block["type"] != "reasoning" or isinstance(state, dict)


def _encode_content(blocks: list[Block]) -> str | list[dict[str, Any]]:
    if len(blocks) == 1 and blocks[0].keys() == {"type", "text"}:
        return str(blocks[0]["text"])
    return [_encode_part(block) for block in blocks]


def _encode_part(block: Block) -> dict[str, Any]:
    if block["type"] == "text":
        return {**block, "type": "input_text"}
    if isinstance(block.get("part"), dict):
        part: dict[str, Any] = block["part"]
        return part
    if block["type"] == "image" and isinstance(block.get("data"), str):
        rest = {key: value for key, value in block.items() if key not in ("type", "data", "mediaType")}
        url = f"data:{block.get('mediaType', 'image/png')};base64,{block['data']}"
        return {"type": "input_image", **rest, "image_url": url}
    raise WireError(f"a block of type {block['type']!r} cannot be sent (an image needs its base64 data)")


def _decode_tools(tools: Any) -> list[dict[str, Any]] | None:
    if tools is None:
        return None
    if not isinstance(tools, list) or not all(isinstance(tool, dict) for tool in tools):
        raise WireError("tools must be a list of objects")
    return [
        {key: value for key, value in tool.items() if key != "type"}
        if tool.get("type") == "function"
        else tool
        for tool in tools
    ]


def _encode_tool(tool: dict[str, Any]) -> dict[str, Any]:
    return tool if "type" in tool else {"type": "function", **tool}
