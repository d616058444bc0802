"""Chunks into answers of OpenAI's Responses: the events of each block, with and without a state."""

from __future__ import annotations

from typing import Any

import pytest

from onetake import jsontext
from onetake.wire.chat_request import WireError
from onetake.wire.responses_decode import ResponsesStreamDecoder
from onetake.wire.responses_encode import ResponsesStreamEncoder, encode_response, encode_usage
from onetake.wire.sse import SSEDecoder

Chunk = dict[str, Any]
STOP: Chunk = {"type": "finish", "reason": {"kind": "stop"}}
CUT: Chunk = {"type": "finish", "reason": {"kind": "max-tokens"}}
SLOW: Chunk = {
    "type": "finish",
    "reason": {"kind": "error", "failure": {"message": "slow", "code": "RATE_LIMIT"}},
}
USAGE: Chunk = {"type": "usage", "usage": {"inputTokens": 5, "outputTokens": 2, "cacheReadTokens": 4}}
SAID = {"type": "text", "text": "Hi"}
CALL = {"type": "tool-call", "id": "c1", "name": "ls", "arguments": "{}"}
THOUGHT = {"type": "reasoning", "text": "Hm"}
PLAIN = {
    "id": "r",
    "object": "response",
    "created_at": 0,
    "error": None,
    "incomplete_details": None,
    "model": "m",
}


def begin(kind: str, index: int = 0) -> Chunk:
    return {"type": "block-start", "index": index, "blockType": kind}


def end(block: dict[str, Any], index: int = 0) -> Chunk:
    return {"type": "block-end", "index": index, "block": block}


def whole(block: dict[str, Any], index: int = 0) -> list[Chunk]:
    return [begin(block["type"], index), end(block, index)]


def sent(*chunks: Chunk, state: Any = None) -> list[dict[str, Any]]:
    """The events of an answer, whose numbers must count up and whose names must be their types."""
    encoder = ResponsesStreamEncoder("m", response_id="r", state=state)
    events = SSEDecoder().feed(b"".join(encoder.push(chunk) for chunk in chunks))
    values = [jsontext.loads(event.data) for event in events]
    assert [event.event for event in events] == [value["type"] for value in values]
    assert [value.pop("sequence_number") for value in values] == list(range(len(values)))
    return values


def answered(*chunks: Chunk) -> dict[str, Any]:
    status, headers, body = encode_response(chunks, "m", response_id="r")
    assert (status, headers) == (200, {"content-type": "application/json"})
    value: dict[str, Any] = jsontext.loads(body)
    return value


def test_an_answer_begins_before_its_first_block_and_says_nothing_after_its_end() -> None:
    begun = {**PLAIN, "status": "in_progress", "usage": None, "output": []}
    usage = {
        "input_tokens": 9,
        "output_tokens": 2,
        "total_tokens": 11,
        "input_tokens_details": {"cached_tokens": 4},
    }
    assert sent(USAGE, STOP, STOP, begin("text")) == [
        {"type": "response.created", "response": begun},
        {"type": "response.in_progress", "response": begun},
        {"type": "response.completed", "response": {**begun, "status": "completed", "usage": usage}},
    ]


def test_a_chunk_that_the_format_has_no_event_for_says_nothing() -> None:
    assert sent({"type": "x"}, STOP) == sent(STOP)


def test_a_text_is_announced_repeated_and_ended() -> None:
    item = {"type": "message", "id": "r-0", "status": "in_progress", "role": "assistant", "content": []}
    part = {"type": "output_text", "text": "Hi", "annotations": []}
    done = {**item, "status": "completed", "content": [part]}
    place = {"item_id": "r-0", "output_index": 0, "content_index": 0}
    events = sent(begin("text"), {"type": "text-delta", "index": 0, "text": "H"}, end(SAID), STOP)
    assert events[2:-1] == [
        {"type": "response.output_item.added", "output_index": 0, "item": item},
        {"type": "response.content_part.added", **place, "part": {**part, "text": "", "logprobs": []}},
        {"type": "response.output_text.delta", **place, "delta": "H", "logprobs": []},
        {"type": "response.output_text.delta", **place, "delta": "i", "logprobs": []},
        {"type": "response.output_text.done", **place, "text": "Hi", "logprobs": []},
        {"type": "response.content_part.done", **place, "part": part},
        {"type": "response.output_item.done", "output_index": 0, "item": done},
    ]
    assert events[-1]["response"]["output"] == [done]


