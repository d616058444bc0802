"""How failing properties are reported: a time-out is a finding, and the same examples can be had again."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT

PROPERTIES = """\
import time
from hypothesis import given, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule

@given(st.integers())
def test_hangs(n):
    try:
        time.sleep(100)
    except BaseException:
        time.sleep(100)

@given(st.integers())
def test_fails(n):
    assert n < 5

class Machine(RuleBasedStateMachine):
    @rule(n=st.integers())
    def grow(self, n):
        assert n < 5

TestMachine = Machine.TestCase

@given(st.integers(0, 2**60))
def test_draws(n):
    with open("drawn", "a") as file:
        print(n, file=file)
"""


def properties(folder: Path, tests: str, *options: str, **environ: str) -> str:
    """Run the properties with our conftest, as it would be on a new machine; returns what pytest printed."""
    (folder / "test_it.py").write_text(PROPERTIES)
    kept = {
        name: value
        for name, value in os.environ.items()
        if name not in ("CI", "ONETAKE_NIGHTLY", "PYTEST_XDIST_WORKER")
    }
    environ = {"HYPOTHESIS_STORAGE_DIRECTORY": str(folder / "stored"), **environ}
    command = [sys.executable, "-m", "pytest", "-n", "0", "-p", "no:cacheprovider", "-p", "tests.conftest"]
    done = subprocess.run(
        [*command, f"--rootdir={folder}", "-c", os.devnull, "test_it.py", "-k", tests, *options],
        cwd=folder,
        env={**kept, "PYTHONPATH": str(ROOT), **environ},
        capture_output=True,
        text=True,
        timeout=60,
    )
    return done.stdout + done.stderr


def test_a_property_that_hangs_fails_though_it_swallows_what_ends_it(tmp_path: Path) -> None:
    printed = properties(tmp_path, "test_hangs", ONETAKE_PROPERTY_S="1", ONETAKE_PROPERTY_AGAIN_S="0.2")
    assert "the property did not end within 1 s: a time-out is a finding" in printed
    assert "1 failed" in printed, printed


@pytest.mark.parametrize("nightly", [{}, {"CI": "true", "ONETAKE_NIGHTLY": "1"}], ids=["here", "at night"])
def test_a_failure_prints_seed_and_blob_and_is_stored(tmp_path: Path, nightly: dict[str, str]) -> None:
    """Also at night, on a machine that calls itself CI: Hypothesis would store nothing there."""
    printed = properties(tmp_path, "test_fails or TestMachine", **nightly)
    assert "2 failed" in printed, printed
    assert len(set(re.findall(r"@reproduce_failure\([^)]*\)", printed))) == 2, printed
    seeds = re.findall(r"--hypothesis-seed=(\d+)", printed)
    assert len(seeds) == 3 and len(set(seeds)) == 1, "once above all, and with each failure"
    assert any(path.is_file() for path in (tmp_path / "stored/examples").rglob("*"))


def test_the_printed_seed_draws_the_same_examples_again(tmp_path: Path) -> None:
    drawn = tmp_path / "drawn"
    seed = re.findall(r"--hypothesis-seed=\d+", properties(tmp_path, "test_draws"))[0]
    first = drawn.read_text()
    drawn.unlink()
    properties(tmp_path, "test_draws", seed)
    assert drawn.read_text() == first
    drawn.unlink()
    properties(tmp_path, "test_draws")
    assert drawn.read_text() != first, "another run, other examples"


def test_a_run_of_ci_draws_the_same_examples_each_time(tmp_path: Path) -> None:
    printed = [properties(tmp_path, "test_draws", CI="true") for _ in range(2)]
    assert all("properties: always the same examples" in each for each in printed)
    numbers = (tmp_path / "drawn").read_text().splitlines()
    assert numbers[: len(numbers) // 2] == numbers[len(numbers) // 2 :]
