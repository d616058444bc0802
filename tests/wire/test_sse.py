"""The event-stream reader: each rule of its docstring, with the bytes whole, one by one, and cut anywhere."""

from __future__ import annotations

import pytest

from onetake.wire.sse import ServerEvent, SSEDecoder, encode_comment, encode_event

# what is sent, the events that it holds, and what is left undelivered at its end
CASES = {
    "line feeds": (b"data: a\n\n", [ServerEvent("a")], None),
    "carriage returns": (b"data: a\r\rdata: b\r\r", [ServerEvent("a"), ServerEvent("b")], None),
    "both": (b"data: a\r\n\r\ndata: b\r\n\r\n", [ServerEvent("a"), ServerEvent("b")], None),
    "mixed line ends": (b"data: a\ndata: b\r\ndata: c\r\r\n", [ServerEvent("a\nb\nc")], None),
    "a return and a line feed are one end": (b"data: a\r\ndata: b\n\n", [ServerEvent("a\nb")], None),
    "other separators are text": (
        "data: a\u2028b\u0085c\x0bd\x0ce\x1cf\n\n".encode(),
        [ServerEvent("a\u2028b\u0085c\x0bd\x0ce\x1cf")],
        None,
    ),
    "byte order mark": (b"\xef\xbb\xbfdata: a\n\n", [ServerEvent("a")], None),
    "only the first byte order mark": (b"\xef\xbb\xbf\xef\xbb\xbfdata: a\n\n", [], None),
    "a later byte order mark is text": (b"data: \xef\xbb\xbf\n\n", [ServerEvent("\ufeff")], None),
    "comments": (b": hello\n:\ndata: a\n: within\ndata: b\n\n", [ServerEvent("a\nb")], None),
    "one space is syntax": (
        b"data:a\ndata: b\ndata:  c\ndata: \ndata:\n\n",
        [ServerEvent("a\nb\n c\n\n")],
        None,
    ),
    "no colon is an empty value": (b"data\n\n", [ServerEvent("")], None),
    "a colon in the value": (b"data: a: b\n\n", [ServerEvent("a: b")], None),
    "unknown fields": (b"date: a\nDATA: b\n data: c\ndata: d\n\n", [ServerEvent("d")], None),
    "an event without data": (b"event: ping\n\ndata: a\n\n", [ServerEvent("a")], None),
    "event types": (
        b"event: error\ndata: a\n\ndata: b\n\n",
        [ServerEvent("a", "error"), ServerEvent("b")],
        None,
    ),
    "ids stay": (
        b"id: 1\ndata: a\n\ndata: b\n\nid\ndata: c\n\n",
        [ServerEvent("a", id="1"), ServerEvent("b", id="1"), ServerEvent("c")],
        None,
    ),
    "an id with NUL": (
        b"id: 1\ndata: a\n\nid: 2\0\ndata: b\n\n",
        [ServerEvent("a", id="1"), ServerEvent("b", id="1")],
        None,
    ),
    "no UTF-8": (b"data: a\xffb\xe2\x82\n\n", [ServerEvent("a\ufffdb\ufffd")], None),
    "long characters": ("data: \u20ac\U0001f600\n\n".encode(), [ServerEvent("\u20ac\U0001f600")], None),
    "blank lines": (b"\n\n\r\n\r\rdata: a\n\n\n\n", [ServerEvent("a")], None),
    "no blank line at the end": (b"data: a\n\ndata: b\n", [ServerEvent("a")], ServerEvent("b")),
    "no line end at the end": (b"data: a\n\nevent: x\ndata: b", [ServerEvent("a")], ServerEvent("b", "x")),
    "half a field at the end": (b"data: a\n\ndat", [ServerEvent("a")], None),
    "nothing": (b"", [], None),
}


def read(pieces: list[bytes]) -> tuple[list[ServerEvent], ServerEvent | None]:
    decoder = SSEDecoder()
    events = [event for piece in pieces for event in decoder.feed(piece)]
    return events, decoder.close()


@pytest.mark.parametrize("name", CASES)
def test_every_rule_holds_however_the_bytes_are_cut(name: str) -> None:
    sent, events, left = CASES[name]
    assert read([sent]) == (events, left)
    assert read([sent[i : i + 1] for i in range(len(sent))]) == (events, left)
    for cut in range(len(sent) + 1):
        assert read([sent[:cut], b"", sent[cut:]]) == (events, left), cut


def test_an_event_is_delivered_as_soon_as_its_blank_line_has_begun() -> None:
    decoder = SSEDecoder()
    assert decoder.feed(b"data: a\r\n\r") == [ServerEvent("a")]
    assert decoder.feed(b"\n") == []
    assert decoder.feed(b"data: b\n\n") == [ServerEvent("b")]


def test_what_was_not_delivered_is_shown_once() -> None:
    decoder = SSEDecoder()
    decoder.feed(b"data: a")
    assert decoder.close() == ServerEvent("a")
    assert decoder.close() is None


@pytest.mark.parametrize(
    ("field", "delay"),
    [(b"250", 250), (b"2.5", None), (b"", None), (b"-1", None), ("٣".encode(), None), (b"9" * 5000, None)],
)
def test_a_reconnection_delay_is_kept_when_it_is_a_number(field: bytes, delay: int | None) -> None:
    decoder = SSEDecoder()
    decoder.feed(b"retry: " + field + b"\n\n")
    assert decoder.retry_ms == delay


def test_a_number_in_another_field_is_no_delay() -> None:
    decoder = SSEDecoder()
    decoder.feed(b"tries: 5\n\n")
    assert decoder.retry_ms is None


def test_an_event_is_written_with_all_its_fields() -> None:
    written = encode_event("a\nb\r\nc\rd", event="error", event_id="7")
    assert written == b"event: error\nid: 7\ndata: a\ndata: b\ndata: c\ndata: d\n\n"
    assert read([written]) == ([ServerEvent("a\nb\nc\nd", "error", "7")], None)


def test_an_event_may_be_empty() -> None:
    assert read([encode_event("")]) == ([ServerEvent("")], None)


@pytest.mark.parametrize("bad", ["a\nb", "a\rb", "a\0b"])
def test_a_field_that_is_no_line_is_refused(bad: str) -> None:
    with pytest.raises(ValueError, match="an event's event must be one line"):
        encode_event("x", event=bad)
    with pytest.raises(ValueError, match="an event's id must be one line"):
        encode_event("x", event_id=bad)


def test_a_lone_surrogate_is_refused_in_raw_text() -> None:
    with pytest.raises(ValueError, match="surrogates"):
        encode_event("\ud800")


def test_comments_are_nothing_to_a_reader() -> None:
    written = encode_comment("one\ntwo") + encode_comment()
    assert written == b": one\n: two\n: \n"
    assert read([encode_event("a")[:-1], written, b"\n"]) == ([ServerEvent("a")], None)
