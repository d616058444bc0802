"""Scripted conversations, for harnesses that are run: what users say, and what the model answers each time.

A `Task` is the script of one session, and of the sessions that its model has others do for it, at the same
time where one answer asks for several. The model quotes what it knows by then: where it is, what a tool has
found. So a script is spoken (`spoken`) against the values of a run, and each run has others.

And what may go wrong with the log of one: `mutations` draws a change of what a harness did, which a replay
has to notice.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from hypothesis import strategies as st

from onetake import jsontext
from onetake.fixture.ids import event_ids
from onetake.model.types import Chunk
from onetake.session.events import Event
from onetake.testing.strategies.chunks import chunk_streams
from onetake.testing.strategies.echoes import cut, cuts

_WORDS = st.sampled_from(["hi", "go on", "", "{{cwd}}", "a\u2028b", "\\", "{{\\cwd}}", "{{fromRequest:x}}"])
QUOTES = ("cwd", "session", "message", "found")
"""What a model may quote: its folder, its session, the newest message of its log, what a tool found last."""
_FIRST = 10
"""The index of the first block that is added to a drawn answer."""


class Call(NamedTuple):
    """What a model asks for."""

    id: str
    """Not unique: two calls of an answer may share one."""
    looks_for: str = ""
    """What the tool is to look for, when no child is to do something."""
    child: Task | None = None
    fork: bool = False
    """Whether the child goes on from what its parent has heard."""


class Answer(NamedTuple):
    """What a model says in one call."""

    chunks: list[Chunk]
    """A proper stream, with its finish."""
    says: Sequence[str | None] = ()
    """A text behind it, in words; None stands for the value that is quoted."""
    quote: str = "cwd"
    """One of `QUOTES`."""
    places: Sequence[int] = ()
    """Where that text is cut."""
    calls: Sequence[Call] = ()


class Task(NamedTuple):
    """The script of one session."""

    name: str
    """Unique in a script; every prompt begins with it."""
    prompts: list[str]
    """What it is told, turn by turn; a child has one turn."""
    answers: list[Answer]
    """Call by call; a harness may ask for more (`END` is the answer then), or for fewer."""

    def family(self) -> Iterator[Task]:
        """This task and those below it."""
        yield self
        for answer in self.answers:
            for call in answer.calls:
                if call.child is not None:
                    yield from call.child.family()


END = Answer([{"type": "finish", "reason": {"kind": "stop"}}], ["it was", None], "found")
"""What a model says when its script is over."""


@st.composite
def tasks(draw: st.DrawFn, name: str = "0", *, depth: int = 2, turns: int = 2) -> Task:
    """Draw a session of a few turns; below it are up to `depth` levels of others.

    Sessions look for the same few things, so they find them before or after each other.
    """
    prompts = [f"{name} {draw(_WORDS)}" for _ in range(draw(st.sampled_from([1, turns, turns])))]
    answers = [Answer(draw(chunk_streams())) for _ in prompts[1:]]  # turns that a fork can go on from
    for number in range(draw(st.integers(1, 2))):
        calls = []
        for place in range(draw(st.sampled_from([0, 1, 2, 2] if number else [1, 2, 2]))):
            id = draw(st.sampled_from(["c0", "c1"]))
            if depth and draw(st.booleans()):
                below = f"{name}.{number}{place}"
                child = draw(tasks(below, depth=depth - 1, turns=1))
                calls.append(Call(id, child=child, fork=draw(st.sampled_from([False, True, True]))))
            else:
                calls.append(Call(id, draw(st.sampled_from("aaab"))))
        says = draw(st.lists(_WORDS | st.none(), max_size=2))
        quote = draw(st.sampled_from(QUOTES))
        places = draw(cuts()) if says or calls else []
        answers.append(Answer(draw(chunk_streams()), says, quote, places, calls))
    return Task(name, prompts, answers)


def scripts() -> st.SearchStrategy[list[Task]]:
    """Draw one or two sessions that go on at the same time, with what is below them."""
    names = st.sampled_from(["0", "01", "01"])
    return names.flatmap(
        lambda names: st.tuples(*(tasks(name, depth=2 - int(name)) for name in names)).map(list)
    )


def paces() -> st.SearchStrategy[list[int]]:
    """Draw how long everything takes in each session, by its place, over and over again, in milliseconds.

    Often those that began first are the slowest, so that the others overtake them.
    """
    return st.lists(st.sampled_from([0, 1, 9]), min_size=2, max_size=8) | st.sampled_from(
        [[9, 0], [9, 8, 7, 6, 0], [27, 9, 3, 1, 0]]
    )


def spoken(answer: Answer, known: Mapping[str, str], names: Mapping[str, str]) -> list[Chunk]:
    """The chunks of an answer, given the values that can be quoted.

    `names` are what the harness calls the tools: `look` takes `text`; `spawn` and `fork` take `prompt` and
    `description`.
    """
    chunks, finish = list(answer.chunks[:-1]), answer.chunks[-1]
    text = " ".join(known.get(answer.quote, "") if part is None else part for part in answer.says)
    if answer.says:
        deltas = [{"type": "text-delta", "index": _FIRST, "text": part} for part in cut(text, answer.places)]
        chunks += _block(_FIRST, {"type": "text", "text": text}, deltas)
    for index, call in enumerate(answer.calls, _FIRST + 1):
        if call.child is None:
            name, arguments = names["look"], {"text": call.looks_for}
        else:
            name = names["fork" if call.fork else "spawn"]
            prompt = f"{call.child.prompts[0]} {known.get(answer.quote, '')}"
            arguments = {"prompt": prompt, "description": "x"}
        block = {"type": "tool-call", "id": call.id, "name": name, "arguments": json.dumps(arguments)}
        rest = {"type": "tool-call-delta", "index": index, "id": call.id, "name": name}
        pieces = cut(block["arguments"], answer.places)
        chunks += _block(index, block, [{**rest, "argumentsDelta": piece} for piece in pieces])
    if answer.calls and finish["reason"]["kind"] in ("stop", "error"):
        finish = {**finish, "reason": {"kind": "tool-calls"}}
    return [*chunks, finish]


def _block(index: int, block: dict[str, Any], deltas: Sequence[Chunk]) -> list[Chunk]:
    start = {"type": "block-start", "index": index, "blockType": block["type"]}
    return [start, *deltas, {"type": "block-end", "index": index, "block": block}]


@st.composite
def logged_calls(draw: st.DrawFn) -> tuple[list[Event], list[list[Chunk]]]:
    """Draw the events of a log, and the model calls in it; several may be of one step, as retries are."""
    turns = ("step/start", "step/end", "turn/start", "turn/end", "tool/call", "session/title", "x/notice")
    events: list[Event] = []
    calls = draw(st.lists(chunk_streams(), max_size=4))
    retries = draw(st.booleans())
    for step, chunks in enumerate(calls, 1):
        place = {"turn": 1, "step": 1 if retries else step}
        said: list[tuple[str, Any]] = [("assistant/chunk", {**place, "chunk": chunk}) for chunk in chunks]
        between = [(kind, place) for kind in draw(st.lists(st.sampled_from(turns), max_size=2))]
        events += [
            {"type": kind, "seq": len(events) + n, "time": 0, "data": data}
            for n, (kind, data) in enumerate([*said, *between])
        ]
    return events, calls


@st.composite
def mutations(draw: st.DrawFn, events: Sequence[Event]) -> list[Event]:
    """Draw the log of a harness that did one thing otherwise: an event lost, doubled, moved or changed.

    What the model said, and what no replay compares (numbers of events, times), stays. So does the log when
    all that changed is how things are called: an id that stands nowhere else, say.
    """
    places = [n for n, event in enumerate(events) if event["type"] != "assistant/chunk"]
    changed = [jsontext.clone(event) for event in events]  # no two of them share a message then
    at = draw(st.sampled_from(places))
    what = draw(st.sampled_from(["lost", "doubled", "swapped", "leaf", "leaf", "leaf"]))
    if what == "lost":
        del changed[at]
    elif what == "doubled":
        changed.insert(at, jsontext.clone(changed[at]))
    elif what == "swapped":
        other = draw(st.sampled_from(places))
        changed[at], changed[other] = changed[other], changed[at]
    else:
        leaves = list(_leaves(changed[at]["data"]))
        if leaves:
            holder, key = draw(st.sampled_from(leaves))
            holder[key] = _other(holder[key])
    return changed if _told(changed) != _told(events) else list(events)


def _told(events: Sequence[Event]) -> bytes:
    """A log with ids by the order in which they come up, without what no replay compares."""
    left_out = {"seq": 0, "time": 0}
    text = b"\n".join(jsontext.dumps({**event, **left_out}) for event in events)
    ids = dict.fromkeys(value for event in events for _, value in event_ids(event))
    numbers = {id: number for number, id in enumerate(ids)}
    for id in sorted(ids, key=len, reverse=True):
        text = text.replace(id.encode("utf-8", "surrogatepass"), b"#%d" % numbers[id])
    return text


def _leaves(value: Any) -> Iterator[tuple[Any, Any]]:
    """Each leaf of a JSON value, as what holds it and its key there."""
    for key, item in value.items() if isinstance(value, dict) else enumerate(value):
        if isinstance(item, dict | list) and item:
            yield from _leaves(item)
        else:
            yield value, key


def _other(value: Any) -> Any:
    """A value that is as near as can be."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int | float):
        return value + 1
    return f"{value}." if isinstance(value, str) else "x"
