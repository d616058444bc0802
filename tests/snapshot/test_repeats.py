"""Again and again: example suites without one flake, and recordings that are killed at any moment.

`make nightly` repeats far more often than `make test`. Coverage does not watch these processes: it would cost
more than they do.
"""

from __future__ import annotations

import asyncio
import os
import random
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from onetake.gateway.mock import MockModel
from tests.conftest import NIGHTLY, ROOT
from tests.snapshot.lab import USAGE, Lab, command, failures, red

ONETAKE = [sys.executable, "-m", "onetake"]
IGNORED = shutil.ignore_patterns(".onetake", "__pycache__", ".pending")


def plain_environment(**more: str) -> dict[str, str]:
    """The environment without what makes coverage start in every process, and with compiled modules."""
    dropped = ("COVERAGE_", "CI", "ONETAKE_SNAPSHOT", "PYTHONDONTWRITEBYTECODE")
    return {name: value for name, value in os.environ.items() if not name.startswith(dropped)} | more


def shuffle(suite: Path, chance: random.Random) -> None:
    """Put the scenarios of a suite.toml in another order; that of its pins means something, and stays."""
    head, *tables = re.split(r"(?m)^(?=\[scenarios\.)", suite.read_text())
    pins = [table for table in tables if "pins_header" in table]
    rest = [table for table in tables if "pins_header" not in table]
    chance.shuffle(rest)
    places = sorted(chance.randint(0, len(rest)) for _ in pins)
    for number, (place, pin) in enumerate(zip(places, pins, strict=True)):
        rest.insert(place + number, pin)
    suite.write_text(head + "\n".join(rest))


@pytest.mark.parametrize("number", range(200 if NIGHTLY else 3))
def test_the_examples_replay(number: int, tmp_path: Path) -> None:
    """In any order of scenarios and under any hash seed."""
    seed = random.SystemRandom().randrange(2**32)
    shutil.copytree(ROOT / "examples", tmp_path / "examples", ignore=IGNORED)
    chance = random.Random(seed)
    for suite in sorted((tmp_path / "examples").rglob("suite.toml")):
        shuffle(suite, chance)
    done = subprocess.run(
        [*ONETAKE, "replay", "examples", "--jobs", "2"],
        cwd=tmp_path,
        env=plain_environment(PYTHONHASHSEED=str(seed)),
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, f"seed {seed}\n{done.stdout}{done.stderr}"
    assert re.fullmatch(r"replay: \d+ passed in [0-9.]+ s", done.stdout.rstrip().split("\n")[-1])


def test_an_order_is_an_order(tmp_path: Path) -> None:
    """Shuffling loses no scenario."""
    suite = tmp_path / "suite.toml"
    original = (ROOT / "examples/acp-agent/tests/snapshots/suite.toml").read_text()
    suite.write_text(original)
    shuffle(suite, random.Random(1))
    assert suite.read_text() != original
    assert sorted(re.findall(r"\[scenarios.*\]", suite.read_text())) == sorted(
        re.findall(r"\[scenarios.*\]", original)
    )


TAKE = re.compile(r"Take ([0-9]+) ran\.")


def takes(lab: Lab) -> set[str]:
    """Which takes the files of the scenario hold: a mix has two."""
    files = (lab.snapshots / "tools").glob("*.jsonl")
    return set().union(*(TAKE.findall(path.read_text()) for path in files))


def kill_somewhere(runner: subprocess.Popen[bytes], scenario: Path, chance: random.Random) -> None:
    """Kill at a random moment: a third anywhere in the run, the others in the milliseconds of the write."""
    deadline = time.monotonic() + chance.uniform(0.05, 2.0)
    at_the_write = chance.random() < 2 / 3
    pending = scenario / ".pending"
    while runner.poll() is None and (at_the_write or time.monotonic() < deadline):
        if at_the_write and pending.exists():
            time.sleep(0.04 * chance.random() ** 2)  # more often early, when the stage is being filled
            break
        time.sleep(0.0002 if at_the_write else 0.005)
    runner.kill()
    runner.wait()


@pytest.mark.parametrize("number", range(50 if NIGHTLY else 3))
def test_a_killed_recording_leaves_old_or_new(lab: Lab, own_tmp: Path, number: int) -> None:
    """After `kill -9` the next command finds one take, whole, that replays green."""
    seed = random.SystemRandom().randrange(2**32)
    take = str(number + 1)
    calls = [command("call_a", "echo one"), command("call_b", "echo two")]
    replies = [
        {"match": "Run both", "reply": {"toolCalls": calls, "usage": USAGE}},
        {"match": "Run both", "reply": {"text": f"Take {take} ran.", "usage": USAGE}},
    ]
    before = lab.files()

    async def record() -> None:
        async with MockModel({"replies": replies}) as model:
            runner = subprocess.Popen(
                [*ONETAKE, "record", str(lab.snapshots), "-k", "tools"],
                env=plain_environment(LAB_BASE_URL=model.base_url),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
            scenario = lab.snapshots / "tools"
            await asyncio.to_thread(kill_somewhere, runner, scenario, random.Random(seed))

    asyncio.run(record())
    outcomes = lab.replay("tools")
    assert red(outcomes) == {}, f"seed {seed}\n{failures(outcomes)}"
    changed = lab.changed_since(before)
    assert changed in (set(), {"tools/session.jsonl", "tools/stdout.expected.jsonl"}), f"seed {seed}"
    assert takes(lab) == ({take} if changed else set())
    assert not list(lab.snapshots.rglob(".pending"))
