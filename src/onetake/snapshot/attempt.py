"""Run one scenario in one mode, and make an outcome of whatever happens.

Nothing that goes wrong in one scenario may stop the others or hide them, and nothing may be left behind:
every harvest is discarded, except that the last one of a red scenario becomes its artifacts. What the system
refuses is a finding; only where artifacts are kept it is a note, because that can change no verdict.
"""

from __future__ import annotations

import contextlib
import os
import time
import traceback
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from onetake.errors import OnetakeError, UsageError
from onetake.snapshot import artifacts
from onetake.snapshot.drive.env import search_path
from onetake.snapshot.drive.execute import execute, missing_programs
from onetake.snapshot.drive.harvest import Harvest
from onetake.snapshot.findings import Problem, Verdict
from onetake.snapshot.suites.suite import Scenario, Suite

if TYPE_CHECKING:
    from onetake.snapshot.render.pins import Pins


class Outcome(msgspec.Struct, kw_only=True):
    """What became of one scenario, or (without a name) of what concerns a suite as a whole."""

    suite: Suite
    name: str | None
    verdict: Verdict
    seconds: float = 0.0
    artifacts: Path | None = None
    not_kept: str = ""
    """Why there are no artifacts of a red run; empty when there are."""
    skipped: str = ""
    """Why the scenario did not run; empty when it did."""
    stderr: str = ""
    """The agent's last words, of a red run: some lines."""
    pins: Pins | None = None
    """After the dry run of a pin: the pins that writing it would have left."""

    @property
    def exit_code(self) -> int:
        """0 as expected, else what the worst finding stands for."""
        return self.verdict.exit_code

    @property
    def ok(self) -> bool:
        """Whether nothing is red; a scenario that was skipped is not."""
        return self.verdict.ok

    @property
    def text(self) -> str:
        """The whole failure for people; empty when there is none."""
        from onetake.snapshot.report import failure_text

        return "" if self.ok else failure_text(self)

    def check(self) -> None:
        """Raise an `AssertionError` with the whole failure, or `unittest.SkipTest` when it did not run."""
        if not self.ok:
            raise AssertionError(self.text)
        if self.skipped:
            from unittest import SkipTest

            raise SkipTest(self.skipped)


STDERR_LINES = 10
"""How much of the agent's stderr a failure shows, in lines."""
UNRUNNABLE = frozenset({"missing-file", "unreadable", "override", "overlay", "plugin"})
"""Static guards that say that a run would not be a replay of what is committed."""


async def replay_scenario(suite: Suite, scenario: Scenario, pins: Pins, static: list[Problem]) -> Outcome:
    """Replay one scenario and judge it; `static` is what the static guards found in the suite.

    What makes a run pointless (a file is missing, or the overlay does not replace the model) is reported
    without starting the agent. So is a fault of the suite as a whole that keeps every scenario from running:
    whoever runs only this one must not take it for skipped.
    """
    own = [problem for problem in static if problem.scenario == scenario.name]
    if not any(problem.guard in UNRUNNABLE for problem in own):
        own += broken_suite(static)
    if any(problem.guard in UNRUNNABLE for problem in own):
        return Outcome(suite=suite, name=scenario.name, verdict=Verdict(scenario=scenario.name, problems=own))

    async def replay(harvests: list[Harvest]) -> Verdict:
        harvests.append(await execute(suite, scenario, "replay"))
        from onetake.snapshot.modes.judge import judge

        verdict = judge(harvests[-1], scenario, suite, pins)
        verdict.problems = [*own, *verdict.problems]
        return verdict

    return await _guarded(suite, scenario, replay)


def broken_suite(static: Iterable[Problem]) -> list[Problem]:
    """The static problems that belong to no scenario and keep every one of the suite from running."""
    return [problem for problem in static if problem.guard in UNRUNNABLE and problem.scenario is None]


