"""Snapshot suites as pytest tests: one per scenario, one per guard, collected from `suite.toml`.

Thin on purpose: pytest loads this module in every run, with or without suites, so it imports nothing of
onetake until a suite is collected. A failing scenario lists every surface that differs. Checks that only make
sense for a whole suite (a rule that never matched) are made once at the end, over what all workers found, and
reported like tests: so they are in the summary, in JUnit files and in what `--lf` remembers.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Generator, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Sequence

    from onetake.snapshot.attempt import Outcome
    from onetake.snapshot.findings import Problem
    from onetake.snapshot.render.pins import Pins
    from onetake.snapshot.run import Writer
    from onetake.snapshot.suites.suite import Scenario, Suite

SUITE_FILE = "suite.toml"
_GUARD = "guard:"
"""How the names of guards begin; no scenario is named so."""
_VERDICT = "onetake_verdict"
"""Attribute of a test report that carries a verdict from a worker to the run that sums up."""
_WRITERS = pytest.StashKey["dict[str, Writer]"]()
"""Who writes which suite, in a run that records or refreshes."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--onetake-mode`, which wins over `ONETAKE_SNAPSHOT`."""
    group = parser.getgroup("onetake", "snapshot suites")
    group.addoption("--onetake-mode", metavar="MODE", help="replay (default), record or refresh")


def pytest_configure(config: pytest.Config) -> None:
    """Sum up where the reports of all workers arrive."""
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(_SuiteWide(), "onetake-suite-wide")


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    """Every suite.toml is a file of tests."""
    if file_path.name != SUITE_FILE:
        return None
    from onetake.snapshot.suites.suite import is_suite

    if not is_suite(file_path):
        return None
    collector: pytest.Collector = SuiteFile.from_parent(parent, path=file_path)
    return collector


def pytest_sessionstart(session: pytest.Session) -> None:
    """Refuse folders of scenarios as arguments: nothing would be collected there, and the run be green."""
    for argument in session.config.args:
        named = Path(os.path.abspath(session.config.invocation_params.dir / argument.partition("::")[0]))
        for folder in (named, *named.parents) if named.is_dir() else ():
            # With a root inside the scenario, its workspace is a project that somebody tests by itself.
            if folder.is_relative_to(session.config.rootpath) and _is_scenario(folder):
                suite = os.path.relpath(folder.parent / SUITE_FILE, session.config.invocation_params.dir)
                raise pytest.UsageError(
                    f"{argument}: lies inside a suite, where nothing is collected; "
                    f"name the scenario: {suite}::{folder.name}"
                )


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    """Nothing inside a scenario is a test of this project: its workspace may hold some of its own."""
    return True if _is_scenario(collection_path) else None


