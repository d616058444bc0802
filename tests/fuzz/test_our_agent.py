"""Our own agents under the fuzzer: a little for each push, 10,000 steps every night."""

from __future__ import annotations

import secrets
from pathlib import Path

import pytest

from onetake.testing.fuzz.campaign import Plan, fuzz
from tests.fuzz.targets import EXAMPLE, HERE, PATIENT, ours


def find_nothing(config: Path, steps: int, seed: int, ends: set[str]) -> None:
    """Fuzz a composition; the test fails with what is found, and with the seed that finds it again."""
    report = fuzz(ours(config), PATIENT, Plan(steps=steps, seed=seed))
    found = report.found
    assert found is None, f"seed {seed}: {found.text}\n{found.case}"
    assert report.steps >= steps
    assert report.ends.keys() >= ends  # it was not idle


@pytest.mark.parametrize("config", [EXAMPLE, HERE / "agent.yml"], ids=["example", "streaming"])
def test_our_agents_pass_a_few_steps(config: Path) -> None:
    """The same ones each time, so that a red one is the fault of what was changed."""
    find_nothing(config, 60, 3, {"end_turn"})


@pytest.mark.nightly
@pytest.mark.parametrize(("config", "steps"), [(EXAMPLE, 10_000), (HERE / "agent.yml", 3_000)])
def test_our_agents_pass_ten_thousand_steps(config: Path, steps: int) -> None:
    """Other ones each night."""
    find_nothing(config, steps, secrets.randbits(32), {"end_turn", "cancelled", "error"})
