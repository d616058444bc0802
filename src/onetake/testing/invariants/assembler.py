"""What holds for whatever makes blocks of a stream of chunks, however the stream looks.

The meaning of a stream is spelled out once more here (`meaning`), in the plainest way and without flushing,
so that an assembler which is fast, incremental or tolerant can be compared with it. A subject is a factory of
assemblers; each check makes the ones that it needs.
"""

from __future__ import annotations

import tracemalloc
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Sequence
from typing import Any, Protocol

from onetake.model.types import Block, Chunk, Reason
from onetake.testing.errors import InvariantViolation


class Assembler(Protocol):
    """Takes the chunks of one call, such as `onetake.model.assembler.BlockAssembler`."""

    def push(self, chunk: Any) -> None:
        """Take the next chunk, whatever it is."""
        ...

    def blocks(self) -> list[Block]:
        """All blocks so far."""
        ...

    def flush_ready(self) -> Iterable[Block]:
        """The next blocks that are certain by now."""
        ...

    def flush_remaining(self) -> Iterable[Block]:
        """The rest, at the end of the stream."""
        ...

    @property
    def finish(self) -> Reason:
        """Why the call ended."""
        ...


New = Callable[[], Assembler]

_TEXTS = {"text-delta": "text", "reasoning-delta": "reasoning"}


def meaning(chunks: Iterable[Any]) -> list[Block]:
    """The blocks that a stream means, by the rules of section 4 of the design.

    A block is what its first end says, else what its deltas say together; blocks are ordered by first
    appearance; the first chunk of an index decides the type; whatever comes behind an end does not count.
    """
    opened: dict[int, Block] = {}
    ended: set[int] = set()
    touched: set[int] = set()
    for chunk in chunks:
        index = chunk.get("index") if isinstance(chunk, dict) else None
        if type(index) is not int or index in ended:
            continue
        kind, known = chunk.get("type"), index in opened
        if kind == "block-start" and type(chunk.get("blockType")) is str and not known:
            opened[index] = _empty(chunk["blockType"])
        elif kind in _TEXTS and type(chunk.get("text")) is str:
            block = opened.setdefault(index, _empty(_TEXTS[kind]))
            if block["type"] == _TEXTS[kind]:
                block["text"] += chunk["text"]
                touched |= {index} if chunk["text"] else set()
        elif kind == "tool-call-delta" and type(chunk.get("argumentsDelta")) is str:
            block = opened.setdefault(index, _empty("tool-call"))
            if block["type"] == "tool-call":
                block["arguments"] += chunk["argumentsDelta"]
                for name in ("id", "name"):
                    if not block[name] and type(chunk.get(name)) is str:
                        block[name] = chunk[name]
                touched |= {index} if block["id"] or block["name"] or block["arguments"] else set()
        elif kind == "block-end":
            block = chunk.get("block")
            usable = isinstance(block, dict) and type(block.get("type")) is str
            if usable or known:
                opened[index] = dict(block) if usable else opened[index]
                ended.add(index)
    dropped = _drops(finish_of(chunks))
    return [
        block
        for index, block in opened.items()
        if (index in ended or index in touched) and not (dropped and block["type"] == "tool-call")
    ]


def finish_of(chunks: Iterable[Any]) -> Reason:
    """The reason of the last finish that has one; `stop` when none has."""
    found: Reason = {"kind": "stop"}
    for chunk in filter(_is_finish, chunks):
        found = chunk["reason"]
    return found


def _is_finish(chunk: Any) -> bool:
    reason = chunk.get("reason") if isinstance(chunk, dict) and chunk.get("type") == "finish" else None
    return isinstance(reason, dict) and type(reason.get("kind")) is str


def _drops(reason: Reason) -> bool:
    """Whether tool calls are dropped: their arguments may be cut anywhere."""
    return bool(reason["kind"] == "max-tokens")


def _empty(kind: str) -> Block:
    if kind == "tool-call":
        return {"type": kind, "id": "", "name": "", "arguments": ""}
    return {"type": kind, "text": ""} if kind in ("text", "reasoning") else {"type": kind}


def check_blocks(new: New, chunks: Sequence[Any]) -> None:
    """The blocks of a stream are what the stream means, and nothing raises."""
    came, expected = assembled(new, chunks).blocks(), meaning(chunks)
    if came != expected:
        raise InvariantViolation(f"the blocks: expected {expected!r}, came {came!r} of {chunks!r}")


def check_flushes(new: New, chunks: Sequence[Any], places: Collection[int]) -> None:
    """Blocks that are flushed at any `places`, and the rest at the end, are the blocks, each once, in order.

    What is handed on cannot be taken back, and at a finish the subject may hand on all that is closed. So a
    stream is given with its finish at the end, and without earlier ones that say otherwise about tool calls:
    of finishes that contradict each other, no subject could know the last.
    """
    last = finish_of(chunks)
    whole = [chunk for chunk in chunks if _drops(finish_of([chunk])) == _drops(last) or not _is_finish(chunk)]
    whole.append({"type": "finish", "reason": last})
    subject = new()
    flushed: list[Block] = []
    for place, chunk in enumerate(whole):
        _push(subject, chunk, whole)
        if place in places:
            flushed += subject.flush_ready()
    flushed += subject.flush_remaining()
    if flushed != subject.blocks():
        raise InvariantViolation(
            f"flushed at {sorted(places)}: expected {subject.blocks()!r}, came {flushed!r} of {whole!r}"
        )


