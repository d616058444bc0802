"""Pair the lines of two JSONL files by event, and follow what only refers to another place.

One event that came or went moves everything behind it: `sourceEventSeqs` count events, `kept` counts
messages, a token such as `{{msg:1.3}}` counts ids. Compared as text, every later line would differ. So lines
are aligned with their references taken out, the alignment says which event of one side is which of the other,
and the references of the old side are rewritten through it. A line that is equal then only *moved*: it is
counted, and not shown. What nothing explains is a difference like any other.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from onetake import jsontext
from onetake.snapshot.diff.align import Block, Gap, blocks, gaps

_SEQS = re.compile(rb'"sourceEventSeqs":\[([0-9,]*)\]')
_KEPT = re.compile(rb'"kept":([0-9]+)')
_TOKEN = re.compile(rb"\{\{([A-Za-z][A-Za-z0-9_-]*):((?:[0-9]+/)?[0-9]+(?:\.[0-9]+)?)\}\}")
_EVENT = re.compile(rb'\{"type":"([^"\\]+)"')
_REQUEST = b'{"session":'
_ROWS = {b'{"type":"text-chunks"': "texts", b'{"type":"reasoning-chunks"': "texts"}
_ROWS[b'{"type":"tool-call-chunks"'] = "args"


class Change(msgspec.Struct, frozen=True):
    """One aligned difference: line numbers from 0, None where a side has no line."""

    old: int | None
    new: int | None


class Pairing(msgspec.Struct, kw_only=True):
    """Two files, line by line."""

    changes: list[Change]
    """What differs, in order; a pair is the same kind of event on both sides."""
    moved: int = 0
    """Lines that differ only in references to what moved."""
    old: Sequence[bytes]
    """The old lines, references rewritten as far as the alignment explains them."""
    new: Sequence[bytes]

    def gaps(self) -> list[Gap]:
        """The differences as gaps, for a diff in which what moved counts as equal."""
        result: list[Gap] = []
        a = b = 0
        for change in self.changes:
            a0 = change.old if change.old is not None else a + (change.new or 0) - b
            b0 = change.new if change.new is not None else b + a0 - a
            a = a0 + (change.old is not None)
            b = b0 + (change.new is not None)
            last = result[-1] if result else None
            if last is not None and (last.a1, last.b1) == (a0, b0):
                result[-1] = Gap(last.a0, a, last.b0, b)
            else:
                result.append(Gap(a0, a, b0, b))
        return result


def pair_events(old: Sequence[bytes], new: Sequence[bytes]) -> Pairing:
    """Pair the lines of two JSONL files."""
    places = gaps([_key(line) for line in old], [_key(line) for line in new])
    pairs: list[Change] = []
    a = b = 0
    for gap in [*places, Gap(len(old), len(old), len(new), len(new))]:
        pairs += [Change(a + i, b + i) for i in range(gap.a0 - a)]
        pairs += _by_kind(old, new, gap)
        a, b = gap.a1, gap.b1
    references = _References(old, new, pairs)
    shown = list(old)
    changes: list[Change] = []
    moved: list[Change] = []
    for pair in pairs:
        if pair.old is None or pair.new is None:
            changes.append(pair)
        elif old[pair.old] != new[pair.new]:
            shown[pair.old], same = references.follow(pair.old, pair.new)
            (moved if same else changes).append(pair)
    if not changes:  # nothing came or went: the references themselves are the difference
        return Pairing(changes=moved, old=old, new=new)
    return Pairing(changes=changes, moved=len(moved), old=shown, new=new)


def plain_changes(old: Sequence[bytes], new: Sequence[bytes]) -> list[Change]:
    """The differences of two texts, line by line."""
    result = []
    for gap in gaps(old, new):
        shared = min(gap.a1 - gap.a0, gap.b1 - gap.b0)
        result += [Change(gap.a0 + i, gap.b0 + i) for i in range(shared)]
        result += [Change(i, None) for i in range(gap.a0 + shared, gap.a1)]
        result += [Change(None, i) for i in range(gap.b0 + shared, gap.b1)]
    return result


def parse_line(line: bytes) -> Any:
    """The JSON value of a line that holds an object or a list; None for any other line."""
    if not line.startswith((b"{", b"[")):
        return None
    try:
        return jsontext.loads(line)
    except ValueError:
        return None


def kind_of(line: bytes) -> str:
    """What a line is about, in a word: the type of an event or chunk, the method or the kind of a frame."""
    plain = _EVENT.match(line)
    if plain is not None and plain[1] != b"assistant/chunk":
        return plain[1].decode("utf-8", "replace")  # most lines of a log, without parsing them
    value = parse_line(line)
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


def _key(line: bytes) -> bytes:
    """The line without its references. Quotes inside JSON strings are escaped, so only fields match."""
    if b'"sourceEventSeqs"' in line:
        line = _SEQS.sub(b"", line)
    if b"{{" in line:
        line = _TOKEN.sub(rb"{{\1}}", line)
    return _KEPT.sub(b"", line, count=1) if line.startswith(_REQUEST) else line


def _by_kind(old: Sequence[bytes], new: Sequence[bytes], gap: Gap) -> list[Change]:
    """Match the lines of a gap by what kind of event they are; what has no partner came or went."""
    kinds_old = [kind_of(line) for line in old[gap.a0 : gap.a1]]
    kinds_new = [kind_of(line) for line in new[gap.b0 : gap.b1]]
    result: list[Change] = []
    a = b = 0
    end = Gap(len(kinds_old), len(kinds_old), len(kinds_new), len(kinds_new))
    for inner in [*gaps(kinds_old, kinds_new), end]:
        result += [Change(gap.a0 + a + i, gap.b0 + b + i) for i in range(inner.a0 - a)]
        result += [Change(gap.a0 + i, None) for i in range(inner.a0, inner.a1)]
        result += [Change(None, gap.b0 + i) for i in range(inner.b0, inner.b1)]
        a, b = inner.a1, inner.b1
    return result


class _References:
    """What the events, ids and messages of the old side are called on the new side."""

    def __init__(self, old: Sequence[bytes], new: Sequence[bytes], pairs: Sequence[Change]) -> None:
        self._old = old
        self._new = new
        self._pairs = pairs
        self._seqs: dict[int, int] | None = None
        self._partners: set[int] = set()
        self._tokens: dict[bytes, bytes] = {}
        self._taken: dict[bytes, bytes] = {}
        self._histories: tuple[dict[int, _History], dict[int, _History]] | None = None
        self._alignments: dict[tuple[int, int], tuple[int, int, list[Block]]] = {}
        for pair in pairs:
            if pair.old is not None and pair.new is not None:
                self._learn(old[pair.old], new[pair.new])

    def follow(self, a: int, b: int) -> tuple[bytes, bool]:
        """The old line `a` in the terms of the new side, and whether that is the new line `b`."""
        line, other = self._old[a], self._new[b]
        if b"{{" in line:
            line = _TOKEN.sub(lambda match: self._tokens.get(match[0], match[0]), line)
        if b'"sourceEventSeqs"' in line and _SEQS.findall(line) != _SEQS.findall(other):
            line, other = self._follow_seqs(line, other)
        if line.startswith(_REQUEST) and other.startswith(_REQUEST):
            line = self._follow_kept(line, other, a, b)
        return line, line == other

    def _aligned(self, before: _History, after: _History) -> list[Block]:
        """Two histories aligned: what calls have added since the last time is, for the rest is known."""
        key = (id(before[0]), id(after[0]))
        a, b, aligned = self._alignments.get(key, (0, 0, []))
        added = blocks(before[0][a : before[1]], after[0][b : after[1]])
        aligned += [Block(a + block.old_at, b + block.new_at, block.size) for block in added]
        self._alignments[key] = (before[1], after[1], aligned)
        return aligned

    def _learn(self, line: bytes, other: bytes) -> None:
        """Ids are what they are aligned with first; a token never stands for two."""
        if b"{{" not in line or line == other:
            tokens = _TOKEN.finditer(line) if b"{{" in line else ()
            for match in tokens:
                self._meet(match[0], match[0])
            return
        for mine, theirs in zip(_TOKEN.finditer(line), _TOKEN.finditer(other), strict=False):
            if mine[1] == theirs[1]:
                self._meet(mine[0], theirs[0])

    def _meet(self, mine: bytes, theirs: bytes) -> None:
        if mine not in self._tokens and theirs not in self._taken:
            self._tokens[mine], self._taken[theirs] = theirs, mine

    def _follow_seqs(self, line: bytes, other: bytes) -> tuple[bytes, bytes]:
        """Both lines with the references to events that have a partner; those that came or went are shown."""
        if self._seqs is None:
            self._seqs = dict(self._numbered())
            self._partners = set(self._seqs.values())
        known, partners = self._seqs, self._partners
        followed = _SEQS.sub(lambda m: _listed(known[n] for n in _numbers(m[1]) if n in known), line)
        return followed, _SEQS.sub(lambda m: _listed(n for n in _numbers(m[1]) if n in partners), other)

    def _numbered(self) -> Iterator[tuple[int, int]]:
        """Old and new sequence number of every event that has a partner."""
        old, new = _spans(self._old), _spans(self._new)
        for pair in self._pairs:
            if pair.old is not None and pair.new is not None:
                yield from zip(range(*old[pair.old]), range(*new[pair.new]), strict=False)

    def _follow_kept(self, line: bytes, other: bytes, a: int, b: int) -> bytes:
        """`kept` as the messages before it say: equal when the same messages were kept."""
        mine, theirs = _KEPT.search(line), _KEPT.search(other)
        if mine is None or theirs is None or mine[1] == theirs[1]:
            return line
        if self._histories is None:
            self._histories = (_histories(self._old), _histories(self._new))
        before, after = self._histories[0].get(a, _NO_HISTORY), self._histories[1].get(b, _NO_HISTORY)
        kept, now = int(mine[1]), int(theirs[1])
        low, high = 0, after[1]
        aligned = self._aligned(before, after)
        at = bisect_left(aligned, kept, key=lambda block: block.old_at)
        if at:  # the last block that begins before
            block = aligned[at - 1]
            low = high = block.new_at + min(block.size, kept - block.old_at)
        if not at or kept - block.old_at >= block.size:
            high = aligned[at].new_at if at < len(aligned) else after[1]
        return _KEPT.sub(b'"kept":%d' % now, line, count=1) if low <= now <= high else line


def _numbers(text: bytes) -> Iterator[int]:
    return map(int, filter(None, text.split(b",")))


def _listed(numbers: Iterator[int]) -> bytes:
    return b'"sourceEventSeqs":[%s]' % b",".join(b"%d" % number for number in numbers)


def _spans(lines: Sequence[bytes]) -> list[tuple[int, int]]:
    """First and last sequence number (exclusive) of the events that each line of a fixture stands for."""
    result = []
    at = 0
    for line in lines:
        count = 0 if line.startswith(b'{"type":"session"') else 1
        for start, field in _ROWS.items():
            if line.startswith(start):
                members = _at(parse_line(line), "data", field)
                count = len(members) if isinstance(members, list) else 1
        result.append((at, at + count))
        at += count
    return result


_History = tuple[list[bytes], int]
"""Messages, and how many of them are meant: calls that only add to a history share its list."""
_NO_HISTORY: _History = ([], 0)


def _histories(lines: Sequence[bytes]) -> dict[int, _History]:
    """By line of the requests surface: the messages of the previous call of its session and purpose."""
    result = {}
    last: dict[tuple[str, str], list[bytes]] = {}
    for number, line in enumerate(lines):
        value = parse_line(line)
        if not isinstance(value, Mapping) or not isinstance(value.get("messages"), list):
            continue
        key = (repr(value.get("session")), repr(value.get("purpose")))
        before = last.get(key, [])
        result[number] = (before, len(before))
        kept = value.get("kept")
        own = [_key(jsontext.dumps(message)) for message in value["messages"]]
        if before and kept == len(before):
            before += own
        else:
            last[key] = before[: kept if isinstance(kept, int) else 0] + own
    return result
