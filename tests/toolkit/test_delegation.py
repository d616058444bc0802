"""Sub-agents: what a child is, what its parent learns, and that nothing depends on who is faster."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from onetake.agent.agent import Agent, AgentConfig
from onetake.agent.context import AppContext
from onetake.errors import OnetakeError
from onetake.model.registry import ModelInfo
from onetake.model.request import ModelRequest
from onetake.runfile import RunFile
from onetake.session.events import make_event
from onetake.toolkit.delegation.config import DelegationConfig, Preset
from onetake.toolkit.delegation.plugin import delegation
from onetake.toolkit.delegation.tools import number_of, spawn_record
from onetake.tools.registry import ToolContext, define_tool
from tests.agent.fakes import Gate, Item, add_tool, calls, endings, events, finish, results, say, says, text

Chunk = dict[str, Any]


class Answers:
    """A provider that answers by what was said last, whoever asks; each answer is used once."""

    id = "fake"
    models = {"m": ModelInfo(id="m")}  # noqa: RUF012

    def __init__(self, script: dict[str, list[list[Item]]]) -> None:
        self.script = script
        self.requests: list[ModelRequest] = []

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Chunk, None]:
        self.requests.append(request)
        said = [m for m in request.messages if m["role"] == "user" and "text" in m["content"][0]]
        asked = said[-1]
        for item in self.script[asked["content"][0]["text"]].pop(0):
            if isinstance(item, Gate):
                await item.pass_through()
            else:
                await asyncio.sleep(0)
                yield item

    def told(self, number: int) -> list[str]:
        """The texts of the messages of a request."""
        return [m["content"][0].get("text", "") for m in self.requests[number].messages]


def task(call_id: str, prompt: str, tool: str = "subagent", **more: Any) -> tuple[str, str, str]:
    """A delegating call."""
    return call_id, tool, json.dumps({"description": f"do {prompt}", "prompt": prompt, **more})


def behind(prompt: str, call_id: str = "c", **more: Any) -> tuple[str, str, str]:
    """A delegating call for the background."""
    return task(call_id, prompt, run_in_background=True, **more)


def waits(*ids: str) -> list[Item]:
    """A model call that waits for children."""
    return calls(*((f"w{i}", "subagent_wait", json.dumps({"subagent_id": i})) for i in ids))


Steps = Callable[[Agent, Answers, list[Agent]], Awaitable[None]]


def delegating(
    script: dict[str, list[list[Item]]],
    tmp_path: Path,
    steps: Steps,
    *,
    config: DelegationConfig | None = None,
) -> None:
    """Run `steps` with an agent that can delegate; its third argument collects the children.

    In the end all is closed, and no task may be left.
    """

    async def run() -> None:
        ctx = AppContext(config_dir=tmp_path, environ={"HOME": str(tmp_path)}, run=RunFile(mode="replay"))
        provider = Answers(script)
        ctx.providers.register(provider)
        ctx.agent_config = AgentConfig(provider="fake", model="m")
        add_tool(ctx, "echo", say)
        children: list[Agent] = []
        create = ctx.create_session

        async def watched(*args: Any, **more: Any) -> Agent:
            agent = await create(*args, **more)
            if agent.depth:
                children.append(agent)
            return agent

        ctx.create_session = watched  # type: ignore[method-assign]
        async with delegation(ctx, config or DelegationConfig()):
            agent = await ctx.create_session(tmp_path)
            try:
                await steps(agent, provider, children)
            finally:
                await ctx.close()
        assert ctx.tools.names() == ["echo"] and ctx.agents == {} and ctx.background == []
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(run())


def test_a_child_does_a_task_in_a_session_of_its_own(tmp_path: Path) -> None:
    async def steps(agent: Agent, provider: Answers, children: list[Agent]) -> None:
        assert (await agent.ask("go"))["kind"] == "completed"
        assert results(agent) == [("c", "done", False, None)]
        (child,) = children
        assert child.status == "disposed" and list(agent.ctx.agents) == [agent.id]
        header = child.log.header
        assert [key for key in header if key not in ("id", "createdAt")] == [
            *("type", "version", "cwd", "parentSession", "origin", "delegationDepth")
        ]
        assert (header["parentSession"], header["origin"], header["delegationDepth"]) == (
            *(agent.id, "subagent", 1),
        )
        assert child.log.events[0]["type"] == "subagent/descriptor"
        assert child.log.events[0]["data"] == {
            "version": 2,
            "mode": "one-shot",
            "provider": "spawn",
            "label": "do work",
            "spawn": {"turn": 1, "step": 1, "callId": "c"},
        }
        assert provider.told(1) == ["work"] and provider.requests[1].call == 1
        assert provider.requests[1].tools == provider.requests[0].tools

    script = {"go": [calls(task("c", "work")), says("ok")], "work": [says("done")]}
    delegating(script, tmp_path, steps)


def test_the_last_words_are_the_answer(tmp_path: Path) -> None:
    async def steps(agent: Agent, provider: Answers, children: list[Agent]) -> None:
        await agent.ask("go")
        assert results(agent) == [("c", "in\n\ntwo parts", False, None)]

    two = [*text("in"), *text("two parts", index=1), *finish("stop")]
    work = [[*text("wait", index=7), *calls(("e", "echo", "{}"))], two]
    delegating({"go": [calls(task("c", "work")), says("ok")], "work": work}, tmp_path, steps)


def test_a_fork_goes_on_from_the_completed_turns(tmp_path: Path) -> None:
    async def steps(agent: Agent, provider: Answers, children: list[Agent]) -> None:
        await agent.ask("remember 7")
        agent.followup("go")
        agent.followup("later")
        await agent.when_idle()
        (child,) = children
        seed = child.log.header["seedLength"]
        assert child.log.events[:seed] == agent.log.events[:seed]
        assert agent.log.events[seed - 1]["type"] == "turn/end" and seed < len(agent.log.events)
        own = child.log.events[seed:]
        assert [event["type"] for event in own[:2]] == ["session/end-seed", "subagent/descriptor"]
        assert own[1]["data"]["provider"] == "fork" and own[1]["data"]["spawn"]["turn"] == 2
        forked = next(n for n, r in enumerate(provider.requests) if r.session_id == child.id)
        assert provider.told(forked) == ["remember 7", "noted", "what was it?"]
        assert provider.requests[forked].call == 1 and child.log.header["delegationDepth"] == 1
        assert results(agent) == [("c", "7", False, None)]

    script = {
        "remember 7": [says("noted")],
        "go": [calls(task("c", "what was it?", "subagent_fork")), says("ok")],
        "what was it?": [says("7")],
        "later": [says("later too")],
    }
    delegating(script, tmp_path, steps)


def test_what_the_seed_still_owes_is_not_the_childs(tmp_path: Path) -> None:
    """A prompt that was queued before the turn ended is in the seed, and stays the parent's to answer."""

    async def steps(agent: Agent, provider: Answers, children: list[Agent]) -> None:
        agent.followup("first")
        agent.followup("go")
        agent.followup("later")
        await agent.when_idle()
        (child,) = children
        own = child.log.events[child.log.header["seedLength"] :]
        assert own[1]["data"] == {
            **{"target": "next-turn", "start": 0, "removedCount": 2, "inserted": [], "outcome": "canceled"}
        }
        assert len(endings(child)) == 2 and endings(agent) == [{"kind": "completed"}] * 3

    script = {
        "first": [says("1")],
        "go": [calls(task("c", "work", "subagent_fork")), says("2")],
        "work": [says("w")],
        "later": [says("3")],
    }
    delegating(script, tmp_path, steps)