async def write_scenario(
    suite: Suite, scenario: Scenario, mode: str, *, dry_run: bool = False, pins: Pins | None = None
) -> Outcome:
    """Record or refresh one scenario. An authored one is never recorded: it is skipped, and says so.

    `pins` replaces the committed ones. The outcome of a pin's dry run has the pins that writing would leave.
    """
    if mode == "record" and not scenario.recorded:
        return skipped(suite, scenario, "authored, never re-recorded")
    after: list[Pins] = []

    async def write(harvests: list[Harvest]) -> Verdict:
        from onetake.snapshot.guard.static import overlay_problems
        from onetake.snapshot.modes.record import record_scenario
        from onetake.snapshot.modes.refresh import refresh_scenario
        from onetake.snapshot.render.pins import load_pins

        problems = overlay_problems(suite, scenario)
        if problems:
            return Verdict(scenario=scenario.name, problems=problems)

        async def run_once(run_mode: str, subject: Scenario, fixture_dir: Path) -> Harvest:
            harvests.append(await execute(suite, subject, run_mode, fixture_dir))
            return harvests[-1]

        async def trial(other: Suite, subject: Scenario, fixture_dir: Path) -> Harvest:
            harvests.insert(0, await execute(other, subject, "replay", fixture_dir))
            return harvests[0]  # the last of the list is kept, and a trial is no run of this suite

        if mode == "record":
            verdict = await record_scenario(
                run_once, scenario, suite, dry_run=dry_run, pins=pins, trial=trial
            )
        else:
            verdict = await refresh_scenario(
                run_once, scenario, suite, dry_run=dry_run, pins=pins, trial=trial
            )
        if dry_run and verdict.ok and scenario.settings.pins_header:
            after.append((pins or load_pins(suite)).with_sidecars(scenario.name, verdict.sidecars))
        return verdict

    outcome = await _guarded(suite, scenario, write)
    outcome.pins = after[0] if after else None
    return outcome


def skipped(suite: Suite, scenario: Scenario, reason: str) -> Outcome:
    """The outcome of a scenario that did not run, and why."""
    return Outcome(suite=suite, name=scenario.name, verdict=Verdict(scenario=scenario.name), skipped=reason)


async def _guarded(
    suite: Suite, scenario: Scenario, work: Callable[[list[Harvest]], Awaitable[Verdict]]
) -> Outcome:
    """Run the work; what it raises becomes a finding, what it left becomes an artifact or is removed."""
    missing = missing_programs(scenario, search_path(os.environ))
    if missing and not os.environ.get("CI"):
        return skipped(suite, scenario, f"needs {', '.join(missing)}, which is not on PATH")
    started = time.monotonic()
    harvests: list[Harvest] = []
    kept, not_kept, stderr = None, "", ""
    try:
        try:
            with contextlib.suppress(OSError):  # what stays is replaced, or is said to be in the way
                artifacts.clear(suite, scenario)
            if missing:
                needed = ", ".join(missing)
                raise UsageError(f"needs {needed}: a CI machine must have it, or nothing is tested")
            verdict = await work(harvests)
        except OnetakeError as error:
            verdict = _broken(scenario, "input", str(error), error.exit_code)
        except OSError as error:
            verdict = _broken(scenario, "input", f"the system refuses what the run needs: {error}", 2)
        except Exception:
            text = f"the runner itself failed, which is a bug in onetake:\n{traceback.format_exc()}"
            verdict = _broken(scenario, "internal", text, 1)
        if harvests and not verdict.ok:
            stderr = "\n".join(harvests[-1].stderr.strip("\n").split("\n")[-STDERR_LINES:])
            try:
                live = next((harvest for harvest in harvests[:-1] if harvest.mode == "record"), None)
                kept = artifacts.keep(harvests[-1], suite, scenario, _text(verdict), live=live)
            except OSError as error:  # must not hide why the scenario is red
                not_kept = str(error)
    finally:
        for harvest in harvests:
            harvest.discard()
    seconds = time.monotonic() - started
    return Outcome(
        suite=suite,
        name=scenario.name,
        verdict=verdict,
        seconds=seconds,
        artifacts=kept,
        not_kept=not_kept,
        stderr=stderr,
    )


def _broken(scenario: Scenario, guard: str, message: str, exit_code: int) -> Verdict:
    problem = Problem(guard=guard, message=message, scenario=scenario.name, exit_code=exit_code)
    return Verdict(scenario=scenario.name, problems=[problem])


def _text(verdict: Verdict) -> str:
    return "\n\n".join(
        [problem.text() for problem in verdict.problems]
        + [f"{d.surface}: {d.file}\n{d.message}\n{d.diff}" for d in verdict.differences]
        + ([verdict.advice.text] if verdict.advice is not None else [])
    )
