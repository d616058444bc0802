"""The registry of guards: everything that turns a run or a suite red besides a differing surface.

Each guard has an id, which stands in its message, and one line that says what it requires. A meta-test
demands for every id a suite or an agent that breaks the requirement on purpose, and for every problem that is
reported anywhere an id.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from onetake.snapshot.findings import Problem, Verdict
from onetake.snapshot.guard.static import static_problems
from onetake.snapshot.render.pins import load_pins
from onetake.snapshot.suites.rules import rule_ids
from onetake.snapshot.suites.suite import Suite

__all__ = ["GUARDS", "STATIC_GUARDS", "Guard", "static_problems", "suite_problems"]


class Guard(msgspec.Struct, frozen=True):
    """One requirement."""

    section: int
    """Where the design asks for it: 6 replay, 7 suites and scenarios, 8 surfaces and pins, 9 modes."""
    requires: str
    static: bool = False
    """Whether `check` sees it, without starting an agent; pytest has one test for each of these."""


GUARDS: Mapping[str, Guard] = {
    # What a suite consists of.
    "no-scenarios": Guard(9, "A suite names at least one scenario, and a run selects at least one.", True),
    "missing-file": Guard(9, "Every fixture, override and expected file asked for is committed.", True),
    "orphan-folder": Guard(9, "Every folder of a suite is a scenario that suite.toml names.", True),
    "orphan-file": Guard(9, "Every file of a scenario is one that its settings ask for.", True),
    "unreadable": Guard(7, "Every settings file, script, fixture and expected file can be decoded.", True),
    "log-op": Guard(7, "A script waits for log events only where the agent has a log.", True),
    # What a fixture looks like.
    "non-canonical": Guard(9, "Fixtures and expected files are laid out as a write would do it.", True),
    "unscrubbed-header": Guard(9, "Headers of fixtures hold no time, envelope, prompt or schemas.", True),
    "not-fixed-point": Guard(9, "Every id in a fixture is the token that its place gives it.", True),
    "unknown-token": Guard(8, "Every token in a fixture or an answer names a value of the run.", True),
    "underivable": Guard(6, "Every recorded call ends, or an override says what happens instead.", True),
    "model-input": Guard(7, "What the model said in a recorded call does not contradict itself.", True),
    "override": Guard(6, "An override has exact keys, each place once, and none beyond the script.", True),
    "secret": Guard(9, "No key, token, cookie or value of a key-like variable is in a committed file.", True),
    # Pins.
    "duplicate-sidecar": Guard(9, "Each distinct prompt and set of schemas is committed once.", True),
    "unknown-pin": Guard(8, "Every header token names a pin that exists.", True),
    "pin-clash": Guard(8, "No two scenarios stand for one sidecar, or one name, with other texts.", True),
    "empty-pin": Guard(8, "A pin holds at least one text that no earlier pin holds.", True),
    "unpinned-header": Guard(9, "Every live prompt and set of schemas equals the pin that it names."),
    "unused-pin": Guard(9, "In a full run every pin is named by a header."),
    # The composition.
    "overlay": Guard(7, "The overlay switches adapters off, adds replay, pins retry delays; no more.", True),
    "plugin": Guard(9, "The replay row is the built-in replay provider, and nothing else.", True),
    # The run.
    "drive": Guard(7, "The script is carried through, and the agent exits with 0."),
    "input": Guard(7, "Everything that a run needs is there before the agent starts."),
    "internal": Guard(9, "The runner itself does not fail."),
    "left-running": Guard(7, "An agent that ends leaves no process of its run behind."),
    "stray-output": Guard(8, "Every line on stdout is a protocol frame."),
    "extra-call": Guard(6, "The agent makes no more model calls than are recorded."),
    "unbound-session": Guard(6, "Every live session has its place in the recording."),
    "no-match": Guard(6, "Every {{fromRequest:REGEX}} of an override finds its text in the live request."),
    "violation": Guard(6, "Replay never leaves the recording."),
    "leftover": Guard(6, "The agent makes every recorded model call."),
    "unused-answer": Guard(7, "The agent asks for every permission that the script answers."),
    "unknown-tool": Guard(9, "No call is answered with UNKNOWN_TOOL: the agent has the recorded tools."),
    "nonce": Guard(8, "No part of a generated path survives in a rendered file."),
    # Writing.
    "mode": Guard(9, "The mode is one of three words; a typo is an error, not a comparison."),
    "ci": Guard(9, "With CI set, nothing that writes expected files runs: such a job cannot fail."),
    "authored": Guard(9, "An authored scenario is never recorded."),
    "no-log": Guard(9, "A recording has a session log."),
    "unstable": Guard(9, "The runs of a recording agree, and two runs of what refresh would write."),
    "chunks-changed": Guard(9, "Refresh leaves the chunks of every recorded call byte-equal."),
    # The suite as a whole.
    "unused-rule": Guard(9, "In a full run every normalization rule matches something."),
}
"""Guard id -> requirement. `Problem.guard` holds one of these ids."""

STATIC_GUARDS = tuple(guard for guard, requirement in GUARDS.items() if requirement.static)
"""What `static_problems` may report."""

SUITE_GUARDS = ("unused-rule", "unused-pin")
"""What `suite_problems` may report of suites with scenarios."""


def suite_problems(suite: Suite, verdicts: Sequence[Verdict]) -> list[Problem]:
    """Checks that need a full run of the suite: what no scenario made use of.

    A run with problems proves nothing about use, so then only the count is checked.
    """
    if not verdicts:
        return [_none(suite)]
    if any(verdict.problems for verdict in verdicts):
        return []
    used = set[str]().union(*(verdict.used_rules for verdict in verdicts))
    named = set[str]().union(*(verdict.named_pins for verdict in verdicts))
    found = [_unused_rule(suite, rule) for rule in rule_ids(suite.settings.normalize) if rule not in used]
    pins = dict.fromkeys((pin.name, pin.file) for pin in load_pins(suite).all)
    return found + [_unused_pin(file) for name, file in pins if name not in named]


def _none(suite: Suite) -> Problem:
    return Problem(
        guard="no-scenarios",
        file=suite.path.name,
        message="no scenario ran",
        remedy="name one in a [scenarios.NAME] table",
        exit_code=2,
    )


def _unused_rule(suite: Suite, rule: str) -> Problem:
    return Problem(
        guard="unused-rule",
        file=suite.path.name,
        message=f"[normalize] {rule} matched nothing in the whole suite",
        remedy="remove the rule, or mend its pattern or path: a rule that never matches hides a mistake",
    )


def _unused_pin(file: str) -> Problem:
    return Problem(
        guard="unused-pin",
        file=file,
        message="no header of the suite names this pin",
        remedy="refresh its scenario, or take pins_header away from it",
    )
