"""Requests in both directions: what goes where, the dialects, and what a server refuses to read."""

from __future__ import annotations

from typing import Any

import pytest

from onetake.model.request import ModelRequest
from onetake.wire.chat import ChatDialect, WireError, decode_request, encode_request

SPEC = {"name": "bash", "description": "Run.", "parameters": {"type": "object"}}
CALL = {"type": "tool-call", "id": "a", "name": "bash", "arguments": '{"command": "ls"}'}


def text(value: str) -> dict[str, Any]:
    return {"type": "text", "text": value}


def reasoning(value: str) -> dict[str, Any]:
    return {"type": "reasoning", "text": value}


def result(content: list[dict[str, Any]], call_id: str = "a", is_error: bool = False) -> dict[str, Any]:
    return {"type": "tool-result", "toolCallId": call_id, "content": content, "isError": is_error}


def request(messages: list[dict[str, Any]], **more: Any) -> ModelRequest:
    config = {"provider": "p", "model": "m", **more.pop("config", {})}
    return ModelRequest(session_id="s", call=1, config=config, messages=messages, **more)


def sent(
    *content: dict[str, Any], role: str = "user", dialect: ChatDialect | None = None
) -> list[dict[str, Any]]:
    body = encode_request(request([{"role": role, "content": list(content)}]), dialect)
    found: list[dict[str, Any]] = body["messages"]
    return found


def test_a_whole_request_looks_as_endpoints_expect_it() -> None:
    messages = [
        {"role": "user", "content": [text("list")], "id": "1", "source": {"kind": "user"}},
        {"role": "assistant", "content": [reasoning("hm"), text("ok"), CALL], "id": "2"},
        {"role": "user", "content": [result([text("files")])], "id": "3"},
    ]
    body = encode_request(request(messages, system="Be brief.", tools=[SPEC], config={"maxTokens": 9}))
    assert body == {
        "model": "m",
        "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "list"},
            {
                "role": "assistant",
                "content": "ok",
                "reasoning_content": "hm",
                "tool_calls": [
                    {
                        "id": "a",
                        "type": "function",
                        "function": {"name": "bash", "arguments": '{"command": "ls"}'},
                    }
                ],
            },
            {"role": "tool", "tool_call_id": "a", "content": "files"},
        ],
        "tools": [{"type": "function", "function": SPEC}],
        "max_tokens": 9,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    read = decode_request(body)
    assert (read.model, read.system, read.tools) == ("m", "Be brief.", [SPEC])
    assert (read.stream, read.include_usage, read.config) == (True, True, {"maxTokens": 9})
    assert read.messages == [{"role": m["role"], "content": m["content"]} for m in messages]


def test_what_is_not_there_is_not_sent() -> None:
    body = encode_request(request([], system="", tools=[]), stream=False)
    assert body == {"model": "m", "messages": [], "stream": False}


def test_the_text_blocks_of_a_message_become_one_string() -> None:
    assert sent(text("a"), text("b")) == [{"role": "user", "content": "a\nb"}]
    assert sent(text("a"), text("b"), role="assistant") == [{"role": "assistant", "content": "a\nb"}]
    assert sent(result([text("a"), text("b")])) == [{"role": "tool", "tool_call_id": "a", "content": "a\nb"}]


def test_a_message_without_content_is_sent_all_the_same() -> None:
    assert sent() == [{"role": "user", "content": ""}]


def test_a_message_in_the_history_may_be_a_system_message() -> None:
    assert sent(text("a"), role="system") == [{"role": "system", "content": "a"}]


def test_tool_results_come_first_each_as_its_own_message() -> None:
    assert sent(text("note"), result([text("1")]), result([], "b", is_error=True)) == [
        {"role": "tool", "tool_call_id": "a", "content": "1"},
        {"role": "tool", "tool_call_id": "b", "content": ""},
        {"role": "user", "content": "note"},
    ]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ([CALL], {"content": None}),
        ([], {"content": ""}),
        ([reasoning("hm")], {"content": "", "reasoning_content": "hm"}),
        ([reasoning("a"), text("x"), reasoning("b")], {"content": "x", "reasoning_content": "a\nb"}),
        ([text("")], {"content": ""}),
    ],
)
def test_an_assistant_message_always_has_content(
    content: list[dict[str, Any]], message: dict[str, Any]
) -> None:
    encoded = sent(*content, role="assistant")[0]
    encoded.pop("tool_calls", None)
    assert encoded == {"role": "assistant", **message}


