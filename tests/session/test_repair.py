"""An interrupted turn is closed so that every tool call has exactly one result."""

from __future__ import annotations

import itertools
from typing import Any

from onetake.session.log import SessionLog
from onetake.session.repair import NOT_STARTED, UNKNOWN_OUTCOME, Closing, close_interrupted
from tests.session.make import assistant, call_block, counting_log, started_turn, user


def close(log: SessionLog) -> list[Closing]:
    """Return what closes `log`, with ids r1, r2, ..."""
    ids = map("r{}".format, itertools.count(1))
    return close_interrupted(log.events, make_id=lambda: next(ids))


def call(log: SessionLog, call_id: str) -> None:
    """Log that a tool was started."""
    log.append("tool/call", {"turn": 1, "step": 1, "callId": call_id, "name": "bash", "arguments": "{}"})


def result(log: SessionLog, call_id: str) -> None:
    """Log the result of a call."""
    message = {"source": {"kind": "tool", "callId": call_id}, "content": [], "role": "user", "id": "x"}
    log.append("tool/result", {"turn": 1, "step": 1, "message": message}, surface_op="append")


END = Closing("turn/end", {"turn": 1, "reason": {"kind": "interrupted"}})
STEP_END = Closing("step/end", {"turn": 1, "step": 1})


def test_nothing_to_do_between_turns() -> None:
    """An empty log and a finished turn stay as they are."""
    log = counting_log()
    assert close(log) == []
    log = started_turn()
    log.append("step/end", {"turn": 1, "step": 1})
    log.append("turn/end", {"turn": 1, "reason": {"kind": "completed"}})
    assert close(log) == []


def test_an_open_step_and_turn_are_closed() -> None:
    """A step that ended is not closed again."""
    log = started_turn()
    assert close(log) == [STEP_END, END]
    log.append("step/end", {"turn": 1, "step": 1})
    assert close(log) == [END]


def test_open_calls_get_results_in_model_order() -> None:
    """A started call has an unknown outcome, one that was never started had no effect."""
    log = started_turn()
    blocks = [call_block(name) for name in ("a", "b", "c")]
    log.append("assistant/message", assistant({"type": "text", "text": "t"}, *blocks), surface_op="append")
    call(log, "a")
    call(log, "b")
    result(log, "a")
    first, second, *rest = close(log)
    assert rest == [STEP_END, END]
    assert first == Closing(
        "tool/result",
        {
            "turn": 1,
            "step": 1,
            "message": {
                "source": {"kind": "tool", "callId": "b"},
                "content": [
                    {
                        "type": "tool-result",
                        "toolCallId": "b",
                        "content": [{"type": "text", "text": UNKNOWN_OUTCOME}],
                        "isError": True,
                    }
                ],
                "role": "user",
                "id": "r1",
            },
            "error": {"name": "InterruptedError", "code": "TOOL_OUTCOME_UNKNOWN"},
        },
        [5],
        "append",
    )
    assert second.data["error"]["code"] == "ABORTED_BEFORE_DISPATCH"
    assert second.data["message"]["content"][0]["content"][0]["text"] == NOT_STARTED
    assert second.source_event_seqs == [3]


def test_calls_of_one_id_each_get_a_result() -> None:
    """Models give an id to several calls; the oldest call with that id is answered first."""
    log = started_turn()
    blocks = [call_block("same") for _ in range(3)]
    log.append("assistant/message", assistant(*blocks), surface_op="append")
    call(log, "same")
    call(log, "same")
    result(log, "same")
    closings = close(log)
    codes = [closing.data["error"]["code"] for closing in closings[:-2]]
    assert codes == ["TOOL_OUTCOME_UNKNOWN", "ABORTED_BEFORE_DISPATCH"]
    assert closings[0].source_event_seqs == [5] and closings[-2:] == [STEP_END, END]


def test_a_message_that_no_model_has_seen_goes_back_to_its_queue() -> None:
    """What was taken and delivered, or cancelled, stays where it is; so does what still waits."""

    def splice(target: str, start: int, *inserted: str, **more: Any) -> None:
        data = {"target": target, "start": start, "inserted": [user(id, id) for id in inserted], **more}
        log.append("agent/inbox/spliced", data)

    log = counting_log()
    splice("next-turn", 0, "old", "turn", "waits")
    splice("next-turn", 0, removedCount=1)  # in a turn that is over: what became of it is known
    splice("next-step", 0, "dropped", "step", "seen")
    log.append("turn/start", {"turn": 1})
    splice("next-step", 0, removedCount=1, outcome="canceled")
    splice("next-step", 0, removedCount=2)
    splice("next-turn", 0, removedCount=1)
    log.append("user/message", user("seen", "seen"), surface_op="append")
    assert close(log) == [
        Closing(
            "agent/inbox/spliced", {"target": "next-step", "start": 0, "inserted": [user("step", "step")]}
        ),
        Closing(
            "agent/inbox/spliced", {"target": "next-turn", "start": 0, "inserted": [user("turn", "turn")]}
        ),
        END,
    ]


def test_what_is_closed_needs_no_closing() -> None:
    """Applying the repair makes it a no-op, and gives every call one result in the history."""
    log = started_turn()
    log.append("assistant/message", assistant(call_block("a"), call_block("b")), surface_op="append")
    call(log, "a")
    for closing in close_interrupted(log.events):
        log.append(closing.type, closing.data, surface_op=closing.surface_op)
    assert close_interrupted(log.events) == []
    results = [
        message["source"]["callId"] for message in log.messages() if message["source"]["kind"] == "tool"
    ]
    assert results == ["a", "b"]


def test_calls_of_earlier_turns_are_left_alone() -> None:
    """Only the open turn is repaired."""
    log = started_turn()
    log.append("assistant/message", assistant(call_block("old")), surface_op="append")
    log.append("turn/end", {"turn": 1, "reason": {"kind": "completed"}})
    log.append("turn/start", {"turn": 2})
    assert close(log) == [Closing("turn/end", {"turn": 2, "reason": {"kind": "interrupted"}})]


def test_unexpected_payloads_do_not_hinder_closing() -> None:
    """Payloads are not type-checked on reading, so the repair must not trust them."""
    log = counting_log()
    odd: list[tuple[str, Any]] = [
        ("turn/start", None),
        ("step/start", []),
        ("assistant/message", {"message": {"content": "text"}}),
        ("assistant/message", {"message": {"content": [None, {"type": "text"}]}}),
        ("tool/result", 1),
        ("agent/inbox/spliced", None),
        ("agent/inbox/spliced", {"target": [], "start": 0, "inserted": ["x"], "removedCount": "1"}),
        ("tool/call", {"callId": {"not": "text"}}),
    ]
    for kind, data in odd:
        log.append(kind, data)
    assert [closing.type for closing in close(log)] == ["tool/result", "step/end", "turn/end"]
