"""What a client sees of a session: its log events translated into `session/update` payloads, purely.

By default a client gets each committed message once, whole. An editor that wants to watch turns `stream` on
and gets text, thoughts and tool calls as they happen; the committed message then says nothing new.
"""

from __future__ import annotations

from typing import Any

from onetake import jsontext
from onetake.session.events import (
    ASSISTANT_CHUNK,
    ASSISTANT_MESSAGE,
    STEP_START,
    TOOL_CALL,
    TOOL_RESULT,
    Event,
)

Update = dict[str, Any]

_CHUNK_UPDATES = {"text": "agent_message_chunk", "reasoning": "agent_thought_chunk"}
_TOOL_KINDS = {"bash": "execute"}


class Updates:
    """Translates the events of one session in their order."""

    def __init__(self, *, stream: bool) -> None:
        self._stream = stream
        self._streamed: set[int] = set()

    def of(self, event: Event) -> list[Update]:
        """The updates that an event is to its client; most events are none."""
        kind, data = event["type"], event["data"]
        if not self._stream:
            return _committed(data) if kind == ASSISTANT_MESSAGE else []
        if kind == ASSISTANT_CHUNK:
            return self._chunk(data["chunk"])
        if kind == STEP_START:
            self._streamed.clear()
        elif kind == TOOL_CALL:
            return [_tool_call(data)]
        elif kind == TOOL_RESULT:
            return [_tool_result(data)]
        return []

    def _chunk(self, chunk: dict[str, Any]) -> list[Update]:
        kind, index = chunk.get("type"), chunk.get("index")
        if kind == "finish":
            self._streamed.clear()
        if type(index) is not int:  # malformed, as the assembler sees it
            return []
        if kind == "text-delta" or kind == "reasoning-delta":
            self._streamed.add(index)
            return _said(kind.removesuffix("-delta"), chunk.get("text"))
        if kind == "block-end" and index not in self._streamed:
            block = chunk.get("block")
            return _said(block.get("type"), block.get("text")) if isinstance(block, dict) else []
        return []


def _committed(data: dict[str, Any]) -> list[Update]:
    blocks = data["message"]["content"]
    return [update for block in blocks if block["type"] == "text" for update in _said("text", block["text"])]


def _said(block_type: Any, text: Any) -> list[Update]:
    name = _CHUNK_UPDATES.get(block_type) if isinstance(block_type, str) else None
    if name is None or not isinstance(text, str) or not text:
        return []
    return [{"sessionUpdate": name, "content": {"type": "text", "text": text}}]


def _tool_call(data: dict[str, Any]) -> Update:
    update: Update = {
        "sessionUpdate": "tool_call",
        "toolCallId": data["callId"],
        "title": data["name"],
        "kind": _TOOL_KINDS.get(data["name"], "other"),
        "status": "in_progress",
    }
    try:
        arguments = jsontext.loads(data["arguments"])
    except ValueError:
        return update
    if isinstance(arguments, dict):
        described = arguments.get("description")
        if isinstance(described, str) and described:
            update["title"] = described
        update["rawInput"] = arguments
    return update


def _tool_result(data: dict[str, Any]) -> Update:
    answer = data["message"]["content"][0]
    return {
        "sessionUpdate": "tool_call_update",
        "toolCallId": answer["toolCallId"],
        "status": "failed" if answer["isError"] else "completed",
        "content": [
            {"type": "content", "content": {"type": "text", "text": block["text"]}}
            for block in answer["content"]
            if block["type"] == "text"
        ],
    }
