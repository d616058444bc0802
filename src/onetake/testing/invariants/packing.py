"""What holds for packed rows: nothing is lost, runs are as long as they can be, and no row means two things.

`rows_of` spells out once more which events make a run, straight from section 5 of the design, so that a fast
packer can be compared with it.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from typing import Any

from onetake import jsontext
from onetake.session.events import Event
from onetake.testing.errors import InvariantViolation

Record = dict[str, Any]
Pack = Callable[[Sequence[Event]], Sequence[Record]]
"""Gives the records that store events, such as `onetake.session.packing.pack`."""
Unpack = Callable[[Iterable[Record]], Sequence[Event]]
"""The inverse; raises for a record that is not of the format."""

_ENVELOPE = ("seq0", "time0")
"""What a row of a committed log leaves out."""
MOST = 2**53 - 1
_ROWS = {"text-delta": "text-chunks", "reasoning-delta": "reasoning-chunks"}
_ROW_TYPES = (*_ROWS.values(), "tool-call-chunks")


def rows_of(events: Sequence[Event]) -> list[Record]:
    """The records that events are stored as: a row for each maximal run of at least three."""
    records: list[Record] = []
    run: list[Event] = []
    for event in [*events, None]:
        if event is not None and run and _goes_on(run, event):
            run.append(event)
            continue
        records += [_row(run)] if len(run) >= 3 else run
        run = [event] if event is not None else []
    return records


def _goes_on(run: Sequence[Event], event: Event) -> bool:
    first, before = run[0], run[-1]
    if _facts(before) is None or _facts(before) != _facts(event) or event["seq"] != before["seq"] + 1:
        return False
    return all(abs(event["time"] - other["time"]) <= MOST for other in (first, before))


def _facts(event: Event) -> tuple[Any, ...] | None:
    """What the members of a run have in common; None for an event that is never a member."""
    if list(event) != ["type", "seq", "time", "data"] or event["type"] != "assistant/chunk":
        return None
    data = event["data"]
    if not isinstance(data, dict) or list(data) != ["turn", "step", "chunk"]:
        return None
    chunk = data["chunk"]
    if not isinstance(chunk, dict):
        return None
    numbers = (event["seq"], event["time"], data["turn"], data["step"], chunk.get("index"))
    if not all(type(number) is int and abs(number) <= MOST for number in numbers) or event["seq"] < 0:
        return None
    kind = chunk.get("type")
    if type(kind) is str and kind in _ROWS and list(chunk) == ["type", "index", "text"]:
        strings = [chunk["text"]]
    elif kind == "tool-call-delta" and list(chunk) in _TOOL:
        strings = [chunk["id"], chunk["argumentsDelta"], chunk.get("name", "")]
    else:
        return None
    if not all(type(text) is str for text in strings):
        return None
    return (
        kind,
        data["turn"],
        data["step"],
        chunk["index"],
        chunk.get("id"),
        "name" in chunk,
        chunk.get("name"),
    )


_TOOL = [["type", "index", "id", *name, "argumentsDelta"] for name in ([], ["name"])]


def _row(run: Sequence[Event]) -> Record:
    first, chunk = run[0], run[0]["data"]["chunk"]
    times = [event["time"] for event in run]
    gaps = [after - before for before, after in pairwise(times)]
    data = {key: first["data"][key] for key in ("turn", "step")} | {"index": chunk["index"], "dt": gaps}
    if chunk["type"] == "tool-call-delta":
        data |= {key: chunk[key] for key in ("id", "name") if key in chunk}
        data["args"] = [event["data"]["chunk"]["argumentsDelta"] for event in run]
    else:
        data["texts"] = [event["data"]["chunk"]["text"] for event in run]
    kind = _ROWS.get(chunk["type"], "tool-call-chunks")
    return {"type": kind, "seq0": first["seq"], "time0": first["time"], "data": data}


def check_packs(pack: Pack, events: Sequence[Event]) -> None:
    """Packing gives exactly the rows of the maximal runs, leaves all else as it is, and changes no event."""
    before = copy.deepcopy(events)
    came, expected = list(pack(events)), rows_of(events)
    if exactly(came) != exactly(expected):
        raise InvariantViolation(f"packed: expected {expected!r}, came {came!r} of {events!r}")
    if exactly(events) != exactly(before):
        raise InvariantViolation(f"packing changes nothing: {before!r} became {events!r}")


def check_lossless(pack: Pack, unpack: Unpack, events: Sequence[Event]) -> None:
    """`unpack(pack(x)) == x`, types and the order of keys included, and packing again changes nothing."""
    records = list(pack(events))
    try:
        restored = list(unpack(records))
    except Exception as error:
        raise InvariantViolation(
            f"what was packed can be unpacked: came {type(error).__name__}: {error} for {records!r}"
        ) from error
    if exactly(restored) != exactly(events):
        raise InvariantViolation(f"unpacked: expected {events!r}, came {restored!r}")
    for again in (list(pack(restored)), list(pack(records))):
        if exactly(again) != exactly(records):
            raise InvariantViolation(f"packed again: expected {records!r}, came {again!r}")


def check_strict(
    read: Callable[[bytes], Sequence[Event]],
    row_of: Callable[[Sequence[Event]], Record],
    line: bytes,
    refusal: type[Exception],
) -> None:
    """A row that somebody changed is refused, or its events are written as exactly these bytes again.

    `read` gives the events of a log whose first record is `line`.
    """
    try:
        events = read(line)
    except refusal:
        return
    except Exception as error:
        raise InvariantViolation(
            f"a row is read or refused: came {type(error).__name__}: {error} for {line!r}"
        ) from error
    value = jsontext.loads(line)
    if value["type"] not in _ROW_TYPES:
        return  # what became an event is kept as it is
    again = {key: item for key, item in row_of(events).items() if key in value or key not in _ENVELOPE}
    if jsontext.dumps(again) != line:
        raise InvariantViolation(
            f"a row says one thing: {line!r} was read, and is written as {jsontext.dumps(again)!r}"
        )


def check_rewriting(
    pack: Callable[[bytes], bytes],
    unpack: Callable[[bytes], bytes],
    raw: bytes,
    refusal: type[Exception],
) -> None:
    """Packing a log loses no byte of its unpacked form, whoever wrote it; it may be refused as a whole."""
    try:
        flat = unpack(raw)
    except refusal:
        return
    packed = pack(flat)
    for what, came, expected in (
        ("unpacked, packed and unpacked", unpack(packed), flat),
        ("packed twice", pack(packed), packed),
        ("packed and unpacked", unpack(pack(raw)), flat),
    ):
        if came != expected:
            raise InvariantViolation(f"{what}: expected {expected!r}, came {came!r} of {raw!r}")


def exactly(value: Any) -> Any:
    """Something that is equal only for JSON values of the same types and the same order of keys."""
    if isinstance(value, dict):
        return "object", [(key, exactly(item)) for key, item in value.items()]
    if isinstance(value, list | tuple):
        return "array", [exactly(item) for item in value]
    return type(value).__name__, repr(value)
