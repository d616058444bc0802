"""Logs, packers and stores with bugs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from unittest.mock import patch

from hypothesis import given
from hypothesis import strategies as st

from onetake.errors import UsageError
from onetake.session import packing
from onetake.session.events import Event, make_event
from onetake.session.frames import read_image
from onetake.session.history import History, derive_messages
from onetake.session.jsonl import read_log
from onetake.session.log import SessionLog
from onetake.session.store import SessionStore
from onetake.session.writer import SessionWriter
from onetake.testing.invariants import packing as packs
from onetake.testing.invariants import session as holds
from onetake.testing.invariants import store as keeps
from onetake.testing.strategies.logs import batches, changed_rows, conversations, event_lists
from tests.faults.fault import Fault
from tests.session.test_properties import check_numbers, load, written


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
    packs.check_packs(across_steps, [step(event, place) for place, event in enumerate(events)])


def step(event: Event, place: int) -> Event:
    """The same event, in another step from the fourth on."""
    data = event["data"]
    if place < 3 or not isinstance(data, dict) or data.get("step") != 1:
        return event
    return {**event, "data": {**data, "step": 2}}


def clipped(run: Sequence[Event]) -> Any:
    row = packing.row_of(run)
    return {**row, "data": {**row["data"], "dt": [max(0, gap) for gap in row["data"]["dt"]]}}


@given(event_lists())
def clips_gaps(events: list[Event]) -> None:
    def pack(events: Sequence[Event]) -> list[Any]:
        return [clipped(events[a:b]) if b - a >= 3 else events[a] for a, b in packing.spans(events)]

    packs.check_lossless(pack, packing.unpack, events)


def lenient(records: Any) -> list[Event]:
    """Reads what it knows of a row."""
    known = {"turn", "step", "index", "dt", "texts", "id", "name", "args"}
    return packing.unpack(
        [
            {**record, "data": {key: value for key, value in record["data"].items() if key in known}}
            if isinstance(record.get("data"), dict)
            else record
            for record in records
        ]
    )


@given(changed_rows())
def reads_rows_leniently(row: dict[str, Any]) -> None:
    packs.check_strict(lenient, packing.row_of, row, packing.PackingError)


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


@given(batches(), st.booleans(), st.lists(st.booleans(), max_size=4))
def flush_loses_batch(appended: Any, squeezed: bool, fails: list[bool]) -> None:
    keeps.check_whole(load, written(appended, squeezed, [False, *fails], LossyStore))


def silent(raw: bytes) -> keeps.Loaded:
    """Takes a torn end for the end."""
    image = read_image(raw, "log")
    return keeps.Loaded(read_log(raw[: image.durable], "log").events, 0)


@given(batches(), st.booleans(), st.data())
def says_nothing_of_a_torn_end(appended: Any, squeezed: bool, data: st.DataObject) -> None:
    log = written(appended, squeezed)
    keeps.check_cut(silent, log, data.draw(st.integers(log.acknowledged[0][0], len(log.raw))))


FAULTS = [
    Fault("seq-reused", "a number is given twice after an append failed", reuses_seq),
    Fault("packs-across-steps", "a run goes on into the next step", packs_across_steps),
    Fault("clips-gaps", "a clock that was set back loses its negative gap", clips_gaps),
    Fault("lenient-rows", "an unknown key of a row is read over, and lost", reads_rows_leniently),
    Fault("history-aliases", "the history hands out the log's own messages", history_aliases),
    Fault("history-only-appends", "the growing history does not know of replacements", history_only_appends),
    Fault("splitlines", "U+2028 and its like end a line", splits_lines_anywhere),
    Fault("flush-loses-batch", "what could not be written counts as written", flush_loses_batch),
    Fault("torn-end-unsaid", "an unfinished write is dropped without a word", says_nothing_of_a_torn_end),
]
