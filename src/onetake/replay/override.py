"""`replay.override.json`: what the model says instead of what was recorded.

Either a list of entries, which replaces the primary session's script, or `{"patches": [{"at": N, "entry":
...}]}`, which replaces single entries of the derived one (an `at` equal to its length appends). Overrides
script what no recording can hold: a failing provider, a call that hangs until it is cancelled, a reply that
quotes a value the model can only know at run time (`{{fromRequest:REGEX}}`, filled from the live request).

Reading is strict, since a misspelt key would silently test something else: each error names the place of
the fault.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import PurePosixPath
from typing import Any, NoReturn

import msgspec

from onetake import jsontext
from onetake.errors import PATTERN_ERRORS, UsageError
from onetake.fixture.grammar import BODY, token
from onetake.fixture.tokens import map_strings
from onetake.model.contract import CHUNK_FIELDS, OPTIONAL_FIELDS, chunk_fault
from onetake.replay.script import Entry

_TOKEN = rf"\{{\{{\\*(?:{BODY})\}}\}}"


@cache
def _lexeme() -> re.Pattern[str]:
    """Compiled when an override is read or filled: most scenarios have none."""
    return re.compile(
        rf"\{{\{{(\\*)(?:fromRequest:((?:{_TOKEN}|.)+?)\}}\}}(?!\}})|({BODY})\}}\}})", re.DOTALL
    )


ENTRY_KEYS = {
    "chunks": ({"kind", "chunks"}, set[str]()),
    "throw": ({"kind", "chunks", "message", "code"}, set[str]()),
    "hang": ({"kind"}, {"readyFile"}),
}
"""By kind of entry: the keys that it must have, and those that it may have."""


class NoMatch(Exception):
    """A `{{fromRequest:REGEX}}` found nothing; `pattern` is the REGEX."""

    def __init__(self, pattern: str) -> None:
        super().__init__(pattern)
        self.pattern = pattern


class Patch(msgspec.Struct, frozen=True):
    """One entry for one index of the derived script."""

    at: int
    entry: Entry


class Override(msgspec.Struct, frozen=True):
    """A decoded override document: one of the two is set."""

    name: str
    """What messages call it: a path."""
    entries: list[Entry] | None = None
    """The script that replaces the primary session's."""
    patches: list[Patch] | None = None

    def apply(self, script: Sequence[Entry]) -> list[Entry]:
        """The script with the override applied. Raises UsageError for a patch beyond its end."""
        if self.entries is not None:
            return list(self.entries)
        result = list(script)
        for number, patch in enumerate(self.patches or ()):
            if patch.at > len(result):
                beyond = f"is {patch.at}, but the script has {len(result)} entries"
                _fault(self.name, f"patches[{number}].at", beyond)
            result[patch.at : patch.at + 1] = [patch.entry]
        return result

    def own_entries(self) -> list[Entry]:
        """The entries that the override brings along; the others of a script are recorded."""
        return self.entries if self.entries is not None else [patch.entry for patch in self.patches or ()]


def parse_override(raw: bytes, name: str) -> Override:
    """Decode an override document. Raises UsageError with the place of the fault (`patches[2].at`)."""
    try:
        document = jsontext.loads_strict(raw)
    except jsontext.JsonError as error:
        raise UsageError(f"{name}: not JSON: {error.in_lines(raw)}") from None
    if isinstance(document, list):
        for number, entry in enumerate(document):
            _check_entry(name, f"[{number}]", entry)
        return Override(name, entries=document)
    if not isinstance(document, dict):
        _fault(name, "", "an override is a list of entries or an object with `patches`")
    _check_keys(name, "", document, {"patches"}, set())
    if not isinstance(document["patches"], list):
        _fault(name, "patches", "must be a list")
    patches: list[Patch] = []
    for number, patch in enumerate(document["patches"]):
        place = f"patches[{number}]"
        _check_keys(name, place, patch, {"at", "entry"}, set())
        at = patch["at"]
        if type(at) is not int or at < 0:
            _fault(name, f"{place}.at", f"must be an index from 0 on, not {at!r}")
        if any(other.at == at for other in patches):
            _fault(name, f"{place}.at", f"another patch is at {at} already")
        _check_entry(name, f"{place}.entry", patch["entry"])
        patches.append(Patch(at, patch["entry"]))
    return Override(name, patches=patches)


def fill(value: Any, resolve: Callable[[str], str], messages: Sequence[dict[str, Any]]) -> Any:
    """A part of an entry with tokens restored and `{{fromRequest:REGEX}}` filled from the request's messages.

    Raises UnknownToken (from `resolve`) and NoMatch.
    """
    text: list[str] = []

    def request_text() -> str:
        if not text:
            text.append("\n".join(string_leaves(list(messages))))
        return text[0]

    return map_strings(value, lambda string: _filled(string, resolve, request_text))


