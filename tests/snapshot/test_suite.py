"""suite.toml: strict decoding, with the place of the fault, and finding suites."""

from __future__ import annotations

from pathlib import Path

import pytest

from onetake.errors import UsageError
from onetake.snapshot.guard.static import static_problems
from onetake.snapshot.suites.suite import find_suites, is_suite, load_suite
from tests.snapshot.driving import OPENING, make_suite

AGENT = '[agent]\ncommand = ["x"]\nconfig = "agent.yml"\n'


def refused(folder: Path, text: str) -> str:
    """The message with which this suite.toml is refused."""
    (folder / "suite.toml").write_text(text)
    with pytest.raises(UsageError) as caught:
        load_suite(folder)
    assert caught.value.exit_code == 2
    assert str(caught.value).startswith(str((folder / "suite.toml").resolve()))
    return str(caught.value)


def test_a_suite_keeps_the_order_and_the_defaults(tmp_path: Path) -> None:
    suite = make_suite(tmp_path, {"zeta": OPENING, "alpha": OPENING})
    assert list(suite.scenarios) == ["zeta", "alpha"]
    scenario = suite.scenarios["zeta"]
    assert suite.surfaces(scenario) == ["requests", "stdout", "log"]
    assert not scenario.recorded
    assert len(scenario.steps) == 2
    assert suite.live_config(scenario) == (tmp_path / "agent.yml").resolve()
    assert suite.snapshot_config(scenario) == (tmp_path / "agent.snapshot.yml").resolve()


def test_a_scenario_may_have_a_composition_and_surfaces_of_its_own(tmp_path: Path) -> None:
    tables = {"one": 'config = "sub/other.yaml"\ncompares_log = false'}
    suite = make_suite(tmp_path, {"one": OPENING}, tables=tables)
    scenario = suite.scenarios["one"]
    assert suite.snapshot_config(scenario).name == "other.snapshot.yaml"
    assert suite.surfaces(scenario) == ["requests", "stdout"]
    assert scenario.recorded


@pytest.mark.parametrize(
    ("table", "recorded"),
    [("", True), ("recorded = false", False), ("overridden = true", False), ("model_turn = false", False)],
)
def test_only_what_a_model_said_is_recorded(tmp_path: Path, table: str, recorded: bool) -> None:
    suite = make_suite(tmp_path, {"one": OPENING}, tables={"one": table})
    assert suite.scenarios["one"].recorded is recorded


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[agent]\ncommand = ['x']\n", "[agent] config is missing: name the composition"),
        (
            "[agent]\ncommand = ['x']\nconfig = 'a.yml'\nends_with_input = false\n",
            "ends_with_input = false is for an ACP agent behind the gateway",
        ),
        (AGENT + "[suite]\nsurface = []\n", "unknown field `surface` - at `$.suite`"),
        (
            AGENT + "[scenarios.one]\npin_header = true\n",
            "[scenarios.one]: Object contains unknown field `pin_header`",
        ),
        (AGENT + "[scenario.one]\n", "unknown field `scenario`"),
        (
            AGENT + "[suite]\nsurfaces = ['stdout', 'stderr']\n",
            "'stderr' is not a surface; known: requests, stdout",
        ),
        (AGENT + "[suite]\nsurfaces = []\n", "surfaces is empty, so nothing would be compared"),
        (AGENT + "[suite]\ndriver = 'apc'\n", "'apc' is not a driver; known: acp"),
        ("[agent]\ncommand = []\nconfig = 'a'\n", "[agent] command is empty"),
        (AGENT + "scenarios = 3\n", "unknown field `scenarios` - at `$.agent`"),
        ("scenarios = 3\n" + AGENT, "Expected `object`, got `int` - at `$.scenarios`"),
        (AGENT + "[suite]\ntimeout_s = 'long'\n", "at `$.suite.timeout_s`"),
        (AGENT + "[suite]\ntimeout_s = 0\n", "Expected `float` > 0.0 - at `$.suite.timeout_s`"),
        (AGENT + "[suite]\ntimeout_s = nan\n", "Expected `float` > 0.0 - at `$.suite.timeout_s`"),
        (AGENT + "[suite]\ntimeout_s = inf\n", "Expected `float` <= 86400.0 - at `$.suite.timeout_s`"),
        (
            AGENT + "[scenarios.one]\ntimeout_s = -5\n",
            "[scenarios.one]: Expected `float` > 0.0 - at `$.timeout_s`",
        ),
        (
            AGENT + "[normalize]\nmint = [{ pattern = 'x(', as = 'a' }]\n",
            "mint[0]: 'x(' is not a regular expression",
        ),
        (
            AGENT + "[normalize]\nmint = [{ pattern = '(x{99999999999})', as = 'a' }]\n",
            "is not a regular expression: the repetition number is too large",
        ),
        (AGENT + "[normalize]\nmint = [{ pattern = 'x', as = 'a' }]\n", "mint[0]: 'x' needs a group"),
        (
            AGENT + "[normalize.log]\nmask = [{ pattern = '*', with = '' }]\n",
            "[normalize.log] mask[0]: '*' is not a regular expression",
        ),
        (AGENT + "[scenarios.'../up']\n", "a scenario is named with letters"),
        (
            AGENT + "[scenarios.gone]\n",
            "/gone does not exist; remove the table, and let `onetake new` write both",
        ),
        (
            AGENT + "[normalize]\nmint = []\n[[normalize.mint]]\n",
            "; a list in brackets takes no [[...]] table: write all of its rules as such tables",
        ),
        ("[agent\n", "Expected ']'"),
        ("\ufeff" + AGENT, "begins with a byte order mark"),
        (f"x = {'[' * 5000}{']' * 5000}\n", "suite.toml: nested too deeply to read"),
    ],
)
def test_what_is_not_understood_is_refused(tmp_path: Path, text: str, message: str) -> None:
    assert message in refused(tmp_path, text)


