"""The replay provider: cursors, live values, scripted endings, and violations that nobody can hide."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from onetake.errors import UsageError
from onetake.model.failures import ModelFailure
from onetake.model.registry import ModelInfo, ProviderRegistry
from onetake.model.request import ModelRequest
from onetake.replay.override import Override, parse_override
from onetake.replay.provider import Recording, Replay, ReplayProvider, make_recording
from onetake.session.log import SessionLog
from tests.fixture.logs import (
    NONCE,
    ROOTS,
    delta,
    finish,
    header,
    log,
    result,
    said,
    spawned,
    turn_start,
    uid,
    user,
)

PRIMARY = {"type": "session", "id": "{{sessionId}}"}


def override(document: Any) -> Override:
    return parse_override(json.dumps(document).encode(), "o.json")


def opened(number: int) -> SessionLog:
    """A top-level session that was told something."""
    log = SessionLog(header(number))
    log.append("session/title", {"title": "A talk"})
    return log


class Stage:
    """A replay over a few live sessions, and what came of it."""

    def __init__(self, tmp_path: Path, *recordings: Recording, **options: Any) -> None:
        self.logs: list[SessionLog] = [opened(1)]
        self.violations = tmp_path / "violations.jsonl"
        self.workspace = tmp_path / "w"
        self.replay = Replay(
            recordings,
            lambda: self.logs,
            roots=ROOTS,
            workspace=self.workspace,
            violations_file=str(self.violations),
            nonce=NONCE,
            **options,
        )

    def request(self, session: str = uid(1), call: int = 1, text: str = "") -> ModelRequest:
        messages = [{"role": "user", "content": [{"type": "text", "text": text}]}]
        return ModelRequest(
            session_id=session, call=call, config={"provider": "p", "model": "m"}, messages=messages
        )

    def call(self, session: str = uid(1), text: str = "") -> list[dict[str, Any]]:
        async def collect() -> list[dict[str, Any]]:
            async with asyncio.timeout(60):  # a call that hangs by mistake is a failure, and no stuck test
                return [chunk async for chunk in self.replay.stream(self.request(session, text=text))]

        return asyncio.run(collect())

    def said(self, session: str = uid(1), text: str = "") -> str:
        return "".join(chunk.get("text", "") for chunk in self.call(session, text))

    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.violations.read_text().splitlines()]


def recorded(*texts: str, head: dict[str, Any] = PRIMARY, name: str = "session.jsonl") -> Recording:
    events = log(*(event for step, text in enumerate(texts, 1) for event in said(1, step, text)))
    return make_recording(name, head, events)


def test_each_call_gets_the_next_entry(tmp_path: Path) -> None:
    stage = Stage(tmp_path, recorded("one", "two"))
    assert [stage.said(), stage.said()] == ["one", "two"]
    assert not stage.violations.exists()


def test_what_is_served_is_a_copy(tmp_path: Path) -> None:
    recording = recorded("one")
    stage = Stage(tmp_path, recording)
    stage.call()[1]["text"] = "changed"
    assert recording.lines[0].entry["chunks"][1]["text"] == "one"


def test_a_restarted_process_goes_on_after_the_calls_before_it(tmp_path: Path) -> None:
    assert Stage(tmp_path, recorded("one", "two"), made={uid(1): 1}).said() == "two"


def test_live_values_stand_where_the_recording_has_tokens(tmp_path: Path) -> None:
    stage = Stage(
        tmp_path,
        recorded("{{cwd}}/a of {{sessionId}} for {{msg:1.1}} {{\\cwd}} {{commit:1}}"),
        mint=[("commit ([0-9a-f]+)", "commit")],
    )
    for event in (turn_start(1), user("hi", 11), result(1, 1, "c", "commit abc123", 12)):
        stage.logs[0].append(event["type"], event["data"])
    assert stage.said() == f"{ROOTS['cwd']}/a of {uid(1)} for {uid(11)} {{{{cwd}}}} abc123"


def test_a_token_without_a_live_value_is_a_violation(tmp_path: Path) -> None:
    stage = Stage(tmp_path, recorded("see {{msg:9.9}}"))
    with pytest.raises(ModelFailure, match=r"call 1 repeats \{\{msg:9\.9\}\}.*record the scenario again"):
        stage.call()
    [line] = stage.lines()
    assert line["kind"] == "unknown-token" and line["nearest"]["place"] == "turn 1, step 1"


@pytest.mark.parametrize("name", ["{{msg:9/1.1}}", "{{system:a}}"])
def test_what_no_recorded_session_gives_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr("onetake.replay.provider._POLL_S", 60.0)
    with pytest.raises(ModelFailure, match="that this run has not produced"):
        Stage(tmp_path, recorded(f"see {name}")).call()


def test_a_token_of_a_rule_that_is_gone_names_the_rule(tmp_path: Path) -> None:
    stage = Stage(tmp_path, recorded("see {{ticket:1}}"), mint=[("no ([0-9]+)", "number")])
    with pytest.raises(
        ModelFailure, match=r"\{\{ticket:1\}\}, and suite.toml has no mint rule named `ticket`"
    ):
        stage.call()
    other = Stage(tmp_path, recorded("see {{number:1}}"), mint=[("no ([0-9]+)", "number")])
    with pytest.raises(ModelFailure, match="a value that this run has not produced so far"):
        other.call()


def test_an_extra_call_is_reported_before_the_agent_learns_of_it(tmp_path: Path) -> None:
    stage = Stage(tmp_path, recorded("only one"))
    stage.call()
    with pytest.raises(ModelFailure) as failed:
        stage.call()
    assert failed.value.failure["code"] == "REPLAY_VIOLATION"
    [line] = stage.lines()
    assert line["kind"] == "extra-call" and line["session"] == uid(1) and line["call"] == 1
    assert line["nearest"] == {"call": 1, "place": "turn 1, step 1", "says": "only one"}
    for word in (uid(1), "made call 2 (main)", "session.jsonl holds 1", "'only one'"):
        assert word in line["message"]
    with pytest.raises(ModelFailure):
        stage.call()
    assert [line["kind"] for line in stage.lines()] == ["extra-call"] * 2, "each one is reported"


def test_an_extra_call_of_an_empty_recording_has_no_nearest(tmp_path: Path) -> None:
    stage = Stage(tmp_path, recorded())
    with pytest.raises(ModelFailure, match=r"holds 0$"):
        stage.call()
    assert stage.lines()[0]["nearest"] is None


def test_without_a_file_the_failure_alone_tells(tmp_path: Path) -> None:
    stage = Stage(tmp_path, recorded())
    silent = Replay([recorded()], lambda: stage.logs, roots={}, workspace=tmp_path)
    with pytest.raises(ModelFailure):
        asyncio.run(anext(silent.stream(stage.request())))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("events", "message"),
    [
        ([], "it is a child of {parent} and records no spawning call"),
        ([spawned(1, 2, "c", 3)], "spawned by call c in turn 1, step 2 (place 3)"),
    ],
)
def test_an_unbound_child_is_described_by_its_lineage(
    tmp_path: Path, events: list[dict[str, Any]], message: str
) -> None:
    stage = Stage(tmp_path, recorded("x"))
    stage.logs.append(SessionLog(header(2, parentSession=uid(1)), log(*events)))
    with pytest.raises(ModelFailure) as failed:
        stage.call(uid(2))
    assert failed.value.failure["code"] == "REPLAY_VIOLATION"
    [line] = stage.lines()
    assert line["kind"] == "unbound-session"
    assert "recording, which holds session.jsonl" in line["message"]
    assert message.format(parent=uid(1)) in line["message"]


def test_an_unbound_top_level_session_and_an_unknown_one(tmp_path: Path) -> None:
    stage = Stage(tmp_path, recorded("x"))
    stage.logs.append(SessionLog(header(2)))
    with pytest.raises(ModelFailure, match="it is a top-level session"):
        stage.call(uid(2))
    with pytest.raises(ModelFailure, match=r"has no place in the recording, which holds session\.jsonl$"):
        stage.call(uid(3))
    with pytest.raises(ModelFailure, match="which holds none"):
        Stage(tmp_path).call()


def test_concurrent_children_are_served_by_lineage_in_any_order(tmp_path: Path) -> None:
    def child_head(index: int) -> dict[str, Any]:
        return {"type": "session", "id": f"{{{{sessionId:{index}}}}}", "parentSession": "{{sessionId}}"}

    children = [
        make_recording(
            f"session.{index}.jsonl",
            child_head(index),
            log(spawned(1, 1, call), *said(1, 1, f"{call} {{{{cwd}}}}")),
        )
        for index, call in ((1, "a"), (2, "b"))
    ]
    for order in ((2, 3), (3, 2)):
        stage = Stage(tmp_path, recorded("x"), *children)
        calls = {2: "a", 3: "b"}
        for number in order:
            live = log(spawned(1, 1, calls[number]))
            stage.logs.append(SessionLog(header(number, parentSession=uid(1)), live))
        for number in reversed(order):
            assert stage.said(uid(number)) == f"{calls[number]} {ROOTS['cwd']}"


def test_any_number_of_sessions_replays_at_the_same_time(tmp_path: Path) -> None:
    """Whatever order the event loop runs them in, each gets its own answers in its own order."""
    names = "abcd"
    children = [
        make_recording(
            f"session.{index}.jsonl",
            {"type": "session", "id": f"{{{{sessionId:{index}}}}}", "parentSession": "{{sessionId}}"},
            log(spawned(1, 1, call), *(e for step in (1, 2, 3) for e in said(1, step, f"{call}{step}"))),
        )
        for index, call in enumerate(names, 1)
    ]
    for seed in range(20):
        dice = random.Random(seed)
        stage = Stage(tmp_path, recorded("x"), *children)
        for number in dice.sample(range(4), 4):
            live = log(spawned(1, 1, names[number]))
            stage.logs.append(SessionLog(header(number + 2, parentSession=uid(1)), live))
        heard = asyncio.run(converse(stage, dice))
        assert heard == {number: f"{name}1{name}2{name}3" for number, name in enumerate(names)}
        assert not stage.violations.exists()


async def converse(stage: Stage, dice: random.Random) -> dict[int, str]:
    """What four children hear that make three calls each at the same time, in an order of chance."""

    async def listen(number: int) -> str:
        heard = ""
        for _ in range(3):
            for _ in range(dice.randrange(4)):
                await asyncio.sleep(0)
            async for chunk in stage.replay.stream(stage.request(uid(number + 2))):
                await asyncio.sleep(0)
                heard += chunk.get("text", "")
        return heard

    start = dice.sample(range(4), 4)
    return dict(zip(start, await asyncio.gather(*map(listen, start)), strict=True))


def test_a_closed_session_keeps_its_place(tmp_path: Path) -> None:
    stage = Stage(tmp_path, recorded("first"), recorded("second", head={"id": "{{sessionId:1}}"}))
    assert stage.said() == "first"
    stage.logs = [SessionLog(header(2))]
    assert stage.said(uid(2)) == "second"


def test_a_session_of_an_earlier_process_keeps_its_place_and_its_values(tmp_path: Path) -> None:
    before = opened(1)
    before.append("tool/result", result(1, 1, "c", "commit abc123", 12)["data"])
    stage = Stage(
        tmp_path,
        recorded("first"),
        recorded("again {{commit:1}}", head={"id": "{{sessionId:1}}"}),
        earlier=[before],
        mint=[("commit ([0-9a-f]+)", "commit")],
    )
    stage.logs = [opened(2)]
    assert stage.said(uid(2)) == "again abc123"


def test_a_resumed_session_is_known_by_its_live_log(tmp_path: Path) -> None:
    stage = Stage(tmp_path, recorded("see {{msg:1.1}}"), earlier=[opened(1)])
    for event in (turn_start(1), user("hi", 11)):
        stage.logs[0].append(event["type"], event["data"])
    assert stage.said() == f"see {uid(11)}"


def test_a_session_that_was_told_nothing_takes_no_place(tmp_path: Path) -> None:
    stage = Stage(tmp_path, recorded("first"))
    stage.logs = [SessionLog(header(2)), opened(1)]
    assert stage.said() == "first"


MINT = [("commit ([0-9a-f]+)", "commit")]


def seen(log: SessionLog, text: str = "commit abc123") -> None:
    log.append("tool/result", result(1, 1, "c", text, 12)["data"])


class Siblings(Stage):
    """Two children that run at the same time and see one value, which the recording names by the first."""

    def __init__(self, tmp_path: Path) -> None:
        recordings = [
            make_recording(
                f"session.{index}.jsonl",
                {"id": f"{{{{sessionId:{index}}}}}", "parentSession": "{{sessionId}}"},
                log(spawned(1, 1, call), *said(1, 1, "saw {{commit:1/1}}")),
            )
            for index, call in ((1, "a"), (2, "b"))
        ]
        super().__init__(tmp_path, recorded("x"), *recordings, mint=MINT)
        self.children = {call: self.child(number, call) for number, call in ((2, "a"), (3, "b"))}

    def child(self, number: int, call: str) -> SessionLog:
        child = SessionLog(header(number, parentSession=uid(1)))
        child.append("subagent/descriptor", spawned(1, 1, call)["data"])
        return child

    async def asked(self, number: int) -> str:
        chunks = [chunk async for chunk in self.replay.stream(self.request(uid(number)))]
        return "".join(chunk.get("text", "") for chunk in chunks)


def test_a_value_that_another_child_is_about_to_see_is_waited_for(tmp_path: Path) -> None:
    async def run() -> None:
        stage = Siblings(tmp_path)
        seen(stage.children["b"])
        stage.logs.append(stage.children["b"])
        answer = asyncio.create_task(stage.asked(3))
        await asyncio.sleep(0.02)
        stage.logs.append(stage.children["a"])  # which only now begins
        await asyncio.sleep(0.02)
        assert not answer.done()
        seen(stage.children["a"])
        assert await answer == "saw abc123"
        assert not stage.violations.exists()

    asyncio.run(run())


def test_a_value_is_not_waited_for_once_its_child_has_ended(tmp_path: Path) -> None:
    async def run() -> None:
        stage = Siblings(tmp_path)
        stage.logs += stage.children.values()
        seen(stage.children["b"])
        answer = asyncio.create_task(stage.asked(3))
        await asyncio.sleep(0.02)
        stage.logs.remove(stage.children["a"])
        with pytest.raises(ModelFailure, match=r"repeats \{\{commit:1/1\}\}"):
            await answer

    asyncio.run(run())


def test_a_value_of_its_own_is_not_waited_for(tmp_path: Path) -> None:
    stage = Siblings(tmp_path)
    stage.logs += stage.children.values()
    with pytest.raises(ModelFailure, match=r"repeats \{\{commit:1/1\}\}"):
        asyncio.run(stage.asked(2))


class Above(Stage):
    """A session that calls a tool and, in the same step, a child; both see a value that it is named for."""

    def __init__(self, tmp_path: Path, *calls: str) -> None:
        head = {"id": "{{sessionId:1}}", "parentSession": "{{sessionId}}"}
        events = log(spawned(1, 1, "b"), *said(1, 1, "saw {{commit:1}}"))
        child = make_recording("session.1.jsonl", head, events)
        super().__init__(tmp_path, recorded("x"), child, mint=MINT)
        self.logs[0].append("turn/start", {"turn": 1})
        for call in calls:
            self.logs[0].append("tool/call", {"turn": 1, "step": 1, "callId": call, "name": "n"})
        live = SessionLog(header(2, parentSession=uid(1)))
        live.append("subagent/descriptor", spawned(1, 1, "b")["data"])
        seen(live)
        self.logs.append(live)


def test_a_value_that_a_call_before_the_child_is_about_to_see_is_waited_for(tmp_path: Path) -> None:
    """The session above waits for its child, and for the calls beside it."""

    async def run() -> None:
        stage = Above(tmp_path, "a", "b")
        chunks = stage.replay.stream(stage.request(uid(2)))
        answer = asyncio.ensure_future(anext(chunks))
        await asyncio.sleep(0.02)
        assert not answer.done()
        seen(stage.logs[0])
        await answer
        assert (await anext(chunks))["text"] == "saw abc123"
        await chunks.aclose()
        assert not stage.violations.exists()

    asyncio.run(run())


@pytest.mark.parametrize("calls", ["b", "ba", ""])
def test_a_session_that_waits_for_its_child_is_not_waited_for(tmp_path: Path, calls: str) -> None:
    """Each would wait for the other; what it asked for later has its result later, too."""
    with pytest.raises(ModelFailure, match=r"repeats \{\{commit:1\}\}"):
        Above(tmp_path, *calls).call(uid(2))


def test_every_session_above_waits_for_the_one_that_asks(tmp_path: Path) -> None:
    """Also where a log does not record by which call; another session does not."""
    stage = Above(tmp_path, "a", "b")
    grandchild = SessionLog(header(3, parentSession=uid(2)))
    stage.logs += [grandchild, opened(4)]
    stage.replay._bindings()
    waits = [stage.replay._waits_for(log, uid(3)) for log in stage.logs]
    assert waits == [False, True, True, False]
    seen(stage.logs[0])
    assert stage.replay._waits_for(stage.logs[0], uid(3))


def beside(tmp_path: Path) -> Stage:
    """Two sessions of a client at the same time; the second repeats what the recording names by the first."""
    head = {"id": "{{sessionId:1}}"}
    stage = Stage(tmp_path, recorded("x"), recorded("saw {{commit:1}}", head=head), mint=MINT)
    stage.logs.append(opened(2))
    seen(stage.logs[1])
    return stage


def test_a_value_that_another_session_is_about_to_see_is_waited_for(tmp_path: Path) -> None:
    """Also while that one has nothing to do for a moment: a client may be about to talk to it."""

    async def run() -> None:
        stage = beside(tmp_path)
        chunks = stage.replay.stream(stage.request(uid(2)))
        answer = asyncio.ensure_future(anext(chunks))
        await asyncio.sleep(0.02)
        stage.logs[0].append("turn/start", {"turn": 1})
        await asyncio.sleep(0.02)
        assert not answer.done()
        seen(stage.logs[0])
        await answer
        assert (await anext(chunks))["text"] == "saw abc123"
        await chunks.aclose()
        assert not stage.violations.exists()

    asyncio.run(run())


@pytest.mark.parametrize(
    ("turns", "patience"),
    [([], "_PATIENCE_QUIET"), (["start", "end"], "_PATIENCE_QUIET"), (["start"], "_PATIENCE")],
)
def test_waiting_for_another_session_has_an_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, turns: list[str], patience: str
) -> None:
    """Soon, when that one has nothing to do."""
    monkeypatch.setattr(f"onetake.replay.provider.{patience}", 3)
    stage = beside(tmp_path)
    for what in turns:
        stage.logs[0].append(f"turn/{what}", {"turn": 1})
    with pytest.raises(ModelFailure, match=r"repeats \{\{commit:1\}\}"):
        stage.call(uid(2))


@pytest.mark.parametrize(("present", "patience"), [("ab", "_PATIENCE"), ("b", "_PATIENCE_QUIET")])
def test_waiting_for_a_value_has_an_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, present: str, patience: str
) -> None:
    monkeypatch.setattr(f"onetake.replay.provider.{patience}", 3)
    stage = Siblings(tmp_path)
    stage.logs += [child for call, child in stage.children.items() if call in present]
    with pytest.raises(ModelFailure, match=r"repeats \{\{commit:1/1\}\}"):
        asyncio.run(stage.asked(3))


def test_a_run_that_left_its_recording_waits_for_nothing(tmp_path: Path) -> None:
    stage = Siblings(tmp_path)
    stage.logs += stage.children.values()
    with pytest.raises(ModelFailure):
        asyncio.run(stage.asked(2))
    with pytest.raises(ModelFailure, match=r"repeats \{\{commit:1/1\}\}"):
        asyncio.run(stage.asked(3))


@pytest.mark.parametrize(
    ("path", "why"),
    [
        ("taken/ready", "File exists"),
        ("{{fromRequest:where (.+)}}", "is outside of the workspace"),
        ("x" * 300, "File name too long"),
    ],
)
def test_a_ready_file_that_cannot_be_written_is_a_violation(tmp_path: Path, path: str, why: str) -> None:
    """A failure alone would satisfy a script that expects one."""
    hang = override([{"kind": "hang", "readyFile": path}])
    stage = Stage(tmp_path, make_recording("session.jsonl", PRIMARY, [], hang))
    stage.workspace.mkdir()
    (stage.workspace / "taken").touch()
    with pytest.raises(ModelFailure, match=why):
        stage.call(text="where ../elsewhere")
    assert [line["kind"] for line in stage.lines()] == ["ready-file"]
    assert not (tmp_path / "elsewhere").exists()


def test_a_throw_emits_its_chunks_and_then_fails(tmp_path: Path) -> None:
    entry = {
        "kind": "throw",
        "chunks": [delta(1, 1, "so far")["data"]["chunk"]],
        "message": "m {{cwd}}",
        "code": "X",
    }
    stage = Stage(tmp_path, make_recording("s", PRIMARY, [], override([entry])))

    async def collect() -> list[Any]:
        registry = ProviderRegistry()
        registry.register(ReplayProvider("p", {"m": ModelInfo(id="m")}, stage.replay))
        return [chunk async for chunk in registry.stream(stage.request())]

    chunks = asyncio.run(collect())
    assert chunks[0]["text"] == "so far"
    assert chunks[1]["reason"]["failure"] == {"message": f"m {ROOTS['cwd']}", "code": "X"}
    assert not stage.violations.exists()


def test_a_hang_says_something_marks_it_and_waits_for_cancellation(tmp_path: Path) -> None:
    entries = [{"kind": "hang", "readyFile": "sub/ready"}, {"kind": "hang"}]
    stage = Stage(tmp_path, make_recording("s", PRIMARY, [], override(entries)))
    ready = stage.workspace / "sub" / "ready"

    async def hang() -> list[Any]:
        seen: list[Any] = []

        async def collect() -> None:
            async for chunk in stage.replay.stream(stage.request()):
                assert not ready.exists(), "the marker comes after the chunks were taken"
                seen.append(chunk)

        task = asyncio.create_task(collect())
        for _ in range(100):
            await asyncio.sleep(0)
        assert not task.done()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return seen

    expected = [
        {"type": "block-start", "index": 0, "blockType": "text"},
        {"type": "text-delta", "index": 0, "text": "partial"},
    ]
    assert asyncio.run(hang()) == expected
    assert ready.read_bytes() == b""
    ready.unlink()
    assert asyncio.run(hang()) == expected
    assert not ready.exists()


def test_an_override_is_filled_from_the_live_request(tmp_path: Path) -> None:
    chunks = [
        delta(1, 1, "job {{fromRequest:bash-[0-9]+}} in {{cwd}}")["data"]["chunk"],
        finish(1, 1)["data"]["chunk"],
    ]
    stage = Stage(
        tmp_path, make_recording("s", PRIMARY, [], override([{"kind": "chunks", "chunks": chunks}] * 2))
    )
    assert stage.said(text="started bash-7") == f"job bash-7 in {ROOTS['cwd']}"
    with pytest.raises(ModelFailure, match=r"call 2: \{\{fromRequest:bash-\[0-9\]\+\}\} finds nothing"):
        stage.call()
    [line] = stage.lines()
    assert line["kind"] == "no-match" and line["nearest"]["place"] == "an override (chunks)"


def test_recorded_text_is_never_filled_from_the_request(tmp_path: Path) -> None:
    text = "{{fromRequest:a}}"
    assert Stage(tmp_path, recorded(text)).said(text="a") == text


def test_a_patch_replaces_an_underivable_call(tmp_path: Path) -> None:
    events = log(*said(1, 1, "a"), delta(1, 2, "cut"), *said(2, 1, "b"))
    with pytest.raises(UsageError, match="call 2 cannot be replayed"):
        make_recording("session.jsonl", PRIMARY, events)
    patched = make_recording(
        "s", PRIMARY, events, override({"patches": [{"at": 1, "entry": {"kind": "hang"}}]})
    )
    assert [line.entry["kind"] for line in patched.lines] == ["chunks", "hang", "chunks"]
    assert [line.call is None for line in patched.lines] == [False, True, False]
    longer = {"patches": [{"at": 3, "entry": {"kind": "hang"}}, {"at": 1, "entry": {"kind": "hang"}}]}
    assert [line.call is None for line in make_recording("s", PRIMARY, events, override(longer)).lines] == [
        False,
        True,
        False,
        True,
    ]


def test_a_forked_child_serves_its_own_calls(tmp_path: Path) -> None:
    head = PRIMARY | {"seedLength": len(said(1, 1, "inherited"))}
    recording = make_recording("s", head, log(*said(1, 1, "inherited"), *said(2, 1, "own")))
    assert Stage(tmp_path, recording).said() == "own"


def test_pacing_waits_for_the_recorded_gaps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    events = log(*said(1, 1, "a", "b", "c"))
    for event, time in zip(events, [0, 0, 20, 15, 0, None, 0], strict=True):
        event["time"] = time
    waited: list[float] = []
    real_sleep: Callable[..., Any] = asyncio.sleep

    async def sleep(seconds: float) -> None:
        waited.append(seconds)
        await real_sleep(0)

    monkeypatch.setattr(asyncio, "sleep", sleep)
    recording = make_recording("s", PRIMARY, events)
    assert Stage(tmp_path, recording, pace=True).said() == "abc"
    assert waited == [0, 0.02]
    waited.clear()
    assert Stage(tmp_path, recording).said() == "abc"
    assert waited == [0]
    scripted = make_recording(
        "s", PRIMARY, [], override([{"kind": "chunks", "chunks": [finish(1, 1)["data"]["chunk"]]}])
    )
    Stage(tmp_path, scripted, pace=True).call()
    assert waited == [0, 0]
