"""Each guard goes red for a suite or an agent that breaks its requirement, and says so."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from onetake import snapshot
from onetake.errors import UsageError
from onetake.snapshot.attempt import UNRUNNABLE
from onetake.snapshot.drive.harvest import Harvest, Leftover
from onetake.snapshot.findings import Problem
from onetake.snapshot.guard.contents import FAULT_GUARDS
from onetake.snapshot.guard.guards import GUARDS, STATIC_GUARDS, static_problems, suite_problems
from onetake.snapshot.mode import mode_from, refuse_in_ci
from onetake.snapshot.modes.judge import VIOLATION_GUARDS, harvest_problems
from onetake.snapshot.modes.record import record_scenario
from onetake.snapshot.run import select
from tests.snapshot.lab import OPENING, Lab, failures, red

Case = Callable[[Lab], str]
CASES: dict[str, list[Case]] = {}


def case(guard: str) -> Callable[[Case], Case]:
    """Register a way to break a guard; it returns what is reported then."""

    def register(function: Case) -> Case:
        CASES.setdefault(guard, []).append(function)
        return function

    return register


def static(lab: Lab) -> str:
    """The report of the static guards."""
    problems = static_problems(lab.suite)
    assert {problem.guard for problem in problems} <= set(STATIC_GUARDS)
    return "\n".join(problem.text() for problem in problems)


def of_harvest(lab: Lab, **facts: Any) -> str:
    """What is said about a run that went wrong in itself."""
    suite = lab.suite
    harvest = Harvest(scenario="hello", mode="replay", run_dir=lab.folder, workspace=lab.folder, **facts)
    return "\n".join(problem.text() for problem in harvest_problems(harvest, suite, suite.scenarios["hello"]))


def raised(work: Callable[[], object]) -> str:
    """The text of the usage error that must come."""
    with pytest.raises(UsageError) as caught:
        work()
    return str(caught.value)


def fixture(lab: Lab, old: str, new: str, scenario: str = "hello") -> str:
    """The static report after an edit of a fixture."""
    lab.edit(f"snapshots/{scenario}/session.jsonl", old, new)
    return static(lab)


def test_the_recorded_suite_breaks_no_guard(lab: Lab) -> None:
    """What record and refresh wrote is what the guards want."""
    assert static(lab) == ""


@case("no-scenarios")
def _no_scenario_selected(lab: Lab) -> str:
    return raised(lambda: select([lab.suite], "nothing-like-this")) + " [no-scenarios]"


@case("no-scenarios")
def _no_scenario_named(lab: Lab) -> str:
    text = (lab.snapshots / "suite.toml").read_text()
    (lab.snapshots / "suite.toml").write_text(text[: text.index("[scenarios.")])
    return static(lab)


@case("no-scenarios")
def _no_scenario_ran(lab: Lab) -> str:
    return "\n".join(problem.text() for problem in suite_problems(lab.suite, []))


def _without(name: str) -> Case:
    def breach(lab: Lab) -> str:
        (lab.snapshots / name).unlink()
        text = static(lab)
        assert name in text and ("write it with `onetake re" in text or name.endswith("override.json"))
        return text

    return breach


for _name in (
    "hello/session.jsonl",
    "hello/stdout.expected.jsonl",
    "hello/requests.expected.jsonl",
    "opened/session.jsonl",
    "fails/replay.override.json",
):
    case("missing-file")(_without(_name))


@case("missing-file")
def _pin_without_sidecars(lab: Lab) -> str:
    (lab.snapshots / "hello/system-prompt.expected.md").unlink()
    (lab.snapshots / "hello/tool-schemas.expected.json").unlink()
    return static(lab)


@case("orphan-folder")
def _folder_that_no_table_names(lab: Lab) -> str:
    (lab.snapshots / "forgotten").mkdir()
    return static(lab)


def _with(name: str, text: str = "x") -> Case:
    def breach(lab: Lab) -> str:
        (lab.snapshots / name).write_text(text)
        return static(lab)

    return breach


for _name in (
    "hello/notes.txt",
    "hello/replay.override.json",
    "hello/workspace.expected.jsonl",
    "hello/session.2.jsonl",
    "tools/system-prompt.expected.md",
    "session.jsonl",
):
    case("orphan-file")(_with(_name))

case("unreadable")(_with("hello/session.jsonl", "no json\n"))
case("unreadable")(_with("hello/stdout.expected.jsonl", "no json\n"))
case("unreadable")(_with("hello/tool-schemas.expected.json", "[{]"))
case("override")(_with("fails/replay.override.json", "no json"))
case("override")(_with("fails/replay.override.json", '[{"kind": "shrug"}]'))


@case("override")
def _patch_beyond_the_script(lab: Lab) -> str:
    entry = {"kind": "throw", "chunks": [], "message": "down", "code": "X"}
    (lab.snapshots / "fails/replay.override.json").write_text(
        json.dumps({"patches": [{"at": 9, "entry": entry}]})
    )
    assert red(lab.replay("fails")) == {"fails": {"override"}}, "no agent is started"
    return static(lab)


@case("override")
def _patch_twice(lab: Lab) -> str:
    patch = {"at": 0, "entry": {"kind": "hang"}}
    (lab.snapshots / "fails/replay.override.json").write_text(json.dumps({"patches": [patch, patch]}))
    return static(lab)


@case("unreadable")
def _overlay_that_is_no_yaml(lab: Lab) -> str:
    (lab.folder / "agent.snapshot.yml").write_text("base: [")
    return static(lab)


@case("mode")
def _misspelt_mode(lab: Lab) -> str:
    return raised(lambda: mode_from({"ONETAKE_SNAPSHOT": "refesh"})) + " [mode]"


@case("ci")
def _refresh_in_ci(lab: Lab) -> str:
    return raised(lambda: refuse_in_ci("refresh", {"CI": "1"})) + " [ci]"


@case("log-op")
def _wait_for_a_log_that_is_not_there(lab: Lab) -> str:
    lab.edit("snapshots/suite.toml", '["requests", "stdout", "log"]', '["requests", "stdout"]')
    script = {"steps": [{"op": "initialize"}, {"op": "newSession"}, {"op": "waitForTurnEnd"}]}
    (lab.snapshots / "hello/input.json").write_text(json.dumps(script))
    return static(lab)


@case("non-canonical")
def _crlf(lab: Lab) -> str:
    path = lab.snapshots / "hello/stdout.expected.jsonl"
    path.write_bytes(path.read_bytes().replace(b"\n", b"\r\n"))
    return static(lab)


@case("non-canonical")
def _no_newline_at_the_end(lab: Lab) -> str:
    path = lab.snapshots / "hello/requests.expected.jsonl"
    path.write_bytes(path.read_bytes().rstrip(b"\n"))
    return static(lab)


@case("non-canonical")
def _reformatted_schemas(lab: Lab) -> str:
    path = lab.snapshots / "hello/tool-schemas.expected.json"
    path.write_text(json.dumps(json.loads(path.read_text())))
    return static(lab)


case("non-canonical")(
    lambda lab: fixture(lab, '{"type":"turn/start","data"', '{"type":"turn/start","time":5,"data"')
)
case("unscrubbed-header")(lambda lab: fixture(lab, '"createdAt":0', '"createdAt":1783600629539'))
case("unscrubbed-header")(lambda lab: fixture(lab, '"{{system:hello}}"', '"You are an agent."', "tools"))
case("not-fixed-point")(lambda lab: fixture(lab, "{{msg:0.1}}", "3e25dc34-48e0-4738-8401-1a8d181d37e5"))
case("unscrubbed-header")(lambda lab: fixture(lab, "{{sessionId}}", "3e25dc34-48e0-4738-8401-1a8d181d37e5"))
case("unknown-token")(lambda lab: fixture(lab, "Say hello.", "Say {{commit:1}}."))
case("underivable")(
    lambda lab: fixture(
        lab, '"chunk":{"type":"finish","reason":{"kind":"stop"}}', '"chunk":{"type":"usage","usage":{}}'
    )
)
case("model-input")(lambda lab: fixture(lab, '"texts":["He","ll","o!"', '"texts":["He","lp","o!"'))
case("secret")(lambda lab: fixture(lab, "Say hello.", "Say sk-4bcdefghijklmnopqrstuvwx."))


@case("duplicate-sidecar")
def _second_pin_with_the_same_prompt(lab: Lab) -> str:
    lab.edit("snapshots/suite.toml", "[scenarios.tools]", "[scenarios.tools]\npins_header = true")
    prompt = (lab.snapshots / "hello/system-prompt.expected.md").read_bytes()
    (lab.snapshots / "tools/system-prompt.expected.md").write_bytes(prompt)
    return static(lab)


case("unknown-pin")(lambda lab: fixture(lab, "{{system:hello}}", "{{system:nobody}}", "tools"))


@case("unknown-pin")
def _a_pin_of_that_name_that_holds_a_prompt_only(lab: Lab) -> str:
    (lab.snapshots / "hello/tool-schemas.expected.json").unlink()
    return static(lab)


@case("unpinned-header")
def _no_pin_at_all(lab: Lab) -> str:
    lab.edit("snapshots/suite.toml", "pins_header = true", "")
    for name in ("system-prompt.expected.md", "tool-schemas.expected.json"):
        (lab.snapshots / "hello" / name).unlink()
    outcomes = lab.replay("tools")
    assert red(outcomes)["tools"] >= {"unpinned-header"}
    assert "make the first scenario the pin, and write it first: pins_header = true in [scenarios.hello]" in (
        failures(outcomes)
    )
    assert "make this scenario the pin" in failures(lab.replay("hello"))
    return failures(outcomes) + static(lab)


@case("empty-pin")
def _pin_that_names_another(lab: Lab) -> str:
    lab.edit("snapshots/suite.toml", "[scenarios.tools]", "[scenarios.tools]\npins_header = true")
    before = lab.files()
    assert red(lab.refresh("tools")) == red(lab.record("tools")) == red(lab.replay("tools"))
    assert lab.changed_since(before) == set()
    for text in (failures(lab.refresh("tools")), static(lab)):
        assert "the same header as pin hello" in text
        assert "remove pins_header from [scenarios.tools]" in text
    return text


@case("empty-pin")
def _pin_that_sends_nothing(lab: Lab) -> str:
    lab.edit("snapshots/suite.toml", "[scenarios.opened]", "[scenarios.opened]\npins_header = true")
    return failures(lab.refresh("opened"))


@case("pin-clash")
def _two_texts_of_one_name(lab: Lab) -> str:
    shutil.copytree(lab.snapshots / "hello", lab.snapshots / "hello.1")
    lab.edit(
        "snapshots/suite.toml",
        "[scenarios.echo]",
        '[scenarios."hello.1"]\npins_header = true\n\n[scenarios.echo]',
    )
    (lab.snapshots / "hello/system-prompt.1.expected.md").write_text("Another one.\n")
    with pytest.raises(UsageError, match="rename that scenario"):
        lab.replay("echo")
    return static(lab)


@case("pin-clash")
def _two_scenarios_that_would_write_one_sidecar(lab: Lab) -> str:
    text = (lab.folder / "agent.yml").read_text()
    (lab.folder / "other.yml").write_text(text.replace("careful", "bold"))
    overlay = (lab.folder / "agent.snapshot.yml").read_text().replace("agent.yml", "other.yml")
    (lab.folder / "other.snapshot.yml").write_text(overlay)
    lab.edit("snapshots/suite.toml", "[scenarios.tools]", '[scenarios.tools]\nconfig = "../other.yml"')
    lab.edit("agent.yml", "careful", "cautious")
    before = lab.files()
    outcomes = lab.refresh("hello or tools")
    assert red(outcomes) == {"tools": {"pin-clash"}}
    assert lab.changed_since(before) == {"hello/system-prompt.expected.md"}
    shown = failures(outcomes)
    assert "- You are a cautious engineer." in shown and "+ You are a bold engineer." in shown
    assert "make this scenario a pin too: pins_header = true in [scenarios.tools]" in shown
    assert red(lab.refresh("tools")) == {"tools": {"unpinned-header"}}, "alone, the pin may lag behind"
    return shown


@case("unused-pin")
def _pin_that_nothing_names(lab: Lab) -> str:
    lab.edit("snapshots/suite.toml", "[scenarios.opened]", "[scenarios.opened]\npins_header = true")
    (lab.snapshots / "opened/system-prompt.expected.md").write_text("A prompt of old.\n")
    suite = lab.suite
    outcomes = lab.replay()
    outcomes.pop(None)
    # The surplus file is a difference of its own scenario; the suite-wide check sees that no header names it.
    assert red(outcomes) == {"opened": {"pins"}}
    return "\n".join(
        p.text() for p in suite_problems(suite, [outcome.verdict for outcome in outcomes.values()])
    )


@case("unused-rule")
def _rule_that_matches_nothing(lab: Lab) -> str:
    rules = '[normalize]\nmint = [{ pattern = "commit ([0-9a-f]+)", as = "commit" }]\n'
    rules += '[normalize.stdout]\ndrop = ["result.nothing"]\nmask = [{ pattern = "never", with = "N" }]\n'
    lab.edit("snapshots/suite.toml", "[scenarios.hello]", f"{rules}\n[scenarios.hello]")
    outcomes = lab.replay()
    assert red(outcomes) == {None: {"unused-rule"}}, failures(outcomes)
    assert all(rule in failures(outcomes) for rule in ("mint[0]", "stdout.drop[0]", "stdout.mask[0]"))
    assert red(lab.replay("hello")) == {}, "a part of the suite proves nothing about use"
    return failures(outcomes)


def _overlay(patch: str) -> Case:
    def breach(lab: Lab) -> str:
        path = lab.folder / "agent.snapshot.yml"
        path.write_text(path.read_text() + patch)
        outcomes = lab.refresh("hello")
        assert red(outcomes) == {"hello": {"overlay"}}, "a writing mode refuses it too"
        return static(lab)

    return breach


for _patch in (
    "  - {id: shell, disabled: true}\n",
    "  - {id: prompt, config: {sections: []}}\n",
    "  - insert: [{id: more, use: faults:fault, config: {kind: none}}]\n",
    "  - insert: [{id: twice, use: replay}]\n",
    "  - {id: model, disabled: false}\n",
    "  - {id: model, config: {id: lab, base_url: x, models: [{id: lab-2}]}}\n",
    "  - {id: replay, config: {providers: [{id: lab, models: [{id: lab-1, max_output: 5}]}]}}\n",
    "  - {id: replay, config: {providers: [{id: other, models: [x]}]}}\n",
):
    case("overlay")(_overlay(_patch))


@case("overlay")
def _overlay_of_another_file(lab: Lab) -> str:
    (lab.folder / "agent.snapshot.yml").write_text((lab.folder / "agent.yml").read_text())
    return static(lab)


@case("overlay")
def _overlay_that_wakes_a_row(lab: Lab) -> str:
    lab.edit("agent.yml", "- {id: shell, use: bash}", "- {id: shell, use: bash, disabled: true}")
    path = lab.folder / "agent.snapshot.yml"
    path.write_text(path.read_text() + "  - {id: shell, disabled: false}\n")
    return static(lab)


@case("plugin")
def _replay_that_is_something_else(lab: Lab) -> str:
    lab.edit("agent.snapshot.yml", "use: replay", "use: faults:replay")
    return static(lab)


@case("drive")
def _agent_that_crashes(lab: Lab) -> str:
    lab.break_agent("crash")
    return failures(lab.replay("hello"))


@case("input")
def _program_that_is_missing(lab: Lab) -> str:
    lab.edit("snapshots/suite.toml", '"onetake", "acp"', '"no-such-agent", "acp"')
    return failures(lab.replay("hello"))


@case("internal")
def _runner_that_fails(lab: Lab) -> str:
    async def broken(*arguments: Any, **options: Any) -> Any:
        raise RuntimeError("a bug")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("onetake.snapshot.attempt.execute", broken)
        return failures(lab.replay("hello"))


@case("stray-output")
def _print(lab: Lab) -> str:
    lab.break_agent("stray_print")
    return failures(lab.replay("hello"))


def _violation(kind: str) -> Case:
    line = {
        "kind": kind,
        "session": "s",
        "call": 3,
        "message": "the recording has 2",
        "nearest": "turn 1, step 1",
    }
    return lambda lab: of_harvest(lab, violations=[line])


for _kind in ("extra-call", "unbound-session", "unknown-token", "no-match"):
    case(_kind)(_violation(_kind))


def steps(lab: Lab, *steps: dict[str, Any]) -> str:
    """What is red when the script of `hello` is another one; a refresh is refused, and leaves every byte."""
    (lab.snapshots / "hello/input.json").write_text(json.dumps({"steps": [*OPENING, *steps]}))
    before = lab.files()
    refused = lab.refresh("hello")
    assert lab.changed_since(before) == set()
    return failures(refused)


HELLO, AGAIN = {"op": "prompt", "text": "Say hello."}, {"op": "prompt", "text": "And again."}


@case("extra-call")
def _prompt_too_many(lab: Lab) -> str:
    return steps(lab, HELLO, AGAIN, AGAIN)


@case("extra-call")
def _prompt_too_many_where_an_error_is_expected(lab: Lab) -> str:
    text = steps(lab, HELLO, AGAIN, {"op": "promptExpectError", "text": "More."})
    assert "session 0, call 3" in text and "nearest recorded" in text
    return text


@case("leftover")
def _prompt_too_few(lab: Lab) -> str:
    return steps(lab, HELLO)


@case("unbound-session")
def _session_that_was_not_recorded(lab: Lab) -> str:
    return steps(lab, HELLO, AGAIN, {"op": "newSession"}, HELLO)


@case("unknown-token")
def _answer_with_a_value_that_this_run_does_not_have(lab: Lab) -> str:
    rules = '[normalize]\nmint = [{ pattern = "commit ([0-9a-f]+)", as = "commit" }]\n'
    lab.edit("snapshots/suite.toml", "[scenarios.hello]", f"{rules}\n[scenarios.hello]")
    lab.edit("snapshots/hello/session.jsonl", "Hello again!", "Hello {{commit:1}}!")
    assert static(lab) == "", "the rule might give it a value"
    return failures(lab.replay("hello"))


case("unused-answer")(lambda lab: of_harvest(lab, unused_answers=["allow_once", "reject_once"]))
case("violation")(_violation("something new"))
case("left-running")(lambda lab: of_harvest(lab, left_running=["sleep 300"]))
case("leftover")(lambda lab: of_harvest(lab, leftovers=[Leftover(0, "session.jsonl", 2, 1)]))


@case("no-match")
def _override_that_asks_for_what_is_not_there(lab: Lab) -> str:
    text = [{"type": "block-start", "index": 0, "blockType": "text"}]
    text += [{"type": "text-delta", "index": 0, "text": "{{fromRequest:job-[0-9]+}}"}]
    entry = {"kind": "throw", "message": "down", "code": "X", "chunks": text}
    (lab.snapshots / "fails/replay.override.json").write_text(json.dumps([entry]))
    return failures(lab.replay("fails"))


@case("unknown-tool")
def _tool_that_is_gone(lab: Lab) -> str:
    lab.break_agent("lost_tool")
    return failures(lab.replay("tools"))


@case("nonce")
def _part_of_a_path(lab: Lab) -> str:
    lab.break_agent("nonce_on_stdout")
    return failures(lab.replay("hello"))


@case("authored")
def _recording_an_authored_scenario(lab: Lab) -> str:
    async def never(mode: str, scenario: object, folder: Path) -> Any:
        raise AssertionError

    suite = lab.suite
    verdict = asyncio.run(record_scenario(never, suite.scenarios["fails"], suite))
    return "\n".join(problem.text() for problem in verdict.problems)


@case("no-log")
def _nothing_to_record(lab: Lab) -> str:
    (lab.snapshots / "hello/input.json").write_text('{"steps": [{"op": "initialize"}]}')
    return failures(lab.record("hello"))


@case("unstable")
def _live_run_that_its_replay_does_not_repeat(lab: Lab) -> str:
    lab.break_agent("different_live")
    return failures(lab.record("hello"))


@case("unstable")
def _replays_that_disagree(lab: Lab) -> str:
    lab.break_agent("second_replay")
    return failures(lab.record("hello"))


@case("chunks-changed")
def _agent_that_logs_something_else(lab: Lab) -> str:
    lab.break_agent("changed_chunks")
    return failures(lab.refresh("hello"))


def reported() -> set[str]:
    """The ids of the problems that our modules can report."""
    found = set(FAULT_GUARDS.values()) | VIOLATION_GUARDS | {str(fault) for fault in UNRUNNABLE}
    for path in Path(snapshot.__file__).parent.rglob("*.py"):
        text = path.read_text()
        found |= set(
            re.findall(r'(?:guard=|report\.add\(|_problem\(|_broken\(scenario,)\s*"([a-z-]+)"', text)
        )
        found |= set(re.findall(r'guard(?:, message)? = "([a-z-]+)"', text))
    return found


def test_every_guard_has_a_case_that_breaks_it() -> None:
    """A requirement without a test is a wish; a test for no requirement is a leftover."""
    assert set(CASES) == set(GUARDS)
    assert all(
        re.fullmatch(r"[a-z]+(-[a-z]+)*", name) and guard.requires.endswith(".")
        for name, guard in GUARDS.items()
    )
    assert {guard.section for guard in GUARDS.values()} == {6, 7, 8, 9}


def test_every_problem_that_is_reported_is_registered() -> None:
    """An id that nobody registered has no test that it goes red."""
    assert reported() <= set(GUARDS)
    # These are spelt in a way of their own: raised as errors, or put together.
    assert set(GUARDS) - reported() <= {"mode", "ci", "unstable", "violation", "overlay"}


def test_a_static_guard_is_what_check_can_report() -> None:
    """And nothing else (`static` sees to that): pytest shows one test for each."""
    assert set(FAULT_GUARDS.values()) <= set(STATIC_GUARDS)
    assert not VIOLATION_GUARDS - {"unknown-token"} & set(STATIC_GUARDS)


def test_guards_of_a_surface_that_is_not_compared_are_quiet(lab: Lab) -> None:
    """A suite that compares stdout alone says nothing about logs, requests and pins."""
    lab.edit("snapshots/suite.toml", '["requests", "stdout", "log"]', '["stdout"]')
    lab.edit("snapshots/hello/session.jsonl", '"createdAt":0', '"createdAt":17')
    lab.edit("snapshots/hello/session.jsonl", "{{msg:0.1}}", "3e25dc34-48e0-4738-8401-1a8d181d37e5")
    lab.edit("snapshots/tools/session.jsonl", "{{system:hello}}", "{{system:nobody}}")
    for path in [
        *lab.snapshots.glob("*/requests.expected.jsonl"),
        *lab.snapshots.glob("hello/*-*.expected.*"),
    ]:
        path.unlink()
    assert static(lab) == ""
    lab.edit("agent.yml", "careful", "cautious")
    assert red(lab.replay()) == {}


@pytest.mark.parametrize(
    ("guard", "number"),
    [(guard, number) for guard, breaches in CASES.items() for number in range(len(breaches))],
)
def test_a_breach_is_reported(lab: Lab, guard: str, number: int) -> None:
    """The report holds the guard's id, and more than that."""
    text = CASES[guard][number](lab)
    assert f"[{guard}]" in text, text
    assert len(text) > 40


def test_a_problem_says_where_and_what_to_do() -> None:
    """Place, message, guard, remedy."""
    problem = Problem(
        guard="g", scenario="s", surface="log", file="s/f", message="it is so", remedy="do this"
    )
    assert problem.text() == "s/log: s/f: it is so [g]\n  remedy: do this"
    assert Problem(guard="g", message="it is so").text() == "it is so [g]"
