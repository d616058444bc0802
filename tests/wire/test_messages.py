"""Anthropic's Messages as its documentation shows it: streams, requests, and what clients send back."""

from __future__ import annotations

from typing import Any

import pytest

from onetake import jsontext
from onetake.model.assembler import BlockAssembler
from onetake.model.failures import failure
from onetake.model.request import ModelRequest
from onetake.wire.chat_request import WireError
from onetake.wire.errors import failure_of_response
from onetake.wire.format import WireRequest, state_of
from onetake.wire.messages import MESSAGES
from onetake.wire.sse import SSEDecoder, encode_event

ASKED = WireRequest(model="claude", stream=True)


def start(**more: Any) -> dict[str, Any]:
    message = {"id": "msg_1", "type": "message", "role": "assistant", "model": "claude", "content": []}
    usage = {"input_tokens": 25, "output_tokens": 1, "cache_read_input_tokens": 7}
    ending = {"stop_reason": None, "stop_sequence": None}
    return {"type": "message_start", "message": {**message, **ending, "usage": usage, **more}}


def block(index: int, part: dict[str, Any], *deltas: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        {"type": "content_block_start", "index": index, "content_block": part},
        *({"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas),
        {"type": "content_block_stop", "index": index},
    ]


def ending(reason: str, **more: Any) -> list[dict[str, Any]]:
    delta = {"stop_reason": reason, "stop_sequence": None, **more}
    return [
        {"type": "message_delta", "delta": delta, "usage": {"output_tokens": 15}},
        {"type": "message_stop"},
    ]


PING = {"type": "ping"}
TEXT = {"type": "text", "text": ""}
THINKING = {"type": "thinking", "thinking": "", "signature": ""}
TOOL = {"type": "tool_use", "id": "toolu_1", "name": "look", "input": {}}
SEARCH = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {}}
FOUND = {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": [{"title": "x"}]}
CITED = {"type": "citations_delta", "citation": {"cited_text": "x", "url": "u"}}


def said(text: str) -> dict[str, Any]:
    return {"type": "text_delta", "text": text}


def thought(text: str) -> dict[str, Any]:
    return {"type": "thinking_delta", "thinking": text}


def signed(text: str) -> dict[str, Any]:
    return {"type": "signature_delta", "signature": text}


def piece(text: str) -> dict[str, Any]:
    return {"type": "input_json_delta", "partial_json": text}


STREAMS = {
    "text": [
        start(),
        *block(0, TEXT, said("Hel"), said("lo"))[:1],
        PING,
        *block(0, TEXT, said("Hello"))[1:],
        *ending("end_turn"),
    ],
    "tools": [
        start(),
        *block(0, TEXT, said("I look.")),
        *block(1, TOOL, piece(""), piece('{"at": '), piece('"sky"}')),
        *block(2, {**TOOL, "id": "toolu_2"}),
        *ending("tool_use"),
    ],
    "thinking": [
        start(service_tier="standard"),
        PING,
        *block(0, THINKING, thought("Hm"), thought("."), signed("sig==")),
        *block(1, {"type": "redacted_thinking", "data": "secret"}),
        *block(2, TEXT, said("Yes.")),
        *ending("stop_sequence", stop_sequence="###"),
    ],
    "older thinking": [
        start(),
        *block(0, {"type": "thinking", "thinking": ""}, thought("Hm"), signed("s")),
        *ending("end_turn"),
    ],
    "search": [
        start(),
        *block(0, SEARCH, piece(""), piece('{"query": "x"}')),
        *block(1, FOUND),
        *block(2, {**TEXT, "citations": []}, CITED, said("x it is")),
        {"type": "new_event", "of": 2030},
        {"type": "message_delta", "delta": {}, "usage": {"output_tokens": 3}},
        *ending("pause_turn", container=None),
    ],
    "cut short": [start(), *block(0, TEXT, said("a")), *block(1, TOOL, piece('{"a')), *ending("max_tokens")],
    "refusal": [start(), *block(0, TEXT, said("I")), *ending("refusal")],
    "odd": [start(), *block(0, TEXT, {**said("I"), "p": "abc"}), *ending("end_turn")],
}


def decoded(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    decoder = MESSAGES.stream_decoder()
    data = b"".join(encode_event(jsontext.dumps(event), event=event["type"]) for event in events)
    chunks = [chunk for at in range(len(data)) for chunk in decoder.feed(data[at : at + 1])]
    return chunks + decoder.close()


def encoded(chunks: list[dict[str, Any]], **more: Any) -> list[Any]:
    encoder = MESSAGES.stream_encoder(ASKED, "msg_made", state_of(chunks))
    data = b"".join(encoder.push(chunk) for chunk in chunks)
    return [jsontext.loads(event.data) for event in SSEDecoder().feed(data)]


def message(chunks: list[dict[str, Any]]) -> dict[str, Any]:
    assembler = BlockAssembler()
    for chunk in chunks:
        assembler.push(chunk)
    return assembler.message({"kind": "model"}, "1")


@pytest.mark.parametrize("name", STREAMS)
def test_a_stream_is_given_back_event_by_event(name: str) -> None:
    assert encoded(decoded(STREAMS[name])) == STREAMS[name]


@pytest.mark.parametrize("name", ["text", "tools", "thinking", "search"])
def test_what_a_client_sends_back_is_what_the_model_said(name: str) -> None:
    chunks = decoded(STREAMS[name])
    whole = jsontext.loads(MESSAGES.encode_response(chunks, ASKED, "r")[2])
    sent = {"role": "assistant", "content": whole["content"]}
    [again] = MESSAGES.decode_request({"model": "claude", "messages": [sent]}).messages
    held = message(chunks)
    assert again["source"]["replayState"]["blocks"] == held["source"]["replayState"]["blocks"]
    for one, other in zip(again["content"], held["content"], strict=True):
        if one["type"] == "tool-call":
            other = {
                **other,
                "arguments": jsontext.dumps(jsontext.loads(other["arguments"] or "{}")).decode(),
            }
        assert one == other


def test_a_whole_answer_is_given_back_as_it_came() -> None:
    content = [
        {"type": "thinking", "thinking": "Hm.", "signature": "s"},
        {"type": "text", "text": "x", "citations": [{"cited_text": "x"}]},
        {"type": "tool_use", "id": "t", "name": "look", "input": {}, "caller": {"type": "direct"}},
        SEARCH,
    ]
    usage = {"input_tokens": 1, "output_tokens": 2, "cache_creation_input_tokens": 3, "service_tier": "s"}
    body = {**start()["message"], "content": content, "stop_reason": "tool_use", "usage": usage}
    chunks = MESSAGES.decode_response(body)
    assert jsontext.loads(MESSAGES.encode_response(chunks, ASKED, "r")[2]) == body
    assert chunks[-2] == {
        "type": "usage",
        "usage": {"inputTokens": 1, "outputTokens": 2, "cacheWriteTokens": 3},
    }
    assert message(decoded(encoded(chunks)))["content"] == message(chunks)["content"]


def test_an_answer_without_a_state_is_made_up() -> None:
    chunks = [
        {"type": "block-end", "index": 0, "block": {"type": "reasoning", "text": "Hm"}},
        {"type": "block-end", "index": 1, "block": {"type": "text", "text": "Yes"}},
        {
            "type": "block-end",
            "index": 2,
            "block": {"type": "tool-call", "id": "c", "name": "n", "arguments": "{}"},
        },
        {"type": "usage", "usage": {"inputTokens": 1, "outputTokens": 2, "cacheReadTokens": 3}},
        {"type": "finish", "reason": {"kind": "tool-calls"}},
    ]
    events = encoded(chunks)
    assert events[0]["message"]["id"] == "msg_made"
    assert message(decoded(events))["content"] == message(chunks)["content"]
    assert decoded(events)[-2] == chunks[-2]
    whole = MESSAGES.decode_response(jsontext.loads(MESSAGES.encode_response(chunks, ASKED, "r")[2]))
    assert message(whole)["content"] == message(chunks)["content"]


def test_an_error_event_is_the_failure_that_it_names() -> None:
    event = {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}
    last = decoded([start(), event])[-1]
    assert last["reason"]["failure"] == {"message": "Overloaded", "code": "OVERLOADED"}


def test_a_failure_is_answered_in_the_shape_of_anthropic() -> None:
    described = failure("slow down", "RATE_LIMIT", status=429)
    status, headers, body = MESSAGES.error_response(described)
    told = jsontext.loads(body)
    assert (status, told["type"], told["error"]["type"]) == (429, "error", "rate_limit_error")
    assert failure_of_response(status, headers, body) == described


@pytest.mark.parametrize(
    ("events", "why"),
    [
        ([[]], "malformed: an event is not an object"),
        ([{"type": "message_start"}], "malformed: message_start has no message"),
        (
            [{"type": "content_block_delta", "index": 0, "delta": said("x")}],
            "malformed: there is no open content block 0",
        ),
        ([*block(0, TEXT)[:1], *block(0, TEXT)[:1]], "malformed: the content block 0 cannot begin"),
        (
            [{"type": "content_block_start", "index": 0, "content_block": {"type": "tool-call"}}],
            "malformed: the content block 0 cannot begin",
        ),
        (
            [{"type": "content_block_start", "index": 0}],
            "malformed: content_block_start needs an index and a content_block",
        ),
        (block(0, {"type": "tool_use"}), "malformed: id of a tool_use is not a string"),
        (block(0, {"type": "text", "text": 1}), "malformed: text is not a string"),
        (
            [*block(0, TEXT)[:1], {"type": "content_block_delta", "index": 0}],
            "malformed: a delta is not an object",
        ),
        (block(0, TEXT, {"type": "text_delta"}), "malformed: text is not a string"),
        ([{"type": "message_delta", "delta": 1}], "malformed: the delta of a message is not an object"),
        (ending("other"), "ended the answer with an unknown stop_reason, 'other'"),
        ([{"type": "message_stop"}], "ended without a stop_reason"),
    ],
)
def test_what_is_not_of_the_format_is_a_malformed_stream(events: list[Any], why: str) -> None:
    decoder = MESSAGES.stream_decoder()
    chunks = [chunk for event in events for chunk in decoder.feed(encode_event(jsontext.dumps(event)))]
    described = chunks[-1]["reason"]["failure"]
    assert described["code"] == "MALFORMED_STREAM" and described["message"].endswith(why)
    assert decoder.finished and decoder.close() == []


REQUEST: dict[str, Any] = {
    "model": "claude",
    "max_tokens": 100,
    "stream": True,
    "thinking": {"type": "enabled", "budget_tokens": 50},
    "metadata": {"user_id": "u"},
    "tool_choice": {"type": "auto"},
    "system": [{"type": "text", "text": "Be"}, {"type": "text", "text": "brief.", "cache_control": {"x": 1}}],
    "tools": [
        {"name": "look", "description": "Looks.", "input_schema": {"type": "object"}, "strict": True},
        {"type": "web_search_20250305", "name": "web_search"},
    ],
    "messages": [
        {"role": "user", "content": "Look."},
        {
            "role": "assistant",
            "content": [{"type": "tool_use", "id": "t", "name": "look", "input": {"a": 1}}],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "t", "is_error": True, "content": "no", "x": 1},
                {
                    "type": "image",
                    "source": {"type": "base64", "media_type": "image/png", "data": "aa"},
                },
                {"type": "image", "source": {"type": "url", "url": "http://x"}},
                {"type": "document", "source": {"type": "text"}},
            ],
        },
    ],
}


def test_a_request_is_read_without_losing_anything() -> None:
    read = MESSAGES.decode_request(REQUEST)
    assert (read.system, read.config, read.stream) == ("Be\nbrief.", {"maxTokens": 100}, True)
    assert read.settings["system"] == [
        {"type": "text", "length": 2},
        {"type": "text", "length": 6, "cache_control": {"x": 1}},
    ]
    assert {key: read.settings[key] for key in ("metadata", "thinking", "tool_choice")} == {
        key: REQUEST[key] for key in ("metadata", "thinking", "tool_choice")
    }
    assert read.tools == [
        {"name": "look", "description": "Looks.", "parameters": {"type": "object"}, "strict": True},
        {"type": "web_search_20250305", "name": "web_search"},
    ]
    assert read.messages[2]["content"][:2] == [
        {
            "type": "tool-result",
            "toolCallId": "t",
            "content": [{"type": "text", "text": "no"}],
            "isError": True,
            "x": 1,
        },
        {"type": "image", "data": "aa", "mediaType": "image/png"},
    ]


def test_a_request_is_written_as_it_is_read() -> None:
    read = MESSAGES.decode_request(REQUEST)
    asked = ModelRequest(
        session_id="s",
        call=1,
        config={"provider": "p", "model": read.model, **read.config},
        system=read.system,
        tools=read.tools,
        messages=read.messages,
    )
    again = MESSAGES.decode_request(MESSAGES.encode_request(asked))
    assert (again.messages, again.tools, again.system) == (read.messages, read.tools, read.system)


def asking(role: str, content: Any) -> dict[str, Any]:
    return {"messages": [{"role": role, "content": content}]}


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"model": None}, "the request must be an object with a model"),
        ({"messages": []}, "messages must be a list that is not empty"),
        ({"system": 1}, "system must be a string or a list of text blocks"),
        ({"system": [1]}, "system[0] must be a text block"),
        ({"tools": [1]}, "tools must be a list of objects"),
        (asking("tool", "x"), "messages[0] must be an object whose role is user or assistant"),
        (asking("user", 1), "messages[0].content must be a string or a list of blocks"),
        (
            asking("user", [{"type": "tool-call"}]),
            "messages[0].content[0] must be a content block with a type",
        ),
        (asking("user", [{"type": "text"}]), "messages[0].content[0].text must be a string"),
        (asking("user", [{"type": "tool_result"}]), "messages[0].content[0].tool_use_id must be a string"),
        (
            asking("user", [{"type": "tool_result", "tool_use_id": "t", "content": 1}]),
            "messages[0].content[0].content must be a string or a list of blocks",
        ),
        (asking("assistant", [{"type": "tool_use"}]), "messages[0].content[0].id must be a string"),
        (asking("assistant", [1]), "messages[0].content[0] must be a content block with a type"),
    ],
)
def test_a_request_of_another_shape_is_refused(change: dict[str, Any], why: str) -> None:
    with pytest.raises(WireError) as caught:
        MESSAGES.decode_request({**REQUEST, **change})
    assert str(caught.value) == why


