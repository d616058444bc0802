"""Streams of model endpoints as bytes: well spelled, oddly spelled, cut anywhere, damaged.

Three layers, each with its own hazards, and one strategy for each:

- the cut: `segmentations()` draws a way to cut any bytes, such as one byte per segment or inside a CRLF;
- the framing: `event_streams()` draws server-sent events in one of the many ways to write them;
- the format: `wire_streams(name)` draws the chunks of a model call and bytes in which a server of that format
  would send them. `FORMATS` holds the formats by name.

`hostile_streams(name)` draws bytes that a decoder must survive: damaged streams, events of the wrong shape,
and plain garbage. `misshapen(name, value)` does the same to what is not streamed. The invariants for all of
them are in `onetake.testing.invariants.wire`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from hypothesis import strategies as st

from onetake import jsontext
from onetake.model.types import Chunk
from onetake.testing.strategies.text import json_values, texts
from onetake.testing.strategies.wire_chat import CHAT_WORDS, chat_chunks, chat_events
from onetake.testing.strategies.wire_messages import MESSAGES_WORDS, messages_chunks, messages_events
from onetake.testing.strategies.wire_responses import RESPONSES_WORDS, responses_chunks, responses_events
from onetake.wire.sse import ServerEvent

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_LINE_ENDS = [b"\n", b"\r\n", b"\r\n", b"\r", b"\r\n"]
"""CRLF more often: it is the one that a cut can split."""
_LINES = ["a\u2028b", "\u2029", "\u0085", "\x0b\x0c\x1c", " a", ":", "", "\ufeff", "\0", "é", "[DONE]"]
"""What careless readers take for a line end, for syntax, or for nothing."""

# Cuts -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Segmentation:
    """A way to cut bytes into segments: call it with the bytes."""

    kind: str
    """`whole`, `bytes` (one per segment), `line-ends` (behind each CR and each LF), `characters` (within each
    character of several bytes), or `places`."""
    places: tuple[int, ...] = ()
    """For `places`: where to cut, in bytes, counted round the end; one place twice makes an empty segment."""

    def __call__(self, data: bytes) -> list[bytes]:
        """Return the segments; joined they are the bytes."""
        ends = sorted(place % (len(data) + 1) for place in self.places)
        if self.kind == "bytes":
            ends = list(range(len(data)))
        elif self.kind == "line-ends":
            ends = [at + 1 for at, byte in enumerate(data) if byte in b"\r\n"]
        elif self.kind == "characters":
            ends = [at for at, byte in enumerate(data) if byte & 0xC0 == 0x80]
        return [data[a:b] for a, b in zip([0, *ends], [*ends, len(data)], strict=True)]


def segmentations() -> st.SearchStrategy[Segmentation]:
    """Draw a way to cut bytes; shrinks to no cut at all."""
    kinds = ["whole", "line-ends", "bytes", "line-ends", "characters"]  # twice what finds most
    places = st.lists(st.integers(0, 2000), min_size=1, max_size=8).map(tuple)
    return st.one_of(
        *(st.just(Segmentation(kind)) for kind in kinds), st.builds(Segmentation, st.just("places"), places)
    )


# Framing ----------------------------------------------------------------------------------------------------


class EventStream(NamedTuple):
    """Bytes of server-sent events, and what they say."""

    events: list[ServerEvent]
    """What a reader must deliver."""
    data: bytes
    """The stream."""


@dataclass(frozen=True)
class Framing:
    """How a server writes events down; the defaults are the plainest."""

    line_end: bytes = b"\n"
    byte_order_mark: bool = False
    space: bool = True
    """One space after the colon of each field; it belongs to the syntax."""
    comments: tuple[str, ...] = ()
    """Comments between the events, in turn; providers keep connections alive with those."""
    unknown_fields: bool = False
    """Fields that no reader knows, and times to wait before a reconnection."""


def framings() -> st.SearchStrategy[Framing]:
    """Draw a way to write events; shrinks to the plainest."""
    return st.builds(
        Framing,
        line_end=st.sampled_from(_LINE_ENDS),
        byte_order_mark=st.booleans(),
        space=st.booleans(),
        comments=st.lists(_one_line(), max_size=2).map(tuple),
        unknown_fields=st.booleans(),
    )


@st.composite
def event_streams(draw: st.DrawFn) -> EventStream:
    """Draw events with hostile data (U+2028, U+0085, NUL, empty lines), and a stream that holds them."""
    framing = draw(framings())
    written: list[list[tuple[str, str]]] = []
    events: list[ServerEvent] = []
    last_id = ""
    for number in range(draw(st.integers(1, 4))):
        lines = st.lists(_one_line(), min_size=1, max_size=5)
        data = draw(st.none() | lines if number else lines)
        kind = draw(st.none() | st.sampled_from(["message", "error", "é\u2028"]))
        event_id = draw(st.none() | st.sampled_from(["1", "", "a\u0085b", "nul\0"]))
        if event_id is not None and "\0" not in event_id:
            last_id = event_id
        if data is not None:
            events.append(ServerEvent("\n".join(data), kind or "message", last_id))
        fields = [("event", kind)] if kind is not None else []
        fields += [("id", event_id)] if event_id is not None else []
        at = draw(st.integers(0, len(fields)))
        fields[at:at] = [("data", line) for line in data or ()]
        written.append(fields)
    return EventStream(events, frame(written, framing))


def frame(events: list[list[tuple[str, str]]], framing: Framing) -> bytes:
    """Write events, each given as its fields in order, as that framing says."""
    end = framing.line_end
    written = [_BYTE_ORDER_MARK] if framing.byte_order_mark else []
    for number, fields in enumerate(events):
        if framing.comments:
            comment = framing.comments[number % len(framing.comments)]
            written.append(b":" + comment.encode() + end)
        if framing.unknown_fields:
            written.append(b"retry: 10" + end + b"data2" + end + b" data: x" + end)
        for name, value in fields:
            space = " " if framing.space or value.startswith(" ") else ""
            colon = f":{space}" if value or framing.space else ""
            written.append(f"{name}{colon}{value}".encode() + end)
        written.append(end)
    return b"".join(written)


def _one_line() -> st.SearchStrategy[str]:
    """Draw what may stand in a field: no line end, and nothing that UTF-8 cannot say."""
    return texts().map(lambda text: re.sub("[\r\n\ud800-\udfff]", "", text)) | st.sampled_from(_LINES)


# Formats ----------------------------------------------------------------------------------------------------


class WireStream(NamedTuple):
    """The answer of a model endpoint, and what it means."""

    chunks: list[Chunk]
    """What a decoder must yield."""
    data: bytes
    """The bytes of the body."""
    needed: int
    """Bytes up to the end of the last line that says anything: whatever ends before was broken off."""


@dataclass(frozen=True)
class WireFormat:
    """A format in which model endpoints answer."""

    chunks: Callable[[], st.SearchStrategy[list[Chunk]]]
    """Draws the chunks of a call that the format carries without loss."""
    spelled: Callable[[list[Chunk]], st.SearchStrategy[list[tuple[str | None, Any]]]]
    """Draws the events for them: the event's type, and its data as a JSON value (or a text, as it is)."""
    words: tuple[str, ...]
    """The keys of its objects, for values that look like an answer and are none."""


