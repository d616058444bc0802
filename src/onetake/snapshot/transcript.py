"""The stdout surface: every frame that the agent sent, in order, with what varies taken out.

Each raw line must be a JSON-RPC frame: a stray `print` breaks real clients, so it is a problem, not a
difference. Request ids are chosen freely by both sides; they are renumbered by first appearance, in one map
for both directions.
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
    values: list[dict[str, Any]] = []
    stray: list[str] = []
    for number, frame in enumerate(frames, 1):
        value = _frame(frame)
        if value is None:
            shown = frame[: SHOWN * 4].decode("utf-8", "replace")[:SHOWN]
            stray.append(f"stdout line {number} is no JSON-RPC frame: {shown!r}")
            continue
        if "id" in value and value["id"] is not None:
            key = (type(value["id"]).__name__, value["id"])
            value = {**value, "id": ids.setdefault(key, len(ids) + 1)}
        values.append(value)
    if joined:
        values = _join(values)
    lines = [jsontext.dumps(tokenize(rules.apply(value))) + b"\n" for value in values]
    return Transcript(b"".join(lines), stray)


def _frame(raw: bytes) -> dict[str, Any] | None:
    try:
        value = jsontext.loads(raw)
    except ValueError:
        return None
    if not isinstance(value, dict) or value.get("jsonrpc") != "2.0":
        return None
    if "id" in value and not isinstance(value["id"], str | int | float | None):
        return None
    return value


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
