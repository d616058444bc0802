"""Secrets never reach a committed file: what is refused at write time.

A recording is made with a real key in the environment, and the agent, its tools and the model can each print
it. So every file is searched before it is written, in every spelling that it can hide in: raw, JSON-escaped,
and cut into the fragments of a packed row. Ids that providers hand out for tool calls (`call_...`,
`toolu_...`) are no secrets.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any

import msgspec

from onetake import jsontext

MIN_VALUE = 8
"""Shorter values of key-like variables (`1`, `true`, `dummy`) are not searched for: they occur everywhere."""
MIN_ODD_VALUE = 6
"""The same for values that mix letters with figures or signs, which no word of a text does."""

_KEYLIKE = re.compile(
    r"(?:^|_)(?:(?:API|ACCESS|PRIVATE|SECRET|AUTH)?_?KEYS?|TOKENS?|SECRETS?|PASS|PASSPHRASE|CREDENTIALS?|CREDS"
    r"|BEARER|COOKIES?|PAT|JWT)(?:_|$)|(?:PASSWORDS?|PASSWD|.+_PWD)(?:_|$)|(?:^|_)AUTH$",
    re.IGNORECASE,
)
_ODD = re.compile("[A-Za-z].*[^A-Za-z]|[^A-Za-z].*[A-Za-z]", re.DOTALL)
# A quote, perhaps escaped any number of times: headers are often seen inside JSON inside JSON.
_Q = r"\\*[\"']?"
_VALUE = r"[A-Za-z0-9._~+/=-]"


class Shape(msgspec.Struct, frozen=True):
    """What a kind of secret looks like."""

    what: str
    pattern: str
    needs: tuple[str, ...]
    """Texts of which every match has one, in lower case: most texts are spared the pattern, most runs its
    compiling. Without `i`, `k` and `s` where the pattern ignores case: it takes more for them."""


SHAPES = (
    Shape(
        "API key (sk-...)",
        r"(?<![A-Za-z0-9])(?:sk|pk|rk)[-_](?:[a-z]+[-_])*[A-Za-z0-9_-]{20,}",
        ("sk-", "sk_", "pk-", "pk_", "rk-", "rk_"),
    ),
    Shape("AWS access key", r"(?<![A-Z0-9])(?:AKIA|ASIA)[A-Z0-9]{16}(?![A-Z0-9])", ("akia", "asia")),
    Shape(
        "GitHub token",
        r"(?<![A-Za-z0-9])(?:gh[pousr]_[A-Za-z0-9]{30,}|github_pat_[A-Za-z0-9_]{30,})",
        ("ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_"),
    ),
    Shape("GitLab token", r"(?<![A-Za-z0-9])glpat-[A-Za-z0-9_-]{20,}", ("glpat-",)),
    Shape("Slack token", r"(?<![A-Za-z0-9])xox[abeoprs]-[A-Za-z0-9-]{10,}", ("xox",)),
    Shape("Google API key", r"(?<![A-Za-z0-9])AIza[A-Za-z0-9_-]{30,}", ("aiza",)),
    Shape("Hugging Face token", r"(?<![A-Za-z0-9])hf_[A-Za-z0-9]{30,}", ("hf_",)),
    Shape(
        "package registry token",
        r"(?<![A-Za-z0-9])(?:npm_[A-Za-z0-9]{30,}|pypi-[A-Za-z0-9_-]{50,})",
        ("npm_", "pypi-"),
    ),
    Shape("private key", r"-----BEGIN [A-Z ]*PRIVATE KEY-----", ("private key-----",)),
    Shape(
        "JSON web token",
        r"(?<![A-Za-z0-9])eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}",
        ("eyj",),
    ),
    Shape(
        "bearer token",
        rf"(?i:bearer)\s+(?=[^\s\"'\\]*[0-9]){_VALUE}{{16,}}"
        rf"|(?i:(?:proxy-)?authorization){_Q}\s*[:=,]\s*{_Q}(?i:bearer)\s+{_VALUE}{{8,}}",
        ("bearer",),
    ),
    Shape(
        "authorization header",
        rf"(?i:(?:proxy-)?authorization){_Q}\s*[:=,]\s*{_Q}(?i:basic|token|digest|apikey)\s+{_VALUE}{{8,}}",
        ("author",),
    ),
    Shape(
        "authentication header",
        rf"(?i:x-api-key|api-key|x-auth-token|x-goog-api-key){_Q}\s*[:=,]\s*{_Q}{_VALUE}{{12,}}",
        ("ap", "x-auth"),
    ),
    Shape(
        "cookie",
        rf"(?i:set-cookie|(?<![a-z-])cookie){_Q}\s*[:=]\s*{_Q}[A-Za-z0-9_.-]+={_VALUE}{{6,}}",
        ("coo",),
    ),
    Shape(
        "key in a URL",
        rf"[?&](?i:api[_-]?key|access[_-]?token|auth[_-]?token)=(?!(?i:your|my|the)[_-])"
        rf"(?:(?=[^&\s\"']*[0-9]){_VALUE}{{6,}}|{_VALUE}{{12,}})"
        rf"|[?&](?i:token|key|secret|sig|signature|password)={_VALUE}{{12,}}",
        ("=",),
    ),
)
_compiled = cache(re.compile)
_ROWS = {"text-chunks": "texts", "reasoning-chunks": "texts", "tool-call-chunks": "args"}
_DELTAS = {
    "text-delta": "text-chunks",
    "reasoning-delta": "reasoning-chunks",
    "tool-call-delta": "tool-call-chunks",
}


class Secret(msgspec.Struct, frozen=True):
    """One find; the value itself is not kept."""

    file: str
    line: int
    what: str
    shown: str
    """Enough of the value to find it, the rest hidden."""

    def text(self) -> str:
        """One line for people."""
        return f"{self.file}, line {self.line}: {self.what} ({self.shown})"


def keylike_values(environ: Mapping[str, str]) -> dict[str, str]:
    """The variables whose name says that their value is secret: name -> value, short values left out."""
    return {
        name: value for name, value in environ.items() if _KEYLIKE.search(name) and _telling(value.strip())
    }


def _telling(value: str) -> bool:
    """Whether a value is long enough, or odd enough, not to occur by chance."""
    return len(value) >= MIN_VALUE or (len(value) >= MIN_ODD_VALUE and _ODD.search(value) is not None)


def find_secrets(files: Mapping[str, bytes], environ: Mapping[str, str]) -> list[Secret]:
    """Search the contents of files (name -> bytes); at most one find per kind and line."""
    values = {name: value.strip() for name, value in keylike_values(environ).items()}
    values |= _percent_encoded(values)
    return [secret for name, data in files.items() for secret in _search(name, data, values)]


def _percent_encoded(values: Mapping[str, str]) -> dict[str, str]:
    """The values as they stand in a URL, where that is another text."""
    if not values:
        return {}
    from urllib.parse import quote

    coded = {name: quote(value, safe="") for name, value in values.items()}
    return {f"{name}, percent-encoded": text for name, text in coded.items() if text != values[name]}


def _search(name: str, data: bytes, values: Mapping[str, str]) -> Iterable[Secret]:
    streams = _Streams()
    for number, line in enumerate(data.decode("utf-8", "replace").split("\n"), 1):
        yield from _finds(name, number, [line, *_leaves(line, number, streams)], values)
    for number, text in streams.texts():
        yield from _finds(name, number, [text], values)


def _finds(name: str, number: int, texts: Iterable[str], values: Mapping[str, str]) -> Iterable[Secret]:
    """What one line holds in any of its spellings, each kind once."""
    found: dict[str, str] = {}
    for text in texts:
        for variable, value in values.items():
            if value in text:
                found.setdefault(f"the value of the variable {variable}", _hide(value))
        folded = text.casefold()
        for shape in SHAPES:
            if not any(need in folded for need in shape.needs):
                continue
            match = _compiled(shape.pattern).search(text)
            if match:
                found.setdefault(shape.what, _hide(match.group()))
    for what, shown in found.items():
        yield Secret(name, number, what, shown)


def _leaves(line: str, number: int, streams: _Streams) -> list[str]:
    """The strings of a JSON line, decoded; none for any other line. Deltas go to `streams` too."""
    if not line.startswith(("{", "[")):
        return []
    try:
        value = jsontext.loads(line)
    except ValueError:
        return []
    if isinstance(value, dict):
        streams.feed(value, number)
    leaves: list[str] = []
    _collect(value, leaves)
    # One newline between leaves, so that no find spans two of them.
    return ["\n".join(leaves)]


class _Streams:
    """The texts that a log holds in pieces, joined."""

    def __init__(self) -> None:
        self._pieces: dict[tuple[str, ...], list[str]] = {}
        self._lines: dict[tuple[str, ...], int] = {}

    def feed(self, record: dict[str, Any], number: int) -> None:
        """Take in a record; what is neither a row nor a delta is passed over."""
        data = record.get("data")
        if not isinstance(data, dict):
            return
        kind, source, pieces = record.get("type"), data, data.get(_ROWS.get(str(record.get("type")), ""))
        if kind == "assistant/chunk" and isinstance(data.get("chunk"), dict):
            source = data["chunk"]
            pieces = [source.get("text", source.get("argumentsDelta"))]
            kind = source.get("type")
        if not isinstance(pieces, list) or not all(isinstance(piece, str) for piece in pieces):
            return
        key = tuple(
            map(repr, (_DELTAS.get(str(kind), kind), data.get("turn"), data.get("step"), source.get("index")))
        )
        self._pieces.setdefault(key, []).extend(pieces)
        self._lines.setdefault(key, number)

    def texts(self) -> Iterable[tuple[int, str]]:
        """Each text of more than one piece, with the line where it begins."""
        for key, pieces in self._pieces.items():
            if len(pieces) > 1:
                yield self._lines[key], "".join(pieces)


def _collect(value: Any, into: list[str]) -> None:
    # A work list: payloads may be nested deeper than Python recurses.
    work = [value]
    while work:
        item = work.pop()
        if isinstance(item, str):
            into.append(item)
        elif isinstance(item, list):
            work.extend(reversed(item))
        elif isinstance(item, dict):
            # `name: value` keeps a header recognizable when it was an object.
            for key, member in item.items():
                if isinstance(member, str):
                    into.append(f"{key}: {member}")
                else:
                    work.append(member)


def _hide(value: str) -> str:
    value = value.replace("\n", " ")
    return f"{value[:6]}... ({len(value)} characters)"
