"""Answers of OpenAI's Responses as servers write them, with events between that nobody knows.

The events are written here from chunks and state by a second hand, which shares nothing with the encoder.
"""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from onetake.model.types import Chunk
from onetake.testing.strategies.text import texts
from onetake.testing.strategies.wire_chat import as_read, failures
from onetake.wire.errors import error_of_failure

RESPONSES_WORDS = (
    "type", "response", "item", "output_index", "item_id", "delta", "part", "content", "summary", "text",
    "arguments", "call_id", "name", "id", "status", "output", "usage", "input_tokens", "error", "code",
    "message", "reasoning", "function_call", "output_text", "response.created", "response.completed",
    "response.output_item.added", "response.output_item.done", "response.output_text.delta", "input",
)  # fmt: skip
"""The keys of the format's objects, and the types that decide what they are."""
_KINDS = {"message": "text", "reasoning": "reasoning", "function_call": "tool-call"}
_DELTAS = {
    "text": "response.output_text.delta",
    "reasoning": "response.reasoning_summary_text.delta",
    "tool-call": "response.function_call_arguments.delta",
}
_NOISE = {"type": "response.new_event", "of": {"a": [None]}}
_some_text = texts().map(as_read).filter(bool)


@st.composite
def responses_chunks(draw: st.DrawFn) -> list[Chunk]:
    """Draw the chunks of one model call that the format carries without loss: one block after the other."""
    chunks: list[Chunk] = []
    states: list[dict[str, Any]] = []
    added: list[dict[str, Any]] = []
    for index, kind in enumerate(draw(st.lists(st.sampled_from(sorted(_KINDS)), max_size=3))):
        ours = _KINDS[kind]
        pieces = draw(st.lists(texts().map(as_read), min_size=1, max_size=3))
        state: dict[str, Any] = {"type": kind, "id": f"item_{index}", "x": draw(texts().map(as_read))}
        named: dict[str, Any] = {}
        if kind == "function_call":
            named = {"id": f"call_{index}", "name": draw(_some_text)}
        elif kind == "message":
            state |= {"role": "assistant", "content": [{"type": "output_text", "annotations": []}]}
        else:
            state |= {"summary": [{"type": "summary_text"}], "encrypted_content": draw(_some_text)}
        head = {"call_id": named["id"], "name": named["name"], "arguments": ""} if named else {}
        added.append({"type": kind, "id": f"item_{index}", **head})
        block_key = "arguments" if named else "text"
        key = "argumentsDelta" if named else "text"
        chunks.append({"type": "block-start", "index": index, "blockType": ours})
        chunks += [{"type": f"{ours}-delta", "index": index, **named, key: piece} for piece in pieces]
        block = {"type": ours, **named, block_key: as_read("".join(pieces))}
        chunks.append({"type": "block-end", "index": index, "block": block})
        states.append(state)
    count = st.integers(0, 10**9)
    optional: dict[Any, Any] = {"cacheReadTokens": count, "reasoningTokens": count}
    usage = draw(st.fixed_dictionaries({"inputTokens": count, "outputTokens": count}, optional=optional))
    kind = draw(st.sampled_from(["complete", "complete", "max-tokens", "error"]))
    if kind == "error":
        return [*chunks, {"type": "finish", "reason": {"kind": kind, "failure": draw(failures())}}]
    final: dict[str, Any] = {"id": draw(_some_text), "status": "completed", "usage": _counts(usage)}
    if kind == "max-tokens":
        final |= {"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}}
    else:
        kind = "tool-calls" if any(state["type"] == "function_call" for state in states) else "stop"
    about = {"created": {"id": final["id"]}, "added": added, "final": final, "id": final["id"]}
    state = {"response": about, "blocks": states}
    finish: Chunk = {"type": "finish", "reason": {"kind": kind}, "replayState": state}
    return [*chunks, {"type": "usage", "usage": usage}, finish]


@st.composite
def responses_events(draw: st.DrawFn, chunks: list[Chunk]) -> list[tuple[str | None, Any]]:
    """Draw the events in which some server sends these chunks."""
    named, noise = draw(st.booleans()), draw(st.booleans())
    values = _spelled(chunks)
    if noise:
        values.insert(draw(st.integers(0, len(values) - 1)), _NOISE)
    return [(value["type"] if named else None, value) for value in values]


def _spelled(chunks: list[Chunk]) -> list[dict[str, Any]]:
    finish = chunks[-1]
    state = finish.get("replayState") or {"response": {"created": {}, "added": []}, "blocks": []}
    about, states = state["response"], state["blocks"]
    ends = {chunk["index"]: chunk["block"] for chunk in chunks if chunk["type"] == "block-end"}
    items = [_item(block, states[n] if states else {}, n) for n, block in ends.items()]
    values: list[dict[str, Any]] = [
        {"type": "response.created", "response": {**about["created"], "output": []}}
    ]
    for chunk in chunks[:-1]:
        place = {"output_index": chunk.get("index", 0)}
        if chunk["type"] == "block-start":
            item = about["added"][chunk["index"]] if states else _empty(items[chunk["index"]])
            values.append({"type": "response.output_item.added", **place, "item": item})
        elif chunk["type"] == "block-end":
            values.append({"type": "response.output_item.done", **place, "item": items[chunk["index"]]})
        elif chunk["type"] != "usage":
            piece = chunk.get("argumentsDelta", chunk.get("text"))
            kind = _DELTAS[chunk["type"].removesuffix("-delta")]
            values.append({"type": kind, **place, "delta": piece})
    if "failure" in finish["reason"]:
        error = error_of_failure(finish["reason"]["failure"])
        return [*values, {"type": "response.failed", "response": {"error": error}}]
    final = about["final"]
    return [*values, {"type": f"response.{final['status']}", "response": {**final, "output": items}}]


def _item(block: dict[str, Any], state: dict[str, Any], number: int) -> dict[str, Any]:
    if block["type"] == "tool-call":
        head = {"type": "function_call", **state, "call_id": block["id"], "name": block["name"]}
        return {**head, "arguments": block["arguments"]}
    key = "content" if block["type"] == "text" else "summary"
    kind, part = ("message", "output_text") if key == "content" else ("reasoning", "summary_text")
    parts = state.get(key) or [{"type": part}]
    return {"type": kind, "id": f"item_{number}", **state, key: [{**parts[0], "text": block["text"]}]}


def _empty(item: dict[str, Any]) -> dict[str, Any]:
    blank: dict[str, Any] = {"content": [], "summary": [], "arguments": ""}
    return {key: blank.get(key, value) for key, value in item.items()}


def _counts(usage: dict[str, int]) -> dict[str, Any]:
    cached = usage.get("cacheReadTokens", 0)
    counts: dict[str, Any] = {"input_tokens": usage["inputTokens"] + cached}
    counts["output_tokens"] = usage["outputTokens"]
    if "cacheReadTokens" in usage:
        counts["input_tokens_details"] = {"cached_tokens": cached}
    if "reasoningTokens" in usage:
        counts["output_tokens_details"] = {"reasoning_tokens": usage["reasoningTokens"]}
    return counts
