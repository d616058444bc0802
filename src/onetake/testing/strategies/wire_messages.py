"""Answers of Anthropic's Messages as servers really write them: with pings, citations and unknown events.

The chunks carry the `replayState` that a decoder must find, so the events are written here from chunks and
state by a second hand, which shares nothing with the encoder.
"""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from onetake.model.types import Chunk
from onetake.testing.strategies.text import texts
from onetake.testing.strategies.wire_chat import as_read, failures
from onetake.wire.errors import error_of_failure

MESSAGES_WORDS = (
    "type", "message", "index", "content_block", "delta", "text", "thinking", "signature", "partial_json",
    "input", "id", "name", "usage", "input_tokens", "output_tokens", "stop_reason", "error", "content",
    "message_start", "content_block_start", "content_block_delta", "content_block_stop", "message_delta",
    "message_stop", "text_delta", "input_json_delta", "thinking_delta", "signature_delta", "tool_use", "ping",
)  # fmt: skip
"""The keys of the format's objects, and the types that decide what they are."""
_KINDS = {"text": "text", "thinking": "reasoning", "redacted_thinking": "reasoning", "tool_use": "tool-call"}
_STOPS = {"stop": "end_turn", "tool-calls": "tool_use", "max-tokens": "max_tokens"}
_NOISE: list[dict[str, Any]] = [{"type": "ping"}, {"type": "new_event", "of": {"a": [None]}}]
_some_text = texts().map(as_read).filter(bool)


@st.composite
def messages_chunks(draw: st.DrawFn) -> list[Chunk]:
    """Draw the chunks of one model call that the format carries without loss: one block after the other."""
    chunks: list[Chunk] = []
    states: list[dict[str, Any]] = []
    pieces = st.lists(texts().map(as_read), max_size=3)
    for index, kind in enumerate(draw(st.lists(st.sampled_from(sorted(_KINDS)), max_size=4))):
        ours = _KINDS[kind]
        state: dict[str, Any] = {"type": kind}
        if kind == "redacted_thinking":
            state["data"] = draw(_some_text)
        elif kind == "thinking" and draw(st.booleans()):
            state["signature"] = draw(_some_text)
        block: dict[str, Any] = {"type": ours}
        if kind == "tool_use":
            block.update(id=f"toolu_{index}", name=draw(_some_text))
        said = [] if kind == "redacted_thinking" else draw(pieces)
        block["arguments" if kind == "tool_use" else "text"] = as_read("".join(said))
        chunks.append({"type": "block-start", "index": index, "blockType": ours})
        named: dict[str, Any] = {key: block[key] for key in ("id", "name") if key in block}
        key = "argumentsDelta" if kind == "tool_use" else "text"
        chunks += [{"type": f"{ours}-delta", "index": index, **named, key: piece} for piece in said]
        chunks.append({"type": "block-end", "index": index, "block": block})
        states.append(state)
    count = st.integers(0, 10**9)
    optional: dict[Any, Any] = {"cacheReadTokens": count, "cacheWriteTokens": count}
    usage = draw(st.fixed_dictionaries({"inputTokens": count, "outputTokens": count}, optional=optional))
    ending = draw(st.sampled_from(["complete", "complete", "max-tokens", "error"]))
    if ending == "error":
        told: list[Chunk] = draw(st.sampled_from([[], [{"type": "usage", "usage": usage}]]))
        return [*chunks, *told, {"type": "finish", "reason": {"kind": "error", "failure": draw(failures())}}]
    calls = any(state["type"] == "tool_use" for state in states)
    kind = ("tool-calls" if calls else "stop") if ending == "complete" else ending
    if kind == "max-tokens":
        states = [state for state in states if state["type"] != "tool_use"]
    message = {"id": draw(_some_text), "type": "message", "role": "assistant", "model": "m", "usage": {}}
    delta = {"delta": {"stop_reason": _STOPS[kind], "stop_sequence": None}, "usage": _counts(usage)}
    response = {"message": message, "delta": delta, "events": []}
    plain = len(_spell_plain([*chunks, _finish(kind, response, states)]))
    places = sorted(draw(st.lists(st.integers(0, plain - 1), max_size=3)))
    response["events"] = [
        {"at": place + number, "event": draw(st.sampled_from(_NOISE))} for number, place in enumerate(places)
    ]
    return [*chunks, {"type": "usage", "usage": usage}, _finish(kind, response, states)]


