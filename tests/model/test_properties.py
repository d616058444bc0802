"""What holds of assembly for every stream, however odd."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from onetake.model.assembler import BlockAssembler, has_content

INDEX = st.integers(0, 3)
TEXT = st.text(max_size=5)
BLOCK = st.one_of(
    st.fixed_dictionaries({"type": st.sampled_from(["text", "reasoning"]), "text": TEXT}),
    st.fixed_dictionaries({"type": st.just("tool-call"), "id": TEXT, "name": TEXT, "arguments": TEXT}),
    st.just({"type": "image", "data": "x"}),
)
BLOCK_TYPE = st.sampled_from(["text", "reasoning", "tool-call", "image"])


def chunk(type_: str, **fields: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({"type": st.just(type_), **fields})


CONTENT = st.one_of(
    chunk("block-start", index=INDEX, blockType=BLOCK_TYPE),
    chunk("text-delta", index=INDEX, text=TEXT),
    chunk("reasoning-delta", index=INDEX, text=TEXT),
    chunk("tool-call-delta", index=INDEX, id=TEXT, name=TEXT, argumentsDelta=TEXT),
    chunk("block-end", index=INDEX, block=BLOCK),
)
REASON = st.sampled_from(["stop", "tool-calls", "max-tokens", "error"])
ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=5,
)
FIELD_NAMES = [
    "type",
    "index",
    "text",
    "id",
    "name",
    "argumentsDelta",
    "block",
    "blockType",
    "usage",
    "reason",
]
KINDS = ["text-delta", "tool-call-delta", "block-start", "block-end", "usage", "finish"]
MALFORMED = ANYTHING | st.dictionaries(
    st.sampled_from(FIELD_NAMES), st.sampled_from(KINDS) | st.integers(0, 3) | ANYTHING, max_size=6
)


def assembled(chunks: list[Any]) -> BlockAssembler:
    assembler = BlockAssembler()
    for each in chunks:
        assembler.push(each)
    return assembler


def view(assembler: BlockAssembler) -> Any:
    return assembler.blocks(), assembler.interrupted_blocks(), assembler.usage, assembler.finish


@given(st.lists(CONTENT, max_size=30), REASON, st.data())
def test_flushing_at_any_moments_gives_the_blocks_of_the_whole(
    chunks: list[Any], kind: str, data: st.DataObject
) -> None:
    assembler = BlockAssembler()
    flushed: list[Any] = []
    for each in [*chunks, {"type": "finish", "reason": {"kind": kind}}]:
        assembler.push(each)
        if data.draw(st.booleans()):
            flushed += assembler.flush_ready()
    flushed += assembler.flush_remaining()
    assert flushed == assembler.blocks()


@given(st.lists(CONTENT, max_size=30))
def test_there_is_at_most_one_block_per_index(chunks: list[Any]) -> None:
    assembler = assembled(chunks)
    assert len(assembler.blocks()) <= len({each["index"] for each in chunks})
    assert len(assembler._order) == len({each["index"] for each in chunks})


@given(st.lists(CONTENT, max_size=30), st.data())
def test_the_first_close_wins(chunks: list[Any], data: st.DataObject) -> None:
    closed = data.draw(BLOCK)
    end = {"type": "block-end", "index": 9, "block": closed}
    late = [{**each, "index": 9} for each in chunks]
    assert assembled([end, *late]).blocks() == [closed]


@given(st.lists(CONTENT, max_size=30))
def test_max_tokens_leaves_everything_but_the_tool_calls(chunks: list[Any]) -> None:
    whole = assembled(chunks).blocks()
    cut = assembled([*chunks, {"type": "finish", "reason": {"kind": "max-tokens"}}])
    assert cut.blocks() == [block for block in whole if block["type"] != "tool-call"]


@given(st.lists(CONTENT, max_size=30))
def test_interrupted_blocks_are_the_blocks_that_can_stand_alone(chunks: list[Any]) -> None:
    assembler = assembled(chunks)
    assert assembler.interrupted_blocks() == [
        block for block in assembler.blocks() if block["type"] != "tool-call" and has_content(block)
    ]


@given(st.lists(st.tuples(INDEX, TEXT), max_size=30), st.data())
def test_where_the_text_is_cut_does_not_matter(parts: list[tuple[int, str]], data: st.DataObject) -> None:
    def delta(index: int, text: str) -> dict[str, Any]:
        return {"type": "text-delta", "index": index, "text": text}

    finer = []
    for index, text in parts:
        cut = data.draw(st.integers(0, len(text)))
        finer += [delta(index, text[:cut]), delta(index, text[cut:])]
    assert assembled(finer).blocks() == assembled([delta(*each) for each in parts]).blocks()


@given(st.lists(st.tuples(st.booleans(), CONTENT, MALFORMED), max_size=20))
def test_nothing_raises_and_results_can_always_be_asked_for(parts: list[tuple[bool, Any, Any]]) -> None:
    assembler = BlockAssembler()
    for broken, good, bad in parts:
        assembler.push(bad if broken else good)
        assembler.flush_ready()
        view(assembler)
    assembler.flush_remaining()
    assembler.message({}, "id")


@given(st.lists(CONTENT, max_size=30), st.lists(st.tuples(st.integers(0, 30), ANYTHING), max_size=5))
def test_chunks_without_a_known_type_change_nothing(chunks: list[Any], noise: list[tuple[int, Any]]) -> None:
    noisy = list(chunks)
    for place, each in noise:
        noisy.insert(place, {"type": "future", "index": 0, "text": each})
    assert view(assembled(noisy)) == view(assembled(chunks))
