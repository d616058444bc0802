"""Answers of OpenAI's Responses into chunks: every rule and every refusal, on hand-written events."""

from __future__ import annotations

from typing import Any

import pytest

from onetake import jsontext
from onetake.wire.responses_decode import ResponsesStreamDecoder, decode_response, decode_usage
from onetake.wire.sse import encode_event

Event = dict[str, Any]
PART = {"type": "output_text", "text": "Hello", "annotations": []}
SAID = {"type": "message", "id": "msg_1", "role": "assistant", "content": [PART]}
EMPTY = {**SAID, "content": []}
CALL = {"type": "function_call", "id": "fc_1", "call_id": "c1", "name": "ls", "arguments": "{}"}
MALFORMED = "the provider's stream is malformed: "


def added(item: Any, number: Any = 0) -> Event:
    return {"type": "response.output_item.added", "output_index": number, "item": item}


def over(item: Any, number: Any = 0) -> Event:
    return {"type": "response.output_item.done", "output_index": number, "item": item}


def text(piece: Any, number: Any = 0) -> Event:
    return {"type": "response.output_text.delta", "output_index": number, "delta": piece}


def completed(**fields: Any) -> Event:
    return {"type": "response.completed", "response": {"id": "resp_1", **fields}}


def decode(*events: Any) -> list[dict[str, Any]]:
    """Decode events until the connection ends; nothing may come after the finish."""
    decoder = ResponsesStreamDecoder(secrets=["hush"])
    chunks = [chunk for event in events for chunk in decoder.push(event)]
    chunks += decoder.close()
    assert [chunk["type"] for chunk in chunks].count("finish") == 1
    assert chunks[-1]["type"] == "finish"
    assert decoder.finished
    assert decoder.push(completed()) == decoder.close() == []
    return chunks


def failure(chunks: list[dict[str, Any]]) -> dict[str, Any]:
    assert chunks[-1]["reason"]["kind"] == "error"
    found: dict[str, Any] = chunks[-1]["reason"]["failure"]
    return found


def test_an_item_is_a_block_from_its_start_to_its_end() -> None:
    chunks = decode(added(EMPTY), text("Hel"), text("lo"), over(SAID), completed(status="completed"))
    assert chunks == [
        {"type": "block-start", "index": 0, "blockType": "text"},
        {"type": "text-delta", "index": 0, "text": "Hel"},
        {"type": "text-delta", "index": 0, "text": "lo"},
        {"type": "block-end", "index": 0, "block": {"type": "text", "text": "Hello"}},
        {
            "type": "finish",
            "reason": {"kind": "stop"},
            "replayState": {
                "response": {
                    "added": [EMPTY],
                    "final": {"id": "resp_1", "status": "completed"},
                    "id": "resp_1",
                },
                "blocks": [{**SAID, "content": [{"type": "output_text", "annotations": []}]}],
            },
        },
    ]


def test_a_custom_tool_is_called_with_its_input() -> None:
    custom = {"type": "custom_tool_call", "id": "ct_1", "call_id": "c2", "name": "patch", "input": "*** x"}
    begun = {key: value for key, value in custom.items() if key != "input"}
    piece = {"type": "response.custom_tool_call_input.delta", "output_index": 0, "delta": "*** "}
    chunks = decode(added(begun), piece, over(custom), completed())
    named = {"type": "tool-call-delta", "index": 0, "id": "c2", "name": "patch"}
    assert chunks[1:4] == [
        {**named, "argumentsDelta": "*** "},
        {**named, "argumentsDelta": "x"},
        {
            "type": "block-end",
            "index": 0,
            "block": {"type": "tool-call", "id": "c2", "name": "patch", "arguments": "*** x"},
        },
    ]
    assert chunks[-1]["reason"] == {"kind": "tool-calls"}
    assert chunks[-1]["replayState"]["blocks"] == [{"type": "custom_tool_call", "id": "ct_1"}]


def test_reasoning_summaries_are_reasoning() -> None:
    thought = {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "Hm"}]}
    piece = {"type": "response.reasoning_summary_text.delta", "output_index": 0, "delta": "Hm"}
    chunks = decode(added({**thought, "summary": []}), piece, over(thought), completed())
    assert chunks[1] == {"type": "reasoning-delta", "index": 0, "text": "Hm"}
    assert chunks[2]["block"] == {"type": "reasoning", "text": "Hm"}
    assert chunks[-1]["replayState"]["blocks"] == [{**thought, "summary": [{"type": "summary_text"}]}]


def test_a_refusal_is_text_and_its_part_is_kept_whole() -> None:
    refused = {**EMPTY, "content": [{"type": "refusal", "refusal": "No."}]}
    piece = {"type": "response.refusal.delta", "output_index": 0, "delta": "No"}
    chunks = decode(added(EMPTY), piece, over(refused), completed())
    assert [chunk.get("text") for chunk in chunks[1:3]] == ["No", "."]
    assert chunks[3]["block"] == {"type": "text", "text": "No."}
    assert chunks[-1]["replayState"]["blocks"] == [refused]