def test_a_fork_in_the_first_turn_has_an_empty_seed(tmp_path: Path) -> None:
    async def steps(agent: Agent, provider: Answers, children: list[Agent]) -> None:
        await agent.ask("go")
        assert children[0].log.header["seedLength"] == 0 and provider.told(1) == ["work"]

    script = {"go": [calls(task("c", "work", "subagent_fork")), says("ok")], "work": [says("w")]}
    delegating(script, tmp_path, steps)


FAILURES: list[tuple[list[Item], str, str]] = [
    (
        [*text("half"), *finish("error", failure={"message": "it broke", "code": "SERVER"})],
        "Error: the sub-agent failed: it broke",
        "FAILED",
    ),
    (
        [*text("half"), *finish("max-tokens")],
        "Error: the sub-agent was cut off at its token limit\nIts last words before that:\nhalf",
        "MAX_TOKENS",
    ),
]


@pytest.mark.parametrize(("answer", "message", "code"), FAILURES)
def test_a_failure_is_told_with_what_was_said_before(
    tmp_path: Path, answer: list[Item], message: str, code: str
) -> None:
    async def steps(agent: Agent, provider: Answers, children: list[Agent]) -> None:
        await agent.ask("go")
        assert results(agent) == [("c", message, True, code)] and endings(agent) == [{"kind": "completed"}]

    script = {"go": [calls(task("c", "work")), says("ok")], "work": [answer]}
    delegating(script, tmp_path, steps)


