"""Run many scenarios: replay side by side, record and refresh one at a time, and gather what was found.

The order in which scenarios finish is only for the progress lines; outcomes are reported in the order of the
suite, so that two runs that find the same print the same.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import TYPE_CHECKING

import msgspec

from onetake.errors import UsageError
from onetake.snapshot.attempt import Outcome, broken_suite, replay_scenario, skipped, write_scenario
from onetake.snapshot.findings import Problem, Verdict
from onetake.snapshot.suites.select import parse_expression
from onetake.snapshot.suites.suite import Scenario, Suite

if TYPE_CHECKING:
    from onetake.snapshot.render.pins import Pins


class Selection(msgspec.Struct, frozen=True):
    """The scenarios of one suite that a command is about."""

    suite: Suite
    scenarios: list[Scenario]

    @property
    def full(self) -> bool:
        """Whether this is the whole suite, so that suite-wide checks make sense."""
        return len(self.scenarios) == len(self.suite.scenarios)


OnOutcome = Callable[[Outcome], None]


def select(suites: Sequence[Suite], expression: str | None) -> list[Selection]:
    """The scenarios that `-k` leaves. Raises `UsageError` when none is left: nothing tested is no success."""
    matches = parse_expression(expression) if expression is not None else None
    selections = [
        Selection(suite, [s for s in suite.scenarios.values() if matches is None or matches(s.name)])
        for suite in suites
    ]
    if not any(selection.scenarios for selection in selections):
        names = sorted(name for suite in suites for name in suite.scenarios)
        known = f"; known: {', '.join(names)}" if names else ": no suite names one"
        chosen = f" by -k {expression!r}" if expression is not None else ""
        raise UsageError(f"no scenario is selected{chosen}{known}")
    return [selection for selection in selections if selection.scenarios]


async def run_all(
    selections: Sequence[Selection], mode: str, *, jobs: int, dry_run: bool, on_outcome: OnOutcome
) -> list[Outcome]:
    """Run every selected scenario; all outcomes, in the order of the suites. A red one stops no other."""
    outcomes: list[Outcome] = []
    for selection in selections:
        recover_suite(selection.suite)
    async with _gateway(selections):
        if mode == "replay":
            outcomes += await _replay_all(selections, jobs, on_outcome)
        else:
            for selection in selections:
                outcomes += await write_all(selection, mode, dry_run=dry_run, on_outcome=on_outcome)
    return outcomes


def _gateway(selections: Sequence[Selection]) -> AbstractAsyncContextManager[None]:
    """One server for all scenarios of agents that need one."""
    if all(selection.suite.settings.gateway is None for selection in selections):
        return nullcontext()
    from onetake.gateway.server import one_gateway

    return one_gateway()


def recover_suite(suite: Suite) -> None:
    """Finish, discard or sweep away what killed commands left: the first thing of every command."""
    from onetake.snapshot.drive.env import sweep_runs
    from onetake.snapshot.modes.write import recover

    sweep_runs()
    for scenario in suite.scenarios.values():
        recover(scenario.dir)


async def _replay_all(selections: Sequence[Selection], jobs: int, on_outcome: OnOutcome) -> list[Outcome]:
    from onetake.snapshot.guard.static import static_problems
    from onetake.snapshot.render.pins import load_pins

    slots = asyncio.Semaphore(jobs)

    async def one(suite: Suite, scenario: Scenario, pins: Pins, static: list[Problem]) -> Outcome:
        if broken_suite(static) and not any(problem.scenario == scenario.name for problem in static):
            # Told once, in the outcome of the suite as a whole.
            outcome = skipped(suite, scenario, "the suite itself is broken, see below")
        else:
            async with slots:
                outcome = await replay_scenario(suite, scenario, pins, static)
        on_outcome(outcome)
        return outcome

    prepared = [
        (chosen, load_pins(chosen.suite), static_problems(chosen.suite, chosen.scenarios))
        for chosen in selections
    ]
    outcomes: list[Outcome] = []
    async with asyncio.TaskGroup() as group:
        running = [
            [group.create_task(one(chosen.suite, scenario, pins, static)) for scenario in chosen.scenarios]
            for chosen, pins, static in prepared
        ]
    for (chosen, _, static), tasks in zip(prepared, running, strict=True):
        done = [task.result() for task in tasks]
        whole = suite_outcome(chosen, static, done)
        outcomes += done if whole.verdict.ok else [*done, whole]
    return outcomes


def suite_outcome(selection: Selection, static: list[Problem], outcomes: Sequence[Outcome]) -> Outcome:
    """What concerns the suite as a whole: its static problems, and after a full run its aggregated checks."""
    suite = selection.suite
    problems = [problem for problem in static if problem.scenario not in suite.scenarios]
    if selection.full and not any(outcome.skipped for outcome in outcomes):
        from onetake.snapshot.guard.guards import suite_problems

        problems += suite_problems(suite, [outcome.verdict for outcome in outcomes])
    return Outcome(suite=suite, name=None, verdict=Verdict(scenario="", problems=problems))


async def write_all(
    selection: Selection, mode: str, *, dry_run: bool, on_outcome: OnOutcome
) -> list[Outcome]:
    """Record or refresh the selected scenarios, one at a time, pins first."""
    from onetake.snapshot.render.pins import write_order

    writer = Writer(selection.suite, mode, dry_run=dry_run)
    for scenario in write_order(selection.suite, selection.scenarios):
        on_outcome(await writer.write(scenario))
    return [*writer.outcomes, *writer.next_replay()]


class Writer:
    """Records or refreshes scenarios of one suite, one after the other; whoever writes goes this way.

    It knows which pins it has written itself, so write pins before what names them.
    """

    def __init__(self, suite: Suite, mode: str, *, dry_run: bool = False) -> None:
        from onetake.snapshot.render.pins import load_pins

        self._suite = suite
        self._mode = mode
        self._dry_run = dry_run
        self._before = self._pins = load_pins(suite, lenient=True)
        self._subjects: list[Scenario] = []
        self.outcomes: list[Outcome] = []
        """What became of each scenario, in the order of the writes."""

    async def write(self, scenario: Scenario) -> Outcome:
        """Write one scenario."""
        from onetake.snapshot.render.pins import load_pins

        outcome = await write_scenario(
            self._suite, scenario, self._mode, dry_run=self._dry_run, pins=self._pins
        )
        if scenario.settings.pins_header and outcome.verdict.ok and not outcome.skipped:
            fresh = self._pins.fresh | {scenario.name}
            self._pins = outcome.pins or load_pins(self._suite, lenient=True)
            self._pins.fresh = fresh
        self._subjects.append(scenario)
        self.outcomes.append(outcome)
        return outcome

    async def write_alone(self, scenario: Scenario) -> Outcome:
        """Write one scenario and no other; what the next replay would say is part of the outcome."""
        outcome = await self.write(scenario)
        for whole in self.next_replay():
            outcome.verdict.problems += whole.verdict.problems
        return outcome

    def next_replay(self) -> list[Outcome]:
        """What will be red in the next replay though every write succeeded: a write must not end with
        success then. Call it after the last write.

        What else is wrong with scenarios that were not written is left to those who run them, except what
        the pins that were written did to them.
        """
        from onetake.snapshot.guard.static import static_problems

        ran = [outcome for outcome in self.outcomes if not outcome.skipped]
        if self._dry_run or not ran or not all(outcome.verdict.ok for outcome in ran):
            return []
        names = {outcome.name for outcome in ran}
        chosen = [scenario for scenario in self._subjects if scenario.name in names]
        static = [
            problem
            for problem in static_problems(self._suite, chosen)
            if problem.scenario is None or problem.scenario in names
        ]
        static += [problem for problem in self._unpinned() if problem not in static]
        whole = suite_outcome(Selection(self._suite, self._subjects), static, self.outcomes)
        whole.verdict.problems += [problem for problem in static if problem not in whole.verdict.problems]
        return [] if whole.verdict.ok else [whole]

    def _unpinned(self) -> list[Problem]:
        """What is wrong with any scenario since pins were written: a text moved or went that others name."""
        from onetake.snapshot.guard.static import duplicate_sidecars, static_problems
        from onetake.snapshot.render.pins import load_pins

        now = load_pins(self._suite, lenient=True)
        before = list(duplicate_sidecars(self._before))
        found = [problem for problem in duplicate_sidecars(now) if problem not in before]
        if {pin.file for pin in self._before.all}.issubset(pin.file for pin in now.all):
            return found
        there = [scenario for scenario in self._suite.scenarios.values() if scenario.dir.is_dir()]
        return found + [p for p in static_problems(self._suite, there) if p.guard == "unknown-pin"]
