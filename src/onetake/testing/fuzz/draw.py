"""Strategies of Hypothesis for the fuzzer's scripts.

Realistic rather than uniform: most prompts get an answer, some streams are malformed, some calls fail or
hang, and things happen at every moment. Tools are those that the agent has offered to the model, called with
values that do no harm where they run: nobody wants his disk fuzzed.
"""

from __future__ import annotations

from typing import Any

import msgspec
from hypothesis import strategies as st

from onetake.testing.fuzz.steps import (
    ANSWERS,
    ENDINGS,
    STRAYS,
    AwaitModel,
    Cancel,
    Case,
    NewSession,
    Pause,
    Prompt,
    Restart,
    Settle,
    Step,
    Stray,
)
from onetake.testing.strategies.chunks import chunk_streams, malformed_streams
from onetake.testing.strategies.text import texts
from onetake.wire.chat import ChatStreamEncoder

_HOSTILE = (
    "hello", "", " ", "{{cwd}}", "\u202etxt.exe", "data: [DONE]\n\n", "<|im_end|>", '"}\n{"jsonrpc":"2.0"}',
    "\x1b[31m", "```", "e\u0301\U0001f468\u200d\U0001f469", "line\r\nline\u2028line",
)  # fmt: skip
_LONG = "x" * 70_000
"""More than many a reader of lines takes."""
_VALUES = ("echo hello", "exit 3", "sleep 0.3", "sleep 30 & echo hello", "no/such/file")
"""What tools get for texts: commands, names and words at once, of no consequence as any."""
_STATUSES = (400, 401, 403, 404, 408, 409, 422, 429, 500, 503, 529)
_PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="


class Known(msgspec.Struct, frozen=True):
    """What an agent has shown of itself."""

    tools: list[dict[str, Any]] = []
    """The functions that it offered to the model, with `name` and `parameters`."""
    capabilities: dict[str, Any] = {}
    """Its `agentCapabilities`."""


def known_from(requests: list[Any], capabilities: dict[str, Any]) -> Known:
    """Find the tools in what the model was asked."""
    tools = [tool for body in requests[:1] for tool in body.get("tools") or []]
    return Known([tool["function"] for tool in tools if tool.get("type") == "function"], capabilities)


def cases(known: Known) -> st.SearchStrategy[Case]:
    """Draw a script for an agent: never a short one, since each costs the start of an agent."""
    sessions = st.sampled_from([0, 1, 2]).map(lambda more: [NewSession()] * more)
    steps = st.lists(_steps(known), min_size=10, max_size=40)
    return st.builds(
        Case,
        steps=st.tuples(sessions, steps).map(lambda parts: [*parts[0], *parts[1]]),
        permission_answers=st.lists(st.sampled_from(ANSWERS), max_size=6),
        replies=st.lists(replies(known), min_size=3, max_size=20),
    )


def replies(known: Known) -> st.SearchStrategy[dict[str, Any]]:
    """Draw a reply as `onetake mock-model` takes it: an answer, malformed or broken off or failed or not."""
    text = texts() | st.sampled_from(_HOSTILE)
    some = st.sampled_from(["", "partial"])
    calls = st.lists(_calls(known), min_size=1, max_size=3)
    errors = st.fixed_dictionaries(
        {"status": st.sampled_from(_STATUSES), "message": st.sampled_from(["no", ""])},
        optional={"code": st.sampled_from(["rate_limit_exceeded", "context_length_exceeded"])},
    ).map(lambda error: {**error, "retryAfterMs": 1})
    streams = (chunk_streams() | malformed_streams()).map(_sendable)
    return st.one_of(
        st.fixed_dictionaries({"text": text}, optional={"reasoning": text, "finish": st.just("max-tokens")}),
        st.fixed_dictionaries({"toolCalls": calls}, optional={"text": text}),
        st.fixed_dictionaries(
            {"text": text, "deltaChars": st.just(1), "delayMs": st.sampled_from([1, 5, 20])}
        ),
        st.fixed_dictionaries({"hang": st.just(True)}),
        st.fixed_dictionaries({"text": some, "hang": st.just(True)}),
        st.fixed_dictionaries({"text": some, "error": errors}),
        st.fixed_dictionaries({"chunks": streams}),
        st.just({"text": _LONG, "deltaChars": 10_000}),
    )