def test_reasoning_is_sent_as_its_summary() -> None:
    part = {"type": "summary_text", "text": "Hm"}
    item = {"type": "reasoning", "id": "r-0", "status": "in_progress", "summary": []}
    place = {"item_id": "r-0", "output_index": 0, "summary_index": 0}
    events = sent(
        begin("reasoning"), {"type": "reasoning-delta", "index": 0, "text": "Hm"}, end(THOUGHT), STOP
    )
    assert events[2:-1] == [
        {"type": "response.output_item.added", "output_index": 0, "item": item},
        {"type": "response.reasoning_summary_part.added", **place, "part": {**part, "text": ""}},
        {"type": "response.reasoning_summary_text.delta", **place, "delta": "Hm"},
        {"type": "response.reasoning_summary_text.done", **place, "text": "Hm"},
        {"type": "response.reasoning_summary_part.done", **place, "part": part},
        {
            "type": "response.output_item.done",
            "output_index": 0,
            "item": {**item, "status": "completed", "summary": [part]},
        },
    ]


def test_a_block_without_a_text_has_no_part() -> None:
    events = sent(*whole({"type": "reasoning", "text": ""}), STOP)
    done = {"type": "reasoning", "id": "r-0", "status": "completed", "summary": []}
    assert [event["type"] for event in events[2:-1]] == [
        "response.output_item.added",
        "response.output_item.done",
    ]
    assert events[-1]["response"]["output"] == [done]


def test_a_call_is_announced_when_its_name_is_known() -> None:
    item = {"type": "function_call", "id": "r-0", "status": "in_progress"}
    item |= {"call_id": "c1", "name": "ls", "arguments": ""}
    place = {"item_id": "r-0", "output_index": 0}
    done = {**item, "status": "completed", "arguments": "{}"}
    events = [
        {"type": "response.output_item.added", "output_index": 0, "item": item},
        {"type": "response.function_call_arguments.delta", **place, "delta": "{}"},
        {"type": "response.function_call_arguments.done", **place, "arguments": "{}"},
        {"type": "response.output_item.done", "output_index": 0, "item": done},
    ]
    piece = {"type": "tool-call-delta", "index": 0, "id": "c1", "name": "ls", "argumentsDelta": "{}"}
    assert sent(begin("tool-call"), piece, end(CALL), STOP)[2:-1] == events
    assert sent(*whole(CALL), STOP)[2:-1] == events
    assert len(sent(begin("tool-call"))) == 2


def test_a_call_of_a_custom_tool_is_sent_with_its_input() -> None:
    state = {"blocks": [{"type": "custom_tool_call", "id": "ct_1"}], "response": None}
    place = {"item_id": "ct_1", "output_index": 0}
    named = {"type": "custom_tool_call", "id": "ct_1", "call_id": "c1", "name": "ls"}
    assert sent(*whole(CALL), STOP, state=state)[2:-1] == [
        {
            "type": "response.output_item.added",
            "output_index": 0,
            "item": {**named, "status": "in_progress", "input": ""},
        },
        {"type": "response.custom_tool_call_input.delta", **place, "delta": "{}"},
        {"type": "response.custom_tool_call_input.done", **place, "input": "{}"},
        {"type": "response.output_item.done", "output_index": 0, "item": {**named, "input": "{}"}},
    ]


def test_a_part_without_a_list_is_ended_with_the_whole_text() -> None:
    state = {"blocks": [{"type": "message", "id": "msg_1", "content": None}]}
    events = sent(*whole(SAID), STOP, state=state)
    part = {"type": "output_text", "text": "Hi", "annotations": [], "logprobs": []}
    assert events[-3] == {
        "type": "response.content_part.done",
        "item_id": "msg_1",
        "output_index": 0,
        "content_index": 0,
        "part": part,
    }


