"""Requests of OpenAI's Responses, read and written: every field, and every refusal with its message."""

from __future__ import annotations

from typing import Any

import pytest

from onetake.model.request import ModelRequest
from onetake.wire.chat_request import WireError
from onetake.wire.responses_request import decode_request, encode_request

CALL = {"type": "function_call", "id": "fc_1", "call_id": "c1", "name": "ls", "arguments": "{}"}


def asked(*messages: dict[str, Any], **fields: Any) -> ModelRequest:
    config = {"model": "m", **fields.pop("config", {})}
    return ModelRequest(session_id="s", call=1, config=config, messages=list(messages), **fields)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"model": 7}, "the request must be an object with a model"),
        ({"instructions": 7}, "instructions must be a string"),
        ({"previous_response_id": 7}, "previous_response_id must be a string"),
        ({"input": 7}, "input must be a string or a list of items"),
        ({"input": [7]}, "input[0] must be an object"),
        ({"input": ["x"]}, "input[0] must be an object"),
        ({"input": [{"role": "tool"}]}, "input[0].role must be user, system, developer or assistant"),
        ({"input": [{"type": "message"}]}, "input[0].role must be user, system, developer or assistant"),
        ({"input": [{"role": "user"}]}, "input[0].content must be a string or a list of parts"),
        (
            {"input": [{"role": "user", "content": ["x"]}]},
            "input[0].content must be a string or a list of parts",
        ),
        ({"input": [{"type": "function_call_output"}]}, "input[0].call_id must be a string"),
        (
            {"input": [CALL, {"type": "function_call_output", "call_id": "c1", "output": 7}]},
            "input[1].output must be a string or a list of parts",
        ),
        ({"input": [{**CALL, "call_id": 7}]}, "input[0].call_id must be a string"),
        ({"input": [{**CALL, "arguments": {}}]}, "input[0].arguments must be a string"),
        (
            {"input": [{**CALL, "type": "custom_tool_call"}]},
            "input[0].input must be a string",
        ),
        ({"tools": {}}, "tools must be a list of objects"),
        ({"tools": ["ls"]}, "tools must be a list of objects"),
    ],
)
def test_a_body_that_is_not_of_the_format_is_refused_by_its_field(body: dict[str, Any], message: str) -> None:
    with pytest.raises(WireError) as refused:
        decode_request({"model": "m", **body})
    assert str(refused.value) == message


def test_a_body_that_is_no_object_is_refused() -> None:
    with pytest.raises(WireError, match=r"^the request must be an object with a model$"):
        decode_request([])


def test_a_text_alone_is_what_the_user_says() -> None:
    read = decode_request({"model": "m", "input": "hi", "stream": True, "store": False})
    assert read.messages == [{"role": "user", "content": [{"type": "text", "text": "hi"}]}]
    assert (read.model, read.system, read.tools, read.previous) == ("m", None, None, None)
    assert (read.stream, read.include_usage) == (True, True)
    assert read.settings == {"stream": True, "store": False}


@pytest.mark.parametrize(
    ("body", "config"),
    [
        (
            {"max_output_tokens": 9, "temperature": 0, "top_p": 1},
            {"maxTokens": 9, "temperature": 0, "topP": 1},
        ),
        ({"reasoning": {"effort": "low"}}, {"reasoningEffort": "low"}),
        ({"reasoning": {"effort": "none"}}, {"reasoningEffort": "off"}),
    ],
)
def test_settings_have_our_names_and_go_back_to_theirs(body: dict[str, Any], config: dict[str, Any]) -> None:
    assert decode_request({"model": "m", **body}).config == config
    always = {"include": ["reasoning.encrypted_content"], "store": False, "stream": False}
    written = encode_request(asked(config=config), stream=False)
    assert written == {"model": "m", "input": [], **body, **always}


@pytest.mark.parametrize("reasoning", ["low", {}, None])
def test_reasoning_without_an_effort_sets_nothing(reasoning: Any) -> None:
    assert decode_request({"model": "m", "reasoning": reasoning, "top_p": None}).config == {}


def test_a_request_is_written_with_its_instructions_and_tools() -> None:
    tools = [{"name": "ls", "parameters": {}}, {"type": "web_search"}]
    said = {"role": "user", "content": [{"type": "text", "text": "hi"}]}
    written = encode_request(asked(said, system="be brief", tools=tools))
    assert written == {
        "model": "m",
        "instructions": "be brief",
        "input": [{"role": "user", "content": "hi"}],
        "tools": [{"type": "function", "name": "ls", "parameters": {}}, {"type": "web_search"}],
        "include": ["reasoning.encrypted_content"],
        "store": False,
        "stream": True,
    }
    assert decode_request(written).tools == tools


