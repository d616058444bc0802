"""Session logs: lists of events that make packing hard, and whole conversations.

Packing is decided by small differences (a key more, a time that is no integer, another step), so
`event_lists` draws long runs of deltas that come to differ in one thing, and `changed_lines` and
`spelled_logs` what other hands make of the bytes. `conversations` draws logs of the shape that a harness
writes: turns, steps, answers, tools and replaced history, each message with an id of its own.
"""

from __future__ import annotations

import copy
import itertools
import re
from typing import Any

from hypothesis import strategies as st

from onetake import jsontext
from onetake.session.events import KNOWN_TYPES, SURFACE_TYPES, Event, Header, make_event, make_header
from onetake.session.packing import ROW_TYPES, SAFE, TOOL_CALL_ROW, pack
from onetake.testing.invariants.assembler import finish_of, meaning
from onetake.testing.strategies.chunks import chunk_streams
from onetake.testing.strategies.text import json_values

_PIECES = st.sampled_from(
    ["", "a", "\u2028", "\r", "\x1f", "\ud83d", "\ude00", "\U0001f600", '"', "\0"]
) | st.text(max_size=3)
_TIMES = st.sampled_from([*range(-3, 10), *range(20), SAFE, -SAFE, SAFE + 1, 0.5, None, True])
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
def event_lists(draw: st.DrawFn, *, holes: bool = False) -> list[Event]:
    """Draw the events of a log: long runs, and in the middle of them whatever ends one.

    With `holes`, the numbers of the events leave some out, come twice, or are none.
    """
    events: list[Event] = []
    seq: Any = 0
    for kind, data, extra in draw(st.lists(payloads(), max_size=6)):
        count = draw(st.integers(1, 6))
        change = draw(st.sampled_from(_CHANGES))
        since = draw(st.integers(0, count)) if change else count
        for place in range(count):
            same = copy.deepcopy(data)
            event = {"type": kind, "seq": seq, "time": draw(_TIMES), "data": same, **copy.deepcopy(extra)}
            events.append(event if place < since else _changed(event, change))
            odd = holes and draw(st.integers(0, 9)) == 0
            seq = draw(_ODD_SEQS) if odd else seq + 1 if type(seq) is int else 0
    return events


_CHANGES = ("", "", "", "turn", "step", "index", "id", "name", "more", "order", "order")
_ODD_SEQS = st.sampled_from([0, 1, 5, -1, SAFE - 1, SAFE, True, 1.0, None])


def _changed(event: Event, what: str) -> Event:
    """The same event, but for one thing that a run must have in common."""
    data = event["data"]
    chunk = data.get("chunk") if isinstance(data, dict) else None
    if what == "order":
        return dict(reversed(event.items()))
    if not isinstance(chunk, dict):
        return event
    if what in ("turn", "step"):
        data[what] = 2
    elif what == "name" and "name" in chunk:
        del chunk["name"]
    else:
        data["chunk"] = {**chunk, what: 2 if what == "index" else "z"}
    return event


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
def changed_lines(draw: st.DrawFn) -> bytes:
    """Draw the line of a packed row in which one thing was changed: a value, a key, the spelling, a byte."""
    how = draw(st.sampled_from(["row", "spelling", "byte"]))
    if how == "row":
        return jsontext.dumps(draw(_changed_rows()))
    line = jsontext.dumps(draw(rows()))
    if how == "spelling":
        return draw(respelled(line))
    at = draw(st.integers(0, len(line) - 1))
    byte = draw(st.sampled_from(b'0-1.e,"\\[]{}: xu') | st.integers(0, 255))
    return line[:at] + bytes([byte]) + line[at + draw(st.integers(0, 1)) :]


_SPELLINGS: dict[str, tuple[re.Pattern[bytes], bytes]] = {
    "white space": (re.compile(rb"(?<=[,:\[{])"), b" "),
    "escape": (re.compile(rb"(?<=\")a"), rb"\\u0061"),
    "digits": (re.compile(rb"\\u001f"), rb"\\u001F"),
    "pair": (re.compile("\U0001f600".encode()), rb"\\ud83d\\ude00"),
    "half": (re.compile(rb"\\ud83d"), rb"\\uD83D"),
    "twice": (re.compile(rb'(?=("\w+":))'), rb"\1null,"),
    "number": (re.compile(rb"(?<=[,:\[])0(?=[,\]}])"), b"-0"),
    "float": (re.compile(rb"(?<=[,:\[])(\d+)(?=[,\]}])"), rb"\1.0"),
}


@st.composite
def respelled(draw: st.DrawFn, line: bytes) -> bytes:
    """Draw another spelling of a line of JSON at one of its places, as another program may write it."""
    pattern, text = _SPELLINGS[draw(st.sampled_from(sorted(_SPELLINGS)))]
    places = list(pattern.finditer(line))
    if not places:
        return line
    match = draw(st.sampled_from(places))
    return line[: match.start()] + match.expand(text) + line[match.end() :]


