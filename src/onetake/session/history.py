"""The messages that a model sees, derived from the log and from nothing else.

Surface events (`user/message`, `assistant/message`, `tool/result`) say with `surfaceOp` what they do to the
history: `"append"` puts their message at its end; `{"op": "replace", "start": S, "end": E}` puts it in place
of the part that reaches from the event with seq S to the event with seq E, both still part of the history (so
compaction works on what is left of earlier compaction). A surface event without `surfaceOp` is not seen.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from onetake import jsontext
from onetake.errors import UsageError
from onetake.model.types import Message
from onetake.session.events import SURFACE_TYPES, USER_MESSAGE, Event


class HistoryError(UsageError):
    """A surface event does not fit the history before it; the text names the event."""


class History:
    """The history of a growing log: feed it each event once; appending one costs the copy of its message.

    Messages are copies: changing one never changes the log.
    """

    def __init__(self, events: Iterable[Event] = ()) -> None:
        self._seqs: list[int] = []
        self._messages: list[Message] = []
        for event in events:
            self.feed(event)

    def feed(self, event: Event) -> None:
        """Take in the next event of the log. Raises `HistoryError` when it does not fit."""
        if event["type"] not in SURFACE_TYPES or "surfaceOp" not in event:
            return
        op = event["surfaceOp"]
        if op == "append":
            self._messages.append(_message(event))
            self._seqs.append(event["seq"])
        elif isinstance(op, dict) and op.get("op") == "replace":
            first, last = self._place(event, op.get("start")), self._place(event, op.get("end"))
            if last < first:
                raise _misfit(event, f"it replaces {op['start']} to {op['end']}, which is backwards")
            self._messages[first : last + 1] = [_message(event)]
            self._seqs[first : last + 1] = [event["seq"]]
        else:
            raise _misfit(event, f"its surfaceOp is {op!r}, neither an append nor a replace")

    def messages(self) -> list[Message]:
        """Return the history so far, in order: a new list of the same copies each time."""
        return list(self._messages)

    def seqs(self) -> list[int]:
        """Return the `seq` of the event behind each message."""
        return list(self._seqs)

    def _place(self, event: Event, seq: Any) -> int:
        try:
            return self._seqs.index(seq)
        except ValueError:
            raise _misfit(event, f"it replaces event {seq!r}, which is not part of the history") from None


def derive_messages(events: Iterable[Event]) -> list[Message]:
    """Return the messages that a model would see after `events`. Pure; raises `HistoryError`."""
    return History(events).messages()


def _message(event: Event) -> Message:
    data = event.get("data")
    message = data
    if event["type"] != USER_MESSAGE:
        message = data.get("message") if isinstance(data, dict) else None
    if not isinstance(message, dict):
        raise _misfit(event, "its data is not, or does not hold, a message")
    copy: Message = jsontext.clone(message)
    return copy


def _misfit(event: Event, what: str) -> HistoryError:
    return HistoryError(f"event {event['seq']} ({event['type']}) cannot be part of the history: {what}")
