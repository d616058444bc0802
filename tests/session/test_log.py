"""The log in memory: sequence, subscribers, history."""

from __future__ import annotations

from typing import Any

from onetake.session.events import make_header, unresumable_types
from onetake.session.log import SessionLog, ms_now
from tests.session.make import counting_log, header, user


def test_events_are_numbered_and_keyed_in_order() -> None:
    """Optional envelope keys appear only when given, in the order of the format."""
    log = counting_log()
    assert log.append("turn/start", {"turn": 1}) == {
        "type": "turn/start",
        "seq": 0,
        "time": 1,
        "data": {"turn": 1},
    }
    event = log.append("user/message", user("x"), source_event_seqs=(0,), surface_op="append")
    assert list(event) == ["type", "seq", "time", "data", "sourceEventSeqs", "surfaceOp"]
    assert event["sourceEventSeqs"] == [0]
    assert log.next_seq == 2 and log.id == "s-1"


def test_subscribers_hear_every_event_until_they_leave() -> None:
    """In order of subscription; one that leaves while it is told does not disturb the others."""
    log = counting_log()
    heard: list[Any] = []

    def once(event: Any) -> None:
        heard.append(("once", event["seq"]))
        leave()

    leave = log.subscribe(once)
    stop = log.subscribe(lambda event: heard.append(("all", event["seq"])))
    log.append("a", {})
    log.append("b", {})
    stop()
    stop()
    log.append("c", {})
    assert heard == [("once", 0), ("all", 0), ("all", 1)]


def test_a_subscriber_may_append() -> None:
    """An event appended by a subscriber comes behind the one it heard."""
    log = counting_log()
    log.subscribe(lambda event: log.append("echo", {}) if event["type"] == "call" else None)
    log.append("call", {})
    assert [(event["type"], event["seq"]) for event in log.events] == [("call", 0), ("echo", 1)]


def test_messages_follow_the_log_without_aliasing_it() -> None:
    """Each call sees what was appended since, and nobody can change the log through it."""
    log = counting_log()
    log.append("user/message", user("one"), surface_op="append")
    first = log.messages()
    first[0]["content"][0]["text"] = "changed"
    first.clear()
    log.append("user/message", user("two"), surface_op="append")
    assert len(log.messages()) == 2
    assert [event["data"]["content"][0]["text"] for event in log.events] == ["one", "two"]


def test_the_clock_is_in_milliseconds() -> None:
    """Without a clock of one's own, events carry the time since 1970."""
    log = SessionLog(header())
    before = ms_now()
    assert before <= log.append("a", {})["time"] <= ms_now()
    assert before > 1_600_000_000_000


def test_a_header_has_its_keys_in_order() -> None:
    """All keys when given, the four required ones otherwise."""
    full = make_header(
        "a",
        created_at=1,
        cwd="/w",
        parent_session="p",
        seed_length=0,
        origin="subagent",
        delegation_depth=1,
        agent_preset="x",
    )
    assert list(full) == [
        *("type", "version", "id", "createdAt", "cwd", "parentSession", "seedLength", "origin"),
        *("delegationDepth", "agentPreset"),
    ]
    assert list(header()) == ["type", "version", "id", "createdAt", "delegationDepth"]


def test_unknown_types_forbid_resuming_unless_ignorable() -> None:
    """Only `ignorable: true` itself lets an unknown type pass."""
    events = [
        {"type": "turn/start"},
        {"type": "b/new"},
        {"type": "a/new", "ignorable": 1},
        {"type": "b/new"},
        {"type": "c/new", "ignorable": True},
    ]
    assert unresumable_types(events) == ["b/new", "a/new"]
