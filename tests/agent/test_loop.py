"""The loop: what a turn leaves in the log, event by event."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from onetake.agent.agent import Agent
from onetake.agent.loop import UnloggedInput, check_model_input
from onetake.model.failures import ModelFailure, failure
from onetake.session.history import derive_messages
from onetake.tools.registry import ToolContext, ToolResult
from tests.agent.fakes import (
    FakeProvider,
    Gate,
    Item,
    add_tool,
    agent_with,
    calls,
    endings,
    events,
    finish,
    results,
    says,
    text,
    types,
)

Play = Callable[[Agent, FakeProvider], Awaitable[None]]


def play(script: list[list[Item]], tmp_path: Path, steps: Play, **config: Any) -> None:
    async def main() -> None:
        async with agent_with(script, tmp_path, **config) as (agent, provider):
            await steps(agent, provider)

    asyncio.run(main())


def test_a_text_turn_has_the_agreed_event_order(tmp_path: Path) -> None:
    async def steps(agent: Agent, provider: FakeProvider) -> None:
        message_id = agent.followup("hello")
        before: str = agent.status
        await agent.when_idle()
        assert (before, agent.status) == ("running", "idle")
        assert types(agent) == [
            "agent/inbox/spliced",
            "turn/start",
            "agent/inbox/spliced",
            "step/start",
            "user/message",
            "request/header",
            "request/context",
            *["assistant/chunk"] * 6,
            "assistant/message",
            "step/end",
            "turn/end",
        ]
        log = agent.log.events
        message = {
            "content": [{"type": "text", "text": "hello"}],
            "source": {"kind": "user"},
            "role": "user",
            "id": message_id,
        }
        assert log[0]["data"] == {"target": "next-turn", "start": 0, "inserted": [message]}
        assert log[2]["data"] == {"target": "next-turn", "start": 0, "removedCount": 1, "inserted": []}
        assert log[4]["data"] == message and log[4]["surfaceOp"] == "append"
        assert list(log[4]["data"]) == ["content", "source", "role", "id"]
        assert log[5]["data"]["reason"] == "initial"
        assert log[5]["data"]["header"]["config"] == {"provider": "fake", "model": "m"}
        assert log[6]["data"] == {"provider": "fake", "model": "m"}
        answer = log[13]
        assert answer["sourceEventSeqs"] == [7, 8, 9, 10, 11, 12] and answer["surfaceOp"] == "append"
        assert list(answer["data"]) == ["turn", "step", "message", "usage"]
        assert list(answer["data"]["message"]) == ["role", "content", "source", "id"]
        assert answer["data"]["message"]["content"] == [{"type": "text", "text": "one two"}]
        assert answer["data"]["message"]["source"] == {"kind": "model", "provider": "fake", "model": "m"}
        assert endings(agent) == [{"kind": "completed"}]
        assert agent.last_turn_end == {"kind": "completed"}

    play([says("one ", "two")], tmp_path, steps)


def test_requests_carry_the_logged_history_and_count_calls(tmp_path: Path) -> None:
    async def steps(agent: Agent, provider: FakeProvider) -> None:
        agent.ctx.prompt.register("role", "Be brief.")
        await agent.ask("one")
        await agent.ask("two")
        first, second = provider.requests
        assert (first.call, second.call) == (1, 2)
        assert first.session_id == agent.id and first.purpose == "main"
        assert first.system == "Be brief."
        assert [tool["name"] for tool in first.tools or []] == ["echo"]
        assert [m["role"] for m in second.messages] == ["user", "assistant", "user"]
        assert second.messages == derive_messages(agent.log.events)[:3]
        assert [data["reason"] for data in events(agent, "request/header")] == ["initial"]

    play([says("a"), says("b")], tmp_path, steps)


def test_a_changed_header_is_logged_again_before_the_request(tmp_path: Path) -> None:
    async def steps(agent: Agent, provider: FakeProvider) -> None:
        await agent.ask("one")
        unregister = agent.ctx.prompt.register("role", "Be brief.")
        await agent.ask("two")
        await agent.ask("three")
        unregister()
        await agent.ask("four")
        headers = events(agent, "request/header")
        assert [data["reason"] for data in headers] == ["initial", "change", "change"]
        assert [data["header"].get("system") for data in headers] == [None, "Be brief.", None]
        assert len(events(agent, "request/context")) == 3
        assert [request.system for request in provider.requests] == [None, "Be brief.", "Be brief.", None]

    play([says("a"), says("b"), says("c"), says("d")], tmp_path, steps)


def test_effort_and_output_limit_reach_the_header_and_the_request(tmp_path: Path) -> None:
    async def steps(agent: Agent, provider: FakeProvider) -> None:
        await agent.ask("one")
        config = {"provider": "fake", "model": "m", "maxTokens": 9, "reasoningEffort": "high"}
        assert provider.requests[0].config == config
        assert events(agent, "request/header")[0]["header"]["config"] == config

    play([says("a")], tmp_path, steps, effort="high", max_output=9)


def test_what_the_log_does_not_hold_never_reaches_the_model(tmp_path: Path) -> None:
    def spoil(request: Any) -> None:
        request.messages[0]["content"][0]["text"] = "spoilt"

    async def steps(agent: Agent, provider: FakeProvider) -> None:
        assert (await agent.ask("one"))["kind"] == "completed"
        reason = await agent.ask("two")
        assert reason["kind"] == "error" and reason["error"]["code"] == "INTERNAL"
        assert reason["error"]["message"] == (
            "the model would see what the log does not hold: the request has 3 messages, the log derives 3, "
            "and they differ from message 0 on; append a surface event instead"
        )
        assert len(provider.requests) == 1

    play([[spoil, *says("a")], says("never")], tmp_path, steps)


def test_the_check_names_the_first_difference(tmp_path: Path) -> None:
    async def steps(agent: Agent, provider: FakeProvider) -> None:
        await agent.ask("one")
        logged = agent.log.messages()
        check_model_input(logged, agent.log)
        with pytest.raises(UnloggedInput, match=r"has 3 messages, .* from message 2 on"):
            check_model_input([*logged, {"role": "user"}], agent.log)
        with pytest.raises(UnloggedInput, match=r"has 1 messages, .* from message 0 on"):
            check_model_input(logged[1:], agent.log)

    play([says("a")], tmp_path, steps)


def test_tool_rows_come_first_and_results_in_model_order(tmp_path: Path) -> None:
    slow = Gate

    async def steps(agent: Agent, provider: FakeProvider) -> None:
        gate = slow()
        order: list[str] = []

        async def wait(arguments: Any, ctx: ToolContext) -> str:
            order.append(f"start {ctx.call_id} {ctx.turn} {ctx.step} {ctx.ordinal}")
            await gate.pass_through()
            return "late"

        async def quick(arguments: Any, ctx: ToolContext) -> str:
            order.append(f"quick {ctx.call_id} {ctx.turn} {ctx.step} {ctx.ordinal}")
            return "early"

        add_tool(agent.ctx, "wait", wait)
        add_tool(agent.ctx, "quick", quick)
        ending = agent.ask("go")
        await gate.reached.wait()
        while len(order) < 2:
            await asyncio.sleep(0)
        assert order == ["start c1 1 1 1", "quick c2 1 1 2"]
        assert results(agent) == []
        gate.opened.set()
        await ending
        assert results(agent) == [("c1", "late", False, None), ("c2", "early", False, None)]
        middle = types(agent)[types(agent).index("assistant/message") :]
        assert middle[:6] == [
            "assistant/message",
            "tool/call",
            "tool/call",
            "tool/result",
            "tool/result",
            "step/end",
        ]
        rows = [event for event in agent.log.events if event["type"].startswith("tool/")]
        assert [row["seq"] for row in rows[:2]] == [row["sourceEventSeqs"][0] for row in rows[2:]]
        assert rows[0]["data"] == {"turn": 1, "step": 1, "callId": "c1", "name": "wait", "arguments": "{}"}
        message = rows[2]["data"]["message"]
        assert list(message) == ["source", "content", "role", "id"]
        assert message["source"] == {"kind": "tool", "callId": "c1"}
        assert list(message["content"][0]) == ["type", "toolCallId", "content", "isError"]
        assert [m["role"] for m in provider.requests[1].messages] == ["user", "assistant", "user", "user"]

    play([calls(("c1", "wait", "{}"), ("c2", "quick", "{}")), says("done")], tmp_path, steps)


def test_one_tool_at_a_time_when_asked_for(tmp_path: Path) -> None:
    async def steps(agent: Agent, provider: FakeProvider) -> None:
        running: list[str] = []
        most = 0

        async def count(arguments: Any, ctx: ToolContext) -> str:
            nonlocal most
            running.append(ctx.call_id)
            most = max(most, len(running))
            for _ in range(3):
                await asyncio.sleep(0)
            running.remove(ctx.call_id)
            return ctx.call_id

        add_tool(agent.ctx, "count", count)
        await agent.ask("go")
        assert most == 1
        assert [result[0] for result in results(agent)] == ["a", "b", "c"]

    wanted = [(name, "count", "{}") for name in "abc"]
    play([calls(*wanted), says("done")], tmp_path, steps, parallel_tools=1)


def test_failing_and_unknown_tools_are_answered_and_the_turn_goes_on(tmp_path: Path) -> None:
    async def steps(agent: Agent, provider: FakeProvider) -> None:
        async def fail(arguments: Any, ctx: ToolContext) -> str:
            raise RuntimeError("broken")

        add_tool(agent.ctx, "fail", fail)
        assert await agent.ask("go") == {"kind": "completed"}
        assert [(r[0], r[2], r[3]) for r in results(agent)] == [
            ("a", True, "UNKNOWN_TOOL"),
            ("b", True, "TOOL_ERROR"),
            ("c", True, "INVALID_ARGUMENTS"),
            ("d", False, None),
        ]

    wanted = [("a", "nope", "{}"), ("b", "fail", "{}"), ("c", "echo", "{"), ("d", "echo", '{"text":"x"}')]
    play([calls(*wanted), says("done")], tmp_path, steps)


def test_tools_get_the_environment_without_the_runner_variable(tmp_path: Path) -> None:
    seen: list[dict[str, str]] = []

    async def look(arguments: Any, ctx: ToolContext) -> str:
        seen.append(ctx.env)
        assert ctx.cwd == tmp_path and ctx.spill_dir.name == ctx.session_id
        return "ok"

    async def steps(agent: Agent, provider: FakeProvider) -> None:
        add_tool(agent.ctx, "look", look)
        await agent.ask("go")
        assert seen == [{"HOME": str(tmp_path)}]

    play([calls(("a", "look", "{}")), says("done")], tmp_path, steps)


def test_a_failed_call_ends_the_turn_and_the_next_one_goes_on(tmp_path: Path) -> None:
    async def steps(agent: Agent, provider: FakeProvider) -> None:
        described = {"message": "no such key", "code": "AUTH", "status": 401}
        assert await agent.ask("one") == {"kind": "error", "error": described}
        assert "assistant/message" not in types(agent)
        assert types(agent)[-3:] == ["assistant/chunk", "step/end", "turn/end"]
        assert await agent.ask("two") == {"kind": "completed"}
        assert [m["role"] for m in provider.requests[1].messages] == ["user", "user"]

    thrown = ModelFailure(failure("no such key", "AUTH", status=401))
    play([[*text("half"), thrown], says("b")], tmp_path, steps)


def test_an_aborted_finish_without_a_cancellation_is_an_error(tmp_path: Path) -> None:
    async def steps(agent: Agent, provider: FakeProvider) -> None:
        assert await agent.ask("one") == {"kind": "error", "error": {"message": "gone", "code": "ABORTED"}}
        reason = await agent.ask("two")
        assert reason["error"]["message"] == "the provider ended the call without an explanation"

    gone = finish("aborted", failure={"message": "gone", "code": "ABORTED"})
    play([[*text("a"), *gone], [*text("a"), *finish("error")]], tmp_path, steps)


def test_max_tokens_ends_the_turn_without_its_tool_calls(tmp_path: Path) -> None:
    async def steps(agent: Agent, provider: FakeProvider) -> None:
        assert await agent.ask("one") == {"kind": "max-tokens"}
        (message,) = events(agent, "assistant/message")
        assert [block["type"] for block in message["message"]["content"]] == ["text"]
        assert "tool/call" not in types(agent)
        assert await agent.ask("go on") == {"kind": "completed"}
        assert [m["role"] for m in provider.requests[1].messages] == ["user", "assistant", "user"]

    cut = [*text("a"), *calls(("x", "echo", "{"))[:2], *finish("max-tokens")]
    cut[3]["index"] = cut[4]["index"] = 1  # type: ignore[index]
    play([cut, says("b")], tmp_path, steps)


def test_a_turn_that_does_not_end_is_ended(tmp_path: Path) -> None:
    async def steps(agent: Agent, provider: FakeProvider) -> None:
        reason = await agent.ask("go")
        assert reason == {
            "kind": "error",
            "error": {"message": "the turn did not end within 2 steps", "code": "STEP_LIMIT"},
        }
        assert len(results(agent)) == 2 and types(agent)[-2:] == ["step/end", "turn/end"]

    again = [calls((f"c{i}", "echo", "{}")) for i in range(3)]
    play(again, tmp_path, steps, max_steps=2)


def test_a_message_steered_into_the_last_step_allowed_opens_the_next_turn(tmp_path: Path) -> None:
    gate_of: list[Gate] = []

    async def steps(agent: Agent, provider: FakeProvider) -> None:
        gate = Gate()
        gate_of.append(gate)
        provider.script[0].insert(0, gate)
        ending = agent.ask("go")
        await gate.reached.wait()
        steered = agent.steer("and this")
        gate.opened.set()
        assert (await ending)["error"]["code"] == "STEP_LIMIT"
        await agent.when_idle()
        assert endings(agent)[1] == {"kind": "completed"}
        assert [data["id"] for data in events(agent, "user/message")][-1] == steered

    play([says("a"), says("b")], tmp_path, steps, max_steps=1)


def test_cancelling_a_stream_keeps_what_was_said(tmp_path: Path) -> None:
    async def steps(agent: Agent, provider: FakeProvider) -> None:
        gate = Gate()
        provider.script[0][2:] = [gate]
        ending = agent.ask("go")
        await gate.reached.wait()
        assert agent.cancel() is True
        assert await ending == {"kind": "aborted", "reason": {"kind": "user"}}
        (message,) = events(agent, "assistant/message")
        assert message["message"]["content"] == [{"type": "text", "text": "partial"}]
        assert message["interrupted"] is True and list(message)[-1] == "interrupted"
        assert types(agent)[-5:] == [
            "assistant/chunk",
            "assistant/chunk",
            "assistant/message",
            "step/end",
            "turn/end",
        ]
        assert agent.cancel() is False
        assert await agent.ask("again") == {"kind": "completed"}
        assert [m["role"] for m in provider.requests[1].messages] == ["user", "assistant", "user"]

    play([[*text("partial")], says("b")], tmp_path, steps)


def test_cancelling_before_anything_was_said_leaves_no_message(tmp_path: Path) -> None:
    async def steps(agent: Agent, provider: FakeProvider) -> None:
        gate = Gate()
        provider.script.append([gate])
        ending = agent.ask("go")
        await gate.reached.wait()
        agent.cancel({"kind": "other"})
        assert await ending == {"kind": "aborted", "reason": {"kind": "other"}}
        assert "assistant/message" not in types(agent) and "assistant/chunk" not in types(agent)

    play([], tmp_path, steps)


def test_cancelling_a_turn_before_it_runs_still_logs_its_message(tmp_path: Path) -> None:
    async def steps(agent: Agent, provider: FakeProvider) -> None:
        ending = agent.ask("go")
        assert agent.cancel() is True
        assert await ending == {"kind": "aborted", "reason": {"kind": "user"}}
        assert provider.requests == []
        assert types(agent)[-4:] == ["step/start", "user/message", "step/end", "turn/end"]

    play([], tmp_path, steps)


def test_a_cancellation_after_the_finish_does_not_tear_the_answer(tmp_path: Path) -> None:
    async def steps(agent: Agent, provider: FakeProvider) -> None:
        def on_finish(event: dict[str, Any]) -> None:
            if event["type"] == "assistant/chunk" and event["data"]["chunk"]["type"] == "finish":
                agent.cancel()

        agent.log.subscribe(on_finish)
        assert (await agent.ask("go"))["kind"] == "aborted"
        (message,) = events(agent, "assistant/message")
        assert "interrupted" not in message
        assert results(agent) == [
            (
                "c1",
                "Error: the turn was cancelled before this call was started.",
                True,
                "ABORTED_BEFORE_DISPATCH",
            )
        ]

    play([calls(("c1", "echo", "{}"))], tmp_path, steps)


def test_cancelling_tools_gives_constant_results(tmp_path: Path) -> None:
    async def steps(agent: Agent, provider: FakeProvider) -> None:
        gate = Gate()
        cleaned: list[str] = []

        async def wait(arguments: Any, ctx: ToolContext) -> str:
            try:
                await gate.pass_through()
            finally:
                cleaned.append(ctx.call_id)
            return "never"

        add_tool(agent.ctx, "wait", wait)
        ending = agent.ask("go")
        await gate.reached.wait()
        agent.steer("dropped")
        agent.cancel()
        late = agent.steer("not dropped, it was said after the cancellation")
        assert (await ending)["kind"] == "aborted"
        started = "Error: the turn was cancelled before this call gave its result."
        waiting = "Error: the turn was cancelled before this call was started."
        assert results(agent) == [
            ("a", "nothing", False, None),
            ("b", started, True, "ABORTED"),
            ("c", waiting, True, "ABORTED_BEFORE_DISPATCH"),
        ]
        assert cleaned == ["b"]
        assert events(agent, "tool/result")[1]["error"] == {"name": "AbortError", "code": "ABORTED"}
        cancelled = [d for d in events(agent, "agent/inbox/spliced") if d.get("outcome") == "canceled"]
        assert cancelled == [
            {"target": "next-step", "start": 0, "removedCount": 1, "inserted": [], "outcome": "canceled"}
        ]
        await agent.when_idle()
        assert events(agent, "user/message")[-1]["id"] == late
        assert endings(agent)[1] == {"kind": "completed"}

    wanted = [("a", "echo", "{}"), ("b", "wait", "{}"), ("c", "wait", "{}")]
    play([calls(*wanted), says("x")], tmp_path, steps, parallel_tools=1)


def test_a_result_that_was_not_committed_does_not_survive_a_cancellation(tmp_path: Path) -> None:
    async def steps(agent: Agent, provider: FakeProvider) -> None:
        gate = Gate()
        done = asyncio.Event()

        async def wait(arguments: Any, ctx: ToolContext) -> None:
            await gate.pass_through()

        async def quick(arguments: Any, ctx: ToolContext) -> str:
            done.set()
            return "finished, but after a call that had not"

        add_tool(agent.ctx, "wait", wait)
        add_tool(agent.ctx, "quick", quick)
        ending = agent.ask("go")
        await gate.reached.wait()
        await done.wait()
        for _ in range(5):
            await asyncio.sleep(0)
        agent.cancel()
        await ending
        assert [(result[0], result[3]) for result in results(agent)] == [("a", "ABORTED"), ("b", "ABORTED")]

    play([calls(("a", "wait", "{}"), ("b", "quick", "{}"))], tmp_path, steps)


def test_a_bug_in_the_harness_ends_the_turn_and_says_so(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    async def steps(agent: Agent, provider: FakeProvider) -> None:
        def broken(facts: Any) -> str:
            raise ZeroDivisionError("oops")

        agent.ctx.prompt.register("broken", broken)
        assert await agent.ask("go") == {"kind": "error", "error": {"message": "oops", "code": "INTERNAL"}}
        assert types(agent)[-2:] == ["step/end", "turn/end"]

    play([], tmp_path, steps)
    assert "ZeroDivisionError: oops" in capfd.readouterr().err


def test_a_bug_while_results_are_committed_still_answers_every_call(tmp_path: Path) -> None:
    async def steps(agent: Agent, provider: FakeProvider) -> None:
        def explode(event: dict[str, Any]) -> None:
            if event["type"] == "tool/result" and event["data"]["message"]["source"]["callId"] == "a":
                raise RuntimeError("subscriber")

        agent.log.subscribe(explode)
        assert (await agent.ask("go"))["error"] == {"message": "subscriber", "code": "INTERNAL"}
        assert [(r[0], r[3]) for r in results(agent)] == [("a", None), ("b", "ABORTED")]

    play([calls(("a", "echo", "{}"), ("b", "echo", "{}"))], tmp_path, steps)


def test_a_provider_that_cancels_itself_is_an_error_not_an_abort(tmp_path: Path) -> None:
    def cancel_itself(request: Any) -> None:
        raise asyncio.CancelledError

    async def steps(agent: Agent, provider: FakeProvider) -> None:
        reason = await agent.ask("go")
        assert reason["error"]["message"] == "the work cancelled itself although nobody asked for it"

    play([[cancel_itself]], tmp_path, steps)


def test_a_slow_reader_holds_up_the_next_request_and_can_be_cancelled(tmp_path: Path) -> None:
    async def steps(agent: Agent, provider: FakeProvider) -> None:
        gate = Gate()
        agent.reader_ready = gate.pass_through
        ending = agent.ask("go")
        await gate.reached.wait()
        assert provider.requests == []
        agent.cancel()
        assert (await ending)["kind"] == "aborted"
        gate.opened.set()
        assert (await agent.ask("again"))["kind"] == "completed"
        assert [request.call for request in provider.requests] == [1]

    play([says("a")], tmp_path, steps)


def test_adapter_state_stays_on_the_message(tmp_path: Path) -> None:
    async def steps(agent: Agent, provider: FakeProvider) -> None:
        await agent.ask("go")
        (message,) = events(agent, "assistant/message")
        assert message["message"]["source"]["replayState"] == {"response": {"n": 1}}

    play(
        [[*text("a"), {"type": "finish", "reason": {"kind": "stop"}, "replayState": {"response": {"n": 1}}}]],
        tmp_path,
        steps,
    )


def test_facts_for_surfaces_are_logged_beside_the_result(tmp_path: Path) -> None:
    async def steps(agent: Agent, provider: FakeProvider) -> None:
        async def measure(arguments: Any, ctx: ToolContext) -> ToolResult:
            return ToolResult(content=[{"type": "text", "text": "x"}], meta={"exit": 0})

        add_tool(agent.ctx, "measure", measure)
        await agent.ask("go")
        (result,) = events(agent, "tool/result")
        assert list(result) == ["turn", "step", "message", "meta"] and result["meta"] == {"exit": 0}

    play([calls(("a", "measure", "{}")), says("b")], tmp_path, steps)


def test_a_loop_that_is_torn_down_takes_the_running_work_with_it(tmp_path: Path) -> None:
    ended: list[str] = []

    async def main() -> None:
        gate = Gate()

        async def wait(arguments: Any, ctx: ToolContext) -> None:
            try:
                await gate.pass_through()
            finally:
                ended.append("tool")

        async with agent_with([calls(("a", "wait", "{}"))], tmp_path) as (agent, _):
            add_tool(agent.ctx, "wait", wait)
            agent.followup("go")
            await gate.reached.wait()
            assert agent._worker is not None
            agent._worker.cancel()
            with pytest.raises(asyncio.CancelledError):
                await agent.when_idle()
            assert ended == ["tool"] and agent.status == "idle"
            assert results(agent)[0][3] == "ABORTED"

    asyncio.run(main())
