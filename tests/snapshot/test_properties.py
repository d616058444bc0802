"""Properties of suites as they are committed: what a recording writes is clean, and what is not is mended."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from onetake.fixture.gaps import same_fixture
from onetake.snapshot.guard.static import static_problems
from onetake.snapshot.modes.migrate import migrate_suite
from onetake.snapshot.suites.ops import Prompt
from onetake.snapshot.suites.suite import load_suite
from onetake.testing.invariants import suites as holds
from onetake.testing.strategies.suites import FIXTURE, DrawnSuite, aged, suites


def look(suite: Path) -> Sequence[Any]:
    return static_problems(load_suite(suite))


def mend(suite: Path) -> None:
    migrate_suite(load_suite(suite))


@given(suites(), st.data())
def test_a_suite_as_it_is_recorded_is_clean_and_other_layouts_of_it_are_mended(
    drawn: DrawnSuite, data: st.DataObject
) -> None:
    name, scenario = data.draw(st.sampled_from(sorted(drawn.scenarios.items())))
    raw = data.draw(aged(scenario.fixture()))
    with TemporaryDirectory() as folder:
        path = drawn.write(Path(folder, "suite"))
        read = load_suite(path).scenarios
        assert {name: [s.text for s in read[name].steps if isinstance(s, Prompt)] for name in read} == {
            name: scenario.prompts for name, scenario in drawn.scenarios.items()
        }
        holds.check_clean(look, mend, path)
        holds.check_mended(look, mend, path, path.parent / name / FIXTURE, raw, same_fixture)
