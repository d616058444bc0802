"""What live logs say: which child has which number, what is still to come, and what went with a process."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from onetake.fixture.lineage import SessionFacts, Spawn
from onetake.snapshot.drive.conditions import log_condition
from onetake.snapshot.drive.livelog import LiveLogs
from onetake.snapshot.drive.pending import background_children, waiting_messages
from onetake.snapshot.suites.ops import WaitForSubagentTurnEnd
from tests.snapshot.driving import OPENING, drive_steps
from tests.snapshot.test_driver_acp import failed, finished

Event = dict[str, Any]
START, END = {"type": "turn/start", "data": {"turn": 1}}, {"type": "turn/end", "data": {"turn": 1}}


def call(id: str, step: int = 1) -> Event:
    return {"type": "tool/call", "data": {"turn": 1, "step": step, "callId": id, "name": "subagent"}}


def result(id: str, step: int = 1, child: str | None = None) -> Event:
    """The result of a call; with `child` it starts one in the background, or hands its answer over."""
    data: dict[str, Any] = {"turn": 1, "step": step, "message": {"source": {"kind": "tool", "callId": id}}}
    return {"type": "tool/result", "data": data if child is None else data | {"meta": {"subagentId": child}}}


def put(*children: str) -> Event:
    """Notices come into the inbox."""
    inserted = [{"content": [], "source": {"subagentId": child}} for child in children]
    return {"type": "agent/inbox/spliced", "data": {"target": "next-turn", "start": 0, "inserted": inserted}}


def take() -> Event:
    data = {"target": "next-turn", "start": 0, "removedCount": 1, "inserted": []}
    return {"type": "agent/inbox/spliced", "data": data}


def descriptor(id: str, step: int = 1, ordinal: int = 0, mode: str = "one-shot") -> Event:
    spawn = {"turn": 1, "step": step, "callId": id, "ordinal": ordinal}
    return {"type": "subagent/descriptor", "data": {"mode": mode, "spawn": spawn}}


class Store:
    """A sessions root that grows."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def log(self, id: str, *events: Event, parent: str | None = None, created: int = 0) -> None:
        """Append events to a log, which begins with its header."""
        path = self.root / "project" / id / "session.jsonl"
        header = {"type": "session", "version": 0, "id": id, "createdAt": created}
        if parent is not None:
            header["parentSession"] = parent
        if not path.exists():
            path.parent.mkdir(parents=True)
            path.write_text(json.dumps(header, separators=(",", ":")) + "\n")
        count = len(path.read_text().split("\n")) - 2
        with path.open("a") as file:
            for seq, event in enumerate(events, count):
                record = {"type": event["type"], "seq": seq, "time": 0, "data": event["data"]}
                file.write(json.dumps(record, separators=(",", ":")) + "\n")


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path)


def number(store: Store, wanted: int, recorded: list[SessionFacts] | None = None) -> str | None:
    """The session that certainly is this child."""
    log, certain = LiveLogs(store.root, recorded).child(wanted, ["top"])
    return log.id if log is not None and certain else None


def test_a_recording_knows_its_children(store: Store) -> None:
    recorded = [
        SessionFacts("r"),
        SessionFacts("r1", "r", Spawn(1, 1, "a")),
        SessionFacts("r2", "r", Spawn(1, 1, "b")),
    ]
    store.log("top", START, call("b"), call("a"))
    store.log("late", descriptor("b"), parent="top")
    assert [number(store, n, recorded) for n in (1, 2, 3)] == [None, "late", None]
    store.log("early", descriptor("a"), parent="top")
    assert [number(store, n, recorded) for n in (1, 2, 3)] == ["early", "late", None]


def test_a_call_that_is_counted_before_must_have_brought_what_it_brings(store: Store) -> None:
    store.log("top", START, call("a"), call("b"), call("c", step=2))
    store.log("b", descriptor("b"), START, END, parent="top")
    assert number(store, 1) is None, "call a may still bring a child"
    store.log("top", result("a"))
    assert number(store, 1) == "b", "call a was no sub-agent"
    assert number(store, 2) is None


