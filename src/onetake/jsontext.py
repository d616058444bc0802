"""JSON text that survives a round trip: what was read is what is written.

Session logs are exchanged with a JavaScript harness and compared byte for byte, so reading and writing must
not lose what ordinary Python codecs lose. msgspec does nearly all the work and sets the speed; this module
adds what it refuses or forgets:

- lone surrogates are read and written as `\\udxxx`, exactly as `JSON.stringify` does;
- a number whose text would change (`-0`, `1.50`, `1E400`, `1e+21`) is read as a float or an int that
  remembers its text (`ExactFloat`, `ExactInt`) and is written back as that text;
- nesting that is too deep is a `JsonError`, not a crash: what was read can be walked by recursion.

Only three spellings are not kept: white space, needless escapes (`\\u0041` for `A`) and all but the last of
duplicate keys. Who must keep those too keeps the bytes (see `onetake.session.splice`); who must not
overlook the last reads with `loads_strict`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from typing import Any

import msgspec

__all__ = [
    "MAX_DEPTH",
    "ExactFloat",
    "ExactInt",
    "JsonError",
    "clone",
    "dumps",
    "dumps_lines",
    "dumps_pretty",
    "loads",
    "loads_lines",
    "loads_strict",
    "require_unique_keys",
]


MAX_DEPTH = 200
"""How deep arrays and objects may nest in what is read; Python's own limit is near 1,000 calls."""


class JsonError(ValueError):
    """The text is not JSON, or nests too deeply."""

    def __init__(self, message: str, offset: int) -> None:
        super().__init__(f"{message} (byte {offset})")
        self.reason = message
        """What is wrong, without the place."""
        self.offset = offset
        """Where: bytes from the start of the text."""

    def in_lines(self, raw: bytes) -> str:
        """The message for a text of many lines, which was `raw`: with line and column (in bytes) from 1."""
        before = raw[: self.offset]
        line, column = before.count(b"\n") + 1, self.offset - (before.rfind(b"\n") + 1) + 1
        return f"line {line}, column {column}: {self.reason}"


class ExactFloat(float):
    """A number that is written back as the text it was read from."""

    text: str

    def __new__(cls, text: str) -> ExactFloat:
        self = super().__new__(cls, text)
        self.text = text
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return ExactFloat, (self.text,)


class ExactInt(int):
    """An integer that is written back as the text it was read from (only `-0` needs it)."""

    text: str

    def __new__(cls, text: str) -> ExactInt:
        self = super().__new__(cls, text)
        self.text = text
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return ExactInt, (self.text,)


def loads(raw: bytes | str) -> Any:
    """Decode one JSON text, keeping every number's spelling.

    Raises `JsonError` with the byte offset when the text is malformed, is not UTF-8 or nests too deeply.
    """
    data = raw.encode("utf-8", "surrogatepass") if isinstance(raw, str) else raw
    try:
        value = _loads_exactly(raw) if _may_hold_minus_zero(data) else _decoder.decode(data)
    except (msgspec.MsgspecError, RecursionError, ValueError):
        value = _loads_exactly(raw)  # gives the value, or the better error
    if _is_too_deep(data, value):
        raise JsonError(_TOO_DEEP, 0)
    return value


def loads_strict(raw: bytes) -> Any:
    """Decode as `loads` does what nobody may have meant otherwise: a repeated key is a `JsonError` too."""
    value = loads(raw)
    require_unique_keys(raw, value)
    return value


def require_unique_keys(raw: bytes, value: Any) -> None:
    """Raise `JsonError` when `raw`, which `value` was read from, has a key twice: one of the two is lost."""
    if dumps(value) == raw:
        return  # nothing is
    import json  # only texts that another program laid out come here

    def unique(pairs: list[tuple[str, Any]]) -> None:
        seen = set[str]()
        for key, _ in pairs:
            if key in seen:
                raise JsonError(f"the key {key!r} is there twice", max(0, raw.rfind(dumps(key))))
            seen.add(key)

    json.loads(raw, object_pairs_hook=unique, parse_int=str, parse_float=str)


def loads_lines(text: bytes, lines: list[bytes]) -> list[Any] | None:
    """Decode each of `lines`, which `text` was split into, as `loads` does but faster.

    Returns None when a line needs more care than that, or is malformed.
    """
    try:
        values = None if _may_hold_minus_zero(text) else list(map(_decoder.decode, lines))
    except (msgspec.MsgspecError, RecursionError, ValueError):
        return None
    return None if values is None or any(map(_is_too_deep, lines, values)) else values


def dumps_lines(values: Sequence[Any]) -> bytes:
    """Encode each value as `dumps` does and end it with a newline."""
    try:
        return _encoder.encode_lines(values)
    except (UnicodeEncodeError, RecursionError):
        return b"".join(dumps(value) + b"\n" for value in values)


def dumps(value: Any) -> bytes:
    """Encode compactly as UTF-8, keys in order, escaping exactly what `JSON.stringify` escapes.

    Raises `JsonError` for nesting that is too deep and `TypeError` for what JSON cannot say.
    """
    try:
        return _encoder.encode(value)
    except UnicodeEncodeError:  # a lone surrogate somewhere
        pass
    except RecursionError:
        raise JsonError("nested too deeply to write", 0) from None
    return _text(value, "", "").encode()


