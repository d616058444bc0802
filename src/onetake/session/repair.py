"""Close a turn that a killed process left open, so that the session can go on.

A model refuses a history in which a tool call has no result, and the loop refuses to start a turn inside a
turn. So each open call gets a result that says honestly what is known about it, and step and turn are closed.
A message that had left the inbox and is not in the history yet goes back, because no model has seen it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from onetake.model.types import new_id
from onetake.session.events import (
    ASSISTANT_MESSAGE,
    INBOX_SPLICED,
    STEP_END,
    STEP_START,
    TOOL_CALL,
    TOOL_RESULT,
    TURN_END,
    TURN_START,
    USER_MESSAGE,
    Event,
)

UNKNOWN_OUTCOME = (
    "Error: the agent was stopped while this tool call was running. Nobody knows what it has done. Look at "
    "the state of the world before you try again, unless the call only reads."
)
NOT_STARTED = "Error: the agent was stopped before this tool call was started. It has had no effect."


class Closing(NamedTuple):
    """An event to append, as the arguments of `SessionLog.append`."""

    type: str
    data: dict[str, Any]
    source_event_seqs: list[int] | None = None
    surface_op: str | None = None


class _Call(NamedTuple):
    turn: Any
    step: Any
    event: Event
    started: bool


def close_interrupted(events: Sequence[Event], *, make_id: Callable[[], str] = new_id) -> list[Closing]:
    """Return what to append to `events` to close an interrupted turn; nothing when no turn is open. Pure."""
    turn = _open(events, TURN_START, TURN_END)
    if turn is None:
        return []
    tail = events[turn["seq"] :]
    closing = _put_back(events, turn["seq"])
    closing += [_result(call_id, call, make_id()) for call_id, call in _open_calls(tail)]
    step = _open(tail, STEP_START, STEP_END)
    if step is not None:
        closing.append(
            Closing(STEP_END, {"turn": _at(step, "data", "turn"), "step": _at(step, "data", "step")})
        )
    closing.append(Closing(TURN_END, {"turn": _at(turn, "data", "turn"), "reason": {"kind": "interrupted"}}))
    return closing


def _open(events: Iterable[Event], opening: str, ending: str) -> Event | None:
    found = None
    for event in events:
        if event["type"] == opening:
            found = event
        elif event["type"] == ending:
            found = None
    return found


def _put_back(events: Iterable[Event], since: int) -> list[Closing]:
    """Return what puts messages back that were taken after the event `since` and never delivered."""
    queues: dict[str, list[Any]] = {"next-step": [], "next-turn": []}
    taken: dict[str, list[Any]] = {"next-step": [], "next-turn": []}
    for event in events:
        data = event["data"]
        if event["type"] == USER_MESSAGE:
            for name, messages in taken.items():
                taken[name] = [message for message in messages if _at(message, "id") != _at(data, "id")]
        elif event["type"] == INBOX_SPLICED:
            name, start, inserted = str(_at(data, "target")), _at(data, "start"), _at(data, "inserted")
            if name not in queues or type(start) is not int or not isinstance(inserted, list):
                continue
            count = _at(data, "removedCount")
            end = start + (count if type(count) is int else 0)
            if event["seq"] > since and _at(data, "outcome") != "canceled":
                taken[name] += queues[name][start:end]
            queues[name][start:end] = inserted
    return [
        Closing(INBOX_SPLICED, {"target": name, "start": 0, "inserted": messages})
        for name, messages in taken.items()
        if messages
    ]


def _open_calls(events: Iterable[Event]) -> list[tuple[str, _Call]]:
    """Return the calls without a result, in the order in which the model made them.

    Models give an id to several calls of one step: each call is owed a result, and the oldest gets it first.
    """
    calls: list[tuple[str, _Call]] = []
    for event in events:
        turn, step = _at(event, "data", "turn"), _at(event, "data", "step")
        if event["type"] == ASSISTANT_MESSAGE:
            content = _at(event, "data", "message", "content")
            for block in content if isinstance(content, list) else ():
                if _at(block, "type") == "tool-call":
                    calls.append((str(_at(block, "id")), _Call(turn, step, event, started=False)))
        elif event["type"] == TOOL_CALL:
            call_id = str(_at(event, "data", "callId"))
            started = (call_id, _Call(turn, step, event, started=True))
            place = next(
                (n for n, (id, call) in enumerate(calls) if id == call_id and not call.started), None
            )
            if place is None:
                calls.append(started)
            else:
                calls[place] = started
        elif event["type"] == TOOL_RESULT:
            call_id = str(_at(event, "data", "message", "source", "callId"))
            place = next((n for n, (id, _) in enumerate(calls) if id == call_id), None)
            if place is not None:
                del calls[place]
    return calls


def _at(value: Any, *keys: str) -> Any:
    """Look into a payload, which nobody has checked."""
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return value


def _result(call_id: str, call: _Call, message_id: str) -> Closing:
    text = UNKNOWN_OUTCOME if call.started else NOT_STARTED
    code = "TOOL_OUTCOME_UNKNOWN" if call.started else "ABORTED_BEFORE_DISPATCH"
    content = {
        "type": "tool-result",
        "toolCallId": call_id,
        "content": [{"type": "text", "text": text}],
        "isError": True,
    }
    message = {
        "source": {"kind": "tool", "callId": call_id},
        "content": [content],
        "role": "user",
        "id": message_id,
    }
    data = {
        "turn": call.turn,
        "step": call.step,
        "message": message,
        "error": {"name": "InterruptedError", "code": code},
    }
    return Closing(TOOL_RESULT, data, [call.event["seq"]], "append")
