"""Which model calls does a session log hold, and what did the model say in each?

A log has no event that says "here a model call begins". It has the chunks, and a `finish` chunk ends a call:
several calls may share one (turn, step) when the first failed and was retried. A compaction summary that came
from a model is one call too, though only its blocks were logged. Everything that replays a log, counts its
calls or compares two recordings starts from the calls that this module derives.

A call whose stream never finished (the user cancelled, the process died) cannot be replayed as it was: it
keeps its place in the script as an `underivable` entry, so that an override can patch exactly that index.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from onetake.errors import UsageError

Entry = dict[str, Any]
"""One scripted answer: `{kind: "chunks", chunks}`, `{kind: "throw", chunks, message, code}` or
`{kind: "hang", readyFile?}`; derived scripts also hold `{kind: "underivable", message}`."""

BOUNDARIES = frozenset({"turn/start", "turn/end", "step/start", "step/end"})
"""Events that no model stream outlives: a call still open there has no finish."""


class RecordedCall(msgspec.Struct):
    """One model call as a log holds it."""

    turn: Any
    """Turn number as logged (payloads are not type-checked)."""
    step: Any
    """Step number as logged; None for a compaction call, which belongs to no step."""
    purpose: str
    """`main` or `compaction`."""
    chunks: list[dict[str, Any]]
    """The chunks in the order they came, `finish` included."""
    times: list[Any]
    """Per chunk the logged time in milliseconds, or None where the log holds none; for pacing."""
    seqs: list[int]
    """Per chunk the position of its event in the list that was read; empty for a compaction call."""
    fault: str | None = None
    """Why the call cannot be replayed; None when it can."""

    def entry(self) -> Entry:
        """The script entry of this call."""
        if self.fault is not None:
            return {"kind": "underivable", "message": self.fault}
        return {"kind": "chunks", "chunks": self.chunks}

    def place(self) -> str:
        """Where in the conversation the call stands, for people."""
        if self.purpose == "compaction":
            return f"compaction in turn {self.turn}"
        return f"turn {self.turn}, step {self.step}"


def own_events(header: Mapping[str, Any], events: Sequence[dict[str, Any]]) -> Sequence[dict[str, Any]]:
    """The events of a session without the history that a forked child inherited (`seedLength` events)."""
    seed = header.get("seedLength")
    if isinstance(seed, int) and not isinstance(seed, bool) and seed > 0:
        return events[seed:]
    return events


def derive_calls(events: Iterable[Mapping[str, Any]]) -> list[RecordedCall]:
    """The model calls of a log, in order; calls that cannot be replayed carry a `fault`. Never raises."""
    calls: list[RecordedCall] = []
    current: RecordedCall | None = None
    for position, event in enumerate(events):
        kind, data = event.get("type"), event.get("data")
        if kind == "assistant/chunk":
            turn, step, chunk = _chunk_of(data)
            if current is not None and (current.turn, current.step) != (turn, step):
                _close(current)
                current = None
            if current is None:
                current = RecordedCall(turn, step, "main", [], [], [])
                calls.append(current)
            if not isinstance(chunk, dict):
                current.fault = f"call at turn/step ({turn}, {step}): malformed chunk (event {position})"
                continue
            current.chunks.append(chunk)
            current.times.append(event.get("time"))
            current.seqs.append(position)
            if chunk.get("type") == "finish":
                current = None
        elif kind in BOUNDARIES:
            _close(current)
            current = None
        elif kind == "compaction/summary" and isinstance(data, dict) and data.get("llmStreamCall") is True:
            calls.append(_compaction_call(data))
    _close(current)
    return calls


def derive_replay_script(events: Iterable[Mapping[str, Any]]) -> list[Entry]:
    """The script that answers every model call of a log in order, one entry a call. Never raises.

    Calls without a finish stay in their place as `{kind: "underivable", message}`.
    """
    return [call.entry() for call in derive_calls(events)]


def underivable(script: Sequence[Entry]) -> list[str]:
    """Why entries of a script cannot be replayed, one text per such entry; empty when all can."""
    return [entry["message"] for entry in script if entry["kind"] == "underivable"]


def replay_entries(script: Sequence[Entry]) -> int | None:
    """How many calls a script answers; None when one of them cannot be derived."""
    return None if underivable(script) else len(script)


def require_derivable(script: Sequence[Entry], name: str, *, patchable: bool = True) -> list[Entry]:
    """The script, once every entry of it can be served; UsageError names `name` and the index otherwise.

    `patchable` says whether an override is for this script: it is for that of the primary session only.
    """
    for index, entry in enumerate(script):
        if entry["kind"] == "underivable":
            patch = f'{{"patches": [{{"at": {index}, "entry": {{"kind": "hang"}}}}]}}'
            remedy = f"Say in replay.override.json what happens there: {patch}"
            if not patchable:
                remedy = (
                    "replay.override.json can script session.jsonl only, so record a scenario in which this "
                    "session is cancelled, or the agent killed, while one of its tools works"
                )
            raise UsageError(f"{name}: call {index + 1} cannot be replayed: {entry['message']}. {remedy}")
    return list(script)


def _chunk_of(data: Any) -> tuple[Any, Any, Any]:
    if not isinstance(data, dict):
        return None, None, None
    return data.get("turn"), data.get("step"), data.get("chunk")


def _close(call: RecordedCall | None) -> None:
    """Mark a call that ends here without a finish."""
    if call is not None and call.fault is None:
        call.fault = f"call at turn/step ({call.turn}, {call.step}) has no finish chunk"


def _compaction_call(data: Mapping[str, Any]) -> RecordedCall:
    blocks = data.get("rawOutput")
    if not isinstance(blocks, list) or not all(isinstance(block, dict) for block in blocks):
        fault = "compaction/summary of a model call has no rawOutput blocks"
        return RecordedCall(data.get("turn"), None, "compaction", [], [], [], fault)
    chunks: list[dict[str, Any]] = []
    for index, block in enumerate(blocks):
        chunks.append({"type": "block-start", "index": index, "blockType": block.get("type")})
        chunks.append({"type": "block-end", "index": index, "block": block})
    if data.get("usage") is not None:
        chunks.append({"type": "usage", "usage": data["usage"]})
    chunks.append({"type": "finish", "reason": {"kind": "stop"}})
    return RecordedCall(data.get("turn"), None, "compaction", chunks, [None] * len(chunks), [])
