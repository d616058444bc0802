"""Compare one committed file with what a run gave, and say readably what is different.

The verdict is about bytes (`dt` gaps of packed rows aside: they are timing). The *explanation* is about
events: lines are aligned, a changed line is taken apart to the first value that differs, and sequence
references that moved only because an event before them came or went are counted, not shown.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from onetake import jsontext
from onetake.fixture.gaps import without_gaps
from onetake.snapshot.align import Gap, gaps
from onetake.snapshot.pins import session_index

CONTEXT = 2
"""Unchanged lines shown around a difference."""
WIDTH = 160
"""Longest piece of a line or a value that is shown, in characters."""
MAX_LINES = 2_000
"""Longest unified diff, in lines."""


class Comparison(msgspec.Struct, frozen=True):
    """Why two files are not the same."""

    message: str
    """The first difference with context."""
    diff: str
    """The whole difference as a unified diff, at most `MAX_LINES` lines."""
    cause: str
    """A key that is equal for equal changes, whatever file they occur in."""


class _Change(msgspec.Struct, frozen=True):
    """One aligned difference: line numbers from 0, None where a side has no line."""

    old: int | None
    new: int | None


def compare(expected: bytes, actual: bytes, file: str) -> Comparison | None:
    """None when the two are the same; `file` decides how they are read (`*.jsonl` line by line as JSON)."""
    fixture = session_index(file.rpartition("/")[2]) is not None
    old_data, new_data = (without_gaps(expected), without_gaps(actual)) if fixture else (expected, actual)
    if old_data == new_data:
        return None
    old, new = _lines(old_data), _lines(new_data)
    if old == new:
        which = "the committed file" if not old_data.endswith(b"\n") else "the run's text"
        message = f"{which} does not end with a newline"
        return Comparison(message, message, message)
    diff = _unified(old, new, gaps(old, new), file)
    changes, moved = _changes(old, new) if file.endswith(".jsonl") else (_plain_changes(old, new), 0)
    first = changes[0]
    message, cause = _explain(old, new, first)
    if len(changes) > 1:
        message += f"\n  and {len(changes) - 1} more {_plural('difference', len(changes) - 1)}"
    if moved:
        message += f"\n  ({moved} {_plural('line', moved)} only refer to events that moved)"
    return Comparison(message, diff, cause)


def missing(actual: bytes, file: str) -> Comparison:
    """The run gave a file that is not committed."""
    new = _lines(actual)
    return Comparison(
        f"the file is not committed, and the run gave {len(new)} {_plural('line', len(new))}",
        _unified([], new, [Gap(0, 0, 0, len(new))], file),
        "",
    )


def surplus(expected: bytes, file: str) -> Comparison:
    """A committed file to which the run gave nothing."""
    old = _lines(expected)
    return Comparison(
        f"the file is committed ({len(old)} {_plural('line', len(old))}), and the run gave no such file",
        _unified(old, [], [Gap(0, len(old), 0, 0)], file),
        "",
    )


def _lines(data: bytes) -> list[bytes]:
    lines = data.split(b"\n")
    return lines[:-1] if lines[-1] == b"" else lines


def _changes(old: Sequence[bytes], new: Sequence[bytes]) -> tuple[list[_Change], int]:
    """Differences of two JSONL files by event, and how many lines have sequence references that moved."""
    old_keys, new_keys = [_event_key(line) for line in old], [_event_key(line) for line in new]
    places = gaps(old_keys, new_keys)
    changes = [change for gap in places for change in _pair(old, new, gap)]
    kept = _kept(places, len(old), len(new))
    references = [_Change(a, b) for a, b in kept if old[a] != new[b]]
    if not changes:
        return references, 0  # nothing came or went: the references themselves are the difference
    return changes, len(references)


def _kept(places: Sequence[Gap], old: int, new: int) -> Iterator[tuple[int, int]]:
    """The aligned lines between the gaps of two files of `old` and `new` lines."""
    a = b = 0
    for gap in [*places, Gap(old, old, new, new)]:
        yield from zip(range(a, gap.a0), range(b, gap.b0), strict=True)
        a, b = gap.a1, gap.b1


def _event_key(line: bytes) -> bytes:
    """The line without its sequence references."""
    if b'"sourceEventSeqs"' not in line:
        return line
    value = _parse(line)
    if isinstance(value, dict) and "sourceEventSeqs" in value:
        return jsontext.dumps({**value, "sourceEventSeqs": None})
    return line


def _pair(old: Sequence[bytes], new: Sequence[bytes], gap: Gap) -> list[_Change]:
    """Match the lines of a gap by what kind of event they are; what has no partner came or went."""
    kinds_old = [_kind(line) for line in old[gap.a0 : gap.a1]]
    kinds_new = [_kind(line) for line in new[gap.b0 : gap.b1]]
    if kinds_old == kinds_new:
        return [_Change(gap.a0 + i, gap.b0 + i) for i in range(len(kinds_old))]
    result, a, b = [], 0, 0
    for inner in [
        *gaps(kinds_old, kinds_new),
        Gap(len(kinds_old), len(kinds_old), len(kinds_new), len(kinds_new)),
    ]:
        result += [_Change(gap.a0 + a + i, gap.b0 + b + i) for i in range(inner.a0 - a)]
        result += [_Change(gap.a0 + i, None) for i in range(inner.a0, inner.a1)]
        result += [_Change(None, gap.b0 + i) for i in range(inner.b0, inner.b1)]
        a, b = inner.a1, inner.b1
    return result


def _plain_changes(old: Sequence[bytes], new: Sequence[bytes]) -> list[_Change]:
    result = []
    for gap in gaps(old, new):
        shared = min(gap.a1 - gap.a0, gap.b1 - gap.b0)
        result += [_Change(gap.a0 + i, gap.b0 + i) for i in range(shared)]
        result += [_Change(i, None) for i in range(gap.a0 + shared, gap.a1)]
        result += [_Change(None, i) for i in range(gap.b0 + shared, gap.b1)]
    return result


def _kind(line: bytes) -> str:
    """What a line is about, in a word: the type of an event or chunk, the method or the kind of a frame."""
    value = _parse(line)
    if not isinstance(value, dict):
        return "text"
    if "jsonrpc" in value:
        update = _at(value, "params", "update", "sessionUpdate")
        if isinstance(update, str):
            return update
        method = value.get("method")
        return method if isinstance(method, str) else "error response" if "error" in value else "response"
    if isinstance(value.get("purpose"), str) and "call" in value:
        return f"request {value.get('call')} of session {value.get('session')}"
    chunk = _at(value, "data", "chunk", "type")
    kind = value.get("type")
    return " ".join(part for part in (kind, chunk) if isinstance(part, str)) or "object"


def _at(value: Any, *path: str) -> Any:
    for key in path:
        value = value.get(key) if isinstance(value, dict) else None
    return value


def _explain(old: Sequence[bytes], new: Sequence[bytes], change: _Change) -> tuple[str, str]:
    """The text of one difference, and its cause."""
    at = change.old if change.old is not None else change.new
    assert at is not None
    line = (old if change.old is not None else new)[at]
    structured = isinstance(_parse(line), dict)
    place = f"line {at + 1}" + (f" ({_kind(line)})" if structured else "")
    if change.old is None:
        head, body = f"{place} is new", [f"+ {_clip(line.decode('utf-8', 'replace'))}"]
        around = new
    elif change.new is None:
        head, body = f"{place} is missing", [f"- {_clip(line.decode('utf-8', 'replace'))}"]
        around = old
    else:
        path, was, now = _first_difference(line, new[change.new])
        head = f"{place} differs" + (f" at {path}" if path else "")
        body = [f"- {was}", f"+ {now}"]
        around = old
    before = [f"  {_clip(text.decode('utf-8', 'replace'))}" for text in around[max(0, at - CONTEXT) : at]]
    after = [f"  {_clip(text.decode('utf-8', 'replace'))}" for text in around[at + 1 : at + 1 + CONTEXT]]
    cause = hashlib.sha256("\n".join(body).encode("utf-8", "replace")).hexdigest()[:16]
    return "\n".join([head, *(f"    {text}" for text in [*before, *body, *after])]), cause


def _first_difference(old: bytes, new: bytes) -> tuple[str, str, str]:
    """Path and both values of the first difference of two lines; the path is empty for plain text."""
    was, now = _parse(old), _parse(new)
    path = ""
    if isinstance(was, dict | list) and isinstance(now, dict | list):
        path, was, now = _descend(was, now)
    else:
        was, now = old.decode("utf-8", "replace"), new.decode("utf-8", "replace")
        return "", *_windows(was, now)
    if was is _ABSENT or now is _ABSENT:
        return path, _show(was), _show(now)
    if isinstance(was, str) and isinstance(now, str):
        left, right = _windows(was, now)
        return path, _quote(left), _quote(right)
    return path, _show(was), _show(now)


_ABSENT = object()


def _descend(was: Any, now: Any) -> tuple[str, Any, Any]:
    path = ""
    while True:
        if isinstance(was, dict) and isinstance(now, dict):
            keys = [*was, *(key for key in now if key not in was)]
            step = next((k for k in keys if not _same(was.get(k, _ABSENT), now.get(k, _ABSENT))), None)
            if step is None:  # equal members in another order
                return f"{path} (order of keys)".lstrip(), list(was), list(now)
            path = f"{path}.{step}" if path else str(step)
            was, now = was.get(step, _ABSENT), now.get(step, _ABSENT)
        elif isinstance(was, list) and isinstance(now, list):
            shared = min(len(was), len(now))
            index = next((i for i in range(shared) if not _same(was[i], now[i])), shared)
            path = f"{path}[{index}]"
            was = was[index] if index < len(was) else _ABSENT
            now = now[index] if index < len(now) else _ABSENT
        else:
            return path, was, now


def _same(was: Any, now: Any) -> bool:
    if was is _ABSENT or now is _ABSENT:
        return was is now
    return jsontext.dumps(was) == jsontext.dumps(now)


def _windows(was: str, now: str) -> tuple[str, str]:
    """Both texts around the first character that differs."""
    start = next(
        (i for i, (a, b) in enumerate(zip(was, now, strict=False)) if a != b), min(len(was), len(now))
    )
    lead = max(0, start - WIDTH // 4)
    if max(len(was), len(now)) <= WIDTH:
        lead = 0
    return tuple(("..." if lead else "") + _clip(text[lead:]) for text in (was, now))  # type: ignore[return-value]


def _show(value: Any) -> str:
    return "(absent)" if value is _ABSENT else _clip(jsontext.dumps(value).decode("utf-8"))


def _quote(text: str) -> str:
    return jsontext.dumps(text).decode("utf-8")


def _clip(text: str) -> str:
    text = text.replace("\r", "\\r")
    return text if len(text) <= WIDTH else f"{text[:WIDTH]}... ({len(text)} characters)"


def _parse(line: bytes) -> Any:
    if not line.startswith((b"{", b"[")):
        return None
    try:
        return jsontext.loads(line)
    except ValueError:
        return None


def _unified(old: Sequence[bytes], new: Sequence[bytes], places: Sequence[Gap], file: str) -> str:
    """A unified diff from an alignment."""
    out = [f"--- {file} (committed)", f"+++ {file} (this run)"]
    for hunk in _hunks(places):
        a0, b0 = max(0, hunk[0].a0 - CONTEXT), max(0, hunk[0].b0 - CONTEXT)
        a1, b1 = min(len(old), hunk[-1].a1 + CONTEXT), min(len(new), hunk[-1].b1 + CONTEXT)
        out.append(f"@@ -{a0 + 1},{a1 - a0} +{b0 + 1},{b1 - b0} @@")
        at = a0
        for gap in hunk:
            out += [" " + _text(line) for line in old[at : gap.a0]]
            out += ["-" + _text(line) for line in old[gap.a0 : gap.a1]]
            out += ["+" + _text(line) for line in new[gap.b0 : gap.b1]]
            at = gap.a1
        out += [" " + _text(line) for line in old[at:a1]]
        if len(out) > MAX_LINES:
            hidden = len(out) - MAX_LINES
            out = [*out[:MAX_LINES], f"... (more than {hidden} further lines)"]
            break
    return "\n".join(out)


def _hunks(places: Sequence[Gap]) -> list[list[Gap]]:
    hunks: list[list[Gap]] = []
    for gap in places:
        if hunks and gap.a0 - hunks[-1][-1].a1 <= 2 * CONTEXT:
            hunks[-1].append(gap)
        else:
            hunks.append([gap])
    return hunks


def _text(line: bytes) -> str:
    return line.decode("utf-8", "replace")


def _plural(word: str, count: int) -> str:
    return word if count == 1 else f"{word}s"