def _steps(known: Known) -> st.SearchStrategy[Step]:
    sessions = st.integers(0, 3)
    prompts = st.builds(Prompt, sessions, st.lists(_blocks(known), min_size=1, max_size=3))
    often: dict[
        st.SearchStrategy[Step], int
    ] = {  # how often, beside the others; a restart costs more than all others together
        prompts: 10,
        st.builds(Settle, sessions): 6,
        st.builds(Cancel, sessions): 4,
        st.builds(AwaitModel): 3,
        st.builds(Pause, st.sampled_from([0, 1, 5, 20])): 3,
        st.builds(NewSession): 2,
        st.builds(Stray, st.sampled_from(STRAYS)): 2,
        st.builds(Restart, st.sampled_from(ENDINGS)): 1,
    }
    # `one_of` would take a strategy that is there many times as there once.
    weighted = [strategy for strategy, times in often.items() for _ in range(times)]
    return st.sampled_from(weighted).flatmap(lambda strategy: strategy)


def _blocks(known: Known) -> st.SearchStrategy[dict[str, Any]]:
    """Draw a content block of a prompt, of a type that the agent takes."""
    offered = known.capabilities.get("promptCapabilities")
    takes = offered if isinstance(offered, dict) else {}
    text = texts() | st.sampled_from([*_HOSTILE, _LONG])
    kinds = [
        text.map(lambda words: {"type": "text", "text": words}),
        text.map(lambda name: {"type": "resource_link", "name": name, "uri": "file:///no/such/file"}),
    ]
    if takes.get("image") is True:
        kinds.append(st.just({"type": "image", "mimeType": "image/png", "data": _PIXEL}))
    if takes.get("audio") is True:
        kinds.append(st.just({"type": "audio", "mimeType": "audio/wav", "data": "UklGRg=="}))
    if takes.get("embeddedContext") is True:
        kinds.append(text.map(_resource))
    return st.one_of(kinds)


def _resource(text: str) -> dict[str, Any]:
    resource = {"uri": "file:///no/such/file", "mimeType": "text/plain", "text": text}
    return {"type": "resource", "resource": resource}


def _calls(known: Known) -> st.SearchStrategy[dict[str, Any]]:
    """Draw a tool call: of a tool that there is, or of none; with sound arguments, or with junk."""
    junk = st.sampled_from(["", "{", "[]", "null", '{"no_such_argument": 1}'])
    kinds = [
        st.builds(lambda name, arguments: {"name": name, "arguments": arguments}, st.just(name), values)
        for tool in known.tools
        for name, values in [(tool["name"], _arguments(tool.get("parameters") or {}) | junk)]
    ]
    return st.one_of(*kinds, junk.map(lambda raw: {"name": "no_such_tool", "arguments": raw}))


def _arguments(schema: Any) -> st.SearchStrategy[dict[str, Any]]:
    """Draw arguments for a tool's parameters, as far as their schema is plain."""
    properties = schema.get("properties") if isinstance(schema, dict) else None
    fields = {name: _value(field) for name, field in (properties or {}).items()}
    required = schema.get("required") or [] if isinstance(schema, dict) else []
    return st.fixed_dictionaries(
        {name: value for name, value in fields.items() if name in required},
        optional={name: value for name, value in fields.items() if name not in required},
    )


def _value(field: Any) -> st.SearchStrategy[Any]:
    kind = field.get("type") if isinstance(field, dict) else None
    if isinstance(field, dict) and field.get("enum"):
        return st.sampled_from(field["enum"])
    if kind == "object":
        return _arguments(field)
    if kind == "array":
        return st.lists(_value(field.get("items")), max_size=2)
    plain: dict[Any, st.SearchStrategy[Any]] = {
        "integer": st.integers(0, 3),
        "number": st.integers(0, 3),
        "boolean": st.booleans(),
        "null": st.none(),
    }
    return plain.get(kind, st.sampled_from(_VALUES))


def _sendable(chunks: list[Any]) -> list[Any]:
    """What of a stream can be written at all: a server sends what is malformed, but nothing unspeakable."""
    left = [chunk for chunk in chunks if isinstance(chunk, dict)]
    while (bad := _first_unsendable(left)) is not None:
        del left[bad]
    return left


def _first_unsendable(chunks: list[Any]) -> int | None:
    encoder = ChatStreamEncoder("")
    for number, chunk in enumerate(chunks):
        try:
            encoder.push(chunk)
        except Exception:  # whatever a malformed chunk makes of the encoder
            return number
    return None
