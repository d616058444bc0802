"""What must hold for every stream, however it is cut: reading gives back what was written."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from onetake import jsontext
from onetake.model.assembler import BlockAssembler
from onetake.model.request import ModelRequest
from onetake.wire.chat import (
    ChatStreamDecoder,
    ChatStreamEncoder,
    decode_request,
    decode_response,
    encode_request,
    encode_response,
)
from onetake.wire.errors import failure_of_response, response_of_failure
from onetake.wire.sse import ServerEvent, SSEDecoder, encode_comment, encode_event
from tests.wire.strategies import chunk_streams, cut, failures, sendable, some_text, texts


def encoded(chunks: list[dict[str, Any]]) -> list[bytes]:
    encoder = ChatStreamEncoder("m")
    return [encoder.push(chunk) for chunk in chunks]


def decoded(pieces: list[bytes]) -> list[dict[str, Any]]:
    decoder = ChatStreamDecoder()
    chunks = [chunk for piece in pieces for chunk in decoder.feed(piece)]
    return chunks + decoder.close()


@given(chunk_streams(), st.data())
def test_a_stream_is_read_as_it_was_written(chunks: list[dict[str, Any]], data: st.DataObject) -> None:
    sent = b"".join(encoded(chunks))
    assert decoded(data.draw(cut(sent))) == chunks


@given(chunk_streams(), st.data())
def test_comments_between_events_change_nothing(chunks: list[dict[str, Any]], data: st.DataObject) -> None:
    pieces = [piece + encode_comment(data.draw(sendable)) for piece in encoded(chunks)]
    assert decoded(pieces) == chunks


@given(chunk_streams(), st.data())
def test_a_stream_that_breaks_off_never_looks_complete(
    chunks: list[dict[str, Any]], data: st.DataObject
) -> None:
    sent = b"".join(encoded(chunks))
    end = len(sent) - len(b"data: [DONE]\n\n" if sent.endswith(b"data: [DONE]\n\n") else b"\n")
    read = decoded([sent[: data.draw(st.integers(0, end - 1))]])
    assert read[-1]["reason"]["kind"] == "error"
    assert read[-1]["reason"]["failure"]["code"] == "STREAM_CLOSED"
    told = [chunk for chunk in read[:-1] if chunk["type"] != "usage"]
    assert told == chunks[: len(told)]


@given(st.lists(st.binary(max_size=40), max_size=5))
def test_no_bytes_make_the_reader_fail_or_finish_twice(pieces: list[bytes]) -> None:
    chunks = decoded([b"data: ", *pieces])
    assert [chunk["type"] for chunk in chunks].count("finish") == 1
    assert chunks[-1]["type"] == "finish"


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | texts,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["choices", "delta", "content", "tool_calls", "function", "index", "id", "usage", "error"]
            ),
            inner,
        )
    ),
    max_leaves=12,
)


@given(st.lists(json_values, max_size=4))
def test_no_value_makes_the_decoder_fail(values: list[Any]) -> None:
    chunks = decoded([encode_event(jsontext.dumps(value)) for value in values])
    assert [chunk["type"] for chunk in chunks].count("finish") == 1


@given(chunk_streams())
def test_a_whole_answer_holds_the_same_blocks_as_the_stream(chunks: list[dict[str, Any]]) -> None:
    status, headers, body = encode_response(chunks, "m")
    live = BlockAssembler()
    for chunk in chunks:
        live.push(chunk)
    if status != 200:
        failure = chunks[-1]["reason"]["failure"]
        assert failure_of_response(status, headers, body) == {**failure, "status": status}
        return
    whole = BlockAssembler()
    for chunk in decode_response(jsontext.loads(body)):
        whole.push(chunk)
    for kind in ("text", "reasoning"):
        assert [b for b in whole.blocks() if b["type"] == kind] == joined(live.blocks(), kind)
    assert [b for b in whole.blocks() if b["type"] == "tool-call"] == [
        b for b in live.blocks() if b["type"] == "tool-call"
    ]
    assert (whole.usage, whole.finish) == (live.usage, live.finish)


def joined(blocks: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    found = [block["text"] for block in blocks if block["type"] == kind]
    return [{"type": kind, "text": "\n".join(found)}] if found else []


@given(failures)
def test_a_failure_is_read_as_it_was_told(failure: dict[str, Any]) -> None:
    status, headers, body = response_of_failure(failure)
    assert failure_of_response(status, headers, body) == {**failure, "status": status}


@st.composite
def histories(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Draw messages whose every block the request format carries."""
    text = some_text.map(lambda value: {"type": "text", "text": value})
    thought = some_text.map(lambda value: {"type": "reasoning", "text": value})
    call = st.builds(
        lambda i, n, a: {"type": "tool-call", "id": i, "name": n, "arguments": a}, some_text, some_text, texts
    )
    result = st.builds(
        lambda i, t: {"type": "tool-result", "toolCallId": i, "content": [t], "isError": False},
        some_text,
        text,
    )
    user = st.builds(lambda block: {"role": "user", "content": [block]}, text | result)
    assistant = st.builds(
        lambda head, said, calls: {"role": "assistant", "content": [*head, *said, *calls]},
        st.lists(thought, max_size=1),
        st.lists(text, max_size=1),
        st.lists(call, max_size=3),
    ).filter(lambda message: bool(message["content"]))
    return [draw(user), *draw(st.lists(user | assistant, max_size=6))]


@given(histories(), st.none() | some_text, st.booleans())
def test_a_request_is_read_as_it_was_written(
    messages: list[dict[str, Any]], system: str | None, stream: bool
) -> None:
    asked = ModelRequest(session_id="s", call=1, config={"model": "m"}, system=system, messages=messages)
    read = decode_request(encode_request(asked, stream=stream))
    assert (read.system, read.messages, read.stream) == (system, messages, stream)


@given(st.lists(st.tuples(sendable, st.sampled_from([None, "error", "x"])), max_size=5), st.data())
def test_events_are_read_as_they_were_written(
    events: list[tuple[str, str | None]], data: st.DataObject
) -> None:
    sent = b"".join(encode_event(text, event=kind) for text, kind in events)
    decoder = SSEDecoder()
    read = [event for piece in data.draw(cut(sent)) for event in decoder.feed(piece)]
    assert read == [ServerEvent(one_line_end(text), kind or "message") for text, kind in events]
    assert decoder.close() is None


def one_line_end(value: str) -> str:
    return value.replace("\r\n", "\n").replace("\r", "\n")
