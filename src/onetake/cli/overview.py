"""A session log for human eyes: turns, steps, what was said and what the tools did, one line each.

Payloads are not type-checked on reading, so everything here looks before it touches: a log from elsewhere may
hold anything in any place.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

from onetake.session.events import Event
from onetake.session.jsonl import LogFile

WIDTH = 100
"""Characters of a text that are shown."""


def overview(log: LogFile) -> Iterator[str]:
    """Yield the lines of the overview, without line ends."""
    header = log.header
    yield f"session {log.id}"
    for label, key in (("folder", "cwd"), ("parent", "parentSession"), ("origin", "origin")):
        if isinstance(header.get(key), str):
            yield f"{label}  {header[key]}"
    created = header.get("createdAt")
    if isinstance(created, int) and 0 < created < 2**53:
        yield f"created {time.strftime('%Y-%m-%d %H:%M:%S UTC', time.gmtime(created // 1000))}"
    yield f"{len(log.events)} events in {len(log.records)} records"
    open_chunks = 0
    for event in log.events:
        if event["type"] == "assistant/chunk":
            open_chunks += _at(event, "data", "chunk", "type") != "finish"
        elif event["type"] == "assistant/message":
            open_chunks = 0
        elif event["type"] == "step/end" and open_chunks:
            yield f"    stream     {_count(open_chunks, 'chunk')} without a committed message"
            open_chunks = 0
        yield from _lines(event)
    if open_chunks:
        yield f"    stream     {_count(open_chunks, 'chunk')} without a committed message"
    if log.torn is not None:
        yield f"torn tail: {log.torn}; it was never acknowledged, and resuming the session cuts it off"
    if log.flaw is not None:
        yield f"damaged: {log.flaw}; nothing after it is shown"


def _lines(event: Event) -> Iterator[str]:
    kind, data = event["type"], event.get("data")
    if kind == "turn/start":
        yield ""
        yield f"turn {_at(data, 'turn')}"
    elif kind == "step/start":
        yield f"  step {_at(data, 'step')}"
    elif kind == "user/message":
        source = _at(data, "source", "kind")
        yield from _blocks("    ", data, "user" if source == "user" else str(source))
    elif kind == "assistant/message":
        yield from _blocks("    ", _at(data, "message") or data, "text")
        if _at(data, "interrupted") is True:
            yield "    interrupted"
    elif kind == "tool/result":
        yield from _blocks("    ", _at(data, "message") or data, "result")
    elif kind == "assistant/chunk":
        failure = _at(data, "chunk", "reason", "failure")
        if failure is not None:
            yield f"    failed     {_at(failure, 'code')}: {_short(_at(failure, 'message'))}"
    elif kind == "turn/end":
        yield f"  {_ending(_at(data, 'reason'))}"
    elif kind == "request/header":
        config = _at(data, "header", "config")
        yield f"    model      {_at(config, 'provider')}/{_at(config, 'model')}"
    elif kind not in _SILENT:
        yield f"    ({kind})"


_SILENT = frozenset({"agent/inbox/spliced", "request/context", "step/end", "tool/call"})


def _blocks(margin: str, message: Any, label: str) -> Iterator[str]:
    content = _at(message, "content")
    for block in content if isinstance(content, list) else []:
        kind = _at(block, "type")
        if kind == "text":
            yield _row(margin, label, _at(block, "text"))
        elif kind == "reasoning":
            yield _row(margin, "reasoning", _at(block, "text"))
        elif kind == "tool-call":
            yield _row(margin, "call", f"{_at(block, 'name')} {_at(block, 'arguments')}")
        elif kind == "tool-result":
            failed = _at(block, "isError") is True
            yield from _blocks(margin, block, "failed" if failed else "result")
        else:
            yield _row(margin, label, f"({kind})")


def _row(margin: str, label: str, text: Any) -> str:
    return f"{margin}{label.ljust(10)} {_short(text)}"


def _short(text: Any) -> str:
    line = " ".join(str(text).split())
    printable = "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in line)
    if len(printable) <= WIDTH:
        return printable
    return f"{printable[:WIDTH]} ... (+{len(printable) - WIDTH})"


def _ending(reason: Any) -> str:
    kind = _at(reason, "kind")
    error = _at(reason, "error")
    return f"{kind}: {_short(_at(error, 'message'))}" if error is not None else f"{kind}"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _at(value: Any, *keys: str) -> Any:
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return value
