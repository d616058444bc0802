"""Compare one committed file with what a run gave, and say readably what is different.

The verdict is about bytes (`dt` gaps of packed rows aside: they are timing). The *explanation* is about
events: lines are aligned (`pairing`), a changed line is taken apart to the first value that differs, and
references that moved only because something before them came or went are counted, not shown.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from itertools import zip_longest
from typing import Any

import msgspec

from onetake import jsontext
from onetake.fixture.gaps import without_gaps
from onetake.snapshot.diff.align import Gap
from onetake.snapshot.diff.pairing import Change, Pairing, kind_of, pair_events, parse_line, plain_changes
from onetake.snapshot.render.pins import session_index

CONTEXT = 2
"""Unchanged lines shown around a difference."""
WIDTH = 160
"""Longest piece of a line or a value that is shown, in characters."""
MAX_LINES = 2_000
"""Longest unified diff, in lines."""
MAX_CAUSES = 300
"""Differences of a file that are taken apart to tell whether two files differ alike."""


class Comparison(msgspec.Struct, frozen=True):
    """Why two files are not the same."""

    message: str
    """The first difference with context."""
    diff: str
    """The whole difference as a unified diff, at most `MAX_LINES` lines."""
    cause: str
    """A key that is equal for files that differ in the same changes and no other, wherever these occur."""


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
    jsonl = file.endswith(".jsonl")
    pairing = pair_events(old, new) if jsonl else Pairing(changes=plain_changes(old, new), old=old, new=new)
    message = _explain(pairing, pairing.changes[0])
    if len(pairing.changes) > 1:
        more = len(pairing.changes) - 1
        message += f"\n  and {more} more {_plural('difference', more)}"
    diff = _unified(pairing.old, new, pairing.gaps(), file)
    if pairing.moved:
        refer = "refers" if pairing.moved == 1 else "refer"
        note = f"({pairing.moved} {_plural('line', pairing.moved)} only {refer} to events that moved)"
        message += f"\n  {note}"
        diff += f"\n{note}"
    return Comparison(message, diff, _cause(pairing))


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


def _explain(pairing: Pairing, change: Change) -> str:
    """The text of one difference, with the lines around it."""
    head, body = _described(pairing, change)
    at = change.old if change.old is not None else change.new
    assert at is not None
    around = pairing.old if change.old is not None else pairing.new
    before = [f"  {_clip(_text(line))}" for line in around[max(0, at - CONTEXT) : at]]
    after = [f"  {_clip(_text(line))}" for line in around[at + 1 : at + 1 + CONTEXT]]
    return "\n".join([head, *(f"    {text}" for text in [*before, *body, *after])])


def _described(pairing: Pairing, change: Change) -> tuple[str, list[str]]:
    """What a difference is, and both sides of it."""
    at = change.old if change.old is not None else change.new
    assert at is not None
    line = pairing.old[at] if change.old is not None else pairing.new[at]
    place = f"line {at + 1}" + (f" ({kind_of(line)})" if isinstance(parse_line(line), dict) else "")
    if change.old is None:
        return f"{place} is new", [f"+ {_clip(_text(line))}"]
    if change.new is None:
        return f"{place} is missing", [f"- {_clip(_text(line))}"]
    path, was, now = _first_difference(line, pairing.new[change.new])
    where = f" {path}" if path == _LAYOUT else f" at {path}" if path else ""
    return f"{place} differs{where}", [f"- {was}", f"+ {now}"]


def _cause(pairing: Pairing) -> str:
    """Equal changes in any number and at any place give an equal key."""
    found = {part for change in pairing.changes[:MAX_CAUSES] for part in _parts(pairing, change)}
    digest = hashlib.sha256("\0".join(sorted(found)).encode("utf-8", "replace"))
    for change in pairing.changes[MAX_CAUSES:]:
        digest.update(b"-" if change.old is None else pairing.old[change.old])
        digest.update(b"+" if change.new is None else pairing.new[change.new])
    return digest.hexdigest()[:16]


def _parts(pairing: Pairing, change: Change) -> Iterator[str]:
    """All that one change consists of, in full: the kind of event, where in it, and both values."""
    old = pairing.old[change.old] if change.old is not None else b""
    new = pairing.new[change.new] if change.new is not None else b""
    was, now = parse_line(old), parse_line(new)
    if was is None or now is None or _same(was, now):
        yield f"- {old!r}\n+ {new!r}"
        return
    # A request is of a session and has a number; scenarios differ in both.
    work = [(kind_of(old).partition(" ")[0], was, now)]
    while work:
        path, was, now = work.pop()
        if isinstance(was, dict) and isinstance(now, dict):
            keys = [*was, *(key for key in now if key not in was)]
            work += [(f"{path}.{key}", was.get(key, _ABSENT), now.get(key, _ABSENT)) for key in keys]
            if list(was) != list(now):
                yield f"{path} {list(was)} {list(now)}"
        elif isinstance(was, list) and isinstance(now, list):
            pairs = zip_longest(was, now, fillvalue=_ABSENT)
            work += [(f"{path}[]", one, other) for one, other in pairs]
        elif not _same(was, now):
            both = ("" if value is _ABSENT else repr(jsontext.dumps(value)) for value in (was, now))
            yield "\n".join([path, *both])


def _first_difference(old: bytes, new: bytes) -> tuple[str, str, str]:
    """Path and both values of the first difference of two lines; the path is empty for plain text, `_LAYOUT`
    for JSON that is equal but for how it is written."""
    was, now = parse_line(old), parse_line(new)
    path = ""
    if isinstance(was, dict | list) and isinstance(now, dict | list):
        if _same(was, now):
            return _LAYOUT, *_windows(_text(old), _text(new))
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
_LAYOUT = "in spacing, escapes or line ends only"
"""Instead of a path: two lines that hold equal values."""


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
