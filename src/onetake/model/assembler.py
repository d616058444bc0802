"""Chunks into blocks: the one assembly algorithm that live calls, replay, derivation and refresh share.

The rules:

- A block is known by its `index`, and there is at most one block per index, so memory beyond the text itself
  is bounded by the number of distinct indices. Blocks are ordered by first appearance. (Every recording that
  we have seen appears in index order, so the choice shows only for adapters that interleave; appearance is
  the order that can be flushed while the stream still runs.)
- `block-start`, a delta or a `block-end` of an unseen index opens the block. The first one decides its type;
  a delta of another type is ignored.
- The first `block-end` closes the block and its `block` is the truth. Whatever comes later for that
  index (deltas, another start, another end) is a straggler and ignored.
- A tool call keeps the first non-empty `id` and the first non-empty `name` of its deltas.
- The last `usage` and the last `finish` count. Without a `finish` the reason reads as `stop`; `finished`
  tells the difference.
- When the reason is `max-tokens`, tool calls are dropped: their arguments may be cut anywhere.
- Blocks that were opened but never got any content nor an end are left out of every result.

Nothing here raises on malformed chunks. A chunk that is no dictionary, has an unknown type, or has a required
field that is missing or of the wrong type is ignored as a whole, with one exception: a `block-end` of an open
block whose `block` is unusable still closes it, with what has arrived. (A tool call's deltas need not carry
`id` and `name`.)
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import msgspec

from onetake.model.types import Block, Chunk, Message, Reason, Usage

_DELTA_TYPES = {"text-delta": "text", "reasoning-delta": "reasoning"}
_NO_BLOCKS: tuple[Block, ...] = ()


class _Part:
    """One block on its way: collected pieces until it is closed, the final block afterwards."""

    __slots__ = ("block", "call_id", "name", "pieces", "type")

    def __init__(self, type_: str) -> None:
        self.type = type_
        self.pieces: list[str] = []
        self.call_id = ""
        self.name = ""
        self.block: Block | None = None

    def close(self, block: Block | None) -> None:
        """Fix the block: the given one, or what has arrived when there is none that could be used."""
        self.block = block if block is not None else self.rendered()
        self.type = self.block["type"]
        self.pieces = []

    def is_void(self) -> bool:
        """Tell whether the block was announced only: never closed, and nothing arrived."""
        return self.block is None and not self.pieces and not self.call_id and not self.name

    def rendered(self) -> Block:
        """Return the block as far as it is known, as a dictionary of its own."""
        if self.block is not None:
            return dict(self.block)
        if len(self.pieces) > 1:
            self.pieces = ["".join(self.pieces)]
        text = self.pieces[0] if self.pieces else ""
        if self.type == "tool-call":
            return {"type": "tool-call", "id": self.call_id, "name": self.name, "arguments": text}
        if self.type in ("text", "reasoning"):
            return {"type": self.type, "text": text}
        return {"type": self.type}


class BlockAssembler:
    """Assembles the chunks of one model call; see the module docstring for the rules."""

    def __init__(self) -> None:
        self._parts: dict[int, _Part] = {}
        self._order: list[_Part] = []
        self._flushed = 0
        self._usage: Usage | None = None
        self._finish: Chunk | None = None

    def push(self, chunk: Chunk | Any) -> None:
        """Take the next chunk of the stream; malformed ones are ignored, never an error."""
        if not isinstance(chunk, dict):
            return
        kind = chunk.get("type")
        if kind == "text-delta" or kind == "reasoning-delta":
            text = chunk.get("text")
            if type(text) is str:
                part = self._part(chunk.get("index"), _DELTA_TYPES[kind])
                if part is not None and text:
                    part.pieces.append(text)
        elif kind == "tool-call-delta":
            self._push_tool_call(chunk)
        elif kind == "block-start":
            block_type = chunk.get("blockType")
            if type(block_type) is str:
                self._part(chunk.get("index"), block_type)
        elif kind == "block-end":
            self._push_end(chunk)
        elif kind == "usage":
            usage = chunk.get("usage")
            if isinstance(usage, dict):
                self._usage = usage
        elif kind == "finish" and is_finish(chunk):
            self._finish = chunk

    def _part(self, index: Any, type_: str) -> _Part | None:
        """Return the open block of that index, opening it if need be; None: the chunk must be ignored."""
        if type(index) is not int:
            return None
        part = self._parts.get(index)
        if part is None:
            part = self._parts[index] = _Part(type_)
            self._order.append(part)
            return part
        return part if part.block is None and part.type == type_ else None

    def _push_tool_call(self, chunk: Chunk) -> None:
        piece = chunk.get("argumentsDelta")
        if type(piece) is not str:
            return
        part = self._part(chunk.get("index"), "tool-call")
        if part is None:
            return
        if piece:
            part.pieces.append(piece)
        if not part.call_id and type(call_id := chunk.get("id")) is str:
            part.call_id = call_id
        if not part.name and type(name := chunk.get("name")) is str:
            part.name = name

    def _push_end(self, chunk: Chunk) -> None:
        index, block = chunk.get("index"), chunk.get("block")
        if type(index) is not int:
            return
        final = dict(block) if isinstance(block, dict) and type(block.get("type")) is str else None
        part = self._parts.get(index)
        if part is None and final is not None:
            part = self._part(index, final["type"])
        if part is not None and part.block is None:
            part.close(final)

    @property
    def usage(self) -> Usage | None:
        """The last usage that was reported, or None."""
        return self._usage

    @property
    def finish(self) -> Reason:
        """The reason of the last finish; `{"kind": "stop"}` while there is none (see `finished`)."""
        return {"kind": "stop"} if self._finish is None else self._finish["reason"]

    @property
    def finished(self) -> bool:
        """Whether a finish has been seen: only a cancelled call has none."""
        return self._finish is not None

    @property
    def replay_state(self) -> Any:
        """The adapter's private state of the last finish, or None."""
        return None if self._finish is None else self._finish.get("replayState")

    def blocks(self) -> list[Block]:
        """Return all blocks as far as they are known, in order of first appearance."""
        dropped = self._drops_tool_calls()
        return [
            part.rendered()
            for part in self._order
            if not part.is_void() and not (dropped and part.type == "tool-call")
        ]

    def interrupted_blocks(self) -> list[Block]:
        """Return what a cancelled call leaves in the history: no tool calls, no blocks without content."""
        kept = (part.rendered() for part in self._order if part.type != "tool-call" and not part.is_void())
        return [block for block in kept if has_content(block)]

    def message(self, source: dict[str, Any], message_id: str) -> Message:
        """Return the assistant message of the call.

        `source` is `{"kind": "model", "provider", "model"}`; the adapter's `replayState` is added to a copy.
        """
        source = dict(source)
        if self._finish is not None and "replayState" in self._finish:
            source["replayState"] = self._finish["replayState"]
        return {"role": "assistant", "content": self.blocks(), "source": source, "id": message_id}

    def flush_ready(self) -> list[Block] | tuple[Block, ...]:
        """Return the longest prefix of closed blocks that was not flushed yet, and count it as flushed.

        Nothing from the first tool call on is ready before the finish, because `max-tokens` would drop it.
        """
        if self._flushed == len(self._order) or self._order[self._flushed].block is None:
            return _NO_BLOCKS
        ready: list[Block] = []
        while self._flushed < len(self._order):
            part = self._order[self._flushed]
            if part.block is None or (part.type == "tool-call" and self._finish is None):
                break
            self._flushed += 1
            if not (part.type == "tool-call" and self._drops_tool_calls()):
                ready.append(part.rendered())
        return ready

    def flush_remaining(self) -> list[Block]:
        """Return all blocks that were not flushed yet, open ones with what has arrived; mark them flushed."""
        rest, self._flushed = self._order[self._flushed :], len(self._order)
        dropped = self._drops_tool_calls()
        return [
            part.rendered()
            for part in rest
            if not part.is_void() and not (dropped and part.type == "tool-call")
        ]

    def _drops_tool_calls(self) -> bool:
        return bool(self.finish["kind"] == "max-tokens")


