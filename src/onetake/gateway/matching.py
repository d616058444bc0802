"""Which recorded call does a request repeat? Decided by what is asked, never by the order of arrival.

A recorded call is known by its whole request: settings, system prompt, tools and messages, as tokens have
them. A live request in tokens is compared with that. Equal requests get their answers in the order of the
recording. Of a request that nothing recorded equals, `difference` names the first leaf that changed and
`likeness` says which recorded call is the nearest.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from onetake import jsontext
from onetake.model.types import Message
from onetake.replay.provider import Line, Recording
from onetake.session.events import REQUEST_HEADER, Event
from onetake.session.history import History

Asked = dict[str, Any]
"""A request as it is compared: `config`, `system`, `tools`, `messages`, in tokens."""
Pins = Callable[[str, Any], Any]
"""The text behind a pinned `system` or `tools`: of `(kind, value of the header)`."""

_EXCERPT = 60
_BEFORE = 20


class Served(msgspec.Struct, eq=False):
    """One recorded call, and whether its answer was given."""

    index: int
    """Of the recorded session."""
    number: int
    """Of the call in that session, from 0 on."""
    line: Line
    asked: Asked | None
    """None for what only an override holds: it answers whatever is asked."""
    used: bool = False


def calls_of(
    index: int, recording: Recording, events: Sequence[Event], pins: Pins = lambda kind, value: value
) -> list[Served]:
    """The calls of one recorded session, each with the request that its log derives."""
    starts = {line.call.seqs[0]: n for n, line in enumerate(recording.lines) if line.call and line.call.seqs}
    history, header = History(), dict[str, Any]()
    asked: dict[int, Asked] = {}
    for position, event in enumerate(events):
        if position in starts:
            asked[starts[position]] = request_facts(header, history.messages(), pins)
        if event["type"] == REQUEST_HEADER:
            header = event["data"]["header"]
        history.feed(event)
    return [Served(index, n, line, asked.get(n)) for n, line in enumerate(recording.lines)]


def request_facts(
    header: Mapping[str, Any], messages: Sequence[Message], pins: Pins = lambda kind, value: value
) -> Asked:
    """A request as it is compared: who sent which message is in it, the ids of our own log are not."""
    return {
        "config": header.get("config"),
        "system": pins("system", header.get("system")),
        "tools": pins("tools", header.get("tools")),
        "messages": [_facts(message) for message in messages],
    }


def key(asked: Asked) -> bytes:
    """Requests with equal keys are equal."""
    return jsontext.dumps(asked)


def likeness(one: Asked, other: Asked) -> float:
    """How near two requests are: 3 for equal ones, 0 for such as have nothing in common."""
    parts = [(one[kind], other[kind]) for kind in ("system", "tools", "messages")]
    return sum(1.0 if a == b else _ratio(a, b) for a, b in parts)


def difference(recorded: Any, live: Any, path: str = "") -> str | None:
    """The first leaf in which two JSON values differ, as `path: "was" -> "is"`; None for equal values."""
    if isinstance(recorded, dict) and isinstance(live, dict):
        for name in [*recorded, *(name for name in live if name not in recorded)]:
            place = f"{path}.{name}" if path else str(name)
            if name not in live or name not in recorded:
                return f"{place}: {_gone(recorded, name)} -> {_gone(live, name)}"
            if (found := difference(recorded[name], live[name], place)) is not None:
                return found
        return None
    if isinstance(recorded, list) and isinstance(live, list):
        for number, (one, other) in enumerate(zip(recorded, live, strict=False)):
            if (found := difference(one, other, f"{path}[{number}]")) is not None:
                return found
        if len(recorded) != len(live):
            place = f"{path}[{min(len(recorded), len(live))}]"
            longer = recorded if len(recorded) > len(live) else live
            extra = _shown(longer[min(len(recorded), len(live))])
            return f"{place}: {extra} -> nothing" if longer is recorded else f"{place}: nothing -> {extra}"
        return None
    if recorded == live and type(recorded) is type(live):
        return None
    if isinstance(recorded, str) and isinstance(live, str):
        at = _first_difference(recorded, live)
        start = max(0, at - _BEFORE)
        return f"{path}: {_cut(recorded, start)} -> {_cut(live, start)}"
    return f"{path}: {_shown(recorded)} -> {_shown(live)}"


def _facts(message: Message) -> dict[str, Any]:
    facts: dict[str, Any] = {"role": message.get("role"), "content": message.get("content")}
    source = message.get("source")
    state = source.get("replayState") if isinstance(source, dict) else None
    for name, value in (("extra", message.get("extra")), ("replayState", state)):
        if value is not None:
            facts[name] = value
    return facts


def _ratio(one: Any, other: Any) -> float:
    if one is None or other is None:
        return 0.0
    a, b = (jsontext.dumps(value).decode("utf-8", "surrogatepass") for value in (one, other))
    return difflib.SequenceMatcher(None, a, b, autojunk=False).quick_ratio()


def _first_difference(one: str, other: str) -> int:
    return next(
        (n for n, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other))
    )


def _cut(text: str, start: int) -> str:
    shown = text[start : start + _EXCERPT]
    before, behind = ("..." if start else ""), ("..." if len(text) > start + _EXCERPT else "")
    return repr(f"{before}{shown}{behind}")


def _gone(value: Mapping[str, Any], name: str) -> str:
    return _shown(value[name]) if name in value else "nothing"


def _shown(value: Any) -> str:
    text = jsontext.dumps(value).decode("utf-8", "surrogatepass")
    return text if len(text) <= _EXCERPT else text[:_EXCERPT] + "..."
