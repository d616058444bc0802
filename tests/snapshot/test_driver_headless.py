"""Driving an agent that takes one prompt, prints events and ends: every op, and every way to go wrong."""

from __future__ import annotations

import asyncio
import json
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from onetake.errors import UsageError
from onetake.snapshot.attempt import Outcome
from onetake.snapshot.drive.harvest import Harvest
from onetake.snapshot.render.transcript import render_events
from onetake.snapshot.run import run_all, select
from onetake.snapshot.suites.suite import Suite, load_suite
from tests.snapshot.driving import drive, make_suite, processes_in
from tests.snapshot.lab import failures, red

FAKE = Path(__file__).parent / "fake_headless.py"
EXAMPLE = Path(__file__).parents[2] / "examples/headless-agent"
SHORT = "timeout_s = 2"
"""Long enough for a loaded machine to start the fake agent, short enough to wait for."""
Step = dict[str, Any]

PROMPT: Step = {"op": "prompt", "text": "hello"}
FAILS: Step = {"op": "promptExpectError", "text": "fail"}
CANCELS: Step = {"op": "promptAndCancel", "text": "wait here", "waitForFile": {"path": "here"}}
WAITS: Step = {"op": "promptAndWaitForAgentMessage", "text": "wait here", "waitForText": "Waiting"}


def suite_of(folder: Path, *steps: Step, argument: bool = False, suite: str = "", **options: Any) -> Suite:
    """A suite with one scenario for the fake agent."""
    command = [sys.executable, str(FAKE), *(["{prompt}"] if argument else [])]
    suite = f'driver = "headless"\nsurfaces = ["stdout"]\n{suite}'
    return make_suite(folder, {"one": steps}, command=command, suite=suite, **options)


def run(folder: Path, *steps: Step, fake: str = "", suite: str = "", argument: bool = False) -> Harvest:
    """Run these steps once; what the run left is removed."""
    agent = f'env = {{ FAKE = "{fake}" }}' if fake else ""
    harvest = drive(suite_of(folder, *steps, agent=agent, suite=suite, argument=argument))
    harvest.discard()
    return harvest


def finished(harvest: Harvest, exit_code: int = 0) -> list[Step]:
    """The events of a run that went through."""
    assert harvest.error is None
    assert harvest.exit_code == exit_code
    return [json.loads(frame) for frame in harvest.frames]


def failed(harvest: Harvest, exit_code: int = 1) -> str:
    """The error of a run that did not go through."""
    assert harvest.error is not None
    assert harvest.error_exit == exit_code, harvest.error
    return harvest.error


@pytest.mark.parametrize("argument", [False, True])
@pytest.mark.parametrize("text", ["hello", "two\nlines -- \u00e4 {config}", "y" * 100_000])
def test_a_prompt_reaches_the_agent_as_it_is(tmp_path: Path, argument: bool, text: str) -> None:
    """On stdin, or where the command has a place for it."""
    harvest = run(tmp_path, {"op": "prompt", "text": text}, argument=argument)
    events = finished(harvest)
    assert events[-2]["message"]["content"][0]["text"] == text.upper()
    assert harvest.opened == [events[0]["sessionId"]]


@pytest.mark.parametrize(
    ("steps", "code"),
    [
        ([FAILS], 4),
        ([CANCELS], 130),
        ([WAITS, {"op": "waitForFile", "path": "here"}, {"op": "cancel"}], 130),
        ([WAITS, {"op": "cancel", "waitForFile": {"path": "here", "timeoutMs": 5000}}], 130),
        ([WAITS, {"op": "waitForTurnStart"}, {"op": "kill", "signal": "SIGTERM"}], 143),
        ([WAITS, {"op": "waitForFile", "path": "here"}, {"op": "kill"}], -9),
        ([{**WAITS, "text": "stay here", "waitForText": "Staying"}], 0),
    ],
)
def test_each_ending_is_what_the_script_says(tmp_path: Path, steps: list[Step], code: int) -> None:
    events = finished(run(tmp_path, *steps), code)
    assert (events[-1].get("exitCode") == code) is (code >= 0)


