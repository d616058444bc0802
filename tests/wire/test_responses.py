"""OpenAI's Responses: what an endpoint streams is read, and given back event for event."""

from __future__ import annotations

from typing import Any

import pytest

from onetake import jsontext
from onetake.model.assembler import BlockAssembler
from onetake.model.request import ModelRequest
from onetake.wire.format import WireRequest, state_of
from onetake.wire.responses import RESPONSES
from onetake.wire.sse import SSEDecoder, encode_event

ASKED = WireRequest(model="m", stream=True)


def item(kind: str, **fields: Any) -> dict[str, Any]:
    return {"type": kind, **fields}


THOUGHT = item("reasoning", id="rs_1", summary=[], encrypted_content="gAAA")
PART = {"type": "output_text", "text": "Hello", "annotations": [], "logprobs": []}
SAID = item("message", id="msg_1", role="assistant", status="completed", phase="final", content=[PART])
CALLED = item("function_call", id="fc_1", status="completed", call_id="call_1", name="ls", arguments="{}")
ABOUT = {"id": "resp_1", "object": "response", "model": "m", "service_tier": "x"}
USAGE = {"input_tokens": 9, "input_tokens_details": {"cached_tokens": 4}, "output_tokens": 2}


def events() -> list[dict[str, Any]]:
    at: dict[str, Any] = {"item_id": "msg_1", "output_index": 1, "content_index": 0}
    call: dict[str, Any] = {"item_id": "fc_1", "output_index": 2}
    begun = {**ABOUT, "status": "in_progress", "output": []}
    done = {**ABOUT, "status": "completed", "usage": USAGE, "output": [THOUGHT, SAID, CALLED]}
    added, over = "response.output_item.added", "response.output_item.done"
    told = [
        {"type": "response.created", "response": begun},
        {"type": "response.in_progress", "response": begun},
        {"type": added, "output_index": 0, "item": {**THOUGHT, "encrypted_content": ""}},
        {"type": over, "output_index": 0, "item": THOUGHT},
        {"type": added, "output_index": 1, "item": {**SAID, "status": "in_progress", "content": []}},
        {"type": "response.content_part.added", **at, "part": {**PART, "text": ""}},
        {"type": "response.output_text.delta", **at, "delta": "Hel", "logprobs": []},
        {"type": "response.output_text.delta", **at, "delta": "lo", "logprobs": []},
        {"type": "response.output_text.done", **at, "text": "Hello", "logprobs": []},
        {"type": "response.content_part.done", **at, "part": PART},
        {"type": over, "output_index": 1, "item": SAID},
        {"type": added, "output_index": 2, "item": {**CALLED, "status": "in_progress", "arguments": ""}},
        {"type": "response.function_call_arguments.delta", **call, "delta": "{}"},
        {"type": "response.function_call_arguments.done", **call, "arguments": "{}"},
        {"type": over, "output_index": 2, "item": CALLED},
        {"type": "response.completed", "response": done},
    ]
    return [{**event, "sequence_number": number} for number, event in enumerate(told)]


def read(told: list[Any]) -> list[dict[str, Any]]:
    decoder = RESPONSES.stream_decoder()
    data = b"".join(encode_event(jsontext.dumps(event)) for event in told)
    return [chunk for at in range(len(data)) for chunk in decoder.feed(data[at : at + 1])] + decoder.close()


def test_a_stream_is_given_back_event_for_event() -> None:
    chunks = read(events())
    assert chunks[-1]["reason"] == {"kind": "tool-calls"}
    assert chunks[-2]["usage"] == {"inputTokens": 5, "outputTokens": 2, "cacheReadTokens": 4}
    encoder = RESPONSES.stream_encoder(ASKED, "r", state_of(chunks))
    sent = b"".join(encoder.push(chunk) for chunk in chunks)
    assert [jsontext.loads(event.data) for event in SSEDecoder().feed(sent)] == events()


