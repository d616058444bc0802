"""Whatever is said to an agent, and whenever: the log stays a log that can be read, repaired and replayed.

A schedule says things, cancels and lets time pass; the model and the tools do what they like. Afterwards the
log must satisfy every invariant of a well-formed conversation.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onetake.agent.inbox import Inbox
from onetake.model.failures import ModelFailure, failure
from onetake.session.events import make_header
from onetake.session.log import SessionLog
from onetake.session.repair import close_interrupted
from onetake.tools.registry import ToolContext
from tests.agent.fakes import Item, add_tool, agent_with, calls, finish, says, text

Event = dict[str, Any]

OPENING = {"turn/start": "turn/end", "step/start": "step/end"}


def violations(events: list[Event], said: list[str]) -> list[str]:
    """What is wrong with a finished log, in words; nothing for a good one."""
    wrong: list[str] = []
    open_turn: int | None = None
    open_step: int | None = None
    last_turn = 0
    last_step = 0
    calls: dict[int, str] = {}
    for event in events:
        kind, data = event["type"], event["data"]
        if kind == "turn/start":
            if open_turn is not None or data["turn"] <= last_turn:
                wrong.append(f"turn {data['turn']} starts inside or before another")
            open_turn = last_turn = data["turn"]
            last_step = 0
        elif kind == "turn/end":
            if open_turn != data["turn"] or open_step is not None:
                wrong.append(f"turn {data['turn']} ends while it or a step is not as it should be")
            open_turn = None
        elif kind == "step/start":
            if open_turn != data["turn"] or open_step is not None or data["step"] != last_step + 1:
                wrong.append(f"step {data['step']} starts out of order")
            open_step = last_step = data["step"]
        elif kind == "step/end":
            if open_step != data["step"] or calls:
                wrong.append(f"step {data['step']} ends with {len(calls)} open calls")
            open_step = None
        elif kind.startswith(("assistant/", "tool/", "user/", "request/")):
            if open_step is None:
                wrong.append(f"{kind} outside of a step")
            placed = kind.startswith(("assistant/", "tool/"))
            if placed and (data["turn"], data["step"]) != (open_turn, open_step):
                wrong.append(f"{kind} belongs to another step")
        if kind == "tool/call":
            calls[event["seq"]] = data["callId"]
        elif kind == "tool/result":
            (source,) = event["sourceEventSeqs"]
            if calls.get(source) != data["message"]["source"]["callId"] or source != min(calls):
                wrong.append("a result without its call, twice, or out of order")
            calls.pop(source, None)
    if open_turn is not None or open_step is not None:
        wrong.append("a turn or step is open at the end")
    delivered = [event["data"]["id"] for event in events if event["type"] == "user/message"]
    wrong += placement(events, said, delivered)
    return wrong


def placement(events: list[Event], said: list[str], delivered: list[str]) -> list[str]:
    """Each message is in the conversation exactly once, or durably cancelled exactly once, never both."""
    queues: dict[str, list[str]] = {"next-turn": [], "next-step": []}
    cancelled: list[str] = []
    wrong: list[str] = []
    for event in events:
        if event["type"] != "agent/inbox/spliced":
            continue
        data = event["data"]
        queue, start = queues[data["target"]], data["start"]
        removed = queue[start : start + data.get("removedCount", 0)]
        if len(removed) != data.get("removedCount", 0):
            wrong.append("a splice removes what is not there")
        queue[start : start + len(removed)] = [message["id"] for message in data["inserted"]]
        if data.get("outcome") == "canceled":
            cancelled += removed
    wrong += [f"{name} is not empty" for name, queue in queues.items() if queue]
    if sorted(delivered + cancelled) != sorted(said):
        wrong.append("a message was lost, delivered twice, or both delivered and cancelled")
    return wrong


MODEL_CALLS = st.one_of(
    st.just("says"),
    st.just("max-tokens"),
    st.just("error"),
    st.just("throw"),
    st.lists(st.sampled_from(["echo", "slow", "missing", "fail"]), min_size=1, max_size=4),
)
OPS = st.lists(
    st.one_of(
        st.sampled_from(["followup", "steer", "inject", "cancel"]),
        st.integers(min_value=0, max_value=40),  # let the event loop go round that often
    ),
    max_size=25,
)


def call_of(kind: str | list[str], number: int) -> list[Item]:
    """What the model does in one call."""
    if isinstance(kind, list):
        # Ids repeat across calls of one step on purpose: models do that.
        return calls(*((f"call_{number}_{place // 2}", name, "{}") for place, name in enumerate(kind)))
    if kind == "max-tokens":
        return [*text("a"), *calls(("x", "echo", "{"))[1:2], *finish("max-tokens")]
    if kind == "error":
        return [*text("a"), *finish("error", failure={"message": "no", "code": "X"})]
    if kind == "throw":
        return [*text("a")[:2], ModelFailure(failure("no", "X"))]
    return says("a", "b")


@given(
    ops=OPS,
    model=st.lists(MODEL_CALLS, max_size=30),
    parallel=st.integers(1, 3),
    max_steps=st.integers(1, 4),
    close_early=st.booleans(),
)
def test_every_schedule_leaves_a_well_formed_log(
    ops: list[str | int],
    model: list[str | list[str]],
    parallel: int,
    max_steps: int,
    close_early: bool,
) -> None:
    async def main() -> None:
        # More calls than the schedule can cause, so that the model never runs out.
        script = [call_of(kind, number) for number, kind in enumerate(model)]
        script += [says("end") for _ in range(4 * len(ops) + 4)]
        said: list[str] = []
        limits = {"parallel_tools": parallel, "max_steps": max_steps}
        async with agent_with(script, Path("/nowhere"), **limits) as (agent, _):

            async def slow(arguments: Any, ctx: ToolContext) -> str:
                for _ in range(7):
                    await asyncio.sleep(0)
                return "slow"

            async def fail(arguments: Any, ctx: ToolContext) -> str:
                raise ValueError("fail")

            add_tool(agent.ctx, "slow", slow)
            add_tool(agent.ctx, "fail", fail)
            for op in ops:
                if op == "followup":
                    said.append(agent.followup("f"))
                elif op == "steer":
                    said.append(agent.steer("s"))
                elif op == "inject":
                    said.append(agent.inject("i", plugin="p"))
                elif op == "cancel":
                    agent.cancel()
                else:
                    assert isinstance(op, int)
                    for _ in range(op):
                        await asyncio.sleep(0)
            if not close_early:
                await agent.when_idle()
                assert agent.status == "idle"
        events = agent.log.events
        assert violations(events, said) == []
        assert close_interrupted(events) == []

    asyncio.run(main())


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


GOOD = [
    ("agent/inbox/spliced", {"target": "next-turn", "start": 0, "inserted": [{"id": "m"}]}),
    ("turn/start", {"turn": 1}),
    ("agent/inbox/spliced", {"target": "next-turn", "start": 0, "removedCount": 1, "inserted": []}),
    ("step/start", {"turn": 1, "step": 1}),
    ("user/message", {"id": "m"}),
    ("tool/call", {"turn": 1, "step": 1, "callId": "a"}),
    ("tool/call", {"turn": 1, "step": 1, "callId": "b"}),
    ("tool/result", {"turn": 1, "step": 1, "message": {"source": {"callId": "a"}}}, 5),
    ("tool/result", {"turn": 1, "step": 1, "message": {"source": {"callId": "b"}}}, 6),
    ("step/end", {"turn": 1, "step": 1}),
    ("turn/end", {"turn": 1}),
]


def built(rows: list[Any]) -> list[Event]:
    return [
        {"type": row[0], "seq": seq, "data": row[1], "sourceEventSeqs": list(row[2:])}
        for seq, row in enumerate(rows)
    ]


def test_the_invariants_accept_a_good_log() -> None:
    assert violations(built(GOOD), ["m"]) == []


@pytest.mark.parametrize("dropped", range(len(GOOD)))
def test_the_invariants_notice_every_dropped_event(dropped: int) -> None:
    events = built(GOOD)
    del events[dropped]
    assert violations(events, ["m"]) != []


@pytest.mark.parametrize("first", [3, 5, 7, 9])
def test_the_invariants_notice_swapped_events(first: int) -> None:
    events = built(GOOD)
    events[first], events[first + 1] = events[first + 1], events[first]
    # Swapping the two calls is fine: each result still has its own call before it.
    assert (violations(events, ["m"]) != []) == (first != 5)