def test_a_child_without_an_answer_says_so(tmp_path: Path) -> None:
    async def steps(agent: Agent, provider: Answers, children: list[Agent]) -> None:
        await agent.ask("go")
        assert results(agent) == [("c", "(the sub-agent ended without an answer)", False, None)]

    thought = {"type": "block-end", "index": 0, "block": {"type": "reasoning", "text": "hm"}}
    script = {"go": [calls(task("c", "work")), says("ok")], "work": [[thought, *finish("stop")]]}
    delegating(script, tmp_path, steps)


def test_a_child_that_somebody_else_ends_was_cancelled(tmp_path: Path) -> None:
    gate = Gate()

    async def steps(agent: Agent, provider: Answers, children: list[Agent]) -> None:
        ending = agent.ask("go")
        await gate.reached.wait()
        await agent.ctx.close_session(children[0].id)
        await ending
        assert results(agent) == [("c", "Error: the sub-agent was cancelled", True, "CANCELLED")]

    script = {"go": [calls(task("c", "work")), says("ok")], "work": [[gate]]}
    delegating(script, tmp_path, steps)


def test_four_at_the_same_time_answer_in_model_order(tmp_path: Path) -> None:
    gates = {name: Gate() for name in "abcd"}

    async def steps(agent: Agent, provider: Answers, children: list[Agent]) -> None:
        ending = agent.ask("go")
        for gate in gates.values():
            await gate.reached.wait()
        for name in "dbca":
            gates[name].opened.set()
            await asyncio.sleep(0.001)
        await ending
        assert results(agent) == [(name, name.upper(), False, None) for name in "abcd"]
        assert len({child.id for child in children}) == 4

    script = {"go": [calls(*(task(name, name) for name in "abcd")), says("ok")]}
    script |= {name: [[gate, *says(name.upper())]] for name, gate in gates.items()}
    delegating(script, tmp_path, steps)


def test_too_deep_is_refused(tmp_path: Path) -> None:
    async def steps(agent: Agent, provider: Answers, children: list[Agent]) -> None:
        await agent.ask("go")
        message = "Error: this sub-agent would be 2 levels deep, and the limit is 1: do the task yourself"
        assert results(children[0]) == [("d", message, True, "DEPTH_LIMIT")] and len(children) == 1

    script = {
        "go": [calls(task("c", "work")), says("ok")],
        "work": [calls(task("d", "more")), says("alone")],
    }
    delegating(script, tmp_path, steps)


def test_children_of_children_belong_to_them_but_not_in_the_background(tmp_path: Path) -> None:
    async def steps(agent: Agent, provider: Answers, children: list[Agent]) -> None:
        await agent.ask("go")
        child, grandchild = children
        assert grandchild.log.header["parentSession"] == child.id and grandchild.depth == 2
        assert [result[1:] for result in results(child)] == [
            (
                "Error: a sub-agent cannot have sub-agents in the background: leave run_in_background out",
                True,
                "NO_BACKGROUND",
            ),
            ("deep", False, None),
        ]

    script = {
        "go": [calls(task("c", "work")), says("ok")],
        "work": [calls(behind("x"), task("d", "more")), says("alone")],
        "more": [says("deep")],
    }
    delegating(script, tmp_path, steps, config=DelegationConfig(max_depth=2))


