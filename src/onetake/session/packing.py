"""Packed rows: one record for a run of consecutive delta chunks, without loss.

A model streams a few characters at a time, and every delta is an event of its own. The rules, in both
directions:

- A *run* is at least three consecutive events of the same kind, turn, step and index (for tool calls also the
  same id, and the same name or none), whose `seq` rises by 1 and whose time gaps are safe integers.
- An event takes part only with exactly the keys of a delta event and values of the right primitive types.
  Anything else stays as it came and ends the run. Fragments are never joined.
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
_TEXT_KEYS = {"turn", "step", "index", "dt", "texts"}
_TOOL_KEYS = {"turn", "step", "index", "dt", "id", "args"}


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
    last_seq = last_time = 0
    for at, event in enumerate(events):
        identity = None if at in verbatim else _identity(event)
        if identity is not None:
            seq, time = event["seq"], event["time"]
            if identity == run and seq == last_seq + 1 and -SAFE <= time - last_time <= SAFE:
                last_seq, last_time = seq, time
                continue
            last_seq, last_time = seq, time
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
    if len(event) != 4 or event.get("type") != ASSISTANT_CHUNK:
        return None
    data = event.get("data")
    if type(data) is not dict or len(data) != 3 or type(event.get("seq")) is not int:
        return None
    chunk = data.get("chunk")
    if type(chunk) is not dict or not _safe(event.get("time")) or not 0 <= event["seq"] <= SAFE:
        return None
    turn, step, index, kind = data.get("turn"), data.get("step"), chunk.get("index"), chunk.get("type")
    if not (_safe(turn) and _safe(step) and _safe(index)):
        return None
    if kind == "text-delta" or kind == "reasoning-delta":
        if len(chunk) == 3 and type(chunk.get("text")) is str:
            return kind, turn, step, index
    elif kind == "tool-call-delta":
        call, name = chunk.get("id"), chunk.get("name")
        named = 1 if type(name) is str else 0
        if len(chunk) == 4 + named and type(call) is str and type(chunk.get("argumentsDelta")) is str:
            return kind, turn, step, index, call, name
    return None


def _safe(value: Any) -> bool:
    return type(value) is int and -SAFE <= value <= SAFE


# Unpacking -------------------------------------------------------------------------------------------------


def unpack(records: Iterable[Record]) -> list[Event]:
    """Return the events that `records` store, with every envelope filled in.

    Raises `PackingError`, naming the record by its position, for a row that breaks a rule.
    """
    events: list[Event] = []
    for at, record in enumerate(records):
        try:
            if record.get("type") in ROW_TYPES:
                check_row(record, len(events))
                events.extend(members(record, len(events)))
            else:
                events.append(with_envelope(record, len(events)))
        except PackingError as error:
            raise PackingError(f"record {at}: {error}") from None
    return events


def with_envelope(record: Record, seq: int) -> Event:
    """Return `record` as an event: itself when it has its envelope, else a copy with `seq` and time 0."""
    if "seq" in record and "time" in record:
        return record
    event: Event = {"type": record.get("type"), "seq": record.get("seq", seq), "time": record.get("time", 0)}
    event.update(record)
    return event


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
    data = row.get("data")
    if type(data) is not dict:
        raise PackingError(f"{row['type']}: data is not an object")
    tool = row["type"] == TOOL_CALL_ROW
    _check_keys(row["type"], "row", row.keys(), {"type", "data"}, {"seq0", "time0"})
    _check_keys(
        row["type"], "data", data.keys(), _TOOL_KEYS if tool else _TEXT_KEYS, {"name"} if tool else set()
    )
    gaps, fragments = data["dt"], data["args" if tool else "texts"]
    count = _check_values(row, data, gaps, fragments)
    seq0, time0 = row.get("seq0", seq), row.get("time0", 0)
    if not _safe(seq0) or seq0 < 0 or seq0 + count - 1 > SAFE:
        raise PackingError(f"{row['type']}: seq0 is {seq0!r}, not a sequence number")
    if not _safe(time0):
        raise PackingError(f"{row['type']}: time0 is {time0!r}, not a safe integer")
    times = list(accumulate(gaps, initial=time0))
    if max(times) > SAFE or min(times) < -SAFE:
        raise PackingError(f"{row['type']}: the gaps lead out of the range of safe integers")
    return count


def _check_values(row: Record, data: Record, gaps: Any, fragments: Any) -> int:
    for key in ("turn", "step", "index"):
        if not _safe(data[key]):
            raise PackingError(f"{row['type']}: data.{key} is {data[key]!r}, not a safe integer")
    for key in ("id", "name"):
        if key in data and type(data[key]) is not str:
            raise PackingError(f"{row['type']}: data.{key} is {data[key]!r}, not a string")
    if type(fragments) is not list or set(map(type, fragments)) != {str}:
        raise PackingError(f"{row['type']}: the fragments are not a list of at least one string")
    if type(gaps) is not list or not set(map(type, gaps)) <= {int}:
        raise PackingError(f"{row['type']}: data.dt is not a list of integers")
    if len(gaps) != len(fragments) - 1:
        raise PackingError(
            f"{row['type']}: {len(fragments)} fragments need {len(fragments) - 1} gaps in dt, not {len(gaps)}"
        )
    if gaps and (max(gaps) > SAFE or min(gaps) < -SAFE):
        raise PackingError(f"{row['type']}: a gap in data.dt is not a safe integer")
    return len(fragments)


def _check_keys(kind: str, what: str, found: Iterable[str], needed: set[str], allowed: set[str]) -> None:
    missing = needed.difference(found)
    if missing:
        raise PackingError(f"{kind}: {what} lacks {', '.join(sorted(missing))}")
    extra = set(found) - needed - allowed
    if extra:
        raise PackingError(f"{kind}: {what} has the unexpected key {', '.join(sorted(extra))}")
