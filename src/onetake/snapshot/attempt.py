"""Run one scenario in one mode, and make an outcome of whatever happens.

Nothing that goes wrong in one scenario may stop the others or hide them, and nothing may be left behind:
every harvest is discarded, except that the last one of a red scenario becomes its artifacts.
"""

from __future__ import annotations

import os
import time
import traceback
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from onetake.errors import OnetakeError, UsageError
from onetake.snapshot import artifacts
from onetake.snapshot.env import search_path
from onetake.snapshot.execute import execute, missing_programs
from onetake.snapshot.findings import Problem, Refused, Verdict
from onetake.snapshot.harvest import Harvest
from onetake.snapshot.suite import Scenario, Suite

if TYPE_CHECKING:
    from onetake.snapshot.pins import Pins


class Outcome(msgspec.Struct, kw_only=True):
    """What became of one scenario, or (without a name) of what concerns a suite as a whole."""

    suite: Suite
    name: str | None
    verdict: Verdict
    seconds: float = 0.0
    artifacts: Path | None = None
    skipped: str = ""
    """Why the scenario did not run; empty when it did."""

    @property
    def exit_code(self) -> int:
        """0 as expected, else what the worst finding stands for."""
        return self.verdict.exit_code


async def replay_scenario(suite: Suite, scenario: Scenario, pins: Pins, static: list[Problem]) -> Outcome:
    """Replay one scenario and judge it; `static` is what the static guards found in its files.

    Files that are missing or malformed (exit code 2) are reported without starting the agent.
    """
    broken = [problem for problem in static if problem.exit_code == 2]
    if broken:
        return Outcome(
            suite=suite, name=scenario.name, verdict=Verdict(scenario=scenario.name, problems=static)
        )

    async def replay(harvests: list[Harvest]) -> Verdict:
        harvests.append(await execute(suite, scenario, "replay"))
        from onetake.snapshot.judge import judge

        verdict = judge(harvests[-1], scenario, suite, pins)
        verdict.problems = [*static, *verdict.problems]
        return verdict

    return await _guarded(suite, scenario, replay)


async def write_scenario(suite: Suite, scenario: Scenario, mode: str, *, dry_run: bool = False) -> Outcome:
    """Record or refresh one scenario. An authored one is never recorded: it is skipped, and says so."""
    if mode == "record" and not scenario.recorded:
        verdict = Verdict(scenario=scenario.name)
        return Outcome(
            suite=suite, name=scenario.name, verdict=verdict, skipped="authored, never re-recorded"
        )

    async def write(harvests: list[Harvest]) -> Verdict:
        async def run_once(run_mode: str, subject: Scenario, fixture_dir: Path | None = None) -> Harvest:
            harvests.append(await execute(suite, subject, run_mode, fixture_dir))
            return harvests[-1]

        if mode == "record":
            from onetake.snapshot.record import record_scenario

            return await record_scenario(run_once, scenario, suite, dry_run=dry_run)
        from onetake.snapshot.refresh import refresh_scenario

        return await refresh_scenario(run_once, scenario, suite, dry_run=dry_run)

    return await _guarded(suite, scenario, write)


async def _guarded(
    suite: Suite, scenario: Scenario, work: Callable[[list[Harvest]], Awaitable[Verdict]]
) -> Outcome:
    """Run the work; what it raises becomes a finding, what it left becomes an artifact or is removed."""
    missing = missing_programs(scenario, search_path(os.environ))
    if missing and not os.environ.get("CI"):
        reason = f"needs {', '.join(missing)}, which is not on PATH"
        return Outcome(
            suite=suite, name=scenario.name, verdict=Verdict(scenario=scenario.name), skipped=reason
        )
    started = time.monotonic()
    harvests: list[Harvest] = []
    kept = None
    artifacts.clear(suite, scenario)
    try:
        if missing:
            raise UsageError(f"needs {', '.join(missing)}: a CI machine must have it, or nothing is tested")
        try:
            verdict = await work(harvests)
        except Refused as refused:
            verdict = Verdict(scenario=scenario.name, problems=refused.problems)
        except OnetakeError as error:
            verdict = _broken(scenario, "input", str(error), error.exit_code)
        except Exception:
            text = f"the runner itself failed, which is a bug in onetake:\n{traceback.format_exc()}"
            verdict = _broken(scenario, "internal", text, 1)
        if harvests and not verdict.ok:
            kept = artifacts.keep(harvests[-1], suite, scenario, _text(verdict))
    finally:
        for harvest in harvests:
            harvest.discard()
    seconds = time.monotonic() - started
    return Outcome(suite=suite, name=scenario.name, verdict=verdict, seconds=seconds, artifacts=kept)


def _broken(scenario: Scenario, guard: str, message: str, exit_code: int) -> Verdict:
    problem = Problem(guard=guard, message=message, scenario=scenario.name, exit_code=exit_code)
    return Verdict(scenario=scenario.name, problems=[problem])


def _text(verdict: Verdict) -> str:
    return "\n\n".join(
        [problem.text() for problem in verdict.problems]
        + [f"{d.surface}: {d.file}\n{d.message}\n{d.diff}" for d in verdict.differences]
    )
