"""The opt-in lane itself: it skips with its reason, and a key in the environment alone starts nothing."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


def run_lane(**variables: str) -> str:
    """What pytest says about the lane with these variables and no other that it looks at."""
    hidden = ("ONETAKE_E2E", "DEEPSEEK_", "PYTEST_")
    env = {name: value for name, value in os.environ.items() if not name.startswith(hidden)}
    command = [sys.executable, "-m", "pytest", "tests/e2e", "-rs", "-p", "no:cacheprovider", "--color=no"]
    done = subprocess.run(command, cwd=ROOT, env={**env, **variables}, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize(
    ("variables", "reason"),
    [
        ({"DEEPSEEK_API_KEY": "k"}, "opt-in: run `make e2e`"),
        ({"ONETAKE_E2E": "1"}, "no key: set DEEPSEEK_API_KEY"),
        ({"ONETAKE_E2E": "1", "ONETAKE_E2E_MODEL": "m", "DEEPSEEK_API_KEY": "k"}, "only one is set"),
    ],
)
def test_each_test_skips_with_its_reason(variables: dict[str, str], reason: str) -> None:
    said = run_lane(**variables)
    assert reason in said
    assert "3 skipped" in said
    assert "passed" not in said
