"""The figures of a session log by which two independent decoders can tell that they agree."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from pathlib import PurePath
from typing import Any

from onetake.replay.script import derive_replay_script, own_events, replay_entries, underivable
from onetake.session.events import ASSISTANT_CHUNK, Event
from onetake.session.jsonl import LogFile, encode_records
from onetake.session.packing import ROW_TYPES

ENVELOPE = ("seq", "time", "seq0", "time0")


def log_figures(log: LogFile, raw: bytes, text: bytes) -> dict[str, Any]:
    """Return the figures of `log`, which was read from the file content `raw` with the lines `text`.

    `layout` is `projected` when no record has an envelope, `enveloped` when every record has its own,
    `mixed` in between and `empty` without records. `canonical` says that packing the events again, in maximal
    runs and the same layout, gives the lines back.
    """
    events = log.events
    chunks = [event["data"].get("chunk") for event in events if _is_chunk(event)]
    kinds = Counter(str(chunk.get("type")) for chunk in chunks if isinstance(chunk, dict))
    rows = [record for record in log.records if record.is_row]
    layout = _layout(log)
    script = derive_replay_script(events)
    own_script = derive_replay_script(own_events(log.header, events))
    figures = {
        "file": PurePath(log.name).name,
        "layout": layout,
        "bytes": len(raw),
        "records": len(log.records),
        "events": len(events),
        "rows": {kind: sum(row.value["type"] == kind for row in rows) for kind in ROW_TYPES},
        "row_members": {
            kind: sum(row.count for row in rows if row.value["type"] == kind) for kind in ROW_TYPES
        },
        "verbatim_deltas": sum(_is_delta(record.value) for record in log.records),
        "chunk_events": len(chunks),
        "chunk_kinds": dict(sorted(kinds.items())),
        "negative_gaps": sum(gap < 0 for row in rows for gap in row.value["data"]["dt"]),
        "seed_length": log.header.get("seedLength", 0),
        "replay_entries": replay_entries(script),
        "replay_entries_own": replay_entries(own_script),
        "events_sha256": _digest(events),
        "payload_sha256": _digest(
            [{key: value for key, value in event.items() if key not in ("seq", "time")} for event in events]
        ),
        "canonical": text == _canonical(log, project=layout == "projected"),
    }
    reasons = underivable(script) or underivable(own_script)
    if reasons:
        figures["underivable"] = reasons[0]
    return figures


def _canonical(log: LogFile, *, project: bool) -> bytes:
    return log.header_raw + b"\n" + encode_records(log.events, project=project)


def _layout(log: LogFile) -> str:
    found = {sum(key in record.value for key in ENVELOPE) for record in log.records}
    if not found:
        return "empty"
    return {frozenset({0}): "projected", frozenset({2}): "enveloped"}.get(frozenset(found), "mixed")


def _is_chunk(event: Event) -> bool:
    return event["type"] == ASSISTANT_CHUNK and isinstance(event.get("data"), dict)


def _is_delta(record: dict[str, Any]) -> bool:
    chunk = record["data"].get("chunk") if _is_chunk(record) else None
    return isinstance(chunk, dict) and str(chunk.get("type")).endswith("-delta")


def _digest(events: list[Event]) -> str:
    text = json.dumps(events, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
