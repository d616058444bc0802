"""Put an envelope into the text of an event, or take it out, and leave every other byte alone.

Decoding and encoding again would lose white space, escapes and duplicate keys that someone else wrote. So a
log is unpacked and projected textually: `"seq":N,"time":T` goes in behind the value of `type`, and comes out
wherever it stands.
"""

from __future__ import annotations

import re

from onetake.session.events import Event

_HEAD = re.compile(rb'\{"type":"[^"\\]*"')
_ENVELOPE = re.compile(rb'(\{"type":"[^"\\]*"),"seq":(\d+),"time":(-?\d+)(?=[,}])')
_SPACE = re.compile(r"[ \t\r\n]*")


def with_envelope(raw: bytes, record: Event, seq: int) -> bytes:
    """Return `raw`, the text of `record`, with `seq` and time 0 where it has none of its own."""
    text = b"" if "seq" in record else b',"seq":%d' % seq
    text += b"" if "time" in record else b',"time":0'
    if not text:
        return raw
    head = _HEAD.match(raw)
    if head:
        return raw[: head.end()] + text + raw[head.end() :]
    decoded = raw.decode()
    end = next(end for key, _, end in _members(decoded) if key == "type")
    return decoded[:end].encode() + text + decoded[end:].encode()


def without_envelope(raw: bytes, record: Event) -> bytes:
    """Return `raw`, the text of `record`, without its `seq` and `time`."""
    if "seq" not in record and "time" not in record:
        return raw
    usual = _ENVELOPE.match(raw)
    if usual and int(usual[2]) == record.get("seq") and int(usual[3]) == record.get("time"):
        rest = raw[usual.end() :]
        if b'"seq":' not in rest and b'"time":' not in rest:  # else the same key may stand there once more
            return usual[1] + rest
    text = raw.decode()
    members = _members(text)
    result = text[: members[0][1]]
    before = None  # where the member in front ended: what lies between belongs to the member behind
    for key, start, end in members:
        if key not in ("seq", "time"):
            result += text[start if before is None else before : end]
            before = end
        elif before is not None:
            before = end
    return (result + text[members[-1][2] :]).encode()


def _members(text: str) -> list[tuple[str, int, int]]:
    """Return key, start and end of every member of the object that `text` is, in order.

    `text` was decoded before, so it is known to be well-formed.
    """
    from json.decoder import JSONDecoder, scanstring  # type: ignore[attr-defined]

    decoder = JSONDecoder(parse_float=str, parse_int=str)
    found: list[tuple[str, int, int]] = []
    at = _skip(text, _skip(text, 0) + 1)
    while True:
        start = at
        key, at = scanstring(text, at + 1)
        at = _skip(text, _skip(text, at) + 1)
        _, at = decoder.raw_decode(text, at)
        found.append((key, start, at))
        at = _skip(text, at)
        if text[at] == "}":
            return found
        at = _skip(text, at + 1)


def _skip(text: str, at: int) -> int:
    match = _SPACE.match(text, at)
    return match.end() if match else at
