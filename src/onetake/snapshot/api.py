"""Snapshot suites in Python, for tables that need code: a loop over scenarios, a workspace that is computed.

A suite here is either loaded from its suite.toml, or built from the same tables with scenarios added one by
one; fixtures and expected files lie in the same places either way. A run gives the `Outcome` that the
commands have, and `Outcome.check()` turns a red one into an assertion with the whole text.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from onetake.errors import UsageError
from onetake.snapshot.attempt import Outcome, replay_scenario
from onetake.snapshot.mode import mode_from, parse_mode, refuse_in_ci
from onetake.snapshot.suites import suite as data
from onetake.snapshot.suites.ops import script_from
from onetake.snapshot.suites.settings import ScenarioSettings, settings_from

Hook = Callable[[Path], object]
"""Changes the workspace of a run, after it was copied. May be async. It runs anew for each run."""

_T = TypeVar("_T")


class Suite:
    """A suite whose scenarios are run from Python."""

    def __init__(
        self,
        directory: str | os.PathLike[str],
        *,
        agent: Mapping[str, Any],
        suite: Mapping[str, Any] | None = None,
        gateway: Mapping[str, Any] | None = None,
        normalize: Mapping[str, Any] | None = None,
    ) -> None:
        """A suite without a suite.toml: the arguments are its tables, `add` names its scenarios.

        `directory` holds a folder per scenario; paths in the tables are relative to it. Raises `UsageError`
        when a table is not understood, and when there is a suite.toml, which would be a second truth.
        """
        path = Path(directory).resolve()
        if (path / data.SUITE_FILE).exists():
            raise UsageError(f"{path / data.SUITE_FILE} exists: use Suite.load, or remove it")
        tables = {"agent": agent, "suite": suite or {}, "normalize": normalize or {}}
        if gateway is not None:
            tables["gateway"] = gateway
        self._suite = data.Suite(path, path, settings_from(tables, path), {}, in_code=True)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Suite:
        """The suite of a suite.toml, or of the folder that holds one. Raises `UsageError`."""
        loaded = cls.__new__(cls)
        loaded._suite = data.load_suite(Path(path))
        return loaded

    @property
    def names(self) -> list[str]:
        """The names of the scenarios, in order."""
        return list(self._suite.scenarios)

    @property
    def directory(self) -> Path:
        """The folder that holds the scenarios' folders."""
        return self._suite.dir

    def add(
        self,
        name: str,
        steps: Iterable[Mapping[str, Any]],
        *,
        permission_answers: Iterable[Mapping[str, Any]] = (),
        prepare_workspace: Hook | None = None,
        **settings: Any,
    ) -> None:
        """Add a scenario: `steps` as in `input.json`, `settings` as in a [scenarios.NAME] table.

        Its folder is made by the first record or refresh. Raises `UsageError` for what is not understood, and
        for a suite that was loaded: there suite.toml names the scenarios.
        """
        suite = self._suite
        place = f"{suite.path}: [scenarios.{name}]"
        if not suite.in_code:
            raise UsageError(f"{place}: the scenarios of a loaded suite are named in {suite.path.name}")
        if name in suite.scenarios:
            raise UsageError(f"{place}: there is a scenario of this name already")
        data.require_name(suite.path, name, data.lower_names(suite.scenarios))
        value = {"steps": list(steps), "permissionAnswers": list(permission_answers)}
        try:
            table = msgspec.convert(settings, ScenarioSettings)
        except msgspec.ValidationError as error:
            from onetake.snapshot.suites.hints import unknown_key_hint

            hint = unknown_key_hint(settings, ScenarioSettings)
            raise UsageError(f"{place}: {error}{hint}") from error
        script = script_from(value, place)
        data.check_script(suite.settings, script, place)
        suite.scenarios[name] = data.Scenario(name, suite.dir / name, table, script, prepare_workspace)

    def prepare(self, name: str, prepare_workspace: Hook) -> None:
        """Give a scenario, loaded or added, the hook that prepares its workspace. Raises `UsageError`."""
        scenario = self._scenario(name)
        self._suite.scenarios[name] = msgspec.structs.replace(scenario, prepare=prepare_workspace)

    def run(self, name: str, mode: str | None = None, *, dry_run: bool = False) -> Outcome:
        """Run one scenario; `run_async` for code in an event loop."""
        return _outside_a_loop(lambda: self.run_async(name, mode, dry_run=dry_run))

    async def run_async(self, name: str, mode: str | None = None, *, dry_run: bool = False) -> Outcome:
        """Run one scenario in a mode (default: what `ONETAKE_SNAPSHOT` says, else replay).

        What is wrong with the scenario, its files or its run is in the outcome. Record and refresh write, one
        scenario at a time, pins first; with `dry_run` they show what they would write. Raises `UsageError`
        for an unknown name or mode, for a writing mode with CI set or under pytest-xdist, and for the dry run
        of a replay.
        """
        from onetake.snapshot.drive.env import sweep_runs
        from onetake.snapshot.guard.static import static_problems
        from onetake.snapshot.modes.write import recover
        from onetake.snapshot.render.pins import load_pins
        from onetake.snapshot.run import Writer

        sweep_runs()
        suite, scenario = self._suite, self._scenario(name)
        mode = _mode(mode, dry_run)
        if mode != "replay":
            with _folders([scenario]):
                recover(scenario.dir)
                return await Writer(suite, mode, dry_run=dry_run).write_alone(scenario)
        if not scenario.dir.is_dir():
            return _without_folder(suite, scenario)
        recover(scenario.dir)
        return await replay_scenario(suite, scenario, load_pins(suite), static_problems(suite, [scenario]))

    def run_all(self, mode: str | None = None, *, jobs: int = 1, dry_run: bool = False) -> Outcomes:
        """Run every scenario; `run_all_async` for code in an event loop."""
        return _outside_a_loop(lambda: self.run_all_async(mode, jobs=jobs, dry_run=dry_run))

    async def run_all_async(
        self, mode: str | None = None, *, jobs: int = 1, dry_run: bool = False
    ) -> Outcomes:
        """Run every scenario, `jobs` at a time in replay, as the commands do.

        A replay also checks the suite as a whole: static guards, and rules and pins that nothing made use of.
        Raises `UsageError` as `run_async` does, when there is no scenario, and for `jobs` below 1.
        """
        from onetake.snapshot.run import run_all, select

        mode = _mode(mode, dry_run)
        if jobs < 1:
            raise UsageError(f"jobs={jobs}: at least one scenario has to run at a time")
        selections = select([self._suite], None)
        scenarios = list(self._suite.scenarios.values())
        missing = [scenario for scenario in scenarios if not scenario.dir.is_dir()]
        if mode == "replay" and missing:
            return Outcomes([_without_folder(self._suite, scenario) for scenario in missing])
        with _folders(missing):
            return Outcomes(
                await run_all(selections, mode, jobs=jobs, dry_run=dry_run, on_outcome=lambda outcome: None)
            )

    def _scenario(self, name: str) -> data.Scenario:
        try:
            return self._suite.scenarios[name]
        except KeyError:
            known = ", ".join(self._suite.scenarios) or "none"
            raise UsageError(f"{self._suite.path}: there is no scenario {name!r}; known: {known}") from None


