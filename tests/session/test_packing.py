"""Packed rows: the vectors, and the rules one by one."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest

from onetake import jsontext
from onetake.session.packing import SAFE, PackingError, event_count, pack, unpack
from tests.session.make import delta, tool_delta


def test_vectors(shared_dir: Path) -> None:
    """Every case that an independent implementation decided is decided alike."""
    cases = json.loads((shared_dir / "vectors" / "packing.json").read_text())
    assert len(cases) > 10
    for case in cases:
        if case["op"] == "encode":
            packed = pack(case["events"])
            assert [record["type"] for record in packed] == case["record_types"], case["case"]
            assert unpack(packed) == case["events"], case["case"]
        elif case["ok"]:
            assert len(unpack([case["row"]])) == event_count(case["row"]), case["case"]
        else:
            with pytest.raises(PackingError, match=r"^record 0: "):
                unpack([case["row"]])


def test_a_run_becomes_one_row_with_gaps() -> None:
    """The row holds what the members share once, their gaps and their fragments."""
    events = [delta(4, "a", time=10), delta(5, "", time=7), delta(6, "c", time=9)]
    data = {"turn": 1, "step": 1, "index": 0, "dt": [-3, 2], "texts": ["a", "", "c"]}
    assert pack(events) == [{"type": "text-chunks", "seq0": 4, "time0": 10, "data": data}]
    assert list(pack(events)[0]["data"]) == ["turn", "step", "index", "dt", "texts"]


@pytest.mark.parametrize("name", [None, "bash"])
def test_a_tool_call_run_keeps_the_presence_of_the_name(name: str | None) -> None:
    """A name is in the row exactly when it is in every member."""
    events = [tool_delta(seq, name=name) for seq in range(3)]
    (row,) = pack(events)
    assert list(row["data"]) == ["turn", "step", "index", "dt", "id", *(["name"] if name else []), "args"]
    assert unpack([row]) == events
    assert [list(event["data"]["chunk"]) for event in unpack([row])] == [
        list(event["data"]["chunk"]) for event in events
    ]


def _changed(path: str, value: Any) -> dict[str, Any]:
    event = tool_delta(2, name="bash") if path.startswith("tool.") else delta(2)
    *parents, last = path.removeprefix("tool.").split(".")
    target = event
    for parent in parents:
        target = target[parent]
    target[last] = value
    return event


ODD = {
    "type": "assistant/other",
    "seq": 2.0,
    "time": True,
    "data": [],
    "extra": 1,
    "data.turn": "1",
    "data.step": True,
    "data.more": 1,
    "data.chunk": [],
    "data.chunk.type": {"unhashable": []},
    "data.chunk.index": SAFE + 1,
    "data.chunk.text": 1,
    "data.chunk.more": 1,
    "tool.data.chunk.id": 1,
    "tool.data.chunk.name": None,
    "tool.data.chunk.argumentsDelta": None,
    "tool.data.chunk.more": None,
}


@pytest.mark.parametrize("path", ODD)
def test_an_odd_event_stays_as_it_came_and_ends_the_run(path: str) -> None:
    """Anything but exactly the right keys and primitive types is stored verbatim."""
    make = (lambda seq: tool_delta(seq, name="bash")) if path.startswith("tool.") else delta
    odd = _changed(path, ODD[path])
    events = [make(0), make(1), odd, make(3), make(4), make(5)]
    packed = pack(copy.deepcopy(events))
    assert packed[:3] == events[:3]
    assert [record.get("seq0") for record in packed[3:]] == [3]


@pytest.mark.parametrize("named", [False, True])
def test_keys_in_another_order_stay_in_that_order(named: bool) -> None:
    """An object of the event whose keys a row would give back in its own order ends the run."""
    plain = tool_delta(0, name="bash") if named else delta(0)
    for odd in (_turned(plain), _turned(plain, "data"), _turned(plain, "data", "chunk")):
        events = [{**odd, "seq": seq} for seq in range(3)]
        assert [jsontext.dumps(record) for record in pack(events)] == [jsontext.dumps(e) for e in events]


def _turned(event: dict[str, Any], *path: str) -> dict[str, Any]:
    if not path:
        return dict(reversed(event.items()))
    return {**event, path[0]: _turned(event[path[0]], *path[1:])}


@pytest.mark.parametrize(
    "last",
    [
        delta(4),
        delta(2, time=SAFE, index=1),
        delta(2, kind="reasoning-delta"),
        tool_delta(2),
        delta(-1),
    ],
    ids=["seq hole", "other index", "other kind", "tool call", "negative seq"],
)
def test_what_differs_ends_a_run(last: dict[str, Any]) -> None:
    """Two members and a stranger are three records."""
    assert pack([delta(0), delta(1), last]) == [delta(0), delta(1), last]


def test_a_run_whose_time_comes_too_far_from_its_start_ends_there() -> None:
    """Without its envelope a row begins at time 0, and its times must not leave the safe integers."""
    events = [delta(seq, time=time) for seq, time in enumerate([-3, 0, 1, SAFE - 3, SAFE, SAFE, SAFE])]
    rows = pack(events)
    assert [row["data"]["dt"] for row in rows] == [[3, 1, SAFE - 4], [0, 0]]
    projected = [{"type": row["type"], "data": row["data"]} for row in rows]
    assert [event["time"] for event in unpack(projected)] == [0, 3, 4, SAFE, 0, 0, 0]


def test_runs_of_two_names_do_not_join() -> None:
    """Presence and value of the name divide tool call runs."""
    events = [
        tool_delta(0),
        tool_delta(1, name="a"),
        tool_delta(2, name="b"),
        tool_delta(3, call="d", name="b"),
    ]
    assert pack(events) == events


ROW = {
    "type": "tool-call-chunks",
    "seq0": 0,
    "time0": 0,
    "data": {"turn": 1, "step": 1, "index": 0, "dt": [0], "id": "c", "name": "n", "args": ["", "{"]},
}

BROKEN = {
    "data": (None, "data is not an object"),
    "extra": (1, "row has the unexpected key extra"),
    "data.texts": ([], "data has the unexpected key texts"),
    "data.index": (True, "data.index is True, not a safe integer"),
    "data.id": (1, "data.id or data.name is not a string"),
    "data.name": (None, "data.id or data.name is not a string"),
    "data.args": (["", 1], "not a list of at least one string"),
    "data.dt": ([1, 2], "2 fragments need 1 gaps in dt, not 2"),
    "seq0": (SAFE, "seq0 is 9007199254740991, not a sequence number"),
    "time0": (0.5, "time0 is 0.5, not a safe integer"),
}


@pytest.mark.parametrize("path", BROKEN)
def test_a_broken_row_is_refused_with_the_rule(path: str) -> None:
    """The message names the record and what is wrong with it."""
    value, message = BROKEN[path]
    row = copy.deepcopy(ROW)
    *parents, last = path.split(".")
    target: dict[str, Any] = row
    for parent in parents:
        target = target[parent]
    target[last] = value
    with pytest.raises(PackingError, match=rf"record 1: tool-call-chunks: .*{message}"):
        unpack([ROW, row])


def test_a_row_with_its_keys_in_another_order_is_refused() -> None:
    """It would be read, and written as other bytes than it was."""
    row = copy.deepcopy(ROW)
    row["data"]["name"] = row["data"].pop("name")
    with pytest.raises(PackingError, match="data has its keys in another order than turn, step, index, dt"):
        unpack([row])
    turned = dict(reversed(ROW.items()))
    with pytest.raises(PackingError, match="row has its keys in another order than type, seq0, time0, data"):
        unpack([turned])


def test_gaps_out_of_range_are_refused() -> None:
    """Neither one gap nor their sum may leave the safe integers."""
    row = copy.deepcopy(ROW)
    row["data"]["dt"] = [SAFE + 1]
    with pytest.raises(PackingError, match=r"a gap in data\.dt is not a safe integer"):
        unpack([row])
    row["data"] |= {"dt": [-SAFE, -1], "args": ["", "", ""]}
    with pytest.raises(PackingError, match="out of the range"):
        unpack([row])
    row["data"]["dt"] = [SAFE, -SAFE]
    assert [event["time"] for event in unpack([row])] == [0, SAFE, 0]


def test_a_row_of_one_and_half_an_envelope_are_read() -> None:
    """No writer makes them, but they say all that is needed."""
    row = {
        "type": "text-chunks",
        "seq0": 0,
        "data": {"turn": 1, "step": 1, "index": 0, "dt": [], "texts": ["a"]},
    }
    assert unpack([row]) == [delta(0, "a")]


def test_projected_records_are_counted() -> None:
    """An absent seq is the number of events so far; an absent time is 0; each row starts at 0."""
    row = {"type": "text-chunks", "data": {"turn": 1, "step": 1, "index": 0, "dt": [5], "texts": ["a", "b"]}}
    events = unpack([{"type": "turn/start", "data": {}}, row, {"type": "x", "time": 7, "data": 0}])
    assert [(event["seq"], event["time"]) for event in events] == [(0, 0), (1, 0), (2, 5), (3, 7)]
    assert [list(event)[:4] for event in events] == [["type", "seq", "time", "data"]] * 4