def test_an_unknown_item_is_reasoning_without_text() -> None:
    search = {"type": "web_search_call", "id": "ws_1", "action": {"query": "q"}}
    chunks = decode(added(search), over(search), completed())
    assert chunks[:2] == [
        {"type": "block-start", "index": 0, "blockType": "reasoning"},
        {"type": "block-end", "index": 0, "block": {"type": "reasoning", "text": ""}},
    ]
    assert chunks[-1]["replayState"]["blocks"] == [search]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("Hello", "Hello"),
        (None, ""),
        ([PART, 7, {"type": "refusal", "refusal": "!"}], "Hello!"),
        ([{"type": "output_text", "text": 7}], ""),
    ],
)
def test_the_text_of_a_message_is_that_of_all_its_parts(content: Any, said: str) -> None:
    item = {**SAID, "content": content}
    chunks = decode(over(item), completed())
    assert chunks[-2]["block"] == {"type": "text", "text": said}
    assert chunks[-1]["replayState"]["blocks"] == [item]


def test_what_the_deltas_said_stays_when_the_whole_says_something_else() -> None:
    chunks = decode(added(EMPTY), text("Bye"), over(SAID), completed())
    assert chunks[1:3] == [
        {"type": "text-delta", "index": 0, "text": "Bye"},
        {"type": "block-end", "index": 0, "block": {"type": "text", "text": "Bye"}},
    ]


def test_an_item_that_was_not_announced_begins_with_its_end() -> None:
    chunks = decode(over(CALL, 4), completed())
    assert [chunk["type"] for chunk in chunks] == ["block-start", "tool-call-delta", "block-end", "finish"]
    assert chunks[-1]["replayState"]["response"]["added"] == []


def test_an_item_that_is_still_open_ends_with_the_answer() -> None:
    chunks = decode(
        added(EMPTY),
        text("Hel"),
        {
            "type": "response.incomplete",
            "response": {
                "incomplete_details": {"reason": "max_output_tokens"},
                "usage": {"output_tokens": 3},
            },
        },
    )
    assert chunks[2:4] == [
        {"type": "block-end", "index": 0, "block": {"type": "text", "text": "Hel"}},
        {"type": "usage", "usage": {"inputTokens": 0, "outputTokens": 3}},
    ]
    assert chunks[4]["reason"] == {"kind": "max-tokens"}
    assert "id" not in chunks[4]["replayState"]["response"]


def test_items_that_only_the_last_event_holds_are_read_from_there() -> None:
    chunks = decode(completed(output=[SAID, CALL]))
    assert [chunk["block"] for chunk in chunks if chunk["type"] == "block-end"] == [
        {"type": "text", "text": "Hello"},
        {"type": "tool-call", "id": "c1", "name": "ls", "arguments": "{}"},
    ]
    assert chunks[-1]["reason"] == {"kind": "tool-calls"}
    assert chunks[-1]["replayState"]["response"]["final"] == {"id": "resp_1"}


def test_events_that_repeat_others_and_unknown_ones_are_passed_over() -> None:
    events = [
        {"type": "response.in_progress"},
        {"type": "response.output_text.done", "text": "x"},
        {"type": "x"},
    ]
    assert [chunk["type"] for chunk in decode(*events, completed())] == ["finish"]


@pytest.mark.parametrize(
    ("event", "message"),
    [
        (7, "an event is not an object with a type"),
        ({"type": 7}, "an event is not an object with a type"),
        ({"type": "response.created"}, "response is not an object"),
        ({"type": "response.completed", "response": []}, "response is not an object"),
        (added(7), "an output item is not an object with a type"),
        (over({"id": "x"}), "an output item is not an object with a type"),
        (added(SAID, True), "output_index is not a number"),
        (over(SAID, None), "output_index is not a number"),
        (added(SAID, 1), "output_index 1 is taken"),
        (over(CALL, 1), "output[1] ends as another item than it began"),
        (added({**CALL, "call_id": None}), "output[1].call_id must be a string"),
        (added({**CALL, "name": 7}), "output[1].name must be a string"),
        (over({**CALL, "arguments": 7, "name": 7}), "output[1].name must be a string"),
        (text("x"), "a delta of text belongs to no such item, or is not a string"),
        (text(7, 1), "a delta of text belongs to no such item, or is not a string"),
        (
            {"type": "response.function_call_arguments.delta", "output_index": 1, "delta": "{"},
            "a delta of tool-call belongs to no such item, or is not a string",
        ),
    ],
)
def test_a_malformed_event_ends_the_answer_and_says_why(event: Any, message: str) -> None:
    chunks = decode(added(EMPTY, 1), event)
    assert failure(chunks) == {"message": MALFORMED + message, "code": "MALFORMED_STREAM"}


