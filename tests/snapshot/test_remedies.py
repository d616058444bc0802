"""What a red run tells one to do: one thing, the right one, and nothing that would be refused."""

from __future__ import annotations

import io
import json

from onetake.snapshot.report import Reporter, failure_text
from onetake.snapshot.static import static_problems
from tests.snapshot.lab import OPENING, Lab, failures, red


def test_an_agent_that_did_not_start_is_all_there_is_to_say(lab: Lab) -> None:
    """Whatever differs follows from it, and nobody should accept that."""
    lab.break_agent("crash")
    outcome = lab.replay("hello")["hello"]
    assert outcome.exit_code == 3
    assert [problem.guard for problem in outcome.verdict.problems] == ["drive"]
    assert outcome.verdict.differences == []
    text = failure_text(outcome)
    assert "the agent fell over" in text and "accept:" not in text


def test_what_refresh_would_refuse_is_not_offered(lab: Lab) -> None:
    """The differences are shown, and the remedy of the problem is the only command."""
    steps = [*OPENING, {"op": "prompt", "text": "Say hello."}]
    (lab.snapshots / "hello/input.json").write_text(json.dumps({"steps": steps}))
    outcome = lab.replay("hello")["hello"]
    assert {problem.guard for problem in outcome.verdict.problems} == {"leftover"}
    assert {d.surface for d in outcome.verdict.differences} == {"stdout", "requests", "log"}
    text = failure_text(outcome)
    assert text.count("onetake re") == 1 and "onetake record" in text
    assert "nothing was written" not in text
    assert "leftover" in red(lab.refresh("hello"))["hello"]


def test_a_fixture_that_names_a_rule_that_is_gone(lab: Lab) -> None:
    """Both the static guard and the run name the rule, and what is near is told in words."""
    rules = '[normalize]\nmint = [{ pattern = "^(one)$", as = "number" }]\n'
    lab.edit("snapshots/suite.toml", "[scenarios.hello]", f"{rules}\n[scenarios.hello]")
    lab.edit("snapshots/tools/session.jsonl", "Both ran", "Both {{ticket:1}} ran")
    shown = failures(lab.replay("tools"))
    assert "nothing gives the token {{ticket:1}} a value: no mint rule is named `ticket`" in shown
    assert "repeats {{ticket:1}}, and suite.toml has no mint rule named `ticket`" in shown
    assert "nearest recorded: turn 1, step 2, which says '" in shown
    assert "ask for more" not in shown and "a renamed `mint` rule" in shown


def test_what_a_refresh_gives_needs_no_recording(lab: Lab) -> None:
    """Only a missing fixture does."""
    for name in ("hello/stdout.expected.jsonl", "tools/requests.expected.jsonl"):
        (lab.snapshots / name).unlink()
    for name in ("system-prompt.expected.md", "tool-schemas.expected.json"):
        (lab.snapshots / "hello" / name).unlink()
    problems = [p for p in static_problems(lab.suite) if p.guard == "missing-file"]
    assert len(problems) == 3
    assert all("write it with `onetake refresh" in p.remedy for p in problems)
    assert red(lab.refresh()) == {} and red(lab.replay()) == {}
    (lab.snapshots / "hello/session.jsonl").unlink()
    [problem] = static_problems(lab.suite)
    assert "write it with `onetake record" in problem.remedy


def test_a_dry_run_says_would_write(lab: Lab) -> None:
    """Nothing is `written` that was not."""
    lab.edit("agent.yml", "careful engineer", "cautious engineer")
    lines = []
    for dry_run in (True, False):
        stream = io.StringIO()
        outcome = lab.refresh("hello", dry_run=dry_run)["hello"]
        Reporter(stream, "refresh", 1, environ={}, dry_run=dry_run).finished(outcome)
        lines.append(stream.getvalue())
    assert lines[0].startswith("[1/1] would write hello  ")
    assert lines[1].startswith("[1/1] written hello  ")
