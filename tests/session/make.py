"""Small logs for the tests of this room."""

from __future__ import annotations

import itertools
from typing import Any

from onetake.session.events import Event, Header, make_header
from onetake.session.log import SessionLog


def header(session_id: str = "s-1") -> Header:
    """Return a header as a fixture has it."""
    return make_header(session_id, created_at=0)


def delta(seq: int, text: str = "x", *, time: Any = 0, kind: str = "text-delta", index: int = 0) -> Event:
    """Return the event of a text or reasoning delta."""
    chunk = {"type": kind, "index": index, "text": text}
    return {
        "type": "assistant/chunk",
        "seq": seq,
        "time": time,
        "data": {"turn": 1, "step": 1, "chunk": chunk},
    }


def tool_delta(seq: int, text: str = "{", *, name: str | None = None, call: str = "c") -> Event:
    """Return the event of a tool call delta."""
    chunk: dict[str, Any] = {"type": "tool-call-delta", "index": 0, "id": call}
    if name is not None:
        chunk["name"] = name
    chunk["argumentsDelta"] = text
    return {"type": "assistant/chunk", "seq": seq, "time": 0, "data": {"turn": 1, "step": 1, "chunk": chunk}}


def user(text: str, message_id: str = "m") -> dict[str, Any]:
    """Return a user message."""
    return {
        "content": [{"type": "text", "text": text}],
        "source": {"kind": "user"},
        "role": "user",
        "id": message_id,
    }


def assistant(*blocks: dict[str, Any]) -> dict[str, Any]:
    """Return the data of an `assistant/message` in turn 1, step 1."""
    message = {"role": "assistant", "content": list(blocks), "source": {"kind": "model"}, "id": "a"}
    return {"turn": 1, "step": 1, "message": message}


def call_block(call: str) -> dict[str, Any]:
    """Return the block of a tool call."""
    return {"type": "tool-call", "id": call, "name": "bash", "arguments": "{}"}


def counting_log(session_id: str = "s-1") -> SessionLog:
    """Return an empty log whose clock ticks once per event, from 1."""
    return SessionLog(header(session_id), clock=itertools.count(1).__next__)


def started_turn(session_id: str = "s-1") -> SessionLog:
    """Return a log that stands in turn 1, step 1."""
    log = counting_log(session_id)
    log.append("turn/start", {"turn": 1})
    log.append("step/start", {"turn": 1, "step": 1})
    log.append("user/message", user("hello"), surface_op="append")
    return log
