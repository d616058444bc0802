"""The session log in memory: one writer appends, anyone may watch, and the history follows along."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from onetake.model.types import Message
from onetake.session.events import Event, Header, make_event
from onetake.session.history import History


def ms_now() -> int:
    """Return the time in milliseconds since 1970."""
    return time.time_ns() // 1_000_000


class SessionLog:
    """The append-only log of one session.

    What is appended belongs to the log from then on: the caller must not change `data` afterwards.
    """

    def __init__(
        self, header: Header, events: Iterable[Event] = (), *, clock: Callable[[], int] = ms_now
    ) -> None:
        self.header = header
        self.events: list[Event] = list(events)
        """All events so far; for reading only."""
        self._clock = clock
        self._subscribers: tuple[Callable[[Event], None], ...] = ()
        self._history = History()
        self._derived = 0

    @property
    def id(self) -> str:
        """The id of the session."""
        session_id: str = self.header["id"]
        return session_id

    @property
    def next_seq(self) -> int:
        """The `seq` that the next event gets."""
        return len(self.events)

    def append(
        self,
        type_: str,
        data: Any,
        *,
        source_event_seqs: Sequence[int] | None = None,
        surface_op: Any = None,
    ) -> Event:
        """Append one event, tell every subscriber in the order of subscription, and return it."""
        event = make_event(
            type_,
            len(self.events),
            self._clock(),
            data,
            source_event_seqs=source_event_seqs,
            surface_op=surface_op,
        )
        self.events.append(event)
        for tell in self._subscribers:
            tell(event)
        return event

    def subscribe(self, tell: Callable[[Event], None]) -> Callable[[], None]:
        """Call `tell` with every event from now on, until the returned function is called."""

        def once(event: Event) -> None:  # a wrapper of its own, so that subscribing twice can be undone once
            tell(event)

        self._subscribers = (*self._subscribers, once)

        def unsubscribe() -> None:
            self._subscribers = tuple(other for other in self._subscribers if other is not once)

        return unsubscribe

    def messages(self) -> list[Message]:
        """Return the model history so far; only events since the last call are looked at.

        The messages are copies that later calls return again, so change none; the log is safe either way.
        """
        while self._derived < len(self.events):
            self._history.feed(self.events[self._derived])
            self._derived += 1
        return self._history.messages()
