"""Packed rows: one record for a run of consecutive delta chunks, without loss.

A model streams a few characters at a time, and every delta is an event of its own. The rules, in both
directions:

- A *run* is at least three consecutive events of the same kind, turn, step and index (for tool calls also the
  same id, and the same name or none), whose `seq` rises by 1 and whose time gaps are safe integers, counted
  from the event before and from the first (a projected row begins at time 0).
- An event takes part only with exactly the keys of a delta event, in the order of the format, and values of
  the right primitive types. Anything else stays as it came and ends the run. Fragments are never joined.
- A row stores `seq0`, `time0`, the gaps `dt` between its members (one fewer than members, possibly negative)
  and the fragments. Reading is strict: a row that breaks a rule is refused, with the reason.

Everything here is pure and works on decoded records. *Projected* records omit the envelope; reading then
counts: an absent `seq` is the number of events so far, an absent time is 0.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Sequence
from itertools import accumulate, pairwise
from typing import Any

from onetake.session.events import ASSISTANT_CHUNK, Event

Record = dict[str, Any]

MIN_RUN = 3
SAFE = 2**53 - 1
"""The largest integer that JavaScript, and so the format, counts exactly; the least is its negative."""

TEXT_ROW = "text-chunks"
REASONING_ROW = "reasoning-chunks"
TOOL_CALL_ROW = "tool-call-chunks"
ROW_TYPES = (TEXT_ROW, REASONING_ROW, TOOL_CALL_ROW)

_DELTA_OF = {TEXT_ROW: "text-delta", REASONING_ROW: "reasoning-delta", TOOL_CALL_ROW: "tool-call-delta"}
_ROW_OF = {delta: row for row, delta in _DELTA_OF.items()}
# The keys of a delta event. In another order it would come back from a row as other bytes than it was.
_EVENT_KEYS = ("type", "seq", "time", "data")
_DATA_KEYS = ("turn", "step", "chunk")
_TEXT_CHUNK_KEYS = ("type", "index", "text")
_TOOL_CHUNK_KEYS = (
    ("type", "index", "id", "argumentsDelta"),
    ("type", "index", "id", "name", "argumentsDelta"),
)
# The keys that a row may have, in the order in which they are written: the least first, the most last. In any
# other order a row would be read, and written as something else than it was.
_ROW_KEYS = (
    ("type", "data"),
    ("type", "seq0", "data"),
    ("type", "time0", "data"),
    ("type", "seq0", "time0", "data"),
)
_TEXT_KEYS = (("turn", "step", "index", "dt", "texts"),)
_TOOL_KEYS = (
    ("turn", "step", "index", "dt", "id", "args"),
    ("turn", "step", "index", "dt", "id", "name", "args"),
)


class PackingError(ValueError):
    """A record is not what the format allows; the text says which rule it breaks."""


# Packing ---------------------------------------------------------------------------------------------------


def pack(events: Sequence[Event]) -> list[Record]:
    """Return the records that store `events`: a row for every maximal run, every other event itself."""
    records: list[Record] = []
    for start, stop in spans(events):
        records.append(row_of(events[start:stop]) if stop - start >= MIN_RUN else events[start])
    return records


def spans(events: Sequence[Event], verbatim: Container[int] = ()) -> Iterator[tuple[int, int]]:
    """Cut `events` into maximal runs, as (start, stop); what does not pack is a span of one.

    `verbatim` holds indices of events that must not be packed whatever they look like.
    """
    start = 0
    run: tuple[Any, ...] | None = None
    last_seq = last_time = first_time = 0
    for at, event in enumerate(events):
        identity = None if at in verbatim else _identity(event)
        if identity is not None:
            seq, time = event["seq"], event["time"]
            goes_on = identity == run and seq == last_seq + 1
            if goes_on and abs(time - last_time) <= SAFE and abs(time - first_time) <= SAFE:
                last_seq, last_time = seq, time
                continue
            last_seq, last_time, first_time = seq, time, time
        yield from _span(start, at)
        start, run = at, identity
    yield from _span(start, len(events))


def row_of(run: Sequence[Event]) -> Record:
    """Return the row that stores `run`, which must be a run as `spans` finds them."""
    first = run[0]
    data = first["data"]
    chunk = data["chunk"]
    times = [event["time"] for event in run]
    row_data: dict[str, Any] = {
        "turn": data["turn"],
        "step": data["step"],
        "index": chunk["index"],
        "dt": [after - before for before, after in pairwise(times)],
    }
    if chunk["type"] == "tool-call-delta":
        row_data["id"] = chunk["id"]
        if "name" in chunk:
            row_data["name"] = chunk["name"]
        row_data["args"] = [event["data"]["chunk"]["argumentsDelta"] for event in run]
    else:
        row_data["texts"] = [event["data"]["chunk"]["text"] for event in run]
    return {"type": _ROW_OF[chunk["type"]], "seq0": first["seq"], "time0": first["time"], "data": row_data}


def _span(start: int, stop: int) -> Iterator[tuple[int, int]]:
    if stop - start >= MIN_RUN:
        yield start, stop
    else:
        for at in range(start, stop):
            yield at, at + 1


def _identity(event: Event) -> tuple[Any, ...] | None:
    """Return what all members of a run share, or None when the event cannot be a member."""
    # Written flat: this runs once for every event that is stored.
    if event.get("type") != ASSISTANT_CHUNK or tuple(event) != _EVENT_KEYS:
        return None
    seq, time, data = event["seq"], event["time"], event["data"]
    if type(seq) is not int or type(time) is not int or type(data) is not dict or tuple(data) != _DATA_KEYS:
        return None
    turn, step, chunk = data["turn"], data["step"], data["chunk"]
    if type(turn) is not int or type(step) is not int or type(chunk) is not dict:
        return None
    kind, index = chunk.get("type"), chunk.get("index")
    if type(index) is not int or not (0 <= seq <= SAFE and -SAFE <= time <= SAFE):
        return None
    if not (-SAFE <= turn <= SAFE and -SAFE <= step <= SAFE and -SAFE <= index <= SAFE):
        return None
    if kind == "text-delta" or kind == "reasoning-delta":
        if tuple(chunk) == _TEXT_CHUNK_KEYS and type(chunk["text"]) is str:
            return kind, turn, step, index
    elif kind == "tool-call-delta" and tuple(chunk) in _TOOL_CHUNK_KEYS:
        call, name = chunk["id"], chunk.get("name")
        is_named = name is None if len(chunk) == 4 else type(name) is str
        if is_named and type(call) is str and type(chunk["argumentsDelta"]) is str:
            return kind, turn, step, index, call, name
    return None


def _all_strings(values: list[Any]) -> bool:
    try:
        "".join(values)  # the fastest look at every type
    except TypeError:
        return False
    return True


def _safe(value: Any) -> bool:
    return type(value) is int and -SAFE <= value <= SAFE


# Unpacking -------------------------------------------------------------------------------------------------


def unpack(records: Iterable[Record]) -> list[Event]:
    """Return the events that `records` store, with every envelope filled in.

    Raises `PackingError`, naming the record by its position, for a row that breaks a rule.
    """
    checked: list[Record] = []
    seq = 0
    for at, record in enumerate(records):
        try:
            seq += check_row(record, seq) if record.get("type") in ROW_TYPES else 1
        except PackingError as error:
            raise PackingError(f"record {at}: {error}") from None
        checked.append(record)
    return expand(checked)


def expand(records: Iterable[Record]) -> list[Event]:
    """Do what `unpack` does with records whose rows `check_row` has accepted."""
    events: list[Event] = []
    for record in records:
        if record["type"] in ROW_TYPES:
            events += members(record, len(events))
        elif "seq" in record and "time" in record:
            events.append(record)
        else:
            events.append({"type": record["type"], "seq": len(events), "time": 0, **record})
    return events


def event_count(record: Record) -> int:
    """Return how many events a record stores that `unpack` would accept."""
    if record["type"] not in ROW_TYPES:
        return 1
    return len(record["data"]["args" if record["type"] == TOOL_CALL_ROW else "texts"])


def members(row: Record, seq: int) -> list[Event]:
    """Return the events of a row that `check_row` accepted; `seq` counts the events before it."""
    data = row["data"]
    seq = row.get("seq0", seq)
    times = accumulate(data["dt"], initial=row.get("time0", 0))
    turn, step, index = data["turn"], data["step"], data["index"]
    kind = _DELTA_OF[row["type"]]
    if "texts" in data:
        return [
            {
                "type": ASSISTANT_CHUNK,
                "seq": at,
                "time": time,
                "data": {"turn": turn, "step": step, "chunk": {"type": kind, "index": index, "text": text}},
            }
            for at, (time, text) in enumerate(zip(times, data["texts"], strict=True), seq)
        ]
    head = {"type": kind, "index": index, "id": data["id"]}
    if "name" in data:
        head["name"] = data["name"]
    return [
        {
            "type": ASSISTANT_CHUNK,
            "seq": at,
            "time": time,
            "data": {"turn": turn, "step": step, "chunk": {**head, "argumentsDelta": text}},
        }
        for at, (time, text) in enumerate(zip(times, data["args"], strict=True), seq)
    ]


def check_row(row: Record, seq: int) -> int:
    """Return how many events `row` stores; `seq` counts the events before it.

    Raises `PackingError` with the broken rule.
    """
    kind, data = row["type"], row.get("data")
    if type(data) is not dict:
        raise PackingError(f"{kind}: data is not an object")
    tool = kind == TOOL_CALL_ROW
    _check_keys(kind, "row", tuple(row), _ROW_KEYS)
    _check_keys(kind, "data", tuple(data), _TOOL_KEYS if tool else _TEXT_KEYS)
    for key in ("turn", "step", "index"):
        if not _safe(data[key]):
            raise PackingError(f"{kind}: data.{key} is {data[key]!r}, not a safe integer")
    if tool and not all(type(data[key]) is str for key in ("id", "name") if key in data):
        raise PackingError(f"{kind}: data.id or data.name is not a string")
    gaps, fragments = data["dt"], data["args" if tool else "texts"]
    if type(fragments) is not list or not fragments or not _all_strings(fragments):
        raise PackingError(f"{kind}: the fragments are not a list of at least one string")
    if type(gaps) is not list or not set(map(type, gaps)) <= {int}:
        raise PackingError(f"{kind}: data.dt is not a list of integers")
    if len(gaps) != len(fragments) - 1:
        raise PackingError(
            f"{kind}: {len(fragments)} fragments need {len(fragments) - 1} gaps in dt, not {len(gaps)}"
        )
    _check_envelope(row, seq, gaps)
    return len(fragments)


def _check_envelope(row: Record, seq: int, gaps: list[int]) -> None:
    seq0, time0 = row.get("seq0", seq), row.get("time0", 0)
    if not _safe(seq0) or not 0 <= seq0 <= SAFE - len(gaps):
        raise PackingError(f"{row['type']}: seq0 is {seq0!r}, not a sequence number")
    if not _safe(time0):
        raise PackingError(f"{row['type']}: time0 is {time0!r}, not a safe integer")
    if not gaps:
        return
    widest = max(max(gaps), -min(gaps))
    if widest > SAFE:
        raise PackingError(f"{row['type']}: a gap in data.dt is not a safe integer")
    if abs(time0) + widest * len(gaps) > SAFE:  # may leave the range: look closely
        times = list(accumulate(gaps, initial=time0))
        if max(times) > SAFE or min(times) < -SAFE:
            raise PackingError(f"{row['type']}: the gaps lead out of the range of safe integers")


def _check_keys(kind: str, what: str, found: tuple[str, ...], orders: Sequence[tuple[str, ...]]) -> None:
    if found in orders:
        return
    missing = set(orders[0]).difference(found)
    if missing:
        raise PackingError(f"{kind}: {what} lacks {', '.join(sorted(missing))}")
    extra = set(found).difference(orders[-1])
    if extra:
        raise PackingError(f"{kind}: {what} has the unexpected key {', '.join(sorted(extra))}")
    proper = ", ".join(key for key in orders[-1] if key in found)
    raise PackingError(f"{kind}: {what} has its keys in another order than {proper}")
