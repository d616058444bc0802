"""Properties of the session room: packing, logs as bytes, history, store."""

from __future__ import annotations

import contextlib
import errno
import os
import tempfile
from collections.abc import Callable, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Any
from unittest.mock import Mock, patch

from hypothesis import given
from hypothesis import strategies as st

from onetake import jsontext
from onetake.errors import UsageError
from onetake.model.types import Message
from onetake.session.events import Event, Header, make_event
from onetake.session.frames import compress, read_image
from onetake.session.history import History, derive_messages
from onetake.session.jsonl import encode_log, encode_records, parse_log, read_log, rewrite
from onetake.session.log import SessionLog
from onetake.session.packing import event_count, pack, row_of, unpack
from onetake.session.repair import close_interrupted
from onetake.session.store import FILE_NAMES, Compression, SessionStore
from onetake.session.writer import StoreError
from onetake.testing.invariants import packing as packs
from onetake.testing.invariants import session as holds
from onetake.testing.invariants import store as keeps
from onetake.testing.invariants.conversation import check_conversation
from onetake.testing.invariants.packing import exactly
from onetake.testing.strategies.logs import (
    Payload,
    batches,
    bystanders,
    changed_lines,
    conversations,
    event_lists,
    spelled_logs,
)
from tests.session.make import counting_log, header

Conversation = tuple[Header, list[Event]]


@given(event_lists(holes=True))
def test_packing_loses_nothing(events: list[Event]) -> None:
    packs.check_lossless(pack, unpack, events)
    assert sum(map(event_count, pack(events))) == len(events)


@given(event_lists(holes=True))
def test_runs_are_maximal_and_long_enough(events: list[Event]) -> None:
    packs.check_packs(pack, events)


@given(changed_lines())
def test_a_changed_row_is_refused_or_says_what_it_says(line: bytes) -> None:
    packs.check_strict(lambda line: read_log(log_of([line]), "log").events, row_of, line, UsageError)


@given(spelled_logs())
def test_packing_the_bytes_of_a_log_loses_none(lines: list[bytes]) -> None:
    """Envelopes in place, or as a projection."""
    for bare in (False, True):
        packs.check_rewriting(rewritten(True, bare), rewritten(False, bare), log_of(lines), UsageError)


def log_of(lines: list[bytes]) -> bytes:
    """Return a log of these lines behind a header."""
    return b"".join(line + b"\n" for line in [jsontext.dumps(header()), *lines])


def rewritten(packed: bool, bare: bool) -> Callable[[bytes], bytes]:
    """Return what rewrites the bytes of a log."""
    return lambda raw: rewrite(read_log(raw, "log"), packed=packed, project=bare)


@given(event_lists(), st.booleans(), st.booleans())
def test_a_written_log_reads_back(events: list[Event], packed: bool, squeezed: bool) -> None:
    """As the same events, plain or compressed, and rewriting it in its own form changes no byte."""
    raw = encode_log(header(), events, packed=packed)
    log = read_log(compress(raw) if squeezed else raw, "log")
    assert exactly(log.header) == exactly(header())
    assert [exactly(event) for event in log.events] == [exactly(joined(event)) for event in events]
    assert rewrite(log, packed=packed) == raw


def joined(value: Any) -> Any:
    """Return `value` with surrogate halves re-paired, as JSON text unites them, last of equal keys kept."""
    if isinstance(value, str):
        return value.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")
    if isinstance(value, list):
        return [joined(item) for item in value]
    if isinstance(value, dict):
        return {joined(key): joined(item) for key, item in value.items()}
    return value


@given(event_lists())
def test_unpack_then_pack_gives_a_projected_log_back(events: list[Event]) -> None:
    """Whatever the records are; the same for the bytes of a store's batches, which split runs."""
    raw = encode_log(header(), [{**event, "time": 0} for event in events], project=True)
    unpacked = rewrite(read_log(raw, "log"), packed=False)
    assert rewrite(read_log(unpacked, "log"), packed=True, project=True) == raw
    batches = b"".join(encode_records(events[at : at + 2]) for at in range(0, len(events), 2))
    split = encode_log(header(), []) + batches
    assert rewrite(read_log(split, "log"), packed=True) == encode_log(header(), events)


@given(conversations(), st.integers(0, 99))
def test_history_is_derived_from_the_log_alone(conversation: Conversation, place: int) -> None:
    _, events = conversation
    check_conversation(events)
    holds.check_derivation(derive_messages, History, events)
    holds.check_seeded(derive_messages, continued, events, place % (len(events) + 1))
    for derive in (derive_messages, lambda events: continued(events, [])):
        holds.check_no_alias(derive, events)


