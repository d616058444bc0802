"""Whatever is said to an agent, and whenever: the log stays a log that can be read, repaired and replayed."""

from __future__ import annotations

import asyncio
import re

from hypothesis import given, settings
from hypothesis import strategies as st

from onetake import jsontext
from onetake.agent.inbox import Inbox
from onetake.session.events import Event, make_header
from onetake.session.log import SessionLog
from onetake.session.repair import close_interrupted
from onetake.testing import virtual_time
from onetake.testing.invariants import conversation as holds
from onetake.testing.strategies.schedules import Schedule, schedules
from tests.agent.machine import Conversation
from tests.agent.planned import TOOLS, PlannedModel, planned_agent, say

TestConversation = Conversation.TestCase
TestConversation.settings = settings(stateful_step_count=20)


async def played(schedule: Schedule) -> list[Event]:
    """The log of an agent to which a schedule happened."""
    agent = await planned_agent(PlannedModel(schedule.calls), schedule.tools)
    said = []
    for act in schedule.acts:
        if act.what == "cancel":
            agent.cancel()
        else:
            said.append(say(agent, act.what))
        await asyncio.sleep(act.wait)
    await agent.when_idle()
    holds.check_conversation(agent.log.events, said)
    return agent.log.events


def told(events: list[Event]) -> str:
    """A log without what is new each time: ids get numbers, times are left out."""
    text = "\n".join(jsontext.dumps({**event, "time": 0}).decode() for event in events)
    numbers: dict[str, str] = {}
    return re.sub(r"[0-9a-f-]{36}", lambda id: numbers.setdefault(id[0], f"#{len(numbers)}"), text)


@given(schedules(TOOLS))
def test_the_same_schedule_gives_the_same_log(schedule: Schedule) -> None:
    first, second = (virtual_time.run(played(schedule)) for _ in range(2))
    assert told(first) == told(second)


@given(schedules(TOOLS), st.integers(0, 200))
def test_a_log_that_breaks_off_anywhere_is_repaired(schedule: Schedule, length: int) -> None:
    events = virtual_time.run(played(schedule))
    holds.check_repair(close_interrupted, events[: length % (len(events) + 1)])


INBOX_OPS = st.sampled_from(["turn", "step", "take", "take step", "drop", "hold", "release"])


@given(ops=st.lists(INBOX_OPS, max_size=40))
def test_an_inbox_and_its_replay_from_the_log_agree(ops: list[str]) -> None:
    log = SessionLog(make_header("s", created_at=0), clock=lambda: 0)
    inbox = Inbox(log)
    for number, op in enumerate(ops):
        if op in ("turn", "step"):
            message = {"content": [], "source": {"kind": "user"}, "role": "user", "id": str(number)}
            inbox.put("next-turn" if op == "turn" else "next-step", message)
        elif op == "take":
            inbox.take_for_turn()
        elif op == "take step":
            inbox.take_for_step()
        elif op == "drop":
            inbox.cancel("next-step")
        elif op == "hold":
            inbox.release()
            inbox.hold()
        else:
            inbox.release()
        again = Inbox(SessionLog(log.header, log.events))
        assert again._queues == inbox._queues
