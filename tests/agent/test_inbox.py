"""What is said to an agent: queued durably, taken once, or dropped durably."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest

from onetake.agent.agent import Agent, AgentConfig
from onetake.agent.inbox import Inbox, new_message
from onetake.errors import OnetakeError
from onetake.session.events import make_header
from onetake.session.log import SessionLog
from tests.agent.fakes import FakeProvider, Gate, agent_with, endings, events, says, text, types
from tests.agent.test_loop import play


def empty_log() -> SessionLog:
    return SessionLog(make_header("s", created_at=0), clock=lambda: 0)


def test_an_inbox_is_rebuilt_from_its_log() -> None:
    log = empty_log()
    inbox = Inbox(log)
    messages = [new_message(f"m{i}", None) for i in range(4)]
    inbox.put("next-turn", messages[0])
    inbox.put("next-step", messages[1])
    inbox.put("next-turn", messages[2])
    inbox.put("next-step", messages[3])
    assert [event["data"]["start"] for event in log.events] == [0, 0, 1, 1]
    again = Inbox(SessionLog(log.header, log.events))
    assert again.waiting("next-step") == 2
    assert again.take_for_turn() == [messages[1], messages[3], messages[0]]
    assert again.take_for_turn() == [messages[2]]
    assert not again.pending() and again.take_for_turn() == [] and again.cancel("next-turn") == []


def test_what_arrives_while_held_is_logged_on_release_in_order() -> None:
    log = empty_log()
    inbox = Inbox(log)
    inbox.hold()
    one, two = new_message("1", None), new_message("2", None)
    inbox.put("next-step", one)
    inbox.put("next-turn", two)
    assert log.events == [] and not inbox.pending()
    inbox.release()
    assert [event["data"]["inserted"] for event in log.events] == [[one], [two]]
    inbox.put("next-turn", new_message("3", None))
    assert len(log.events) == 3


def test_messages_have_a_source_and_content() -> None:
    blocks = [{"type": "text", "text": "a"}]
    message = new_message(blocks, {"kind": "plugin", "plugin": "p"})
    assert message["content"] == blocks and message["content"] is not blocks
    assert message["source"] == {"kind": "plugin", "plugin": "p"}
    with pytest.raises(ValueError, match="at least one content block"):
        new_message([], None)


def test_followups_each_get_a_turn_of_their_own(tmp_path: Path) -> None:
    async def steps(agent: Agent, provider: FakeProvider) -> None:
        ids = [agent.followup(word) for word in ("one", "two", "three")]
        await agent.when_idle()
        assert [data["turn"] for data in events(agent, "turn/start")] == [1, 2, 3]
        assert [data["id"] for data in events(agent, "user/message")] == ids

    play([says("a"), says("b"), says("c")], tmp_path, steps)


def test_a_steered_message_joins_the_running_turn_after_the_call(tmp_path: Path) -> None:
    async def steps(agent: Agent, provider: FakeProvider) -> None:
        gate = Gate()
        provider.script[0].insert(2, gate)
        ending = agent.ask("go")
        await gate.reached.wait()
        logged = len(agent.log.events)
        steered = agent.steer("and this")
        assert len(agent.log.events) == logged, "nothing enters the log between chunks"
        gate.opened.set()
        await ending
        order = types(agent)
        at = order.index("assistant/message")
        assert order[at : at + 5] == [
            "assistant/message",
            "agent/inbox/spliced",
            "step/end",
            "agent/inbox/spliced",
            "step/start",
        ]
        assert [data["id"] for data in events(agent, "user/message")][1] == steered
        assert len(endings(agent)) == 1 and provider.requests[1].messages[-1]["id"] == steered

    play([says("a", "b"), says("c")], tmp_path, steps)


def test_steering_an_idle_agent_opens_a_turn(tmp_path: Path) -> None:
    async def steps(agent: Agent, provider: FakeProvider) -> None:
        agent.steer("go")
        await agent.when_idle()
        assert events(agent, "agent/inbox/spliced")[0]["target"] == "next-turn"
        assert endings(agent) == [{"kind": "completed"}]

    play([says("a")], tmp_path, steps)


def test_a_plugin_message_names_its_plugin(tmp_path: Path) -> None:
    async def steps(agent: Agent, provider: FakeProvider) -> None:
        agent.inject("job done", plugin="jobs", form="notice", summary="job 1")
        agent.inject("joins", plugin="jobs", target="next-step")
        await agent.when_idle()
        assert [data["source"] for data in events(agent, "user/message")] == [
            {"kind": "plugin", "plugin": "jobs"},
            {"kind": "plugin", "plugin": "jobs", "form": "notice", "summary": "job 1"},
        ]

    play([says("a")], tmp_path, steps)


def test_a_failed_turn_leaves_what_was_steered_to_the_next_turn(tmp_path: Path) -> None:
    async def steps(agent: Agent, provider: FakeProvider) -> None:
        gate = Gate()
        provider.script[0] = [gate, RuntimeError("down")]
        ending = agent.ask("go")
        await gate.reached.wait()
        steered = agent.steer("and this")
        gate.opened.set()
        assert (await ending)["kind"] == "error"
        await agent.when_idle()
        assert [ending["kind"] for ending in endings(agent)] == ["error", "completed"]
        assert provider.requests[1].messages[-1]["id"] == steered

    play([[], says("b")], tmp_path, steps)


def test_cancelling_leaves_followups_queued(tmp_path: Path) -> None:
    async def steps(agent: Agent, provider: FakeProvider) -> None:
        gate = Gate()
        provider.script[0] = [gate]
        first, second = agent.ask("one"), agent.ask("two")
        await gate.reached.wait()
        agent.cancel()
        assert (await first)["kind"] == "aborted"
        assert (await second)["kind"] == "completed"

    play([[], says("b")], tmp_path, steps)


def test_closing_aborts_the_turn_and_drops_the_queue_durably(tmp_path: Path) -> None:
    async def main() -> None:
        gate = Gate()
        async with agent_with([[*text("half")[:2], gate]], tmp_path) as (agent, _):
            first, second = agent.ask("one"), agent.ask("two")
            await gate.reached.wait()
            agent.steer("three")
            await agent.close()
            await agent.close()
            assert agent.status == "disposed"
            shutdown = {"kind": "aborted", "reason": {"kind": "shutdown"}}
            assert await first == shutdown and await second == shutdown
            assert endings(agent) == [shutdown]
            assert not Inbox(agent.log).pending()
            with pytest.raises(OnetakeError, match="is closed"):
                agent.followup("four")

    asyncio.run(main())


def test_closing_before_the_first_turn_drops_its_message(tmp_path: Path) -> None:
    async def main() -> None:
        async with agent_with([], tmp_path) as (agent, provider):
            ending = agent.ask("one")
            await agent.close({"kind": "other"})
            assert await ending == {"kind": "aborted", "reason": {"kind": "other"}}
            assert types(agent) == ["agent/inbox/spliced", "agent/inbox/spliced"]
            assert provider.requests == []

    asyncio.run(main())


@pytest.mark.parametrize("field", ["max_steps", "parallel_tools"])
def test_limits_must_be_positive(field: str) -> None:
    with pytest.raises(msgspec.ValidationError, match=f"`{field}` must be at least 1"):
        msgspec.convert({"provider": "p", "model": "m", field: 0}, AgentConfig)


def test_who_is_told_of_a_message_may_say_another_at_once(tmp_path: Path) -> None:
    async def main() -> None:
        async with agent_with([says("one"), says("two")], tmp_path) as (agent, _):

            def echo(event: dict[str, Any]) -> None:
                if event["type"] == "agent/inbox/spliced":
                    unsubscribe()
                    agent.followup("second")

            unsubscribe = agent.log.subscribe(echo)
            agent.followup("first")
            assert Inbox(agent.log)._queues == agent.inbox._queues
            await agent.when_idle()
            asked = [data["content"][0]["text"] for data in events(agent, "user/message")]
            assert asked == ["first", "second"]
            assert [data["start"] for data in events(agent, "agent/inbox/spliced")] == [0, 1, 0, 0]

    asyncio.run(main())