@pytest.mark.parametrize(
    ("kind", "code"),
    [
        ("permission_error", "AUTH"),
        ("billing_error", "INSUFFICIENT_BALANCE"),
        ("not_found_error", "NOT_FOUND"),
        ("timeout_error", "TIMEOUT"),
        ("request_too_large", "BAD_REQUEST"),
        ("api_error", "SERVER_ERROR"),
    ],
)
def test_an_error_is_known_by_its_type(kind: str, code: str) -> None:
    event = {"type": "error", "error": {"type": kind, "message": "x"}}
    assert decoded([event])[-1]["reason"]["failure"]["code"] == code
    assert MESSAGES.decode_response(event)[-1]["reason"]["failure"]["code"] == code


def test_unusual_fields_of_any_event_are_given_back() -> None:
    events = [start(), start(), *block(0, TEXT), *ending("end_turn")]
    events[3:4] = [{**events[3], "x": 1}]
    events[-1] = {"type": "message_stop", "metrics": {"ms": 1}}
    events[0] = {**events[0], "x": 2}
    assert encoded(decoded(events)) == events


def test_an_input_that_is_no_object_is_wrapped_and_unwrapped() -> None:
    call = {"type": "tool-call", "id": "t", "name": "look"}
    for arguments in ('{"a', "[1]"):
        message = {"role": "assistant", "content": [{**call, "arguments": arguments}]}
        asked = ModelRequest(session_id="s", call=1, config={"model": "m"}, messages=[message])
        body = MESSAGES.encode_request(asked)
        assert body["messages"][0]["content"][0]["input"] == {"INVALID_JSON": arguments}
        assert MESSAGES.decode_request(body).messages[0]["content"] == message["content"]


