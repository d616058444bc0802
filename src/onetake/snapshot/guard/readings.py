"""The other texts that a text may stand for: a secret need not be written as it is.

A key in a tool's arguments is escaped JSON in JSON, one in a redirect is percent-encoded, and `printenv |
base64` hides it from every eye but the model's. So a text is searched in each reading that it has, and values
that are known beforehand are looked for in the encodings that can be written down without decoding anything.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|(.))", re.DOTALL)
_CONTROLS = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f"}
_LEVELS = 3
"""How often escapes are taken off: JSON in JSON in JSON is as deep as a log goes."""
_ENCODED = re.compile(r"[A-Za-z0-9+/_-]{16,}(?:\r?\n[A-Za-z0-9+/_-]{16,})*(?:\r?\n[A-Za-z0-9+/_-]+)?")
_SHORTEST = 32
"""Shorter runs hold no secret of a known shape in Base64, in characters."""
_HEAD = (0, 2, 3)
"""By the place of a value in a group of three bytes: how many of its first characters depend on others."""


def readings(text: str) -> Iterator[tuple[str, str]]:
    """The text itself, and what it says without escapes, percent signs and Base64: (how, text)."""
    plain = text
    for level in range(_LEVELS + 1):
        yield "", plain
        yield from _decoded(plain)
        bare = _ESCAPE.sub(_unescaped, plain) if "\\" in plain and level < _LEVELS else plain
        if bare == plain:
            return
        plain = bare


def encodings(value: str) -> dict[str, str]:
    """How a value stands within text that is encoded, its neighbours included: spelling -> what that is."""
    from base64 import b64encode

    data = value.encode("utf-8", "surrogatepass")
    found = {value: "", data.hex(): ", in hexadecimal", data.hex().upper(): ", in hexadecimal"}
    for place, head in enumerate(_HEAD):
        coded = b64encode(bytes(place) + data).decode()[head : (place + len(data)) * 8 // 6]
        found[coded] = found[coded.replace("+", "-").replace("/", "_")] = ", in Base64"
    return found


def _decoded(text: str) -> Iterator[tuple[str, str]]:
    if "%" in text:
        from urllib.parse import unquote, unquote_plus

        for bare in {unquote(text), unquote_plus(text)} - {text}:
            yield ", percent-encoded", bare
    for match in _ENCODED.finditer(text):
        run = "".join(match[0].split())
        if len(run) >= _SHORTEST:
            yield from ((", in Base64", bare) for bare in _from_base64(run))


def _from_base64(run: str) -> Iterator[str]:
    """What a run says, wherever in it the encoded text begins."""
    from base64 import urlsafe_b64decode

    run = run.replace("+", "-").replace("/", "_")
    for start in range(4):
        rest = run[start : len(run) - ((len(run) - start) % 4 == 1)]  # a single character more says nothing
        yield urlsafe_b64decode(rest + "=" * (-len(rest) % 4)).decode("latin-1")


def _unescaped(match: re.Match[str]) -> str:
    if match[1]:
        return chr(int(match[1], 16))
    return _CONTROLS.get(match[2], match[2])
