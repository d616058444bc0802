"""One broken agent per check: each flaw is found, made small and named; a sound agent passes."""

from __future__ import annotations

import os
import re
import sys
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import pytest

from onetake.errors import AgentError, UsageError
from onetake.testing.fuzz.campaign import Plan, fuzz, run_again, run_once
from onetake.testing.fuzz.client import Bounds, Outcome
from onetake.testing.fuzz.shrink import HELLO
from onetake.testing.fuzz.steps import (
    STRAYS,
    AwaitModel,
    Cancel,
    Case,
    NewSession,
    Pause,
    Prompt,
    Restart,
    Settle,
    Step,
    Stray,
)
from onetake.testing.fuzz.target import MODEL_URL, Target
from tests.fuzz.targets import PATIENT, broken

TOLD = Prompt(0, HELLO)
CALL: dict[str, Any] = {"toolCalls": [{"name": "touch", "arguments": {}}]}
HANG = {"hang": True}
FAIL = {"error": {"status": 400}}


def find(flaw: str, bounds: Bounds = PATIENT) -> tuple[str, Case]:
    """Fuzz the agent with a flaw; the message of the finding without stderr, and the shrunk case."""
    report = fuzz(broken(flaw), bounds, Plan(steps=600, seed=3))
    assert report.found is not None
    return report.found.text.split("\n")[0], report.found.case


def test_a_sound_agent_passes() -> None:
    """A checker that is never content is of no use."""
    report = fuzz(broken("none"), PATIENT, Plan(steps=60, seed=3))
    assert report.found is None, report.found
    assert report.steps >= 60 and report.ends["end_turn"] and report.ends["cancelled"]


@pytest.mark.parametrize(
    ("flaw", "steps", "replies", "message"),
    [
        ("no-session-id", [], 0, "live-sessions: at the start: session/new gave no `sessionId`: {}"),
        (
            "same-session",
            [NewSession()],
            0,
            "live-sessions: in step 1 (newSession): * gave 's', which is open *",
        ),
        ("stranger-update", [], 0, "live-sessions: * came for session 'stranger', which is not open"),
        ("no-stop-reason", [], 0, "stop-reason: * session/prompt was answered with {}; *"),
        ("junk", [], 0, "pure-stdout: in the plain prompts at the end: a line is not JSON *: 'debug: here'"),
        ("banner", [], 0, "pure-stdout: at the start: a line is not JSON *: 'Welcome!'"),
        ("half-line", [], 0, "alive: * the agent exited with code 0 while the answer to * was awaited"),
        ("sticky", [TOLD], 1, "recovers: * a plain prompt to session 's*' was refused: it failed before"),
        ("dies", [TOLD], 0, "alive: * the agent exited with code 1 while the answer to * was awaited"),
        (
            "exit-code",
            [],
            0,
            "exits: * it exited with code 3 after the end of its input; it must exit with 0",
        ),
        ("unfinished", [], 0, "pure-stdout: * stdout ends in the middle of a line: b'bye'"),
        ("orphan", [], 0, "no-orphans: * it exited, and left running: sleep 30"),
        ("answers-twice", [TOLD], 1, "answers-once: * an answer to no open request came: *the model failed*"),
    ],
)
def test_a_flaw_is_found_and_shrunk(flaw: str, steps: list[Step], replies: int, message: str) -> None:
    """What is left is what it takes."""
    text, case = find(flaw)
    assert fnmatchcase(text, message), text
    assert (case.steps, len(case.replies)) == (steps, replies)


def test_a_cancel_that_ends_nothing_is_found() -> None:
    """Every wait has a bound; on a loaded machine the script may do with other steps."""
    text, case = find("cancel-hangs", Bounds(answer=120, cancel=0.15, exit=60))
    assert fnmatchcase(text, "cancel-settles: * after it was cancelled did not come within 0.15 s"), text
    assert 1 <= len(case.steps) <= 3 and len(case.replies) <= 2


def test_an_agent_that_stays_is_found() -> None:
    """And ended."""
    text, case = find("ignores-eof", Bounds(answer=120, cancel=60, exit=0.3))
    assert text == "exits: at the end: it still runs 0.3 s after the end of its input"
    assert case.steps == []


def test_an_answer_that_never_comes_is_found() -> None:
    """Every wait has a bound."""
    text, case = find("never-answers", Bounds(answer=2, cancel=60, exit=60))
    assert re.fullmatch(r"answers-once: .* of session 's\d+-1' did not come within 2 s", text)
    assert case.steps == []


@pytest.mark.parametrize(
    ("flaw", "case", "message"),
    [
        ("ignores-unknown", Case([Stray("request")]), "answer to _onetake/unknown did not come within 2 s"),
        (
            "ignores-unknown",
            Case([Stray("prompt")]),
            "session/prompt of session 'no-such-session' did not come",
        ),
        ("hangs-on-reject", Case([TOLD], ["reject_once"], [CALL]), "did not come within 2 s"),
        ("hangs-on-reject", Case([TOLD, Cancel(0)], ["reject_once"], [CALL]), None),
        ("hangs-on-reject", Case([TOLD], ["allow_once"], [CALL]), None),
        ("dies-idle", Case([TOLD, Pause(60_000)]), "exited with code 1 while nothing was asked of it"),
    ],
)
def test_a_flaw_shows_in_a_case_that_reaches_it(flaw: str, case: Case, message: str | None) -> None:
    """And in no other."""
    bounds = PATIENT if message is None else Bounds(answer=2, cancel=60, exit=60)
    finding = run_once(case, broken(flaw), bounds, Outcome())
    assert (finding is None) if message is None else (finding is not None and message in str(finding)), (
        finding
    )