def test_a_block_that_ends_otherwise_than_it_began_gets_no_further_delta() -> None:
    events = sent(begin("text"), {"type": "text-delta", "index": 0, "text": "Bye"}, end(SAID), STOP)
    assert [event["delta"] for event in events if "delta" in event] == ["Bye"]
    assert [event["text"] for event in events if event["type"] == "response.output_text.done"] == ["Hi"]


@pytest.mark.parametrize("state", [None, 7, {"blocks": [None]}, {"blocks": [7], "response": {}}])
def test_a_state_that_tells_nothing_is_as_none(state: Any) -> None:
    assert sent(*whole(SAID), STOP, state=state) == sent(*whole(SAID), STOP)


def test_a_failed_answer_ends_with_its_error() -> None:
    events = sent(*whole(SAID), USAGE, SLOW)
    assert events[-1]["type"] == "response.failed"
    response = events[-1]["response"]
    error = {"message": "slow", "type": "invalid_request_error", "code": "rate_limit_exceeded"}
    assert (response["status"], response["error"], response["output"]) == ("failed", error, [])
    decoder = ResponsesStreamDecoder()
    assert [chunk for event in events for chunk in decoder.push(event)][-1] == SLOW


def test_an_answer_that_was_cut_says_so() -> None:
    events = sent(*whole(SAID), CUT)
    assert events[-1]["type"] == "response.incomplete"
    assert events[-1]["response"]["incomplete_details"] == {"reason": "max_output_tokens"}
    decoder = ResponsesStreamDecoder()
    assert [chunk for event in events for chunk in decoder.push(event)][-1]["reason"] == CUT["reason"]


@pytest.mark.parametrize("kind", ["image", "x"])
def test_a_block_that_an_answer_cannot_carry_is_refused(kind: str) -> None:
    message = f"^an answer cannot carry a block of type '{kind}'$"
    with pytest.raises(WireError, match=message):
        sent(*whole({"type": kind}))
    with pytest.raises(WireError, match=message):
        encode_response([*whole({"type": kind}), STOP], "m", response_id="r")


def test_a_whole_answer_without_a_state_names_its_items_itself() -> None:
    chunks = [*whole(THOUGHT), *whole(SAID, 1), *whole(CALL, 2), STOP]
    assert answered(*chunks) == sent(*chunks)[-1]["response"]
    assert [item["id"] for item in answered(*chunks)["output"]] == ["r-0", "r-1", "r-2"]


@pytest.mark.parametrize(
    ("chunks", "status", "error"),
    [
        ([SLOW], 429, {"message": "slow", "code": "rate_limit_exceeded", "type": "invalid_request_error"}),
        (
            whole(SAID),
            502,
            {
                "message": "the answer ended before it finished",
                "code": "stream_closed",
                "type": "server_error",
            },
        ),
    ],
)
def test_a_whole_answer_that_failed_is_an_http_error(
    chunks: list[Chunk], status: int, error: dict[str, Any]
) -> None:
    answer = encode_response(chunks, "m", response_id="r")
    assert (answer[0], jsontext.loads(answer[2])) == (status, {"error": error})


@pytest.mark.parametrize(
    ("usage", "encoded"),
    [
        ({}, {"input_tokens": 0, "output_tokens": 0, "total_tokens": 0}),
        (
            {"inputTokens": 5, "outputTokens": 3, "cacheReadTokens": 4, "reasoningTokens": 2},
            {
                "input_tokens": 9,
                "output_tokens": 3,
                "total_tokens": 12,
                "input_tokens_details": {"cached_tokens": 4},
                "output_tokens_details": {"reasoning_tokens": 2},
            },
        ),
    ],
)
def test_usage_counts_the_prompt_with_what_was_cached(usage: Any, encoded: dict[str, Any]) -> None:
    assert encode_usage(usage) == encoded
