"""Properties of the session room: packing, logs as bytes, history, store."""

from __future__ import annotations

import copy
import os
import tempfile
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any
from unittest.mock import patch

from hypothesis import given
from hypothesis import strategies as st

from onetake.errors import UsageError
from onetake.session.events import Event, make_event
from onetake.session.frames import compress, read_image
from onetake.session.history import History, derive_messages
from onetake.session.jsonl import encode_log, encode_records, read_log, rewrite
from onetake.session.packing import MIN_RUN, ROW_TYPES, SAFE, event_count, pack, spans, unpack
from onetake.session.repair import close_interrupted
from onetake.session.store import SessionStore
from tests.session.make import counting_log, header, user

texts = st.text(st.characters(codec=None, exclude_categories=()), max_size=4)
small = st.integers(0, 1)
times = st.integers(-3, 9) | st.sampled_from([SAFE, -SAFE, SAFE + 1, 0.5, None, True])
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
)


@st.composite
def chunks(draw: st.DrawFn) -> dict[str, Any]:
    """Draw a chunk that mostly qualifies for packing."""
    kind = draw(
        st.sampled_from(["text-delta", "text-delta", "reasoning-delta", "tool-call-delta", "block-end"])
    )
    chunk: dict[str, Any] = {"type": kind, "index": draw(small)}
    if kind == "tool-call-delta":
        chunk["id"] = draw(st.sampled_from("ab"))
        if draw(st.booleans()):
            chunk["name"] = draw(st.sampled_from("ab"))
        chunk["argumentsDelta"] = draw(texts)
    elif kind != "block-end":
        chunk["text"] = draw(texts)
    return chunk


@st.composite
def payloads(draw: st.DrawFn) -> tuple[str, Any, dict[str, Any]]:
    """Draw type, data and further keys of an event."""
    if draw(st.integers(0, 9)) == 0:
        extra = draw(st.dictionaries(texts, json_values, max_size=1))
        extra = {key: value for key, value in extra.items() if key not in ("type", "seq", "time", "data")}
        kind = draw(texts)
        return (kind if kind not in ROW_TYPES else "x"), draw(json_values), extra
    odd = draw(st.integers(0, 9)) == 0
    data = {"turn": draw(small), "step": 1, "chunk": draw(chunks())}
    if odd:
        data[draw(texts)] = draw(json_values)
    return "assistant/chunk", data, {}


@st.composite
def event_lists(draw: st.DrawFn) -> list[Event]:
    """Draw the events of a log, with long runs and all that ends them."""
    events: list[Event] = []
    for kind, data, extra in draw(st.lists(payloads(), max_size=6)):
        for _ in range(draw(st.integers(1, 5))):
            time = draw(times)
            events.append(
                {"type": kind, "seq": len(events), "time": time, "data": copy.deepcopy(data), **extra}
            )
    return events


def strict(value: Any) -> Any:
    """Return something equal only for values of the same types and key order."""
    if isinstance(value, dict):
        return ("object", [(key, strict(item)) for key, item in value.items()])
    if isinstance(value, list):
        return ("array", [strict(item) for item in value])
    return (type(value), repr(value))


@given(event_lists())
def test_packing_loses_nothing(events: list[Event]) -> None:
    """Unpacking gives equal events, types included; packing again gives the same records."""
    before = copy.deepcopy(events)
    records = pack(events)
    assert events == before, "packing must not change what it packs"
    restored = unpack(records)
    assert strict(restored) == strict(events)
    assert pack(restored) == records
    assert sum(map(event_count, records)) == len(events)


@given(event_lists())
def test_runs_are_maximal_and_long_enough(events: list[Event]) -> None:
    """Spans partition the log; a row holds at least three; no two neighbouring spans would pack as one."""
    cut = list(spans(events))
    assert [at for start, stop in cut for at in range(start, stop)] == list(range(len(events)))
    assert all(stop - start == 1 or stop - start >= MIN_RUN for start, stop in cut)
    for (start, middle), (_, stop) in pairwise(cut):
        assert [(start, stop)] != list(spans(events[start:stop])) or stop - start < MIN_RUN, (
            start,
            middle,
            stop,
        )


@given(event_lists(), st.booleans(), st.booleans())
def test_a_written_log_reads_back(events: list[Event], packed: bool, squeezed: bool) -> None:
    """As the same events, plain or compressed, and rewriting it in its own form changes no byte."""
    raw = encode_log(header(), events, packed=packed)
    log = read_log(compress(raw) if squeezed else raw, "log")
    assert strict(log.header) == strict(header())
    assert [strict(event) for event in log.events] == [strict(joined(event)) for event in events]
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


