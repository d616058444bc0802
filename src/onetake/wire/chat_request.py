"""The request of the chat-completions format, written and read.

What goes where:

- The system prompt is the first message, role `system` (reading also takes `developer`).
- Text blocks of one message are joined by a line feed into one string: many endpoints refuse lists of parts.
  Only a message with an image becomes a list of parts.
- A tool result is a message of its own, role `tool`; results come before other content of the same message.
  The format has no mark for a failed tool: its text has to say so.
- A tool call keeps its arguments as the raw string that the model wrote. `content` is null where a message
  holds tool calls and no text.
- Reasoning is given back as `reasoning_content`. DeepSeek demands that for messages with tool calls and
  ignores it elsewhere; endpoints that refuse unknown fields are served by
  `ChatDialect(pass_reasoning=False)`.
- `maxTokens`, `reasoningEffort`, `temperature` and `topP` of the request's config have fields of their own;
  an effort of `off` switches reasoning off.

Reading gives back what was written for messages with at most one block of text and one of reasoning, in the
order reasoning, text, tool calls, none of them empty; ids, sources and `isError` are not in the format.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import msgspec

from onetake.model.types import Block, Message

if TYPE_CHECKING:
    from onetake.model.request import ModelRequest

_JOINT = "\n"
_PLAIN_FIELDS = (("temperature", "temperature"), ("topP", "top_p"))


class WireError(ValueError):
    """A value that the chat-completions format cannot carry, or a body that is not of that format."""


class ChatDialect(msgspec.Struct, frozen=True, kw_only=True):
    """How an endpoint differs from the plain format."""

    pass_reasoning: bool = True
    """Give the model's earlier reasoning back to it (DeepSeek fails without it after tool calls)."""
    thinking_switch: bool = False
    """Switch reasoning with DeepSeek's `thinking: {type: enabled | disabled}` beside `reasoning_effort`."""
    max_tokens_field: str = "max_tokens"
    """The field for the output limit; newer OpenAI models want `max_completion_tokens`."""
    extra: dict[str, Any] = {}
    """Fields to send along with every request, as they are; they win over computed ones."""


class ChatRequest(msgspec.Struct, kw_only=True):
    """A request as a server reads it. Messages have no ids and no sources: the format does not carry them."""

    model: str
    """The model that is asked for."""
    system: str | None = None
    """The system prompt: the leading system messages, joined by a line feed."""
    tools: list[dict[str, Any]] | None = None
    """Tool specifications: `name`, `description`, `parameters`."""
    messages: list[Message] = []
    """The history in our own shape."""
    config: dict[str, Any] = {}
    """The settings that were recognised, by our names (`maxTokens`, `reasoningEffort`, ...)."""
    stream: bool = False
    """Whether the answer is to be streamed."""
    include_usage: bool = False
    """Whether a streamed answer is to report its usage."""


def encode_request(
    request: ModelRequest, dialect: ChatDialect | None = None, *, stream: bool = True
) -> dict[str, Any]:
    """Return the body of a model call. Raises WireError for content that the format cannot carry."""
    dialect = dialect or ChatDialect()
    messages: list[dict[str, Any]] = []
    if request.system:
        messages.append({"role": "system", "content": request.system})
    for message in request.messages:
        messages.extend(_encode_message(message, dialect))
    body: dict[str, Any] = {"model": request.config["model"], "messages": messages}
    if request.tools:
        body["tools"] = [{"type": "function", "function": spec} for spec in request.tools]
    body |= _encode_settings(request.config, dialect)
    body["stream"] = stream
    if stream:
        body["stream_options"] = {"include_usage": True}
    return body | dialect.extra