@st.composite
def messages_events(draw: st.DrawFn, chunks: list[Chunk]) -> list[tuple[str | None, Any]]:
    """Draw the events in which some server sends these chunks: not all of them name an event's type."""
    named = draw(st.booleans())
    values = _spell_plain(chunks)
    for kept in (chunks[-1].get("replayState") or {"response": {"events": []}})["response"]["events"]:
        values.insert(kept["at"], kept["event"])
    return [(value["type"] if named else None, value) for value in values]


def _finish(kind: str, response: dict[str, Any], states: list[dict[str, Any]]) -> Chunk:
    state = {"response": response, "blocks": states}
    return {"type": "finish", "reason": {"kind": kind}, "replayState": state}


def _counts(usage: dict[str, int]) -> dict[str, int]:
    names = {"cacheReadTokens": "cache_read_input_tokens", "cacheWriteTokens": "cache_creation_input_tokens"}
    names |= {"inputTokens": "input_tokens", "outputTokens": "output_tokens"}
    return {names[key]: count for key, count in usage.items()}


def _spell_plain(chunks: list[Chunk]) -> list[dict[str, Any]]:
    """The events of an answer without what stands between them."""
    finish = chunks[-1]
    state = finish.get("replayState") or {"response": {"message": {}}, "blocks": []}
    values: list[dict[str, Any]] = [
        {"type": "message_start", "message": {**state["response"]["message"], "content": []}}
    ]
    cut = finish["reason"]["kind"] == "max-tokens"
    states = iter(state["blocks"])
    ends = {chunk["index"]: chunk["block"] for chunk in chunks if chunk["type"] == "block-end"}
    current: dict[str, Any] = {}
    for chunk in chunks:
        kind: str = chunk["type"]
        index: int = chunk.get("index", 0)
        if kind == "block-start":
            ours = chunk["blockType"]
            wire = {"text": "text", "reasoning": "thinking", "tool-call": "tool_use"}[ours]
            current = {} if cut and ours == "tool-call" else next(states, {})
            part: dict[str, Any] = {"type": wire}
            if wire == "tool_use":
                part |= {"id": ends[index]["id"], "name": ends[index]["name"], "input": {}}
            elif current.get("type") == "redacted_thinking":
                part = current
            else:
                part |= {"text": ""} if wire == "text" else {"thinking": "", "signature": ""}
            values.append({"type": "content_block_start", "index": index, "content_block": part})
        elif kind == "block-end":
            if current.get("signature"):
                values.append(_delta(index, "signature_delta", "signature", current["signature"]))
            values.append({"type": "content_block_stop", "index": index})
        elif kind == "text-delta":
            values.append(_delta(index, "text_delta", "text", chunk["text"]))
        elif kind == "reasoning-delta":
            values.append(_delta(index, "thinking_delta", "thinking", chunk["text"]))
        elif kind == "tool-call-delta":
            values.append(_delta(index, "input_json_delta", "partial_json", chunk["argumentsDelta"]))
        elif kind == "usage" and "failure" in finish["reason"]:
            values.append({"type": "message_delta", "delta": {}, "usage": _counts(chunk["usage"])})
    if "failure" in finish["reason"]:
        return [*values, {"type": "error", "error": error_of_failure(finish["reason"]["failure"])}]
    return [*values, {"type": "message_delta", **state["response"]["delta"]}, {"type": "message_stop"}]


def _delta(index: Any, kind: str, key: str, piece: str) -> dict[str, Any]:
    return {"type": "content_block_delta", "index": index, "delta": {"type": kind, key: piece}}