FORMATS: dict[str, WireFormat] = {
    "openai-chat": WireFormat(chunks=chat_chunks, spelled=chat_events, words=CHAT_WORDS),
    "anthropic-messages": WireFormat(chunks=messages_chunks, spelled=messages_events, words=MESSAGES_WORDS),
    "openai-responses": WireFormat(responses_chunks, responses_events, words=RESPONSES_WORDS),
}
"""The formats, by their names in `onetake.wire.formats`. A new one needs a module `wire_NAME` and an entry
here; every property of the wire then holds for it too."""


@st.composite
def wire_streams(draw: st.DrawFn, name: str = "openai-chat") -> WireStream:
    """Draw a whole answer of the format of that name, in any spelling and framing."""
    format_ = FORMATS[name]
    chunks = draw(format_.chunks())
    events = draw(format_.spelled(chunks))
    framing = draw(framings())
    data = frame([_fields(kind, draw(_written(value))) for kind, value in events], framing)
    return WireStream(chunks, data, len(data) - 2 * len(framing.line_end))


def _fields(kind: str | None, lines: list[str]) -> list[tuple[str, str]]:
    """The fields of an event of that type with these lines of data."""
    head = [("event", kind)] if kind is not None else []
    return head + [("data", line) for line in lines]


def _written(value: Any) -> st.SearchStrategy[list[str]]:
    """Draw how a value is written: on one line, all ASCII, or with line ends where JSON allows them."""
    if isinstance(value, str):
        return st.just([value])
    raw = jsontext.dumps(value).decode()
    ascii_only = json.dumps(value)
    return st.sampled_from([[raw], [ascii_only], json.dumps(value, indent=1).split("\n")])


