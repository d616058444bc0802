"""Anthropic's Messages at its edges: what few endpoints send, how answers break off, what is said then."""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from typing import Any

import pytest

from onetake import jsontext
from onetake.model.failures import failure
from onetake.wire.format import WireRequest, state_of
from onetake.wire.messages import MESSAGES
from onetake.wire.sse import SSEDecoder, encode_event

ASKED = WireRequest(model="claude", stream=True)
MESSAGE = {"id": "msg_1", "type": "message", "role": "assistant", "model": "claude", "content": []}
START = {"type": "message_start", "message": MESSAGE}
OPEN_TEXT = {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}
OPEN_THINKING = {
    "type": "content_block_start",
    "index": 0,
    "content_block": {"type": "thinking", "thinking": "", "signature": ""},
}
SAID = {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "Hi"}}
CLOSED = {"type": "content_block_stop", "index": 0}
ENDING = {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 15}}
STOP = {"type": "message_stop"}


def sent(events: list[dict[str, Any]]) -> bytes:
    return b"".join(encode_event(jsontext.dumps(event), event=event["type"]) for event in events)


def decoded(data: bytes) -> list[dict[str, Any]]:
    decoder = MESSAGES.stream_decoder()
    return decoder.feed(data) + decoder.close()


def encoded(chunks: list[dict[str, Any]]) -> list[Any]:
    encoder = MESSAGES.stream_encoder(ASKED, "msg_made", state_of(chunks))
    data = b"".join(encoder.push(chunk) for chunk in chunks)
    return [jsontext.loads(event.data) for event in SSEDecoder().feed(data)]


def test_a_signature_with_further_fields_is_read_and_given_back_with_them() -> None:
    delta = {"type": "signature_delta", "signature": "sig==", "padding": "abc"}
    signed = {"type": "content_block_delta", "index": 0, "delta": delta}
    events = [START, OPEN_THINKING, signed, CLOSED, ENDING, STOP]
    chunks = decoded(sent(events))
    state = chunks[-1]["replayState"]
    assert state["blocks"] == [{"type": "thinking", "signature": "sig=="}]
    assert state["response"]["events"] == [{"at": 2, "event": signed, "instead": True}]
    assert encoded(chunks) == events


def signed(text: str, **more: Any) -> dict[str, Any]:
    delta = {"type": "signature_delta", "signature": text, **more}
    return {"type": "content_block_delta", "index": 0, "delta": delta}


@pytest.mark.parametrize(
    "deltas",
    [
        [signed("si"), signed("g==")],
        [signed("s"), signed("i"), signed("g==")],
        [signed("si", padding="abc"), signed("g==", padding="a")],
        [signed(""), signed("sig==")],
        [signed("sig=="), signed("")],
    ],
)
def test_a_signature_in_pieces_is_joined_and_given_back_in_pieces(deltas: list[dict[str, Any]]) -> None:
    ping = {"type": "ping"}
    events = [START, OPEN_THINKING, *deltas, CLOSED, ping, ENDING, {**STOP, "x": 1}]
    chunks = decoded(sent(events))
    assert chunks[-1]["replayState"]["blocks"] == [{"type": "thinking", "signature": "sig=="}]
    assert encoded(chunks) == events


def test_an_empty_signature_is_given_back_in_its_place() -> None:
    events = [START, OPEN_THINKING, signed(""), CLOSED, {"type": "ping"}, ENDING, {**STOP, "x": 1}]
    assert encoded(decoded(sent(events))) == events


def test_a_signature_that_goes_on_from_the_start_of_its_block_is_joined_and_given_back() -> None:
    part = {"type": "thinking", "thinking": "", "signature": "si"}
    events = [START, {**OPEN_THINKING, "content_block": part}, signed("g=="), CLOSED, ENDING, STOP]
    chunks = decoded(sent(events))
    assert chunks[-1]["replayState"]["blocks"] == [{"type": "thinking", "signature": "sig=="}]
    assert encoded(chunks) == events


@pytest.mark.parametrize(("begun", "piece"), [(5, "sig=="), ("", 5), ("si", None)])
def test_a_signature_that_is_no_text_is_a_malformed_stream(begun: Any, piece: Any) -> None:
    part = {"type": "thinking", "thinking": "", "signature": begun}
    chunks = decoded(sent([START, {**OPEN_THINKING, "content_block": part}, signed(piece)]))
    assert chunks[-1]["reason"]["failure"] == {
        "message": "the provider's stream is malformed: signature is not a string",
        "code": "MALFORMED_STREAM",
    }


