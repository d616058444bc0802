"""What holds for the log of a conversation, whatever was said to the agent and when: its turns, steps, calls
and messages.

Everything is read from the log of a session, so these are invariants of any harness that writes format 0
(appendix A of the design).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from typing import Any

from onetake.model.types import Message
from onetake.session.events import Event
from onetake.session.history import derive_messages
from onetake.testing.errors import InvariantViolation

_PLACED = ("assistant/", "tool/")
_IN_A_STEP = ("assistant/", "tool/", "user/", "request/")


def check_conversation(events: Sequence[Event], said: Iterable[str] | None = None) -> None:
    """A finished log is well-formed; of each message that was `said` (by id), one thing became.

    Turn numbers rise, steps count from 1 on, each step and turn that is opened is closed, nothing of a turn
    is logged behind its end, each tool call has exactly one result, and results come in the order of their
    calls. With `said`: each message is in the conversation once, or durably cancelled once, and nothing else
    is there.
    """
    wrong = faults(events, said)
    if wrong:
        raise InvariantViolation("; ".join(wrong))


def check_results(events: Sequence[Event], answer_of: Callable[[str, str], str]) -> None:
    """A result that is no error holds what the tool said to this very call: `answer_of` (call id, name)."""
    names = {event["seq"]: event["data"]["name"] for event in events if event["type"] == "tool/call"}
    for event in events:
        message = event["data"]["message"] if event["type"] == "tool/result" else None
        if message is None or message["content"][0]["isError"]:
            continue
        expected = answer_of(message["source"]["callId"], names[event["sourceEventSeqs"][0]])
        came = "".join(block["text"] for block in message["content"][0]["content"])
        if came != expected:
            raise InvariantViolation(f"the result of a call: expected {expected!r}, came {came!r}")


def check_request(events: Sequence[Event], messages: Sequence[Message]) -> None:
    """What a request shows the model is what the log derives at that moment."""
    logged = derive_messages(events)
    if list(messages) != logged:
        raise InvariantViolation(
            f"the request shows {len(messages)} messages, the log derives {len(logged)}; they must be equal"
        )


def check_statuses(seen: Sequence[str]) -> None:
    """An agent is idle, then running, then idle again, until it is disposed for good."""
    allowed = {"idle": ("running", "disposed"), "running": ("idle", "disposed"), "disposed": ()}
    for before, after in pairwise(seen):
        if before != after and after not in allowed[before]:
            raise InvariantViolation(f"the status went from {before} to {after}, in {list(seen)}")


def faults(events: Sequence[Event], said: Iterable[str] | None = None) -> list[str]:
    """What is wrong with a finished log, in words; nothing for a good one."""
    reader = _Reader()
    for event in events:
        reader.take(event)
    wrong = reader.finished()
    if said is not None:
        delivered = [event["data"]["id"] for event in events if event["type"] == "user/message"]
        wrong += _placement(events, list(said), delivered)
    return wrong


class _Reader:
    """Reads a log from its beginning to its end."""

    def __init__(self) -> None:
        self._wrong: list[str] = []
        self._turn: int | None = None
        self._step: int | None = None
        self._last_turn = 0
        self._last_step = 0
        self._calls: dict[int, str] = {}
        """The calls without a result, by the seq of their event."""
        self._broken_into: str | None = None
        """What was logged since the last chunk of a call that has no finish yet; empty: nothing."""

    def take(self, event: Event) -> None:
        """Read the next event."""
        kind, data = event["type"], event["data"]
        self._together(kind, data)
        if kind == "turn/start":
            if self._turn is not None or data["turn"] <= self._last_turn:
                self._wrong.append(f"turn {data['turn']} starts inside or before another")
            self._turn = self._last_turn = data["turn"]
            self._last_step = 0
        elif kind == "turn/end":
            if self._turn != data["turn"] or self._step is not None:
                self._wrong.append(f"turn {data['turn']} ends while it or a step is not as it should be")
            self._turn = None
        elif kind == "step/start":
            if self._turn != data["turn"] or self._step is not None or data["step"] != self._last_step + 1:
                self._wrong.append(f"step {data['step']} starts out of order")
            self._step = self._last_step = data["step"]
        elif kind == "step/end":
            if self._step != data["step"] or self._calls:
                self._wrong.append(f"step {data['step']} ends with {len(self._calls)} open calls")
            self._step = None
        elif kind.startswith(_IN_A_STEP):
            self._placed(kind, data)
        if kind == "tool/call":
            self._calls[event["seq"]] = data["callId"]
        elif kind == "tool/result":
            self._answered(event)

    def finished(self) -> list[str]:
        """What was wrong, now that the log is over."""
        if self._turn is not None or self._step is not None:
            self._wrong.append("a turn or step is open at the end")
        return self._wrong

    def _together(self, kind: str, data: Any) -> None:
        """The chunks of one call stand together."""
        if kind == "assistant/chunk":
            if self._broken_into:
                self._wrong.append(f"{self._broken_into} between the chunks of a call")
            self._broken_into = None if data["chunk"].get("type") == "finish" else ""
        elif kind in ("step/start", "step/end", "llm/retry"):
            self._broken_into = None
        elif self._broken_into == "":
            self._broken_into = kind

    def _placed(self, kind: str, data: Any) -> None:
        if self._step is None:
            self._wrong.append(f"{kind} outside of a step")
        if kind.startswith(_PLACED) and (data["turn"], data["step"]) != (self._turn, self._step):
            self._wrong.append(f"{kind} belongs to another step")

    def _answered(self, event: Event) -> None:
        sources = event.get("sourceEventSeqs") or [None]
        source, call = sources[0], event["data"]["message"]["source"]["callId"]
        if self._calls.get(source) != call or source != min(self._calls):
            self._wrong.append("a result without its call, twice, or out of order")
        answer = event["data"]["message"].get("content")
        if answer and answer[0].get("toolCallId") != call:
            self._wrong.append(f"the result of {call} says that it answers {answer[0].get('toolCallId')}")
        self._calls.pop(source, None)


def _placement(events: Sequence[Event], said: list[str], delivered: list[str]) -> list[str]:
    """What is wrong with the inbox: each message is delivered once, or cancelled once, never both."""
    queues: dict[str, list[str]] = {"next-turn": [], "next-step": []}
    cancelled: list[str] = []
    wrong: list[str] = []
    for event in events:
        if event["type"] != "agent/inbox/spliced":
            continue
        data = event["data"]
        queue, start = queues[data["target"]], data["start"]
        removed = queue[start : start + data.get("removedCount", 0)]
        if len(removed) != data.get("removedCount", 0):
            wrong.append("a splice removes what is not there")
        queue[start : start + len(removed)] = [message["id"] for message in data["inserted"]]
        if data.get("outcome") == "canceled":
            cancelled += removed
    wrong += [f"{name} is not empty" for name, queue in queues.items() if queue]
    if sorted(delivered + cancelled) != sorted(said):
        wrong.append("a message was lost, delivered twice, or both delivered and cancelled")
    return wrong