def test_a_wait_for_a_child_that_is_not_certain_says_so(store: Store) -> None:
    store.log("top", START, call("a"), call("b"))
    logs = LiveLogs(store.root)
    words, holds = log_condition(WaitForSubagentTurnEnd(child=1), logs, "top", ["top"])
    assert not holds() and words() == "the end of turn 1 of child 1 in the session log"
    store.log("b", descriptor("b"), START, END, parent="top")
    assert not holds() and "; session b may be that child, but one that is counted before it" in words()
    store.log("top", result("a"))
    assert holds() and words() == "the end of turn 1 of child 1 in the session log"


def test_a_child_in_the_background_comes_after_the_result_that_starts_it(store: Store) -> None:
    store.log("top", START, call("a"), call("b"), result("a", child="agent-1"), result("b", child="agent-2"))
    store.log("b", descriptor("b"), START, END, parent="top")
    assert number(store, 1) is None
    store.log("a", descriptor("a"), START, parent="top")
    assert number(store, 1) == "a"
    assert number(store, 2) is None, "child 1 may have children of its own, which come before child 2"
    store.log("a", END)
    assert number(store, 2) == "b"


def test_a_child_that_could_not_be_started_is_no_longer_waited_for(store: Store) -> None:
    store.log("top", START, call("a"), call("b"), result("a", child="agent-1"), result("b", child="agent-2"))
    store.log("b", descriptor("b"), START, END, parent="top")
    assert number(store, 1) is None
    store.log("top", END, put("agent-1"))
    assert number(store, 1) == "b"


def test_a_child_with_more_than_one_turn_is_over_when_its_parent_knows(store: Store) -> None:
    store.log("top", START, call("a"), call("b"))
    store.log("a", descriptor("a", mode="continuable"), START, END, parent="top")
    store.log("b", descriptor("b"), parent="top")
    assert number(store, 2) is None
    store.log("top", result("a"))
    assert number(store, 2) == "b"


def test_grandchildren_are_counted_before_the_next_child(store: Store) -> None:
    store.log("top", START, call("a"), call("b"), result("a"))
    store.log("a", descriptor("a"), START, call("x"), result("x"), END, parent="top")
    store.log("b", descriptor("b"), START, call("y"), parent="top")
    store.log("y", descriptor("y"), parent="b")
    store.log("x", descriptor("x"), parent="a")
    assert [number(store, n) for n in (1, 2, 3, 4, 5)] == ["a", "x", "b", "y", None]


def test_calls_that_share_an_id_are_told_apart(store: Store) -> None:
    store.log("top", START, call("a"), call("a"))
    store.log("second", descriptor("a", ordinal=1), parent="top")
    assert number(store, 1) is None
    store.log("top", result("a"))
    assert number(store, 1) == "second"


def test_a_child_is_certain_only_with_its_parent(store: Store) -> None:
    store.log("child", descriptor("a"), parent="top")
    assert number(store, 1) is None, "the log of its parent is not there yet"
    store.log("top", START)
    assert number(store, 1) is None, "its own call is not logged"
    store.log("top", call("a"))
    assert number(store, 1) == "child"


def test_children_without_a_spawning_call_go_by_creation(store: Store) -> None:
    store.log("top", START, call("a"))
    store.log("b", START, parent="top", created=1)
    store.log("a", START, parent="top", created=2)
    assert [number(store, n) for n in (1, 2)] == ["b", "a"]


def test_sessions_that_were_opened_earlier_must_be_idle(store: Store) -> None:
    store.log("top", START)
    store.log("zz", START, call("a"), created=5)
    store.log("child", descriptor("a"), parent="zz")
    assert number(store, 1) is None
    store.log("top", END)
    assert number(store, 1) == "child"


def test_what_is_still_to_come_is_said(store: Store) -> None:
    logs = LiveLogs(store.root)

    def said() -> list[str]:
        return [line.removeprefix("session top: ") for line in logs.unfinished()]

    store.log("top", START, call("a"), result("a", child="agent-1"))
    assert said() == ["a turn is open"]
    store.log("top", END)
    assert said() == ["nobody has told it yet how these ended: agent-1"]
    store.log("top", put("agent-1"))
    assert said() == ["messages wait in the inbox: 1"]
    store.log("top", START, take())
    assert said() == ["a turn is open"]
    store.log("top", END)
    assert said() == []