def is_finish(chunk: Chunk) -> bool:
    """Tell whether a chunk is a well-formed finish: its reason names a kind."""
    reason = chunk.get("reason")
    return chunk.get("type") == "finish" and isinstance(reason, dict) and type(reason.get("kind")) is str


def has_content(block: Block) -> bool:
    """Tell whether a block says anything: text and reasoning need text, others count by being there."""
    return bool(block.get("text")) if block["type"] in ("text", "reasoning") else True


class Generation(msgspec.Struct, frozen=True):
    """The outcome of one whole model call."""

    content: list[Block]
    """The blocks, in order of first appearance."""
    usage: Usage | None
    """The last reported usage."""
    finish: Reason
    """Why the call ended; `{"kind": "stop"}` when the stream never said."""
    replay_state: Any = None
    """The adapter's private state, to be stored on the message's source."""


async def stream_blocks(chunks: AsyncIterator[Chunk]) -> AsyncIterator[Block]:
    """Yield the blocks of a call, each as soon as it is certain; the rest when the stream ends."""
    assembler = BlockAssembler()
    async for chunk in chunks:
        assembler.push(chunk)
        for block in assembler.flush_ready():
            yield block
    for block in assembler.flush_remaining():
        yield block


async def generate(chunks: AsyncIterator[Chunk]) -> Generation:
    """Run a whole call and return its outcome. A failed call is an outcome too: see `Generation.finish`."""
    assembler = BlockAssembler()
    async for chunk in chunks:
        assembler.push(chunk)
    return Generation(assembler.blocks(), assembler.usage, assembler.finish, assembler.replay_state)
