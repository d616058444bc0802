"""What must hold for every answer, however it is written and cut: reading gives back what was meant."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onetake import jsontext
from onetake.model.assembler import BlockAssembler
from onetake.model.request import ModelRequest
from onetake.model.types import Chunk
from onetake.testing.invariants import wire as holds
from onetake.testing.strategies import wire as draws
from onetake.testing.strategies.text import texts
from onetake.testing.strategies.wire_chat import as_read, failures
from onetake.wire.chat import WireError
from onetake.wire.errors import failure_of_response
from onetake.wire.format import WireRequest, state_of
from onetake.wire.formats import FORMATS
from onetake.wire.sse import ServerEvent, SSEDecoder, encode_comment, encode_event

ASKED = WireRequest(model="m", stream=True, include_usage=True)


def encoded(name: str, chunks: Sequence[Chunk]) -> bytes:
    encoder = FORMATS[name].stream_encoder(ASKED, "r", state_of(chunks))
    return b"".join(encoder.push(chunk) for chunk in chunks)


CHAT = FORMATS["openai-chat"]
some_text = texts().map(as_read).filter(bool)
sendable = st.text(st.characters(codec="utf-8"))
formats = pytest.mark.parametrize("name", FORMATS)


def test_every_format_is_drawn() -> None:
    assert list(draws.FORMATS) == list(FORMATS)


@given(draws.event_streams(), draws.segmentations())
def test_events_are_read_however_a_server_writes_them(
    stream: draws.EventStream, cut: draws.Segmentation
) -> None:
    holds.check_events(SSEDecoder, stream.events, cut(stream.data))


@formats
@given(st.data(), draws.segmentations())
def test_an_answer_is_read_however_a_server_writes_it(
    name: str, data: st.DataObject, cut: draws.Segmentation
) -> None:
    stream = data.draw(draws.wire_streams(name))
    holds.check_decodes(FORMATS[name].stream_decoder, stream.chunks, cut(stream.data))


@formats
@given(st.data(), draws.segmentations())
def test_an_answer_is_read_as_we_write_it(name: str, data: st.DataObject, cut: draws.Segmentation) -> None:
    chunks = data.draw(draws.FORMATS[name].chunks())
    holds.check_round_trip(partial(encoded, name), FORMATS[name].stream_decoder, chunks, cut)


@formats
@given(st.data(), draws.segmentations())
def test_an_answer_that_breaks_off_never_looks_complete(
    name: str, data: st.DataObject, cut: draws.Segmentation
) -> None:
    stream = data.draw(draws.wire_streams(name))
    arrived = stream.data[: data.draw(st.integers(0, len(stream.data) - 1))]
    holds.check_broken_off(FORMATS[name].stream_decoder, stream.chunks, arrived, stream.needed, cut)


@formats
@given(st.data(), draws.segmentations())
def test_no_bytes_make_a_decoder_fail(name: str, data: st.DataObject, cut: draws.Segmentation) -> None:
    holds.check_survives(FORMATS[name].stream_decoder, data.draw(draws.hostile_streams(name)), cut)


@given(st.lists(st.tuples(sendable, st.sampled_from([None, "error", "x"])), max_size=4), sendable)
def test_events_and_comments_are_read_as_we_write_them(
    events: list[tuple[str, str | None]], comment: str
) -> None:
    sent = b"".join(encode_event(text, event=kind) + encode_comment(comment) for text, kind in events)
    read = [ServerEvent(one_line_end(text), kind or "message") for text, kind in events]
    holds.check_events(SSEDecoder, read, [sent])


def one_line_end(value: str) -> str:
    return value.replace("\r\n", "\n").replace("\r", "\n")


@given(st.data(), draws.FORMATS["openai-chat"].chunks())
def test_no_whole_answer_makes_a_decoder_fail(data: st.DataObject, chunks: list[Chunk]) -> None:
    body = jsontext.loads(CHAT.encode_response(chunks, ASKED, "r")[2])
    holds.check_survives_whole(CHAT.decode_response, data.draw(draws.misshapen("openai-chat", body)))


@given(draws.FORMATS["openai-chat"].chunks())
def test_a_whole_answer_holds_the_same_blocks_as_the_stream(chunks: list[dict[str, Any]]) -> None:
    status, headers, body = CHAT.encode_response(chunks, ASKED, "r")
    live = BlockAssembler()
    for chunk in chunks:
        live.push(chunk)
    if status != 200:
        failure = chunks[-1]["reason"]["failure"]
        assert failure_of_response(status, headers, body) == {**failure, "status": status}
        return
    whole = BlockAssembler()
    for chunk in CHAT.decode_response(jsontext.loads(body)):
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


@given(failures())
def test_a_failure_is_read_as_it_was_told(failure: dict[str, Any]) -> None:
    status, headers, body = CHAT.error_response(failure)
    assert failure_of_response(status, headers, body) == {**failure, "status": status}


@st.composite
def histories(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Draw messages whose every block the request format carries."""
    text = some_text.map(lambda value: {"type": "text", "text": value})
    thought = some_text.map(lambda value: {"type": "reasoning", "text": value})
    call = st.builds(
        lambda i, n, a: {"type": "tool-call", "id": i, "name": n, "arguments": a},
        some_text,
        some_text,
        texts(),
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
        st.lists(call, max_size=2),
    ).filter(lambda message: bool(message["content"]))
    return [draw(user), *draw(st.lists(user | assistant, max_size=4))]


@given(histories(), st.none() | some_text, st.booleans())
def test_a_request_is_read_as_it_was_written(
    messages: list[dict[str, Any]], system: str | None, stream: bool
) -> None:
    asked = ModelRequest(session_id="s", call=1, config={"model": "m"}, system=system, messages=messages)
    read = CHAT.decode_request(CHAT.encode_request(asked, stream=stream))
    assert (read.system, read.messages, read.stream) == (system, messages, stream)


@given(st.data(), histories())
def test_a_request_of_any_shape_is_read_or_refused(data: st.DataObject, messages: list[Any]) -> None:
    tools = [{"name": "t", "description": "", "parameters": {"type": "object"}}]
    asked = ModelRequest(session_id="s", call=1, config={"model": "m"}, messages=messages, tools=tools)
    body = data.draw(draws.misshapen("openai-chat", CHAT.encode_request(asked)))
    holds.check_reads_or_refuses(CHAT.decode_request, body, WireError)
