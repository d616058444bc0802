"""Session logs: lists of events that make packing hard, and whole conversations.

Packing is decided by small differences (a key more, a time that is no integer, another index), so
`event_lists` draws long runs of equal deltas and all that ends them. `conversations` draws logs of the shape
that a harness writes: turns, steps, answers, tools and replaced history, each message with an id of its own.
"""

from __future__ import annotations

import copy
import itertools
from typing import Any

from hypothesis import strategies as st

from onetake.session.events import Event, Header, make_header
from onetake.session.packing import ROW_TYPES, SAFE, TOOL_CALL_ROW
from onetake.testing.invariants.assembler import finish_of, meaning
from onetake.testing.strategies.chunks import chunk_streams
from onetake.testing.strategies.text import json_values

_PIECES = st.sampled_from(["", "a", "\u2028", "\r", "\u0085", "\ud83d", "\ude00", '"', "\0"]) | st.text(
    max_size=3
)
_TIMES = st.integers(-3, 9) | st.sampled_from([SAFE, -SAFE, SAFE + 1, 0.5, None, True])
_ODD: st.SearchStrategy[Any] = st.sampled_from(
    [None, True, -1, 0, 1, 1.0, 0.5, SAFE, SAFE + 1, "", "a", [], {}]
)
_EXTRAS = st.dictionaries(st.sampled_from(["ignorable", "x", ""]), json_values(), max_size=1)
_KIND_NAMES = st.text(max_size=3)
_KINDS = ("text-delta", "text-delta", "reasoning-delta", "tool-call-delta", "block-end")
Payload = tuple[str, Any, dict[str, Any]]
"""Type, data and further keys of an event."""


@st.composite
def payloads(draw: st.DrawFn) -> Payload:
    """Draw an event without its envelope: mostly a delta that packs, sometimes anything."""
    if draw(st.integers(0, 9)) == 0:
        kind = draw(_KIND_NAMES)
        extra = draw(_EXTRAS)
        return (kind if kind not in ROW_TYPES else "x"), draw(json_values()), extra
    data = {"turn": draw(st.integers(0, 1)), "step": 1, "chunk": draw(_chunks())}
    if draw(st.integers(0, 9)) == 0:
        data[draw(st.sampled_from(["x", "turn", "chunk"]))] = draw(json_values())
    return "assistant/chunk", data, {}


@st.composite
def _chunks(draw: st.DrawFn) -> dict[str, Any]:
    kind = draw(st.sampled_from(_KINDS))
    chunk: dict[str, Any] = {"type": kind, "index": draw(st.integers(0, 1))}
    if kind == "tool-call-delta":
        chunk["id"] = draw(st.sampled_from("ab"))
        if draw(st.booleans()):
            chunk["name"] = draw(st.sampled_from("ab"))
        chunk["argumentsDelta"] = draw(_PIECES)
    elif kind != "block-end":
        chunk["text"] = draw(_PIECES)
    return chunk


@st.composite
def event_lists(draw: st.DrawFn) -> list[Event]:
    """Draw the events of a log, with long runs and all that ends them."""
    events: list[Event] = []
    for kind, data, extra in draw(st.lists(payloads(), max_size=6)):
        for _ in range(draw(st.integers(1, 5))):
            time = draw(_TIMES)
            same = copy.deepcopy(data)
            events.append({"type": kind, "seq": len(events), "time": time, "data": same, **extra})
    return events


@st.composite
def rows(draw: st.DrawFn) -> dict[str, Any]:
    """Draw a packed row as a store writes it; it is the first record of its log."""
    kind = draw(st.sampled_from(ROW_TYPES))
    pieces = draw(st.lists(_PIECES, min_size=3, max_size=4))
    gaps = draw(st.lists(st.integers(-3, 9), min_size=len(pieces) - 1, max_size=len(pieces) - 1))
    data: dict[str, Any] = {"turn": 1, "step": 1, "index": draw(st.integers(0, 1)), "dt": gaps}
    if kind == TOOL_CALL_ROW:
        data |= {"id": "a", **draw(st.sampled_from([{}, {"name": "b"}])), "args": pieces}
    else:
        data["texts"] = pieces
    return {"type": kind, "seq0": 0, "time0": draw(st.integers(-3, 9)), "data": data}


