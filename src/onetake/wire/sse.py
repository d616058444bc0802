"""Server-sent events, read incrementally and written: the framing beneath every streamed model answer.

The reader follows the WHATWG event-stream rules, whatever way the bytes are cut:

- A line ends at LF, CRLF or CR, and at nothing else (U+2028, U+0085 and form feeds are text). A CRLF may be
  cut in two.
- One byte order mark at the very start of the stream is dropped.
- A line that starts with a colon is a comment. Providers send those to keep a connection alive.
- `data` lines of one event are joined by LF; one space after the colon belongs to the syntax. A field without
  a colon has an empty value. Unknown fields are ignored.
- A blank line delivers the event, if it has any `data` line; an event without is forgotten.
- `id` stays in force for later events until it is replaced; one that contains NUL is ignored.
- Bytes that are not UTF-8 become U+FFFD.
- What follows the last blank line is not an event. It is never delivered, but `close` shows it, because where
  a stream broke off is worth knowing.
"""

from __future__ import annotations

import re

import msgspec

_LINE_END = re.compile(rb"\r\n|\n|\r")
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


class ServerEvent(msgspec.Struct, frozen=True):
    """One event of a stream."""

    data: str
    """The `data` lines, joined by LF."""
    event: str = "message"
    """The event type; `message` when the stream names none."""
    id: str = ""
    """The last event id in force."""


class SSEDecoder:
    """Turns bytes into events; feed it pieces of any size. See the module docstring for the rules."""

    def __init__(self) -> None:
        self._pending: list[bytes] = []
        self._skip_line_feed = False
        self._at_start = True
        self._data: list[str] = []
        self._event = ""
        self._id = ""
        self.retry_ms: int | None = None
        """The reconnection delay that the stream asked for last, in milliseconds."""

    def feed(self, data: bytes) -> list[ServerEvent]:
        """Take the next bytes and return the events that they complete."""
        events: list[ServerEvent] = []
        start = 0
        if data and self._skip_line_feed:
            self._skip_line_feed = False
            start = 1 if data[0] == 0x0A else 0
        for match in _LINE_END.finditer(data, start):
            line = data[start : match.start()]
            start = match.end()
            if self._pending:
                self._pending.append(line)
                line = b"".join(self._pending)
                self._pending.clear()
            event = self._take_line(line)
            if event is not None:
                events.append(event)
        if start < len(data):
            self._pending.append(data[start:])
        elif data.endswith(b"\r"):
            self._skip_line_feed = True
        return events

    def close(self) -> ServerEvent | None:
        """End the stream; return what was not delivered because no blank line followed, or None.

        The result reads as if the missing line ends had come. It is evidence, not an event.
        """
        if self._pending:
            line = b"".join(self._pending)
            self._pending.clear()
            self._take_line(line)
        return self._deliver()

    def _take_line(self, line: bytes) -> ServerEvent | None:
        if self._at_start:
            self._at_start = False
            line = line.removeprefix(_BYTE_ORDER_MARK)
        if not line:
            return self._deliver()
        name, _, value = line.decode("utf-8", "replace").partition(":")
        value = value.removeprefix(" ")
        if name == "data":
            self._data.append(value)
        elif name == "event":
            self._event = value
        elif name == "id":
            if "\0" not in value:
                self._id = value
        elif name == "retry" and value.isascii() and value.isdigit() and len(value) < 16:
            self.retry_ms = int(value)
        return None

    def _deliver(self) -> ServerEvent | None:
        data, event = self._data, self._event
        self._data, self._event = [], ""
        return ServerEvent("\n".join(data), event or "message", self._id) if data else None


def encode_event(data: str | bytes, *, event: str | None = None, event_id: str | None = None) -> bytes:
    """Return the bytes of one event.

    Line ends of any kind in `data` become separate `data` lines, which a reader joins by LF. Raises
    ValueError when `event` or `event_id` cannot be one line, and when text holds lone surrogates (JSON
    escapes them first).
    """
    lines = [_field("event", event)] if event is not None else []
    if event_id is not None:
        lines.append(_field("id", event_id))
    raw = data.encode() if isinstance(data, str) else data
    lines += [b"data: " + line for line in _LINE_END.split(raw)]
    return b"\n".join(lines) + b"\n\n"


def encode_comment(text: str = "") -> bytes:
    """Return the bytes of a comment, which readers ignore: it only shows that the connection is alive."""
    return b"".join(b": " + line + b"\n" for line in _LINE_END.split(text.encode()))


def _field(name: str, value: str) -> bytes:
    if "\n" in value or "\r" in value or "\0" in value:
        raise ValueError(f"an event's {name} must be one line without NUL: {value!r}")
    return f"{name}: {value}".encode()