def _is_scenario(folder: Path) -> bool:
    suite = folder.parent / SUITE_FILE
    if not suite.is_file() or not folder.is_dir():
        return False
    import tomllib

    try:
        tables = tomllib.loads(suite.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):  # an error when the file itself is collected
        return False
    scenarios = tables.get("scenarios")
    return isinstance(scenarios, dict) and folder.name in scenarios


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Let the verdict of a scenario travel with its report."""
    report = yield
    if call.when == "call" and isinstance(item, ScenarioItem) and item.outcome is not None:
        import msgspec

        verdict = msgspec.to_builtins(item.outcome.verdict)
        where = {"suite": str(item.suite.path), "nodeid": item.parent.nodeid}
        setattr(report, _VERDICT, {**where, "verdict": verdict})
    return report


class SuiteFile(pytest.File):
    """One suite.toml."""

    suite: Suite
    mode: str
    _writer: Writer | None = None
    _pins: Pins | None = None
    _static: list[Problem] | None = None

    def collect(self) -> Iterator[pytest.Item]:
        """A test per scenario, then a test per static guard. Malformed suites are collection errors."""
        from onetake.errors import UsageError
        from onetake.snapshot.mode import mode_from
        from onetake.snapshot.suites.suite import load_suite

        try:
            self.mode = mode_from(os.environ, option=self.config.getoption("onetake_mode"))
            if self.mode != "replay" and hasattr(self.config, "workerinput"):
                raise UsageError(f"{self.mode} writes files one scenario at a time: run it without -n")
            self.suite = load_suite(self.path)
        except UsageError as error:
            raise self.CollectError(str(error)) from None
        for scenario in self._ordered():
            yield ScenarioItem.from_parent(self, name=scenario.name, scenario=scenario)
        if self.mode == "replay":
            from onetake.snapshot.guard.guards import STATIC_GUARDS

            for guard in STATIC_GUARDS:
                yield GuardItem.from_parent(self, name=f"{_GUARD}{guard}", guard=guard)

    def _ordered(self) -> list[Scenario]:
        scenarios = list(self.suite.scenarios.values())
        if self.mode == "replay":
            return scenarios
        from onetake.snapshot.render.pins import write_order

        return write_order(self.suite, scenarios)

    def setup(self) -> None:
        """Finish or discard what a killed command left behind, before the first test."""
        from onetake.errors import OnetakeError
        from onetake.snapshot.run import recover_suite

        try:
            recover_suite(self.suite)
        except OnetakeError as error:
            pytest.fail(str(error), pytrace=False)

    @property
    def writer(self) -> Writer:
        """What records or refreshes the scenarios, one after the other."""
        if self._writer is None:
            from onetake.snapshot.run import Writer

            self._writer = Writer(self.suite, self.mode)
            self.config.stash.setdefault(_WRITERS, {})[str(self.suite.path)] = self._writer
        return self._writer

    @property
    def pins(self) -> Pins:
        """The committed pins, read once."""
        if self._pins is None:
            from onetake.snapshot.render.pins import load_pins

            self._pins = load_pins(self.suite)
        return self._pins

    @property
    def static(self) -> list[Problem]:
        """What the static guards found, computed once."""
        if self._static is None:
            from onetake.snapshot.guard.guards import STATIC_GUARDS, static_problems

            self._static = static_problems(self.suite)
            lost = {problem.guard for problem in self._static}.difference(STATIC_GUARDS)
            if lost:
                raise RuntimeError(
                    f"no test shows problems of {sorted(lost)}: a static guard is not registered"
                )
        return self._static

    @property
    def unrunnable(self) -> list[Problem]:
        """Static problems that keep a scenario from running; all others fail the test of their guard only."""
        from onetake.snapshot.attempt import UNRUNNABLE

        return [problem for problem in self.static if problem.guard in UNRUNNABLE]


class SuiteFailure(Exception):
    """A red scenario or guard; its text is the whole report."""


class _Item(pytest.Item):
    """What scenarios and guards share: they belong to a suite, and fail with a text, not a traceback."""

    parent: SuiteFile

    @property
    def suite(self) -> Suite:
        """The suite that this test belongs to."""
        return self.parent.suite

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        """The report of the failure; a traceback for what is no red suite."""
        from onetake.errors import OnetakeError

        if isinstance(excinfo.value, SuiteFailure | OnetakeError):
            return str(excinfo.value)
        return super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[os.PathLike[str] | str, int | None, str]:
        """Where the test is and what it is called."""
        return self.path, None, self.name


class ScenarioItem(_Item):
    """One scenario, in the mode of the run."""

    def __init__(self, *, scenario: Scenario, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.scenario = scenario
        self.outcome: Outcome | None = None

    def runtest(self) -> None:
        """Run the scenario; fail with every surface that differs."""
        import asyncio

        from onetake.snapshot.attempt import replay_scenario
        from onetake.snapshot.report import failure_text

        if self.parent.mode == "replay":
            run = replay_scenario(self.suite, self.scenario, self.parent.pins, self.parent.unrunnable)
        else:
            run = self.parent.writer.write(self.scenario)
        outcome = asyncio.run(run)
        if outcome.skipped:
            pytest.skip(outcome.skipped)
        self.outcome = outcome
        if not outcome.verdict.ok:
            raise SuiteFailure(failure_text(outcome))


class GuardItem(_Item):
    """One static guard over the whole suite."""

    def __init__(self, *, guard: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.guard = guard

    def runtest(self) -> None:
        """Fail with every place that breaks the guard."""
        found = [problem for problem in self.parent.static if problem.guard == self.guard]
        if found:
            raise SuiteFailure("\n".join(problem.text() for problem in found))


class _SuiteWide:
    """Checks over suites that ran in full or were written, from the verdicts of all workers."""

    def __init__(self) -> None:
        self._suites: dict[str, dict[str, Any]] = {}
        self._causes: list[str] = []
        self._counts: dict[str, Counter[str]] = {"scenario": Counter(), "guard": Counter()}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Count the report, and take the verdict off it."""
        file, _, name = report.nodeid.rpartition("::")
        if Path(file).name == SUITE_FILE and (report.when == "call" or not report.passed):
            self._counts["guard" if name.startswith(_GUARD) else "scenario"][report.outcome] += 1
        carried = getattr(report, _VERDICT, None)
        if carried is not None:
            entry = self._suites.setdefault(carried["suite"], {**carried, "verdicts": {}})
            entry["verdicts"][carried["verdict"]["scenario"]] = carried["verdict"]

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Judge each suite that ran in full or was written; a problem makes the run red."""
        if not self._suites:
            return
        import msgspec

        from onetake.snapshot.diff.causes import alike
        from onetake.snapshot.findings import Verdict
        from onetake.snapshot.guard.guards import SUITE_GUARDS, suite_problems
        from onetake.snapshot.report import shared_cause
        from onetake.snapshot.suites.suite import load_suite

        for path, entry in self._suites.items():
            suite, found = load_suite(Path(path)), entry["verdicts"]
            full = found.keys() == suite.scenarios.keys()
            verdicts = [msgspec.convert(found[name], Verdict) for name in suite.scenarios if name in found]
            groups = alike(verdicts)
            self._causes += [
                shared_cause(suite, group, everything=full and len(groups) == 1)
                for group in groups
                if len(group) > 1
            ]
            writer = session.config.stash.get(_WRITERS, {}).get(path)
            if writer is not None:
                problems = [problem for whole in writer.next_replay() for problem in whole.verdict.problems]
                _report(session, entry["nodeid"], problems, {problem.guard: None for problem in problems})
            elif full and not any(verdict.problems for verdict in verdicts):
                # A run that was not carried through proves nothing about use.
                _report(session, entry["nodeid"], suite_problems(suite, verdicts), SUITE_GUARDS)

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """Show causes that several tests share, and how many of the tests are scenarios."""
        if self._causes:
            terminalreporter.section("scenarios that fail for one cause", sep="=")
            for cause in self._causes:
                terminalreporter.write_line(cause)
        shown = [
            f"{counts.total()} {what}{'s' * (counts.total() != 1)} "
            f"({', '.join(f'{number} {outcome}' for outcome, number in sorted(counts.items()))})"
            for what, counts in self._counts.items()
            if counts
        ]
        if shown:
            terminalreporter.write_line(f"snapshot suites: {', '.join(shown)}")


def _report(session: pytest.Session, nodeid: str, problems: Sequence[Problem], guards: Iterable[str]) -> None:
    """Report each of these guards like a test. No item can be one: it would need all workers, or the end."""
    for guard in guards:
        text = "\n".join(problem.text() for problem in problems if problem.guard == guard)
        report = pytest.TestReport(
            nodeid=f"{nodeid}::{_GUARD}{guard}",
            location=(nodeid, None, f"{_GUARD}{guard}"),
            keywords={},
            outcome="failed" if text else "passed",
            longrepr=text or None,
            when="call",
        )
        session.config.hook.pytest_runtest_logreport(report=report)
        if text and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED
