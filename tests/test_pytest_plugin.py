"""pytest over suites: items, failures, options of pytest itself, xdist, modes, suite-wide checks."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from onetake import cli, snapshot
from onetake.snapshot.guard.guards import STATIC_GUARDS, SUITE_GUARDS
from tests.snapshot.driving import make_suite, prompts

STDOUT_ONLY = 'surfaces = ["stdout"]'
GUARDS = len(STATIC_GUARDS) + len(SUITE_GUARDS)
"""Guards that a full run reports."""
RULE = "[normalize.stdout]\nmask = [{ pattern = 'pid [0-9]+', with = 'pid N' }]\n"


@pytest.fixture(autouse=True)
def no_ci(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("CI", "ONETAKE_SNAPSHOT", "PYTEST_XDIST_WORKER"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture(scope="session")
def refreshed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A suite of three scenarios that replay green. Read only."""
    folder = tmp_path_factory.mktemp("refreshed") / "suite"
    make_suite(folder, {name: prompts("hello") for name in ("one", "two", "three")}, suite=STDOUT_ONLY)
    with pytest.MonkeyPatch.context() as patch:
        for name in ("CI", "ONETAKE_SNAPSHOT"):
            patch.delenv(name, raising=False)
        assert cli.main(["refresh", str(folder)]) == 0
    return folder


@pytest.fixture
def suite(refreshed: Path, tmp_path: Path) -> Path:
    """A copy to break."""
    return Path(shutil.copytree(refreshed, tmp_path / "suite"))


def run_pytest(folder: Path, *arguments: str, **environ: str) -> tuple[int, str]:
    """Exit code and output of pytest in a process of its own, away from this project's configuration.

    It loads the plugins that the test is about and no others, because each costs a fraction of a second.
    """
    plugins = ["-p", "no:cacheprovider"]
    if "PYTEST_DISABLE_PLUGIN_AUTOLOAD" not in environ:
        environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
        plugins += ["-p", "onetake.pytest_plugin", *(("-p", "xdist") if "-n" in arguments else ())]
    command = [sys.executable, "-m", "pytest", *plugins, "--rootdir", str(folder), *arguments]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    done = subprocess.run(
        command, cwd=folder, env=environment | environ, capture_output=True, text=True, check=False
    )
    return done.returncode, done.stdout + done.stderr


def change(folder: Path, name: str, old: bytes = b"HELLO", new: bytes = b"GOODBYE") -> None:
    path = folder / name / "stdout.expected.jsonl"
    path.write_bytes(path.read_bytes().replace(old, new))


def test_one_test_per_scenario_and_one_per_guard(suite: Path) -> None:
    code, out = run_pytest(suite, "--collect-only", "-q", "suite.toml")
    assert code == 0
    assert out.split("\n\n")[0].split("\n") == [
        *(f"suite.toml::{name}" for name in ("one", "two", "three")),
        *(f"suite.toml::guard:{guard}" for guard in STATIC_GUARDS),
    ]
    code, out = run_pytest(suite)
    assert code == 0
    assert f"{3 + GUARDS} passed" in out
    assert f"snapshot suites: 3 scenarios (3 passed), {GUARDS} guards ({GUARDS} passed)\n" in out


def test_the_summary_tells_scenarios_from_guards(suite: Path) -> None:
    """There are more guards than most suites have scenarios."""
    change(suite, "one")
    table = suite / "suite.toml"
    needs = "[scenarios.'two']\nneeds = ['no-such-program']"
    table.write_text(table.read_text().replace("[scenarios.'two']", needs))
    code, out = run_pytest(suite, "-n", "2", "-k", "not guard")
    assert code == 1
    assert "snapshot suites: 3 scenarios (1 failed, 1 passed, 1 skipped)\n" in out


def test_a_failure_lists_every_surface_and_no_traceback(tmp_path: Path) -> None:
    folder = tmp_path / "suite"
    make_suite(folder, {"one": prompts("hello")}, suite='surfaces = ["stdout", "requests", "log"]')
    assert cli.main(["refresh", str(folder)]) == 0
    for path in (folder / "one").glob("*.jsonl"):
        path.write_bytes(path.read_bytes().replace(b"HELLO", b"BYE").replace(b'"hello"', b'"bye"'))
    change(folder, "one", b"HELLO", b"GOODBYE")
    requests = folder / "one" / "requests.expected.jsonl"
    requests.write_bytes(requests.read_bytes().replace(b'"purpose":"main"', b'"purpose":"title"'))
    code, out = run_pytest(folder)
    assert code == 1
    for surface, file in (
        ("stdout", "stdout.expected"),
        ("requests", "requests.expected"),
        ("log", "session"),
    ):
        assert f"{surface}: one/{file}.jsonl" in out
    assert "accept: onetake refresh" in out
    assert "kept: .onetake/failed/one" in out
    assert "Traceback" not in out and "pytest_plugin.py" not in out
    assert "FAILED suite.toml::one" in out