def test_what_a_client_sends_back_is_what_the_model_said() -> None:
    chunks = read(events())
    outputs = [THOUGHT, SAID, CALLED]
    body = {"model": "m", "input": [*outputs, item("function_call_output", call_id="call_1", output="a")]}
    said, result = RESPONSES.decode_request(body).messages
    assert said["content"] == [chunk["block"] for chunk in chunks if chunk["type"] == "block-end"]
    assert said["source"]["replayState"]["blocks"] == state_of(chunks)["blocks"]
    asked = ModelRequest(session_id="s", call=1, config={"model": "m"}, messages=[said, result])
    assert RESPONSES.encode_request(asked)["input"] == body["input"]


def test_an_answer_that_is_not_streamed_is_given_back() -> None:
    body = events()[-1]["response"]
    chunks = RESPONSES.decode_response(body)
    assert jsontext.loads(RESPONSES.encode_response(chunks, ASKED, "r")[2]) == body


@pytest.mark.parametrize("count", range(16))
def test_an_answer_that_breaks_off_is_not_complete(count: int) -> None:
    assert read(events()[:count])[-1]["reason"]["failure"]["code"] == "STREAM_CLOSED"


@pytest.mark.parametrize(
    ("event", "code"),
    [
        ({"type": "error", "code": "rate_limit_exceeded", "message": "slow"}, "RATE_LIMIT"),
        ({"type": "response.failed", "response": {"error": {"code": "server_error"}}}, "SERVER_ERROR"),
        ({"type": "response.incomplete", "response": {}}, "MALFORMED_STREAM"),
        ({"type": "response.output_text.delta", "output_index": 7, "delta": "x"}, "MALFORMED_STREAM"),
        (7, "MALFORMED_STREAM"),
    ],
)
def test_a_failure_is_told_by_its_code(event: Any, code: str) -> None:
    assert read([*events()[:6], event])[-1]["reason"]["failure"]["code"] == code


def test_a_request_is_written_as_it_was_read() -> None:
    image = item("input_image", image_url="data:image/png;base64,aa", detail="low")
    custom = item("custom_tool_call", id="ct_1", call_id="call_2", name="patch", input="*** x")
    history = [
        {"role": "developer", "content": "be brief"},
        {
            "role": "user",
            "content": [item("input_text", text="see", x=1), image, item("input_file", file_id="f")],
        },
        item("web_search_call", id="ws_1", status="completed", action={"query": "q"}),
        custom,
        item("custom_tool_call_output", call_id="call_2", output="done"),
    ]
    tools = [item("function", name="ls", parameters={}, strict=True), item("web_search")]
    body = {
        "model": "m",
        "instructions": "s",
        "input": history,
        "tools": tools,
        "previous_response_id": "resp_0",
    }
    read = RESPONSES.decode_request(body)
    assert (read.system, read.previous) == ("s", "resp_0")
    asked = ModelRequest(
        session_id="s", call=1, config={"model": "m"}, messages=read.messages, tools=read.tools
    )
    written = RESPONSES.encode_request(asked)
    assert written["tools"] == tools
    assert written["input"] == history


def test_reasoning_whose_state_tells_no_type_is_given_back() -> None:
    said = {"role": "assistant", "content": [{"type": "reasoning", "text": "t"}]}
    said["source"] = {"replayState": {"blocks": [{"id": "rs"}]}}
    asked = ModelRequest(session_id="s", call=1, config={"model": "m"}, messages=[said])
    assert RESPONSES.encode_request(asked)["input"] == [{"id": "rs"}]


def test_an_answer_that_was_cut_keeps_the_ids_of_what_is_left_of_it() -> None:
    body = {
        "id": "resp_1",
        "status": "incomplete",
        "incomplete_details": {"reason": "max_output_tokens"},
        "output": [THOUGHT, CALLED, SAID],
    }
    chunks = RESPONSES.decode_response(body)
    assert jsontext.loads(RESPONSES.encode_response(chunks, ASKED, "r")[2])["output"] == [THOUGHT, SAID]
    live = BlockAssembler()
    for chunk in chunks:
        live.push(chunk)
    said = live.message({"kind": "model"}, "m_1")
    asked = ModelRequest(session_id="s", call=1, config={"model": "m"}, messages=[said])
    assert RESPONSES.encode_request(asked)["input"] == [THOUGHT, SAID]
