"""Agents with bugs in their inbox, their loop and their tools."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any
from unittest.mock import patch

from onetake.agent import agent as agents
from onetake.agent.inbox import Inbox
from onetake.agent.tooling import ToolRun
from tests.agent.test_properties import Conversation
from tests.faults.fault import Fault

Patch = Callable[[], AbstractContextManager[Any]]


def machine(fault: Patch) -> type[Conversation]:
    """The state machine with an agent that has a fault."""
    return type("Faulty", (Conversation,), {"fault": staticmethod(fault)})


def cancels_silently() -> Any:
    def cancel(self: Inbox, target: Any) -> list[Any]:
        dropped, self._queues[target] = self._queues[target], []
        return dropped

    return patch.object(Inbox, "cancel", cancel)


def takes_without_removing() -> Any:
    take = Inbox.take_for_step

    def peek(self: Inbox) -> list[Any]:
        waiting = list(self._queues["next-step"])
        return waiting if len(waiting) == 1 and not waiting[0].get("seen") else take(self)

    return patch.object(Inbox, "take_for_step", peek)


def logs_arrivals_at_once() -> Any:
    return patch.object(Inbox, "hold", lambda self: None)


def answers_by_name() -> Any:
    execute = ToolRun._execute

    async def by_name(self: ToolRun, call: Any, ordinal: int, slots: Any) -> Any:
        results = self.__dict__.setdefault("results", {})
        result = await execute(self, call, ordinal, slots)
        return results.setdefault(call["name"], result)

    return patch.object(ToolRun, "_execute", by_name)


def commits_as_they_come() -> Any:
    async def execute_all(self: ToolRun) -> None:
        slots = asyncio.Semaphore(self.agent.config.parallel_tools)
        tasks = [self._execute(call, n, slots) for n, call in enumerate(self.calls, 1)]
        for task in asyncio.as_completed(tasks):
            self._commit(await task)

    return patch.object(ToolRun, "_execute_all", execute_all)


def reuses_turn_numbers() -> Any:
    run_turn = agents.Agent._run_turn

    async def run(self: Any) -> None:
        if (self.last_turn_end or {}).get("kind") == "aborted":
            self._turns -= 1
        await run_turn(self)

    return patch.object(agents.Agent, "_run_turn", run)


FAULTS = [
    Fault("steer-lost", "a steer is dropped at a cancellation, unlogged", machine(cancels_silently)),
    Fault("taken-twice", "a message stays in its queue when it is taken", machine(takes_without_removing)),
    Fault("arrivals-at-once", "a message is logged between a call's chunks", machine(logs_arrivals_at_once)),
    Fault("paired-by-name", "a result goes to the first call of the tool", machine(answers_by_name)),
    Fault("as-they-come", "the first result goes to the first call", machine(commits_as_they_come)),
    Fault("turn-reused", "a cancelled turn gives its number to the next", machine(reuses_turn_numbers)),
]
