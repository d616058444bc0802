"""Waiting on a session log while the agent writes it.

A script may wait for what only the log shows: a turn that a background job started, a child that finished.
The store's reader takes complete lines only, so a torn tail is never mistaken for an event. A log is read
again only when its size changed.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol, TypeVar

from onetake.errors import UsageError
from onetake.fixture.lineage import SessionFacts
from onetake.snapshot.drive.numbering import child_of_number
from onetake.snapshot.drive.pending import Background, background_children, waiting_messages

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

    def __init__(
        self, header: dict[str, Any], events: list[Event], *, before: int = 0, left: bool = False
    ) -> None:
        self.header = header
        self.events = events
        seed = header.get("seedLength")
        inherited = seed if isinstance(seed, int) else 0
        self.own: list[Event] = events[inherited:]
        """The events without the history that a forked child inherited."""
        self.since = max(before - inherited, 0)
        """The place in `own` from which on it is the work of the process that runs now."""
        self.left = left
        """Whether the session went with an earlier process, so that nothing more will come of it."""

    @property
    def id(self) -> str:
        """The session id."""
        return str(self.header.get("id"))

    def last_turn(self, kind: str) -> int:
        """The highest turn number of the events of this type (`turn/start` or `turn/end`); 0 without any."""
        turns = [
            e["data"].get("turn")
            for e in self.own
            if e.get("type") == kind and isinstance(e.get("data"), dict)
        ]
        return max((turn for turn in turns if isinstance(turn, int)), default=0)

    @property
    def closed(self) -> bool:
        """Whether no turn is open."""
        for event in reversed(self.own):
            if event.get("type") in ("turn/start", "turn/end"):
                return bool(event["type"] == "turn/end")
        return True

    @cached_property
    def background(self) -> Background:
        """The children that this session has started in the background."""
        return background_children(self.own)

    @cached_property
    def unfinished(self) -> str | None:
        """What will go on in this session without anyone's doing; None: nothing, it is idle.

        A turn begins in the inbox and ends with `turn/end`, and from the start of a child in the background
        to its notice one is owed. So what is to come shows in the log at every moment.
        """
        if self.left:
            return None
        if not self.closed:
            return "a turn is open"
        if count := waiting_messages(self.own):
            return f"messages wait in the inbox: {count}"
        if owed := self.background.owed(self.since):
            return f"nobody has told it yet how these ended: {', '.join(owed)}"
        return None

    @property
    def idle(self) -> bool:
        """Whether nothing more comes of this session by itself."""
        return self.unfinished is None

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

    def __init__(self, root: Path, recorded: Sequence[SessionFacts] | None = None) -> None:
        """`recorded`: what the recording that is replayed says of its sessions; None: there is none."""
        self.root = root
        self._recorded = recorded
        self._cache: dict[Path, tuple[int, LiveLog]] = {}
        self._before: dict[Path, int] = {}
        self._resumed: set[str] = set()

    def read(self) -> list[LiveLog]:
        """All logs, in the order in which they first appeared (then by path)."""
        from onetake.session.jsonl import read_log

        for path in find_logs(self.root):
            known = self._cache.get(path)
            if known is not None and known[0] == path.stat().st_size:
                continue
            raw = path.read_bytes()
            try:
                log = read_log(raw, str(path), live=True)
            except UsageError:  # not even its header is complete yet
                continue
            before = self._before.get(path, 0)
            left = len(log.events) == before > 0 and log.id not in self._resumed
            self._cache[path] = (len(raw), LiveLog(log.header, log.events, before=before, left=left))
        return [log for _, log in self._cache.values()]

    def process_ended(self) -> None:
        """The agent is gone: what its sessions had under way will not go on, unless another one does it."""
        self._resumed.clear()
        self.read()
        self._before = {path: len(log.events) for path, (_, log) in self._cache.items()}
        self._cache.clear()

    def resumed(self, session_id: str) -> None:
        """The agent that runs now goes on with a session of an earlier one."""
        self._resumed.add(session_id)
        self._cache.clear()

    def of(self, session_id: str) -> LiveLog | None:
        """The log whose header has this id."""
        return next((log for log in self.read() if log.id == session_id), None)

    def children(self) -> list[LiveLog]:
        """The logs of child sessions, in the order of `read`."""
        return [log for log in self.read() if log.header.get("parentSession")]

    def child(self, number: int, opened: Sequence[str]) -> tuple[LiveLog | None, bool]:
        """The child that has this number (from 1) so far, and whether no other one can get it any more."""
        views = [in_order_of_creation(self.read(), opened) for _ in range(3)]
        return child_of_number(number, views, self._recorded)

    def unfinished(self) -> list[str]:
        """What still goes on, by session: nothing when all are idle."""
        return [f"session {log.id}: {log.unfinished}" for log in self.read() if not log.idle]


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
