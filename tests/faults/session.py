"""Logs, packers and stores with bugs."""

from __future__ import annotations

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
from onetake.session.events import Event, make_event
from onetake.session.history import History, derive_messages
from onetake.session.jsonl import read_log
from onetake.session.log import SessionLog
from onetake.session.store import SessionStore
from onetake.session.writer import SessionWriter
from onetake.testing.invariants import packing as packs
from onetake.testing.invariants import session as holds
from onetake.testing.invariants import store as keeps
from onetake.testing.strategies.logs import batches, changed_lines, conversations, event_lists
from tests.faults.fault import Fault
from tests.session.test_properties import FAILURES, check_numbers, load, written


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
    Fault("history-aliases", "the history hands out the log's own messages", history_aliases),
    Fault("history-only-appends", "the growing history does not know of replacements", history_only_appends),
    Fault("splitlines", "U+2028 and its like end a line", splits_lines_anywhere),
    Fault("flush-loses-batch", "what could not be written counts as written", flush_loses_batch),
    Fault("half-a-write-stays", "the next batch goes behind the half of a failed one", half_a_write_stays),
    Fault("no-checksums", "a flipped bit in a text is read as another text", has_no_checksums),
    Fault("torn-end-unsaid", "an unfinished write is dropped without a word", says_nothing_of_a_torn_end),
]
