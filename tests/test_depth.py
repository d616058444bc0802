"""How failing properties are reported: a time-out is a finding, and the same examples can be had again."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.conftest import ROOT

PROPERTIES = """\
import time
from hypothesis import given, strategies as st

@given(st.integers())
def test_hangs(n):
    time.sleep(100)

@given(st.integers())
def test_fails(n):
    assert n < 5
"""


def test_a_property_that_hangs_fails_once_and_the_next_one_tells_how_to_see_it_again(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(PROPERTIES)
    environ = {name: value for name, value in os.environ.items() if name not in ("CI", "PYTEST_XDIST_WORKER")}
    options = ("-n", "0", "-p", "no:cacheprovider", "-p", "tests.conftest")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options, f"--rootdir={tmp_path}", "-c", os.devnull, tmp_path],
        cwd=ROOT,
        env={**environ, "ONETAKE_PROPERTY_S": "1"},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert "the property did not end within 1 s: a time-out is a finding" in done.stdout
    assert "properties: --hypothesis-seed=" in done.stdout
    assert "@reproduce_failure(" in done.stdout and "n=5" in done.stdout
    assert "2 failed" in done.stdout, done.stdout