PRESETS = DelegationConfig(
    presets={
        "scout": Preset(description="looks around", system="You scout {cwd}.", tools=["echo"]),
        "plain": Preset(description="is plain"),
        "broken": Preset(description="cannot be", tools=["nope"]),
    }
)


def test_a_preset_has_its_own_prompt_and_tools(tmp_path: Path) -> None:
    async def steps(agent: Agent, provider: Answers, children: list[Agent]) -> None:
        agent.ctx.prompt.register("role", "You lead.")
        await agent.ask("go")
        assert [child.log.header.get("agentPreset") for child in children] == ["scout", "plain", None]
        by_session = {request.session_id: request for request in provider.requests}
        assert [by_session[child.id].system for child in children] == [
            *(f"You scout {tmp_path}.", "You lead.", "You lead.")
        ]
        names = [[tool["name"] for tool in by_session[c.id].tools or ()] for c in children]
        everything = ["echo", "subagent", "subagent_fork", "subagent_wait"]
        assert names == [["echo"], everything, everything]
        assert results(children[0]) == [("e", "x", False, None)]

    script = {
        "go": [
            calls(task("a", "one", preset="scout"), task("b", "two", preset="plain"), task("c", "three")),
            says("ok"),
        ],
        "one": [calls(("e", "echo", '{"text": "x"}')), says("1")],
        "two": [says("2")],
        "three": [says("3")],
    }
    delegating(script, tmp_path, steps, config=PRESETS)


def test_a_preset_that_cannot_be_is_an_error_of_the_call(tmp_path: Path) -> None:
    async def steps(agent: Agent, provider: Answers, children: list[Agent]) -> None:
        await agent.ask("go")
        (_, broken, _, code), (_, unknown, _, invalid) = results(agent)
        assert "the preset 'broken' names the tool 'nope'; its parent has echo, subagent," in broken
        assert (code, invalid) == ("TOOL_ERROR", "INVALID_ARGUMENTS") and "scout" in unknown
        assert children == []

    script = {"go": [calls(task("a", "one", preset="broken"), task("b", "two", preset="no")), says("ok")]}
    delegating(script, tmp_path, steps, config=PRESETS)


def test_the_model_is_told_which_presets_there_are(tmp_path: Path) -> None:
    async def steps(agent: Agent, provider: Answers, children: list[Agent]) -> None:
        tool = agent.tools.get("subagent")
        assert tool is not None
        preset = tool.parameters["properties"]["preset"]
        assert (
            preset["enum"] == ["scout", "plain", "broken"] and "scout: looks around" in preset["description"]
        )

    delegating({}, tmp_path, steps, config=PRESETS)
    delegating({}, tmp_path, _no_presets)


async def _no_presets(agent: Agent, provider: Answers, children: list[Agent]) -> None:
    tool = agent.tools.get("subagent")
    assert tool is not None and "preset" not in tool.parameters["properties"]


def notices(agent: Agent) -> list[list[str]]:
    """The texts of the notices that a log holds."""
    return [
        [block["text"] for block in message["content"]]
        for message in events(agent, "user/message")
        if message["source"]["kind"] == "subagent-settled"
    ]


DONE_A = "The sub-agent agent-1 (do a) is done."
DONE_B = "The sub-agent agent-2 (do b) is done."


