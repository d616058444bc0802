"""Secrets never reach a committed file: what is refused at write time.

A recording is made with a real key in the environment, and the agent, its tools and the model can each print
it. So every file is searched before it is written, in every spelling that it can hide in: raw, JSON-escaped,
and cut into the fragments of a packed row. Ids that providers hand out for tool calls (`call_...`,
`toolu_...`) are no secrets.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from onetake import jsontext

MIN_VALUE = 8
"""Shorter values of key-like variables (`1`, `true`, `dummy`) are not searched for: they occur everywhere."""

_KEYLIKE = re.compile(
    r"(?:^|_)(?:API_?KEYS?|KEYS?|TOKENS?|SECRETS?|PASSWORDS?|PASSWD|PASSPHRASE|CREDENTIALS?|AUTH|BEARER|COOKIES?)(?:_|$)",
    re.IGNORECASE,
)
# A quote, perhaps escaped any number of times: headers are often seen inside JSON inside JSON.
_Q = r"\\*[\"']?"
_VALUE = r"[A-Za-z0-9._~+/=-]"
_SHAPES: tuple[tuple[str, re.Pattern[str]], ...] = (
    ("API key (sk-...)", re.compile(r"(?<![A-Za-z0-9])(?:sk|pk|rk)[-_](?:[a-z]+[-_])*[A-Za-z0-9_-]{20,}")),
    ("AWS access key", re.compile(r"(?<![A-Z0-9])(?:AKIA|ASIA)[A-Z0-9]{16}(?![A-Z0-9])")),
    (
        "GitHub token",
        re.compile(r"(?<![A-Za-z0-9])(?:gh[pousr]_[A-Za-z0-9]{30,}|github_pat_[A-Za-z0-9_]{30,})"),
    ),
    ("GitLab token", re.compile(r"(?<![A-Za-z0-9])glpat-[A-Za-z0-9_-]{20,}")),
    ("Slack token", re.compile(r"(?<![A-Za-z0-9])xox[abeoprs]-[A-Za-z0-9-]{10,}")),
    ("Google API key", re.compile(r"(?<![A-Za-z0-9])AIza[A-Za-z0-9_-]{30,}")),
    ("Hugging Face token", re.compile(r"(?<![A-Za-z0-9])hf_[A-Za-z0-9]{30,}")),
    (
        "package registry token",
        re.compile(r"(?<![A-Za-z0-9])(?:npm_[A-Za-z0-9]{30,}|pypi-[A-Za-z0-9_-]{50,})"),
    ),
    ("private key", re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----")),
    (
        "JSON web token",
        re.compile(r"(?<![A-Za-z0-9])eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}"),
    ),
    ("bearer token", re.compile(rf"(?i:bearer)\s+(?=[^\s\"'\\]*[0-9]){_VALUE}{{16,}}")),
    (
        "authorization header",
        re.compile(
            rf"(?i:(?:proxy-)?authorization){_Q}\s*[:=,]\s*{_Q}(?i:basic|token|digest|apikey)\s+{_VALUE}{{8,}}"
        ),
    ),
    (
        "authentication header",
        re.compile(rf"(?i:x-api-key|api-key|x-auth-token|x-goog-api-key){_Q}\s*[:=,]\s*{_Q}{_VALUE}{{12,}}"),
    ),
    (
        "cookie",
        re.compile(rf"(?i:set-cookie|(?<![a-z-])cookie){_Q}\s*[:=]\s*{_Q}[A-Za-z0-9_.-]+={_VALUE}{{8,}}"),
    ),
    (
        "key in a URL",
        re.compile(rf"[?&](?i:api_?key|access_?token|auth_?token|token|key|secret|sig)={_VALUE}{{12,}}"),
    ),
)
_ROWS = {"text-chunks": "texts", "reasoning-chunks": "texts", "tool-call-chunks": "args"}


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
    return {n: v for n, v in environ.items() if _KEYLIKE.search(n) and len(v.strip()) >= MIN_VALUE}


def find_secrets(files: Mapping[str, bytes], environ: Mapping[str, str]) -> list[Secret]:
    """Search the contents of files (name -> bytes); at most one find per kind and line."""
    values = {name: value.strip() for name, value in keylike_values(environ).items()}
    return [secret for name, data in files.items() for secret in _search(name, data, values)]


def _search(name: str, data: bytes, values: Mapping[str, str]) -> Iterable[Secret]:
    text = data.decode("utf-8", "surrogatepass")
    for number, line in enumerate(text.split("\n"), 1):
        found: dict[str, str] = {}
        for spelling in _spellings(line):
            for variable, value in values.items():
                if value in spelling:
                    found.setdefault(f"the value of the variable {variable}", _hide(value))
            for what, shape in _SHAPES:
                match = shape.search(spelling)
                if match:
                    found.setdefault(what, _hide(match.group()))
        for what, shown in found.items():
            yield Secret(name, number, what, shown)


def _spellings(line: str) -> list[str]:
    """The line as it stands and, when it is JSON, its strings decoded (fragments of a row joined)."""
    if not line.startswith(("{", "[")):
        return [line]
    try:
        value = jsontext.loads(line)
    except ValueError:
        return [line]
    leaves: list[str] = []
    _collect(value, leaves)
    # One newline between leaves, so that no find spans two of them.
    result = [line, "\n".join(leaves)]
    if isinstance(value, dict) and value.get("type") in _ROWS:
        row = value.get("data")
        fragments = row.get(_ROWS[value["type"]]) if isinstance(row, dict) else None
        if isinstance(fragments, list):
            result.append("".join(f for f in fragments if isinstance(f, str)))
    return result


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
