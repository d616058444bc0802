"""Strategies for the wire formats: texts, failures, and the chunk streams that chat completions carry."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from onetake.wire.errors import KNOWN_CODES


def as_read(value: str) -> str:
    """Return a text as JSON gives it back: two surrogates that make a pair are one character."""
    return value.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")


texts = st.text(
    st.one_of(st.characters(), st.sampled_from("\n\r\u2028\u0085\ufeff:\0"), st.characters(categories=["Cs"]))
).map(as_read)
some_text = texts.filter(bool)
sendable = st.text(st.characters(codec="utf-8"))
counts = st.integers(0, 10**9)
usages = st.fixed_dictionaries(
    {"inputTokens": counts, "outputTokens": counts},
    optional={"cacheReadTokens": counts, "reasoningTokens": counts},
)
failures = st.fixed_dictionaries(
    {"message": texts.map(lambda text: f"m{text[:500]}"), "code": st.sampled_from(KNOWN_CODES)},
    optional={"status": st.integers(400, 599), "providerRetryAfterMs": counts},
)


@st.composite
def chunk_streams(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Draw a stream that the chat-completions format carries."""
    chunks: list[dict[str, Any]] = []
    blocks: list[dict[str, Any]] = []
    calls: list[int] = []

    def open_block(block: dict[str, Any]) -> int:
        chunks.append({"type": "block-start", "index": len(blocks), "blockType": block["type"]})
        blocks.append(block)
        return len(blocks) - 1

    for kind in draw(st.lists(st.sampled_from(["text", "reasoning", "new call", "call"]), max_size=12)):
        if kind in ("text", "reasoning"):
            last = len(blocks) - 1
            index = (
                last if blocks and blocks[last]["type"] == kind else open_block({"type": kind, "text": ""})
            )
            piece = draw(some_text)
            blocks[index]["text"] += piece
            chunks.append({"type": f"{kind}-delta", "index": index, "text": piece})
            continue
        if kind == "new call" or not calls:
            named = {"id": f"id{len(calls)}", "name": draw(some_text)}
            calls.append(open_block({"type": "tool-call", **named, "arguments": ""}))
        index = draw(st.sampled_from(calls)) if kind == "call" else calls[-1]
        piece = draw(texts)
        block = blocks[index]
        block["arguments"] += piece
        named = {"id": block["id"], "name": block["name"]}
        chunks.append({"type": "tool-call-delta", "index": index, **named, "argumentsDelta": piece})
    ending = draw(st.sampled_from(["complete", "max-tokens", "error"]))
    usage = draw(st.none() | usages)
    tail = [] if usage is None else [{"type": "usage", "usage": usage}]
    if ending == "error":
        reason = {"kind": "error", "failure": draw(failures)}
        return [*chunks, *tail, {"type": "finish", "reason": reason}]
    for index, block in enumerate(blocks):
        key = "arguments" if block["type"] == "tool-call" else "text"
        chunks.append({"type": "block-end", "index": index, "block": {**block, key: as_read(block[key])}})
    kind = ("tool-calls" if calls else "stop") if ending == "complete" else ending
    return [*chunks, *tail, {"type": "finish", "reason": {"kind": kind}}]


@st.composite
def cut(draw: st.DrawFn, data: bytes) -> list[bytes]:
    """Draw a way to cut bytes into segments, empty ones included."""
    places = draw(st.lists(st.integers(0, len(data)), max_size=20).map(sorted))
    return [data[a:b] for a, b in zip([0, *places], [*places, len(data)], strict=True)]
