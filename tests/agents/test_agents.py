"""Agents of others behind the gateway: recorded from a script, replayed, and red for a change.

What they are told is their own affair and is not committed here: each run records anew.
"""

from __future__ import annotations

import asyncio
import os
import shutil
from pathlib import Path

import pytest

from onetake.snapshot.attempt import Outcome
from onetake.snapshot.run import run_all, select
from onetake.snapshot.suites.suite import load_suite
from tests.conftest import ROOT
from tests.snapshot.lab import failures, red

pytestmark = pytest.mark.agents
PROGRAMS = {"opencode": "opencode", "codex": "codex-acp"}
"""By its folder here: the program of an agent."""


@pytest.fixture(params=PROGRAMS)
def suite(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    program = ROOT / ".agents/node_modules/.bin" / PROGRAMS[request.param]
    if not program.is_file():
        pytest.skip(f"{program.name} is not installed: `make agents` does it where npm and its registry are")
    monkeypatch.delenv("CI", raising=False)
    folder = tmp_path / request.param
    shutil.copytree(Path(__file__).parent / request.param, folder)
    template = folder / "suite.toml.in"  # no suite that a test run would find
    (folder / "suite.toml").write_text(template.read_text().replace("@PROGRAM@", str(program)))
    template.unlink()
    return folder


def run(folder: Path, mode: str) -> dict[str | None, Outcome]:
    chosen = select([load_suite(folder)], None)
    outcomes = asyncio.run(run_all(chosen, mode, jobs=2, dry_run=False, on_outcome=lambda outcome: None))
    return {outcome.name: outcome for outcome in outcomes}


def test_a_text_turn_and_a_tool_turn_replay_as_recorded(suite: Path, nightly: bool) -> None:
    outcomes = run(suite, "record")
    assert red(outcomes) == {}, failures(outcomes)
    for _ in range(20 if nightly else 1):
        outcomes = run(suite, "replay")
        assert red(outcomes) == {}, failures(outcomes)
    script = suite / "text/input.json"
    script.write_text(script.read_text().replace("sky", "sea"))
    outcomes = run(suite, "replay")
    assert "violation" in red(outcomes)["text"], failures(outcomes)
    assert "'What colour is the sky?' -> 'What colour is the sea?'" in failures(outcomes)
    assert os.environ.get("CI") is None, "or nothing would have been recorded"
