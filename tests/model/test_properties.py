"""What holds of assembly for every stream, however odd."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onetake.model.assembler import BlockAssembler, generate, has_content, stream_blocks
from onetake.testing.errors import InvariantViolation
from onetake.testing.invariants import assembler as holds
from onetake.testing.strategies.chunks import chunk_streams, flush_places, malformed_streams
from onetake.testing.strategies.text import json_values

STREAMS = chunk_streams() | malformed_streams() | malformed_streams()


@given(STREAMS)
def test_blocks_are_what_the_stream_means(chunks: list[Any]) -> None:
    holds.check_blocks(BlockAssembler, chunks)
    holds.check_bounded(BlockAssembler, chunks)
    holds.check_finish(BlockAssembler, chunks)


@given(STREAMS, flush_places())
def test_flushing_at_any_moments_gives_the_blocks_of_the_whole(chunks: list[Any], places: set[int]) -> None:
    holds.check_flushes(BlockAssembler, chunks, places)


@given(STREAMS)
def test_blocks_assemble_to_themselves(chunks: list[Any]) -> None:
    holds.check_reassembly(BlockAssembler, chunks)


@given(chunk_streams(), st.lists(st.integers(0, 9), max_size=4))
def test_where_deltas_are_cut_does_not_matter(chunks: list[Any], places: list[int]) -> None:
    holds.check_cuts(BlockAssembler, chunks, places)


@given(chunk_streams())
def test_streamed_blocks_are_the_content_of_the_whole_call(chunks: list[Any]) -> None:
    async def content(stream: AsyncIterator[Any]) -> list[Any]:
        return (await generate(stream)).content

    asyncio.run(holds.check_streams(stream_blocks, content, chunks))


@given(STREAMS)
def test_interrupted_blocks_are_the_blocks_that_can_stand_alone(chunks: list[Any]) -> None:
    assembler = holds.assembled(BlockAssembler, chunks)
    assert isinstance(assembler, BlockAssembler)
    kept = [block for block in holds.meaning([*chunks, OTHERWISE]) if block["type"] != "tool-call"]
    assert assembler.interrupted_blocks() == [block for block in kept if has_content(block)]


OTHERWISE = {"type": "finish", "reason": {"kind": "stop"}}


@given(STREAMS, st.lists(st.tuples(st.integers(0, 30), json_values()), max_size=5))
def test_chunks_without_a_known_type_change_nothing(chunks: list[Any], noise: list[tuple[int, Any]]) -> None:
    noisy = list(chunks)
    for place, each in noise:
        noisy.insert(place, {"type": "future", "index": 0, "text": each})
    one, other = (holds.assembled(BlockAssembler, stream) for stream in (noisy, chunks))
    assert (one.blocks(), one.finish) == (other.blocks(), other.finish)


def test_memory_is_bounded_by_the_text_and_the_indices() -> None:
    holds.check_memory(BlockAssembler)


def test_an_assembler_that_keeps_what_adds_nothing_is_found() -> None:
    class KeepsAll(BlockAssembler):
        def __init__(self) -> None:
            super().__init__()
            self.chunks: list[Any] = []

        def push(self, chunk: Any) -> None:
            self.chunks.append(chunk)
            super().push(chunk)

    with pytest.raises(InvariantViolation, match=r"chunks that add nothing left .* bytes"):
        holds.check_memory(KeepsAll, chunks=10_000)

    class LastEndWins(BlockAssembler):
        def _push_end(self, chunk: Any) -> None:
            if chunk["index"] in self._parts:
                self._parts[chunk["index"]].block = None
            super()._push_end(chunk)

    with pytest.raises(InvariantViolation, match=r"chunks that add nothing changed the blocks: .*again"):
        holds.check_memory(LastEndWins, chunks=1_000)
