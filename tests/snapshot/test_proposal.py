"""Proposed rules: TOML that can be pasted, whatever suite.toml holds already."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from onetake.snapshot.suites.rules import rule_ids
from onetake.snapshot.suites.suite import load_suite
from onetake.snapshot.volatile.proposal import Rule, as_toml, with_rule
from tests.snapshot.driving import OPENING, make_suite

RULES = [
    Rule("mint", "", r"job ([0-9a-f]{4})\b", "job"),
    Rule("mask", "log", r"it's [0-9]+", "it's N"),
    Rule("mask", "stdout", 'say "[0-9]+"\t', 'say "N"\t'),
    Rule("drop", "stdout", "params.at"),
    Rule("drop", "stdout", "params.*.id"),
]


@pytest.mark.parametrize(
    "before",
    [
        "",
        '[normalize.requests]\ndrop = ["a"]',
        "[[normalize.mint]]\npattern = '(x)'\nas = 'x'",
        "[normalize]\n",
    ],
)
def test_tables_follow_what_is_there(tmp_path: Path, before: str) -> None:
    """Appended to the file, they are the rules that were meant."""
    make_suite(tmp_path, {"one": OPENING}, extra=before)
    path = tmp_path / "suite.toml"
    path.write_text(path.read_text() + "\n" + as_toml(RULES, path.read_text()) + "\n")
    normalize = load_suite(tmp_path).settings.normalize
    assert [(r.pattern, r.as_) for r in normalize.mint][-1:] == [(RULES[0].pattern, "job")]
    assert [(r.pattern, r.with_) for r in normalize.log.mask] == [(RULES[1].pattern, RULES[1].text)]
    assert [(r.pattern, r.with_) for r in normalize.stdout.mask] == [(RULES[2].pattern, RULES[2].text)]
    assert normalize.stdout.drop == ["params.at", "params.*.id"]


def test_members_go_into_lists_that_are_there() -> None:
    """TOML lets no table extend a list that was written inline."""
    before = "[normalize]\nmint = [{ pattern = '(x)', as = 'x' }]\n[normalize.stdout]\ndrop = ['a']"
    text = as_toml(RULES, before)
    assert "# into the list `mint` of [normalize]\n" in text
    assert "# into the list `drop` of [normalize.stdout]\n" in text
    members = [line for line in text.split("\n") if not line.startswith("#")]
    parsed = tomllib.loads("all = [\n" + "\n".join(members) + "\n]")["all"]
    assert parsed[0] == {"pattern": RULES[0].pattern, "as": "job"}
    assert parsed[-1] == "params.*.id"


def test_a_rule_on_trial(tmp_path: Path) -> None:
    """The suite itself stays as it is."""
    suite = make_suite(tmp_path, {"one": OPENING})
    changed = suite
    for rule in RULES:
        changed = with_rule(changed, rule)
    assert rule_ids(suite.settings.normalize) == []
    assert rule_ids(changed.settings.normalize) == [
        "mint[0]",
        "stdout.drop[0]",
        "stdout.drop[1]",
        "stdout.mask[0]",
        "log.mask[0]",
    ]