class Outcomes(list[Outcome]):
    """The outcomes of a whole suite, in its order; what concerns the suite as a whole comes last."""

    @property
    def ok(self) -> bool:
        """Whether nothing is red."""
        return all(outcome.verdict.ok for outcome in self)

    def check(self) -> None:
        """Raise an AssertionError with everything that is red, or `unittest.SkipTest` when nothing ran."""
        red = [
            f"{outcome.name or 'the suite as a whole'}:\n{outcome.text}" for outcome in self if not outcome.ok
        ]
        if red:
            raise AssertionError("\n\n".join(red))
        if all(outcome.skipped for outcome in self):
            from unittest import SkipTest

            raise SkipTest("\n".join(f"{outcome.name}: {outcome.skipped}" for outcome in self))


@contextlib.contextmanager
def _folders(scenarios: Iterable[data.Scenario]) -> Iterator[None]:
    """Make the folders of scenarios that have none; those that nothing was written to go again."""
    made = []
    for scenario in scenarios:
        made += [folder for folder in (scenario.dir, *scenario.dir.parents) if not folder.exists()]
        scenario.dir.mkdir(parents=True, exist_ok=True)
    try:
        yield
    finally:
        for folder in sorted(made, reverse=True):  # what is inside comes first
            with contextlib.suppress(OSError):
                folder.rmdir()


def _mode(mode: str | None, dry_run: bool) -> str:
    if mode is None:
        mode = mode_from(os.environ)
    else:
        refuse_in_ci(parse_mode(mode, origin="mode"), os.environ)
    if dry_run and mode == "replay":
        raise UsageError("dry_run: replay never writes; use it with record or refresh")
    if mode != "replay" and "PYTEST_XDIST_WORKER" in os.environ:
        raise UsageError(f"{mode} writes files one scenario at a time: run it without -n")
    return mode


def _without_folder(suite: data.Suite, scenario: data.Scenario) -> Outcome:
    from onetake.snapshot.findings import Problem, Verdict
    from onetake.snapshot.suites.select import command

    write = command("record" if scenario.recorded else "refresh", suite, scenario.name)
    problem = Problem(
        guard="missing-file",
        scenario=scenario.name,
        message=f"the folder {scenario.dir} does not exist",
        remedy=f"write it with `{write}`",
        exit_code=2,
    )
    return Outcome(
        suite=suite, name=scenario.name, verdict=Verdict(scenario=scenario.name, problems=[problem])
    )


def _outside_a_loop(work: Callable[[], Coroutine[Any, Any, _T]]) -> _T:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        pass  # none runs; what `work` raises is not to be shown as a consequence of that
    else:
        raise UsageError("an event loop is running: await the method whose name ends in `_async`")
    return asyncio.run(work())