def test_notices_come_between_turns_in_the_order_of_the_calls(tmp_path: Path) -> None:
    """However fast the children are: the second is done within the turn, the first long after it."""
    slow = Gate()

    async def steps(agent: Agent, provider: Answers, children: list[Agent]) -> None:
        assert (await agent.ask("go"))["kind"] == "completed"
        await asyncio.wait_for(_until(lambda: children[1].status == "disposed"), 5)
        await asyncio.sleep(0.01)
        assert agent.status == "idle" and notices(agent) == []
        slow.opened.set()
        await agent.ctx.settled()
        assert notices(agent) == [[DONE_A, "Its answer:", "A"], [DONE_B, "Its answer:", "B"]]
        assert endings(agent) == [{"kind": "completed"}] * 3
        source = events(agent, "user/message")[1]["source"]
        assert source == {
            **{"kind": "subagent-settled", "form": "notice", "summary": DONE_A, "subagentId": "agent-1"},
            "senderSessionId": children[0].id,
        }
        started = [result[1].split(" has started")[0] for result in results(agent)]
        assert started == ["agent-1", "agent-2"]

    script = {
        "go": [calls(behind("a", "c1"), behind("b", "c2")), says("running")],
        "a": [[slow, *says("A")]],
        "b": [says("B")],
        DONE_A: [says("so")],
        DONE_B: [says("so")],
    }
    delegating(script, tmp_path, steps)


async def _until(condition: Callable[[], bool]) -> None:
    while not condition():
        await asyncio.sleep(0.001)


def test_what_was_said_meanwhile_goes_first(tmp_path: Path) -> None:
    async def steps(agent: Agent, provider: Answers, children: list[Agent]) -> None:
        agent.followup("go")
        agent.followup("and you?")
        await agent.ctx.settled()
        texts = [message["content"][0]["text"] for message in events(agent, "user/message")]
        assert texts == ["go", "and you?", DONE_A]

    script = {"go": [calls(behind("a")), says("running")], "a": [says("A")]}
    script |= {"and you?": [says("fine")], DONE_A: [says("so")]}
    delegating(script, tmp_path, steps)


def test_a_child_that_fails_in_the_background_is_told_too(tmp_path: Path) -> None:
    async def steps(agent: Agent, provider: Answers, children: list[Agent]) -> None:
        await agent.ask("go")
        await agent.ctx.settled()
        assert notices(agent) == [
            [
                "The sub-agent agent-1 (do a) was cut off at its token limit.",
                "Its last words before that:",
                "hal",
            ],
            [
                "The sub-agent agent-2 (do b) failed: the preset 'broken' names the tool 'nope'; its parent "
                "has echo, subagent, subagent_fork, subagent_wait."
            ],
        ]
        assert "senderSessionId" not in events(agent, "user/message")[2]["source"]

    script = {
        "go": [calls(behind("a", "c1"), behind("b", "c2", preset="broken")), says("running")],
        "a": [[*text("hal"), *finish("max-tokens")]],
        "The sub-agent agent-1 (do a) was cut off at its token limit.": [says("oh")],
    }
    broken = (
        "The sub-agent agent-2 (do b) failed: the preset 'broken' names the tool 'nope'; its parent has "
        "echo, subagent, subagent_fork, subagent_wait."
    )
    delegating({**script, broken: [says("oh")]}, tmp_path, steps, config=PRESETS)


def test_within_a_turn_the_model_waits(tmp_path: Path) -> None:
    """Whatever it has got by waiting does not come as a notice again, but can be asked for again."""
    gate = Gate()

    async def steps(agent: Agent, provider: Answers, children: list[Agent]) -> None:
        ending = agent.ask("go")
        await gate.reached.wait()
        gate.opened.set()
        await ending
        await agent.ctx.settled()
        assert [result[1:] for result in results(agent)][2:] == [
            ("B", False, None),
            ("Error: the sub-agent failed: no", True, "FAILED"),
            ("B", False, None),
        ]
        assert notices(agent) == []

    failing = finish("error", failure={"message": "no", "code": "SERVER"})
    script = {
        "go": [
            calls(behind("a", "c1"), behind("b", "c2")),
            waits("agent-2"),
            waits("agent-1", "agent-2"),
            says("ok"),
        ],
        "a": [[gate, *text("x"), *failing]],
        "b": [says("B")],
    }
    delegating(script, tmp_path, steps)


