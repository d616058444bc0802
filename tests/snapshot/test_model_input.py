"""A recorded call that somebody edited by hand is red, whatever they changed that the stream says twice."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from onetake.snapshot.guard.static import static_problems
from tests.snapshot.lab import Lab, failures, red


def report(lab: Lab) -> str:
    """What the static guards say."""
    return "\n".join(problem.text() for problem in static_problems(lab.suite))


def test_one_changed_letter(lab: Lab) -> None:
    """In a delta, which nobody shows to anybody: only the end of the block would ever be seen."""
    lab.edit("snapshots/hello/session.jsonl", '"texts":["He","ll","o!"', '"texts":["He","lp","o!"')
    shown = report(lab)
    assert "hello/session.jsonl: turn 1, step 1: chunk" in shown and "[model-input]" in shown
    assert "its deltas say 'Helpo!', and its end says 'Hello!'" in shown
    assert "record the scenario again" in shown
    assert red(lab.replay("hello")) == {"hello": {"model-input"}}


def test_tokens_and_literals_that_look_like_them(lab: Lab) -> None:
    """A token in a delta is compared with the token in the block, and shown as it is written."""
    lab.edit("snapshots/echo/session.jsonl", 'd {{cwd}}",', 'd {{\\\\cwd}}",')
    shown = report(lab)
    assert "its deltas say" in shown and "printed {{cwd}} as" in shown and "\\x00" not in shown


def test_an_answer_that_contradicts_itself_is_not_recorded(lab: Lab) -> None:
    """The former recording stays: of the new one no replay could say what the model meant."""
    lab.break_agent("contradicting")
    before = lab.files()
    outcomes = lab.record("hello")
    assert red(outcomes) == {"hello": {"model-input"}}
    assert "its deltas say 'Hello!', and its end says 'Something else.'" in failures(outcomes)
    assert "nothing was written" in failures(outcomes)
    assert lab.changed_since(before) == set()


def leaves(value: Any) -> Iterator[tuple[Any, Any]]:
    """Every string of a JSON value as (container, key)."""
    for key, item in list(value.items() if isinstance(value, dict) else enumerate(value)):
        if isinstance(item, dict | list):
            yield from leaves(item)
        elif isinstance(item, str):
            yield value, key


def mutants(line: bytes) -> Iterator[bytes]:
    """A line of model input with one string of its payload changed each."""
    for number in range(sum(1 for _ in leaves(json.loads(line)["data"]))):
        value = json.loads(line)
        container, key = list(leaves(value["data"]))[number]
        container[key] += "X"
        yield json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


def test_no_string_of_the_model_input_can_be_changed(lab: Lab) -> None:
    """Whatever is changed, some static guard objects; no agent is started."""
    for scenario in ("hello", "tools", "echo"):
        path = lab.snapshots / scenario / "session.jsonl"
        whole = path.read_bytes()
        lines = whole.split(b"\n")
        silent = []
        count = 0
        for number, line in enumerate(lines):
            if b"-chunks" not in line[:30] and b'"assistant/chunk"' not in line[:30]:
                continue
            for mutant in mutants(line):
                count += 1
                path.write_bytes(b"\n".join([*lines[:number], mutant, *lines[number + 1 :]]))
                if not static_problems(lab.suite, [lab.suite.scenarios[scenario]]):
                    silent.append(mutant)
        path.write_bytes(whole)
        assert count > 20 and silent == []


def test_what_an_override_says_may_be_anything_that_is_well_formed(lab: Lab) -> None:
    """The log then holds what the override said, and no recording."""
    chunks = [
        {"type": "text-delta", "index": 0, "text": "Hello"},
        {"type": "block-end", "index": 0, "block": {"type": "text", "text": "Hallo"}},
        {"type": "finish", "reason": {"kind": "stop"}},
    ]
    override = lab.snapshots / "fails/replay.override.json"
    override.write_text(json.dumps([{"kind": "chunks", "chunks": chunks}]))
    script = {"steps": [{"op": "initialize"}, {"op": "newSession"}, {"op": "prompt", "text": "Go."}]}
    (lab.snapshots / "fails/input.json").write_text(json.dumps(script))
    assert red(lab.refresh("fails")) == {}
    assert report(lab) == ""
    (lab.snapshots / "fails/replay.override.json").write_text(json.dumps({"patches": []}))
    assert "its deltas say 'Hello', and its end says 'Hallo'" in report(lab)
