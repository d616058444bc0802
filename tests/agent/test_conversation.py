"""What judges the log of a conversation accepts good logs, ours and others', and notices every defect."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest

from onetake.session.events import Event
from onetake.session.repair import Closing
from onetake.session.store import read_file
from onetake.testing.errors import InvariantViolation
from onetake.testing.invariants import conversation as holds

ROOT = Path(__file__).resolve().parents[2]


def message(id: str) -> dict[str, Any]:
    return {"id": id}


def asks(*ids: str) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": "t"}, *({"type": "tool-call", "id": id} for id in ids)]}


def answer(id: str, *, text: str = "t", error: bool = False) -> dict[str, Any]:
    block = {"type": "tool-result", "toolCallId": id, "content": [{"text": text}], "isError": error}
    return {"turn": 1, "step": 1, "message": {"source": {"callId": id}, "content": [block]}}


HERE = {"turn": 1, "step": 1}
PUT = {"target": "next-turn", "start": 0, "inserted": [message("m")]}
TAKEN = {"target": "next-turn", "start": 0, "removedCount": 1, "inserted": []}
DELTA = {**HERE, "chunk": {"type": "text-delta"}}
FINISH = {**HERE, "chunk": {"type": "finish"}}
GOOD: list[Any] = [
    ("agent/inbox/spliced", PUT),
    ("turn/start", {"turn": 1}),
    ("agent/inbox/spliced", TAKEN),
    ("step/start", HERE),
    ("user/message", message("m")),
    ("assistant/chunk", DELTA),
    ("assistant/chunk", FINISH),
    ("assistant/message", {**HERE, "message": asks("a", "b")}),
    ("tool/call", {**HERE, "callId": "a", "name": "x"}),
    ("tool/call", {**HERE, "callId": "b", "name": "x"}),
    ("tool/result", answer("a"), 8),
    ("tool/result", answer("b"), 9),
    ("step/end", HERE),
    ("turn/end", {"turn": 1}),
]
NEEDS_NOT = {5, 6}
"""A log without these chunks would still be good: a message may come without any."""


def built(rows: list[Any]) -> list[Event]:
    return [
        {"type": row[0], "seq": seq, "data": row[1], "sourceEventSeqs": list(row[2:])}
        for seq, row in enumerate(rows)
    ]


def said_of(rows: list[Any], said: list[str] | None = None) -> str:
    """What is wrong with a log; nothing for a good one."""
    try:
        holds.check_conversation(built(rows), said)
    except InvariantViolation as violation:
        return str(violation)
    return ""


def test_a_good_log_is_accepted() -> None:
    assert said_of(GOOD, ["m"]) == ""


@pytest.mark.parametrize("dropped", sorted(set(range(len(GOOD))) - NEEDS_NOT))
def test_every_dropped_event_is_noticed(dropped: int) -> None:
    events = built(GOOD)
    del events[dropped]
    with pytest.raises(InvariantViolation):
        holds.check_conversation(events, ["m"])


@pytest.mark.parametrize("first", [7, 10, 11, 12])
def test_swapped_events_are_noticed(first: int) -> None:
    events = built(GOOD)
    events[first], events[first + 1] = events[first + 1], events[first]
    with pytest.raises(InvariantViolation):
        holds.check_conversation(events, ["m"])


DEFECTS: list[tuple[str, int, list[Any]]] = [
    ("turn 1 starts inside or before turn 1", 14, [("turn/start", {"turn": 1}), ("turn/end", {"turn": 1})]),
    ("turn 2 is open at the end", 14, [("turn/start", {"turn": 2})]),
    ("tool/result outside of a step", 14, [("tool/result", answer("b"), 9)]),
    ("user/message outside of a turn", 14, [("user/message", message("other"))]),
    ("step/end belongs to turn 7, but the open one is 1", 12, [("step/end", {"turn": 7, "step": 1})]),
    ("step 3 starts out of order, after step 1", 13, [("step/start", {"turn": 1, "step": 3})]),
    ("turn 1 ends inside of step 1", 12, [("turn/end", {"turn": 1})]),
    ("todo/write stands between the chunks of a call", 6, [("todo/write", {})]),
    ("a result for call a, which is owed none", 12, [("tool/result", answer("a"), 8)]),
    ("message m is delivered, but it was delivered", 5, [("user/message", message("m"))]),
    ("message m enters the inbox, but it was delivered", 5, [("agent/inbox/spliced", PUT)]),
    ("message m still waits in the inbox", 14, [("agent/inbox/spliced", PUT)]),
    ("0+1 is spliced of a queue that holds 0", 3, [("agent/inbox/spliced", TAKEN)]),
    ("message other was never said", 5, [("user/message", message("other"))]),
]


@pytest.mark.parametrize(("said", "place", "rows"), DEFECTS, ids=[d[0] for d in DEFECTS])
def test_a_defect_is_named(said: str, place: int, rows: list[Any]) -> None:
    assert said in said_of([*GOOD[:place], *rows, *GOOD[place:]], ["m"])


def test_what_was_said_and_is_nowhere_is_named() -> None:
    assert said_of(GOOD, ["m", "n"]) == "message n was said and is nowhere in the log"


def test_a_message_that_is_cancelled_and_delivered_is_named() -> None:
    rows = [*GOOD]
    rows[2] = ("agent/inbox/spliced", {**TAKEN, "outcome": "canceled"})
    assert said_of(rows) == "event 4: message m is delivered, but it was canceled"


def test_a_message_that_left_the_inbox_for_nowhere_is_named() -> None:
    assert said_of([*GOOD[:4], *GOOD[5:]]).endswith("message m was taken and never delivered")


def test_a_result_that_answers_another_call_is_named() -> None:
    wrong = answer("a")
    wrong["message"]["content"][0]["toolCallId"] = "b"
    rows = [*GOOD]
    rows[10] = ("tool/result", wrong, 8)
    assert "the result of call a says that it answers call b" in said_of(rows)


def test_what_was_copied_from_another_session_was_judged_there() -> None:
    rows = [("user/message", message("x")), ("agent/inbox/spliced", PUT), ("turn/start", {"turn": 1})]
    drop = {**TAKEN, "outcome": "canceled"}
    rows += [("session/end-seed", {}), ("agent/inbox/spliced", drop)]
    assert said_of(rows, []) == ""
    assert said_of(rows[:3], []) != ""


def test_results_are_compared_with_what_the_tool_says() -> None:
    rows = [*GOOD]
    rows[11] = ("tool/result", answer("b", text="failed", error=True), 9)
    holds.check_results(built(rows), lambda call: "t")
    with pytest.raises(InvariantViolation, match="event 10, the result of a call: expected 'x:a', came 't'"):
        holds.check_results(built(rows), lambda call: f"{call['name']}:{call['callId']}")


def test_a_request_that_shows_something_else_is_named() -> None:
    events = [{**event, "surfaceOp": "append"} for event in built(GOOD) if event["type"] == "user/message"]
    holds.check_request(events, [message("m")])
    with pytest.raises(InvariantViolation, match=r"expected \[\{'id': 'm'\}\], came \[\]"):
        holds.check_request(events, [])


def test_only_a_disposed_agent_stays_as_it_is() -> None:
    holds.check_statuses(["idle", "running", "running", "idle", "disposed", "disposed"])
    with pytest.raises(InvariantViolation, match="from disposed to idle"):
        holds.check_statuses(["idle", "disposed", "idle"])


def test_a_repair_that_forgets_something_is_named() -> None:
    ends = [Closing("step/end", HERE), Closing("turn/end", {"turn": 1})]
    results = [Closing("tool/result", answer(id), [seq], "append") for id, seq in (("a", 8), ("b", 9))]
    holds.check_repair(lambda events: [*results, *ends], built(GOOD[:10]))
    for forgotten in itertools.combinations([*results, *ends], 3):
        with pytest.raises(InvariantViolation, match="after the repair of 10 events"):
            holds.check_repair(lambda events, few=forgotten: few, built(GOOD[:10]))


def wrong_logs(folder: Path) -> dict[str, str]:
    """The logs below a folder that are not well-formed, and what is said of each first."""
    wrong = {}
    for path in sorted(folder.rglob("session*.jsonl")):
        try:
            holds.check_conversation(read_file(path).events)
        except InvariantViolation as violation:
            wrong[str(path.relative_to(folder))] = str(violation)
    return wrong


def test_the_logs_of_the_examples_are_well_formed_unless_their_agent_was_killed() -> None:
    wrong = wrong_logs(ROOT / "examples")
    told = {name: wrong.pop(name) for name in list(wrong) if name.startswith("adapters/")}
    assert wrong and all("killed" in Path(name).parts for name in wrong)
    # A log that the gateway writes has the results as the client sent them: which call event is theirs, it
    # does not say.
    assert told and all("is of event None" in fault for fault in told.values())


def test_the_logs_of_another_harness_are_well_formed_or_have_a_known_reason(shared_dir: Path) -> None:
    wrong = wrong_logs(shared_dir / "dsh-corpus")
    known = {
        # A plugin takes messages back and delivers them itself.
        "acp-agent/agent-instructions/session.jsonl": "delivered, but it was canceled",
        "acp-agent/code-mode-workspace-context/session.jsonl": "delivered, but it was canceled",
        # All ids were made equal in these fixtures.
        "acp-agent/goal-round-driver/session.expected.jsonl": "message {{sessionId}} is delivered",
        "headless-agent/headless-profile/session.expected.jsonl": "message {{sessionId}} is delivered",
        "headless-agent/offline-edit/session.expected.jsonl": "message {{sessionId}} is delivered",
        # A message is lost when the disk is full.
        "acp-agent/subagent-continuable/session.1.jsonl": "taken and never delivered",
        # Excerpts of logs, in an early layout.
        "web/cordis-tool-round/session.jsonl": "the result of call",
        "web/web-search-round/session.jsonl": "user/message outside of a turn",
    }
    written_by_hand = {name for name in wrong if name.startswith("kit/")}
    assert {name for name in wrong if name not in known} == written_by_hand
    assert all(reason in wrong[name] for name, reason in known.items())