def continued(
    seed: Sequence[Event], events: Sequence[Event], kind: type[SessionLog] = SessionLog
) -> list[Message]:
    """Return the history of a log that begins with a seed, was asked for it, and goes on."""
    log = kind(header(), seed)
    log.messages()
    for event in events:
        log.append(event["type"], event["data"], surface_op=event.get("surfaceOp"))
    return log.messages()


@given(conversations(), st.lists(st.tuples(st.integers(0, 99), bystanders()), max_size=4))
def test_what_is_no_message_changes_no_history(
    conversation: Conversation, others: list[tuple[int, Event]]
) -> None:
    holds.check_independence(derive_messages, conversation[1], others)


@given(conversations(), st.booleans(), st.booleans(), st.integers(1, 9))
def test_a_stored_log_derives_the_same_history(
    conversation: Conversation, packed: bool, squeezed: bool, batch: int
) -> None:
    head, _ = conversation

    def save(events: Sequence[Event]) -> bytes:
        cut = [events[at : at + batch] for at in range(0, len(events), batch)]
        parts = [encode_log(head, []), *(encode_records(each, packed=packed) for each in cut)]
        return b"".join(map(compress, parts)) if squeezed else b"".join(parts)

    holds.check_saved(derive_messages, conversation[1], save, lambda raw: read_log(raw, "log").events)


@given(st.lists(st.booleans(), max_size=8))
def test_numbers_are_given_once_whoever_fails_to_take_the_event(fails: list[bool]) -> None:
    check_numbers(SessionLog, fails)


def check_numbers(kind: type[SessionLog], fails: list[bool]) -> None:
    """Append events while somebody who watches fails at some of them."""
    log = kind(header())
    failing = iter(fails)

    def watch(event: Event) -> None:
        if next(failing):
            raise OSError("disk full")

    log.subscribe(watch)
    for _ in fails:
        try:
            log.append("x", None)
        except OSError:
            continue
    holds.check_seqs(log.events)


TURN_EVENTS = [
    "turn/start",
    "turn/end",
    "step/start",
    "step/end",
    "tool/call",
    "tool/result",
    "assistant/message",
]


@given(st.lists(st.tuples(st.sampled_from(TURN_EVENTS), st.integers(1, 3)), max_size=12))
def test_a_repaired_log_needs_no_repair(steps: list[tuple[str, int]]) -> None:
    """Closing is complete, whatever order of events the process died in."""
    log = counting_log()
    for kind, number in steps:
        call = f"c{number}"
        block = {"type": "tool-call", "id": call}
        message = {"content": [block], "source": {"kind": "tool", "callId": call}}
        log.append(kind, {"turn": number, "step": 1, "callId": call, "message": message})
    for closing in close_interrupted(log.events):
        log.append(closing.type, closing.data, surface_op=closing.surface_op)
    assert close_interrupted(log.events) == []


def load(raw: bytes) -> keeps.Loaded:
    """Read the bytes of a store."""
    image = read_image(raw, "log")
    return keeps.Loaded(parse_log(image, "log").events, image.torn.size if image.torn else 0)


