"""What it costs to explain that two logs of 10,000 lines differ: a red run must say why at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from benchmarks.measure import interleaved, report
from onetake.snapshot.diff.compare import compare

LINES = 10_000
ROUNDS = 5


def _log(text: Callable[[int], str], *, first: int = 0) -> bytes:
    """Rows and results by turns, each result referring to the event before it."""
    lines: list[dict[str, Any]] = [{"type": "session", "version": 0, "id": "{{sessionId}}"}]
    lines += [{"type": "inserted", "data": {}}] * first
    for number in range(LINES):
        if number % 2:
            message = {"content": [{"type": "text", "text": text(number)}], "id": f"{{{{msg:{number}.1}}}}"}
            refers = {"sourceEventSeqs": [number * 2 + first]}
            lines.append({"type": "tool/result", "data": {"turn": number, "message": message}, **refers})
        else:
            data = {"turn": number, "step": 1, "index": 0, "dt": [0, 0], "texts": ["a ", f"b{number} ", "c"]}
            lines.append({"type": "text-chunks", "data": data})
    return b"".join(msgspec.json.encode(line) + b"\n" for line in lines)


def main() -> None:
    """Measure and print."""
    old = _log(lambda number: f"result {number}")
    cases = {
        "one event inserted": _log(lambda number: f"result {number}", first=1),
        "every result changed": _log(lambda number: f"result: {number}"),
        "everything changed, one event inserted": _log(lambda number: f"{number} results", first=1),
        "nothing alike": b"".join(b'{"other":%d}\n' % number for number in range(LINES)),
    }

    def parse() -> None:
        for line in old.split(b"\n")[:-1]:
            msgspec.json.decode(line)

    costs = interleaved(
        {
            "bare": parse,
            **{name: lambda new=new: compare(old, new, "session.jsonl") for name, new in cases.items()},
        },
        ROUNDS,
    )
    print(f"differences, {LINES} lines a side, {len(old) / 1e6:.1f} MB; medians of {ROUNDS} rounds")
    for name in cases:
        wall = costs[name].wall
        verdict = "under a second" if wall < 1 else "over a second"
        report(name, f"{wall * 1000:.0f} ms, {verdict}", wall / costs["bare"].wall, None, "parsing one side")
