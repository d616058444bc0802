"""Deriving the script of model calls from a log."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from onetake.errors import UsageError
from onetake.replay.script import (
    derive_calls,
    derive_replay_script,
    own_events,
    replay_entries,
    require_derivable,
    underivable,
)
from onetake.session.jsonl import read_log
from tests.fixture.logs import chunk, delta, event, finish, log, said, turn_start


def test_a_finish_ends_a_call_and_retries_share_a_step() -> None:
    events = log(turn_start(1), delta(1, 1, "a"), finish(1, 1, "error"), *said(1, 1, "b"), *said(1, 2, "c"))
    script = derive_replay_script(events)
    assert [entry["kind"] for entry in script] == ["chunks"] * 3
    assert [entry["chunks"][-1]["reason"]["kind"] for entry in script] == ["error", "stop", "stop"]
    assert [(call.turn, call.step, call.purpose) for call in derive_calls(events)] == [
        (1, 1, "main"),
        (1, 1, "main"),
        (1, 2, "main"),
    ]
    assert replay_entries(script) == 3 and underivable(script) == []


@pytest.mark.parametrize(
    "after",
    [
        [],
        [event("step/end", {})],
        [event("turn/end", {})],
        [turn_start(2)],
        [event("step/start", {})],
        said(1, 2, "x"),
    ],
)
def test_a_call_without_finish_keeps_its_place(after: list[dict[str, Any]]) -> None:
    script = derive_replay_script(log(*said(1, 1, "a"), delta(1, 2, "cut"), *after[:0], *after))
    if after and after[0]["type"] == "assistant/chunk":
        script = derive_replay_script(log(*said(1, 1, "a"), delta(2, 1, "cut"), *after))
    assert script[1] == {"kind": "underivable", "message": script[1]["message"]}
    assert "has no finish chunk" in script[1]["message"]
    assert replay_entries(script) is None


def test_a_notice_between_chunks_does_not_cut_a_call() -> None:
    script = derive_replay_script(log(delta(1, 1, "a"), event("x/notice", {}), finish(1, 1)))
    assert len(script) == 1 and len(script[0]["chunks"]) == 2


@pytest.mark.parametrize("data", [None, {"turn": 1, "step": 1, "chunk": 7}, {"turn": 1, "step": 1}])
def test_a_malformed_chunk_makes_the_call_underivable(data: Any) -> None:
    script = derive_replay_script(log(event("assistant/chunk", data), finish(1, 1)))
    assert "malformed chunk (event 0)" in script[0]["message"]


def test_a_compaction_summary_of_a_model_is_one_call() -> None:
    data = {
        "llmStreamCall": True,
        "turn": 3,
        "rawOutput": [{"type": "reasoning", "text": "r"}, {"type": "text", "text": "t"}],
        "usage": {"outputTokens": 4},
    }
    calls = derive_calls(log(*said(1, 1, "a"), event("compaction/summary", data), *said(1, 2, "b")))
    assert [call.purpose for call in calls] == ["main", "compaction", "main"]
    assert calls[1].entry()["chunks"] == [
        {"type": "block-start", "index": 0, "blockType": "reasoning"},
        {"type": "block-end", "index": 0, "block": {"type": "reasoning", "text": "r"}},
        {"type": "block-start", "index": 1, "blockType": "text"},
        {"type": "block-end", "index": 1, "block": {"type": "text", "text": "t"}},
        {"type": "usage", "usage": {"outputTokens": 4}},
        {"type": "finish", "reason": {"kind": "stop"}},
    ]
    assert calls[1].place() == "compaction in turn 3"
    assert calls[0].place() == "turn 1, step 1"


def test_other_compaction_summaries_are_no_calls() -> None:
    data: Any
    for data in ({"llmStreamCall": False, "rawOutput": []}, {"rawOutput": []}, None):
        assert derive_replay_script(log(event("compaction/summary", data))) == []
    broken = derive_replay_script(
        log(event("compaction/summary", {"llmStreamCall": True, "rawOutput": ["x"]}))
    )
    assert underivable(broken) == ["compaction/summary of a model call has no rawOutput blocks"]
    empty = derive_replay_script(log(event("compaction/summary", {"llmStreamCall": True, "rawOutput": []})))
    assert empty == [{"kind": "chunks", "chunks": [{"type": "finish", "reason": {"kind": "stop"}}]}]


def test_a_forked_child_derives_from_its_own_events() -> None:
    events = log(*said(1, 1, "inherited"), *said(2, 1, "own"))
    inherited = len(said(1, 1, "inherited"))
    assert len(derive_replay_script(own_events({"seedLength": inherited}, events))) == 1
    for seed in (0, None, True, -3, "2"):
        assert len(own_events({"seedLength": seed}, events)) == len(events)


def test_serving_a_call_without_an_end_is_refused_with_the_remedy() -> None:
    script = derive_replay_script(log(*said(1, 1, "a"), delta(1, 2, "cut")))
    with pytest.raises(UsageError, match=r'session\.jsonl: call 2 .*"at": 1'):
        require_derivable(script, "session.jsonl")
    with pytest.raises(UsageError, match=r"call 2 .*can script session\.jsonl only") as refused:
        require_derivable(script, "session.1.jsonl", patchable=False)
    assert "patches" not in str(refused.value)
    assert require_derivable(script[:1], "x") == script[:1]


def test_chunks_outside_any_turn_and_odd_finishes_never_raise() -> None:
    odd = log(
        chunk(0, 0, {"type": "finish"}), chunk(0, 0, {"type": "finish", "reason": 1}), event("step/end", None)
    )
    assert len(derive_replay_script(odd)) == 2


def test_the_shared_corpus_has_the_calls_that_its_index_counts(shared_dir: Path) -> None:
    corpus = shared_dir / "dsh-corpus"
    index = json.loads((corpus / "index.json").read_bytes())
    logs = 0
    for scenario in index["scenarios"]:
        for figures in scenario["logs"]:
            path = corpus / scenario["id"] / figures["file"]
            log_file = read_log(path.read_bytes(), str(path))
            whole = derive_replay_script(log_file.events)
            own = derive_replay_script(own_events(log_file.header, log_file.events))
            assert replay_entries(whole) == figures["replay_entries"], path
            assert replay_entries(own) == figures["replay_entries_own"], path
            assert bool(underivable(whole)) == bool(figures.get("underivable")), path
            logs += 1
    assert logs > 100