@pytest.mark.parametrize(
    ("case", "ends"),
    [
        (Case([TOLD, Settle(0), TOLD], [], [FAIL]), {"error": 1, "end_turn": 1}),
        (Case([TOLD, AwaitModel(), Cancel(0), Settle(0)], [], [HANG]), {"cancelled": 1}),
        (Case([TOLD, Settle(0), AwaitModel(), Cancel(0)], [], [HANG]), {"cancelled": 1}),
        (Case([TOLD, Settle(0)], ["held"], [CALL]), {"cancelled": 1}),
        (Case([TOLD, TOLD], ["cancelled", "reject_always"], [CALL, CALL]), {"cancelled": 2}),
        (
            Case([NewSession(), TOLD, Prompt(1, HELLO), Pause(99)], ["held"] * 2, [CALL, CALL]),
            {"cancelled": 2},
        ),
        (Case([TOLD, Pause(99), Cancel(0), Settle(0)], ["held"], [CALL]), {"cancelled": 1}),
        (Case([TOLD], ["allow_once"], [CALL]), {"end_turn": 1}),
        (Case([Stray(what) for what in STRAYS]), {}),
        (Case([TOLD, Settle(0), Restart("eof"), TOLD, Settle(0), Restart("kill"), TOLD]), {"end_turn": 3}),
        (Case([TOLD, Pause(50), Restart("eof")], ["held"], [CALL]), {}),
        (Case([Prompt(0, [{"type": "text", "text": "\ud800"}])]), {"end_turn": 1}),
    ],
)
def test_a_sound_agent_passes_what_the_script_says(case: Case, ends: dict[str, int]) -> None:
    """Each step does what it is for, as the ends of the prompts tell."""
    outcome = Outcome()
    assert run_once(case, broken("none"), PATIENT, outcome) is None
    assert outcome.ends == ends
    assert outcome.capabilities["loadSession"] is True


@pytest.mark.parametrize("flaw", ["cannot-load", "no-auth"])
def test_an_agent_may_refuse_a_session(flaw: str) -> None:
    """One that cannot be loaded is replaced; where none can be had, prompts are left out."""
    steps: list[Step] = [TOLD, Settle(0), Cancel(0), Restart("kill"), TOLD]
    outcome = Outcome()
    assert run_once(Case(steps), broken(flaw), PATIENT, outcome) is None
    assert outcome.ends == ({"end_turn": 2} if flaw == "cannot-load" else {})


def test_other_questions_of_an_agent_are_refused() -> None:
    """The client said that it has no files to offer."""
    assert run_once(Case([TOLD], [], [CALL]), broken("reads"), PATIENT, Outcome()) is None


@pytest.mark.parametrize(
    ("flaw", "message"),
    [
        ("does-not-start", r"exited with code 1 while the answer to initialize was .*\n.*\n.*no licence"),
        ("refuses", "initialize was refused: not today"),
        ("no-auth", "did not ask the scripted model .*session/new: log in first"),
        ("no-model", "the agent did not ask the scripted model .* is its base URL {{gateway.openai}}"),
        ("model-fails", "the agent cannot answer a plain prompt: session/prompt: the model failed"),
    ],
)  # fmt: skip
def test_an_agent_that_cannot_say_hello_is_an_error(flaw: str, message: str) -> None:
    """It would pass every check; so nothing is fuzzed, and the reason is given."""
    with pytest.raises(AgentError, match=message) as error:
        fuzz(broken(flaw), PATIENT, Plan())
    assert not str(error.value).startswith("starts")


def test_a_program_that_is_not_there_is_an_error() -> None:
    """With its name."""
    with pytest.raises(AgentError, match="could not be started: no-such-agent"):
        fuzz(Target(["no-such-agent", MODEL_URL]), PATIENT, Plan())


def test_an_agent_that_cannot_be_told_its_model_is_wrong_usage(tmp_path: Path) -> None:
    """The message says where the URL can go."""
    with pytest.raises(UsageError, match=r"nothing tells the agent its model: put {{gateway"):
        fuzz(Target(["agent"], {"URL": "http://127.0.0.1"}), PATIENT, Plan())
    with pytest.raises(UsageError, match="nowhere is not a directory"):
        run_again(Case(), Target(["agent", MODEL_URL], cwd=tmp_path / "nowhere"), PATIENT, 1)


def test_an_agent_sees_nothing_of_the_environment_but_what_it_is_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where it works and what it knows is the caller's choice."""
    monkeypatch.setenv("SECRET_KEY", "sk-1")
    monkeypatch.chdir(tmp_path)
    agent = tmp_path / "agent"
    agent.write_text('#!/bin/sh\nenv > seen\nexec "$@"\n')
    agent.chmod(0o755)
    work = tmp_path / "work"
    work.mkdir()
    target = broken("none")
    # A relative program is one of here, not of the folder that the agent works in.
    assert (
        run_once(Case([TOLD]), Target(["./agent", *target.command], {"MINE": "1"}, work), PATIENT, Outcome())
        is None
    )
    seen = dict(line.split("=", 1) for line in (work / "seen").read_text().splitlines())
    assert seen["MINE"] == "1" and "SECRET_KEY" not in seen
    assert seen["HOME"] != os.environ["HOME"] and seen["PATH"].startswith(os.path.dirname(sys.executable))
