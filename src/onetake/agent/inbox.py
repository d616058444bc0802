"""What was said to the agent and is not part of the conversation yet: two durable queues.

`next-turn` items each open a turn of their own, `next-step` items join the running turn before its next
model request. Every change is an `agent/inbox/spliced` event, so that after a crash the log alone tells what
is still owed. Each item leaves its queue exactly once: taken (it becomes a `user/message`) or cancelled.

While a model call streams, the inbox is held: what arrives then is logged when the call is over, in the order
in which it arrived, because a call's chunks must stay together in the log.
"""

from __future__ import annotations

from typing import Any, Literal

from onetake.model.types import Block, Message, new_id
from onetake.session.events import INBOX_SPLICED
from onetake.session.log import SessionLog

Target = Literal["next-turn", "next-step"]


def new_message(content: str | list[Block], source: dict[str, Any] | None) -> Message:
    """A user message with a fresh id; plain text becomes one text block, the default source is the user.

    Raises ValueError when there is no content at all.
    """
    blocks = [{"type": "text", "text": content}] if isinstance(content, str) else list(content)
    if not blocks:
        raise ValueError("a message needs at least one content block")
    return {"content": blocks, "source": source or {"kind": "user"}, "role": "user", "id": new_id()}


class Inbox:
    """The queues of one session, rebuilt from its log and written through it."""

    def __init__(self, log: SessionLog) -> None:
        self._log = log
        self._queues: dict[str, list[Message]] = {"next-turn": [], "next-step": []}
        self._held: list[tuple[Target, Message]] | None = None
        for event in log.events:
            if event["type"] == INBOX_SPLICED:
                self._apply(event["data"])

    def _apply(self, data: dict[str, Any]) -> list[Message]:
        queue = self._queues[data["target"]]
        start = data["start"]
        end = start + data.get("removedCount", 0)
        removed = queue[start:end]
        queue[start:end] = data["inserted"]
        return removed

    def _splice(self, data: dict[str, Any]) -> list[Message]:
        removed = self._apply(data)  # first: whoever is told of the event may say something at once
        self._log.append(INBOX_SPLICED, data)
        return removed

    def put(self, target: Target, message: Message) -> None:
        """Queue a message at the end; while the inbox is held it waits for `release`."""
        if self._held is not None:
            self._held.append((target, message))
            return
        start = len(self._queues[target])
        self._splice({"target": target, "start": start, "inserted": [message]})

    def hold(self) -> None:
        """Keep arrivals out of the log until `release`."""
        self._held = []

    def release(self) -> None:
        """Log what arrived since `hold`, in the order of arrival."""
        held, self._held = self._held or [], None
        for target, message in held:
            self.put(target, message)

    def pending(self) -> bool:
        """Whether anything waits in either queue."""
        return any(self._queues.values())

    def waiting(self, target: Target) -> int:
        """How many messages wait in one queue."""
        return len(self._queues[target])

    def take_for_turn(self) -> list[Message]:
        """What a new turn begins with: all that waits for the next step, then one item for the next turn."""
        taken = self.take_for_step()
        if self._queues["next-turn"]:
            taken += self._splice({"target": "next-turn", "start": 0, "removedCount": 1, "inserted": []})
        return taken

    def take_for_step(self) -> list[Message]:
        """What the next step of a running turn begins with: everything queued for it."""
        count = len(self._queues["next-step"])
        if not count:
            return []
        return self._splice({"target": "next-step", "start": 0, "removedCount": count, "inserted": []})

    def cancel(self, target: Target) -> list[Message]:
        """Durably drop everything in one queue and return it."""
        count = len(self._queues[target])
        if not count:
            return []
        return self._splice(
            {"target": target, "start": 0, "removedCount": count, "inserted": [], "outcome": "canceled"}
        )