def test_no_delta_may_follow_the_end_of_its_item() -> None:
    chunks = decode(added(EMPTY), over(SAID), text("x"))
    assert failure(chunks)["message"].endswith("a delta of text belongs to no such item, or is not a string")


def test_an_item_that_ends_twice_is_refused() -> None:
    chunks = decode(over(SAID), over(SAID))
    assert failure(chunks)["message"] == MALFORMED + "output[0] ends as another item than it began"


@pytest.mark.parametrize(
    ("event", "message", "code"),
    [
        (
            {"type": "error", "error": {"code": "rate_limit_exceeded", "message": "slow, hush"}},
            "slow, [redacted]",
            "RATE_LIMIT",
        ),
        (
            {"type": "response.failed", "response": {"error": {"code": "server_error", "message": "hush"}}},
            "[redacted]",
            "SERVER_ERROR",
        ),
        (
            {"type": "response.incomplete", "response": {"incomplete_details": {"reason": "content_filter"}}},
            "the provider's content filter stopped the answer",
            "CONTENT_FILTER",
        ),
        (
            {"type": "response.incomplete", "response": {"incomplete_details": {"reason": "bored"}}},
            "the provider left the answer incomplete for an unknown reason, 'bored'",
            "MALFORMED_STREAM",
        ),
    ],
)
def test_a_failure_says_what_the_provider_said(event: Event, message: str, code: str) -> None:
    assert failure(decode(event)) == {"message": message, "code": code}


def test_the_usage_of_a_failed_answer_is_told() -> None:
    chunks = decode({"type": "response.failed", "response": {"usage": {"input_tokens": 2}, "error": None}})
    assert chunks[0] == {"type": "usage", "usage": {"inputTokens": 2, "outputTokens": 0}}
    assert failure(chunks)["message"] == "the provider failed without giving a reason"


def test_a_connection_that_ends_says_where() -> None:
    decoder = ResponsesStreamDecoder()
    sent = encode_event(jsontext.dumps(added(EMPTY)))
    assert decoder.feed(sent + b"data: {") == [{"type": "block-start", "index": 0, "blockType": "text"}]
    assert failure(decoder.close()) == {
        "message": "the provider's stream ended inside an event, before its last event",
        "code": "STREAM_CLOSED",
    }
    between = "the provider's stream ended between events, before its last event"
    assert failure(decode()) == {"message": between, "code": "STREAM_CLOSED"}


def test_an_event_that_is_not_json_ends_the_answer() -> None:
    decoder = ResponsesStreamDecoder()
    found = failure(decoder.feed(b"data: [DONE\n\n"))
    assert found["message"].startswith("the provider's stream holds what is not JSON: ")
    assert found["code"] == "MALFORMED_STREAM"
    assert decoder.feed(b"data: [DONE\n\n") == []


def test_a_whole_answer_has_each_block_as_one_delta() -> None:
    chunks = decode_response({"id": "resp_1", "status": "completed", "output": [SAID]})
    assert [chunk["type"] for chunk in chunks] == ["block-start", "text-delta", "block-end", "finish"]
    assert chunks[1]["text"] == "Hello"


@pytest.mark.parametrize(
    ("value", "message", "code"),
    [
        ([], "the provider's answer is not an object", "MALFORMED_STREAM"),
        ({"error": {"code": "overloaded", "message": "hush"}}, "[redacted]", "OVERLOADED"),
        ({"status": "queued"}, "the provider's answer has an unknown status", "MALFORMED_STREAM"),
        ({"output": [7]}, MALFORMED + "an output item is not an object with a type", "MALFORMED_STREAM"),
    ],
)
def test_a_whole_answer_that_is_none_is_a_failure(value: Any, message: str, code: str) -> None:
    assert failure(decode_response(value, secrets=["hush"])) == {"message": message, "code": code}


@pytest.mark.parametrize(
    ("usage", "counts"),
    [
        ({}, {"inputTokens": 0, "outputTokens": 0}),
        ({"input_tokens": -1, "output_tokens": True}, {"inputTokens": 0, "outputTokens": 0}),
        (
            {
                "input_tokens": 9,
                "output_tokens": 5,
                "input_tokens_details": {"cached_tokens": 4},
                "output_tokens_details": {"reasoning_tokens": 3},
            },
            {"inputTokens": 5, "outputTokens": 5, "cacheReadTokens": 4, "reasoningTokens": 3},
        ),
        (
            {"input_tokens": 1, "input_tokens_details": {"cached_tokens": 4}},
            {"inputTokens": 0, "outputTokens": 0, "cacheReadTokens": 4},
        ),
    ],
)
def test_token_counts_do_not_overlap(usage: dict[str, Any], counts: dict[str, int]) -> None:
    assert decode_usage(usage) == counts