@st.composite
def spelled_logs(draw: st.DrawFn) -> list[bytes]:
    """Draw the lines of a log behind its header as some program wrote them: rows or not, in odd spellings."""
    events = draw(event_lists())
    records = pack(events) if draw(st.booleans()) else events
    bare = draw(st.booleans())
    lines = []
    for record in records:
        kept = {key: value for key, value in record.items() if not bare or key not in _ENVELOPE}
        line = jsontext.dumps(kept)
        lines.append(draw(respelled(line)) if draw(st.integers(0, 2)) == 0 else line)
    return lines


_ENVELOPE = ("seq", "time", "seq0", "time0")


@st.composite
def _changed_rows(draw: st.DrawFn) -> dict[str, Any]:
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
    return dict(reversed(row.items())) if draw(st.integers(0, 9)) == 0 else row


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
        for step in range(1, draw(st.integers(1, 2)) + 1):
            log.add("step/start", {"turn": turn, "step": step})
            if step == 1:
                text = draw(st.sampled_from(["hi", "again", ""]))
                message = {"role": "user", "content": [{"type": "text", "text": text}]}
                log.say("user/message", turn, step, message)
            log.answer(turn, step, draw(chunk_streams()))
            if draw(st.integers(0, 3)) == 0:
                places = st.integers(0, len(log.surfaces) - 1)
                first, last = sorted((draw(places), draw(places)))
                log.replace(turn, first, last)
            log.add("step/end", {"turn": turn, "step": step})
        log.add("turn/end", {"turn": turn, "reason": {"kind": "completed"}})
    return make_header("s-1", created_at=0, cwd="/work"), log.events


@st.composite
def bystanders(draw: st.DrawFn) -> Event:
    """Draw an event that is no message: of another type, or of one that makes none without `surfaceOp`."""
    quiet = sorted(KNOWN_TYPES.keys() - SURFACE_TYPES)
    kind = draw(st.sampled_from([*quiet, "x/message"]))
    data = draw(st.sampled_from([_SAID, {"turn": 1, "step": 1, "message": _SAID}]) | json_values())
    if draw(st.booleans()):
        return make_event(draw(st.sampled_from(sorted(SURFACE_TYPES))), 0, 0, data)
    return make_event(kind, 0, 0, data, surface_op=draw(st.sampled_from([None, "append"])))


_SAID = {"role": "user", "content": [{"type": "text", "text": "never said"}], "id": "m-0"}


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

    def say(
        self, type_: str, turn: int, step: int, message: dict[str, Any], op: Any = "append", **more: Any
    ) -> None:
        """Append a surface event."""
        message = {"source": {"kind": "user"}, **message, "id": f"m-{next(self._ids)}"}
        data = message if type_ == "user/message" else {"turn": turn, "step": step, "message": message}
        self.surfaces.append(len(self.events))
        self.add(type_, data, **more, surfaceOp=op)

    def answer(self, turn: int, step: int, chunks: list[Any]) -> None:
        """Append an answer, and a result for each of its tool calls."""
        for chunk in chunks:
            self.add("assistant/chunk", {"turn": turn, "step": step, "chunk": chunk})
        blocks = meaning(chunks)
        if finish_of(chunks)["kind"] == "error" or not blocks:
            return
        source: dict[str, Any] = {"kind": "model", "provider": "p", "model": "m"}
        self.say("assistant/message", turn, step, {"role": "assistant", "content": blocks, "source": source})
        calls = [block for block in blocks if block["type"] == "tool-call"]
        started = []
        for call in calls:
            started.append(len(self.events))
            data = {"turn": turn, "step": step, "callId": call["id"], "name": call["name"]}
            self.add("tool/call", {**data, "arguments": call["arguments"]})
        for call, seq in zip(calls, started, strict=True):
            result = {"type": "tool-result", "toolCallId": call["id"], "content": [], "isError": False}
            source = {"kind": "tool", "callId": call["id"]}
            message = {"role": "user", "content": [result], "source": source}
            self.say("tool/result", turn, step, message, sourceEventSeqs=[seq])

    def replace(self, turn: int, first: int, last: int) -> None:
        """Put a summary in place of the messages from one place of the history to another."""
        kept = list(self.surfaces)
        op = {"op": "replace", "start": kept[first], "end": kept[last]}
        summary = {"role": "user", "content": [{"type": "text", "text": "so far"}]}
        self.say("user/message", turn, 1, summary, op)
        self.surfaces = [*kept[:first], self.surfaces[-1], *kept[last + 1 :]]