@st.composite
def changed_rows(draw: st.DrawFn) -> dict[str, Any]:
    """Draw a packed row of which one thing was changed, added or removed."""
    row = draw(rows())
    part = row if draw(st.integers(0, 2)) == 0 else row["data"]
    name = draw(st.sampled_from([*part, "x", "name"]))
    value = part.get(name)
    if name == "type":
        part[name] = draw(st.sampled_from(ROW_TYPES))
    elif name in part and draw(st.integers(0, 2)) == 0:
        del part[name]
    elif isinstance(value, list) and draw(st.booleans()):
        at = draw(st.integers(0, len(value)))
        part[name] = [*value[:at], *draw(st.lists(_ODD, max_size=1)), *value[at + 1 :]]
    else:
        part[name] = draw(_ODD)
    return row


def batches() -> st.SearchStrategy[list[list[Payload]]]:
    """Draw what is appended to a log between flushes; the first batch is never empty."""
    batch = st.lists(payloads(), min_size=1, max_size=4)
    return st.lists(batch, min_size=1, max_size=4)


@st.composite
def conversations(draw: st.DrawFn) -> tuple[Header, list[Event]]:
    """Draw a whole conversation: header and events, as a harness logs them; it ends in a closed turn."""
    log = _Conversation()
    for turn in range(1, draw(st.integers(1, 3)) + 1):
        log.add("turn/start", {"turn": turn})
        log.add("step/start", {"turn": turn, "step": 1})
        text = draw(st.sampled_from(["hi", "again", ""]))
        log.say("user/message", turn, 1, {"role": "user", "content": [{"type": "text", "text": text}]})
        calls = log.answer(turn, 1, draw(chunk_streams()))
        for call in calls:
            log.add("tool/call", {"turn": turn, "step": 1, "callId": call["id"], "name": call["name"]})
        for call in calls:
            result = {"type": "tool-result", "toolCallId": call["id"], "content": [], "isError": False}
            source = {"kind": "tool", "callId": call["id"]}
            message = {"role": "user", "content": [result], "source": source}
            log.say("tool/result", turn, 1, message)
        if draw(st.integers(0, 3)) == 0:
            places = st.integers(0, len(log.surfaces) - 1)
            first, last = sorted((draw(places), draw(places)))
            log.replace(turn, first, last)
        log.add("step/end", {"turn": turn, "step": 1})
        log.add("turn/end", {"turn": turn, "reason": {"kind": "completed"}})
    return make_header("s-1", created_at=0, cwd="/work"), log.events


class _Conversation:
    """The log of a conversation while it is drawn."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.surfaces: list[int] = []
        """The events behind the messages of the history, in its order."""
        self._ids = itertools.count(1)

    def add(self, type_: str, data: Any, **more: Any) -> None:
        """Append an event."""
        seq = len(self.events)
        self.events.append({"type": type_, "seq": seq, "time": seq * 10, "data": data, **more})

    def say(self, type_: str, turn: int, step: int, message: dict[str, Any], op: Any = "append") -> None:
        """Append a surface event."""
        message = {"source": {"kind": "user"}, **message, "id": f"m-{next(self._ids)}"}
        data = message if type_ == "user/message" else {"turn": turn, "step": step, "message": message}
        self.surfaces.append(len(self.events))
        self.add(type_, data, surfaceOp=op)

    def answer(self, turn: int, step: int, chunks: list[Any]) -> list[dict[str, Any]]:
        """Append an answer; returns the tool calls in it."""
        for chunk in chunks:
            self.add("assistant/chunk", {"turn": turn, "step": step, "chunk": chunk})
        blocks = meaning(chunks)
        if finish_of(chunks)["kind"] == "error" or not blocks:
            return []
        source = {"kind": "model", "provider": "p", "model": "m"}
        self.say("assistant/message", turn, step, {"role": "assistant", "content": blocks, "source": source})
        return [block for block in blocks if block["type"] == "tool-call"]

    def replace(self, turn: int, first: int, last: int) -> None:
        """Put a summary in place of the messages from one place of the history to another."""
        kept = list(self.surfaces)
        op = {"op": "replace", "start": kept[first], "end": kept[last]}
        summary = {"role": "user", "content": [{"type": "text", "text": "so far"}]}
        self.say("user/message", turn, 1, summary, op)
        self.surfaces = [*kept[:first], self.surfaces[-1], *kept[last + 1 :]]
