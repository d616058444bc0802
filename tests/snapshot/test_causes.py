"""Failures are grouped by cause, and one command accepts a group."""

from __future__ import annotations

import io
from pathlib import Path

from onetake.snapshot.attempt import Outcome
from onetake.snapshot.diff.causes import accepting, alike
from onetake.snapshot.findings import Difference, Problem, Verdict
from onetake.snapshot.report import Reporter, groups
from onetake.snapshot.suites.select import parse_expression
from onetake.snapshot.suites.suite import Suite
from tests.snapshot.driving import OPENING, make_suite


def difference(
    scenario: str, cause: str, *, surface: str = "stdout", accept: str | None = None
) -> Difference:
    """A difference of one scenario."""
    return Difference(
        scenario=scenario,
        surface=surface,
        file=f"{scenario}/{surface}.expected.jsonl",
        message=f"line 1 differs ({cause})",
        diff="",
        accept=f"onetake refresh S -k {scenario}" if accept is None else accept,
        cause=cause,
    )


def suite_of(folder: Path, *names: str) -> Suite:
    """A suite of scenarios that need not run."""
    return make_suite(folder, {name: OPENING for name in names})


def outcome(suite: Suite, name: str, *differences: Difference, problems: tuple[Problem, ...] = ()) -> Outcome:
    """What became of one scenario."""
    verdict = Verdict(scenario=name, differences=list(differences), problems=list(problems))
    return Outcome(suite=suite, name=name, verdict=verdict)


def report(outcomes: list[Outcome]) -> str:
    """The printed summary."""
    stream = io.StringIO()
    Reporter(stream, "replay", len(outcomes), environ={}, dry_run=False).summary(outcomes, 0.0)
    return stream.getvalue()


def test_equal_causes_and_nothing_else_make_a_group() -> None:
    """One difference more is another failure; an unknown cause is a failure of its own."""
    verdicts = [
        Verdict(scenario="a", differences=[difference("a", "x")]),
        Verdict(scenario="b", differences=[difference("b", "x"), difference("b", "y", surface="log")]),
        Verdict(scenario="c", differences=[difference("c", "x")]),
        Verdict(scenario="green"),
        Verdict(scenario="d", differences=[difference("d", "")]),
        Verdict(scenario="e", differences=[difference("e", "")]),
        Verdict(scenario="f", differences=[difference("f", "x", surface="log")]),
    ]
    names = [[verdict.scenario for verdict in group] for group in alike(verdicts)]
    assert names == [["a", "c"], ["b"], ["d"], ["e"], ["f"]]


def test_problems_group_too(tmp_path: Path) -> None:
    """Thirty agents that cannot find their configuration are one failure."""
    suite = suite_of(tmp_path, "a", "b", "c")
    text = "the agent did not start"
    broken = [
        outcome(suite, name, problems=(Problem(guard="drive", scenario=name, message=message, exit_code=3),))
        for name, message in (("a", text), ("b", text), ("c", "another"))
    ]
    out = report(broken)
    assert "suite.toml: 2 scenarios fail alike ===\nscenarios: a, b\n" in out
    assert out.count(text) == 1 and "suite.toml: c ===" in out


def test_one_command_for_a_group(tmp_path: Path) -> None:
    """A shared one; else one that names the scenarios, or the suite when all that is red is alike."""
    suite = suite_of(tmp_path, "one", "one-more", "two", "three")
    pin = [
        Verdict(scenario=n, differences=[difference(n, "x", accept="onetake refresh S -k pin")]) for n in "ab"
    ]
    assert accepting(suite, pin) == ["onetake refresh S -k pin"]
    own = [Verdict(scenario=name, differences=[difference(name, "x")]) for name in ("one", "two")]
    (accept,) = accepting(suite, own)
    expression = accept.partition(" -k ")[2].strip("'")
    assert [name for name in suite.scenarios if parse_expression(expression)(name)] == ["one", "two"]
    assert " -k " not in accepting(suite, own, everything=True)[0]
    recorded = [Verdict(scenario="one", differences=[difference("one", "x", accept="")])]
    assert accepting(suite, recorded) == []


def test_a_cause_that_was_shown_is_not_shown_again(tmp_path: Path) -> None:
    """A scenario that has it and another one refers to the first."""
    suite = suite_of(tmp_path, "a", "b", "c", "d")
    outcomes = [
        outcome(suite, "a", difference("a", "x")),
        outcome(suite, "b", difference("b", "x")),
        outcome(suite, "c", difference("c", "x"), difference("c", "y", surface="log")),
        outcome(suite, "d"),
    ]
    out = report(outcomes)
    assert out.count("line 1 differs (x)") == 1 and out.count("line 1 differs (y)") == 1
    assert "c: stdout: c/stdout.expected.jsonl\n    the same difference as in a\n" in out
    accepts = [group.accept for group in groups(outcomes)]
    assert [len(accept) for accept in accepts] == [1, 1]
    assert accepts[0][0].endswith("-k 'a or b'") and accepts[1] == ["onetake refresh S -k c"]


def test_thirty_scenarios_are_listed_compactly(tmp_path: Path) -> None:
    """Wrapped, and the whole suite is what to refresh."""
    names = [f"scenario-number-{number}" for number in range(31)]
    suite = suite_of(tmp_path, *names)
    out = report([outcome(suite, name, difference(name, "x")) for name in names])
    assert "31 scenarios differ only by this" in out
    assert out.count("line 1 differs") == 1 and len(out.split("\n")) < 20
    assert all(len(line) < 140 for line in out.split("\n"))


def test_the_last_words_of_the_agent(tmp_path: Path) -> None:
    """Under the differences; a failed drive has them in its message."""
    suite = suite_of(tmp_path, "a")
    red = outcome(suite, "a", difference("a", "x"))
    red.stderr = "warning: no clock\nand more"
    assert "the agent's last stderr:\n    warning: no clock\n    and more\n" in report([red])
    red.verdict.problems = [Problem(guard="drive", message="the end of the agent's stderr: ...")]
    assert "the agent's last stderr:" not in report([red])


def test_a_dry_run_shows_equal_changes_once(tmp_path: Path) -> None:
    """With every file that they would touch."""
    suite = suite_of(tmp_path, "a", "b", "c")
    outcomes = [outcome(suite, name) for name in "abc"]
    for name, cause in (("a", "x"), ("b", "x"), ("c", "y")):
        outcomes["abc".index(name)].verdict.changes = [difference(name, cause)]
    stream = io.StringIO()
    Reporter(stream, "refresh", 3, environ={}, dry_run=True).summary(outcomes, 0.0)
    out = stream.getvalue()
    assert "would change a/stdout.expected.jsonl, b/stdout.expected.jsonl\n    line 1 differs (x)\n" in out
    assert "would change c/stdout.expected.jsonl\n    line 1 differs (y)\n" in out
