"""What must hold for every reply of a script: the client gets what the script says, in the pieces it says."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from onetake import jsontext
from onetake.gateway.script import Replies, chunks_of, load_script
from onetake.model.assembler import BlockAssembler
from onetake.testing.strategies.text import texts
from onetake.testing.strategies.wire_chat import as_read, usages
from onetake.wire.chat import ChatStreamDecoder, ChatStreamEncoder

some_text = texts().map(as_read).filter(bool)
plain = texts().map(as_read).filter(lambda text: "{{" not in text)
calls = st.fixed_dictionaries(
    {
        "name": some_text.filter(lambda text: "{{" not in text),
        "arguments": plain | st.dictionaries(plain, plain, max_size=2),
    }
)
replies = st.fixed_dictionaries(
    {},
    optional={
        "reasoning": plain,
        "text": plain,
        "toolCalls": st.lists(calls, max_size=3),
        "usage": usages(),
        "deltaChars": st.integers(1, 9),
    },
)


def taken(reply: dict[str, Any], messages: list[Any]) -> Any:
    raw = jsontext.dumps({"replies": [{"reply": reply}]})
    return Replies(load_script(raw, "script")).take(messages)


@given(replies)
def test_a_client_gets_what_the_script_says(reply: dict[str, Any]) -> None:
    encoder, decoder = ChatStreamEncoder("m"), ChatStreamDecoder()
    chunks = chunks_of(taken(reply, []), 40)
    read = [chunk for sent in chunks for chunk in decoder.feed(encoder.push(sent))]
    assert read == chunks
    assembler = BlockAssembler()
    for chunk in read:
        assembler.push(chunk)
    said = [(block["type"], block.get("text", block.get("arguments"))) for block in assembler.blocks()]
    expected = [(kind, reply[kind]) for kind in ("reasoning", "text") if reply.get(kind)]
    for call in reply.get("toolCalls", []):
        raw = call["arguments"]
        expected.append(("tool-call", raw if isinstance(raw, str) else jsontext.dumps(raw).decode()))
    assert said == expected
    assert assembler.usage == reply.get("usage", assembler.usage)


@given(replies)
def test_no_delta_is_longer_than_the_script_allows(reply: dict[str, Any]) -> None:
    longest = reply.get("deltaChars", 12)
    for chunk in chunks_of(taken(reply, []), 40):
        if chunk["type"].endswith("-delta"):
            assert len(chunk.get("text", chunk.get("argumentsDelta"))) <= longest


@given(some_text, plain)
def test_what_a_request_says_comes_back_in_the_reply(word: str, around: str) -> None:
    reply = taken(
        {"text": "{{fromRequest:<(?s:(.*))>}}"},
        [{"role": "user", "content": f"{around.replace('>', '')}<{word}>"}],
    )
    assert reply.text.endswith(word)
