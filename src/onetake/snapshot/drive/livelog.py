"""Waiting on a session log while the agent writes it.

A script may wait for what only the log shows: a turn that a background job started, a child that finished.
The store's reader takes complete lines only, so a torn tail is never mistaken for an event. A log is read
again only when its size changed.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Protocol, TypeVar

from onetake.errors import UsageError
from onetake.snapshot.suites import ops

Event = dict[str, Any]

_LOG_NAMES = ("session.jsonl.zstd", "session.jsonl")


def find_logs(root: Path) -> list[Path]:
    """Every session log under a sessions root (`<project>/<session id>/session.jsonl[.zstd]`), by path."""
    found = []
    for project in _folders(root):
        for session in _folders(project):
            found += [path for name in _LOG_NAMES if (path := session / name).is_file()]
    return sorted(found)


def _folders(root: Path) -> list[Path]:
    return [Path(entry.path) for entry in os.scandir(root) if entry.is_dir()]


class LiveLog:
    """What a log holds so far."""

    def __init__(self, header: dict[str, Any], events: list[Event]) -> None:
        self.header = header
        self.events = events
        seed = header.get("seedLength")
        self.own: list[Event] = events[seed:] if isinstance(seed, int) else events
        """The events without the history that a forked child inherited."""

    def last_turn(self, kind: str) -> int:
        """The highest turn number of the events of this type (`turn/start` or `turn/end`); 0 without any."""
        turns = [
            e["data"].get("turn")
            for e in self.own
            if e.get("type") == kind and isinstance(e.get("data"), dict)
        ]
        return max((turn for turn in turns if isinstance(turn, int)), default=0)

    @property
    def idle(self) -> bool:
        """Whether no turn is open."""
        for event in reversed(self.own):
            if event.get("type") in ("turn/start", "turn/end"):
                return bool(event["type"] == "turn/end")
        return True

    def after_turn_end(self) -> Iterable[str]:
        """The types of the events after the last `turn/end`; nothing when no turn ended."""
        types = [str(event.get("type")) for event in self.own]
        if "turn/end" not in types:
            return []
        return types[len(types) - types[::-1].index("turn/end") :]

    def inbox_texts(self) -> Iterable[str]:
        """The text of every message that was ever put into the inbox."""
        for event in self.own:
            if event.get("type") == "agent/inbox/spliced":
                for message in event["data"].get("inserted", []):
                    yield "".join(str(block.get("text", "")) for block in message["content"])


class LiveLogs:
    """The logs of a sessions root, read as they grow."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._cache: dict[Path, tuple[int, LiveLog]] = {}

    def read(self) -> list[LiveLog]:
        """All logs, in the order in which they first appeared (then by path)."""
        from onetake.session.jsonl import read_log

        for path in find_logs(self.root):
            raw = path.read_bytes()
            known = self._cache.get(path)
            if known is None or known[0] != len(raw):
                try:
                    log = read_log(raw, str(path), live=True)
                except UsageError:  # not even its header is complete yet
                    continue
                self._cache[path] = (len(raw), LiveLog(log.header, log.events))
        return [log for _, log in self._cache.values()]

    def of(self, session_id: str) -> LiveLog | None:
        """The log whose header has this id."""
        return next((log for log in self.read() if log.header.get("id") == session_id), None)

    def children(self, opened: Sequence[str]) -> list[LiveLog]:
        """The logs of child sessions, in the order in which fixtures are numbered."""
        from onetake.fixture.lineage import session_facts
        from onetake.replay.binding import bind

        logs = in_order_of_creation(self.read(), opened)
        index = bind([session_facts(log.header, log.events) for log in logs])
        return sorted(
            (log for log in logs if log.header.get("parentSession")), key=lambda log: index[log.header["id"]]
        )


class HasHeader(Protocol):
    """A log of any kind."""

    header: dict[str, Any]


L = TypeVar("L", bound=HasHeader)


def in_order_of_creation(logs: Iterable[L], opened: Sequence[str]) -> list[L]:
    """The sessions that the script opened in its order, then the others by their own time (then by id)."""
    order = {session: index for index, session in enumerate(opened)}

    def key(log: L) -> tuple[int, Any, str]:
        session = str(log.header.get("id"))
        created = log.header.get("createdAt")
        return order.get(session, len(order)), created if isinstance(created, int) else 0, session

    return sorted(logs, key=key)


def log_condition(
    step: ops.LogStep, logs: LiveLogs, session: str, opened: Sequence[str]
) -> tuple[str, Callable[[], bool]]:
    """What a step of the script waits for in a log: in words, and as a condition to ask again and again."""

    def current(condition: Callable[[LiveLog], bool]) -> Callable[[], bool]:
        def holds() -> bool:
            log = logs.of(session)
            return log is not None and condition(log)

        return holds

    match step:
        case ops.WaitForTurnStart(minimum_turn=turn):
            return f"the start of turn {turn}", current(lambda log: log.last_turn("turn/start") >= turn)
        case ops.WaitForTurnEnd():
            return "the end of the turn", current(lambda log: log.last_turn("turn/start") > 0 and log.idle)
        case ops.WaitForEventAfterTurnEnd(type=kind):
            return f"an event of type {kind} after the end of the turn", current(
                lambda log: kind in log.after_turn_end()
            )
        case ops.WaitForInboxMessage(text=text):
            return f"a message with {text!r} in the inbox", current(
                lambda log: any(text in message for message in log.inbox_texts())
            )
        case ops.WaitForSubagentTurnEnd(child=child, minimum_turn=turn):

            def ended() -> bool:
                children = logs.children(opened)
                chosen = children if child is None else children[child - 1 : child]
                return any(log.last_turn("turn/end") >= turn for log in chosen)

            return f"the end of turn {turn} of child {child or '(any)'}", ended
