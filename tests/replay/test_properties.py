"""Properties of script derivation and of binding."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from onetake.fixture.grammar import substitute
from onetake.fixture.lineage import SessionFacts, Spawn
from onetake.replay.binding import bind
from onetake.replay.override import fill
from onetake.replay.script import derive_calls, derive_replay_script
from tests.fixture.logs import chunk, event, log, said

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
    shuffled = sessions[:1] + dice.sample(sessions[1:], len(sessions) - 1)
    numbers = bind(sessions)
    assert bind(shuffled) == numbers
    assert sorted(numbers.values()) == list(range(len(sessions)))


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
