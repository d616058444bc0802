"""What a red run tells one to do: one thing, the right one, and nothing that would be refused."""

from __future__ import annotations

import io
import json
import os

import pytest

from onetake.cli import main
from onetake.errors import UsageError
from onetake.snapshot.guard.static import static_problems
from onetake.snapshot.report import Reporter, failure_text
from onetake.snapshot.suites.repository import check_paths
from onetake.snapshot.suites.suite import load_suite
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


def test_a_recording_whose_agent_did_not_start_says_nothing_of_its_log(lab: Lab) -> None:
    """The agent may well keep one: it had no time to."""
    lab.break_agent("crash")
    outcome = lab.record("hello")["hello"]
    assert outcome.exit_code == 3
    assert [problem.guard for problem in outcome.verdict.problems] == ["drive"]
    assert "the agent fell over" in failure_text(outcome) and "session-store" not in failure_text(outcome)


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


def test_a_refused_recording_keeps_what_was_paid_for(lab: Lab) -> None:
    """The live run's log lies beside the replay's, and the report says where."""
    lab.break_agent("different_live")
    outcome = lab.record("hello")["hello"]
    kept = outcome.artifacts
    assert kept is not None and f"{kept.name} (what the model said is in live/)" in failure_text(outcome)
    said = (kept / "live/session.jsonl").read_text()
    assert "Hello again!" in said
    assert '"content":{' in (kept / "stdout.jsonl").read_text()
    assert '"contents":{' in (kept / "live/stdout.jsonl").read_text()
    assert (kept / "live/requests.jsonl").exists() and not (kept / "live/failure.txt").exists()
    lab.edit("agent.yml", "{kind: different_live}", "{kind: random_text}")
    assert "live/" not in failure_text(lab.replay("hello")["hello"]) and not (kept / "live").exists()


def test_the_model_is_not_asked_where_the_recording_could_not_be_kept(lab: Lab) -> None:
    """No pin, or no key: it is said before anything is paid for, with what to do."""
    lab.edit("snapshots/suite.toml", "pins_header = true", "")
    lab.edit("agent.yml", "models: [{id: lab-1}]", "models: [{id: lab-1}]\n    api_key_env: LAB_KEY")
    outcomes = lab.record("tools")
    assert outcomes["tools"].artifacts is None, "nothing ran"
    shown = failures(outcomes)
    assert "no scenario of the suite is a pin" in shown and "pins_header = true in [scenarios.hello]" in shown
    assert "agent.yml needs the variable LAB_KEY, and record does not pass it on" in shown
    assert '[agent] record_env = [..., "LAB_KEY"]' in shown
    lab.edit("snapshots/suite.toml", "[scenarios.hello]", "[scenarios.hello]\npins_header = true")
    lab.edit("snapshots/suite.toml", '["LAB_BASE_URL"]', '["LAB_BASE_URL", "LAB_KEY"]')
    outcomes = lab.record("tools")
    assert red(outcomes) == {"tools": {"input"}} and outcomes["tools"].exit_code == 2
    assert "LAB_KEY=... onetake record" in failures(outcomes)
    (lab.folder / ".env").write_text("LAB_KEY=none\n")
    outcomes = lab.record("tools")
    assert red(outcomes) == {}, failures(outcomes)


def test_recording_the_same_again_changes_nothing(lab: Lab) -> None:
    """Other gaps between the same chunks are no news."""
    lab.edit("snapshots/hello/session.jsonl", '"dt":[', '"dt":[7')
    before = lab.files()
    outcomes = lab.record("hello")
    assert red(outcomes) == {} and outcomes["hello"].verdict.written == []
    assert lab.changed_since(before) == set()


def test_refreshed_answers_of_another_model_are_told_of(lab: Lab) -> None:
    """Refresh writes the new name, because the harness sends it; who gave the answers is said once."""
    lab.edit("agent.yml", "lab-1", "lab-2")
    outcomes = lab.refresh()
    assert red(outcomes) == {}, failures(outcomes)
    stream = io.StringIO()
    reporter = Reporter(stream, "refresh", 5, environ={}, dry_run=False)
    for outcome in outcomes.values():
        reporter.finished(outcome)
    notes = [line for line in stream.getvalue().split("\n") if "note: " in line]
    assert len(notes) == 3, "what is authored was said by no model"
    assert "recorded from another model: what lab/lab-1 said now stands under lab/lab-2" in notes[0]
    assert "onetake record" in notes[0] and "-k hello" in notes[0]
    assert not any(outcome.verdict.notes for outcome in lab.refresh().values())


def test_a_damaged_log_is_restored_or_migrated(lab: Lab) -> None:
    """Each fault of a fixture says how to mend it, with the folder that the command takes."""
    path = lab.snapshots / "hello/session.jsonl"
    whole = path.read_bytes()
    migrate = f"`onetake migrate {os.path.relpath(path.parent)}`"
    restored = f"restore it from git; what an editor did to its line ends, {migrate} mends"
    for damaged, guard, remedy in (
        (whole.replace(b"\n", b"\r\n"), "unreadable", restored),
        (
            whole.replace(b'"createdAt":0', b'"createdAt":5'),
            "unscrubbed-header",
            f"rewrite it with {migrate}",
        ),
        (whole[:-1], "unreadable", restored),
    ):
        path.write_bytes(damaged)
        assert [(p.guard, p.remedy) for p in static_problems(lab.suite)] == [(guard, remedy)]
        assert main(["migrate", str(path.parent)]) == 0
        assert path.read_bytes() == whole


def test_an_overlay_is_named_by_its_place(lab: Lab) -> None:
    """It lies where the composition does, which is seldom the suite's folder."""
    overlay = lab.folder / "agent.snapshot.yml"
    overlay.write_text((lab.folder / "agent.yml").read_text())
    assert [p.file for p in static_problems(lab.suite)] == ["../agent.snapshot.yml"]
    assert [p.file for p in check_paths([lab.snapshots])] == [str(overlay)]
    overlay.unlink()
    [problem] = static_problems(lab.suite)
    assert "agent.snapshot.yml: cannot read the composition" in problem.message
    assert problem.remedy.startswith("restore it, or write it anew: `base: agent.yml`")
    (lab.folder / "agent.yml").unlink()
    assert {p.remedy for p in static_problems(lab.suite)} == {""}


def test_a_fault_in_a_script_of_many_lines_names_the_line(lab: Lab) -> None:
    script = lab.snapshots / "hello/input.json"
    script.write_text('{"steps": [\n  {"op": "initialize"},\n]}\n')
    with pytest.raises(UsageError, match=r"input\.json: line 3, column 1: expecting value"):
        load_suite(lab.snapshots)
