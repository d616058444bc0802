"""Which part of a text changes from run to run, and the narrowest pattern that covers it.

Two runs printed `job f4af queued` and `job 9c1e queued`. The words before and behind the part that changed
hold still, and what changed has a shape: a known one (a UUID, a time of day, a duration), or the class of its
characters (`[0-9a-f]{4}`). So the pattern is `job [0-9a-f]{4}`: it covers the next run, and not a job that
failed. A word that only became another word (`passed`, `failed`) is no such value: no pattern is offered for
it, because that would hide a real difference.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec

from onetake.fixture.grammar import NAME, RESERVED
from onetake.fixture.ids import ID_KINDS
from onetake.snapshot.diff.align import gaps

CONTEXT = 30
"""Longest stable text that a pattern takes from the left of a value, in characters."""
RIGHT = 12
"""The same from the right, where the left says nothing."""
SHORT = 3
"""A left side of so few letters (`at`, `in`) takes one word more."""

_MONTH = "(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)"
_DAY = "(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun)"
_CLOCK = r"[0-9]{1,2}:[0-9]{2}(?::[0-9]{2}(?:[.,][0-9]+)?)?"
_YEAR_DAY = r"[0-9]{4}[-/][0-9]{2}[-/][0-9]{2}"


class Shape(msgspec.Struct, frozen=True):
    """A form of value that is known by its looks."""

    kind: str
    """`id`, `time` (when something happened), `duration` (how long it took), `number` or `text`."""
    pattern: str
    word: str
    """What a mask puts in its place."""
    alone: bool = False
    """Whether the form says enough, so that no text around it is needed."""


SHAPES = (
    Shape("id", "[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}", "UUID", alone=True),
    Shape(
        "time",
        rf"{_YEAR_DAY}[T ]{_CLOCK}(?: ?(?:Z|UTC|GMT|[+-][0-9]{{2}}:?[0-9]{{2}}))?",
        "TIME",
        alone=True,
    ),
    Shape(
        "time",
        rf"{_DAY},? +(?:{_MONTH} +[0-9]{{1,2}}|[0-9]{{1,2}} +{_MONTH}),?(?: [0-9]{{4}})? +{_CLOCK}"
        r"(?: [AP]M)?(?: (?:[A-Z]{3,5}|[+-][0-9]{4}))?(?: [0-9]{4})?",
        "TIME",
        alone=True,
    ),
    Shape("time", rf"{_MONTH} +[0-9]{{1,2}},? +(?:{_CLOCK}|[0-9]{{4}}(?: {_CLOCK})?)", "TIME"),
    Shape("duration", r"[0-9]+m[0-9]+(?:\.[0-9]+)?s", "DURATION"),
    Shape("duration", r"[0-9]+(?:\.[0-9]+)? ?(?:ns|us|µs|ms|s|secs?|seconds?|min|minutes?)(?![A-Za-z])", "N"),
    Shape("time", _CLOCK, "TIME"),
    Shape("time", _YEAR_DAY, "DATE"),
    Shape("id", "0x[0-9a-fA-F]+", "ADDRESS"),
    Shape("time", r"1[0-9]{9}(?:[0-9]{3}){0,3}(?:\.[0-9]+)?(?![0-9])", "TIME"),
    Shape("number", r"[0-9]+\.[0-9]+(?![0-9.])", "N"),
)
_COMPILED = [re.compile(rf"(?<![A-Za-z0-9])(?:{shape.pattern})(?![A-Za-z0-9])") for shape in SHAPES]
_UNITS = re.compile(r"[0-9.]+( ?)([a-zµ]+)")
_PIECE = re.compile(r"\{\{[^{}\s]*\}\}|[A-Za-z0-9_-]+|.", re.DOTALL)
_WORD = re.compile("[A-Za-z0-9_-]+")
_PLACEHOLDERS = re.compile(r"\b(?:VALUE|N|UUID|TIME|DATE|DURATION|ADDRESS)\b")
_WORDY = re.compile("[A-Za-z0-9_]")
_HEAD = re.compile("[_-]$|[A-Za-z]{3,}$")
_TAIL = re.compile("[_-]|[A-Za-z]{2,}$")


class Varying(msgspec.Struct, frozen=True):
    """A value that changes, and how to cover it."""

    values: tuple[str, ...]
    """What the runs printed, each once."""
    kind: str
    """See `Shape.kind`."""
    mask: str
    """Pattern of a mask rule."""
    replacement: str
    """What the mask puts in, as `re.sub` reads it."""
    mint: str
    """Pattern of a mint rule: the same, with the value as group 1."""
    name: str
    """What to call the value."""


def find_varying(texts: Sequence[str], *, alone: bool = True) -> Varying | None:
    """The first value that differs among the texts of some runs (fixture text, at least two).

    `alone` lets a form that says enough (a UUID, say) stand without the text around it. None when what
    differs is no such value: other words, other lines, or everything.
    """
    first, others = texts[0], [text for text in texts[1:] if text != texts[0]]
    pieces = [piece for piece in (_first_piece(first, other) for other in others) if piece is not None]
    if not pieces:
        return None
    chosen = min(pieces, key=lambda piece: (piece.start, -piece.end))
    alike = [p for p in pieces if (p.start, p.end, p.shape) == (chosen.start, chosen.end, chosen.shape)]
    values = tuple(dict.fromkeys([first[chosen.start : chosen.end], *(piece.value for piece in alike)]))
    body = _body(values, chosen.shape)
    if body is None:
        return None
    before = [first[: chosen.start], *(piece.before for piece in alike)]
    behind = [first[chosen.end :], *(piece.behind for piece in alike)]
    shape = chosen.shape
    return _cover(before, behind, values, body, shape, bare=alone and shape is not None and shape.alone)


def same_lines(one: str, other: str) -> bool:
    """Whether two texts hold the same lines in another order."""
    return one != other and sorted(one.split("\n")) == sorted(other.split("\n"))


class _Piece(msgspec.Struct, frozen=True):
    """The first value that differs between two texts: its place in the one, and what the other has there."""

    start: int
    end: int
    before: str
    value: str
    behind: str
    shape: Shape | None


def _first_piece(one: str, other: str) -> _Piece | None:
    mine, theirs = _pieces(one), _pieces(other)
    for gap in gaps([text for _, text in mine], [text for _, text in theirs]):
        a0, a1 = _edges(mine, gap.a0, gap.a1, len(one))
        b0, b1 = _edges(theirs, gap.b0, gap.b1, len(other))
        one_word = gap.a1 - gap.a0 == 1 == gap.b1 - gap.b0
        if one_word:
            head, tail = _common(one[a0:a1], other[b0:b1])
            a0, a1, b0, b1 = a0 + head, a1 - tail, b0 + head, b1 - tail
        for shape, compiled in zip(SHAPES, _COMPILED, strict=True):
            here, there = _around(compiled, one, a0, a1), _around(compiled, other, b0, b1)
            if here is not None and there is not None:
                return _piece(*here, other, *there, shape)
        # More than one word is no value, but another text.
        return _piece(a0, a1, other, b0, b1, None) if one_word else None
    return None


def _piece(a0: int, a1: int, other: str, b0: int, b1: int, shape: Shape | None) -> _Piece:
    return _Piece(a0, a1, other[:b0], other[b0:b1], other[b1:], shape)


def _pieces(text: str) -> list[tuple[int, str]]:
    return [(match.start(), match[0]) for match in _PIECE.finditer(text)]


def _edges(pieces: Sequence[tuple[int, str]], first: int, last: int, size: int) -> tuple[int, int]:
    at = pieces[first][0] if first < len(pieces) else size
    return at, at if first == last else pieces[last - 1][0] + len(pieces[last - 1][1])


def _around(compiled: re.Pattern[str], text: str, start: int, end: int) -> tuple[int, int] | None:
    """The match that covers the span, looked for on its line."""
    begin = text.rfind("\n", 0, start) + 1
    for match in compiled.finditer(text, begin):
        if match.start() > start:
            return None
        if match.end() >= end and match.end() > start:
            return match.span()
    return None


def _common(one: str, other: str) -> tuple[int, int]:
    """How much of two words is a stable head (`job-`, `pid`) and a stable tail (`ms`)."""
    head = 0
    while head < min(len(one), len(other)) and one[head] == other[head]:
        head += 1
    while head and not _HEAD.search(one[:head]):
        head -= 1
    tail = 0
    while tail < min(len(one), len(other)) - head and one[-tail - 1] == other[-tail - 1]:
        tail += 1
    while tail and not _TAIL.match(one[len(one) - tail :]):
        tail -= 1
    return head, tail


def _body(values: Sequence[str], shape: Shape | None) -> str | None:
    """The pattern of the values; None when they do not look like values."""
    if shape is not None:
        templates = {_template(value) for value in values}
        if shape.kind in ("time", "number") and len(templates) == 1:
            return templates.pop()
        units = {match[1] + match[2] for match in map(_UNITS.fullmatch, values) if match}
        if shape.kind == "duration" and len(units) == 1:
            point = r"(?:\.[0-9]+)?" if any("." in value for value in values) else ""
            return f"[0-9]+{point}{units.pop()}"
        lower = all(value == value.lower() for value in values)
        return shape.pattern.replace("a-fA-F", "a-f") if shape.kind == "id" and lower else shape.pattern
    if not all(map(_WORD.fullmatch, values)):
        return None
    if all(value.isascii() and value.isdigit() for value in values):
        return "[0-9]+"
    if not _looks_random(values):
        return None
    used = "".join(values)
    letters = "".join(filter(str.isalpha, used)).lower()
    last = "f" if letters and max(letters) <= "f" else "z"
    classes = "0-9" if last == "f" or any(map(str.isdigit, used)) else ""
    classes += f"A-{last.upper()}" if any(map(str.isupper, used)) else ""
    classes += f"a-{last}" if any(map(str.islower, used)) else ""
    classes += "_" * ("_" in used) + "-" * ("-" in used)
    sizes = {len(value) for value in values}
    if len(sizes) == 1:
        return f"[{classes}]{{{sizes.pop()}}}"
    # Words of any length have no figures, and must not be covered where all values have some.
    figures = last == "z" and all(re.search("[0-9]", value) for value in values)
    return (f"(?=[{classes.removeprefix('0-9')}]*[0-9])" if figures else "") + f"[{classes}]+"


def _template(value: str) -> str:
    """The form of one time or number: figures and names of months and days are free, the rest is literal."""
    result = ""
    for match in re.finditer("[0-9]+|[A-Z][a-z]{2}| +|.", value):
        piece = match[0]
        if piece.isdigit():
            # A day of the month may have one figure or two, and a fraction any number.
            fixed = (len(piece) in (2, 4) or len(piece) >= 10) and not result.endswith((" +", ".", ","))
            result += f"[0-9]{{{len(piece)}}}" if fixed else "[0-9]+"
        elif len(piece) == 3 and piece.isalpha():
            result += "[A-Z][a-z]{2}"
        else:
            result += " +" if piece[0] == " " and result.endswith("[a-z]{2}") else quote(piece)
    return result


def _looks_random(values: Sequence[str]) -> bool:
    """Digits, or small and capital letters mixed, in one of them: no word of a language."""
    return any(
        re.search("[0-9]", value) or re.search("[a-z].*[A-Z].*[a-z]|[A-Z].*[a-z].*[A-Z]", value)
        for value in values
    )


def _left(before: str, others: Sequence[str]) -> str:
    """The last words before the value: on its line, the same in all runs, without figures and tokens."""
    line = before.rpartition("\n")[2].rpartition("}}")[2]
    size = 0
    while size < min(len(line), CONTEXT + 1) and all(
        other.endswith(line[len(line) - size - 1 :]) for other in others
    ):
        size += 1
    size = min(size, CONTEXT)
    stable = line[len(line) - size :]
    if size < len(line) and _WORDY.match(line[len(line) - size - 1]):
        stable = re.sub("^[A-Za-z0-9_]+", "", stable)  # half a word
    stable = _PLACEHOLDERS.split(stable)[-1]  # of a mask that was found before
    found = ""
    for words in (1, 2):
        match = re.search(rf"(?:[^\s0-9]+[ \t]+){{0,{words}}}[^\s0-9]*$", stable)
        found = match[0] if match else ""
        if len(re.findall("[A-Za-z]", found)) > SHORT:
            break
    return found


def _right(behind: str, others: Sequence[str]) -> str:
    """The first word behind the value, when it is the same in all runs."""
    match = re.match(r"[ \t]*[^\s0-9{]+", behind[:RIGHT])
    return match[0] if match and all(other.startswith(match[0]) for other in others) else ""


def _cover(
    befores: Sequence[str],
    behinds: Sequence[str],
    values: tuple[str, ...],
    body: str,
    shape: Shape | None,
    *,
    bare: bool,
) -> Varying:
    """The rules for a value between stable texts: as much of these as it takes to be narrow."""
    left, right = _left(befores[0], befores[1:]), _right(behinds[0], behinds[1:])
    before = after = ""
    edge = r"\b" if all(_WORDY.match(value[-1]) for value in values) else "(?![A-Za-z0-9_-])"
    if bare:
        left, right, after = "", "", edge
    elif not _WORDY.match(right) and _WORDY.search(left):
        right, after = "", edge
    elif not _WORDY.search(left):
        after = "" if right else edge
        if all(behind[len(right) :][:1] in ("", "\n") for behind in behinds):
            before, after = "(?m)", "$"
        if all(text[: len(text) - len(left)][-1:] in ("", "\n") for text in befores):
            before = "(?m)^"
    word = shape.word if shape is not None else "N" if body == "[0-9]+" else "VALUE"
    if word == "N" and (unit := _UNITS.fullmatch(values[0])):
        word += unit[1] + unit[2]
    return Varying(
        values=values,
        kind=shape.kind if shape is not None else "number" if body == "[0-9]+" else "text",
        mask=f"{before}{quote(left)}{body}{quote(right)}{after}",
        replacement=f"{left}{word}{right}".replace("\\", "\\\\"),
        mint=f"{before}{quote(left)}({body}){quote(right)}{after}",
        name=_name(left, shape),
    )


def quote(text: str) -> str:
    """Literal text as a pattern, without the backslashes that only hinder reading."""
    return re.sub(r"[\\.^$*+?{}\[\]|()]", r"\\\g<0>", text)


def _name(left: str, shape: Shape | None) -> str:
    """The last word before the value, else what the value is."""
    words = re.findall("[A-Za-z]+", left)
    for word in [*words[-1:], shape.word if shape is not None else "value"]:
        name: str = word.lower()
        if len(name) > 1 and re.fullmatch(NAME, name) and name not in RESERVED and name not in ID_KINDS:
            return name
    return "value"