def string_leaves(value: Any) -> list[str]:
    """All string values of a JSON value in order, keys not included."""
    if isinstance(value, str):
        return [value]
    if isinstance(value, dict):
        value = list(value.values())
    return [leaf for item in value for leaf in string_leaves(item)] if isinstance(value, list) else []


def _filled(string: str, resolve: Callable[[str], str], request_text: Callable[[], str]) -> str:
    def replace(match: re.Match[str]) -> str:
        slashes, pattern, body = match.groups()
        if slashes:
            return "{{" + slashes[1:] + match[0][2 + len(slashes) :]
        if body is not None:
            return resolve(body)
        return _last_match(_with_values(pattern, resolve), request_text())

    return _lexeme().sub(replace, string) if "{{" in string else string


def _with_values(pattern: str, resolve: Callable[[str], str]) -> str:
    """The regular expression with the tokens in it restored, to be matched literally."""

    def replace(match: re.Match[str]) -> str:
        body = match[3]
        return match[0] if match[1] or body is None else re.escape(resolve(body))

    return _lexeme().sub(replace, pattern)


def _last_match(pattern: str, text: str) -> str:
    matches = list(re.finditer(pattern, text))
    if not matches:
        raise NoMatch(pattern)
    last = matches[-1]
    return (last[1] or "") if last.re.groups else last[0]


def _check_entry(name: str, place: str, entry: Any) -> None:
    if not isinstance(entry, dict):
        _fault(name, place, "an entry is an object")
    kind = entry.get("kind")
    if not isinstance(kind, str) or kind not in ENTRY_KEYS:
        _fault(name, f"{place}.kind", f"is {kind!r}; it must be one of {', '.join(ENTRY_KEYS)}")
    _check_keys(name, place, entry, *ENTRY_KEYS[kind])
    for key in ("message", "code", "readyFile"):
        if key in entry and not isinstance(entry[key], str):
            _fault(name, f"{place}.{key}", "must be a string")
    if "readyFile" in entry:
        _check_path(name, f"{place}.readyFile", entry["readyFile"])
    if "chunks" in entry:
        _check_chunks(name, f"{place}.chunks", entry["chunks"], finishes=kind == "chunks")
    for string in string_leaves(entry):
        _check_patterns(name, place, string)


def _check_path(name: str, place: str, path: str) -> None:
    pure = PurePosixPath(path)
    unnameable = "\0" in path or any("\ud800" <= char <= "\udfff" for char in path)
    if not path or unnameable or pure.is_absolute() or ".." in pure.parts or pure == PurePosixPath("."):
        _fault(name, place, f"{path!r} is not a file inside the workspace")


def _check_chunks(name: str, place: str, chunks: Any, *, finishes: bool) -> None:
    if not isinstance(chunks, list):
        _fault(name, place, "must be a list of chunks")
    for number, chunk in enumerate(chunks):
        _check_chunk(name, f"{place}[{number}]", chunk)
        last = number == len(chunks) - 1
        if chunk["type"] == "finish" and not (finishes and last):
            _fault(name, f"{place}[{number}]", "nothing may follow a finish, and a throw has none")
    if finishes and (not chunks or chunks[-1]["type"] != "finish"):
        _fault(name, place, "must end with a finish chunk; use `throw` or `hang` for a call that does not")


def _check_chunk(name: str, place: str, chunk: Any) -> None:
    if not isinstance(chunk, dict):
        _fault(name, place, "a chunk is an object")
    kind = chunk.get("type")
    if isinstance(kind, str) and kind in CHUNK_FIELDS:
        _check_keys(name, place, chunk, {"type", *CHUNK_FIELDS[kind]}, set(OPTIONAL_FIELDS.get(kind, {})))
    fault = chunk_fault(chunk)
    if fault is not None:
        _fault(name, f"{place}.{fault[0]}", fault[1])


def _check_keys(name: str, place: str, value: Any, needed: set[str], optional: set[str]) -> None:
    if not isinstance(value, dict):
        _fault(name, place, "must be an object")
    for key in value:
        if key not in needed and key not in optional:
            known = ", ".join(sorted(needed | optional))
            _fault(name, f"{place}.{key}" if place else key, f"unknown key; there is {known}")
    for key in sorted(needed):
        if key not in value:
            _fault(name, f"{place}.{key}" if place else key, "is missing")


def _check_patterns(name: str, place: str, string: str) -> None:
    if "{{fromRequest:" in _lexeme().sub("", string):
        _fault(name, place, "{{fromRequest:REGEX}} is empty or not closed")
    for match in _lexeme().finditer(string):
        if match[2] is not None and not match[1]:
            try:
                re.compile(_with_values(match[2], token))
            except PATTERN_ERRORS as error:
                _fault(name, place, f"{match[0]} holds no regular expression: {error}")


def _fault(name: str, place: str, message: str) -> NoReturn:
    raise UsageError(f"{name}: {place}: {message}" if place else f"{name}: {message}")