def decode_request(body: Any) -> ChatRequest:
    """Read a request body. Raises WireError, naming the field, when it is not of the format."""
    if not isinstance(body, dict) or not isinstance(body.get("model"), str):
        raise WireError("the request must be an object with a model")
    raw = body.get("messages")
    if not isinstance(raw, list) or not raw:
        raise WireError("messages must be a list that is not empty")
    system: list[str] = []
    messages: list[Message] = []
    for place, message in enumerate(raw):
        decoded = _decode_message(message, f"messages[{place}]")
        if decoded["role"] == "system" and not messages:
            system.append(_joined(decoded["content"], "text"))
        else:
            messages.append(decoded)
    options = body.get("stream_options")
    return ChatRequest(
        model=body["model"],
        system=_JOINT.join(system) if system else None,
        tools=_decode_tools(body.get("tools")),
        messages=messages,
        config=_decode_settings(body),
        stream=body.get("stream") is True,
        include_usage=isinstance(options, dict) and options.get("include_usage") is True,
    )


def _encode_settings(config: dict[str, Any], dialect: ChatDialect) -> dict[str, Any]:
    settings: dict[str, Any] = {}
    if config.get("maxTokens") is not None:
        settings[dialect.max_tokens_field] = config["maxTokens"]
    effort = config.get("reasoningEffort")
    if effort is not None:
        off = effort == "off"
        if dialect.thinking_switch:
            settings["thinking"] = {"type": "disabled" if off else "enabled"}
        if not (off and dialect.thinking_switch):
            settings["reasoning_effort"] = "none" if off else effort
    for ours, theirs in _PLAIN_FIELDS:
        if config.get(ours) is not None:
            settings[theirs] = config[ours]
    return settings


def _decode_settings(body: dict[str, Any]) -> dict[str, Any]:
    config: dict[str, Any] = {}
    limit = body.get("max_tokens", body.get("max_completion_tokens"))
    if limit is not None:
        config["maxTokens"] = limit
    thinking = body.get("thinking")
    effort = body.get("reasoning_effort")
    if effort == "none" or (isinstance(thinking, dict) and thinking.get("type") == "disabled"):
        effort = "off"
    if effort is not None:
        config["reasoningEffort"] = effort
    for ours, theirs in _PLAIN_FIELDS:
        if body.get(theirs) is not None:
            config[ours] = body[theirs]
    return config


def _encode_message(message: Message, dialect: ChatDialect) -> list[dict[str, Any]]:
    role, content = message["role"], message["content"]
    if role == "assistant":
        return [encode_assistant(content, dialect)]
    results = [block for block in content if block["type"] == "tool-result"]
    encoded = [
        {"role": "tool", "tool_call_id": block["toolCallId"], "content": _encode_content(block["content"])}
        for block in results
    ]
    others = [block for block in content if block["type"] != "tool-result"]
    if others or not results:
        encoded.append({"role": role, "content": _encode_content(others)})
    return encoded


def encode_assistant(content: list[Block], dialect: ChatDialect) -> dict[str, Any]:
    """Return an assistant message as it stands in requests and answers. Raises WireError for other blocks."""
    for block in content:
        if block["type"] not in ("text", "reasoning", "tool-call"):
            raise WireError(f"an assistant message cannot carry a block of type {block['type']!r}")
    calls = [block for block in content if block["type"] == "tool-call"]
    has_text = any(block["type"] == "text" for block in content)
    encoded: dict[str, Any] = {"role": "assistant", "content": None}
    if has_text or not calls:
        encoded["content"] = _joined(content, "text")
    if dialect.pass_reasoning and any(block["type"] == "reasoning" for block in content):
        encoded["reasoning_content"] = _joined(content, "reasoning")
    if calls:
        encoded["tool_calls"] = [_encode_tool_call(block) for block in calls]
    return encoded


def _encode_tool_call(block: Block) -> dict[str, Any]:
    function = {"name": block["name"], "arguments": block["arguments"]}
    return {"id": block["id"], "type": "function", "function": function}


def _encode_content(blocks: list[Block]) -> str | list[dict[str, Any]]:
    if all(block["type"] == "text" for block in blocks):
        return _joined(blocks, "text")
    return [_encode_part(block) for block in blocks]