def check_bounded(new: New, chunks: Sequence[Any]) -> None:
    """There are never more blocks than distinct indices."""
    indices = {
        chunk["index"] for chunk in chunks if isinstance(chunk, dict) and type(chunk.get("index")) is int
    }
    count = len(assembled(new, chunks).blocks())
    if count > len(indices):
        raise InvariantViolation(f"{count} blocks came of {len(indices)} indices, in {chunks!r}")


_SAYING_NOTHING: list[Chunk] = [
    {"type": "text-delta", "index": 1, "text": ""},
    {"type": "text-delta", "index": 0, "text": "late"},
    {"type": "block-end", "index": 0, "block": {"type": "text", "text": "again"}},
    {"type": "block-start", "index": 2, "blockType": "text"},
    {"type": "usage", "usage": {"inputTokens": 1}},
]


def check_memory(new: New, *, chunks: int = 1_000_000, most: int = 10_000) -> None:
    """Chunks that add nothing keep nothing: `chunks` of them leave no more than `most` bytes behind.

    They are empty deltas, stragglers, repeated starts and ends, and usage. Takes about half a second.
    """
    subject = new()
    _push(subject, {"type": "block-end", "index": 0, "block": {"type": "text", "text": "over"}}, ())
    for chunk in _SAYING_NOTHING:  # whatever is allocated once is allocated now
        _push(subject, chunk, ())
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        for _ in range(chunks // len(_SAYING_NOTHING)):
            for chunk in _SAYING_NOTHING:
                subject.push(chunk)
        grown = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    if grown > most:
        raise InvariantViolation(
            f"{chunks} chunks that add nothing left {grown} bytes, expected at most {most}"
        )
    if (came := subject.blocks()) != [{"type": "text", "text": "over"}]:
        raise InvariantViolation(f"chunks that add nothing changed the blocks: came {came!r}")


def check_reassembly(new: New, chunks: Sequence[Any]) -> None:
    """Blocks, sent again as a start and an end each, are the same blocks."""
    blocks = assembled(new, chunks).blocks()
    again: list[Chunk] = []
    for index, block in enumerate(blocks):
        again.append({"type": "block-start", "index": index, "blockType": block["type"]})
        again.append({"type": "block-end", "index": index, "block": block})
    came = assembled(new, again).blocks()
    if came != blocks:
        raise InvariantViolation(f"assembled again: expected {blocks!r}, came {came!r}")


def check_cuts(new: New, chunks: Sequence[Chunk], places: Sequence[int]) -> None:
    """Where a proper stream's deltas are cut makes no difference. `places`: the cuts, counted round."""
    finer: list[Chunk] = []
    for number, chunk in enumerate(chunks):
        key = {"text-delta": "text", "reasoning-delta": "text", "tool-call-delta": "argumentsDelta"}.get(
            chunk["type"]
        )
        if key is None or not places:
            finer.append(chunk)
            continue
        at = places[number % len(places)] % (len(chunk[key]) + 1)
        finer += [{**chunk, key: chunk[key][:at]}, {**chunk, key: chunk[key][at:]}]
    one, other = assembled(new, chunks).blocks(), assembled(new, finer).blocks()
    if one != other:
        raise InvariantViolation(f"cut finer: expected {one!r}, came {other!r}")


def check_finish(new: New, chunks: Sequence[Any]) -> None:
    """The finish is the last one that says why; without any it is `stop`."""
    came, expected = assembled(new, chunks).finish, finish_of(chunks)
    if came != expected:
        raise InvariantViolation(f"the finish: expected {expected!r}, came {came!r} of {chunks!r}")


async def check_streams(
    stream_blocks: Callable[[AsyncIterator[Any]], AsyncIterator[Block]],
    whole_content: Callable[[AsyncIterator[Any]], Awaitable[list[Block]]],
    chunks: Sequence[Any],
) -> None:
    """Blocks that are handed on while a call runs are the content that the whole call comes to.

    For streams whose finish is their last word.
    """

    async def replayed() -> AsyncIterator[Any]:
        for chunk in chunks:
            yield chunk

    streamed = [block async for block in stream_blocks(replayed())]
    content = await whole_content(replayed())
    if streamed != content:
        raise InvariantViolation(f"streamed: expected {content!r}, came {streamed!r} of {chunks!r}")


def assembled(new: New, chunks: Sequence[Any]) -> Assembler:
    """An assembler that has taken all chunks. Raises InvariantViolation when it refuses one."""
    subject = new()
    for chunk in chunks:
        _push(subject, chunk, chunks)
    return subject


def _push(subject: Assembler, chunk: Any, chunks: Sequence[Any]) -> None:
    try:
        subject.push(chunk)
    except Exception as error:
        raise InvariantViolation(
            f"nothing makes an assembler raise: {type(error).__name__}: {error} at {chunk!r} of {chunks!r}"
        ) from error