def test_what_fails_alike_is_summed_up_in_one_place(suite: Path) -> None:
    """Each test has its own list; the summary says that it is one cause, and what accepts it."""
    change(suite, "one")
    change(suite, "three")
    change(suite, "two", b"HELLO", b"ANOTHER")
    code, out = run_pytest(suite, "-n", "2")
    assert code == 1
    section = out.split("scenarios that fail for one cause")[1]
    assert "suite.toml: 2 scenarios differ only by the same stdout: one, three\n" in section
    assert "  accept: onetake refresh . -k 'one or three'\n" in section


def test_k_x_and_lf(suite: Path) -> None:
    change(suite, "one")
    change(suite, "two")
    code, out = run_pytest(suite, "-k", "three")
    assert code == 0 and f"1 passed, {2 + len(STATIC_GUARDS)} deselected" in out
    code, out = run_pytest(suite, "-x")
    assert code == 1 and "1 failed" in out and "passed" not in out
    run_pytest(suite, "-p", "cacheprovider")
    change(suite, "one", b"GOODBYE", b"HELLO")
    code, out = run_pytest(suite, "-p", "cacheprovider", "--lf")
    assert code == 1 and "1 failed, 1 passed" in out


def test_lf_repeats_the_whole_suite_for_a_rule_that_never_matched(suite: Path) -> None:
    """Only a full run can tell; once it is green, nothing is remembered."""
    toml = (suite / "suite.toml").read_text()
    (suite / "suite.toml").write_text(toml + RULE)
    for code in (1, 1):
        assert run_pytest(suite, "-p", "cacheprovider", "--lf")[0] == code
    (suite / "suite.toml").write_text(toml)
    assert run_pytest(suite, "-p", "cacheprovider", "--lf")[0] == 0
    code, out = run_pytest(suite, "-p", "cacheprovider", "--lf")
    assert code == 0 and "run-last-failure: no previously failed tests" in out


def test_a_node_id_selects_a_scenario_or_a_guard(suite: Path) -> None:
    """The ids that a run prints can be given back, with and without workers."""
    for more in ((), ("-n", "2")):
        code, out = run_pytest(suite, "suite.toml::two", "suite.toml::guard:overlay", *more)
        assert code == 0 and "2 passed" in out


def test_tests_inside_a_workspace_are_not_ours(suite: Path) -> None:
    """A workspace is material; what stands beside the scenarios is collected as ever."""
    for folder in (suite / "one" / "workspace", suite / "two" / "workspace" / "deep", suite):
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "test_it.py").write_text("def test_it(): pass\n")
    (suite / "two" / "workspace" / "suite.toml").write_text("[suite]\n")
    code, out = run_pytest(suite, "--collect-only", "-q")
    assert code == 0
    assert [line for line in out.split("\n") if "test_it" in line] == ["test_it.py::test_it"]
    assert f"{4 + len(STATIC_GUARDS)} tests collected" in out


@pytest.mark.parametrize("workers", [(), ("-n", "2")])
@pytest.mark.parametrize("folder", ["one", "one/workspace/deep"])
def test_a_folder_of_a_scenario_is_no_argument(suite: Path, folder: str, workers: tuple[str, ...]) -> None:
    """Nothing would be collected there, and the run be green for what else is named."""
    (suite / folder).mkdir(parents=True, exist_ok=True)
    code, out = run_pytest(suite, folder, "suite.toml::two", *workers)
    assert code == 4
    assert f"{folder}: lies inside a suite, where nothing is collected; " in out
    assert "name the scenario: suite.toml::one\n" in out


def test_a_workspace_can_be_tested_as_a_project_of_its_own(suite: Path) -> None:
    """By who makes it the root."""
    workspace = suite / "one/workspace"
    workspace.mkdir()
    (workspace / "test_it.py").write_text("def test_it(): pass\n")
    code, out = run_pytest(workspace, ".")
    assert code == 0 and "1 passed" in out


def test_junit(suite: Path) -> None:
    change(suite, "two")
    code, _ = run_pytest(suite, "--junitxml", "report.xml")
    assert code == 1
    cases = {case.get("name"): case for case in ElementTree.parse(suite / "report.xml").iter("testcase")}
    assert [name for name, case in cases.items() if case.find("failure") is not None] == ["two"]
    failure = cases["two"].find("failure")
    assert failure is not None and "GOODBYE" in str(failure.text)


def test_xdist_runs_scenarios_side_by_side(suite: Path) -> None:
    change(suite, "two")
    code, out = run_pytest(suite, "-n", "2")
    assert code == 1
    assert f"1 failed, {2 + GUARDS} passed" in out
    assert "GOODBYE" in out


