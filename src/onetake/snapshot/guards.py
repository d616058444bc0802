"""The registry of guards: everything that turns a run or a suite red besides a differing surface.

Each guard has an id, which stands at the end of its message, and one line that says what it requires. A
meta-test demands for every id a test that breaks the requirement on purpose.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from onetake.snapshot.findings import Problem, Verdict
from onetake.snapshot.pins import load_pins
from onetake.snapshot.rules import rule_ids
from onetake.snapshot.static import static_problems
from onetake.snapshot.suite import Suite

__all__ = ["GUARDS", "static_problems", "suite_problems"]

GUARDS: Mapping[str, str] = {
    # What a suite consists of.
    "no-scenarios": "A suite names at least one scenario, and a run selects at least one.",
    "missing-file": "Every fixture, override and expected file that the settings ask for is committed.",
    "orphan-folder": "Every folder of a suite is a scenario that suite.toml names.",
    "orphan-file": "Every file of a scenario is one that its settings ask for.",
    "unreadable": "Every settings file, script, override, fixture and expected file can be decoded.",
    "mode": "The mode is one of three words; a typo is an error, not a comparison.",
    "ci": "With CI set, record and refresh refuse: a job that rewrites its own goldens cannot fail.",
    "log-op": "A script waits for log events only where the agent has a log.",
    # What a fixture looks like.
    "non-canonical": "Fixtures and expected files are in the one layout that a write would give.",
    "unscrubbed-header": "Headers of fixtures hold no time, no envelope and no raw prompt or schemas.",
    "not-fixed-point": "Every id in a fixture is the token that its place gives it.",
    "unknown-token": "Every token in a fixture, and every token that replay restores, names a value.",
    "underivable": "Every recorded call ends, or an override says what happens instead.",
    "secret": "No key, token or cookie, and no value of a key-like variable, is in a committed file.",
    # Pins.
    "duplicate-sidecar": "Each distinct prompt and set of schemas is committed once.",
    "unknown-pin": "Every header token names a pin that exists.",
    "unpinned-header": "Every live prompt and set of schemas equals a committed pin.",
    "pin-clash": "No two scenarios stand for one sidecar, or for one name of it, with different texts.",
    "empty-pin": "A pin holds at least one text that no earlier pin holds.",
    "unused-pin": "In a full run every pin is named by a header.",
    # The composition.
    "overlay": "The snapshot overlay only switches adapters off, adds replay, and pins retry delays.",
    "plugin": "The replay row is the built-in replay provider, and nothing else.",
    # The run.
    "drive": "The script is carried through, and the agent exits with 0.",
    "input": "Everything that a run needs is there before the agent starts.",
    "internal": "The runner itself does not fail.",
    "stray-output": "Every line on stdout is a protocol frame.",
    "extra-call": "The agent makes no more model calls than are recorded.",
    "unbound-session": "Every live session has its place in the recording.",
    "no-match": "Every {{fromRequest:REGEX}} of an override finds its text in the live request.",
    "violation": "Replay never leaves the recording.",
    "leftover": "The agent makes every recorded model call.",
    "unknown-tool": "No call is answered with UNKNOWN_TOOL: the agent has the tools that were recorded.",
    "nonce": "No part of a generated path survives in a rendered file.",
    # Writing.
    "authored": "An authored scenario is never recorded.",
    "no-log": "A recording has a session log.",
    "chunks-changed": "Refresh leaves the chunks of every recorded call byte-equal.",
    # The suite as a whole.
    "unused-rule": "In a full run every normalization rule matches something.",
}
"""Guard id -> requirement. `Problem.guard` holds one of these ids."""


STATIC_GUARDS = (
    "no-scenarios",
    "missing-file",
    "orphan-folder",
    "orphan-file",
    "unreadable",
    "log-op",
    "non-canonical",
    "unscrubbed-header",
    "not-fixed-point",
    "unknown-token",
    "underivable",
    "secret",
    "duplicate-sidecar",
    "unknown-pin",
    "pin-clash",
    "empty-pin",
    "overlay",
    "plugin",
)
"""What `static_problems` may report; pytest has one test for each."""

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