def test_only_children_of_earlier_steps_can_be_waited_for(tmp_path: Path) -> None:
    async def steps(agent: Agent, provider: Answers, children: list[Agent]) -> None:
        await agent.ask("go")
        await agent.ctx.settled()
        found = [result[1:] for result in results(agent)][1:]
        nobody = "Error: there is no sub-agent {!r} in the background; there is {}"
        assert found == [
            (nobody.format("agent-1", "none"), True, "NOT_FOUND"),
            (nobody.format("agent-7", "agent-1"), True, "NOT_FOUND"),
        ]

    guess = ("w", "subagent_wait", '{"subagent_id": "agent-1"}')
    script = {"go": [calls(behind("a"), guess), waits("agent-7"), says("ok")], "a": [says("A")]}
    delegating({**script, DONE_A: [says("so")]}, tmp_path, steps)


def test_cancelling_the_turn_cancels_the_children_that_it_waits_for(tmp_path: Path) -> None:
    gates = [Gate(), Gate()]

    async def steps(agent: Agent, provider: Answers, children: list[Agent]) -> None:
        ending = agent.ask("go")
        for gate in gates:
            await gate.reached.wait()
        agent.cancel()
        assert (await ending) == {"kind": "aborted", "reason": {"kind": "user"}}
        assert [result[3] for result in results(agent)] == ["ABORTED", "ABORTED"]
        for child in children:
            assert endings(child) == [{"kind": "aborted", "reason": {"kind": "parent"}}]
            assert child.status == "disposed"
        assert list(agent.ctx.agents) == [agent.id]

    script = {"go": [calls(task("c1", "a"), task("c2", "b"))], "a": [[gates[0]]], "b": [[gates[1]]]}
    delegating(script, tmp_path, steps)


def test_cancelling_the_turn_leaves_a_child_in_the_background_alone(tmp_path: Path) -> None:
    """Only the wait for it ends. Its answer comes as a notice, like that of one nobody waited for."""
    gate = Gate()

    async def steps(agent: Agent, provider: Answers, children: list[Agent]) -> None:
        ending = agent.ask("go")
        await gate.reached.wait()
        while len(events(agent, "tool/call")) < 2:
            await asyncio.sleep(0)
        for _ in range(100):  # by now the call is served
            await asyncio.sleep(0)
        agent.cancel()
        assert (await ending) == {"kind": "aborted", "reason": {"kind": "user"}}
        assert results(agent)[1][3] == "ABORTED" and endings(children[0]) == []
        gate.opened.set()
        await agent.ctx.settled()
        assert endings(children[0]) == [{"kind": "completed"}]
        assert notices(agent) == [[DONE_A, "Its answer:", "A"]]

    script = {
        "go": [calls(behind("a", "c1")), waits("agent-1")],
        "a": [[gate, *says("A")]],
        DONE_A: [says("ok")],
    }
    delegating(script, tmp_path, steps)


def test_an_order_that_was_not_committed_starts_nothing(tmp_path: Path) -> None:
    """The call was served, but the turn was cancelled before its result could be committed."""
    gate = Gate()

    async def steps(agent: Agent, provider: Answers, children: list[Agent]) -> None:
        async def stuck(arguments: dict[str, Any], call: ToolContext) -> str:
            await gate.pass_through()
            return "never"

        unregister = agent.tools.register(define_tool("stuck", "Waits.", {"type": "object"}, stuck))
        ending = agent.ask("go")
        await gate.reached.wait()
        await asyncio.sleep(0.005)
        agent.cancel()
        await ending
        assert children == []
        await agent.ask("again")
        await agent.ctx.settled()
        assert notices(agent) == [[DONE_B, "Its answer:", "B"]] and len(children) == 1
        unregister()

    script = {
        "go": [calls(("e", "stuck", "{}"), behind("a", "c1"))],
        "again": [calls(behind("b", "c2")), says("ok")],
        "b": [says("B")],
        DONE_B: [says("so")],
    }
    delegating(script, tmp_path, steps)


def test_children_in_the_background_end_with_the_agent(tmp_path: Path) -> None:
    """Without a notice, which would make the parent go on, whatever they were doing."""
    gate = Gate()

    async def steps(agent: Agent, provider: Answers, children: list[Agent]) -> None:
        await agent.ask("go")
        await gate.reached.wait()
        await agent.ctx.close()
        assert endings(children[0]) == [{"kind": "aborted", "reason": {"kind": "shutdown"}}]
        assert notices(agent) == [] and len(provider.requests) == 3

    script = {"go": [calls(behind("a")), says("running")], "a": [[gate]]}
    delegating(script, tmp_path, steps)


