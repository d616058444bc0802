"""Replays with bugs: who is bound to whom, what a call is, whose cursor it is, what is waited for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from unittest.mock import patch

from hypothesis import given
from hypothesis import strategies as st

from onetake.fixture import tokens
from onetake.fixture.lineage import SessionFacts
from onetake.model.request import ModelRequest
from onetake.replay import provider
from onetake.replay.provider import Replay
from onetake.testing.invariants import replay as holds
from onetake.testing.strategies.conversations import Task, logged_calls, paces, scripts
from tests.faults.fault import Fault
from tests.replay.test_properties import check_replays, families, shuffled

TAKEN = st.tuples(paces(), paces())


def by_step(events: Sequence[Any]) -> list[list[Any]]:
    calls: dict[Any, list[Any]] = {}
    for event in events:
        if event["type"] == "assistant/chunk":
            data = event["data"]
            calls.setdefault((data["turn"], data["step"]), []).append(data["chunk"])
    return list(calls.values())


@given(logged_calls())
def one_call_per_step(logged: Any) -> None:
    holds.check_calls(by_step, *logged)


def by_start(sessions: Sequence[SessionFacts]) -> dict[str, int]:
    return {session.id: number for number, session in enumerate(sessions)}


@given(families(), st.randoms(use_true_random=False))
def numbered_by_start(sessions: list[SessionFacts], dice: Any) -> None:
    holds.check_bound(by_start, sessions, shuffled(sessions, dice))


class OneCursor(Replay):
    """Hands the next answer to whoever asks: works until two sessions run at the same time."""

    def _bind(self, request: ModelRequest) -> int:
        self._served = getattr(self, "_served", -1) + 1
        return min(self._served, len(self._recordings) - 1)


class Impatient(Replay):
    """Does not wait for what a session beside it is about to see."""

    async def _is_coming(self, *args: Any) -> bool:
        return False


def replays(subject: type[Replay]) -> Any:
    @given(scripts(), TAKEN)
    def prove(script: list[Task], taken: Any) -> None:
        check_replays(script, taken, subject)

    return prove


@given(scripts(), TAKEN)
def serves_inherited_calls(script: list[Task], taken: Any) -> None:
    with patch.object(provider, "own_events", lambda header, events: events):
        check_replays(script, taken)


@given(scripts(), TAKEN)
def names_by_time(script: list[Task], taken: Any) -> None:
    def by_time(views: Any) -> Any:
        timed = [(event["time"], view, event) for view in views for event in view.events]
        for _, view, event in sorted(timed, key=lambda item: item[0]):
            yield view, event

    with patch.object(tokens, "walk", by_time):
        check_replays(script, taken)


FAULTS = [
    Fault("call-per-step", "a retry in a step is one call with what it repeats", one_call_per_step),
    Fault("numbered-by-start", "children are told apart by who began first", numbered_by_start),
    Fault("one-cursor", "answers go to whoever asks next", replays(OneCursor)),
    Fault("impatient", "a value that a sibling is about to see is a violation", replays(Impatient)),
    Fault("inherited-calls", "a forked child is answered with its parent's calls", serves_inherited_calls),
]