def test_a_delta_of_an_unknown_type_says_nothing_and_is_given_back_in_its_place() -> None:
    unknown = {"type": "content_block_delta", "index": 0, "delta": {"type": "mood_delta", "mood": "glad"}}
    events = [START, OPEN_TEXT, unknown, SAID, CLOSED, ENDING, STOP]
    chunks = decoded(sent(events))
    assert chunks[:3] == [
        {"type": "block-start", "index": 0, "blockType": "text"},
        {"type": "text-delta", "index": 0, "text": "Hi"},
        {"type": "block-end", "index": 0, "block": {"type": "text", "text": "Hi"}},
    ]
    assert encoded(chunks) == events


def test_an_answer_whose_end_tells_no_usage_reports_none_and_is_given_back_without() -> None:
    events = [START, OPEN_TEXT, SAID, CLOSED, {"type": "message_delta", "delta": ENDING["delta"]}, STOP]
    chunks = decoded(sent(events))
    assert [chunk["type"] for chunk in chunks] == ["block-start", "text-delta", "block-end", "finish"]
    assert encoded(chunks) == events


def test_the_usage_of_the_beginning_counts_when_the_end_tells_none() -> None:
    start = {"type": "message_start", "message": {**MESSAGE, "usage": {"input_tokens": 25}}}
    chunks = decoded(sent([start, {"type": "message_delta", "delta": ENDING["delta"]}, STOP]))
    assert chunks[0] == {"type": "usage", "usage": {"inputTokens": 25, "outputTokens": 0}}


def test_an_end_marker_without_its_blank_line_still_ends_the_answer() -> None:
    whole = sent([START, OPEN_TEXT, SAID, CLOSED, ENDING, STOP])
    cut = whole.removesuffix(b"\n")
    decoder = MESSAGES.stream_decoder()
    assert [chunk["type"] for chunk in decoder.feed(cut)] == ["block-start", "text-delta", "block-end"]
    assert not decoder.finished
    assert [chunk["type"] for chunk in decoder.close()] == ["usage", "finish"]
    assert decoder.finished
    assert decoded(cut) == decoded(whole)


def test_an_error_without_its_blank_line_is_still_the_failure_that_it_names() -> None:
    event = {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}
    [finish] = decoded(sent([START, event]).removesuffix(b"\n"))
    assert finish["reason"]["failure"] == {"message": "Overloaded", "code": "OVERLOADED"}


@pytest.mark.parametrize(
    ("rest", "where"),
    [
        (b"", "between events"),
        (b"data: " + jsontext.dumps(ENDING), "inside an event"),
        (b'data: {"type": "message_st', "inside an event"),
        (b'data: "message_stop"', "inside an event"),
    ],
)
def test_a_connection_that_ends_before_the_end_marker_says_where(rest: bytes, where: str) -> None:
    last = decoded(sent([START, OPEN_TEXT, SAID]) + rest)[-1]
    assert last["reason"] == {
        "kind": "error",
        "failure": {
            "message": f"the provider's stream ended {where}, before its end marker",
            "code": "STREAM_CLOSED",
        },
    }


def test_an_event_that_is_no_json_is_a_malformed_stream() -> None:
    described = decoded(b"data: {oops\n\n")[-1]["reason"]["failure"]
    assert described["code"] == "MALFORMED_STREAM"
    assert described["message"].startswith("the provider's stream holds what is not JSON: ")


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ({**MESSAGE, "content": "Hi"}, "the provider's answer is malformed: it has no content"),
        ({"id": "msg_1"}, "the provider's answer is malformed: it has no content"),
        (["Hi"], "the provider's stream is malformed: an event is not an object"),
    ],
)
def test_a_whole_answer_of_another_shape_is_malformed(body: Any, why: str) -> None:
    [finish] = MESSAGES.decode_response(body)
    assert finish["reason"]["failure"] == {"message": why, "code": "MALFORMED_STREAM"}


def test_a_chunk_of_an_unknown_type_sends_nothing() -> None:
    encoder = MESSAGES.stream_encoder(ASKED, "msg_made")
    assert encoder.push({"type": "weather", "index": 0}) == b""
    assert b"message_start" in encoder.push({"type": "text-delta", "index": 0, "text": "Hi"})


def test_a_failure_before_anything_was_said_is_an_error_event_alone() -> None:
    chunk = {"type": "finish", "reason": {"kind": "error", "failure": failure("Overloaded", "OVERLOADED")}}
    [event] = encoded([chunk])
    assert (event["type"], event["error"]["type"], event["error"]["message"]) == (
        "error",
        "overloaded_error",
        "Overloaded",
    )
    assert decoded(sent([event])) == [chunk]


