"""What an agent wrote to files, read without forgiving anything.

Decoding is kind: of a repeated key the last one counts, an absent time is 0, half a line at the end is what a
kill leaves. Each kindness would hide a fault of the agent, so the runner reads the lines that it asked for,
and the logs, more strictly: what is lost or odd is said, with file and line.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from onetake import jsontext

if TYPE_CHECKING:
    from onetake.session.jsonl import LogFile

SHOWN = 80
"""How much of a bad line is quoted, in bytes."""
REQUEST: Mapping[str, type] = {"session": str, "call": int, "purpose": str, "messages": list}
"""What the runner must know of a captured request."""
VIOLATION: Mapping[str, type] = {"kind": str, "message": str}
"""What it must know of a violation."""


def read_lines(path: Path, fields: Mapping[str, type]) -> tuple[list[dict[str, Any]], list[str], bytes]:
    """What an agent appended to a file of the runner: objects, what is wrong with other lines, the torn end.

    An object must have `fields`, of these types. A file that is not there holds nothing.
    """
    try:
        *lines, torn = path.read_bytes().split(b"\n")
    except FileNotFoundError:
        return [], [], b""
    found, faults = [], []
    for number, line in enumerate(lines, 1):
        try:
            found.append(_object(line, fields))
        except ValueError as error:
            faults.append(f"{path.name}, line {number}: {error}: {line[:SHOWN]!r}")
    return found, faults, torn


def log_fault(log: LogFile) -> str | None:
    """The first line of a live log that decoding was kind to; None: there is none."""
    records = zip(log.lines, log.values, strict=True)
    for number, (raw, value) in enumerate(chain([(log.header_raw, log.header)], records), 1):
        try:
            jsontext.require_unique_keys(raw, value)
            for key in ("createdAt",) if number == 1 else _envelope(value):
                _require(value, key, int)
        except ValueError as error:
            return f"line {number}: {error}"
    return None


def _envelope(record: Mapping[str, Any]) -> tuple[str, str]:
    return ("seq0", "time0") if record["type"].endswith("-chunks") else ("seq", "time")


def _object(line: bytes, fields: Mapping[str, type]) -> dict[str, Any]:
    value = jsontext.loads_strict(line)
    if not isinstance(value, dict):
        raise ValueError("no JSON object")
    for key, wanted in fields.items():
        _require(value, key, wanted)
    return value


def _require(value: Mapping[str, Any], key: str, wanted: type) -> None:
    if not isinstance(value.get(key), wanted) or isinstance(value[key], bool):
        raise ValueError(f"`{key}` is {value.get(key)!r}, not of type {wanted.__name__}")