def full(fd: int, data: Any, offset: int) -> int:
    """Write half and fail."""
    _pwrite(fd, data[: len(data) // 2], offset)
    raise OSError(errno.ENOSPC, "No space left on device")


_pwrite = os.pwrite
BROKEN = Mock(side_effect=OSError(errno.EIO, "Input/output error"))
FAILURES = {
    "": {},
    "full": {"pwrite": full},
    "full, and stuck": {"pwrite": full, "ftruncate": BROKEN},
    "not synced": {"fsync": BROKEN},
}
"""What a disk may do to a flush."""


def written(
    appended: Sequence[Sequence[Payload]],
    squeezed: bool,
    fails: Sequence[str] = (),
    kind: type[SessionStore] = SessionStore,
) -> keeps.Written:
    """Store events batch by batch; each flush fails as said, and is tried again."""
    acknowledged: list[tuple[int, int]] = []
    with tempfile.TemporaryDirectory() as root, patch.object(os, "fsync"):  # nobody pulls the plug here
        log = counting_log()
        writer = kind(Path(root), compression=form(squeezed), project="p").open(log)
        for batch, failure in zip_longest(appended, fails[: len(appended)], fillvalue=""):
            for type_, data, more in batch:
                log.append(type_, data, surface_op=more.get("surfaceOp"))
            if failure:
                with patch.multiple(os, **FAILURES[failure]), contextlib.suppress(StoreError):
                    writer.flush_now()
            writer.flush_now()
            raw = writer.path.read_bytes() if writer.path.exists() else b""
            acknowledged.append((len(raw), log.next_seq))
        writer.abandon()
    lines = frozenset(at + 1 for at, byte in enumerate(raw) if byte == ord("\n"))
    head = len(compress(jsontext.dumps(log.header) + b"\n"))
    ends = frozenset({head, *(size for size, _ in acknowledged)})
    events = [joined(event) for event in log.events]
    return keeps.Written(raw, events, acknowledged, ends if squeezed else lines)


def form(squeezed: bool) -> Compression:
    """Return the form of a store."""
    return "zstd" if squeezed else "none"


@given(batches(), st.booleans(), st.lists(st.sampled_from(sorted(FAILURES)), max_size=4))
def test_a_store_holds_everything_that_was_flushed(
    appended: list[list[Payload]], squeezed: bool, fails: list[str]
) -> None:
    """Also when the disk failed in between."""
    keeps.check_whole(load, written(appended, squeezed, fails))


@given(batches(), st.booleans(), st.data())
def test_a_store_cut_anywhere_keeps_what_was_acknowledged(
    appended: list[list[Payload]], squeezed: bool, data: st.DataObject
) -> None:
    log = written(appended, squeezed)
    cut = data.draw(st.integers(0, len(log.raw)))
    keeps.check_cut(load, log, cut, UsageError)
    if cut >= log.acknowledged[0][0]:
        live = read_log(log.raw[:cut], "log", live=True)
        assert live.events == load(log.raw[:cut]).events and live.flaw is None


@given(batches(), st.booleans(), st.data())
def test_a_flipped_bit_is_never_silently_wrong(
    appended: list[list[Payload]], squeezed: bool, data: st.DataObject
) -> None:
    log = written(appended, squeezed)
    at = data.draw(st.integers(0, len(log.raw) - 1))
    check = keeps.check_flip if squeezed else keeps.check_flip_in_lines
    check(load, log, at, data.draw(st.integers(0, 7)), UsageError)


@given(conversations(), st.booleans(), st.integers(1, 9), st.data())
def test_a_store_cut_anywhere_goes_on(
    conversation: Conversation, squeezed: bool, batch: int, data: st.DataObject
) -> None:
    """With a clean log, what was read before and what is new; the torn end is kept beside it."""
    log = written(in_batches(conversation, batch), squeezed)
    cut = data.draw(st.integers(log.acknowledged[0][0], len(log.raw)))
    keeps.check_continued(lambda raw: resumed(raw, squeezed), load, log, cut)


def in_batches(conversation: Conversation, size: int) -> list[list[Payload]]:
    """Return the events of a conversation as they are appended between flushes."""
    payloads = [(event["type"], event["data"], event) for event in conversation[1]]
    return [payloads[at : at + size] for at in range(0, len(payloads), size)]


def resumed(raw: bytes, squeezed: bool) -> keeps.Continued:
    """Resume a stored log, append to it and close it."""
    with tempfile.TemporaryDirectory() as root, patch.object(os, "fsync"):
        path = Path(root, FILE_NAMES[form(squeezed)])
        path.write_bytes(raw)
        found = SessionStore(Path(root), project="p").resume(path)
        new = found.log.append("turn/start", {"turn": 9})
        found.writer.flush_now()
        found.writer.abandon()
        aside = found.torn_copy.read_bytes() if found.torn_copy else b""
        return keeps.Continued(path.read_bytes(), [*found.repaired, new], aside)


@given(batches(), st.booleans(), st.binary(max_size=40) | changed_lines())
def test_live_reading_never_raises_behind_the_header(
    appended: list[list[Payload]], squeezed: bool, rest: bytes
) -> None:
    """Whatever bytes follow the first batch."""
    log = written(appended, squeezed)
    size, count = log.acknowledged[0]
    live = read_log(log.raw[:size] + rest, "log", live=True)
    assert live.events[:count] == log.events[:count]


def test_make_event_leaves_out_what_is_not_given() -> None:
    """An absent surfaceOp is no key at all."""
    assert make_event("x", 0, 0, None) == {"type": "x", "seq": 0, "time": 0, "data": None}
