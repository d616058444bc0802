"""Secrets never reach a committed file: what is refused at write time.

A recording is made with a real key in the environment, and the agent, its tools and the model can each print
it. So every file is searched before it is written, in every spelling that it can hide in (`readings`), and
cut into the fragments of a packed row or of frames. Ids that providers hand out for tool calls (`call_...`,
`toolu_...`) are no secrets.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import cache
from itertools import chain
from typing import Any

import msgspec

from onetake import jsontext
from onetake.snapshot.guard.readings import encodings, readings

MIN_VALUE = 8
"""Shorter values of key-like variables (`1`, `true`, `dummy`) are not searched for: they occur everywhere."""
MIN_ODD_VALUE = 6
"""The same for values that mix letters with figures or signs, which no word of a text does."""

_KEYLIKE = re.compile(
    r"(?:^|_)(?:(?:ACCESS|PRIVATE|SECRET|AUTH)?_?KEYS?|(?:SSH)?PASS|CREDS|BEARER|COOKIES?|PAT|JWT)[0-9]*(?:_|$)"
    r"|(?:API_?KEY|TOKEN|SECRET|PASSWORD|PASSWD|PASSPHRASE|CREDENTIAL|_PWD)S?[0-9]*(?:_|$)|(?:^|_)AUTH$",
    re.IGNORECASE,
)
_ODD = re.compile("[A-Za-z].*[^A-Za-z]|[^A-Za-z].*[A-Za-z]", re.DOTALL)
# A quote, perhaps escaped any number of times: headers are often seen inside JSON inside JSON.
_Q = r"\\*(?:b?[\"'])?"
# What lies between a header's name and its value: also in pairs, and in `{"name": .., "value": ..}`.
_SEP = rf"{_Q}\s*[:=,]\s*(?:{_Q}value{_Q}\s*[:=]\s*)?{_Q}"
_STANDS_IN = r"(?!(?i:your|my|the)[_-])"
_RANDOM = re.compile(
    "(?=[A-Za-z]*[0-9])(?=[0-9]*[A-Za-z])[A-Za-z0-9]{10}|[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-"
)
_WITH_PASSWORD = re.compile(r"[a-z][a-z0-9+.-]*://[^/\s:@]*:[^/\s@]+@")
_VALUE = r"[A-Za-z0-9._~+/=-]"


class Shape(msgspec.Struct, frozen=True):
    """What a kind of secret looks like."""

    what: str
    pattern: str
    needs: tuple[str, ...]
    """Texts of which every match has one, in lower case: most texts are spared the pattern, most runs its
    compiling. Without `i`, `k` and `s` where the pattern ignores case: it takes more for them."""
    random: bool = False
    """Whether a match must look random: the name of a table (`pk_orders_by_customer`) is no key."""

    def search(self, text: str) -> re.Match[str] | None:
        """The first secret of this kind in a text."""
        matches = _compiled(self.pattern).finditer(text)
        return next((match for match in matches if not self.random or _RANDOM.search(match[0])), None)


SHAPES = (
    Shape(
        "API key (sk-...)",
        r"(?<![A-Za-z0-9])(?:sk|pk|rk)[-_](?:[a-z]+[-_])*[A-Za-z0-9_-]{20,}",
        ("sk-", "sk_", "pk-", "pk_", "rk-", "rk_"),
        random=True,
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
        rf"|(?i:(?:proxy-)?authorization){_SEP}(?i:bearer)\s+{_STANDS_IN}{_VALUE}{{8,}}",
        ("bearer",),
    ),
    Shape(
        "authorization header",
        rf"(?i:(?:proxy-)?authorization){_SEP}(?i:basic|token|digest|apikey)\s+{_STANDS_IN}"
        rf"(?=[a-z]*[^a-z\s\"'\\.,]){_VALUE}{{8,}}",
        ("author",),
    ),
    Shape(
        "authentication header",
        rf"(?i:x-api-key|api-key|x-auth-token|x-goog-api-key){_SEP}{_STANDS_IN}{_VALUE}{{12,}}",
        ("ap", "x-auth"),
    ),
    Shape(
        "cookie",
        # Of cookies that are sent any one may be the session's; of one that is set the rest are attributes.
        rf"(?:(?i:set-cookie){_SEP}|(?<![A-Za-z-])(?i:cookie){_SEP}(?:[^\s=;,]+=[^\s;]*;\s*)*?)"
        rf"[^\s=;,:\"'\\]+=\\*\"?(?!deleted\b)[A-Za-z0-9._~+/=%-]{{6,}}",
        ("coo",),
    ),
    Shape(
        "key in a URL",
        rf"[?&](?:amp;)?(?i:api[_-]?key|access[_-]?token|auth[_-]?token)={_STANDS_IN}"
        rf"(?:(?=[^&\s\"']*[0-9]){_VALUE}{{6,}}|{_VALUE}{{12,}})"
        rf"|[?&](?:amp;)?(?i:token|key|secret|sig|signature|password)=(?=[^&\s\"']*[0-9]){_VALUE}{{12,}}",
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
    """The variables whose value is secret: by their name, or because it is a URL with a password in it.

    Name -> value; short values are left out.
    """
    return {
        name: value
        for name, value in environ.items()
        if (_KEYLIKE.search(name) or _WITH_PASSWORD.match(value)) and _telling(value.strip())
    }


def _telling(value: str) -> bool:
    """Whether a value is long enough, or odd enough, not to occur by chance."""
    return len(value) >= MIN_VALUE or (len(value) >= MIN_ODD_VALUE and _ODD.search(value) is not None)


def find_secrets(files: Mapping[str, bytes], environ: Mapping[str, str]) -> list[Secret]:
    """Search the contents of files (name -> bytes); at most one find per kind and line."""
    values = {
        spelling: f"the value of the variable {name}{how}"
        for name, value in keylike_values(environ).items()
        for spelling, how in encodings(value.strip()).items()
    }
    return [secret for name, data in files.items() for secret in _search(name, data, values)]


def _search(name: str, data: bytes, values: Mapping[str, str]) -> list[Secret]:
    streams = _Streams()
    whole = data.decode("utf-8", "replace")
    found: list[Secret] = []
    for number, line in enumerate(whole.split("\n"), 1):
        found += _finds(name, number, [line, *_leaves(line, number, streams)], values)
    for number, text in streams.texts():
        found += _finds(name, number, [text], values)
    if not found and not name.endswith(".jsonl"):  # what goes over several lines of a text
        found += _finds(name, 1, [whole], values)
    return found


def _finds(name: str, number: int, texts: Iterable[str], values: Mapping[str, str]) -> Iterable[Secret]:
    """What one line holds in any of its readings, each kind once."""
    found: dict[str, str] = {}
    for how, text in chain.from_iterable(map(readings, texts)):
        unbroken = text.replace("\n", "")  # Base64 is wrapped
        for value, what in values.items():
            if value in text or (value in unbroken and what.endswith(", in Base64")):
                found.setdefault(f"{what}{how}", _hide(value))
        folded = text.casefold()
        for shape in SHAPES:
            if any(need in folded for need in shape.needs) and (match := shape.search(text)):
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
        """Take in a record; what is neither a row, a delta nor a chunk of a message is passed over."""
        data = record.get("data")
        update = _at(record, "params", "update")
        if isinstance(update, dict):
            text = _at(update, "content", "text")
            frame = (str(update.get("sessionUpdate")), repr(_at(record, "params", "sessionId")))
            if isinstance(text, str):
                self._pieces.setdefault(frame, []).append(text)
                self._lines.setdefault(frame, number)
            return
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


def _at(value: Any, *path: str) -> Any:
    for name in path:
        value = value.get(name) if isinstance(value, dict) else None
    return value


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
