"""Logs, packers and stores with bugs."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Sequence
from typing import Any
from unittest.mock import patch

from hypothesis import given
from hypothesis import strategies as st

from onetake.errors import UsageError
from onetake.session import frames, packing
from onetake.session.appendfile import AppendFile
from onetake.session.events import SURFACE_TYPES, Event, make_event
from onetake.session.history import History, derive_messages
from onetake.session.jsonl import encode_log, read_log
from onetake.session.log import SessionLog
from onetake.session.store import SessionStore
from onetake.session.writer import SessionWriter
from onetake.testing.invariants import packing as packs
from onetake.testing.invariants import session as holds
from onetake.testing.invariants import store as keeps
from onetake.testing.strategies.logs import (
    batches,
    bystanders,
    changed_lines,
    conversations,
    event_lists,
    spelled_logs,
)
from tests.faults.fault import Fault
from tests.session.test_properties import (
    FAILURES,
    check_numbers,
    continued,
    in_batches,
    load,
    log_of,
    resumed,
    rewritten,
    written,
)


class ReusesSeq(SessionLog):
    """Counts an event only when everybody has taken it, and keeps it all the same."""

    _next = 0

    def append(self, type_: str, data: Any, **more: Any) -> Event:
        event = make_event(type_, self._next, 0, data)
        self.events.append(event)
        for tell in self._subscribers:
            tell(event)
        self._next += 1
        return event


@given(st.lists(st.booleans(), max_size=8))
def reuses_seq(fails: list[bool]) -> None:
    check_numbers(ReusesSeq, fails)


def across_steps(events: Sequence[Event]) -> list[Any]:
    identity = packing._identity

    def without_step(event: Event) -> Any:
        found = identity(event)
        return None if found is None else (found[0], found[1], *found[3:])

    with patch.object(packing, "_identity", without_step):
        return packing.pack(events)


@given(event_lists())
def packs_across_steps(events: list[Event]) -> None:
    packs.check_packs(across_steps, events)


def clipped(run: Sequence[Event]) -> Any:
    row = packing.row_of(run)
    return {**row, "data": {**row["data"], "dt": [max(0, gap) for gap in row["data"]["dt"]]}}


@given(event_lists())
def clips_gaps(events: list[Event]) -> None:
    def pack(events: Sequence[Event]) -> list[Any]:
        return [clipped(events[a:b]) if b - a >= 3 else events[a] for a, b in packing.spans(events)]

    packs.check_lossless(pack, packing.unpack, events)


def lenient(line: bytes) -> list[Event]:
    """Reads what it knows of a row, as any decoder of JSON gives it."""
    known = {"turn", "step", "index", "dt", "texts", "id", "name", "args"}
    try:
        row = json.loads(line)
        row["data"] = {key: value for key, value in row["data"].items() if key in known}
        return packing.unpack([row])
    except (ValueError, LookupError, TypeError, AttributeError):
        raise UsageError("line 2") from None


@given(changed_lines())
def reads_rows_leniently(line: bytes) -> None:
    packs.check_strict(lenient, packing.row_of, line, UsageError)


def encoded_anew(raw: bytes) -> bytes:
    log = read_log(raw, "log")
    return encode_log(log.header, log.events)


@given(spelled_logs())
def packs_by_encoding_anew(lines: list[bytes]) -> None:
    packs.check_rewriting(encoded_anew, rewritten(False, False), log_of(lines), UsageError)


def aliasing(events: Sequence[Event]) -> list[Any]:
    shared = {message["id"]: message for message in map(held, events) if message is not None}
    return [shared[message["id"]] for message in derive_messages(events)]


def held(event: Event) -> Any:
    data = event["data"]
    return None if "surfaceOp" not in event else data.get("message", data)


@given(conversations())
def history_aliases(conversation: Any) -> None:
    holds.check_no_alias(aliasing, conversation[1])


class OnlyAppends(History):
    """Takes a replacement for one more message."""

    def feed(self, event: Event) -> None:
        super().feed({**event, "surfaceOp": "append"} if "surfaceOp" in event else event)


@given(conversations())
def history_only_appends(conversation: Any) -> None:
    holds.check_derivation(derive_messages, OnlyAppends, conversation[1])


class SkipsSeed(SessionLog):
    """Derives from what was appended."""

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self._derived = len(self.events)


@given(conversations(), st.integers(0, 99))
def seed_is_not_derived(conversation: Any, place: int) -> None:
    events = conversation[1]
    at = place % (len(events) + 1)
    holds.check_seeded(derive_messages, lambda a, b: continued(a, b, SkipsSeed), events, at)


def seeing_everything(events: Sequence[Event]) -> list[Any]:
    """Takes everything that is appended to the surface for a message."""
    return derive_messages(
        [{**event, "type": "user/message"} if is_other(event) else event for event in events]
    )


def is_other(event: Event) -> bool:
    surface = event["type"] in SURFACE_TYPES or "surfaceOp" not in event
    return not surface and isinstance(event["data"], dict)


@given(conversations(), st.lists(st.tuples(st.integers(0, 99), bystanders()), max_size=4))
def everything_is_a_message(conversation: Any, others: Any) -> None:
    holds.check_independence(seeing_everything, conversation[1], others)


@given(conversations())
def half_a_pair_is_stored_as_a_mark(conversation: Any) -> None:
    def save(events: Sequence[Event]) -> bytes:
        return encode_log(conversation[0], events).replace(rb"\ud83d", b"?")

    holds.check_saved(derive_messages, conversation[1], save, lambda raw: read_log(raw, "log").events)


def split_anywhere(raw: bytes) -> keeps.Loaded:
    """Takes every line end of Unicode for one."""
    lines = raw.decode("utf-8", "surrogatepass").splitlines()
    try:
        log = read_log(b"".join(line.encode("utf-8", "surrogatepass") + b"\n" for line in lines), "log")
    except UsageError:
        return keeps.Loaded([], 0)
    return keeps.Loaded(log.events, 0)


@given(batches())
def splits_lines_anywhere(appended: Any) -> None:
    keeps.check_whole(split_anywhere, written(appended, False))


class LosesBatch(SessionWriter):
    """Counts a batch as written before it is."""

    def _write(self, batch: list[Event]) -> None:
        written_before = self._written
        try:
            super()._write(batch)
        finally:
            self._written = written_before + len(batch)


class LossyStore(SessionStore):
    def open(self, log: SessionLog) -> SessionWriter:
        return LosesBatch(log, super().open(log).path)


FAILED_FLUSHES = st.lists(st.sampled_from(sorted(FAILURES)), max_size=4)


@given(batches(), st.booleans(), FAILED_FLUSHES)
def flush_loses_batch(appended: Any, squeezed: bool, fails: list[str]) -> None:
    keeps.check_whole(load, written(appended, squeezed, fails, LossyStore))


def goes_on_at_the_end(file: AppendFile) -> None:
    file.length = os.fstat(file._fd).st_size
    file._dirty = False


@given(batches(), st.booleans(), FAILED_FLUSHES)
def half_a_write_stays(appended: Any, squeezed: bool, fails: list[str]) -> None:
    with patch.object(AppendFile, "_truncate", goes_on_at_the_end):
        log = written(appended, squeezed, fails)
    keeps.check_whole(load, log)


def skipping(raw: bytes) -> keeps.Loaded:
    """Reads what it can."""
    head, *lines = raw.splitlines(keepends=True)
    readable = head
    for line in lines:
        with contextlib.suppress(UsageError):
            read_log(readable + line, "log")
            readable += line
    return load(readable)


@given(batches(), st.data())
def skips_broken_lines(appended: Any, data: st.DataObject) -> None:
    log = written(appended, False)
    at, bit = data.draw(st.integers(0, len(log.raw) - 1)), data.draw(st.integers(0, 7))
    keeps.check_flip_in_lines(skipping, log, at, bit, UsageError)


@given(conversations(), st.booleans(), st.integers(1, 9), st.data())
def goes_on_behind_a_torn_end(conversation: Any, squeezed: bool, batch: int, data: st.DataObject) -> None:
    log = written(in_batches(conversation, batch), squeezed)
    cut = data.draw(st.integers(log.acknowledged[0][0], len(log.raw)))
    with patch.object(AppendFile, "cut", lambda file, length: None):
        keeps.check_continued(lambda raw: resumed(raw, squeezed), load, log, cut)


def silent(raw: bytes) -> keeps.Loaded:
    """Takes a torn end for the end."""
    return keeps.Loaded(load(raw).events, 0)


@given(batches(), st.booleans(), st.data())
def says_nothing_of_a_torn_end(appended: Any, squeezed: bool, data: st.DataObject) -> None:
    log = written(appended, squeezed)
    keeps.check_cut(silent, log, data.draw(st.integers(0, len(log.raw))), UsageError)


def unchecked(lines: bytes) -> bytes:
    frame: bytes = frames._zstd().compress(lines)
    return frame


@given(batches(), st.data())
def has_no_checksums(appended: Any, data: st.DataObject) -> None:
    with patch.object(frames, "compress", unchecked):
        log = written(appended, True)
    at, bit = data.draw(st.integers(0, len(log.raw) - 1)), data.draw(st.integers(0, 7))
    keeps.check_flip(load, log, at, bit, UsageError)


FAULTS = [
    Fault("seq-reused", "a number is given twice after an append failed", reuses_seq),
    Fault("packs-across-steps", "a run goes on into the next step", packs_across_steps),
    Fault("clips-gaps", "a clock that was set back loses its negative gap", clips_gaps),
    Fault("lenient-rows", "what a row says twice, or in unknown keys, is read over", reads_rows_leniently),
    Fault(
        "encodes-anew",
        "packing decodes and encodes, and loses how a line was spelled",
        packs_by_encoding_anew,
    ),
    Fault("history-aliases", "the history hands out the log's own messages", history_aliases),
    Fault("history-only-appends", "the growing history does not know of replacements", history_only_appends),
    Fault("seed-not-derived", "a log that begins with a seed forgets its messages", seed_is_not_derived),
    Fault("all-are-messages", "an event of an unknown type gets into the history", everything_is_a_message),
    Fault("half-pairs-lost", "half a surrogate pair is stored as a mark", half_a_pair_is_stored_as_a_mark),
    Fault("splitlines", "U+2028 and its like end a line", splits_lines_anywhere),
    Fault("flush-loses-batch", "what could not be written counts as written", flush_loses_batch),
    Fault("half-a-write-stays", "the next batch goes behind the half of a failed one", half_a_write_stays),
    Fault("no-checksums", "a flipped bit in a text is read as another text", has_no_checksums),
    Fault("skips-broken-lines", "a line that does not read is left out", skips_broken_lines),
    Fault("appends-to-torn-end", "a log goes on behind its torn end", goes_on_behind_a_torn_end),
    Fault("torn-end-unsaid", "an unfinished write is dropped without a word", says_nothing_of_a_torn_end),
]
