"""What the log of a session says is still to come: messages in its inbox, and notices that it is owed.

A child in the background is named by the `meta.subagentId` of the tool result that starts it. Its parent is
told how it ended once: by a message in the inbox whose source has the same `subagentId`, or by a later result
that hands the answer over, with the same `meta`. Between these two the parent is owed a notice, whatever the
child does, so another turn of it will come. Agents that do not log this owe nothing that could be seen.

Nothing here raises: what is malformed says nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from onetake.session.events import INBOX_SPLICED, SUBAGENT_ID, TOOL_RESULT

Event = dict[str, Any]


class Background(msgspec.Struct, frozen=True):
    """The children in the background of one session."""

    started: dict[str, int]
    """Their ids, in the order of their starts, with the place of the result that started them."""
    told: set[str]
    """The ids of those of whose end the session was told."""

    def owed(self, since: int = 0) -> list[str]:
        """Whose end the session will still be told, of those that were started at the place `since` or
        later."""
        return [child for child, place in self.started.items() if place >= since and child not in self.told]


def background_children(events: Sequence[Event]) -> Background:
    """Read from a session's own events who was started, and of whom it was told."""
    children = Background({}, set())
    for place, event in enumerate(events):
        data = event.get("data")
        if not isinstance(data, dict):
            continue
        if event.get("type") == TOOL_RESULT:
            for child in _named(data.get("meta")):
                if child in children.started:
                    children.told.add(child)
                else:
                    children.started[child] = place
        elif event.get("type") == INBOX_SPLICED:
            for message in _list(data.get("inserted")):
                children.told.update(_named(message.get("source") if isinstance(message, dict) else None))
    return children


def waiting_messages(events: Sequence[Event]) -> int:
    """How many messages are in the inbox after these events."""
    queues: dict[str, list[Any]] = {}
    for event in events:
        data = event.get("data")
        if event.get("type") == INBOX_SPLICED and isinstance(data, dict):
            queue = queues.setdefault(str(data.get("target")), [])
            start, removed = _count(data.get("start")), _count(data.get("removedCount"))
            queue[start : start + removed] = _list(data.get("inserted"))
    return sum(map(len, queues.values()))


def _named(holder: Any) -> Iterator[str]:
    child = holder.get(SUBAGENT_ID) if isinstance(holder, dict) else None
    if isinstance(child, str):
        yield child


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _count(value: Any) -> int:
    return value if isinstance(value, int) and value > 0 else 0