@pytest.mark.parametrize(
    ("items", "roles"),
    [
        ([{"role": "system", "content": "s"}], ["system"]),
        ([{"role": "developer", "content": "d"}], ["system"]),
        ([{"role": "user", "content": []}], ["user"]),
        ([{"role": "user", "content": [{"type": "input_image", "file_id": "f"}]}], ["user"]),
        (
            [{"role": "user", "content": [{"type": "input_image", "image_url": "data:image/png;base64,aa"}]}],
            ["user"],
        ),
        ([{"role": "user", "content": [{"type": "input_image", "image_url": "x;base64,aa"}]}], ["user"]),
        ([{"role": "user", "content": [{"type": "input_image", "image_url": "http://x/"}]}], ["user"]),
        ([{"role": "user", "content": [{"type": "input_text", "text": 7}]}], ["user"]),
        ([CALL, {"type": "function_call_output", "call_id": "c1", "output": "a"}], ["assistant", "user"]),
        (
            [
                CALL,
                {
                    "type": "function_call_output",
                    "call_id": "c1",
                    "status": "completed",
                    "output": [
                        {"type": "input_text", "text": "a"},
                        {"type": "input_image", "image_url": "data:image/png;base64,aa"},
                    ],
                },
                {"type": "message", "role": "assistant", "content": "well"},
                CALL,
            ],
            ["assistant", "user", "assistant"],
        ),
    ],
)
def test_every_item_is_written_as_it_was_read(items: list[dict[str, Any]], roles: list[str]) -> None:
    read = decode_request({"model": "m", "input": items}).messages
    assert [message["role"] for message in read] == roles
    assert encode_request(asked(*read))["input"] == items


def test_a_message_of_the_assistant_need_not_tell_its_type() -> None:
    (said,) = decode_request({"model": "m", "input": [{"role": "assistant", "content": "well"}]}).messages
    assert said == {
        "role": "assistant",
        "content": [{"type": "text", "text": "well"}],
        "source": {
            "kind": "model",
            "replayState": {"blocks": [{"type": "message", "role": "assistant", "content": "well"}]},
        },
    }


@pytest.mark.parametrize(
    "source", [None, {"kind": "model"}, {"replayState": {"blocks": [{"type": "reasoning"}]}}]
)
def test_what_another_provider_said_is_written_without_its_reasoning(source: Any) -> None:
    content = [
        {"type": "reasoning", "text": "Hm"},
        {"type": "text", "text": "well"},
        {"type": "tool-call", "id": "c1", "name": "ls", "arguments": "{}"},
    ]
    said = {"role": "assistant", "content": content, "source": source}
    assert encode_request(asked(said))["input"] == [
        {
            "type": "message",
            "role": "assistant",
            "content": [{"type": "output_text", "text": "well", "annotations": []}],
        },
        {"type": "function_call", "call_id": "c1", "name": "ls", "arguments": "{}"},
    ]


def test_a_result_goes_before_what_the_user_says_with_it() -> None:
    result = {"type": "tool-result", "toolCallId": "c1", "content": [{"type": "text", "text": "a"}]}
    said = {"role": "user", "content": [{"type": "text", "text": "b"}, result]}
    assert encode_request(asked(said))["input"] == [
        {"type": "function_call_output", "call_id": "c1", "output": "a"},
        {"role": "user", "content": "b"},
    ]


def test_an_image_without_a_media_type_is_a_png() -> None:
    said = {"role": "user", "content": [{"type": "image", "data": "aa"}]}
    (item,) = encode_request(asked(said))["input"]
    assert item["content"] == [{"type": "input_image", "image_url": "data:image/png;base64,aa"}]


@pytest.mark.parametrize(
    ("role", "block", "message"),
    [
        (
            "user",
            {"type": "image"},
            "a block of type 'image' cannot be sent (an image needs its base64 data)",
        ),
        ("user", {"type": "x"}, "a block of type 'x' cannot be sent (an image needs its base64 data)"),
        ("assistant", {"type": "image", "data": "aa"}, "an answer cannot carry a block of type 'image'"),
    ],
)
def test_a_block_that_the_format_cannot_carry_is_refused(role: str, block: Any, message: str) -> None:
    with pytest.raises(WireError) as refused:
        encode_request(asked({"role": role, "content": [block]}))
    assert str(refused.value) == message