def test_names_that_differ_in_case_only_are_refused(tmp_path: Path) -> None:
    make_suite(tmp_path, {"one": OPENING})
    text = AGENT + "[scenarios.one]\n[scenarios.One]\n"
    assert "[scenarios.One]: differs from 'one' in case only" in refused(tmp_path, text)


def test_a_suite_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"suite\.toml: cannot read the suite: No such file"):
        load_suite(tmp_path)


def test_suites_are_found_below_a_folder_once_and_in_order(tmp_path: Path) -> None:
    make_suite(tmp_path / "b", {"one": OPENING})
    make_suite(tmp_path / "a" / "deep", {"one": OPENING})
    for hidden in (".cache", "node_modules", "venv"):
        make_suite(tmp_path / hidden / "x", {"one": OPENING})
    (tmp_path / "venv" / "pyvenv.cfg").touch()
    make_suite(tmp_path / "b" / "one" / "workspace", {"inner": OPENING})
    found = find_suites([tmp_path, tmp_path / "b" / "suite.toml"])
    assert [path.parent.relative_to(tmp_path.resolve()).as_posix() for path in found] == ["a/deep", "b"]


def test_a_linked_composition_has_its_overlay_beside_the_link(tmp_path: Path) -> None:
    suite = make_suite(tmp_path / "suite", {"one": OPENING})
    (tmp_path / "shared.yml").write_bytes((suite.dir / "agent.yml").read_bytes())
    (suite.dir / "agent.yml").unlink()
    (suite.dir / "agent.yml").symlink_to(tmp_path / "shared.yml")
    assert suite.snapshot_config(suite.scenarios["one"]) == suite.dir / "agent.snapshot.yml"
    assert {problem.guard for problem in static_problems(suite)} == {"missing-file"}, "a new suite has none"


def test_a_path_that_leads_to_no_suite_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"no suite\.toml here or below"):
        find_suites([tmp_path])
    with pytest.raises(UsageError, match="does not exist"):
        find_suites([tmp_path / "gone"])


def test_a_suite_toml_of_another_tool_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "suite.toml").write_text("[golf]\nclubs = 3\n")
    assert not is_suite(tmp_path / "suite.toml")
    with pytest.raises(UsageError, match=r"no suite\.toml here or below"):
        find_suites([tmp_path])


@pytest.mark.parametrize("text", ["", "[agent\n", "[scenarios.one]\n", f"x = {'[' * 5000}"])
def test_a_broken_suite_is_ours_so_that_it_is_an_error(tmp_path: Path, text: str) -> None:
    (tmp_path / "suite.toml").write_text(text)
    assert is_suite(tmp_path / "suite.toml")
