"""Readers of a model's answer with bugs."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from onetake.testing.invariants import wire as holds
from onetake.testing.strategies import wire as draws
from onetake.wire.chat import ChatStreamDecoder, decode_response, encode_response
from onetake.wire.sse import SSEDecoder
from tests.faults.fault import Fault

WIDE = "".join(map(chr, (0x85, 0x2028, 0x2029)))


class SplitsAtUnicode(SSEDecoder):
    """Takes every line end of Unicode for one."""

    def feed(self, data: bytes) -> list[Any]:
        for end in WIDE:
            data = data.replace(end.encode(), b"\n")
        return super().feed(data)


class ForgetsCarriageReturn(SSEDecoder):
    """Takes a CRLF that is cut in two for two line ends."""

    def feed(self, data: bytes) -> list[Any]:
        self._skip_line_feed = False
        return super().feed(data)


class DecodesPieces(SSEDecoder):
    """Decodes each segment by itself."""

    def feed(self, data: bytes) -> list[Any]:
        return super().feed(data.decode("utf-8", "replace").encode())


class TakesTheEndForComplete(ChatStreamDecoder):
    """Believes that a connection that ends has said everything."""

    def close(self) -> list[Any]:
        self._events.close()
        return self._chunks.end()


class ReadsPieces(ChatStreamDecoder):
    """Expects each segment to hold whole events."""

    def feed(self, data: bytes) -> list[Any]:
        self._events = SSEDecoder()
        return super().feed(data)


class TrustsShapes(ChatStreamDecoder):
    """Reaches into an event as if every event had a choice."""

    def _take(self, data: str) -> list[Any]:
        if data.startswith("{"):
            json.loads(data)["choices"]
        return super()._take(data)


def events(kind: type[SSEDecoder]) -> Any:
    @given(draws.event_streams(), draws.segmentations())
    def prove(stream: Any, cut: Any) -> None:
        holds.check_events(kind, stream.events, cut(stream.data))

    return prove


def answers(kind: type[ChatStreamDecoder]) -> Any:
    @given(draws.wire_streams("openai-chat"), draws.segmentations())
    def prove(stream: Any, cut: Any) -> None:
        holds.check_decodes(kind, stream.chunks, cut(stream.data))

    return prove


@given(draws.wire_streams("openai-chat"), draws.segmentations(), st.data())
def broken_off(stream: Any, cut: Any, data: st.DataObject) -> None:
    arrived = stream.data[: data.draw(st.integers(0, len(stream.data) - 1))]
    holds.check_broken_off(TakesTheEndForComplete, stream.chunks, arrived, stream.needed, cut)


@given(draws.hostile_streams("openai-chat"), draws.segmentations())
def hostile(data: bytes, cut: Any) -> None:
    holds.check_survives(TrustsShapes, data, cut)


def trusts_messages(body: Any) -> Any:
    """Reaches for the text as if every choice had a message."""
    if isinstance(body, dict) and "error" not in body:
        for choice in body["choices"]:
            (choice["message"].get("content") or "").strip()
    return decode_response(body)


@given(st.data(), draws.FORMATS["openai-chat"].chunks())
def whole(data: st.DataObject, chunks: Any) -> None:
    body = json.loads(encode_response(chunks, "m")[2])
    holds.check_survives_whole(trusts_messages, data.draw(draws.misshapen("openai-chat", body)))


FAULTS = [
    Fault("unicode-line-ends", "U+2028 in data ends a line", events(SplitsAtUnicode)),
    Fault("split-crlf", "a CRLF that two segments share ends an event early", events(ForgetsCarriageReturn)),
    Fault("split-character", "a character that two segments share is lost", events(DecodesPieces)),
    Fault("one-event-a-segment", "what a segment cuts is forgotten", answers(ReadsPieces)),
    Fault("end-is-complete", "an answer that breaks off looks complete", broken_off),
    Fault("trusts-shapes", "an event without choices raises", hostile),
    Fault("trusts-messages", "a whole answer without a message raises", whole),
]
