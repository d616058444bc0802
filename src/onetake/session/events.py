"""Headers and events of a session log (format 0): how they are made, and which types we know.

Both are plain JSON objects, because a log must give back fields and types that nobody here has heard of:

- header: `{type: "session", version: 0, id, createdAt, cwd?, parentSession?, seedLength?, origin?,
  delegationDepth, agentPreset?}`
- event: `{type, seq, time, data, sourceEventSeqs?, surfaceOp?, ignorable?}`; `seq` counts from 0 without
  holes, `time` is in milliseconds since 1970
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

Event = dict[str, Any]
Header = dict[str, Any]

FORMAT_VERSION = 0

SESSION = "session"
END_SEED = "session/end-seed"
TITLE = "session/title"
INBOX_SPLICED = "agent/inbox/spliced"
TURN_START = "turn/start"
TURN_END = "turn/end"
STEP_START = "step/start"
STEP_END = "step/end"
USER_MESSAGE = "user/message"
ASSISTANT_CHUNK = "assistant/chunk"
ASSISTANT_MESSAGE = "assistant/message"
REQUEST_HEADER = "request/header"
REQUEST_CONTEXT = "request/context"
TOOL_CALL = "tool/call"
TOOL_RESULT = "tool/result"
COMPACTION_SUMMARY = "compaction/summary"
SUBAGENT_DESCRIPTOR = "subagent/descriptor"

SUBAGENT_ID = "subagentId"
"""Names a child in the background in its parent's log: in the `meta` of the result that starts it and of
those that hand its answer over, and in the `source` of the notice that tells how it ended."""

SURFACE_TYPES = frozenset({USER_MESSAGE, ASSISTANT_MESSAGE, TOOL_RESULT})
"""The events that make model history (see `onetake.session.history`)."""

KNOWN_TYPES = {
    END_SEED: "what was copied from the parent of a forked session ends here",
    TITLE: "the title of the conversation",
    INBOX_SPLICED: "messages entered the inbox, or left it",
    TURN_START: "a turn begins: there is input",
    TURN_END: "it ends, and why",
    STEP_START: "a step begins: one model call, and the tools that it asks for",
    STEP_END: "it ends",
    USER_MESSAGE: "what the user, or a notice on somebody's behalf, says to the model",
    REQUEST_HEADER: "configuration, system prompt and tools of the requests from here on",
    REQUEST_CONTEXT: "provider and model of the requests from here on",
    ASSISTANT_CHUNK: "one element of the model's stream",
    ASSISTANT_MESSAGE: "the answer that the stream came to",
    TOOL_CALL: "a tool is started",
    TOOL_RESULT: "what the model is told of a call: its outcome, an error, or that it was canceled",
    "llm/retry": "a model call failed and will be made again",
    "llm/retry-started": "it is made again",
    "compaction/start": "the history is about to be shortened",
    COMPACTION_SUMMARY: "the text that stands for what was taken out",
    "compaction/end": "the shortening is over",
    SUBAGENT_DESCRIPTOR: "who spawned this session: call, turn and step of the parent",
    "todo/write": "the to-do list, as it is from here on",
    "approval/policy": "which tool calls need somebody's consent",
    "approval/asked": "consent to a call was asked for",
    "approval/decided": "it was given or refused",
    "sandbox/mode": "what tools may reach from here on",
    "hook/invoked": "a hook of the user's was started",
    "hook/result": "what it said",
}
"""The types whose meaning is known here. Others never hinder reading, only resuming (`unresumable_types`)."""


def make_header(
    session_id: str,
    *,
    created_at: int,
    cwd: str | None = None,
    parent_session: str | None = None,
    seed_length: int | None = None,
    origin: str | None = None,
    delegation_depth: int = 0,
    agent_preset: str | None = None,
) -> Header:
    """Return a header, its keys in the order of the format; `created_at` is in milliseconds since 1970."""
    header: Header = {"type": SESSION, "version": FORMAT_VERSION, "id": session_id, "createdAt": created_at}
    if cwd is not None:
        header["cwd"] = cwd
    if parent_session is not None:
        header["parentSession"] = parent_session
    if seed_length is not None:
        header["seedLength"] = seed_length
    if origin is not None:
        header["origin"] = origin
    header["delegationDepth"] = delegation_depth
    if agent_preset is not None:
        header["agentPreset"] = agent_preset
    return header


def make_event(
    type_: str,
    seq: int,
    time: int,
    data: Any,
    *,
    source_event_seqs: Sequence[int] | None = None,
    surface_op: Any = None,
) -> Event:
    """Return an event with its keys in the order of the format; `time` is in milliseconds since 1970."""
    event: Event = {"type": type_, "seq": seq, "time": time, "data": data}
    if source_event_seqs is not None:
        event["sourceEventSeqs"] = list(source_event_seqs)
    if surface_op is not None:
        event["surfaceOp"] = surface_op
    return event


def unresumable_types(events: Iterable[Event]) -> list[str]:
    """Return the event types, in order of appearance, that forbid going on with this log.

    A type that we do not know may stand for state that we would lose, unless its event says `ignorable`.
    """
    found: dict[str, None] = {}
    for event in events:
        if event["type"] not in KNOWN_TYPES and event.get("ignorable") is not True:
            found[event["type"]] = None
    return list(found)