@pytest.mark.parametrize(
    ("fake", "steps", "message", "exit_code"),
    [
        ("", [{"op": "prompt", "text": "fail"}], "step 1 (prompt): the run failed: {", 1),
        ("", [{"op": "promptExpectError", "text": "x"}], "was to end with 'error', but it ended so: {", 1),
        ("completes", [CANCELS], "was to end with 'cancelled', but it ended so: {", 1),
        ("", [{**CANCELS, "text": "hi"}], "the prompt was answered before the file here appeared: {", 1),
        ("", [{**WAITS, "text": "hi"}], "the run was over before it said 'Waiting': {", 1),
        ("crash", [PROMPT], "the agent exited with code 9 while the runner awaited the result line", 3),
        ("no-result", [PROMPT], "the agent exited with code 0 while the runner awaited the result line", 3),
        ("other-code", [PROMPT], "exited with code 1, but its result line says exitCode 0", 1),
        ("other-code", [FAILS], "exited with code 5, but its result line says exitCode 4", 1),
        ("segfault", [PROMPT], "was killed by SIGSEGV, but its result line says exitCode 0", 3),
        ("late-line", [PROMPT], "stdout went on after the result line: b'one thing more'", 1),
        ("half-line", [PROMPT], "stdout ended in the middle of a line: b'{\"type\":'", 1),
        ("nameless-ending", [PROMPT], "the run failed: {", 1),
        ("open-turn", [PROMPT], "a turn is still open in a session log", 1),
        ("owes-notice", [PROMPT], "nobody has told it yet how these ended: agent-1", 1),
        ("other-code", [WAITS, {"op": "kill", "signal": "SIGTERM"}], "says exitCode 143", 1),
        ("", [WAITS, {"op": "kill", "signal": "SIGNOT"}], "'SIGNOT' is no signal of this system", 2),
    ],
)
def test_an_agent_that_does_not_play_along(
    tmp_path: Path, fake: str, steps: list[Step], message: str, exit_code: int
) -> None:
    error = failed(run(tmp_path, *steps, fake=fake), exit_code)
    assert message in error
    if fake == "crash":
        assert "    cannot find my configuration" in error


@pytest.mark.parametrize(
    ("fake", "steps", "message"),
    [
        ("hang", [PROMPT], "timed out after 2 s awaiting the agent to exit after its result line"),
        ("", [{"op": "prompt", "text": "wait x"}], "timed out after 2 s awaiting the result line"),
        ("ignores-signals", [CANCELS], "timed out after 2 s awaiting the result line"),
        ("", [{**WAITS, "waitForText": "else"}], "timed out after 2 s awaiting an agent message with 'else'"),
        ("no-session", [WAITS, {"op": "waitForTurnStart"}], "timed out after 2 s awaiting the session line"),
        ("", [WAITS, {"op": "waitForTurnEnd"}], "in the session log"),
    ],
)
def test_nothing_is_waited_for_without_end(
    tmp_path: Path, own_tmp: Path, fake: str, steps: list[Step], message: str
) -> None:
    """And nothing is left behind."""
    assert message in failed(run(tmp_path, *steps, fake=fake, suite=SHORT))
    assert not processes_in(own_tmp)


@pytest.mark.parametrize(
    ("steps", "message"),
    [
        ([{"op": "initialize"}], "step 1 (initialize): the suite's driver has no such op; its ops: prompt, "),
        ([PROMPT, {"op": "restart"}], "step 2 (restart): the suite's driver has no such op"),
        (
            [PROMPT, PROMPT],
            "step 2 (prompt): the run is over with step 1 (prompt); give each prompt a scenario of its own",
        ),
        ([WAITS, PROMPT], "step 2 (prompt): a run takes one prompt, and begins with it"),
        (
            [{"op": "waitForFile", "path": "x"}, PROMPT],
            "step 1 (waitForFile): a run takes one prompt, and be",
        ),
        ([PROMPT, {"op": "waitForTurnEnd"}], "step 2 (waitForTurnEnd): the run is over with step 1 (prompt)"),
        ([WAITS, {"op": "cancel"}, {"op": "kill"}], "step 3 (kill): the run is over with step 2 (cancel)"),
        (
            [{"op": "promptAndCancel", "text": "x"}],
            "step 1 (promptAndCancel): needs waitForFile: a signal bef",
        ),
        ([{"op": "prompt", "text": " "}], "step 1 (prompt): text: cannot be given to a process"),
        ([{"op": "prompt", "text": "a\0"}], "step 1 (prompt): text: cannot be given to a process"),
        ([{"op": "prompt", "text": "\ud83d"}], "step 1 (prompt): text: cannot be given to a process"),
    ],
)
def test_a_script_that_makes_no_sense_is_refused(tmp_path: Path, steps: list[Step], message: str) -> None:
    """When the suite is read, with file and place."""
    with pytest.raises(UsageError) as refused:
        suite_of(tmp_path, *steps)
    assert str(refused.value).startswith(f"{tmp_path}/one/input.json: {message}")


