"""Streamed and whole answers into chunks: every rule of `onetake.wire.chat_decode`, on hand-written bytes."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from onetake import jsontext
from onetake.wire.chat import ChatStreamDecoder, ChunkDecoder, decode_response, decode_usage

Delta = dict[str, Any]


def event(value: Any) -> bytes:
    return b"data: " + jsontext.dumps(value) + b"\n\n"


def delta(content: Delta, finish: str | None = None) -> bytes:
    return event({"choices": [{"index": 0, "delta": content, "finish_reason": finish}]})


def call(
    index: int | None = 0, id: str | None = None, name: str | None = None, arguments: str | None = None
) -> Delta:
    function = {key: value for key, value in (("name", name), ("arguments", arguments)) if value is not None}
    return {"tool_calls": [{"index": index, "id": id, "function": function}]}


DONE = b"data: [DONE]\n\n"


def decode(*sent: bytes) -> list[dict[str, Any]]:
    """Decode a whole stream; its result must not depend on how the bytes are cut."""
    stream = b"".join(sent)
    whole = _decode([stream])
    assert _decode([stream[i : i + 1] for i in range(len(stream))]) == whole
    return whole


def _decode(pieces: list[bytes]) -> list[dict[str, Any]]:
    numbers = itertools.count(1)
    decoder = ChatStreamDecoder(new_call_id=lambda: f"new{next(numbers)}")
    chunks = [chunk for piece in pieces for chunk in decoder.feed(piece)]
    chunks += decoder.close()
    assert decoder.finished
    assert [chunk["type"] for chunk in chunks].count("finish") == 1
    assert decoder.feed(DONE) == decoder.close() == []
    return chunks


def failure(chunks: list[dict[str, Any]]) -> dict[str, Any]:
    reason = chunks[-1]["reason"]
    assert reason["kind"] == "error"
    found: dict[str, Any] = reason["failure"]
    return found


def blocks(chunks: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [chunk["block"] for chunk in chunks if chunk["type"] == "block-end"]


def test_an_answer_with_everything_as_deepseek_streams_it() -> None:
    chunks = decode(
        delta({"role": "assistant", "content": None, "reasoning_content": ""}),
        delta({"content": None, "reasoning_content": "Hm"}),
        b": keep-alive\n\n",
        delta({"content": None, "reasoning_content": "m."}),
        delta({"content": "Go", "reasoning_content": None}),
        delta(call(0, "c1", "bash", "")),
        delta(call(0, arguments='{"a"')),
        delta(call(0, arguments=":1}")),
        event(
            {
                "choices": [{"index": 0, "delta": {"content": ""}, "finish_reason": "tool_calls"}],
                "usage": {
                    "prompt_tokens": 100,
                    "completion_tokens": 9,
                    "prompt_cache_hit_tokens": 64,
                    "prompt_cache_miss_tokens": 36,
                    "completion_tokens_details": {"reasoning_tokens": 2},
                },
            }
        ),
        DONE,
    )
    named = {"index": 2, "id": "c1", "name": "bash"}
    assert chunks == [
        {"type": "block-start", "index": 0, "blockType": "reasoning"},
        {"type": "reasoning-delta", "index": 0, "text": "Hm"},
        {"type": "reasoning-delta", "index": 0, "text": "m."},
        {"type": "block-start", "index": 1, "blockType": "text"},
        {"type": "text-delta", "index": 1, "text": "Go"},
        {"type": "block-start", "index": 2, "blockType": "tool-call"},
        {"type": "tool-call-delta", **named, "argumentsDelta": ""},
        {"type": "tool-call-delta", **named, "argumentsDelta": '{"a"'},
        {"type": "tool-call-delta", **named, "argumentsDelta": ":1}"},
        {"type": "block-end", "index": 0, "block": {"type": "reasoning", "text": "Hmm."}},
        {"type": "block-end", "index": 1, "block": {"type": "text", "text": "Go"}},
        {
            "type": "block-end",
            "index": 2,
            "block": {"type": "tool-call", "id": "c1", "name": "bash", "arguments": '{"a":1}'},
        },
        {
            "type": "usage",
            "usage": {"inputTokens": 36, "outputTokens": 9, "cacheReadTokens": 64, "reasoningTokens": 2},
        },
        {"type": "finish", "reason": {"kind": "tool-calls"}},
    ]
    assert list(chunks[6]) == ["type", "index", "id", "name", "argumentsDelta"]


def test_a_block_is_a_run_of_one_kind() -> None:
    chunks = decode(
        delta({"content": "a"}),
        delta({"content": "b"}),
        delta({"reasoning": "c"}),
        delta({"content": "d"}),
        delta({"content": "", "reasoning_content": ""}),
        delta({"content": "e"}, "stop"),
        DONE,
    )
    assert blocks(chunks) == [
        {"type": "text", "text": "ab"},
        {"type": "reasoning", "text": "c"},
        {"type": "text", "text": "de"},
    ]


def test_reasoning_under_both_names_is_taken_once() -> None:
    assert blocks(decode(delta({"reasoning": "x", "reasoning_content": "x"}, "stop"), DONE)) == [
        {"type": "reasoning", "text": "x"}
    ]


def test_a_refusal_is_what_the_model_says() -> None:
    assert blocks(decode(delta({"refusal": "No."}, "stop"), DONE)) == [{"type": "text", "text": "No."}]


def test_tool_calls_may_interleave_and_repeat_or_omit_their_names() -> None:
    chunks = decode(
        delta(call(0, "a", "one", "1")),
        delta(call(1, "b", None, "2")),
        delta(call(0, "a", "one", "3")),
        delta(call(1, None, "two", "4")),
        delta(call(0, "", "", None), "stop"),
        DONE,
    )
    assert blocks(chunks) == [
        {"type": "tool-call", "id": "a", "name": "one", "arguments": "13"},
        {"type": "tool-call", "id": "b", "name": "two", "arguments": "24"},
    ]
    deltas = [chunk for chunk in chunks if chunk["type"] == "tool-call-delta"]
    assert [chunk.get("name") for chunk in deltas] == ["one", None, "one", "two", "one"]
    assert chunks[-1]["reason"] == {"kind": "tool-calls"}


def test_a_call_without_an_id_gets_a_fresh_one_and_keeps_it() -> None:
    chunks = decode(delta(call(0, None, "one", "1")), delta(call(0, "late", None, "2"), "tool_calls"), DONE)
    assert blocks(chunks) == [{"type": "tool-call", "id": "new1", "name": "one", "arguments": "12"}]


def test_calls_that_share_an_index_are_told_apart_by_id_and_name() -> None:
    chunks = decode(
        delta(call(0, "a", "one", "1")),
        delta(call(0, "b", "two", "2")),
        delta(call(0, "random", None, "3"), "tool_calls"),
        DONE,
    )
    assert [(block["id"], block["arguments"]) for block in blocks(chunks)] == [("a", "1"), ("b", "23")]


def test_calls_without_an_index_are_told_apart_by_their_ids() -> None:
    chunks = decode(
        delta(call(None, "a", "one", "1")),
        delta(call(None, None, None, "2")),
        delta(call(None, "b", "two", "3")),
        delta({"tool_calls": [{"function": None}]}, "tool_calls"),
        DONE,
    )
    assert [(block["id"], block["arguments"]) for block in blocks(chunks)] == [("a", "12"), ("b", "3")]
    unnamed = decode(delta(call(None, None, "one", "1"), "tool_calls"), DONE)
    assert blocks(unnamed) == [{"type": "tool-call", "id": "new1", "name": "one", "arguments": "1"}]


@pytest.mark.parametrize("finish", ["stop", "tool_calls", "function_call"])
def test_a_complete_answer_is_named_by_what_it_holds(finish: str) -> None:
    assert decode(delta({"content": "a"}, finish), DONE)[-1]["reason"] == {"kind": "stop"}
    assert decode(delta(call(0, "a", "b", ""), finish), DONE)[-1]["reason"] == {"kind": "tool-calls"}


def test_an_answer_that_was_cut_by_its_limit_says_so() -> None:
    assert decode(delta(call(0, "a", "b", "{"), "length"), DONE)[-1]["reason"] == {"kind": "max-tokens"}


@pytest.mark.parametrize(
    ("finish", "code", "reason"),
    [
        ("content_filter", "CONTENT_FILTER", "content filter"),
        ("insufficient_system_resource", "OVERLOADED", "ran out of resources"),
        ("eos", "MALFORMED_STREAM", "an unknown finish_reason, 'eos'"),
        (None, "MALFORMED_STREAM", "without a finish_reason"),
    ],
)
def test_what_is_no_complete_answer_is_a_failure(finish: str | None, code: str, reason: str) -> None:
    chunks = decode(delta({"content": "a"}, finish), event({"usage": {"prompt_tokens": 1}}), DONE)
    assert failure(chunks)["code"] == code
    assert reason in failure(chunks)["message"]
    assert [chunk["type"] for chunk in chunks] == ["block-start", "text-delta", "usage", "finish"]


def test_an_end_before_the_marker_is_a_closed_stream() -> None:
    between = decode(delta({"content": "a"}, "stop"))
    assert failure(between)["code"] == "STREAM_CLOSED"
    assert "ended between events" in failure(between)["message"]
    inside = decode(delta({"content": "a"}, "stop"), b'data: {"usage":')
    assert failure(inside)["code"] == "STREAM_CLOSED"
    assert "ended inside an event" in failure(inside)["message"]
    assert failure(decode())["code"] == "STREAM_CLOSED"
    assert failure(decode(b"data: [DON"))["code"] == "STREAM_CLOSED"


@pytest.mark.parametrize("marker", [b"data: [DONE]", b"data:[DONE]\n", b"data: [DONE]\r\n\r\n"])
def test_a_marker_counts_even_without_its_blank_line(marker: bytes) -> None:
    assert decode(delta({"content": "a"}, "stop"), marker)[-1]["reason"] == {"kind": "stop"}


def test_nothing_counts_after_the_marker() -> None:
    chunks = decode(delta({"content": "a"}, "stop"), DONE, delta({"content": "b"}), b"data: {\n\n")
    assert blocks(chunks) == [{"type": "text", "text": "a"}]


def test_an_error_object_ends_the_stream_as_its_failure() -> None:
    chunks = decode(
        delta({"content": "a"}), event({"error": {"message": "busy", "code": "overloaded"}}), DONE
    )
    assert failure(chunks) == {"message": "busy", "code": "OVERLOADED"}
    assert failure(decode(b"event: error\n" + event({"error": "boom"})))["message"] == "boom"


def test_an_error_object_is_redacted() -> None:
    decoder = ChatStreamDecoder(secrets=["hunter2"])
    assert failure(decoder.feed(event({"error": {"message": "key hunter2"}})))["message"] == "key [redacted]"


@pytest.mark.parametrize(
    ("sent", "reason"),
    [
        (b"data: {\n\n", "not JSON"),
        (b"data: hello\n\n", "not JSON"),
        (b"data: \n\n", "not JSON"),
        (event([]), "an event is not an object"),
        (event({"choices": {}}), "choices is not a list"),
        (event({"choices": [1]}), "a choice is not an object"),
        (event({"choices": [{"delta": []}]}), "a delta is not an object"),
        (delta({"content": ["a"]}), "content is not a string"),
        (delta({"reasoning_content": 1}), "reasoning_content is not a string"),
        (delta({"tool_calls": {}}), "tool_calls is not a list"),
        (delta({"tool_calls": [1]}), "a tool call is not an object with a function"),
        (delta({"tool_calls": [{"function": 1}]}), "a tool call is not an object with a function"),
        (delta({"tool_calls": [{"index": "0"}]}), "a tool call's index is not a number"),
        (delta({"tool_calls": [{"index": 0, "id": 1}]}), "id is not a string"),
        (delta({"tool_calls": [{"index": 0, "function": {"arguments": {}}}]}), "arguments is not a string"),
    ],
)
def test_what_is_not_of_the_format_ends_the_stream_with_its_reason(sent: bytes, reason: str) -> None:
    chunks = decode(delta({"content": "a"}), sent, delta({"content": "b"}, "stop"), DONE)
    assert failure(chunks)["code"] == "MALFORMED_STREAM"
    assert reason in failure(chunks)["message"]
    assert [chunk["type"] for chunk in chunks] == ["block-start", "text-delta", "finish"]


def test_chunks_of_one_malformed_event_that_came_before_the_fault_are_kept() -> None:
    chunks = decode(event({"choices": [{"delta": {"content": "a"}}, 1]}))
    assert [chunk["type"] for chunk in chunks] == ["block-start", "text-delta", "finish"]


def test_a_choice_may_have_no_delta() -> None:
    ends = [event({"choices": [{"finish_reason": "stop"}]}), event({"choices": [{"delta": None}]})]
    assert decode(delta({"content": "a"}), *ends, DONE)[-1]["reason"] == {"kind": "stop"}


def test_only_the_first_choice_is_read() -> None:
    other = {"index": 1, "delta": {"content": "b"}, "finish_reason": "length"}
    chunks = decode(delta({"content": "a"}, "stop"), event({"choices": [other]}), DONE)
    assert blocks(chunks) == [{"type": "text", "text": "a"}]
    assert chunks[-1]["reason"] == {"kind": "stop"}


def test_a_surrogate_pair_cut_between_deltas_becomes_its_character_in_the_block() -> None:
    chunks = decode(delta({"content": "\ud83d"}), delta({"content": "\ude00\ud800"}, "stop"), DONE)
    assert [chunk["text"] for chunk in chunks if chunk["type"] == "text-delta"] == ["\ud83d", "\ude00\ud800"]
    assert blocks(chunks) == [{"type": "text", "text": "\U0001f600\ud800"}]


def test_fresh_ids_are_random_unless_somebody_else_gives_them() -> None:
    sent = {"choices": [{"delta": call(0, None, "one", ""), "finish_reason": "tool_calls"}]}
    ids = {ChunkDecoder().push(sent)[1]["id"] for _ in range(2)}
    assert len(ids) == 2


@pytest.mark.parametrize(
    ("usage", "expected"),
    [
        ({}, {"inputTokens": 0, "outputTokens": 0}),
        ({"prompt_tokens": 5, "completion_tokens": 2}, {"inputTokens": 5, "outputTokens": 2}),
        (
            {"prompt_tokens": 5, "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": 3}},
            {"inputTokens": 2, "outputTokens": 2, "cacheReadTokens": 3},
        ),
        (
            {"prompt_tokens": 5, "prompt_cache_hit_tokens": 4, "prompt_tokens_details": {"cached_tokens": 0}},
            {"inputTokens": 5, "outputTokens": 0, "cacheReadTokens": 0},
        ),
        (
            {"prompt_tokens": 5, "prompt_cache_hit_tokens": 9, "prompt_tokens_details": None},
            {"inputTokens": 0, "outputTokens": 0, "cacheReadTokens": 9},
        ),
        (
            {
                "prompt_tokens": None,
                "completion_tokens": -1,
                "completion_tokens_details": {"reasoning_tokens": 1},
            },
            {"inputTokens": 0, "outputTokens": 0, "reasoningTokens": 1},
        ),
        ({"prompt_tokens": True, "completion_tokens": 2.5}, {"inputTokens": 0, "outputTokens": 0}),
    ],
)
def test_token_counts_are_made_disjoint(usage: dict[str, Any], expected: dict[str, int]) -> None:
    assert decode_usage(usage) == expected
    assert list(decode_usage(usage)) == list(expected)


def test_the_last_usage_counts() -> None:
    sent = [event({"choices": [], "usage": {"prompt_tokens": n}}) for n in (1, 2)]
    chunks = decode(delta({"content": "a"}, "stop"), *sent, event({"choices": [], "usage": None}), DONE)
    assert [chunk["usage"]["inputTokens"] for chunk in chunks if chunk["type"] == "usage"] == [2]


def test_a_whole_answer_is_read_block_by_block() -> None:
    message = {
        "role": "assistant",
        "reasoning_content": "Hm",
        "content": "Go",
        "tool_calls": [
            {"id": "a", "type": "function", "function": {"name": "one", "arguments": "1"}},
            {"type": "function", "function": {"name": "two", "arguments": "2"}},
        ],
    }
    body = {"choices": [{"message": message, "finish_reason": "tool_calls"}], "usage": {"prompt_tokens": 1}}
    chunks = decode_response(body, new_call_id=lambda: "new")
    assert blocks(chunks) == [
        {"type": "reasoning", "text": "Hm"},
        {"type": "text", "text": "Go"},
        {"type": "tool-call", "id": "a", "name": "one", "arguments": "1"},
        {"type": "tool-call", "id": "new", "name": "two", "arguments": "2"},
    ]
    assert chunks[-2:] == [
        {"type": "usage", "usage": {"inputTokens": 1, "outputTokens": 0}},
        {"type": "finish", "reason": {"kind": "tool-calls"}},
    ]


@pytest.mark.parametrize(
    "body",
    [
        None,
        [],
        {},
        {"choices": [1]},
        {"choices": [{"message": 1}]},
        {"choices": [{"message": {"tool_calls": [1]}}]},
    ],
)
def test_a_whole_answer_of_another_shape_is_a_failure(body: Any) -> None:
    chunks = decode_response(body)
    assert failure(chunks)["code"] == "MALFORMED_STREAM"


def test_a_whole_answer_may_be_an_error() -> None:
    chunks = decode_response({"error": {"message": "key hunter2", "code": "overloaded"}}, secrets=["hunter2"])
    assert failure(chunks) == {"message": "key [redacted]", "code": "OVERLOADED"}