def test_an_answer_that_was_handed_over_needs_no_notice() -> None:
    events = [result("a", child="agent-1"), result("b", child="agent-2"), result("w", child="agent-1")]
    assert background_children(events).owed() == ["agent-2"]
    assert background_children(events).owed(since=2) == []


@pytest.mark.parametrize(
    "event",
    [
        {"type": "tool/result", "data": None},
        {"type": "tool/result", "data": {"meta": {"subagentId": 1}}},
        {"type": "tool/result", "data": {"meta": "x"}},
        {"type": "agent/inbox/spliced", "data": {"inserted": "x", "start": "y", "removedCount": -1}},
        {"type": "agent/inbox/spliced", "data": []},
        {"data": {}},
    ],
)
def test_what_is_malformed_says_nothing(event: Event) -> None:
    assert background_children([event]).owed() == [] and waiting_messages([event]) == 0


def test_a_message_without_a_source_waits_all_the_same() -> None:
    event = {"type": "agent/inbox/spliced", "data": {"target": "next-turn", "inserted": ["x"]}}
    assert background_children([event]).told == set() and waiting_messages([event]) == 1


def test_malformed_calls_bring_nothing(store: Store) -> None:
    odd = [{"type": "tool/result", "data": {"turn": "x", "message": m}} for m in ("x", {}, {"source": []})]
    store.log("top", *odd, {"type": "tool/call", "data": {"turn": None, "callId": 7}}, call("a"))
    store.log("child", descriptor("a"), parent="top")
    assert number(store, 1) is None, "a call without a result is one, whatever it looks like"
    store.log("top", {"type": "tool/result", "data": {"message": {"source": {"callId": 7}}}})
    assert number(store, 1) == "child"


def test_what_a_process_left_goes_on_only_when_another_one_resumes_it(store: Store) -> None:
    logs = LiveLogs(store.root)
    store.log("top", START, call("a"), call("b"), result("a", child="agent-1"))
    store.log("b", descriptor("b"), START, parent="top")
    assert len(logs.unfinished()) == 2
    logs.process_ended()
    assert logs.unfinished() == []
    log, certain = logs.child(1, ["top"])
    assert log is not None and (log.id, certain) == ("b", True), "call a can bring nothing any more"
    logs.resumed("top")
    assert logs.unfinished() == ["session top: a turn is open"]
    store.log("top", END)
    assert logs.unfinished() == [], "the child of the former process will not be heard of"
    store.log("top", START, call("c"), result("c", child="agent-2"), END)
    assert logs.unfinished() == ["session top: nobody has told it yet how these ended: agent-2"]
    logs.process_ended()
    assert logs.unfinished() == []
    store.log("b", END, START)
    assert logs.unfinished() == ["session b: a turn is open"], "somebody goes on with it"


def test_a_resumed_session_with_children_of_the_killed_agent(tmp_path: Path) -> None:
    """The child's turn stays open for good; the parent's is closed by the one who resumes it."""
    again = [{"op": "restart"}, {"op": "initialize"}, {"op": "resumeSession"}]
    steps = [
        *OPENING,
        {"op": "promptAndWaitForAgentMessage", "text": "stuck-child", "waitForText": "it works"},
        {"op": "kill"},
        *again,
        {"op": "prompt", "text": "hello"},
        {"op": "waitForIdle"},
    ]
    harvest = finished(drive_steps(tmp_path, steps))
    assert len(harvest.sessions) == 2
    open_child = [event["type"] for event in harvest.sessions[1].events]
    assert open_child == ["turn/start"]


def test_a_resumed_session_that_nobody_mends_is_named(tmp_path: Path) -> None:
    steps = [
        *OPENING,
        {"op": "promptAndWaitForAgentMessage", "text": "stuck-child", "waitForText": "it works"},
        *[{"op": "kill"}, {"op": "restart"}, {"op": "initialize"}, {"op": "resumeSession"}],
    ]
    options = {"suite": "timeout_s = 2", "agent": 'env = { FAKE_RESUME = "careless" }'}
    error = failed(drive_steps(tmp_path, steps, **options), 1)
    assert "awaiting all sessions to be idle: session" in error and ": a turn is open" in error
