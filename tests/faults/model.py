"""Assemblers with bugs."""

from __future__ import annotations

from typing import Any

from hypothesis import given

from onetake.model.assembler import BlockAssembler
from onetake.testing.invariants import assembler as holds
from onetake.testing.strategies.chunks import chunk_streams, flush_places, malformed_streams
from tests.faults.fault import Fault

STREAMS = chunk_streams() | malformed_streams() | malformed_streams()


class LastCloseWins(BlockAssembler):
    def _push_end(self, chunk: Any) -> None:
        part = self._parts.get(chunk.get("index")) if type(chunk.get("index")) is int else None
        if part is not None:
            part.block = None
        super()._push_end(chunk)


class StragglersReopen(BlockAssembler):
    def _part(self, index: Any, type_: str) -> Any:
        part = self._parts.get(index) if type(index) is int else None
        if part is not None and part.block is not None:
            del self._parts[index]
        return super()._part(index, type_)


class OnePlacePerKind(BlockAssembler):
    """Finds the block of a delta by its type: works until two of a kind are open."""

    def push(self, chunk: Any) -> None:
        if isinstance(chunk, dict) and chunk.get("type") in ("text-delta", "reasoning-delta"):
            kind = chunk["type"].removesuffix("-delta")
            same = [n for n, part in self._parts.items() if part.type == kind and part.block is None]
            chunk = {**chunk, "index": same[0]} if same else chunk
        super().push(chunk)


class FlushesWhatIsOpen(BlockAssembler):
    def flush_ready(self) -> Any:
        ready = [part.rendered() for part in self._order[self._flushed :] if not part.is_void()]
        self._flushed = len(self._order)
        return ready


class FlushesToolCallsEarly(BlockAssembler):
    """Forgets that a call may still be dropped at `max-tokens`."""

    def flush_ready(self) -> Any:
        ready = []
        while self._flushed < len(self._order) and self._order[self._flushed].block is not None:
            ready.append(self._order[self._flushed].rendered())
            self._flushed += 1
        return ready


class FirstFinishCounts(BlockAssembler):
    def push(self, chunk: Any) -> None:
        if self._finish is None or not isinstance(chunk, dict) or chunk.get("type") != "finish":
            super().push(chunk)


class LosesLoneSurrogates(BlockAssembler):
    """Encodes each delta by itself."""

    def push(self, chunk: Any) -> None:
        if isinstance(chunk, dict) and type(chunk.get("text")) is str:
            chunk = {**chunk, "text": chunk["text"].encode("utf-8", "ignore").decode()}
        super().push(chunk)


def blocks(subject: type[BlockAssembler]) -> Any:
    @given(STREAMS)
    def prove(chunks: list[Any]) -> None:
        holds.check_blocks(subject, chunks)

    return prove


def flushes(subject: type[BlockAssembler]) -> Any:
    @given(STREAMS, flush_places())
    def prove(chunks: list[Any], places: set[int]) -> None:
        holds.check_flushes(subject, chunks, places)

    return prove


@given(STREAMS)
def first_finish(chunks: list[Any]) -> None:
    holds.check_finish(FirstFinishCounts, chunks)


FAULTS = [
    Fault("duplicate-end-rewrites", "a second block-end replaces the block", blocks(LastCloseWins)),
    Fault("straggler-reopens", "a delta behind its block's end opens it anew", blocks(StragglersReopen)),
    Fault("delta-by-kind", "a delta goes to the first open block of its kind", blocks(OnePlacePerKind)),
    Fault("flushes-open-blocks", "a flush hands on what still grows", flushes(FlushesWhatIsOpen)),
    Fault("flushes-calls-early", "a call is handed on that max-tokens drops", flushes(FlushesToolCallsEarly)),
    Fault("first-finish-counts", "of two finishes the first decides", first_finish),
    Fault("loses-surrogates", "half a pair at a delta's edge is dropped", blocks(LosesLoneSurrogates)),
]