def dumps_pretty(value: Any) -> str:
    """Encode for people, as `JSON.stringify(value, null, 2)` would: two spaces, the same escapes."""
    return _text(value, "\n", "  ")


def clone(value: Any) -> Any:
    """Copy a JSON value so deeply that changing the copy cannot change the original."""
    kind = type(value)
    if kind is dict:
        return {key: clone(item) for key, item in value.items()}
    if kind is list:
        return [clone(item) for item in value]
    return value


# Fast path ------------------------------------------------------------------------------------------------


def _may_hold_minus_zero(raw: bytes) -> bool:
    """Tell whether `-0` may occur as a number, the one thing that msgspec silently reads as another.

    Every text comes by here, so this is a plain search; a false alarm, inside a string, only costs time.
    """
    at = raw.find(b"-0")
    while at >= 0:
        if raw[at - 1 : at] in _BEFORE_NUMBER and raw[at + 2 : at + 3] not in _INSIDE_NUMBER:
            return True
        at = raw.find(b"-0", at + 2)
    return False


def _is_too_deep(raw: bytes, value: Any) -> bool:
    """Whether a decoded text nests too deeply; for nearly all the text alone tells that it does not."""
    if len(raw) <= 2 * MAX_DEPTH or raw.count(b"[") + raw.count(b"{") <= MAX_DEPTH:
        return False
    level = [value]
    for _ in range(MAX_DEPTH):
        level = [
            item
            for parent in level
            for item in (parent.values() if type(parent) is dict else parent)
            if type(item) in _CONTAINERS
        ]
    return bool(level)


_CONTAINERS = frozenset({dict, list})
_TOO_DEEP = "nested too deeply to read"
_BEFORE_NUMBER = frozenset({b"", b"[", b":", b",", b" ", b"\t", b"\n", b"\r"})
_INSIDE_NUMBER = frozenset(bytes([char]) for char in b"0123456789.eE")


def _float(text: str) -> float:
    value = float(text)
    return value if _encoder.encode(value) == text.encode() else ExactFloat(text)


def _write_exact(value: Any) -> msgspec.Raw:
    if isinstance(value, (ExactFloat, ExactInt)):
        return msgspec.Raw(value.text.encode())
    raise TypeError(f"a value of type {type(value).__name__}")


_encoder = msgspec.json.Encoder(enc_hook=_write_exact)
_decoder = msgspec.json.Decoder(float_hook=_float)


# Exact path: everything the fast path refuses ---------------------------------------------------------------


def _int(text: str) -> float:
    if text == "-0":
        return ExactInt(text)
    try:
        return int(text)
    except ValueError:  # more digits than Python converts
        return ExactFloat(text)


def _reject_constant(text: str) -> Any:
    raise _NotJson(text)


class _NotJson(Exception):
    pass


def _loads_exactly(raw: bytes | str) -> Any:
    import json  # only unusual texts come here

    try:
        text = raw.decode() if isinstance(raw, bytes) else raw
    except UnicodeDecodeError as error:
        raise JsonError("not UTF-8", error.start) from None
    try:
        return json.loads(text, parse_float=_float, parse_int=_int, parse_constant=_reject_constant)
    except json.JSONDecodeError as error:
        offset = len(text[: error.pos].encode("utf-8", "surrogatepass"))
        message = error.msg.removesuffix(" at").removesuffix(
            " starting"
        )  # the place follows in its own words
        if text.startswith("\ufeff"):
            message = "begins with a byte order mark, which is no JSON"
        raise JsonError(message[:1].lower() + message[1:], offset) from None
    except _NotJson as error:
        raise JsonError(f"JSON has no {error}", max(0, text.find(str(error)))) from None
    except RecursionError:
        raise JsonError(_TOO_DEEP, 0) from None


@cache
def _escaped() -> re.Pattern[str]:
    """What is written as an escape. Compiled when an unusual text is met, because it takes its time."""
    return re.compile('[\x00-\x1f"\\\\]|[\ud800-\udfff]')


_SHORT = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\b": "\\b", "\f": "\\f"}


def _escape(match: re.Match[str]) -> str:
    char = match.group()
    return _SHORT.get(char) or f"\\u{ord(char):04x}"


def _string(text: str) -> str:
    # Halves of one character that came apart meet again here, as they do in JavaScript's strings.
    joined = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")
    return f'"{_escaped().sub(_escape, joined)}"'


def _text(value: Any, newline: str, indent: str) -> str:
    colon = ": " if indent else ":"

    def write(item: Any, margin: str) -> str:
        if isinstance(item, str):
            return _string(item)
        if isinstance(item, dict):
            inner = [
                f"{_string(str(key))}{colon}{write(part, margin + indent)}" for key, part in item.items()
            ]
            opening, closing = "{", "}"
        elif isinstance(item, (list, tuple)):
            inner = [write(part, margin + indent) for part in item]
            opening, closing = "[", "]"
        else:
            return _encoder.encode(item).decode()
        if not inner:
            return opening + closing
        return f"{opening}{margin}{indent}{f',{margin}{indent}'.join(inner)}{margin}{closing}"

    try:
        return write(value, newline)
    except RecursionError:
        raise JsonError("nested too deeply to write", 0) from None
