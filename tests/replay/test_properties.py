"""Properties of replay: script derivation, binding, and whole runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from onetake.fixture.gaps import same_fixture
from onetake.fixture.grammar import substitute
from onetake.fixture.lineage import SessionFacts, Spawn
from onetake.replay.binding import bind
from onetake.replay.override import fill
from onetake.replay.provider import Replay
from onetake.replay.script import derive_calls, derive_replay_script
from onetake.session.log import SessionLog
from onetake.testing.invariants import replay as holds
from onetake.testing.strategies.conversations import Task, logged_calls, mutations, paces, scripts, tasks
from tests.fixture.logs import chunk, event, log
from tests.replay.family import Fixtures, record, replay


def calls_of(events: Sequence[Any]) -> list[list[Any]]:
    return [call.chunks for call in derive_calls(events) if call.fault is None]


@given(logged_calls())
def test_calls_are_found_whatever_stands_between_them(logged: tuple[list[Any], list[list[Any]]]) -> None:
    """Also when all of them share one step, as retries do."""
    holds.check_calls(calls_of, *logged)


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


def shuffled(sessions: list[SessionFacts], dice: Any) -> list[SessionFacts]:
    """The primary session, and the others in any order."""
    return sessions[:1] + dice.sample(sessions[1:], len(sessions) - 1)


@given(families(), st.randoms(use_true_random=False))
def test_binding_does_not_depend_on_who_started_first(sessions: list[SessionFacts], dice: Any) -> None:
    holds.check_bound(bind, sessions, shuffled(sessions, dice))


@given(families(), st.randoms(use_true_random=False))
def test_a_live_run_gets_the_numbers_of_its_recording_at_every_moment(
    sessions: list[SessionFacts], dice: Any
) -> None:
    """In any order of creation that has parents first, however many have started so far."""
    numbers = bind(sessions)
    recorded = sorted(sessions, key=lambda session: numbers[session.id])
    started: list[SessionFacts] = []
    while len(started) < len(sessions):
        known = {None, *(session.id for session in started)}
        started.append(dice.choice([s for s in sessions if s.parent in known and s not in started]))
    holds.check_rebound(lambda these: bind(these, recorded), started, numbers)


@given(st.text(alphabet="{}\\:|wdc j", max_size=40).map(lambda text: text.replace("w", "cwd")))
def test_filling_text_without_patterns_is_restoring_it(text: str) -> None:
    def resolve(body: str) -> str:
        return f"<{body}>"

    assert fill(text, resolve, []) == substitute(text, resolve)


# whole runs, within this process ----------------------------------------------------------------------------


def check_replays(script: list[Task], paces: tuple[list[int], list[int]], by: Any = Replay) -> None:
    """Record a script and replay it, each in its own time."""
    world = record(script, paces[0])
    fixtures = world.fixtures(world.logs)
    holds.check_replayed(fixtures, replay(script, paces[1], fixtures, by), same_fixture)


@given(scripts(), st.tuples(paces(), paces()))
def test_what_was_recorded_replays_the_same_whichever_session_is_faster(
    script: list[Task], taken: tuple[list[int], list[int]]
) -> None:
    check_replays(script, taken)


@given(tasks(depth=1), st.data())
def test_a_harness_that_does_one_thing_otherwise_leaves_other_fixtures(
    task: Task, data: st.DataObject
) -> None:
    world = record([task], [0])
    chosen = data.draw(st.sampled_from(world.logs))
    changed = SessionLog(chosen.header, data.draw(mutations(chosen.events)))

    def surfaces(events: Any) -> Fixtures:
        other = SessionLog(chosen.header, events)
        return world.fixtures([other if log is chosen else log for log in world.logs])

    holds.check_seen(surfaces, chosen.events, changed.events, same_fixture)
