"""What holds for a session log and the history that is derived from it.

The history is a function of the log and of nothing else: the same at any time, from the start or step by
step, before and after any way to store the log, whatever else is logged in between.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, Protocol, TypeVar

from onetake import jsontext
from onetake.model.types import Message
from onetake.session.events import Event
from onetake.testing.errors import InvariantViolation

_T = TypeVar("_T")
Derive = Callable[[Sequence[Event]], list[Message]]
"""The history of a log, such as `onetake.session.history.derive_messages`."""


class History(Protocol):
    """A history that grows with its log, such as `onetake.session.history.History`."""

    def feed(self, event: Event) -> None:
        """Take the next event."""
        ...

    def messages(self) -> list[Message]:
        """The history so far."""
        ...


def check_seqs(events: Iterable[Event]) -> None:
    """Events are numbered from 0 on, one by one."""
    for place, event in enumerate(events):
        if type(event.get("seq")) is not int or event["seq"] != place:
            raise InvariantViolation(
                f"event {place} ({event.get('type')}) has seq {event.get('seq')!r}; numbers are given once, "
                "in order, without holes"
            )


def check_derivation(derive: Derive, new: Callable[[], History], events: Sequence[Event]) -> None:
    """Deriving twice, and step by step, gives the same; at every event on the way."""
    history = new()
    for place, event in enumerate(events):
        _result(partial(history.feed, event), f"at event {place}")
        once, grown = derive(events[: place + 1]), history.messages()
        if once != grown:
            raise InvariantViolation(
                f"after event {place} ({event['type']}) the whole derives {once!r}, step by step {grown!r}"
            )
    if derive(events) != derive(copy.deepcopy(events)):
        raise InvariantViolation("deriving twice gives two histories")


def check_seeded(
    derive: Derive,
    go_on: Callable[[Sequence[Event], Sequence[Event]], list[Message]],
    events: Sequence[Event],
    place: int,
) -> None:
    """A log that begins with a seed, the events before `place`, and goes on derives what the whole does."""
    came = _result(lambda: go_on(events[:place], events[place:]), f"after a seed of {place} events")
    expected = derive(events)
    if came != expected:
        raise InvariantViolation(f"after a seed of {place} events: expected {expected!r}, came {came!r}")


def check_independence(derive: Derive, events: Sequence[Event], noise: Sequence[tuple[int, Event]]) -> None:
    """Events that are no messages change nothing: `noise` holds such events, and places to put them."""
    noisy = list(events)
    for place, event in noise:
        noisy.insert(place % (len(noisy) + 1), event)
    moved = {id(event): place for place, event in enumerate(noisy)}
    seq_of = {event["seq"]: moved[id(event)] for event in events}
    renumbered = [_renumbered(event, place, seq_of) for place, event in enumerate(noisy)]
    came, expected = _result(lambda: derive(renumbered), "with other events in between"), derive(events)
    if came != expected:
        raise InvariantViolation(f"with other events in between: expected {expected!r}, came {came!r}")


def _renumbered(event: Event, seq: int, seq_of: dict[int, int]) -> Event:
    changed = {**event, "seq": seq}
    op = event.get("surfaceOp")
    if isinstance(op, dict):
        changed["surfaceOp"] = {**op, "start": seq_of[op["start"]], "end": seq_of[op["end"]]}
    return changed


def check_no_alias(derive: Derive, events: Sequence[Event]) -> None:
    """Whoever changes the messages of a history changes no log."""
    before = copy.deepcopy(list(events))
    for message in derive(events):
        _spoil(message)
    if list(events) != before:
        raise InvariantViolation("the history shares what it holds with the log: changing one changed both")


def _spoil(value: Any) -> None:
    """Change everything in a JSON value that can be changed."""
    for item in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        _spoil(item)
    if isinstance(value, dict | list):
        value.clear()


def check_saved(
    derive: Derive,
    events: Sequence[Event],
    save: Callable[[Sequence[Event]], bytes],
    load: Callable[[bytes], Sequence[Event]],
) -> None:
    """A log that was stored and read again derives the same history, as JSON has it: two surrogates that make
    a pair are one character there."""
    came = _result(lambda: derive(load(save(events))), "stored and read")
    expected = jsontext.loads(jsontext.dumps(derive(events)))
    if came != expected:
        raise InvariantViolation(f"stored and read: expected {expected!r}, came {came!r}")


def _result(attempt: Callable[[], _T], where: str) -> _T:
    try:
        return attempt()
    except Exception as error:
        raise InvariantViolation(f"{where}: came {type(error).__name__}: {error}") from error