def _encode_part(block: Block) -> dict[str, Any]:
    if block["type"] == "text":
        return {"type": "text", "text": block["text"]}
    if block["type"] == "image" and isinstance(block.get("data"), str):
        url = f"data:{block.get('mediaType', 'image/png')};base64,{block['data']}"
        return {"type": "image_url", "image_url": {"url": url}}
    raise WireError(f"a block of type {block['type']!r} cannot be sent (an image needs its base64 data)")


def _decode_message(message: Any, place: str) -> Message:
    if not isinstance(message, dict):
        raise WireError(f"{place} must be an object")
    role, content = message.get("role"), message.get("content")
    if role in ("system", "developer"):
        return {"role": "system", "content": _decode_content(content, place)}
    if role == "user":
        return {"role": "user", "content": _decode_content(content, place)}
    if role == "tool":
        call_id = message.get("tool_call_id")
        if not isinstance(call_id, str):
            raise WireError(f"{place}.tool_call_id must be a string")
        result = {"type": "tool-result", "toolCallId": call_id, "content": _decode_content(content, place)}
        return {"role": "user", "content": [result | {"isError": False}]}
    if role != "assistant":
        raise WireError(f"{place}.role must be system, user, assistant or tool")
    blocks: list[Block] = []
    reasoning = message.get("reasoning_content")
    if isinstance(reasoning, str):
        blocks.append({"type": "reasoning", "text": reasoning})
    calls = _decode_tool_calls(message.get("tool_calls"), place)
    if not (content == "" and (blocks or calls)):
        blocks += _decode_content(content, place)
    return {"role": "assistant", "content": blocks + calls}


def _decode_tool_calls(calls: Any, place: str) -> list[Block]:
    if calls is not None and not isinstance(calls, list):
        raise WireError(f"{place}.tool_calls must be a list")
    return [
        _decode_tool_call(call, f"{place}.tool_calls[{number}]") for number, call in enumerate(calls or ())
    ]


def _decode_tool_call(call: Any, place: str) -> Block:
    function = call.get("function") if isinstance(call, dict) else None
    if isinstance(function, dict):
        call_id, name, arguments = call.get("id"), function.get("name"), function.get("arguments")
        if isinstance(call_id, str) and isinstance(name, str) and isinstance(arguments, str):
            return {"type": "tool-call", "id": call_id, "name": name, "arguments": arguments}
    raise WireError(f"{place} needs an id, and a function with a name and arguments")


def _decode_content(content: Any, place: str) -> list[Block]:
    if content is None:
        return []
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    if not isinstance(content, list):
        raise WireError(f"{place}.content must be a string or a list of parts")
    return [_decode_part(part, f"{place}.content[{number}]") for number, part in enumerate(content)]


def _decode_part(part: Any, place: str) -> Block:
    if isinstance(part, dict) and part.get("type") == "text" and isinstance(part.get("text"), str):
        return {"type": "text", "text": part["text"]}
    if isinstance(part, dict) and part.get("type") == "image_url" and isinstance(part.get("image_url"), dict):
        url = part["image_url"].get("url")
        head, comma, data = url.partition(";base64,") if isinstance(url, str) else ("", "", "")
        if comma and head.startswith("data:"):
            return {"type": "image", "data": data, "mediaType": head[len("data:") :]}
    raise WireError(f"{place} must be a text part, or an image part with a base64 data URL")


def _decode_tools(tools: Any) -> list[dict[str, Any]] | None:
    if tools is None:
        return None
    if not isinstance(tools, list):
        raise WireError("tools must be a list")
    specs = [tool.get("function") if isinstance(tool, dict) else None for tool in tools]
    if not all(isinstance(spec, dict) and isinstance(spec.get("name"), str) for spec in specs):
        raise WireError("every tool must be a function with a name")
    return [spec for spec in specs if spec is not None]


def _joined(blocks: Iterable[Block], kind: str) -> str:
    return _JOINT.join(block["text"] for block in blocks if block["type"] == kind)