def test_a_broken_guard_fails_its_own_test_only(suite: Path) -> None:
    (suite / "forgotten").mkdir()
    code, out = run_pytest(suite)
    assert code == 1
    assert f"1 failed, {2 + GUARDS} passed" in out
    assert "FAILED suite.toml::guard:orphan-folder" in out
    assert "the folder is no scenario of this suite" in out


def test_a_missing_fixture_fails_guard_and_scenario(suite: Path) -> None:
    (suite / "two" / "session.jsonl").unlink()
    code, out = run_pytest(suite)
    assert code == 1
    assert "FAILED suite.toml::two" in out
    assert "FAILED suite.toml::guard:missing-file" in out


def test_what_the_next_replay_would_refuse_fails_a_refresh_from_wherever_it_was_started(
    suite: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The writes went well, and the suite is red all the same: once, in the same words."""
    (suite / "one" / "notes.txt").write_text("not a part of the scenario")
    (suite / "forgotten").mkdir()
    with (suite / "suite.toml").open("a") as file:
        file.write(RULE)
    problems = snapshot.Suite.load(suite).run_all("refresh")[-1].verdict.problems
    assert [problem.guard for problem in problems] == ["orphan-folder", "unused-rule", "orphan-file"]
    texts = [problem.text() for problem in problems]
    assert cli.main(["refresh", str(suite)]) == 2
    by_command = capsys.readouterr().out
    code, by_pytest = run_pytest(suite, "--onetake-mode", "refresh", "--junitxml", "report.xml")
    assert code == 1 and "3 failed, 3 passed" in by_pytest
    for problem, text in zip(problems, texts, strict=True):
        assert by_command.count(text) == 1 == by_pytest.count(text), text
        assert f"FAILED suite.toml::guard:{problem.guard}" in by_pytest
    alone = snapshot.Suite.load(suite).run("one", "refresh").verdict.problems
    assert [problem.text() for problem in alone] == [texts[0], texts[2]]


def test_a_refresh_of_one_says_nothing_of_others(suite: Path) -> None:
    """And nothing is said twice, or of a scenario that is still to come."""
    (suite / "two" / "notes.txt").write_text("not a part of the scenario")
    assert run_pytest(suite, "-k", "one", "--onetake-mode", "refresh")[0] == 0
    assert cli.main(["refresh", str(suite), "-k", "one"]) == 0
    assert snapshot.Suite.load(suite).run("one", "refresh").ok


@pytest.mark.parametrize("workers", [(), ("-n", "2")])
def test_junit_has_the_suite_as_a_whole(suite: Path, workers: tuple[str, ...]) -> None:
    """Who reads only the file sees the rule that never matched."""
    with (suite / "suite.toml").open("a") as file:
        file.write(RULE)
    code, _ = run_pytest(suite, *workers, "--junitxml", "report.xml")
    assert code == 1
    root = ElementTree.parse(suite / "report.xml").getroot()
    failed = [case.get("name") for case in root.iter("testcase") if case.find("failure") is not None]
    assert failed == ["guard:unused-rule"]
    assert len(list(root.iter("testcase"))) == 3 + GUARDS


@pytest.mark.parametrize("workers", [(), ("-n", "2")])
def test_a_rule_that_never_matches_makes_a_full_run_red(suite: Path, workers: tuple[str, ...]) -> None:
    with (suite / "suite.toml").open("a") as file:
        file.write(RULE)
    code, out = run_pytest(suite, *workers)
    assert code == 1
    assert "FAILED suite.toml::guard:unused-rule" in out
    assert "[unused-rule]" in out
    assert f"1 failed, {3 + GUARDS - 1} passed" in out
    code, out = run_pytest(suite, *workers, "-k", "one or two or guard")
    assert code == 0
    assert "unused-rule" not in out


def test_a_malformed_suite_is_a_collection_error(suite: Path) -> None:
    with (suite / "suite.toml").open("a") as file:
        file.write("[scenarios.four]\npin_header = true\n")
    code, out = run_pytest(suite)
    assert code == 2
    assert "[scenarios.four]: Object contains unknown field `pin_header`" in out


@pytest.mark.parametrize("selection", [(), ("-k", "one"), ("suite.toml::two",)])
def test_no_scenario_of_a_broken_suite_is_skipped(suite: Path, selection: tuple[str, ...]) -> None:
    """The test of the guard that says so may not have been selected."""
    path = suite / "suite.toml"
    path.write_text(path.read_text().replace('.py"]', '.py", "onetake"]'))
    (suite / "agent.snapshot.yml").unlink()
    code, out = run_pytest(suite, *selection)
    assert code == 1
    assert "agent.snapshot.yml: cannot read the composition" in out
    assert "skipped" not in out


@pytest.mark.parametrize("broken", ["one/.pending/manifest.json", "one/system-prompt.expected.md"])
def test_malformed_input_shows_no_traceback(suite: Path, broken: str) -> None:
    path = suite / "suite.toml"
    text = path.read_text().replace(STDOUT_ONLY, 'surfaces = ["requests"]')
    path.write_text(text.replace("[scenarios.'one']", "[scenarios.'one']\npins_header = true"))
    path = suite / broken
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(b"\xff")
    code, out = run_pytest(suite, "-k", "one")
    assert code == 1
    assert broken in out
    assert "Traceback" not in out and "Error:" not in out


def test_a_suite_toml_of_another_tool_is_no_test(tmp_path: Path) -> None:
    (tmp_path / "suite.toml").write_text("[golf]\nclubs = 3\n")
    code, out = run_pytest(tmp_path)
    assert code == 5
    assert "no tests ran" in out


@pytest.mark.parametrize("how", ["variable", "option"])
def test_refresh_writes_and_the_next_run_is_green(suite: Path, how: str) -> None:
    change(suite, "two")
    if how == "variable":
        code, out = run_pytest(suite, ONETAKE_SNAPSHOT="refresh")
    else:
        code, out = run_pytest(suite, "--onetake-mode", "refresh", ONETAKE_SNAPSHOT="replay")
    assert code == 0
    assert "3 passed" in out
    assert b"HELLO" in (suite / "two" / "stdout.expected.jsonl").read_bytes()
    assert run_pytest(suite)[0] == 0


def test_record_skips_what_is_authored(suite: Path) -> None:
    code, out = run_pytest(suite, "-rs", ONETAKE_SNAPSHOT="record")
    assert code == 0
    assert "3 skipped" in out
    assert "authored, never re-recorded" in out


@pytest.mark.parametrize(
    ("arguments", "environ", "message"),
    [
        (
            (),
            {"ONETAKE_SNAPSHOT": "refersh"},
            "ONETAKE_SNAPSHOT: 'refersh' is not a mode; use one of: replay",
        ),
        (("--onetake-mode", "x"), {}, "--mode: 'x' is not a mode"),
        ((), {"ONETAKE_SNAPSHOT": "refresh", "CI": "1"}, "refresh is refused because CI is set"),
        (
            ("-n", "2"),
            {"ONETAKE_SNAPSHOT": "refresh"},
            "refresh writes files one scenario at a time: run it with",
        ),
    ],
)
def test_modes_that_are_refused(
    suite: Path, arguments: tuple[str, ...], environ: dict[str, str], message: str
) -> None:
    change(suite, "two")
    before = (suite / "two" / "stdout.expected.jsonl").read_bytes()
    code, out = run_pytest(suite, *arguments, **environ)
    assert code in (1, 2)
    assert message in out
    assert (suite / "two" / "stdout.expected.jsonl").read_bytes() == before


def test_what_a_killed_command_left_is_finished_first(suite: Path) -> None:
    pending = suite / "one" / ".pending"
    pending.mkdir()
    (pending / "stdout.expected.jsonl").write_text("half")
    assert run_pytest(suite, "-k", "two")[0] == 0
    assert not pending.exists()


def test_a_runner_that_breaks_shows_its_traceback(suite: Path) -> None:
    (suite / "conftest.py").write_text(
        "import onetake.snapshot.attempt as attempt\n"
        "async def broken(*rest, **more): raise ZeroDivisionError('oh no')\n"
        "attempt.replay_scenario = broken\n"
    )
    code, out = run_pytest(suite, "-k", "one")
    assert code == 1
    assert "ZeroDivisionError: oh no" in out
    assert "pytest_plugin.py" in out


def test_an_unregistered_static_guard_cannot_get_lost(suite: Path) -> None:
    (suite / "conftest.py").write_text(
        "import onetake.snapshot.guard.guards as guards\n"
        "from onetake.snapshot.findings import Problem\n"
        "guards.static_problems = lambda suite: [Problem(guard='new-guard', message='m')]\n"
    )
    code, out = run_pytest(suite, "-k", "guard")
    assert code == 1
    assert "no test shows problems of ['new-guard']" in out


def test_an_installed_onetake_is_found_and_loads_nothing_without_suites(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(
        "import json, pathlib, sys\n"
        "def test_it():\n"
        "    loaded = [name for name in sys.modules if name.startswith('onetake')]\n"
        "    pathlib.Path('loaded').write_text(json.dumps(loaded))\n"
    )
    code, _ = run_pytest(tmp_path, PYTEST_DISABLE_PLUGIN_AUTOLOAD="")
    assert code == 0
    assert json.loads((tmp_path / "loaded").read_text()) == ["onetake", "onetake.pytest_plugin"]
