"""Chunks into answers: the exact bytes, what is carried although it is not canonical, and what is refused."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from onetake import jsontext
from onetake.wire.chat import (
    ChatStreamDecoder,
    ChatStreamEncoder,
    WireError,
    decode_response,
    encode_response,
    encode_usage,
)

TEXT = [
    {"type": "block-start", "index": 0, "blockType": "text"},
    {"type": "text-delta", "index": 0, "text": "Hi"},
    {"type": "block-end", "index": 0, "block": {"type": "text", "text": "Hi"}},
]
USAGE = {"type": "usage", "usage": {"inputTokens": 1, "outputTokens": 2}}
STOP = {"type": "finish", "reason": {"kind": "stop"}}


def encode(chunks: list[dict[str, Any]], **options: Any) -> bytes:
    encoder = ChatStreamEncoder("m", **options)
    return b"".join(encoder.push(chunk) for chunk in chunks)


def values(stream: bytes) -> list[Any]:
    events = stream.decode().removesuffix("\n\n").split("\n\n")
    return [e if e == "data: [DONE]" else jsontext.loads(e.removeprefix("data: ")) for e in events]


def decode(stream: bytes) -> list[dict[str, Any]]:
    decoder = ChatStreamDecoder()
    return decoder.feed(stream) + decoder.close()


def test_a_stream_looks_as_clients_expect_it() -> None:
    head = '{"id":"r1","object":"chat.completion.chunk","created":7,"model":"m","choices":'
    sent = encode([*TEXT, USAGE, STOP], response_id="r1", created=7)
    assert sent.decode() == (
        f'data: {head}[{{"index":0,"delta":{{"role":"assistant","content":"Hi"}},'
        '"finish_reason":null}]}\n\n'
        f'data: {head}[{{"index":0,"delta":{{}},"finish_reason":"stop"}}]}}\n\n'
        f'data: {head}[],"usage":{{"prompt_tokens":1,"completion_tokens":2,"total_tokens":3}}}}\n\n'
        "data: [DONE]\n\n"
    )


def test_usage_is_told_only_where_it_was_asked_for() -> None:
    assert b"usage" not in encode([*TEXT, USAGE, STOP], include_usage=False)
    assert b"usage" not in encode([*TEXT, STOP])


def test_a_call_tells_its_id_once_and_its_name_when_it_is_known() -> None:
    deltas = [
        {"type": "tool-call-delta", "index": 1, "id": "a", "argumentsDelta": ""},
        {"type": "tool-call-delta", "index": 1, "id": "a", "name": "bash", "argumentsDelta": "1"},
        {"type": "tool-call-delta", "index": 4, "id": "b", "name": "edit", "argumentsDelta": "2"},
        {"type": "tool-call-delta", "index": 1, "id": "a", "name": "bash", "argumentsDelta": "3"},
    ]
    sent = [value["choices"][0]["delta"]["tool_calls"][0] for value in values(encode(deltas))]
    assert sent == [
        {"index": 0, "id": "a", "type": "function", "function": {"arguments": ""}},
        {"index": 0, "function": {"name": "bash", "arguments": "1"}},
        {"index": 1, "id": "b", "type": "function", "function": {"name": "edit", "arguments": "2"}},
        {"index": 0, "function": {"arguments": "3"}},
    ]


def test_what_a_block_holds_beyond_its_deltas_is_sent_at_its_end() -> None:
    call = {"type": "tool-call", "id": "a", "name": "bash", "arguments": ""}
    chunks = [
        {"type": "block-start", "index": 0, "blockType": "reasoning"},
        {"type": "block-end", "index": 0, "block": {"type": "reasoning", "text": "Hm"}},
        {"type": "text-delta", "index": 1, "text": "He"},
        {"type": "block-end", "index": 1, "block": {"type": "text", "text": "Hello"}},
        {"type": "block-end", "index": 2, "block": call},
        {"type": "tool-call-delta", "index": 3, "id": "b", "name": "edit", "argumentsDelta": "1"},
        {"type": "block-end", "index": 3, "block": {**call, "id": "b", "name": "edit", "arguments": "12"}},
        {"type": "finish", "reason": {"kind": "tool-calls"}},
    ]
    assert [chunk["block"] for chunk in decode(encode(chunks)) if chunk["type"] == "block-end"] == [
        {"type": "reasoning", "text": "Hm"},
        {"type": "text", "text": "Hello"},
        call,
        {"type": "tool-call", "id": "b", "name": "edit", "arguments": "12"},
    ]


def test_a_block_that_contradicts_its_deltas_cannot_be_taken_back() -> None:
    chunks = [TEXT[1], {"type": "block-end", "index": 0, "block": {"type": "text", "text": "Other"}}, STOP]
    assert decode(encode(chunks))[-2]["block"] == {"type": "text", "text": "Hi"}


def test_a_block_that_the_format_does_not_know_is_refused() -> None:
    with pytest.raises(WireError, match="cannot carry a block of type 'image'"):
        encode([{"type": "block-end", "index": 0, "block": {"type": "image"}}])


def test_nothing_is_sent_after_the_finish() -> None:
    assert encode([*TEXT, STOP, *TEXT, STOP]) == encode([*TEXT, STOP])


def test_chunks_of_an_unknown_type_are_no_part_of_the_answer() -> None:
    assert encode([{"type": "heartbeat"}, *TEXT, STOP]) == encode([*TEXT, STOP])


@pytest.mark.parametrize("kind", ["error", "aborted"])
def test_a_failure_ends_the_stream_without_the_marker(kind: str) -> None:
    failure = {"message": "busy", "code": "OVERLOADED"}
    sent = encode([*TEXT, USAGE, {"type": "finish", "reason": {"kind": kind, "failure": failure}}])
    assert b"[DONE]" not in sent
    assert b'finish_reason":"' not in sent
    assert decode(sent)[-2:] == [USAGE, {"type": "finish", "reason": {"kind": "error", "failure": failure}}]


def test_lone_surrogates_survive() -> None:
    chunks = [{"type": "text-delta", "index": 0, "text": text} for text in ("\ud83d", "\ude00", "\u2028")]
    sent = encode([*chunks, STOP])
    assert b"\\ud83d" in sent
    assert [c["text"] for c in decode(sent) if c["type"] == "text-delta"] == ["\ud83d", "\ude00", "\u2028"]


def test_a_whole_answer_holds_all_blocks() -> None:
    chunks = [
        {"type": "reasoning-delta", "index": 0, "text": "Hm"},
        {"type": "text-delta", "index": 1, "text": "Go"},
        {"type": "tool-call-delta", "index": 2, "id": "a", "name": "bash", "argumentsDelta": "{}"},
        USAGE,
        {"type": "finish", "reason": {"kind": "tool-calls"}},
    ]
    status, headers, body = encode_response(chunks, "m", response_id="r1", created=7)
    assert (status, headers) == (200, {"content-type": "application/json"})
    assert jsontext.loads(body) == {
        "id": "r1",
        "object": "chat.completion",
        "created": 7,
        "model": "m",
        "choices": [
            {
                "index": 0,
                "message": {
                    "role": "assistant",
                    "content": "Go",
                    "reasoning_content": "Hm",
                    "tool_calls": [
                        {"id": "a", "type": "function", "function": {"name": "bash", "arguments": "{}"}}
                    ],
                },
                "finish_reason": "tool_calls",
            }
        ],
        "usage": {"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 3},
    }
    assert [c["block"] for c in decode_response(jsontext.loads(body)) if c["type"] == "block-end"] == [
        {"type": "reasoning", "text": "Hm"},
        {"type": "text", "text": "Go"},
        {"type": "tool-call", "id": "a", "name": "bash", "arguments": "{}"},
    ]


def test_a_whole_answer_without_usage_has_none() -> None:
    assert "usage" not in jsontext.loads(encode_response([*TEXT, STOP], "m")[2])


def test_a_failed_call_has_no_whole_answer_but_a_status() -> None:
    failure = {"message": "slow down", "code": "RATE_LIMIT"}
    status, _, body = encode_response(
        [*TEXT, {"type": "finish", "reason": {"kind": "error", "failure": failure}}], "m"
    )
    assert (status, jsontext.loads(body)["error"]["message"]) == (429, "slow down")
    status, _, body = encode_response(TEXT, "m")
    assert (status, jsontext.loads(body)["error"]["code"]) == (502, "stream_closed")


def test_token_counts_are_added_up_as_providers_do() -> None:
    usage = {"inputTokens": 1, "outputTokens": 2, "cacheReadTokens": 3, "reasoningTokens": 1}
    assert encode_usage(usage) == {
        "prompt_tokens": 4,
        "completion_tokens": 2,
        "total_tokens": 6,
        "prompt_tokens_details": {"cached_tokens": 3},
        "completion_tokens_details": {"reasoning_tokens": 1},
    }
    assert encode_usage({}) == {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0}


def test_every_recorded_call_of_the_corpus_can_be_served_and_read_again(shared_dir: Any) -> None:
    """The corpus was recorded through another adapter: what it took from a provider, ours must carry too."""
    carried = 0
    for path in sorted((shared_dir / "dsh-corpus").rglob("session*.jsonl")):
        for call in calls_of(path.read_bytes()):
            read = decode(encode(call, response_id="r"))
            if call[-1]["reason"]["kind"] == "error" or not is_canonical(call):
                continue
            assert read == call, path
            carried += 1
    assert carried > 150


def calls_of(log: bytes) -> list[list[dict[str, Any]]]:
    """Return the chunk streams of a log, from its chunk events and packed rows alone."""
    calls: list[list[dict[str, Any]]] = []
    current: list[dict[str, Any]] = []
    for line in log.split(b"\n")[1:]:
        record = jsontext.loads(line) if line else {"type": ""}
        kind, data = record["type"], record.get("data")
        if kind in ("text-chunks", "reasoning-chunks"):
            name = kind.replace("chunks", "delta")
            current += [{"type": name, "index": data["index"], "text": text} for text in data["texts"]]
        elif kind == "tool-call-chunks":
            named = {key: data[key] for key in ("index", "id", "name") if key in data}
            current += [{"type": "tool-call-delta", **named, "argumentsDelta": part} for part in data["args"]]
        elif kind == "assistant/chunk":
            current.append(data["chunk"])
            if data["chunk"]["type"] == "finish":
                calls.append(current)
                current = []
        elif kind == "step/start":
            current = []
    return calls


def is_canonical(call: list[dict[str, Any]]) -> bool:
    """Tell whether the stream has what the format carries: see `onetake.wire.chat_encode`."""
    kinds = [chunk["type"].removesuffix("-delta") for chunk in call]
    indices = [chunk["index"] for chunk in call if chunk["type"] == "block-start"]
    with_deltas = {chunk["index"] for chunk in call if chunk["type"].endswith("-delta")}
    ends = kinds.index("block-end") if "block-end" in kinds else len(kinds)
    types = [chunk["blockType"] for chunk in call if chunk["type"] == "block-start"]
    joined = any(a == b != "tool-call" for a, b in pairwise(types))
    empty = any(chunk.get("text") == "" for chunk in call)
    return (
        indices == list(range(len(indices)))
        and with_deltas == set(indices)
        and set(kinds[ends:]) <= {"block-end", "usage", "finish"}
        and kinds.count("block-end") == len(indices)
        and not joined
        and not empty
    )
