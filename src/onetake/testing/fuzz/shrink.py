"""The smallest script that still breaks a rule, found in few runs.

Hypothesis shrinks by many small tries, which is right where a try costs microseconds. Here one costs the
start of an agent, and where an answer does not come, the time that was waited for it. So large parts are
dropped first; what is left is then made plain, step by step and answer by answer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import msgspec

from onetake.testing.fuzz.steps import HELLO, Case, Prompt, Step

T = TypeVar("T")
_LISTS = ("toolCalls", "chunks")


def shrink(case: Case, breaks: Callable[[Case], bool]) -> Case:
    """Return the smallest case found for which `breaks` holds, as it does for this one.

    It is called once for each case that is tried, never twice for the same.
    """
    tried: list[Case] = [case]

    def fails(candidate: Case) -> bool:
        if candidate in tried:
            return False
        tried.append(candidate)
        return breaks(candidate)

    before = None
    while case != before:
        before = case
        for field in ("steps", "replies", "permission_answers"):
            case = _fewer_of(case, field, fails)
        case = _plainer(case, "steps", _plainer_steps, fails)
        case = _plainer(case, "replies", _plainer_replies, fails)
    return case


def _fewer_of(case: Case, field: str, fails: Callable[[Case], bool]) -> Case:
    def works(items: list[Any]) -> bool:
        return fails(msgspec.structs.replace(case, **{field: items}))

    return msgspec.structs.replace(case, **{field: _fewer(getattr(case, field), works)})


def _fewer(items: list[T], works: Callable[[list[T]], bool]) -> list[T]:
    """Drop parts of a list: all of it, halves, quarters, and so on to single items."""
    size = len(items)
    while size:
        at = 0
        while at < len(items):
            rest = items[:at] + items[at + size :]
            if works(rest):
                items = rest
            else:
                at += size
        size //= 2
    return items


def _plainer(
    case: Case, field: str, candidates: Callable[[Any], Iterator[Any]], fails: Callable[[Case], bool]
) -> Case:
    """Replace each item of a list by the first plainer one that works, as long as there is one."""
    for at in range(len(getattr(case, field))):
        better = True
        while better:
            better = False
            items = getattr(case, field)
            for item in candidates(items[at]):
                simpler = msgspec.structs.replace(case, **{field: [*items[:at], item, *items[at + 1 :]]})
                if item != items[at] and fails(simpler):
                    case, better = simpler, True
                    break
    return case


def _plainer_steps(step: Step) -> Iterator[Step]:
    if isinstance(step, Prompt):
        yield Prompt(0, HELLO)
        yield msgspec.structs.replace(step, content=HELLO)
        for block in step.content if len(step.content) > 1 else ():
            yield msgspec.structs.replace(step, content=[block])
    if hasattr(step, "session"):
        yield msgspec.structs.replace(step, session=0)


def _plainer_replies(reply: dict[str, Any]) -> Iterator[dict[str, Any]]:
    if reply != {"text": "hello"}:
        yield {"text": "hello"}
        for key in reply:
            yield {name: value for name, value in reply.items() if name != key}
    for key in _LISTS:
        for at in range(len(reply.get(key, ()))):
            yield {**reply, key: [*reply[key][:at], *reply[key][at + 1 :]]}
