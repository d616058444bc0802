"""What the agent wrote is input: however odd, it ends in a verdict, and never in a fault of the runner."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from onetake import jsontext
from onetake.errors import UsageError
from onetake.session.store import read_file
from onetake.snapshot.drive.execute import _collect_sessions, execute, fixture_files
from onetake.snapshot.drive.harvest import Harvest
from onetake.snapshot.drive.livelog import find_logs
from onetake.snapshot.modes.judge import harvest_problems, judge
from onetake.snapshot.render.pins import load_pins
from tests.snapshot.driving import drive, make_suite, prompts
from tests.snapshot.lab import Lab

DEEP = json.loads("[" * 150 + "]" * 150)
JUNK: list[Any] = [None, True, -1, 10**30, 1.5, "", "\ud800", "{{cwd}}", [], {}, [1], {"a": 1}, DEEP]


def test_half_a_character_in_an_answer_is_shown_escaped(tmp_path: Path) -> None:
    """In what the runner quotes, and in what it shows as JSON."""
    failing = prompts("fail \ud800!")
    unwanted = [*failing[:2], {"op": "promptExpectError", "text": "reason \ud800!"}]
    for steps, shown in ((failing, r"failed: \ud800! (code -32603)"), (unwanted, r'"stopReason":"\ud800!"')):
        suite = make_suite(tmp_path, {"one": steps})
        harvest = drive(suite)
        harvest.discard()
        (problem,) = harvest_problems(harvest, suite, suite.scenarios["one"])
        assert shown in problem.message
        problem.text().encode()


def places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Every container in a value, with each of its keys or indices."""
    items: list[tuple[Any, Any]] = []
    if isinstance(value, dict):
        items = list(value.items())
    elif isinstance(value, list):
        items = list(enumerate(value))
    for key, item in items:
        yield value, key
        yield from places(item)


def spoil(line: bytes, chance: random.Random) -> bytes:
    """A line of JSON with one value in it replaced or gone."""
    value = jsontext.loads(line)
    container, key = chance.choice(list(places(value)))
    if chance.random() < 0.2:
        del container[key]
    else:
        container[key] = chance.choice(JUNK)
    return jsontext.dumps(value)


def judged(harvest: Harvest, lab: Lab) -> None:
    """Read the logs anew and judge the harvest; an error must name the file."""
    scenario = lab.suite.scenarios[harvest.scenario]
    recorded = [read_file(path) for path in fixture_files(scenario.dir)]
    try:
        world: Any = SimpleNamespace(sessions=harvest.run_dir / "logs")
        _collect_sessions(harvest, world, harvest.opened, recorded)
        judge(harvest, scenario, lab.suite, load_pins(lab.suite))
    except UsageError as error:
        assert "session.jsonl" in str(error)


@pytest.mark.parametrize("seed", range(3))
def test_no_log_and_no_frame_breaks_the_judge(lab: Lab, seed: int) -> None:
    harvest = asyncio.run(execute(lab.suite, lab.suite.scenarios["tools"], "replay"))
    try:
        chance = random.Random(seed)
        frames = harvest.frames
        path = find_logs(harvest.run_dir / "logs")[0]
        lines = [read_file(path).header_raw, *read_file(path).lines]
        for _ in range(100):
            at = chance.randrange(len(frames))
            harvest.frames = [*frames[:at], spoil(frames[at], chance), *frames[at + 1 :]]
            judged(harvest, lab)
            harvest.frames = frames
            at = chance.randrange(len(lines))
            path.write_bytes(b"\n".join([*lines[:at], spoil(lines[at], chance), *lines[at + 1 :]]) + b"\n")
            judged(harvest, lab)
    finally:
        harvest.discard()