@given(st.lists(st.tuples(st.sampled_from("aaar"), st.integers(0, 30), st.integers(0, 30)), max_size=12))
def test_history_is_incremental_and_does_not_alias(steps: Sequence[tuple[str, int, int]]) -> None:
    """Feeding one by one is deriving at once; a replacement shadows exactly its range."""
    log = counting_log()
    model: list[int] = []
    for kind, left, right in steps:
        op: Any = "append"
        if kind == "r" and model:
            first, last = sorted((left % len(model), right % len(model)))
            op = {"op": "replace", "start": model[first], "end": model[last]}
            model[first : last + 1] = [log.next_seq]
        else:
            model.append(log.next_seq)
        log.append("user/message", user(str(log.next_seq)), surface_op=op)
        assert [message["content"][0]["text"] for message in log.messages()] == [str(seq) for seq in model]
    assert log.messages() == derive_messages(log.events)
    assert History(log.events).seqs() == model
    before = copy.deepcopy(log.events)
    for message in log.messages():
        message["content"].clear()
    assert log.events == before


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


@st.composite
def stored_logs(draw: st.DrawFn) -> tuple[bytes, list[Event], list[tuple[int, int]], bool]:
    """Draw the bytes of a stored log, its events, and after each flush (bytes, events) acknowledged."""
    squeezed = draw(st.booleans())
    events: list[Event] = []
    acknowledged: list[tuple[int, int]] = []
    with tempfile.TemporaryDirectory() as root, patch.object(os, "fsync"):  # nobody pulls the plug here
        store = SessionStore(Path(root), compression="zstd" if squeezed else "none", project="p")
        log = counting_log()
        writer = store.open(log)
        for size in draw(st.lists(st.integers(1, 5), min_size=1, max_size=4)):
            for _ in range(size):
                kind, data, _ = draw(payloads())
                log.append(kind, data)
            writer.flush_now()
            acknowledged.append((writer.path.stat().st_size, log.next_seq))
        raw = writer.path.read_bytes()
        writer.abandon()
        events = log.events
    return raw, [joined(event) for event in events], acknowledged, squeezed


@given(stored_logs(), st.data())
def test_a_store_cut_anywhere_keeps_what_was_acknowledged(
    stored: tuple[bytes, list[Event], list[tuple[int, int]], bool], data: st.DataObject
) -> None:
    """For every cut behind the publication: all whole batches are there, the tail is exactly the rest."""
    raw, events, acknowledged, _ = stored
    cut = data.draw(st.integers(acknowledged[0][0], len(raw)))
    image = read_image(raw[:cut], "log")
    log = read_log(raw[: image.durable], "log")
    assert len(log.events) >= max(count for size, count in acknowledged if size <= cut)
    assert log.events == events[: len(log.events)]
    assert image.durable + (image.torn.size if image.torn else 0) == cut
    live = read_log(raw[:cut], "log", live=True)
    assert live.events == log.events and live.flaw is None


@given(stored_logs(), st.data())
def test_a_flipped_bit_is_never_silently_wrong(
    stored: tuple[bytes, list[Event], list[tuple[int, int]], bool], data: st.DataObject
) -> None:
    """A checksummed log is refused, or gives all events, or reports a tail behind a true beginning."""
    raw, events, _, squeezed = stored
    raw = raw if squeezed else compress(raw)
    at = data.draw(st.integers(0, len(raw) - 1))
    flipped = raw[:at] + bytes([raw[at] ^ (1 << data.draw(st.integers(0, 7)))]) + raw[at + 1 :]
    try:
        image = read_image(flipped, "log")
        log = read_log(flipped[: image.durable], "log")
    except UsageError:
        return
    assert log.events == events[: len(log.events)]
    assert image.torn is not None or log.events == events


@given(stored_logs(), st.data())
def test_live_reading_never_raises_behind_the_header(
    stored: tuple[bytes, list[Event], list[tuple[int, int]], bool], data: st.DataObject
) -> None:
    """Whatever bytes follow the first batch."""
    raw, events, acknowledged, _ = stored
    size, count = acknowledged[0]
    log = read_log(raw[:size] + data.draw(st.binary(max_size=40)), "log", live=True)
    assert log.events[:count] == events[:count]


def test_make_event_leaves_out_what_is_not_given() -> None:
    """An absent surfaceOp is no key at all."""
    assert make_event("x", 0, 0, None) == {"type": "x", "seq": 0, "time": 0, "data": None}
