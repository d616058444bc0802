"""Properties of script derivation and of binding."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from onetake.agent.agent import AgentConfig
from onetake.agent.context import AppContext
from onetake.fixture.gaps import same_fixture
from onetake.fixture.grammar import substitute
from onetake.fixture.lineage import SessionFacts, Spawn
from onetake.fixture.projection import project
from onetake.fixture.tokens import LogView, TokenTable
from onetake.model.registry import ModelInfo
from onetake.model.request import ModelRequest
from onetake.replay.binding import bind
from onetake.replay.override import fill
from onetake.replay.provider import Replay, ReplayProvider, make_recording
from onetake.replay.script import derive_calls, derive_replay_script
from onetake.session.events import make_header
from onetake.session.jsonl import read_log
from onetake.session.log import SessionLog
from onetake.testing.invariants import replay as holds
from onetake.testing.strategies.chunks import chunk_streams
from onetake.testing.strategies.conversations import Script, mutations, scripts
from onetake.tools.registry import ToolContext
from tests.agent.fakes import add_tool
from tests.fixture.logs import ROOTS, chunk, event, log, said

TEXT = st.text(max_size=3)
NOISE = st.sampled_from(["x/notice", "session/title", "tool/call", "request/context"]).map(
    lambda t: event(t, {})
)
BETWEEN = (
    st.sampled_from(["step/start", "step/end", "turn/start", "turn/end"]).map(lambda t: event(t, {})) | NOISE
)


@given(
    st.lists(st.tuples(st.lists(TEXT, max_size=3), st.lists(BETWEEN, max_size=2)), max_size=5), st.booleans()
)
def test_calls_are_found_whatever_stands_between_them(speech: list[Any], retries: bool) -> None:
    """Also when all of them share one step, as retries do."""
    events: list[Any] = []
    for step, (texts, between) in enumerate(speech):
        events += [*said(1, 1 if retries else step, *texts), *between]
    calls = derive_calls(log(*events))
    assert [[chunk["text"] for chunk in call.chunks if "text" in chunk] for call in calls] == [
        texts for texts, _ in speech
    ]
    assert all(call.fault is None for call in calls)


ANY_JSON = st.recursive(
    st.none() | st.booleans() | st.integers(0, 3) | st.sampled_from(["finish", "text-delta", "x"]),
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(
            st.sampled_from(["type", "turn", "step", "chunk", "rawOutput", "llmStreamCall"]), inner
        )
    ),
    max_leaves=6,
)


@given(
    st.lists(
        st.tuples(st.sampled_from(["assistant/chunk", "compaction/summary", "step/end", "x"]), ANY_JSON),
        max_size=8,
    )
)
def test_any_log_has_a_script(events: list[tuple[str, Any]]) -> None:
    script = derive_replay_script(log(*(event(kind, data) for kind, data in events)))
    assert all(entry["kind"] in ("chunks", "underivable") for entry in script)


@given(st.lists(st.integers(0, 2), min_size=1, max_size=30))
def test_no_chunk_is_lost_or_served_twice(kinds: list[int]) -> None:
    names = ["text-delta", "usage", "finish"]
    events = log(*(chunk(1, 1, {"type": names[kind], "number": number}) for number, kind in enumerate(kinds)))
    served = [item["number"] for call in derive_calls(events) for item in call.chunks]
    assert served == list(range(len(kinds)))


@st.composite
def families(draw: st.DrawFn) -> list[SessionFacts]:
    """Sessions with distinct places: a primary one and children of children, some by the same call."""
    sessions = [SessionFacts("s0")]
    places: set[tuple[str, Spawn]] = set()
    for number in range(1, draw(st.integers(1, 8))):
        parent = draw(st.sampled_from(sessions)).id
        spawn = Spawn(
            draw(st.integers(1, 2)),
            draw(st.integers(1, 2)),
            draw(st.sampled_from("ab")),
            draw(st.integers(0, 2)),
        )
        if (parent, spawn) not in places:
            places.add((parent, spawn))
            sessions.append(SessionFacts(f"s{number}", parent, spawn))
    return sessions


@given(families(), st.randoms(use_true_random=False))
def test_binding_does_not_depend_on_who_started_first(sessions: list[SessionFacts], dice: Any) -> None:
    holds.check_bound(bind, sessions, sessions[:1] + dice.sample(sessions[1:], len(sessions) - 1))


@given(families(), st.randoms(use_true_random=False))
def test_a_live_run_gets_the_numbers_of_its_recording_at_every_moment(
    sessions: list[SessionFacts], dice: Any
) -> None:
    """Under other ids, in any order of creation that has parents first, however many have started so far."""
    numbers = bind(sessions)
    recorded = sorted(sessions, key=lambda session: numbers[session.id])
    started: list[SessionFacts] = []
    waiting = list(sessions)
    while waiting:
        known = {session.id.removeprefix("live-") for session in started}
        ready = [s for s in waiting if s.parent is None or s.parent in known]
        chosen = dice.choice(ready)
        waiting.remove(chosen)
        parent = f"live-{chosen.parent}" if chosen.parent is not None else None
        started.append(SessionFacts(f"live-{chosen.id}", parent, chosen.spawn))
        bound = bind(started, recorded)
        assert bound == {session.id: numbers[session.id.removeprefix("live-")] for session in started}


@given(st.text(alphabet="{}\\:|wdc j", max_size=40).map(lambda text: text.replace("w", "cwd")))
def test_filling_text_without_patterns_is_restoring_it(text: str) -> None:
    def resolve(body: str) -> str:
        return f"<{body}>"

    assert fill(text, resolve, []) == substitute(text, resolve)


# whole runs, within this process ----------------------------------------------------------------------------


class Recorded:
    """A provider that plays the answers of a script."""

    id = "fake"
    models = {"m": ModelInfo(id="m")}  # noqa: RUF012

    def __init__(self, answers: list[list[Any]]) -> None:
        self._answers = iter(answers)

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Any, None]:
        ending = [{"type": "finish", "reason": {"kind": "stop"}}]
        for item in next(self._answers, ending):
            await asyncio.sleep(0)
            yield item


async def run_agent(prompts: list[str], provider: Callable[[AppContext], Any]) -> SessionLog:
    """Have the real agent go through a conversation; its log."""
    ctx = AppContext(config_dir=Path("/nowhere"), environ={"HOME": "/nowhere", "ONETAKE_RUN": "x"})
    ctx.providers.register(provider(ctx))
    ctx.agent_config = AgentConfig(provider="fake", model="m", max_steps=3)
    add_tool(ctx, "tool", echo)
    agent = await ctx.create_session(Path(ROOTS["cwd"]))
    for prompt in prompts:
        agent.followup(prompt)
        await agent.when_idle()
    await ctx.close()
    return agent.log


async def echo(arguments: dict[str, Any], ctx: ToolContext) -> str:
    return f"{arguments} in {ctx.cwd}"


def fixture_of(log: SessionLog) -> bytes:
    table = TokenTable.build(ROOTS, [LogView(0, log.header, log.events)])
    return project(log.header, log.events, table, lambda kind, value: repr(value))  # pinned in full


def replayed(raw: bytes, prompts: list[str]) -> SessionLog:
    """The same conversation, answered from its fixture."""

    def provider(ctx: AppContext) -> ReplayProvider:
        read = read_log(raw, "session.jsonl")
        recording = make_recording("session.jsonl", read.header, read.events)
        live = Replay(
            [recording],
            lambda: [agent.log for agent in ctx.agents.values()],
            roots=ROOTS,
            workspace=Path("/nowhere"),
        )
        return ReplayProvider("fake", Recorded.models, live)

    return asyncio.run(run_agent(prompts, provider))


@given(scripts())
def test_what_was_recorded_replays_as_the_same_fixture(script: Script) -> None:
    log = asyncio.run(run_agent(script.prompts, lambda ctx: Recorded(script.answers)))
    raw = fixture_of(log)
    holds.check_replayed(raw, fixture_of(replayed(raw, script.prompts)), same_fixture)


@given(scripts(), st.data())
def test_a_harness_that_does_one_thing_otherwise_leaves_another_fixture(
    script: Script, data: st.DataObject
) -> None:
    log = asyncio.run(run_agent(script.prompts, lambda ctx: Recorded(script.answers)))
    changed = data.draw(mutations(log.events))

    def made(events: list[Any]) -> bytes:
        return fixture_of(SessionLog(log.header, events))

    holds.check_seen(made, log.events, changed)


@given(st.lists(chunk_streams(), min_size=1, max_size=4), st.lists(st.integers(0, 3), max_size=20))
def test_sessions_at_the_same_time_each_get_their_own_answers(answers: list[Any], order: list[int]) -> None:
    async def serve() -> None:
        logs = [SessionLog(make_header(f"s{n}", created_at=n)) for n in range(len(answers))]
        recordings = []
        for number, answer in enumerate(answers):
            logs[number].append("turn/start", {"turn": 1})
            events = [chunk(1, 1, item) for item in answer]
            recordings.append(make_recording(f"{number}", logs[number].header, log(*events)))
        replay = Replay(recordings, lambda: logs, roots={}, workspace=Path("/nowhere"))

        def answer_of(number: int) -> AsyncGenerator[Any, None]:
            return replay.stream(ModelRequest(session_id=f"s{number}", call=1, config={}))

        await holds.check_served(answer_of, answers, order)

    asyncio.run(serve())
