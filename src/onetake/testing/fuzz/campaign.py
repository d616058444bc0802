"""Runs until a rule is broken or enough was done; what breaks it is shrunk to the smallest script that does.

Hypothesis draws the scripts. The first finding ends that: an agent may be moody, and one that does not come
again is a finding all the same. While it is shrunk, only the same check counts, so that it cannot turn into
another on the way.
"""

from __future__ import annotations

import contextlib
import itertools
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import msgspec
from hypothesis import HealthCheck, Phase, Verbosity, given, seed, settings

from onetake.errors import AgentError
from onetake.testing.fuzz.client import AT_START, Bounds, Outcome, run_case
from onetake.testing.fuzz.draw import Known, cases, known_from
from onetake.testing.fuzz.judge import Finding
from onetake.testing.fuzz.shrink import shrink
from onetake.testing.fuzz.steps import HELLO, Case, Prompt
from onetake.testing.fuzz.target import Target

PLAIN = Case(steps=[Prompt(0, HELLO)])
"""What every agent must be able to do before anything else is asked of it."""


class Plan(msgspec.Struct, frozen=True):
    """How much is done."""

    steps: int = 1000
    """Steps of all runs together."""
    seed: int = 0
    """Decides what is drawn."""
    shrink_s: float = 120.0
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
    """Leaves Hypothesis, which would take any `Exception` for a failure and try it again."""


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

    with contextlib.suppress(_Enough):
        for number in itertools.count(plan.seed):
            _explore(campaign, known, number)
    campaign.shrink()
    return campaign.report


def _explore(campaign: _Campaign, known: Known, number: int) -> None:
    """Let Hypothesis draw for a while. It begins small, so a round should be neither short nor endless."""

    @seed(number)
    @settings(
        max_examples=200,
        deadline=None,
        database=None,
        derandomize=False,
        phases=(Phase.generate,),
        verbosity=Verbosity.quiet,
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
        _require_start(finding)
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


def _require_start(finding: Finding | None) -> None:
    """Raise AgentError for an agent that does not even start for the first time."""
    if finding is not None and str(finding).startswith(f"starts: {AT_START}: "):
        raise AgentError(str(finding).removeprefix(f"starts: {AT_START}: "))


class _Campaign:
    def __init__(
        self, target: Target, bounds: Bounds, plan: Plan, progress: Callable[[Report], None]
    ) -> None:
        self._target = target
        self._bounds = bounds
        self._plan = plan
        self._progress = progress
        self.report = Report()

    def begin(self) -> Known:
        """Try a plain prompt: an agent that cannot answer it would pass every check. Raises AgentError."""
        outcome = Outcome()
        finding = run_once(PLAIN, self._target, self._bounds, outcome)
        _require_start(finding)
        if finding is not None and (finding.check != "recovers" or outcome.refusal is None):
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
        """Run a case that Hypothesis has drawn. Raises _Enough after the first finding, or the last step."""
        if self.report.found is not None or self.report.steps >= self._plan.steps:
            raise _Enough
        outcome = Outcome()
        finding = run_once(case, self._target, self._bounds, outcome)
        self.report.runs += 1
        self.report.steps += len(case.steps)
        self.report.ends += outcome.ends
        if finding is not None:
            self._note(case, finding)
            raise _Enough
        self._progress(self.report)

    def shrink(self) -> None:
        """Make the case of the finding, if there is one, as small as time allows."""
        if self.report.found is None:
            return
        check = self.report.found.check
        deadline = time.monotonic() + self._plan.shrink_s

        def breaks(case: Case) -> bool:
            if time.monotonic() > deadline:
                return False
            self.report.shrinks += 1
            finding = run_once(case, self._target, self._bounds, Outcome())
            if finding is None or finding.check != check:
                return False
            self._note(case, finding)
            return True

        shrink(self.report.found.case, breaks)

    def _note(self, case: Case, finding: Finding) -> None:
        self.report.found = Found(case, finding.check, str(finding))
        self._progress(self.report)
