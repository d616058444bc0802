"""Calls that were recorded but not made are counted by the runner, from the requests file."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from onetake.errors import UsageError
from onetake.snapshot.drive.execute import execute, fixture_files
from onetake.snapshot.drive.harvest import Leftover
from tests.snapshot.driving import HEADER, OPENING, drive, make_suite, prompts

CHUNKS = [
    {"type": "block-start", "index": 0, "blockType": "text"},
    {"type": "text-delta", "index": 0, "text": "x"},
    {"type": "finish", "reason": {"kind": "stop"}},
]


def calls(count: int, header: str = HEADER) -> str:
    """A fixture with this many recorded model calls."""
    lines = [header.strip()]
    for step in range(1, count + 1):
        for chunk in CHUNKS:
            lines.append(
                json.dumps({"type": "assistant/chunk", "data": {"turn": 1, "step": step, "chunk": chunk}})
            )
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize(("recorded", "leftover"), [(0, []), (2, []), (3, [(3, 2)]), (9, [(9, 2)])])
def test_leftovers_are_counted(tmp_path: Path, recorded: int, leftover: list[tuple[int, int]]) -> None:
    suite = make_suite(tmp_path, {"one": prompts("a", "b")})
    (tmp_path / "one" / "session.jsonl").write_text(calls(recorded))
    harvest = drive(suite)
    harvest.discard()
    assert harvest.leftovers == [Leftover(0, "session.jsonl", *counts) for counts in leftover]


def test_a_child_that_was_never_started_has_all_its_calls_left(tmp_path: Path) -> None:
    suite = make_suite(tmp_path, {"one": prompts("a")})
    child = HEADER.replace('"{{sessionId}}"', '"{{sessionId:1}}"').replace(
        '"createdAt"', '"parentSession":"{{sessionId}}","createdAt"'
    )
    (tmp_path / "one" / "session.1.jsonl").write_text(calls(2, child))
    harvest = drive(suite)
    harvest.discard()
    assert harvest.leftovers == [Leftover(1, "session.1.jsonl", 2, 0)]


@pytest.mark.parametrize(
    ("override", "scripted"),
    [
        ([{"kind": "chunks", "chunks": CHUNKS}] * 4, 4),
        ({"patches": [{"at": 2, "entry": {"kind": "hang"}}]}, 3),
        ({"patches": [{"at": 0, "entry": {"kind": "hang"}}]}, 2),
    ],
)
def test_an_override_is_counted(tmp_path: Path, override: object, scripted: int) -> None:
    suite = make_suite(tmp_path, {"one": prompts("a")}, tables={"one": "overridden = true"})
    (tmp_path / "one" / "session.jsonl").write_text(calls(2))
    (tmp_path / "one" / "replay.override.json").write_text(json.dumps(override))
    harvest = drive(suite)
    harvest.discard()
    assert harvest.leftovers == [Leftover(0, "session.jsonl", scripted, 1)]


def test_an_override_list_needs_no_fixture_to_refresh(tmp_path: Path) -> None:
    suite = make_suite(tmp_path, {"one": prompts("a")}, tables={"one": "overridden = true"})
    (tmp_path / "one" / "session.jsonl").unlink()
    (tmp_path / "one" / "replay.override.json").write_text(json.dumps([{"kind": "hang"}] * 2))
    harvest = drive(suite, mode="refresh")
    harvest.discard()
    assert harvest.leftovers == [Leftover(0, "session.jsonl", 2, 1)]


def test_a_malformed_override_is_malformed_input_and_nothing_is_left(tmp_path: Path, own_tmp: Path) -> None:
    suite = make_suite(tmp_path, {"one": OPENING}, tables={"one": "overridden = true"})
    (tmp_path / "one" / "replay.override.json").write_text('{"patches": 3}')
    with pytest.raises(UsageError, match=r"replay\.override\.json: patches: must be a list"):
        drive(suite)
    assert not list(own_tmp.iterdir())


def test_fixtures_are_read_from_the_folder_that_is_named(tmp_path: Path) -> None:
    import asyncio
    import os

    suite = make_suite(tmp_path / "suite", {"one": prompts("a")})
    staged = tmp_path / "staged"
    staged.mkdir()
    for index, name in enumerate(("session.jsonl", "session.1.jsonl", "session.3.jsonl")):
        (staged / name).write_text(calls(index + 2, HEADER.replace("sessionId", f"sessionId:{index}")))
    assert [path.name for path in fixture_files(staged)] == ["session.jsonl", "session.1.jsonl"]
    work = execute(suite, suite.scenarios["one"], "replay", staged, environ=os.environ)
    harvest = asyncio.run(work)
    harvest.discard()
    assert harvest.leftovers[0] == Leftover(0, "session.jsonl", 2, 1)


def test_a_recording_has_no_leftovers(tmp_path: Path) -> None:
    suite = make_suite(tmp_path, {"one": prompts("a")}, tables={"one": ""})
    (tmp_path / "one" / "session.jsonl").write_text(calls(5))
    harvest = drive(suite, mode="record")
    harvest.discard()
    assert (harvest.mode, harvest.leftovers) == ("record", [])