def test_reasoning_can_be_kept_from_endpoints_that_refuse_it() -> None:
    plain = ChatDialect(pass_reasoning=False)
    assert sent(reasoning("hm"), text("x"), role="assistant", dialect=plain) == [
        {"role": "assistant", "content": "x"}
    ]


def test_an_image_makes_a_list_of_parts() -> None:
    parts = sent(text("see"), {"type": "image", "data": "QUJD", "mediaType": "image/gif"})[0]["content"]
    assert parts == [
        {"type": "text", "text": "see"},
        {"type": "image_url", "image_url": {"url": "data:image/gif;base64,QUJD"}},
    ]
    read = decode_request({"model": "m", "messages": [{"role": "user", "content": parts}]})
    assert read.messages[0]["content"] == [
        text("see"),
        {"type": "image", "data": "QUJD", "mediaType": "image/gif"},
    ]
    assert (
        sent({"type": "image", "data": ""})[0]["content"][0]["image_url"]["url"] == "data:image/png;base64,"
    )


@pytest.mark.parametrize(
    "block", [{"type": "image", "attachment": {}}, reasoning("x"), {"type": "odd", "data": ""}]
)
def test_a_block_that_cannot_be_sent_is_refused_by_name(block: dict[str, Any]) -> None:
    with pytest.raises(WireError, match=f"a block of type '{block['type']}' cannot be sent"):
        sent(text("a"), block)


def test_an_assistant_message_has_no_images() -> None:
    with pytest.raises(WireError, match="cannot carry a block of type 'image'"):
        sent({"type": "image", "data": ""}, role="assistant")


@pytest.mark.parametrize(
    ("config", "dialect", "fields"),
    [
        (
            {"maxTokens": 5},
            ChatDialect(max_tokens_field="max_completion_tokens"),
            {"max_completion_tokens": 5},
        ),
        ({"maxTokens": None, "reasoningEffort": None, "temperature": None}, ChatDialect(), {}),
        ({"temperature": 0, "topP": 0.5}, ChatDialect(), {"temperature": 0, "top_p": 0.5}),
        ({"reasoningEffort": "high"}, ChatDialect(), {"reasoning_effort": "high"}),
        ({"reasoningEffort": "off"}, ChatDialect(), {"reasoning_effort": "none"}),
        (
            {"reasoningEffort": "high"},
            ChatDialect(thinking_switch=True),
            {"thinking": {"type": "enabled"}, "reasoning_effort": "high"},
        ),
        ({"reasoningEffort": "off"}, ChatDialect(thinking_switch=True), {"thinking": {"type": "disabled"}}),
        ({}, ChatDialect(thinking_switch=True), {}),
        ({"maxTokens": 5}, ChatDialect(extra={"max_tokens": 6, "seed": 1}), {"max_tokens": 6, "seed": 1}),
    ],
)
def test_settings_have_the_fields_of_the_dialect(
    config: dict[str, Any], dialect: ChatDialect, fields: dict[str, Any]
) -> None:
    body = encode_request(request([], config=config), dialect, stream=False)
    assert {key: value for key, value in body.items() if key not in ("model", "messages", "stream")} == fields
    if not dialect.extra:
        told = {key: value for key, value in config.items() if value is not None}
        body["messages"] = [{"role": "user", "content": "x"}]
        assert decode_request(body).config == told


def test_leading_system_messages_are_the_system_prompt() -> None:
    body = {
        "model": "m",
        "messages": [
            {"role": "system", "content": "a"},
            {"role": "developer", "content": [{"type": "text", "text": "b"}]},
            {"role": "user", "content": None},
            {"role": "system", "content": "c"},
        ],
    }
    read = decode_request(body)
    assert read.system == "a\nb"
    assert read.messages == [{"role": "user", "content": []}, {"role": "system", "content": [text("c")]}]
    assert (read.stream, read.include_usage, read.tools) == (False, False, None)


