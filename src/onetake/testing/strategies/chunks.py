"""Streams of chunks as adapters give them: proper ones, and such as only a faulty adapter would give.

A proper stream opens each block, sends its deltas, closes it with the whole block and ends with a finish;
blocks may be interleaved, deltas empty, and surrogate pairs cut in two. A malformed one begins as a proper
one, perhaps without any start or end of a block, and then things happen to it: ends and starts come twice, or
not at all, deltas straggle in behind their block's end, fields have the wrong type. Both shrink to few chunks
with short texts.
"""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from onetake.model.types import Block, Chunk
from onetake.testing.strategies.text import json_values

_PIECES = st.sampled_from(["", "a", "b", " ", "\n", "\u2028", "é", "\ud83d", "\ude00", "{", '"'])
_PAIR = ("\ud83d", "\ude00")
# How many blocks an answer has, and how many deltas come while the newest block is the newest: the bugs live
# where several are open, which lists of Hypothesis seldom are long enough for.
_BLOCKS = st.sampled_from([0, 1, 2, 3, 3, 2])
_LENGTHS = st.sampled_from([0, 1, 2, 3, 4])
_INDICES = (0, 1, 2, 7)
_KINDS = ("text", "tool-call", "reasoning", "tool-call")
_DELTAS = {"text": "text-delta", "reasoning": "reasoning-delta"}
_WORDS = ("type", "index", "text", "id", "name", "argumentsDelta", "block", "blockType", "usage", "reason")
_TYPES = ("block-start", "text-delta", "reasoning-delta", "tool-call-delta", "block-end", "usage", "finish")


def chunk_streams() -> st.SearchStrategy[list[Chunk]]:
    """Draw a whole answer: every block opened, filled and closed, then usage and finish."""
    return _answers()


def malformed_streams() -> st.SearchStrategy[list[Any]]:
    """Draw what a faulty adapter gives: something happens to a proper answer, often several things."""
    return _spoiled()


def flush_places() -> st.SearchStrategy[set[int]]:
    """Draw behind which chunks of a stream it is flushed: behind some, or behind each."""
    return st.sets(st.integers(0, 20)) | st.just(set(range(100)))


def finishes() -> st.SearchStrategy[Chunk]:
    """Draw the end of an answer."""
    failed = {"message": "no", "code": "SERVER_ERROR"}
    kinds = st.sampled_from(["stop", "tool-calls", "max-tokens", "error", "max-tokens"])
    reasons = kinds.map(lambda kind: {"kind": kind} | ({"failure": failed} if kind == "error" else {}))
    states = st.sampled_from([None, {"response": {"id": "r1"}}])
    return st.builds(
        lambda reason, state: (
            {"type": "finish", "reason": reason} | ({} if state is None else {"replayState": state})
        ),
        reasons,
        states,
    )


@st.composite
def _answers(draw: st.DrawFn) -> list[Chunk]:
    chunks: list[Chunk] = []
    blocks: dict[int, Block] = {}
    for index in draw(st.permutations(_INDICES))[: draw(_BLOCKS)]:
        blocks[index] = _empty(draw(st.sampled_from(_KINDS)), f"call_{index}")
        chunks.append({"type": "block-start", "index": index, "blockType": blocks[index]["type"]})
        # Interleaved: any block that is open by now may go on.
        for _ in range(draw(_LENGTHS)):
            place = draw(st.sampled_from(list(blocks)))
            whole = draw(st.integers(0, 9)) < 9
            for piece in [draw(_PIECES)] if whole else _PAIR:
                chunks.append(_delta(blocks[place], place, piece))
    for index, block in blocks.items():
        chunks.append({"type": "block-end", "index": index, "block": block})
    usage = draw(st.none() | st.fixed_dictionaries({"inputTokens": st.integers(0, 9)}))
    if usage is not None:
        chunks.append({"type": "usage", "usage": usage})
    return [*chunks, draw(finishes())]


def _empty(kind: str, call_id: str) -> Block:
    if kind == "tool-call":
        return {"type": kind, "id": call_id, "name": "tool", "arguments": ""}
    return {"type": kind, "text": ""}


def _delta(block: Block, index: int, piece: str) -> Chunk:
    """The next delta of a block, which grows by it."""
    if block["type"] == "tool-call":
        block["arguments"] += piece
        named = {"id": block["id"], "name": block["name"]}
        return {"type": "tool-call-delta", "index": index, **named, "argumentsDelta": piece}
    block["text"] += piece
    return {"type": _DELTAS[block["type"]], "index": index, "text": piece}


# Without its end a block is what its deltas say, which is where assemblers go wrong.
_MISSING: list[tuple[str, ...]] = [(), ("block-end",), ("block-start",), ("block-start", "block-end")]
_EVENTS = ("lost", "again", "straggler", "end", "finish", "other index", "other type", "junk")
_OFTEN = ("straggler", "end", "finish")


@st.composite
def _spoiled(draw: st.DrawFn) -> list[Any]:
    missing = draw(st.sampled_from(_MISSING))
    stream: list[Any] = [chunk for chunk in draw(_answers()) if chunk["type"] not in missing]
    for _ in range(draw(st.sampled_from([0, 1, 2, 3, 4] if missing else [1, 2, 3, 4]))):
        at = draw(st.integers(0, len(stream)))
        what = draw(st.sampled_from(_EVENTS + _OFTEN))
        if what in ("straggler", "end"):
            at, delta, block = draw(_late(stream))
            stream.insert(at, delta if what == "straggler" else _end(delta["index"], block))
        elif what == "finish":
            stream.insert(at, draw(finishes()))
        elif what == "junk":
            stream.insert(at, draw(_junk()))
        elif at < len(stream):
            stream[at : at + 1] = _twisted(draw, what, stream[at])
    return stream


@st.composite
def _late(draw: st.DrawFn, stream: list[Any]) -> tuple[int, Chunk, Block]:
    """Draw a place behind the end of some block, and what may come there: a delta, and the block of it."""
    ends = [at for at, chunk in enumerate(stream) if _is_end(chunk)]
    after, index, kind = -1, draw(st.sampled_from(_INDICES)), draw(st.sampled_from(_KINDS))
    if ends:
        after = draw(st.sampled_from(ends))
        index = stream[after]["index"]
        kind = draw(st.sampled_from([stream[after]["block"]["type"], kind]))
    block = _empty(kind, "late")
    delta = _delta(block, index, draw(_PIECES))
    return draw(st.integers(after + 1, len(stream))), delta, block


def _is_end(chunk: Any) -> bool:
    return (
        isinstance(chunk, dict)
        and chunk.get("type") == "block-end"
        and chunk.get("index") in _INDICES
        and isinstance(chunk.get("block"), dict)
        and chunk["block"].get("type") in _KINDS
    )


def _end(index: int, block: Block) -> Chunk:
    return {"type": "block-end", "index": index, "block": block}


def _twisted(draw: st.DrawFn, what: str, chunk: Any) -> list[Any]:
    """What becomes of one chunk of a stream."""
    if what == "lost":
        return []
    if what == "again" or not isinstance(chunk, dict):
        return [chunk, chunk]
    if what == "other index":
        return [{**chunk, "index": draw(st.sampled_from([*_INDICES, -1, True, 1.0, "0", None]))}]
    return [{**chunk, "type": draw(st.sampled_from([*_TYPES, "future"]))}]


def _junk() -> st.SearchStrategy[Any]:
    """Draw something that is no usable chunk, though it may look like one."""
    values = st.sampled_from([*_TYPES, 0, 1]) | json_values()
    return json_values() | st.dictionaries(st.sampled_from(_WORDS), values, max_size=5)