def test_a_failure_with_a_usage_tells_the_usage_first() -> None:
    chunks = [
        {"type": "usage", "usage": {"inputTokens": 3, "outputTokens": 4}},
        {"type": "finish", "reason": {"kind": "error", "failure": failure("Overloaded", "OVERLOADED")}},
    ]
    events = encoded(chunks)
    assert [event["type"] for event in events] == ["message_start", "message_delta", "error"]
    assert events[1]["usage"] == {"input_tokens": 3, "output_tokens": 4}
    assert decoded(sent(events)) == chunks


@pytest.mark.parametrize("usage", [5, "many", [1], True, None])
def test_a_usage_that_is_no_object_counts_nothing_and_does_not_reach_a_whole_answer(usage: Any) -> None:
    ending = {"type": "message_delta", "delta": ENDING["delta"], "usage": usage}
    events = [START, OPEN_TEXT, SAID, CLOSED, ending, STOP]
    chunks = decoded(sent(events))
    assert "usage" not in [chunk["type"] for chunk in chunks]
    assert encoded(chunks) == events
    whole = jsontext.loads(MESSAGES.encode_response(chunks, ASKED, "msg_made")[2])
    assert whole["content"] == [{"type": "text", "text": "Hi"}]
    assert whole["usage"] == {"input_tokens": 0, "output_tokens": 0}


def test_a_call_without_an_input_in_a_whole_answer_has_no_arguments() -> None:
    call = {"type": "tool_use", "id": "toolu_1", "name": "look"}
    chunks = MESSAGES.decode_response({**MESSAGE, "content": [call], "stop_reason": "tool_use"})
    assert chunks[-1]["reason"] == {"kind": "tool-calls"}
    assert [chunk["block"] for chunk in chunks if chunk["type"] == "block-end"] == [
        {"type": "tool-call", "id": "toolu_1", "name": "look", "arguments": "{}"}
    ]


CALL = {"type": "tool_use", "id": "toolu_1", "name": "look", "input": {"at": "sky"}}
CONTENT = [
    {"type": "thinking", "thinking": "Hm", "signature": "sig=="},
    {"type": "text", "text": "Hi", "citations": [{"url": "u"}]},
    CALL,
    {**CALL, "type": "server_tool_use"},
]
WHOLE = {**MESSAGE, "content": CONTENT, "stop_reason": "tool_use", "usage": {"output_tokens": 2}}
STREAM = [
    {"type": "message_start", "message": {**MESSAGE, "usage": {"input_tokens": 1}}},
    OPEN_THINKING,
    signed("sig=="),
    CLOSED,
    {**OPEN_TEXT, "content_block": {"type": "text", "text": "", "citations": []}},
    SAID,
    {"type": "content_block_delta", "index": 0, "delta": {"type": "citations_delta", "citation": {}}},
    CLOSED,
    {**OPEN_TEXT, "content_block": {**CALL, "input": {}}},
    {"type": "content_block_delta", "index": 0, "delta": {"type": "input_json_delta", "partial_json": "{}"}},
    CLOSED,
    {**OPEN_TEXT, "content_block": {**CALL, "type": "server_tool_use", "input": {}}},
    CLOSED,
    ENDING,
    STOP,
]


def spoilt(value: Any) -> Iterator[Any]:
    """The value with one thing in it left out or replaced, for each thing in it, however deep."""
    places = list(value.items()) if isinstance(value, dict) else list(enumerate(value))
    for key, item in places:
        for wrong in (None, 5, "", "x", [], {}, ["x"], True):
            changed = deepcopy(value)
            changed[key] = wrong
            yield changed
        changed = deepcopy(value)
        del changed[key]
        yield changed
        for inner in spoilt(item) if isinstance(item, dict | list) else ():
            changed = deepcopy(value)
            changed[key] = inner
            yield changed


def test_no_single_wrong_value_in_a_stream_makes_anything_crash() -> None:
    for events in spoilt(STREAM):
        data = b"".join(encode_event(jsontext.dumps(event)) for event in events)
        chunks = decoded(data)
        assert [chunk["type"] for chunk in chunks].count("finish") == 1
        encoded(chunks)
        assert MESSAGES.encode_response(chunks, ASKED, "msg_made")[0] >= 200


def test_no_single_wrong_value_in_a_whole_answer_makes_anything_crash() -> None:
    for body in spoilt(WHOLE):
        chunks = MESSAGES.decode_response(body)
        assert [chunk["type"] for chunk in chunks].count("finish") == 1
        encoded(chunks)
        assert MESSAGES.encode_response(chunks, ASKED, "msg_made")[0] >= 200
