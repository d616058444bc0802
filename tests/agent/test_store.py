"""What the agent promises about its log on disk: flushed before anything leaves, no failure hidden."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from onetake.agent.agent import Agent, AgentConfig
from onetake.agent.context import AppContext
from onetake.session.store import SessionStore, read_live
from onetake.session.writer import SessionWriter, StoreError
from onetake.tools.registry import ToolContext
from tests.agent.fakes import FakeProvider, Item, add_tool, calls, endings, results, says


def with_store(script: list[list[Item]], folder: Path, steps: Callable[[Agent], Awaitable[None]]) -> None:
    async def main() -> None:
        ctx = AppContext(config_dir=folder, environ={"HOME": str(folder)})
        ctx.providers.register(FakeProvider(script))
        ctx.agent_config = AgentConfig(provider="fake", model="m")
        ctx.store = SessionStore(folder / "logs", compression="none", project="unused")
        await steps(await ctx.create_session(Path("/anywhere/my project")))
        await ctx.close()

    asyncio.run(main())


def stored(folder: Path) -> list[str]:
    (path,) = (folder / "logs").glob("*/*/session.jsonl")
    return [event["type"] for event in read_live(path)[1]]


def test_the_log_is_on_disk_before_a_request_a_tool_and_an_answer(tmp_path: Path) -> None:
    seen: dict[str, str] = {}

    def on_request(request: Any) -> None:
        seen[f"request {request.call}"] = stored(tmp_path)[-1]

    async def look(arguments: Any, ctx: ToolContext) -> str:
        seen["tool"] = stored(tmp_path)[-1]
        return "ok"

    async def steps(agent: Agent) -> None:
        add_tool(agent.ctx, "look", look)
        await agent.ask("go")
        seen["answer"] = stored(tmp_path)[-1]

    with_store([[on_request, *calls(("a", "look", "{}"))], [on_request, *says("x")]], tmp_path, steps)
    assert seen == {
        "request 1": "request/context",
        "tool": "tool/call",
        "request 2": "step/start",
        "answer": "turn/end",
    }


def test_logs_lie_in_a_folder_named_after_the_working_directory(tmp_path: Path) -> None:
    async def steps(agent: Agent) -> None:
        await agent.ask("go")
        (path,) = (tmp_path / "logs").glob("*/*/session.jsonl")
        assert path.parent.name == agent.id and "my-project" in path.parent.parent.name

    with_store([says("x")], tmp_path, steps)


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> dict[str, bool]:
    """A disk that can be full."""
    state = {"full": False}
    real = SessionWriter.flush_now

    def flush_now(self: SessionWriter) -> None:
        if state["full"]:
            raise StoreError("the disk is full")
        real(self)

    monkeypatch.setattr(SessionWriter, "flush_now", flush_now)
    return state


def test_a_full_disk_fails_the_turn_before_the_model_is_asked(tmp_path: Path, disk: dict[str, bool]) -> None:
    async def steps(agent: Agent) -> None:
        disk["full"] = True
        queued = agent.ask("one"), agent.ask("two")
        for ending in queued:
            with pytest.raises(StoreError, match="the disk is full"):
                await ending
        with pytest.raises(StoreError, match="the disk is full"):
            agent.followup("three")
            await agent.when_idle()
        assert [ending["error"]["message"] for ending in endings(agent)] == ["the disk is full"] * 2
        assert agent.calls == 0
        disk["full"] = False
        assert (await agent.ask("four"))["kind"] == "completed"

    with_store([says("x"), says("y")], tmp_path, steps)


def test_a_disk_that_fills_up_before_the_tools_run_keeps_them_from_running(
    tmp_path: Path, disk: dict[str, bool]
) -> None:
    async def steps(agent: Agent) -> None:
        def fill_up(event: dict[str, Any]) -> None:
            if event["type"] == "tool/call":
                disk["full"] = True

        agent.log.subscribe(fill_up)
        with pytest.raises(StoreError):
            await agent.ask("go")
        assert [result[3] for result in results(agent)] == ["ABORTED_BEFORE_DISPATCH"]
        disk["full"] = False

    with_store([calls(("a", "echo", "{}"))], tmp_path, steps)


def test_closing_tries_every_session_and_raises_the_first_failure(
    tmp_path: Path, disk: dict[str, bool]
) -> None:
    async def steps(agent: Agent) -> None:
        other = await agent.ctx.create_session(tmp_path, parent=agent)
        assert other.log.header["parentSession"] == agent.id and other.log.header["delegationDepth"] == 1
        await other.ask("go")
        disk["full"] = True
        with pytest.raises(StoreError):
            await agent.ctx.close()
        assert agent.status == other.status == "disposed" and agent.ctx.agents == {}
        disk["full"] = False

    with_store([says("x")], tmp_path, steps)


def test_a_failure_that_nobody_waits_for_is_told_once(tmp_path: Path, disk: dict[str, bool]) -> None:
    async def steps(agent: Agent) -> None:
        disk["full"] = True
        agent.followup("one")
        with pytest.raises(StoreError):
            await agent.when_idle()
        await agent.when_idle()
        disk["full"] = False

    with_store([says("x")], tmp_path, steps)


def test_closing_an_unknown_session_is_fine(tmp_path: Path) -> None:
    async def steps(agent: Agent) -> None:
        await agent.ctx.close_session("nope")
        await agent.ctx.close_session(agent.id)
        assert agent.status == "disposed"

    with_store([], tmp_path, steps)


def test_going_on_with_a_log_numbers_on_and_says_resume(tmp_path: Path) -> None:
    async def steps(agent: Agent) -> None:
        await agent.ask("one")
        provider = FakeProvider([says("z")])
        ctx = AppContext(config_dir=tmp_path, environ={"HOME": str(tmp_path)})
        ctx.providers.register(provider)
        again = Agent(ctx, agent.log, cwd=tmp_path, config=agent.config, calls=agent.calls)
        await again.ask("two")
        turns = [event["data"]["turn"] for event in agent.log.events if event["type"] == "turn/start"]
        reasons = [event["data"]["reason"] for event in agent.log.events if event["type"] == "request/header"]
        assert turns == [1, 2] and reasons == ["initial", "resume"]
        assert provider.requests[0].call == 2 and len(provider.requests[0].messages) == 3

    with_store([says("x")], tmp_path, steps)


def test_sessions_of_one_moment_can_still_be_told_apart_by_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("onetake.agent.context.ms_now", lambda: 1000)

    async def steps(agent: Agent) -> None:
        other = await agent.ctx.create_session(tmp_path)
        assert [a.log.header["createdAt"] for a in (agent, other)] == [1000, 1001]

    with_store([], tmp_path, steps)
