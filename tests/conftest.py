"""What every test shares: where the shared corpus lies, and how deep property tests dig."""

from __future__ import annotations

import os
import random
import signal
from collections.abc import Generator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, is_hypothesis_test, settings
from hypothesis.database import DirectoryBasedExampleDatabase

ROOT = Path(__file__).resolve().parent.parent
NIGHTLY = os.environ.get("ONETAKE_NIGHTLY") == "1"

# A script that runs `make test &` has the interrupt ignored in all that it starts: no test could send one.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Deep is what the nightly run is for; the usual 40 examples otherwise. A test that sets max_examples itself
# would ignore that, so none does. A CI run repeats the same examples: a red there is about the change. The
# nightly run does not, wherever it runs, though Hypothesis takes the variable CI for a wish to repeat.
EXAMPLES = 40
STORE = Path(os.environ.get("HYPOTHESIS_STORAGE_DIRECTORY") or ROOT / ".hypothesis") / "examples"
settings.register_profile(
    "default",
    deadline=None,
    derandomize=False,
    database=DirectoryBasedExampleDatabase(STORE),
    print_blob=True,
    max_examples=EXAMPLES,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],  # a loaded machine is no defect
)
settings.register_profile("ci", settings.get_profile("default"), derandomize=True, database=None)
settings.register_profile("nightly", settings.get_profile("default"), max_examples=100 * EXAMPLES)


PROPERTY_S = int(os.environ.get("ONETAKE_PROPERTY_S") or 120 * (60 if NIGHTLY else 1))
"""How long one property may take, in seconds: many times what the slowest needs."""
AGAIN_S = float(os.environ.get("ONETAKE_PROPERTY_AGAIN_S") or 10)
"""After how many seconds it is ended again."""


class _TimeOver(BaseException):
    """Ends a property at once: Hypothesis takes an `Exception` for a failure, and would run into it again."""


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Choose the Hypothesis profile, unless the command line names one, and a seed for all workers."""
    if config.getoption("--hypothesis-profile", default=None) is None:
        settings.load_profile("nightly" if NIGHTLY else "ci" if os.environ.get("CI") else "default")
    if not hasattr(config.option, "property_seed"):  # a worker has it from the process that started it
        config.option.property_seed = random.SystemRandom().getrandbits(64)


def _how_to_repeat(config: pytest.Config) -> str:
    given = config.getoption("--hypothesis-seed", default=None)
    if given is None and settings().derandomize:
        return "always the same examples"
    return f"--hypothesis-seed={config.option.property_seed if given is None else given}"


def pytest_report_header(config: pytest.Config) -> str:
    """Say how to run the same examples again."""
    return f"properties: {_how_to_repeat(config)}"


def _seed_properties(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Give every property the seed of the run.

    Not by the option and not by `hypothesis.seed`: both keep what fails out of the database.
    """
    if config.getoption("--hypothesis-seed", default=None) is None and not settings().derandomize:
        for item in filter(_is_property, items):
            made = item.obj
            target = getattr(made, "_hypothesis_state_machine_class", made)
            target._hypothesis_internal_use_seed = config.option.property_seed


def _is_property(item: pytest.Item) -> bool:
    return isinstance(item, pytest.Function) and is_hypothesis_test(item.obj)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, None, None]:
    """A property that does not come to an end has found something: it fails, and is not tried again."""
    if not _is_property(item):
        return (yield)
    item.add_report_section("call", "property", _how_to_repeat(item.config))  # shown when it fails

    def over(number: int, frame: object) -> None:
        raise _TimeOver

    before = signal.signal(signal.SIGALRM, over)
    signal.setitimer(signal.ITIMER_REAL, PROPERTY_S, AGAIN_S)  # again, should anything swallow the first
    try:
        return (yield)
    except _TimeOver:
        pytest.fail(f"the property did not end within {PROPERTY_S} s: a time-out is a finding", pytrace=False)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Skip what is opt-in, naming the command that runs it; a key in the environment alone is no consent."""
    _seed_properties(config, items)
    chosen = {
        "nightly": NIGHTLY,
        "e2e": os.environ.get("ONETAKE_E2E") == "1",
        "agents": os.environ.get("ONETAKE_AGENTS") == "1",
    }
    for item in items:
        for marker, on in chosen.items():
            if not on and item.get_closest_marker(marker) is not None:
                item.add_marker(pytest.mark.skip(reason=f"opt-in: run `make {marker}`"))


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
