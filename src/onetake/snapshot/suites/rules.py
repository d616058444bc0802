"""The suite's normalization rules, made ready for one run, and ids to check that each is of use."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from onetake.fixture.normalize import Rules
from onetake.snapshot.suites.settings import SURFACES, Normalize, SurfaceRules

Spans = Callable[[str], Iterable[tuple[int, int, str]]]
"""The places in a text that have tokens, as (start, end, token)."""


class RuleBook:
    """Compiled rules of every surface; each run makes its own, so that use is counted per run."""

    def __init__(self, normalize: Normalize, spans: Spans) -> None:
        self._rules = {surface: _compiled(getattr(normalize, surface), spans) for surface in SURFACES}

    def __getitem__(self, surface: str) -> Rules:
        return self._rules[surface]

    def used(self) -> set[str]:
        """The ids of the drop and mask rules that did something so far."""
        return {
            f"{surface}.{kind}[{number}]"
            for surface, rules in self._rules.items()
            for kind, numbers in (("drop", rules.used_drop), ("mask", rules.used_mask))
            for number in numbers
        }


def rule_ids(normalize: Normalize) -> list[str]:
    """The id of every rule of a suite, as `Verdict.used_rules` holds them: `mint[0]`, `stdout.drop[1]`."""
    ids = [f"mint[{number}]" for number in range(len(normalize.mint))]
    for surface in SURFACES:
        rules: SurfaceRules = getattr(normalize, surface)
        ids += [f"{surface}.drop[{number}]" for number in range(len(rules.drop))]
        ids += [f"{surface}.mask[{number}]" for number in range(len(rules.mask))]
    return ids


def _compiled(rules: SurfaceRules, spans: Spans) -> Rules:
    return Rules(rules.drop, [(rule.pattern, rule.with_) for rule in rules.mask], spans=spans)
