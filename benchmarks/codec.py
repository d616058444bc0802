"""What a log costs to read and write, next to bare msgspec on the same bytes; and the assembler's pace.

A packed log is a fraction of the events that it stands for. Where events are made from rows, or rows from
events, the bytes of the unpacked log are what bare msgspec would have to read or write instead.
"""

from __future__ import annotations

from typing import Any

import msgspec

from benchmarks.measure import interleaved, report
from onetake.model.assembler import BlockAssembler
from onetake.session.jsonl import encode_log, read_log

TURNS = 60
DELTAS = 400
ROUNDS = 9


def make_log() -> bytes:
    """Make a log like a long session's: mostly packed rows, and whole messages in between."""
    events: list[dict[str, Any]] = []

    def add(kind: str, data: object, **more: object) -> None:
        events.append(
            {"type": kind, "seq": len(events), "time": 1_700_000_000_000 + len(events), "data": data, **more}
        )

    for turn in range(1, TURNS + 1):
        add("turn/start", {"turn": turn})
        add("step/start", {"turn": turn, "step": 1})
        first = len(events)
        for kind, index in (("reasoning-delta", 0), ("text-delta", 1)):
            for piece in range(DELTAS):
                chunk = {"type": kind, "index": index, "text": f" word{piece} and more"}
                add("assistant/chunk", {"turn": turn, "step": 1, "chunk": chunk})
        add(
            "assistant/chunk",
            {"turn": turn, "step": 1, "chunk": {"type": "finish", "reason": {"kind": "stop"}}},
        )
        text = " ".join(f"word{piece} and more" for piece in range(DELTAS))
        message = {
            "role": "assistant",
            "content": [{"type": "text", "text": text}],
            "source": {"kind": "model"},
        }
        add(
            "assistant/message",
            {"turn": turn, "step": 1, "message": {**message, "id": f"m{turn}"}},
            sourceEventSeqs=list(range(first, len(events))),
            surfaceOp="append",
        )
        add("turn/end", {"turn": turn, "reason": {"kind": "completed"}})
    header = {"type": "session", "version": 0, "id": "bench", "createdAt": 0, "delegationDepth": 0}
    return encode_log(header, events, packed=True)


def main() -> None:
    """Measure and print."""
    raw = make_log()
    log = read_log(raw, "bench")
    full = encode_log(log.header, log.events, packed=False)
    values = [msgspec.json.decode(line) for line in full.split(b"\n")[:-1]]
    costs = interleaved(
        {
            "bare read": lambda: [msgspec.json.decode(line) for line in raw.split(b"\n")[:-1]],
            "read": lambda: read_log(raw, "bench"),
            "bare read in full": lambda: [msgspec.json.decode(line) for line in full.split(b"\n")[:-1]],
            "read in full": lambda: read_log(full, "bench"),
            "unpack": lambda: read_log(raw, "bench").events,
            "bare write": lambda: b"\n".join([msgspec.json.encode(value) for value in values]),
            "write": lambda: encode_log(log.header, log.events, packed=False),
            "pack": lambda: encode_log(log.header, log.events, packed=True),
        },
        ROUNDS,
    )
    print(
        f"codec, {len(log.events)} events, {len(raw) / 1e6:.1f} MB packed, {len(full) / 1e6:.1f} MB unpacked"
        f"; medians of {ROUNDS} rounds"
    )
    rows = (
        ("read a packed log", "read", "bare read", raw, 1.3),
        ("read an unpacked log", "read in full", "bare read in full", full, 1.3),
        ("write an unpacked log", "write", "bare write", full, 1.3),
        ("read a packed log, make all its events", "unpack", "bare read in full", full, None),
        ("pack all events and write them", "pack", "bare write", full, None),
    )
    for what, name, bare_name, stored, aim in rows:
        megabytes = len(stored) / 1e6
        bare_pace = megabytes / costs[bare_name].wall
        ratio = costs[name].wall / costs[bare_name].wall
        report(
            what, f"{megabytes / costs[name].wall:.0f} MB/s", ratio, aim, f"msgspec ({bare_pace:.0f} MB/s)"
        )
    chunks = [event["data"]["chunk"] for event in log.events if event["type"] == "assistant/chunk"]

    def assemble() -> None:
        assembler = BlockAssembler()
        for chunk in chunks:
            assembler.push(chunk)
        assembler.blocks()

    def bare() -> None:
        texts: dict[int, list[str]] = {}
        for chunk in chunks:
            if "text" in chunk:
                texts.setdefault(chunk["index"], []).append(chunk["text"])

    pace = interleaved({"bare": bare, "assembler": assemble}, ROUNDS)
    report(
        "assembler",
        f"{len(chunks) / pace['assembler'].wall / 1e6:.2f} M chunks/s",
        pace["assembler"].wall / pace["bare"].wall,
        None,
        "collecting the texts in a dict",
    )
