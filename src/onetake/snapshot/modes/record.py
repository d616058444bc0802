"""Record: ask the real model once, and keep the answer only if replaying it gives the same run.

A recording that cannot be replayed is worse than none, because it is red (or green) for reasons of its own.
So the model input comes from the live run, and every expected file from the first of two keyless replays of
it. The live run, the first and the second replay must agree. Where they do not, the recording is refused and
the difference is shown, with its cause where that can be found (`volatile`): it is nondeterminism to fence, a
value to `mint` or `mask`, or a bug.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from onetake.fixture.gaps import keep_gaps, same_fixture
from onetake.snapshot.drive.env import recording_variables, scratch_directory
from onetake.snapshot.drive.harvest import Harvest
from onetake.snapshot.findings import Advice, Problem, Verdict
from onetake.snapshot.mode import refuse_in_ci
from onetake.snapshot.modes.asking import futile
from onetake.snapshot.modes.commit import commit, planned, secret_problems
from onetake.snapshot.modes.judge import (
    apply_to,
    disagreements,
    harvest_problems,
    read_committed,
    write_scratch,
)
from onetake.snapshot.modes.refresh import RunOnce
from onetake.snapshot.render.pins import Pins, load_pins, session_index
from onetake.snapshot.render.render import Rendered, render
from onetake.snapshot.suites.select import command
from onetake.snapshot.suites.suite import Scenario, Suite
from onetake.snapshot.volatile.volatile import Trial, explain


async def record_scenario(
    run_once: RunOnce,
    scenario: Scenario,
    suite: Suite,
    *,
    environ: Mapping[str, str] | None = None,
    dry_run: bool = False,
    pins: Pins | None = None,
    trial: Trial | None = None,
) -> Verdict:
    """Record one scenario. A red verdict means that nothing was written.

    `pins` replaces the committed pins. With `trial` the verdict on runs that disagree has advice, tried by
    further replays. Raises `UsageError` when `CI` is set, and for input that cannot be
    used.
    """
    environ = os.environ if environ is None else environ
    refuse_in_ci("record", environ)
    environ = {**recording_variables(suite, scenario, environ), **environ}
    if not scenario.recorded:
        return Verdict(scenario=scenario.name, problems=[_authored(scenario, suite)])
    recording = _Recording(run_once, scenario, suite, pins or load_pins(suite), environ)
    verdict = recording.verdict
    verdict.problems += futile(suite, scenario, environ)
    if not verdict.ok:
        return verdict
    model_input = await recording.live()
    if verdict.ok:
        with scratch_directory() as folder:
            files = await recording.verified(model_input, folder)
        if verdict.differences and not verdict.problems and trial is not None:
            verdict.advice = await recording.explained(trial)
        if verdict.ok:
            before = recording.committed
            new = planned(before, files, scenario, suite, fixtures=True)
            commit(verdict, before, new, scenario, suite, recording.pins, environ, dry_run=dry_run)
    return verdict


class _Recording:
    """The runs of one recording, and what was found in them."""

    def __init__(
        self, run_once: RunOnce, scenario: Scenario, suite: Suite, pins: Pins, environ: Mapping[str, str]
    ) -> None:
        self.verdict = Verdict(scenario=scenario.name)
        self.committed = read_committed(scenario.dir)
        self._run_once = run_once
        self._scenario = scenario
        self._suite = suite
        self.pins = pins
        self._environ = environ
        self._live: tuple[Rendered, Rendered] | None = None
        self._harvests: list[Harvest] = []

    async def live(self) -> dict[str, bytes]:
        """Ask the model; the fixtures that hold what it said."""
        plain, _ = self._live = await self._run("record", self._scenario.dir)
        model_input = {name: data for name, data in plain.files.items() if session_index(name) is not None}
        driven = not any(problem.guard == "drive" for problem in self.verdict.problems)
        if not model_input and driven:  # else the agent did not come so far, which says nothing of its log
            self.verdict.problems.append(_no_log(self._scenario))
        self.verdict.problems += secret_problems(plain.files, self._scenario, self._environ)
        return model_input

    async def verified(self, model_input: Mapping[str, bytes], folder: Path) -> dict[str, bytes]:
        """Every file of the scenario, from the first of two replays that must agree with the live run."""
        assert self._live is not None
        write_scratch(folder, self._live[0].files)
        first, joined = await self._run("replay", folder)
        if self.verdict.ok:
            live = self._live[1].files | _equal(self._live[0].files, first.files)
            replayed = joined.files | _equal(first.files, self._live[0].files)
            self._agree(live, replayed, "the live run (-) and its replay (+) disagree [unstable]")
        if self.verdict.ok:
            second, _ = await self._run("replay", folder)
            self._agree(first.files, second.files, "two replays of this recording disagree [unstable]")
        return {name: self._kept(name, data, model_input) for name, data in first.files.items()}

    def _kept(self, name: str, data: bytes, model_input: Mapping[str, bytes]) -> bytes:
        """A file with the gaps of the live run; as it is committed where only gaps would change."""
        if name in model_input:
            data = keep_gaps(model_input[name], data)
        committed = self.committed.get(name)
        fixture = session_index(name) is not None
        return committed if fixture and committed is not None and same_fixture(committed, data) else data

    async def explained(self, trial: Trial) -> Advice | None:
        """Why the runs disagree, and the rules that would make them agree."""
        return await explain(self._harvests, self._scenario, self._suite, self.pins, self.committed, trial)

    async def _run(self, mode: str, folder: Path) -> tuple[Rendered, Rendered]:
        """One run, rendered as it is and with streamed frames joined."""
        scenario, suite = self._scenario, self._suite
        harvest = await self._run_once(mode, scenario, folder)
        self._harvests.append(harvest)
        self.verdict.notes += harvest.warnings
        plain = render(harvest, scenario, suite, self.pins, self.committed)
        joined = render(harvest, scenario, suite, self.pins, self.committed, joined=True)
        self.verdict.problems += harvest_problems(harvest, suite, scenario)
        apply_to(self.verdict, plain, scenario, suite)
        return plain, joined

    def _agree(self, one: Mapping[str, bytes], other: Mapping[str, bytes], what: str) -> None:
        self.verdict.differences += disagreements(one, other, what, self._scenario, self._suite, self.pins)


def _equal(one: Mapping[str, bytes], other: Mapping[str, bytes]) -> dict[str, bytes]:
    """The files that two runs gave alike: joining frames could only blur where a value at a message's end is
    over."""
    return {name: data for name, data in one.items() if other.get(name) == data}


def _authored(scenario: Scenario, suite: Suite) -> Problem:
    return Problem(
        guard="authored",
        scenario=scenario.name,
        message="the scenario is authored (recorded = false, overridden or model_turn = false)",
        remedy=f"its harness output is written by {command('refresh', suite, scenario.name)}",
        exit_code=2,
    )


def _no_log(scenario: Scenario) -> Problem:
    return Problem(
        guard="no-log",
        scenario=scenario.name,
        message="the live run left no session log, so there is no model input to keep",
        remedy="set model_turn = false if the script calls no model; else let the agent keep a log: a row "
        "`use: session-store` in its composition",
    )