def test_a_child_that_was_just_ordered_is_not_started_any_more(tmp_path: Path) -> None:
    async def steps(agent: Agent, provider: Answers, children: list[Agent]) -> None:
        def close(event: dict[str, Any]) -> None:
            if event["type"] == "tool/result":
                closing.append(asyncio.get_running_loop().create_task(agent.ctx.close()))
                agent.stop()

        closing: list[asyncio.Task[None]] = []
        agent.log.subscribe(close)
        await agent.ask("go")
        await asyncio.gather(*closing)
        assert children == [] and endings(agent) == [{"kind": "aborted", "reason": {"kind": "shutdown"}}]

    delegating({"go": [calls(behind("a"))]}, tmp_path, steps)


def test_closing_a_session_ends_its_children_first(tmp_path: Path) -> None:
    gate = Gate()

    async def steps(agent: Agent, provider: Answers, children: list[Agent]) -> None:
        other = await agent.ctx.create_session(tmp_path)
        ending = agent.ask("go")
        await gate.reached.wait()
        order: list[str] = []
        for each in (agent, children[0]):
            each.log.subscribe(lambda e, i=each.id: order.append(i) if e["type"] == "turn/end" else None)
        await agent.ctx.close_session(agent.id)
        assert (await ending)["reason"] == {"kind": "shutdown"} and order == [children[0].id, agent.id]
        assert agent.ctx.agents == {other.id: other}

    delegating({"go": [calls(task("c", "a"))], "a": [[gate]]}, tmp_path, steps)


def test_a_call_of_a_session_that_is_gone_is_an_error(tmp_path: Path) -> None:
    async def steps(agent: Agent, provider: Answers, children: list[Agent]) -> None:
        tool = agent.tools.get("subagent_wait")
        assert tool is not None
        call = place(1, 1, "c", 1)
        with pytest.raises(OnetakeError, match="the session is being closed"):
            await tool.handler({"subagent_id": "agent-1"}, call)

    delegating({}, tmp_path, steps)


def place(turn: int, step: int, call_id: str, ordinal: int) -> ToolContext:
    """A call as its tool sees it."""
    return ToolContext(
        session_id="s",
        call_id=call_id,
        turn=turn,
        step=step,
        ordinal=ordinal,
        cwd=Path(),
        spill_dir=Path(),
        env={},
    )


def rows(*calls: tuple[int, int, str, str]) -> list[dict[str, Any]]:
    """A log of nothing but tool calls, given as (turn, step, call id, tool)."""
    return [
        make_event("tool/call", seq, 0, {"turn": turn, "step": step, "callId": call_id, "name": name})
        for seq, (turn, step, call_id, name) in enumerate(calls)
    ]


def test_numbers_follow_from_the_log() -> None:
    log = rows(
        (1, 1, "x", "subagent"),
        (1, 2, "x", "bash"),
        (1, 2, "x", "subagent_fork"),
        (2, 1, "a", "subagent"),
        (2, 1, "b", "subagent_wait"),
        (2, 1, "a", "subagent"),
        (2, 1, "a", "subagent_fork"),
    )
    assert [number_of(log, place(2, 1, "a", ordinal)) for ordinal in (1, 3, 4)] == [3, 4, 5]
    assert number_of(log[:3], place(1, 2, "x", 2)) == 2 and number_of(log[:1], place(1, 1, "x", 1)) == 1


def test_calls_of_one_step_with_one_id_are_told_apart() -> None:
    log = rows((1, 1, "a", "subagent"), (2, 1, "a", "subagent"), (2, 1, "b", "bash"), (2, 1, "a", "subagent"))
    same = {"turn": 2, "step": 1, "callId": "a"}
    assert spawn_record(log, place(2, 1, "a", 1)) == same
    assert spawn_record(log, place(2, 1, "a", 3)) == {**same, "ordinal": 1}
