"""Agents with bugs in their inbox, their loop and their tools."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any
from unittest.mock import patch

from onetake.agent import loop
from onetake.agent.agent import Agent
from onetake.agent.inbox import Inbox
from onetake.agent.interrupt import Interrupt, Interrupted
from onetake.agent.loop import Turn
from onetake.agent.tooling import ToolRun
from tests.agent.machine import Conversation
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


def keeps_what_was_held() -> Any:
    def hold(self: Inbox) -> None:
        self._held = self.__dict__.setdefault("kept", [])

    return patch.object(Inbox, "hold", hold)


def logs_arrivals_at_once() -> Any:
    return patch.object(Inbox, "hold", lambda self: None)


def applies_after_logging() -> Any:
    def splice(self: Inbox, data: dict[str, Any]) -> list[Any]:
        self._log.append("agent/inbox/spliced", data)
        return self._apply(data)

    return patch.object(Inbox, "_splice", splice)


def answers_by_name() -> Any:
    execute = ToolRun._execute

    async def by_name(self: ToolRun, call: Any, ordinal: int, slots: Any) -> Any:
        result = await execute(self, call, ordinal, slots)
        return self.__dict__.setdefault("results", {}).setdefault(call["name"], result)

    return patch.object(ToolRun, "_execute", by_name)


def commits_as_they_come() -> Any:
    async def execute_all(self: ToolRun) -> None:
        slots = asyncio.Semaphore(self.agent.config.parallel_tools)

        async def run(number: int) -> None:
            self._commit(await self._execute(self.calls[number], number + 1, slots))

        await asyncio.gather(*map(run, range(len(self.calls))))

    return patch.object(ToolRun, "_execute_all", execute_all)


def leaves_cancelled_calls_open() -> Any:
    commit = ToolRun._commit

    def only_results(self: ToolRun, result: Any) -> None:
        if self.interrupt.reason is None:
            commit(self, result)
        else:
            self.committed += 1

    return patch.object(ToolRun, "_commit", only_results)


def reuses_turn_numbers() -> Any:
    run_turn = Agent._run_turn

    async def run(self: Agent) -> None:
        if (self.last_turn_end or {}).get("kind") == "aborted":
            self._turns -= 1
        await run_turn(self)

    return patch.object(Agent, "_run_turn", run)


@contextmanager
def shows_an_old_history() -> Iterator[None]:
    request = Turn._request

    def stale(self: Turn) -> Any:
        made = request(self)
        made.messages[:] = self.__dict__.setdefault("messages", list(made.messages))
        return made

    with patch.object(Turn, "_request", stale), patch.object(loop, "check_model_input"):
        yield


def ends_before_its_work() -> Any:
    guard = Interrupt.guard

    async def impatient(self: Interrupt, work: Any) -> Any:
        task = asyncio.ensure_future(guard(self, work))
        task.add_done_callback(lambda done: done.exception())  # nobody is told
        while not task.done():
            if self.reason is not None:
                raise Interrupted
            await asyncio.sleep(0.1)
        return task.result()

    return patch.object(Interrupt, "guard", impatient)


FAULTS = [
    Fault("steer-lost-in-cancel", "a cancelled turn drops a steer unlogged", machine(cancels_silently)),
    Fault("arrivals-twice", "what arrived in one call is queued again", machine(keeps_what_was_held)),
    Fault("arrivals-at-once", "a message is logged amid a call's chunks", machine(logs_arrivals_at_once)),
    Fault("logged-before-queued", "a queue changes after its event is told", machine(applies_after_logging)),
    Fault("paired-by-name", "a result goes to the first call of its tool", machine(answers_by_name)),
    Fault("paired-by-time", "the first result goes to the first call", machine(commits_as_they_come)),
    Fault("cancelled-call-open", "a cancelled call has no result", machine(leaves_cancelled_calls_open)),
    Fault(
        "turn-number-reused", "the turn behind a cancelled one has its number", machine(reuses_turn_numbers)
    ),
    Fault(
        "old-history", "later steps of a turn show the history of its first", machine(shows_an_old_history)
    ),
    Fault(
        "ends-before-its-work", "a cancelled turn ends while it still works", machine(ends_before_its_work)
    ),
]
