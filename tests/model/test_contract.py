"""What chunks must look like, and what they say together."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from onetake.fixture.grammar import unescape
from onetake.fixture.tokens import map_strings
from onetake.model.contract import block_fault, chunk_fault, contradictions
from onetake.replay.script import derive_calls, own_events
from onetake.session.store import read_file

STOP: dict[str, Any] = {"type": "finish", "reason": {"kind": "stop"}}


def start(kind: str = "text") -> dict[str, Any]:
    return {"type": "block-start", "index": 0, "blockType": kind}


def text(piece: str, kind: str = "text") -> dict[str, Any]:
    return {"type": f"{kind}-delta", "index": 0, "text": piece}


def call(piece: str, **names: str) -> dict[str, Any]:
    return {"type": "tool-call-delta", "index": 0, "id": "c", **names, "argumentsDelta": piece}


def end(**block: Any) -> dict[str, Any]:
    return {"type": "block-end", "index": 0, "block": block}


CALL = {"type": "tool-call", "id": "c", "name": "bash", "arguments": "{}"}


@pytest.mark.parametrize(
    "chunks",
    [
        [start(), text("He"), text("llo"), end(type="text", text="Hello")],
        [text("Hello")],
        [end(type="text", text="Hello")],
        [
            start(),
            end(type="text", text="Hello"),
            text("more"),
            start("reasoning"),
            end(type="text", text=""),
        ],
        [start("tool-call"), call("{", name="bash"), call("}"), end(**CALL)],
        [text("\ud83d"), text("\ude00"), end(type="text", text="\U0001f600")],
        [end(type="image", url="x", further=[1]), {**text("Hello"), "index": 1, "further": True}],
        [{"type": "usage", "usage": {"inputTokens": 1}}, STOP],
        [start(), text(""), STOP],
        [start(), {"type": "finish", "reason": {"kind": "max-tokens"}}],
    ],
)
def test_what_a_stream_may_do(chunks: list[dict[str, Any]]) -> None:
    """Blocks without start, end or deltas, stragglers, and fields that nobody knows."""
    assert list(contradictions(chunks)) == []


@pytest.mark.parametrize(
    ("chunks", "message"),
    [
        (
            [start(), text("Hello"), end(type="text", text="Hallo")],
            "chunk 3, block 0: its deltas say 'Hello', and its end says 'Hallo'",
        ),
        (
            [text("x" * 30 + "Hello" + "y" * 30), end(type="text", text="x" * 30 + "Hello")],
            f"its deltas say ...'{'x' * 15}Hello{'y' * 20}'..., and its end says ...'{'x' * 15}Hello'",
        ),
        (
            [start(), text("Hello", "reasoning")],
            "a reasoning-delta of type 'reasoning' where the block is 'text'",
        ),
        (
            [text("a"), end(type="reasoning", text="a")],
            "a block-end of type 'reasoning' where the block is 'text'",
        ),
        ([call("{}", name="bash"), end(**{**CALL, "name": "dash"})], "its name is 'dash', and was 'bash'"),
        ([call("{}"), end(**{**CALL, "id": "d"})], "its id is 'd', and was 'c'"),
        ([call("{"), {**call("}"), "id": "d"}], "its id is 'd', and was 'c'"),
        ([call("{"), end(**CALL)], "its deltas say '{', and its end says '{}'"),
        ([start(), text("a"), end(type="image"), STOP], "of type 'image' where the block is 'text'"),
        ([start(), {**text("Hello"), "index": 1}, STOP], "block 0: it begins, and nothing comes of it"),
        ([{"type": "text_delta"}], "chunk 1: type: is 'text_delta'; it must be one of block-start"),
        ([{}], "chunk 1: type: is None"),
    ],
)
def test_what_contradicts_itself(chunks: list[dict[str, Any]], message: str) -> None:
    """Each is said with its place."""
    shown = "\n".join(contradictions(chunks))
    assert message in shown


@pytest.mark.parametrize(
    ("chunk", "place", "message"),
    [
        ({**start(), "blockType": None}, "blockType", "must be a string"),
        ({**text("a"), "index": "0"}, "index", "must be an integer"),
        ({**text("a"), "index": True}, "index", "must be an integer"),
        ({"type": "text-delta", "index": 0}, "text", "is missing"),
        ({**call("a"), "name": 5}, "name", "must be a string"),
        (end(), "block.type", "is missing"),
        (end(type="text"), "block.text", "is missing"),
        (end(type="tool-call", id="c", name="bash", arguments={}), "block.arguments", "must be a string"),
        ({"type": "usage", "usage": {"inputTokens": 1.5}}, "usage.inputTokens", "must be an integer"),
        ({"type": "usage", "usage": {"inputTokens": True}}, "usage.inputTokens", "must be an integer"),
        ({"type": "finish", "reason": {}}, "reason.kind", "is None"),
        (
            {"type": "finish", "reason": {"kind": "stopped"}},
            "reason.kind",
            "is 'stopped'; it must be one of stop",
        ),
        ({"type": "finish", "reason": {"kind": "error"}}, "reason.failure", "is missing"),
        (
            {"type": "finish", "reason": {"kind": "aborted", "failure": {"message": "m", "code": 5}}},
            "reason.failure.code",
            "must be a string",
        ),
    ],
)
def test_the_shape_of_a_chunk(chunk: dict[str, Any], place: str, message: str) -> None:
    """The field and what is wrong with it."""
    fault = chunk_fault(chunk)
    assert fault is not None
    assert fault[0] == place and fault[1].startswith(message)
    assert list(contradictions([chunk])) == [f"chunk 1: {place}: {fault[1]}"]


def test_a_block_of_an_unknown_type_is_let_be() -> None:
    """Nobody knows what it must hold."""
    assert block_fault({"type": "image"}) is None and block_fault({"type": []}) is None


def test_no_recording_that_we_know_contradicts_itself(shared_dir: Path) -> None:
    """Of another harness, hundreds of calls."""
    calls = 0
    for path in sorted((shared_dir / "dsh-corpus").rglob("session*.jsonl")):
        log = read_file(path)
        for recorded in derive_calls(own_events(log.header, log.events)):
            if recorded.fault is None:
                calls += 1
                assert list(contradictions(map_strings(recorded.chunks, unescape))) == [], path
    assert calls > 150