def test_permission_answers_make_no_sense(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"one/input\.json: permissionAnswers: the headless driver is never"):
        suite_of(tmp_path, PROMPT, answers=["allow_once"])


def test_the_transcript_takes_events_only() -> None:
    """A JSON value without a type is as stray as a print."""
    from onetake.fixture.normalize import Rules

    shown = render_events(
        [b'{"type":"a", "b":1}', b"hello", b"[]", b'{"type":1}', b'{"type":"c"}'],
        lambda value: value,
        Rules(),
    )
    assert shown.data == b'{"type":"a","b":1}\n{"type":"c"}\n'
    assert shown.stray == [
        "stdout line 2 is no event (a JSON object with a `type`): 'hello'",
        "stdout line 3 is no event (a JSON object with a `type`): '[]'",
        "stdout line 4 is no event (a JSON object with a `type`): '{\"type\":1}'",
    ]


# -- judged ----------------------------------------------------------------------------------------------


def outcomes(suite: Suite, mode: str = "replay", expression: str | None = None) -> dict[str | None, Outcome]:
    """Run a suite in a mode."""
    chosen = select([suite], expression)
    found = asyncio.run(run_all(chosen, mode, jobs=1, dry_run=False, on_outcome=lambda outcome: None))
    return {outcome.name: outcome for outcome in found}


@pytest.mark.parametrize(
    ("fake", "expected", "message"),
    [
        ("dropped-event", {"stdout"}, "HELLO"),
        ("stray", {"stray-output"}, "'a stray print'"),
        ("late-line", {"drive", "stray-output"}, "'one thing more'"),
        ("other-code", {"drive"}, "exitCode 0"),
        ("no-result", {"drive"}, "awaited the result line"),
        ("crash", {"drive"}, "cannot find my configuration"),
    ],
)
def test_a_fault_is_red_and_no_refresh_accepts_an_accident(
    tmp_path: Path, fake: str, expected: set[str], message: str
) -> None:
    suite = suite_of(tmp_path, PROMPT)
    assert red(outcomes(suite, "refresh")) == {}
    assert red(outcomes(suite)) == {}
    before = (tmp_path / "one/stdout.expected.jsonl").read_bytes()
    assert before.count(b"\n") == 6 and b"{{sessionId}}" in before
    suite_of(tmp_path, PROMPT, agent=f'env = {{ FAKE = "{fake}" }}')
    found = outcomes(load_suite(tmp_path))
    assert red(found)["one"] == expected, failures(found)
    assert message in failures(found)
    if fake != "dropped-event":
        assert red(outcomes(load_suite(tmp_path), "refresh")).keys() == {"one"}
        assert (tmp_path / "one/stdout.expected.jsonl").read_bytes() == before


FAULT = """\
from contextlib import asynccontextmanager

import msgspec


class FaultConfig(msgspec.Struct, forbid_unknown_fields=True):
    pass


@asynccontextmanager
async def fault(ctx, config: FaultConfig):
    from onetake.surfaces import headless

    headless.EXIT_CODES["error"] = 1
    of = headless.Events.of
    headless.Events.of = lambda self, event: [x for x in of(self, event) if x["type"] != "tool-result"]
    yield
"""


def test_a_change_of_our_own_agent_is_red(tmp_path: Path) -> None:
    """Another exit code shows although the process and its result agree on it; so does a lost event."""
    shutil.copytree(EXAMPLE, tmp_path / "agent")
    agent = tmp_path / "agent/agent.yml"
    agent.write_text(agent.read_text() + "- {id: fault, use: 'fault:fault'}\n")
    (tmp_path / "agent/fault.py").write_text(FAULT)
    found = outcomes(load_suite(tmp_path / "agent/tests/snapshots"), expression="provider-error or tool-turn")
    assert red(found) == {"provider-error": {"stdout"}, "tool-turn": {"stdout"}}, failures(found)
    assert '"exitCode":1' in failures(found) and '"type":"tool-result"' in failures(found)
