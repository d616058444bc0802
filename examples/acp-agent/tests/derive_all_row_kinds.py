"""Derive the `all-row-kinds` fixture from the recording of `bash-tool-turn`, mechanically.

A recording holds the row kinds that its model happened to stream. This script cuts the same answers anew,
so that one fixture holds every kind of packed row: text, reasoning, tool calls whose deltas all carry the
name, and tool calls whose later deltas do not. Only the cutting changes; blocks, usage and finish stay.

    python examples/acp-agent/tests/derive_all_row_kinds.py           write the fixture
    onetake refresh examples/acp-agent -k all-row-kinds               then rewrite what follows from it

The derivation checks itself: the packed file, read back, must give the unpacked events one for one.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from onetake.session.jsonl import encode_log, read_log
from onetake.session.packing import unpack

SNAPSHOTS = Path(__file__).parent / "snapshots"
SOURCE = SNAPSHOTS / "bash-tool-turn" / "session.jsonl"
TARGET = SNAPSHOTS / "all-row-kinds" / "session.jsonl"
PIECES = 8
"""Deltas per block; at least 3 make a row, and tool calls need twice that (named and unnamed)."""

Json = dict[str, Any]


def derive(source: bytes) -> tuple[Json, list[Json]]:
    """Return header and events of the derived log."""
    log = read_log(source, str(SOURCE))
    records = [_without_envelope(record) for event in log.events for record in _recut(event)]
    return log.header, _renumbered(unpack(records))


def _recut(event: Json) -> Iterator[Json]:
    """Replace every delta by nothing and every `block-end` by the deltas of its block and itself."""
    chunk = event["data"].get("chunk") if event["type"] == "assistant/chunk" else None
    if chunk is None:
        yield event
    elif not chunk["type"].endswith("-delta"):
        if chunk["type"] == "block-end":
            for delta in _deltas(chunk["index"], chunk["block"]):
                yield {**event, "data": {**event["data"], "chunk": delta}}
        yield event


def _deltas(index: int, block: Json) -> Iterator[Json]:
    text = block["arguments"] if block["type"] == "tool-call" else block["text"]
    size = -(-len(text) // PIECES)
    for piece in range(PIECES):
        part = text[piece * size : (piece + 1) * size]
        if block["type"] == "tool-call":
            name = {"name": block["name"]} if piece < PIECES // 2 else {}
            yield {
                "type": "tool-call-delta",
                "index": index,
                "id": block["id"],
                **name,
                "argumentsDelta": part,
            }
        else:
            yield {"type": f"{block['type']}-delta", "index": index, "text": part}


def _without_envelope(record: Json) -> Json:
    return {key: value for key, value in record.items() if key not in ("seq", "time")}


def _renumbered(events: list[Json]) -> list[Json]:
    """Point every `sourceEventSeqs` at the events as they are numbered now."""
    chunks: list[int] = []
    call: dict[str, int] = {}
    for event in events:
        if event["type"] == "step/start":
            chunks = []
        elif event["type"] == "assistant/chunk":
            chunks.append(event["seq"])
        elif event["type"] == "assistant/message":
            event["sourceEventSeqs"] = chunks
        elif event["type"] == "tool/call":
            call[event["data"]["callId"]] = event["seq"]
        elif event["type"] == "tool/result":
            event["sourceEventSeqs"] = [call[event["data"]["message"]["source"]["callId"]]]
    return events


def main() -> int:
    """Write the fixture; exit code 1 when it does not decode to the events that it was made from."""
    header, events = derive(SOURCE.read_bytes())
    packed = encode_log(header, events, packed=True, project=True)
    if read_log(packed, str(TARGET)).events != events:
        print(f"{TARGET}: the packed log does not decode to the derived events", file=sys.stderr)
        return 1
    TARGET.write_bytes(packed)
    print(
        f"wrote {TARGET.relative_to(Path.cwd())}" if TARGET.is_relative_to(Path.cwd()) else f"wrote {TARGET}"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
