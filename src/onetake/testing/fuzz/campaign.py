"""Runs until a rule is broken or enough was done; what breaks it is shrunk to the smallest script that does.

Hypothesis draws and shrinks. The smallest case is kept here and not taken from its report, because an agent
may be moody: a finding that does not come every time is a finding, with the script that had it last. While
one is shrunk, only the same check counts, so that it cannot turn into another on the way.
"""

from __future__ import annotations

import itertools
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import msgspec
from hypothesis import HealthCheck, Phase, Verbosity, given, seed, settings

from onetake.errors import AgentError
from onetake.testing.fuzz.client import Bounds, Outcome, run_case
from onetake.testing.fuzz.draw import Known, cases, known_from
from onetake.testing.fuzz.judge import Finding
from onetake.testing.fuzz.steps import Case, Prompt
from onetake.testing.fuzz.target import Target

PLAIN = Case(steps=[Prompt(0, [{"type": "text", "text": "hello"}])])
"""What every agent must be able to do before anything else is asked of it."""


class Plan(msgspec.Struct, frozen=True):
    """How much is done."""

    steps: int = 1000
    """Steps of all runs together."""
    seed: int = 0
    """Decides what is drawn."""
    shrink_s: float = 60.0
    """How long a finding may be shrunk, in seconds."""


class Found(msgspec.Struct, frozen=True):
    """A broken rule and the smallest script that breaks it."""

    case: Case
    check: str
    text: str
    """The whole message, which begins with the check."""


class Report(msgspec.Struct):
    """What a campaign has done so far."""

    runs: int = 0
    """Agents that were taken through a script, those of shrinking left out."""
    steps: int = 0
    """Steps in them."""
    shrinks: int = 0
    """Runs that a finding took to shrink."""
    ends: Counter[str] = msgspec.field(default_factory=Counter)
    """How prompts ended: by stop reason, and `error`."""
    found: Found | None = None
    """The finding; None while there is none."""


class _Enough(BaseException):
    """Leaves Hypothesis, which would catch any `Exception` and take it for a failure."""


def fuzz(
    target: Target, bounds: Bounds, plan: Plan, progress: Callable[[Report], None] = lambda report: None
) -> Report:
    """Fuzz an agent until something is found, or for all steps of the plan.

    `progress` is called after each run. Raises UsageError for a target that cannot be told its model, and
    AgentError for an agent that does not start or does not answer a plain prompt.
    """
    target.check()
    campaign = _Campaign(target, bounds, plan, progress)
    known = campaign.begin()

    try:
        for number in itertools.count(plan.seed):
            _explore(campaign, known, number)
    except _Enough:
        pass
    except Exception:  # the finding, or that it does not come every time; anything else is our own defect
        if campaign.report.found is None:
            raise
    return campaign.report


def _explore(campaign: _Campaign, known: Known, number: int) -> None:
    """Let Hypothesis draw for a while. It begins small, so a round should be neither short nor endless."""

    @seed(number)
    @settings(
        max_examples=200,
        deadline=None,
        database=None,
        derandomize=False,
        phases=(Phase.generate, Phase.shrink),
        verbosity=Verbosity.quiet,
        report_multiple_bugs=False,
        print_blob=False,
        suppress_health_check=list(HealthCheck),
    )
    @given(cases(known))
    def explore(case: Case) -> None:
        campaign.explore(case)

    explore()


def run_again(case: Case, target: Target, bounds: Bounds, times: int) -> Found | None:
    """Repeat a case until it breaks a rule, `times` at most. Raises UsageError, AgentError."""
    target.check()
    for _ in range(times):
        finding = run_once(case, target, bounds, Outcome())
        if finding is not None:
            return Found(case, finding.check, str(finding))
    return None


def run_once(case: Case, target: Target, bounds: Bounds, outcome: Outcome) -> Finding | None:
    """Run a case in a new directory; what it finds. Raises AgentError."""
    with tempfile.TemporaryDirectory(prefix="onetake-fuzz-", ignore_cleanup_errors=True) as directory:
        try:
            run_case(case, target, bounds, Path(directory).resolve(), outcome)
        except Finding as finding:
            return finding
    return None


class _Campaign:
    def __init__(
        self, target: Target, bounds: Bounds, plan: Plan, progress: Callable[[Report], None]
    ) -> None:
        self._target = target
        self._bounds = bounds
        self._plan = plan
        self._progress = progress
        self._shrunk_by = 0.0
        self.report = Report()

    def begin(self) -> Known:
        """Try a plain prompt: an agent that cannot answer it would pass every check. Raises AgentError."""
        outcome = Outcome()
        finding = run_once(PLAIN, self._target, self._bounds, outcome)
        if finding is not None and finding.check == "starts":
            raise AgentError(str(finding).removeprefix("starts: "))
        if finding is not None:
            self._note(PLAIN, finding)
        elif not outcome.requests:
            said = f"; it said: {outcome.refusal}" if outcome.refusal else ""
            raise AgentError(
                "the agent did not ask the scripted model for the answer to a plain prompt: is its base URL "
                f"{{{{gateway.openai}}}}, and what else does it need?{said}"
            )
        elif outcome.refusal is not None:
            raise AgentError(f"the agent cannot answer a plain prompt: {outcome.refusal}")
        return known_from(outcome.requests, outcome.capabilities)

    def explore(self, case: Case) -> None:
        """Run a case that Hypothesis has drawn. Raises Finding for what counts as a failure."""
        shrinking = self.report.found is not None
        if shrinking and time.monotonic() > self._shrunk_by:
            raise _Enough
        if not shrinking and self.report.steps >= self._plan.steps:
            raise _Enough
        outcome = Outcome()
        finding = run_once(case, self._target, self._bounds, outcome)
        if shrinking:
            self.report.shrinks += 1
        else:
            self.report.runs += 1
            self.report.steps += len(case.steps)
            self.report.ends += outcome.ends
        if finding is not None and (not shrinking or finding.check == self._check):
            self._note(case, finding)
            raise finding
        self._progress(self.report)

    @property
    def _check(self) -> str | None:
        return self.report.found.check if self.report.found is not None else None

    def _note(self, case: Case, finding: Finding) -> None:
        """Keep a finding if it is the first, or smaller than the one before."""
        found = self.report.found
        if found is None:
            self._shrunk_by = time.monotonic() + self._plan.shrink_s
        if found is None or case.size <= found.case.size:
            self.report.found = Found(case, finding.check, str(finding))
        self._progress(self.report)
