"""What holds for the log of a conversation, whatever was said to the agent and when: its turns, steps, calls
and messages, and the inbox that these came through.

Everything is read from the log, so these are invariants of any harness that writes format 0. A whole log goes
to `check_conversation`. A log that still grows goes to a `ConversationReader`, event by event: what is wrong
is known as soon as it is logged, and what is still open can be asked for at any moment.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from typing import Any

from onetake.model.types import Message
from onetake.session.events import (
    ASSISTANT_CHUNK,
    ASSISTANT_MESSAGE,
    END_SEED,
    INBOX_SPLICED,
    KNOWN_TYPES,
    REQUEST_CONTEXT,
    REQUEST_HEADER,
    STEP_END,
    STEP_START,
    SUBAGENT_DESCRIPTOR,
    TOOL_CALL,
    TOOL_RESULT,
    TURN_END,
    TURN_START,
    USER_MESSAGE,
    Event,
)
from onetake.session.history import derive_messages
from onetake.session.repair import Closing
from onetake.testing.errors import InvariantViolation

_IN_A_STEP = frozenset(
    {ASSISTANT_CHUNK, ASSISTANT_MESSAGE, TOOL_CALL, TOOL_RESULT, REQUEST_HEADER, REQUEST_CONTEXT}
)
_NAMES_ITS_TURN = KNOWN_TYPES.keys() - {TURN_START, SUBAGENT_DESCRIPTOR}  # a descriptor names the parent's
_NEW_CALL = frozenset({STEP_START, STEP_END, "llm/retry"})


def check_conversation(events: Iterable[Event], said: Iterable[str] | None = None) -> None:
    """A finished log is well-formed, and everything in it came to an end.

    Turn numbers rise, steps count from 1 on, nothing of a turn is logged outside of it, each tool call has
    one result, and results come in the order of their calls. Each message of the inbox was delivered once,
    or durably cancelled once. `said`, when given, are the ids of all that was said: nothing else was
    delivered, and nothing is missing.
    """
    reader = read(events)
    _judge(reader.wrong + reader.open() + reader.owed() + ([] if said is None else reader.unsaid(said)))


def check_repair(repair: Callable[[Sequence[Event]], Iterable[Closing]], events: Sequence[Event]) -> None:
    """A log that breaks off here is well-formed again with what `repair` appends to it.

    Messages may wait in the inbox: they are still owed. None may have left it and be nowhere.
    """
    repaired = [*events]
    for closing in repair(events):
        event: Event = {"type": closing.type, "seq": len(repaired), "time": 0, "data": closing.data}
        if closing.source_event_seqs is not None:
            event["sourceEventSeqs"] = closing.source_event_seqs
        repaired.append(event)
    reader = read(repaired)
    _judge([f"after the repair of {len(events)} events {w}" for w in reader.wrong + reader.open()])


def check_results(events: Iterable[Event], answer_of: Callable[[dict[str, Any]], str]) -> None:
    """A result that is no error holds what the tool said to this very call: `answer_of` its data."""
    calls = {event["seq"]: event["data"] for event in events if event["type"] == TOOL_CALL}
    for event in events:
        answer = _answer(event) if event["type"] == TOOL_RESULT else {}
        if answer.get("isError") is not False:
            continue
        expected = answer_of(calls[event["sourceEventSeqs"][0]])
        came = "".join(block["text"] for block in answer["content"])
        if came != expected:
            raise InvariantViolation(
                f"event {event['seq']}, the result of a call: expected {expected!r}, came {came!r}"
            )


def check_request(events: Iterable[Event], messages: Sequence[Message]) -> None:
    """What a request shows the model is what the log derives at that moment."""
    logged = derive_messages(events)
    if list(messages) != logged:
        raise InvariantViolation(
            f"what a request shows is what the log derives: expected {logged!r}, came {list(messages)!r}"
        )


def check_statuses(seen: Sequence[str]) -> None:
    """An agent is idle, then running, then idle again, until it is disposed for good."""
    allowed = {"idle": ("running", "disposed"), "running": ("idle", "disposed"), "disposed": ()}
    for before, after in pairwise(seen):
        if before != after and after not in allowed[before]:
            raise InvariantViolation(f"the status went from {before} to {after}, in {list(seen)}")


def read(events: Iterable[Event]) -> ConversationReader:
    """Read a log."""
    reader = ConversationReader()
    for event in events:
        reader.take(event)
    return reader


def _judge(wrong: list[str]) -> None:
    if wrong:
        raise InvariantViolation("; ".join(wrong))


class ConversationReader:
    """Reads the log of a conversation from its beginning on; `SessionLog.subscribe` can feed it."""

    def __init__(self) -> None:
        self.wrong: list[str] = []
        """What is wrong so far, in words, and no further event could mend."""
        self._turn: int | None = None
        self._step: int | None = None
        self._last_turn = 0
        self._last_step = 0
        self._asked: Counter[str] = Counter()
        """How many results each call id of the step is owed."""
        self._calls: dict[int, str] = {}
        """The started calls without a result, by the seq of their event."""
        self._asker: int | None = None
        """The seq of the message that asks for them."""
        self._broken_into: str | None = None
        """What was logged since the last chunk of a call that has no finish yet; empty: nothing."""
        self._inbox = _InboxReader(self.wrong)

    def take(self, event: Event) -> None:
        """Read the next event."""
        kind, data = event["type"], event["data"]
        before = len(self.wrong)
        self._placed(kind, data)
        self._together(kind, data)
        if kind == INBOX_SPLICED:
            self._inbox.splice(data)
        elif kind == USER_MESSAGE:
            self._inbox.deliver(data.get("id"))
        elif kind == ASSISTANT_MESSAGE:
            self._asked += Counter(b["id"] for b in _message(event)["content"] if b["type"] == "tool-call")
            self._asker = event["seq"]
        elif kind == TOOL_CALL:
            self._started(event["seq"], data["callId"])
        elif kind == TOOL_RESULT:
            self._answered(event)
        elif kind in (TURN_START, TURN_END, STEP_START, STEP_END):
            self._framed(kind, data)
        elif kind == END_SEED:  # what was copied was judged where it was logged
            self._turn = self._step = None
            self.wrong.clear()
            self._inbox.inherit()
        self.wrong[before:] = [f"event {event['seq']}: {what}" for what in self.wrong[before:]]

    def open(self) -> list[str]:
        """What has begun and not ended: a turn, a step, a message between inbox and history."""
        parts = (("turn", self._turn), ("step", self._step))
        return [f"{n} {p} is open at the end" for n, p in parts if p is not None] + self._inbox.between()

    def owed(self) -> list[str]:
        """The messages that wait in the inbox."""
        return [f"message {id} still waits in the inbox" for id in self._inbox.waiting()]

    def unsaid(self, said: Iterable[str]) -> list[str]:
        """How the log differs from what was said to the agent, by id."""
        return self._inbox.compare(list(said))

    def _framed(self, kind: str, data: Any) -> None:
        """A turn or a step begins or ends."""
        if kind == TURN_START:
            if self._turn is not None or data["turn"] <= self._last_turn:
                self.wrong.append(f"turn {data['turn']} starts inside or before turn {self._last_turn}")
            self._turn = self._last_turn = data["turn"]
            self._last_step = 0
        elif kind == STEP_START:
            if self._turn is None or self._step is not None or data["step"] != self._last_step + 1:
                self.wrong.append(f"step {data['step']} starts out of order, after step {self._last_step}")
            self._step = self._last_step = data["step"]
        elif kind == STEP_END:
            if self._step != data["step"]:
                self.wrong.append(f"step {data['step']} ends, but the open one is {self._step}")
            self.wrong += [f"call {id} has no result in its step" for id in (+self._asked).elements()]
            self._asked.clear()
            self._calls.clear()
            self._step = None
        else:
            if self._step is not None:
                self.wrong.append(f"turn {data['turn']} ends inside of step {self._step}")
            self._turn = self._step = None

    def _placed(self, kind: str, data: Any) -> None:
        """What belongs to a turn or a step is inside of it."""
        if kind in _IN_A_STEP and self._step is None:
            self.wrong.append(f"{kind} outside of a step")
        if kind == USER_MESSAGE and self._turn is None:
            self.wrong.append(f"{kind} outside of a turn")
        if kind in _NAMES_ITS_TURN and isinstance(data, dict):
            for name, here in (("turn", self._turn), ("step", self._step)):
                if name in data and data[name] != here and kind != STEP_START:
                    self.wrong.append(f"{kind} belongs to {name} {data[name]}, but the open one is {here}")

    def _together(self, kind: str, data: Any) -> None:
        """The chunks of one model call stand together."""
        if kind == ASSISTANT_CHUNK:
            if self._broken_into:
                self.wrong.append(f"{self._broken_into} stands between the chunks of a call")
            self._broken_into = None if data["chunk"].get("type") == "finish" else ""
        elif kind in _NEW_CALL:
            self._broken_into = None
        elif self._broken_into == "":
            self._broken_into = kind

    def _started(self, seq: int, id: str) -> None:
        """A call is one that the model asked for."""
        if list(self._calls.values()).count(id) >= self._asked[id]:
            self.wrong.append(f"call {id} is started, and the model did not ask for it")
        self._calls[seq] = id

    def _answered(self, event: Event) -> None:
        """A result has its own call, which is the oldest one without; or a call that was never started."""
        id, source = _message(event)["source"]["callId"], (event.get("sourceEventSeqs") or [None])[0]
        if self._asked[id] < 1:
            self.wrong.append(f"a result for call {id}, which is owed none")
        self._asked[id] -= 1
        own: Any = min(self._calls, default=self._asker)
        if source != own or self._calls.get(own, id) != id:
            self.wrong.append(f"the result of call {id} is of event {source}, the oldest open one is {own}")
        self._calls.pop(source if source in self._calls else own, None)
        told = _answer(event).get("toolCallId")
        if told != id:
            self.wrong.append(f"the result of call {id} says that it answers call {told}")


class _InboxReader:
    """Follows each message from the inbox to the conversation, or to its cancellation."""

    def __init__(self, wrong: list[str]) -> None:
        self._wrong = wrong
        self._queues: dict[str, list[str]] = {"next-turn": [], "next-step": []}
        self._state: dict[str, str] = {}
        """By id: `waiting`, `taken`, `canceled`, `delivered`."""
        self._inherited: list[str] = []

    def splice(self, data: Any) -> None:
        """Messages enter or leave a queue."""
        queue, start, count = self._queues[data["target"]], data["start"], data.get("removedCount", 0)
        if start < 0 or start + count > len(queue):
            self._wrong.append(f"{start}+{count} is spliced of a queue that holds {len(queue)}")
        inserted = [message["id"] for message in data["inserted"]]
        for id in queue[start : start + count]:
            self._state[id] = "canceled" if data.get("outcome") == "canceled" else "taken"
        for id in inserted:
            if self._state.get(id) not in (None, "taken"):
                self._wrong.append(f"message {id} enters the inbox, but it was {self._state[id]}")
            self._state[id] = "waiting"
        queue[start : start + count] = inserted

    def deliver(self, id: str | None) -> None:
        """A message joins the conversation; one that was never in the inbox is nobody's business here."""
        if id is None:
            return
        if self._state.get(id, "taken") != "taken":
            self._wrong.append(f"message {id} is delivered, but it was {self._state[id]}")
        self._state[id] = "delivered"

    def inherit(self) -> None:
        """What was logged so far is of another session, but for what still waits."""
        self._state = dict.fromkeys(self.waiting(), "waiting")
        self._inherited = self.waiting()

    def waiting(self) -> list[str]:
        """The ids of the messages in the queues."""
        return [id for queue in self._queues.values() for id in queue]

    def between(self) -> list[str]:
        """The messages that left their queue and are nowhere."""
        return [
            f"message {id} was taken and never delivered" for id, s in self._state.items() if s == "taken"
        ]

    def compare(self, said: list[str]) -> list[str]:
        """What was said and is not in the log, and the other way round."""
        there = [id for id in self._state if id not in self._inherited]
        lost = [f"message {id} was said and is nowhere in the log" for id in said if id not in self._state]
        return lost + [f"message {id} was never said" for id in there if id not in set(said)]


def _message(event: Event) -> Any:
    """The message of an event; early versions of the format have its parts in the data itself."""
    data = event["data"]
    if "message" in data:
        return data["message"]
    return {"source": {"callId": data.get("callId")}, "content": data["content"]}


def _answer(event: Event) -> Any:
    """What a tool result answers, and with what."""
    data = event["data"]
    return data["message"]["content"][0] if "message" in data else {**data, "toolCallId": data.get("callId")}