# Damage -----------------------------------------------------------------------------------------------------

_JUNK = [
    b"\xff", b"\xc3", b"\xed\xa0\x80", _BYTE_ORDER_MARK, b"\r", b"\n", b"\r\n\r\n", b"\0", b":", b"data:",
    b"data: [DONE]\n\n", b'data: {"error":null}\n\n', b'"', b"\\ud800", b"{", b"}", b"[" * 300, b"]",
    b"1e999", b"-0", b"null", b"true", b"9" * 30, b"\xe2\x80\xa8", b"\xc2\x85",
]  # fmt: skip


def hostile_streams(name: str = "openai-chat") -> st.SearchStrategy[bytes]:
    """Draw bytes that no decoder of that format may fall over, from plain garbage to almost right."""
    return st.one_of(
        st.binary(max_size=60),
        st.lists(st.sampled_from(_JUNK) | st.binary(max_size=8), max_size=8).map(b"".join),
        _damaged_streams(name),
        _misshapen_streams(name),
    )


@st.composite
def _damaged_streams(draw: st.DrawFn, name: str) -> bytes:
    """Draw a proper stream with a few bytes changed, lost, doubled or put in."""
    data = draw(wire_streams(name)).data
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(data)))
        length = draw(st.integers(0, 12))
        piece = draw(st.sampled_from(_JUNK) | st.just(data[at : at + length] * 2) | st.binary(max_size=2))
        data = data[:at] + piece + data[at + length :]
    return data


@st.composite
def _misshapen_streams(draw: st.DrawFn, name: str) -> bytes:
    """Draw events whose framing is right and whose values are not: of the wrong type, or any JSON at all."""
    format_ = FORMATS[name]
    events = draw(format_.spelled(draw(format_.chunks())))
    odd = _odd_values(name)
    values: list[tuple[str | None, Any]] = []
    for kind, value in events[:6]:
        values.append((kind, draw(_misshapen(value, odd)) if draw(st.booleans()) else value))
    values += [(None, value) for value in draw(st.lists(odd, max_size=2))]
    lines = [value if isinstance(value, str) else jsontext.dumps(value).decode() for _, value in values]
    return frame([_fields(kind, [line]) for (kind, _), line in zip(values, lines, strict=True)], Framing())


def misshapen(name: str, value: Any) -> st.SearchStrategy[Any]:
    """Draw what a JSON value of that format, such as the body of a request, becomes with one thing wrong."""
    return _misshapen(value, _odd_values(name))


def _odd_values(name: str) -> st.SearchStrategy[Any]:
    """Draw JSON values, many with the words of the format and none of its sense."""
    words = st.sampled_from(FORMATS[name].words)
    return st.recursive(
        json_values(),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=4),
        max_leaves=6,
    )


@st.composite
def _misshapen(draw: st.DrawFn, value: Any, odd: st.SearchStrategy[Any]) -> Any:
    """Draw a JSON value with one thing in it, at any depth, missing or replaced by something odd."""
    if isinstance(value, dict) and value and draw(st.integers(0, 4)):
        inner = [key for key in sorted(value) if value[key] and isinstance(value[key], (dict, list))]
        key = draw(st.sampled_from(sorted(value)) | st.sampled_from(inner or sorted(value)))
        if not draw(st.integers(0, 4)):
            return {other: each for other, each in value.items() if other != key}
        return {**value, key: draw(_misshapen(value[key], odd))}
    if isinstance(value, list) and value and draw(st.integers(0, 4)):
        at = draw(st.integers(0, len(value) - 1))
        return [*value[:at], draw(_misshapen(value[at], odd)), *value[at + 1 :]]
    return draw(odd)