def test_a_call_is_sent_as_the_endpoint_takes_it() -> None:
    def text(role: str, value: str) -> dict[str, Any]:
        return {"role": role, "content": [{"type": "text", "text": value}]}

    unsigned = {"role": "assistant", "content": [{"type": "reasoning", "text": "of another provider"}]}
    config = {"model": "m", "maxTokens": 10, "reasoningEffort": "low", "temperature": 1}
    messages = [text("user", "a"), text("user", ""), unsigned, text("user", "b")]
    body = MESSAGES.encode_request(ModelRequest(session_id="s", call=1, config=config, messages=messages))
    assert body == {
        "model": "m",
        "max_tokens": 2058,
        "temperature": 1,
        "thinking": {"type": "enabled", "budget_tokens": 2048},
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}
        ],
        "stream": True,
    }


@pytest.mark.parametrize(
    ("role", "kind", "why"),
    [
        ("assistant", "image", "an answer cannot carry a block of type 'image'"),
        ("assistant", "tool-result", "an answer cannot carry a block of type 'tool-result'"),
        ("user", "image", "a block of type 'image' cannot be sent (an image needs its base64 data)"),
        ("user", "reasoning", "a block of type 'reasoning' cannot be sent (an image needs its base64 data)"),
    ],
)
def test_blocks_that_the_format_has_not_are_refused(role: str, kind: str, why: str) -> None:
    message = {"role": role, "content": [{"type": kind}]}
    asked = ModelRequest(session_id="s", call=1, config={"model": "m"}, messages=[message])
    with pytest.raises(WireError) as caught:
        MESSAGES.encode_request(asked)
    assert str(caught.value) == why


@pytest.mark.parametrize(
    ("more", "effort"),
    [({"thinking": {"type": "disabled"}}, "off"), ({"output_config": {"effort": "high"}}, "high")],
)
def test_the_effort_of_a_request_is_read(more: dict[str, Any], effort: str) -> None:
    assert MESSAGES.decode_request({**REQUEST, **more}).config["reasoningEffort"] == effort


def test_nothing_is_sent_behind_the_end_and_nothing_whole_of_an_open_answer() -> None:
    encoder = MESSAGES.stream_encoder(ASKED, "r")
    finish = {"type": "finish", "reason": {"kind": "stop"}}
    assert encoder.push(finish) != b"" and encoder.push(finish) == b""
    assert MESSAGES.encode_response([], ASKED, "r")[0] == 502
