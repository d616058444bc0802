"""What every test shares: where the shared corpus lies, and how deep property tests dig."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

ROOT = Path(__file__).resolve().parent.parent
NIGHTLY = os.environ.get("ONETAKE_NIGHTLY") == "1"

# The two machine-speed health checks are off: a loaded machine is no defect of the code under test.
_SLOW = [HealthCheck.too_slow, HealthCheck.data_too_large]
settings.register_profile("default", deadline=None, print_blob=True, suppress_health_check=_SLOW)
settings.register_profile("ci", settings.get_profile("default"), derandomize=False, database=None)
settings.register_profile(
    "nightly", settings.get_profile("default"), max_examples=100 * settings.get_profile("default").max_examples
)


def pytest_configure(config: pytest.Config) -> None:
    """Choose the Hypothesis profile, unless the command line names one."""
    if config.getoption("--hypothesis-profile", default=None) is None:
        settings.load_profile("nightly" if NIGHTLY else "ci" if os.environ.get("CI") else "default")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Skip what belongs to `make nightly`, with its reason, in every other run."""
    if NIGHTLY:
        return
    skip = pytest.mark.skip(reason="nightly only: run `make nightly` (ONETAKE_NIGHTLY=1)")
    for item in items:
        if item.get_closest_marker("nightly") is not None:
            item.add_marker(skip)


@pytest.fixture(scope="session")
def shared_dir() -> Path:
    """The shared material beside the checkout (`../shared`, or ONETAKE_SHARED); skips where it is absent."""
    path = Path(os.environ.get("ONETAKE_SHARED") or ROOT.parent / "shared")
    if not (path / "dsh-corpus" / "index.json").is_file():
        pytest.skip("no shared corpus: put it at ../shared beside the checkout, or set ONETAKE_SHARED")
    return path


@pytest.fixture(scope="session")
def nightly() -> bool:
    """Whether this is the nightly run: tests with a figure per run (repeats, kills) choose the larger one."""
    return NIGHTLY