def test_an_empty_content_beside_something_else_is_no_block() -> None:
    message = {"role": "assistant", "content": "", "reasoning_content": "hm"}
    assert decode_request({"model": "m", "messages": [message]}).messages[0]["content"] == [reasoning("hm")]
    call = {"id": "a", "function": {"name": "bash", "arguments": '{"command": "ls"}'}}
    message = {"role": "assistant", "content": "", "tool_calls": [call]}
    assert decode_request({"model": "m", "messages": [message]}).messages[0]["content"] == [CALL]
    message = {"role": "assistant", "content": ""}
    assert decode_request({"model": "m", "messages": [message]}).messages[0]["content"] == [text("")]


@pytest.mark.parametrize("options", [None, 1, {}, {"include_usage": False}, {"include_usage": 1}])
def test_usage_is_streamed_only_when_it_was_asked_for(options: Any) -> None:
    body = {"model": "m", "messages": [{"role": "user", "content": "x"}], "stream_options": options}
    assert decode_request(body).include_usage is False


@pytest.mark.parametrize(
    "part",
    [
        {"text": "x"},
        {"type": "text", "text": 1},
        {"type": "text", "image_url": {"url": "data:image/png;base64,QUJD"}},
        {"type": "image_url"},
        {"type": "image_url", "image_url": "data:image/png;base64,QUJD"},
        {"type": "image_url", "image_url": {"url": "image/png;base64,QUJD"}},
        {"type": "image_url", "image_url": {"url": "data:image/png,QUJD"}},
    ],
)
def test_a_part_of_another_shape_is_refused(part: dict[str, Any]) -> None:
    with pytest.raises(WireError, match=r"messages\[0\].content\[0\] must be a text part"):
        decode_request({"model": "m", "messages": [{"role": "user", "content": [part]}]})


@pytest.mark.parametrize(
    "call",
    [
        {"function": {"name": "b", "arguments": ""}},
        {"id": "a", "function": {"arguments": ""}},
        {"id": "a", "function": {"name": "b"}},
        {"id": "a", "function": 1},
    ],
)
def test_a_call_of_another_shape_is_refused(call: dict[str, Any]) -> None:
    with pytest.raises(WireError, match=r"messages\[0\].tool_calls\[0\] needs an id"):
        decode_request({"model": "m", "messages": [{"role": "assistant", "tool_calls": [call]}]})


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (None, "an object with a model"),
        ({"messages": []}, "an object with a model"),
        ({"model": "m"}, "messages must be a list that is not empty"),
        ({"model": "m", "messages": []}, "messages must be a list that is not empty"),
        ({"model": "m", "messages": {"0": 1}}, "messages must be a list that is not empty"),
        ({"model": "m", "messages": [1]}, r"messages\[0\] must be an object"),
        ({"model": "m", "messages": [{"role": "bot"}]}, r"messages\[0\].role must be"),
        ({"model": "m", "messages": [{"role": "tool", "content": "x"}]}, "tool_call_id must be a string"),
        ({"model": "m", "messages": [{"role": "user", "content": 1}]}, "content must be a string or a list"),
        ({"model": "m", "messages": [{"role": "user", "content": [1]}]}, r"content\[0\] must be a text part"),
        (
            {
                "model": "m",
                "messages": [
                    {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "http://x"}}]}
                ],
            },
            r"content\[0\] must be a text part",
        ),
        (
            {
                "model": "m",
                "messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": 1}}]}],
            },
            r"content\[0\] must be a text part",
        ),
        ({"model": "m", "messages": [{"role": "assistant", "tool_calls": 1}]}, "tool_calls must be a list"),
        (
            {"model": "m", "messages": [{"role": "assistant", "tool_calls": [1]}]},
            r"tool_calls\[0\] needs an id",
        ),
        (
            {
                "model": "m",
                "messages": [{"role": "assistant", "tool_calls": [{"id": "a", "function": {"name": "b"}}]}],
            },
            r"tool_calls\[0\] needs an id",
        ),
        ({"model": "m", "messages": [{"role": "user", "content": "x"}], "tools": 1}, "tools must be a list"),
        (
            {"model": "m", "messages": [{"role": "user", "content": "x"}], "tools": [1]},
            "a function with a name",
        ),
        (
            {"model": "m", "messages": [{"role": "user", "content": "x"}], "tools": [{"function": {}}]},
            "a function with a name",
        ),
    ],
)
def test_a_body_of_another_shape_is_refused_with_its_place(body: Any, reason: str) -> None:
    with pytest.raises(WireError, match=reason):
        decode_request(body)
