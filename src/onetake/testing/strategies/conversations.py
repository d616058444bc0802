"""Scripted conversations, for harnesses that are run: what users say, and what the model answers each time.

And what may go wrong with the log of one: `mutations` draws a change of what a harness did, which a replay
has to notice.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from hypothesis import strategies as st

from onetake import jsontext
from onetake.model.types import Chunk
from onetake.session.events import Event
from onetake.testing.strategies.chunks import chunk_streams

_WORDS = st.sampled_from(["hi", "go on", "", "{{cwd}}", "a\u2028b", "\\", "{{\\cwd}}"])


class Script(NamedTuple):
    """One conversation."""

    prompts: list[str]
    """What the user says, turn by turn."""
    answers: list[list[Chunk]]
    """What the model says, call by call; it may be fewer than a harness asks for, or more."""


def scripts() -> st.SearchStrategy[Script]:
    """Draw a conversation of a few turns; answers hold texts, reasoning and calls of a tool named `tool`."""
    prompts = st.lists(_WORDS, min_size=1, max_size=3)
    return st.builds(Script, prompts, st.lists(chunk_streams(), min_size=1, max_size=4))


@st.composite
def mutations(draw: st.DrawFn, events: Sequence[Event]) -> list[Event]:
    """Draw the log of a harness that did one thing otherwise: an event lost, doubled, moved or changed.

    What the model said, and what no replay compares (numbers of events, times), stays.
    """
    places = [n for n, event in enumerate(events) if event["type"] != "assistant/chunk"]
    changed = [jsontext.clone(event) for event in events]  # no two of them share a message then
    at = draw(st.sampled_from(places))
    what = draw(st.sampled_from(["lost", "doubled", "swapped", "leaf", "leaf", "leaf"]))
    if what == "lost":
        del changed[at]
    elif what == "doubled":
        changed.insert(at, jsontext.clone(changed[at]))
    elif what == "swapped":
        other = draw(st.sampled_from(places))
        changed[at], changed[other] = changed[other], changed[at]
    else:
        leaves = list(_leaves(changed[at]["data"]))
        if leaves:
            holder, key = draw(st.sampled_from(leaves))
            holder[key] = _other(holder[key])
    return changed


def _leaves(value: Any) -> Iterator[tuple[Any, Any]]:
    """Each leaf of a JSON value, as what holds it and its key there."""
    for key, item in value.items() if isinstance(value, dict) else enumerate(value):
        if isinstance(item, dict | list) and item:
            yield from _leaves(item)
        else:
            yield value, key


def _other(value: Any) -> Any:
    """A value that is as near as can be."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int | float):
        return value + 1
    return f"{value}." if isinstance(value, str) else "x"
