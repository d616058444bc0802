"""The stdout surface: every line that the agent sent, in order, with what varies taken out.

Each raw line must belong to the driver's protocol: a stray `print` breaks real clients, so it is a problem,
not a difference. Over JSON-RPC, request ids are chosen freely by both sides; they are renumbered by first
appearance, in one map for both directions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from onetake import jsontext
from onetake.fixture.normalize import Rules

FILE = "stdout.expected.jsonl"
SHOWN = 200
"""How much of a stray line is quoted, in characters."""


class Transcript(msgspec.Struct, frozen=True):
    """The rendered surface and what did not belong on it."""

    data: bytes
    stray: list[str]
    """One text per line that is no frame."""


def render_transcript(
    frames: Sequence[bytes], tokenize: Callable[[Any], Any], rules: Rules, *, joined: bool = False
) -> Transcript:
    """Render raw stdout lines. `tokenize` replaces the run's values in a JSON value.

    `joined` merges streamed pieces of a message into one frame: a live run cuts them elsewhere than its
    replay.
    """
    ids: dict[tuple[str, Any], int] = {}
    values, stray = _sorted_out(frames, frame_of, "JSON-RPC frame")
    for index, value in enumerate(values):
        if "id" in value and value["id"] is not None:
            key = (type(value["id"]).__name__, value["id"])
            values[index] = {**value, "id": ids.setdefault(key, len(ids) + 1)}
    return _rendered(_join(values) if joined else values, stray, tokenize, rules)


def render_events(
    frames: Sequence[bytes], tokenize: Callable[[Any], Any], rules: Rules, *, joined: bool = False
) -> Transcript:
    """Render stdout lines that are events, JSON objects with a `type`. Each is whole: none is joined."""
    values, stray = _sorted_out(frames, event_of, "event (a JSON object with a `type`)")
    return _rendered(values, stray, tokenize, rules)


def event_of(raw: bytes) -> dict[str, Any] | None:
    """The event that a line is; None when it is none."""
    value = _object(raw)
    return value if value is not None and isinstance(value.get("type"), str) else None


def frame_of(raw: bytes) -> dict[str, Any] | None:
    """The JSON-RPC frame that a line is; None when it is none."""
    value = _object(raw)
    if value is None or value.get("jsonrpc") != "2.0":
        return None
    answered = value.get("id")
    return None if isinstance(answered, bool | dict | list) else value


def _sorted_out(
    frames: Sequence[bytes], parse: Callable[[bytes], dict[str, Any] | None], what: str
) -> tuple[list[dict[str, Any]], list[str]]:
    """The lines that belong to the protocol, and a text for each that does not."""
    values: list[dict[str, Any]] = []
    stray: list[str] = []
    for number, frame in enumerate(frames, 1):
        value = parse(frame)
        if value is None:
            shown = frame[: SHOWN * 4].decode("utf-8", "replace")[:SHOWN]
            stray.append(f"stdout line {number} is no {what}: {shown!r}")
        else:
            values.append(value)
    return values, stray


def _rendered(
    values: Sequence[dict[str, Any]], stray: list[str], tokenize: Callable[[Any], Any], rules: Rules
) -> Transcript:
    lines = [jsontext.dumps(tokenize(rules.apply(value))) + b"\n" for value in values]
    return Transcript(b"".join(lines), stray)


def _object(raw: bytes) -> dict[str, Any] | None:
    try:
        value = jsontext.loads_strict(raw)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


def _join(frames: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Adjacent text chunks of one kind and session as one frame."""
    result: list[dict[str, Any]] = []
    for frame in frames:
        text = _streamed(frame)
        previous = _streamed(result[-1]) if result else None
        if text is not None and previous is not None and _with_text(frame, "") == _with_text(result[-1], ""):
            result[-1] = _with_text(frame, previous + text)
        else:
            result.append(frame)
    return result


def _streamed(frame: dict[str, Any]) -> str | None:
    update = _member(_member(frame, "params"), "update")
    kind = update.get("sessionUpdate")
    content = _member(update, "content")
    text = content.get("text")
    if (
        isinstance(kind, str)
        and kind.endswith("_chunk")
        and content.get("type") == "text"
        and isinstance(text, str)
    ):
        return text
    return None


def _with_text(frame: dict[str, Any], text: str) -> dict[str, Any]:
    params = frame["params"]
    update = params["update"]
    content = {**update["content"], "text": text}
    return {**frame, "params": {**params, "update": {**update, "content": content}}}


def _member(value: dict[str, Any], key: str) -> dict[str, Any]:
    member = value.get(key)
    return member if isinstance(member, dict) else {}
