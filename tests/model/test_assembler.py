"""The rules of block assembly, one by one, and against every message of the shared corpus."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from onetake.model.assembler import BlockAssembler, Generation, generate, has_content, stream_blocks


def text(index: int, piece: str) -> dict[str, Any]:
    return {"type": "text-delta", "index": index, "text": piece}


def call(index: int, piece: str, call_id: str = "c", **more: Any) -> dict[str, Any]:
    return {"type": "tool-call-delta", "index": index, "id": call_id, **more, "argumentsDelta": piece}


def start(index: int, kind: str) -> dict[str, Any]:
    return {"type": "block-start", "index": index, "blockType": kind}


def end(index: int, block: Any) -> dict[str, Any]:
    return {"type": "block-end", "index": index, "block": block}


def finish(kind: str = "stop", **more: Any) -> dict[str, Any]:
    return {"type": "finish", "reason": {"kind": kind}, **more}


TEXT = {"type": "text", "text": "done"}
CALL = {"type": "tool-call", "id": "c", "name": "bash", "arguments": "{}"}


def assembled(*chunks: Any) -> BlockAssembler:
    assembler = BlockAssembler()
    for chunk in chunks:
        assembler.push(chunk)
    return assembler


def test_deltas_without_an_end_are_joined() -> None:
    assembler = assembled(start(0, "reasoning"), {"type": "reasoning-delta", "index": 0, "text": "a"})
    assembler.push({"type": "reasoning-delta", "index": 0, "text": "b"})
    assert assembler.blocks() == [{"type": "reasoning", "text": "ab"}]
    assert assembler.blocks() == [{"type": "reasoning", "text": "ab"}]


def test_a_delta_opens_its_block() -> None:
    assert assembled(text(3, "x")).blocks() == [{"type": "text", "text": "x"}]


def test_an_end_opens_its_block() -> None:
    assert assembled(end(3, TEXT)).blocks() == [TEXT]


def test_the_end_is_the_truth_about_the_block() -> None:
    assert assembled(text(0, "guess"), end(0, TEXT)).blocks() == [TEXT]


def test_the_first_close_wins() -> None:
    assert assembled(end(0, TEXT), end(0, CALL), text(0, "late"), start(0, "tool-call")).blocks() == [TEXT]


def test_an_unusable_end_closes_with_what_arrived() -> None:
    assembler = assembled(text(0, "kept"), end(0, None), text(0, " lost"), end(0, TEXT))
    assert assembler.blocks() == [{"type": "text", "text": "kept"}]
    assert assembler.flush_ready() == [{"type": "text", "text": "kept"}]


def test_an_unusable_end_of_an_unseen_block_is_ignored() -> None:
    assert assembled(end(0, {"no": "type"}), end(1, "x")).blocks() == []


def test_a_delta_of_another_type_is_ignored() -> None:
    assert assembled(text(0, "a"), call(0, "{}"), start(0, "reasoning")).blocks() == [
        {"type": "text", "text": "a"}
    ]


def test_order_is_that_of_first_appearance() -> None:
    assembler = assembled(start(5, "text"), text(2, "second"), text(5, "first"))
    assert [block["text"] for block in assembler.blocks()] == ["first", "second"]


def test_a_tool_call_keeps_its_first_id_and_name() -> None:
    assembler = assembled(
        call(0, "{", ""), call(0, "}", "one", name="bash"), call(0, "", "two", name="other")
    )
    assert assembler.blocks() == [{"type": "tool-call", "id": "one", "name": "bash", "arguments": "{}"}]


def test_a_tool_call_may_lack_id_and_name() -> None:
    assert assembled({"type": "tool-call-delta", "index": 0, "argumentsDelta": "x"}).blocks() == [
        {"type": "tool-call", "id": "", "name": "", "arguments": "x"}
    ]


def test_blocks_that_were_only_announced_are_left_out() -> None:
    assembler = assembled(start(0, "text"), text(0, ""), start(1, "tool-call"), start(2, "image"))
    assert assembler.blocks() == []
    assert assembler.interrupted_blocks() == []
    assert assembler.flush_remaining() == []


def test_an_announced_block_that_ends_unusably_is_a_block() -> None:
    assert assembled(start(0, "image"), end(0, None)).blocks() == [{"type": "image"}]


def test_a_closed_empty_block_is_kept() -> None:
    assert assembled(end(0, {"type": "text", "text": ""})).blocks() == [{"type": "text", "text": ""}]


def test_max_tokens_drops_tool_calls() -> None:
    assembler = assembled(end(0, TEXT), end(1, CALL), call(2, '{"cut'), finish("max-tokens"))
    assert assembler.blocks() == [TEXT]
    assert assembler.flush_ready() == [TEXT]
    assert assembler.flush_remaining() == []


def test_max_tokens_drops_tool_calls_that_remain() -> None:
    assert assembled(call(0, "{"), text(1, "x"), finish("max-tokens")).flush_remaining() == [
        {"type": "text", "text": "x"}
    ]


def test_interrupted_blocks_are_what_can_stand_alone() -> None:
    image = {"type": "image", "data": "..."}
    assembler = assembled(
        text(0, "part"), end(1, CALL), call(2, "{"), end(3, {"type": "reasoning", "text": ""}), end(4, image)
    )
    assert assembler.interrupted_blocks() == [{"type": "text", "text": "part"}, image]


def test_usage_and_finish_are_the_last_ones() -> None:
    assembler = assembled()
    assert (assembler.usage, assembler.finish, assembler.finished) == (None, {"kind": "stop"}, False)
    for count in (1, 2):
        assembler.push({"type": "usage", "usage": {"inputTokens": count}})
    assembler.push(finish("tool-calls"))
    assembler.push(finish("error"))
    assert assembler.usage == {"inputTokens": 2}
    assert assembler.finish == {"kind": "error"}
    assert assembler.finished


def test_replay_state_goes_to_the_source_of_the_message() -> None:
    source = {"kind": "model", "provider": "p", "model": "m"}
    plain = assembled(end(0, TEXT), finish()).message(source, "id")
    assert plain == {"role": "assistant", "content": [TEXT], "source": source, "id": "id"}
    assert list(plain) == ["role", "content", "source", "id"]
    kept = assembled(end(0, TEXT), finish(replayState={"response": {"id": 1}}))
    assert kept.message(source, "id")["source"] == {**source, "replayState": {"response": {"id": 1}}}
    assert kept.replay_state == {"response": {"id": 1}}
    assert "replayState" not in source


def test_results_do_not_alias_the_chunks() -> None:
    chunk = end(0, dict(TEXT))
    assembler = assembled(chunk)
    assembler.blocks()[0]["text"] = "changed"
    assert chunk["block"] == TEXT
    assert assembler.blocks() == [TEXT]


def test_flush_gives_the_closed_prefix_once() -> None:
    assembler = assembled(text(0, "a"), text(1, "b"))
    assert list(assembler.flush_ready()) == []
    assembler.push(end(1, {"type": "text", "text": "b"}))
    assert list(assembler.flush_ready()) == []
    assembler.push(end(0, {"type": "text", "text": "a"}))
    assert [block["text"] for block in assembler.flush_ready()] == ["a", "b"]
    assert list(assembler.flush_ready()) == []


def test_flush_holds_back_from_the_first_tool_call_on() -> None:
    assembler = assembled(end(0, TEXT), end(1, CALL), end(2, TEXT))
    assert assembler.flush_ready() == [TEXT]
    assert list(assembler.flush_ready()) == []
    assembler.push(finish("tool-calls"))
    assert assembler.flush_ready() == [CALL, TEXT]


def test_flush_remaining_gives_open_blocks() -> None:
    assembler = assembled(end(0, TEXT), text(1, "open"), call(2, "{"))
    assembler.flush_ready()
    assert [block["type"] for block in assembler.flush_remaining()] == ["text", "tool-call"]
    assert assembler.flush_remaining() == []


@pytest.mark.parametrize(
    "chunk",
    [
        None,
        [],
        "text-delta",
        {},
        {"type": None},
        {"type": ["text-delta"]},
        {"type": "unheard-of", "index": 0},
        {"type": "text-delta"},
        {"type": "text-delta", "index": 0},
        {"type": "text-delta", "index": 0, "text": 5},
        {"type": "text-delta", "index": "0", "text": "x"},
        {"type": "text-delta", "index": True, "text": "x"},
        {"type": "text-delta", "index": 0.0, "text": "x"},
        {"type": "text-delta", "index": [], "text": "x"},
        {"type": "tool-call-delta", "index": 0, "id": "c"},
        {"type": "tool-call-delta", "index": None, "id": "c", "argumentsDelta": "x"},
        {"type": "block-start", "index": 0},
        {"type": "block-start", "index": {}, "blockType": "text"},
        {"type": "block-end", "index": 0},
        {"type": "block-end", "index": {}, "block": TEXT},
        {"type": "block-end", "index": 0, "block": {"type": 4}},
        {"type": "usage"},
        {"type": "usage", "usage": 7},
        {"type": "finish"},
        {"type": "finish", "reason": "stop"},
        {"type": "finish", "reason": {"kind": None}},
    ],
)
def test_malformed_chunks_are_ignored(chunk: Any) -> None:
    assembler = assembled(chunk)
    assert assembler.blocks() == []
    assert assembler.usage is None
    assert not assembler.finished


def test_has_content() -> None:
    assert has_content(TEXT)
    assert has_content(CALL)
    assert not has_content({"type": "reasoning", "text": ""})
    assert not has_content({"type": "text"})


def test_memory_is_bounded_by_the_indices() -> None:
    late = (text(0, "late") for _ in range(9))
    assembler = assembled(*(text(0, "") for _ in range(1000)), end(0, TEXT), *late)
    assert [part.pieces for part in assembler._order] == [[]]


async def replayed(*chunks: dict[str, Any]) -> AsyncIterator[dict[str, Any]]:
    for chunk in chunks:
        yield chunk


def test_stream_blocks_yields_each_block_when_it_is_certain() -> None:
    async def run() -> list[Any]:
        seen: list[Any] = []

        async def watched() -> AsyncIterator[dict[str, Any]]:
            for chunk in (end(0, TEXT), end(1, CALL), text(2, "open"), finish("tool-calls")):
                seen.append(chunk["type"])
                yield chunk

        async for block in stream_blocks(watched()):
            seen.append(block["type"])
        return seen

    assert asyncio.run(run()) == [
        *("block-end", "text", "block-end", "text-delta", "finish", "tool-call", "text")
    ]


def test_generate_gives_the_whole_outcome() -> None:
    chunks = (end(0, TEXT), {"type": "usage", "usage": {"outputTokens": 1}}, finish(replayState=1))
    assert asyncio.run(generate(replayed(*chunks))) == Generation(
        content=[TEXT], usage={"outputTokens": 1}, finish={"kind": "stop"}, replay_state=1
    )


def _chunks(event: dict[str, Any]) -> list[dict[str, Any]]:
    data = event.get("data")
    if event["type"] == "assistant/chunk":
        return [data["chunk"]] if "chunk" in data else []
    if event["type"] in ("text-chunks", "reasoning-chunks"):
        kind = event["type"].removesuffix("-chunks") + "-delta"
        return [{"type": kind, "index": data["index"], "text": piece} for piece in data["texts"]]
    if event["type"] == "tool-call-chunks":
        rest = {key: data[key] for key in ("id", "name") if key in data}
        return [
            {"type": "tool-call-delta", "index": data["index"], **rest, "argumentsDelta": piece}
            for piece in data["args"]
        ]
    return []


def test_every_message_of_the_corpus_is_what_its_chunks_assemble_to(shared_dir: Path) -> None:
    compared = 0
    for path in sorted((shared_dir / "dsh-corpus").rglob("session*.jsonl")):
        assembler = BlockAssembler()
        for line in path.read_bytes().split(b"\n")[1:-1]:
            event = json.loads(line)
            if event["type"] in ("step/start", "llm/retry-started"):
                assembler = BlockAssembler()
            for chunk in _chunks(event):
                assembler.push(chunk)
            data = event.get("data") or {}
            if event["type"] == "assistant/message" and "message" in data and assembler._order:
                got = assembler.interrupted_blocks() if data.get("interrupted") else assembler.blocks()
                assert got == data["message"]["content"], path
                assert assembler.usage == data.get("usage"), path
                compared += 1
    assert compared > 150
