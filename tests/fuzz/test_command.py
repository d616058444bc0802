"""`onetake fuzz`: what it prints, saves and answers with."""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path

import pytest

from onetake import cli
from onetake.cli import fuzz as command
from onetake.testing.fuzz.campaign import Found
from onetake.testing.fuzz.judge import CHECKS
from onetake.testing.fuzz.saved import save
from onetake.testing.fuzz.steps import Case
from onetake.testing.fuzz.target import MODEL_URL
from tests.fuzz.targets import broken

Printed = pytest.CaptureFixture[str]


def agent(flaw: str) -> list[str]:
    """The command of an agent with that flaw, whose model is told by a variable."""
    return ["--", "sh", "-c", shlex.join([*broken(flaw).command[:-1]]) + ' "$MODEL_URL"']


TELL = ["--env", f"MODEL_URL={MODEL_URL}"]


def test_a_finding_is_printed_saved_and_found_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Printed
) -> None:
    """What is printed last is the command that runs it again; once the agent is mended it finds nothing."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(command, "_EVERY_S", 0)
    options = ["--seed", "5", "--steps", "500", "--agent-cwd", str(tmp_path)]
    assert cli.main(["fuzz", *options, *TELL, *agent("dies")]) == 1
    out, err = capsys.readouterr()
    assert out.startswith(
        "finding: alive: in the plain prompts at the end: the agent exited with code 1 while "
    )
    assert "    cannot count to two\nscript:\n  1. " in out  # the end of stderr, then the script
    assert '  1. {"op":"prompt","session":0,"content":[{"type":"text","text":"hello"}]}\n' in out
    assert (
        "seed: 5\nsaved: .onetake/fuzz/alive\nagain: onetake fuzz --again .onetake/fuzz/alive --env " in out
    )
    assert "onetake fuzz: 500 steps with seed 5\n" in err
    assert "onetake fuzz: found alive; shrinking: 1 step left\n" in err
    assert "onetake fuzz: found alive; " in err.splitlines()[-1]

    again = shlex.split(out.partition("again: onetake ")[2])
    assert cli.main(again) == 1
    assert capsys.readouterr().out.startswith("finding: alive: ")
    assert cli.main([*again[: again.index("--")], *agent("none")]) == 0
    assert capsys.readouterr().err == "onetake fuzz: nothing was found in 5 runs of .onetake/fuzz/alive\n"
    assert os.listdir(tmp_path) == [".onetake"]


def test_a_finding_without_a_step_says_what_is_enough(tmp_path: Path, capsys: Printed) -> None:
    """An empty script would look like a defect of ours."""
    assert cli.main(["fuzz", "--save", str(tmp_path), *TELL, *agent("exit-code")]) == 1
    assert "script:\n  (no step: to start the agent, " in capsys.readouterr().out


def test_nothing_found_is_told_with_what_was_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Printed
) -> None:
    """Stdout is for findings; a seed of its own is said in case one is wanted again."""
    monkeypatch.setenv("MODEL_URL", MODEL_URL)
    monkeypatch.setattr(command, "_EVERY_S", 0)
    assert (
        cli.main(["fuzz", "--steps", "5", "--env", "MODEL_URL", "--agent-cwd", str(tmp_path), *agent("none")])
        == 0
    )
    out, err = capsys.readouterr()
    assert out == ""
    assert "onetake fuzz: 5 steps with seed " in err
    assert " of 5 steps, 1 run\n" in err
    assert "onetake fuzz: nothing found; " in err and " in 1 run; prompts ended: " in err


def test_a_model_s_answer_is_printed_too(tmp_path: Path, capsys: Printed) -> None:
    """A script is what both sides do; a long line is cut."""
    save = ["--save", str(tmp_path), "--shrink-timeout", "0.001"]
    assert cli.main(["fuzz", "--seed", "3", *save, *TELL, *agent("answers-twice")]) == 1
    out = capsys.readouterr().out
    assert "\n  model's answer 1: {" in out and "...\n" in out
    assert (tmp_path / "answers-once" / "mock-model.json").is_file()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "no agent: put its command after `--`"),
        (["--env", "NO_SUCH_NAME", "--", "a"], "--env NO_SUCH_NAME: it is NAME=VALUE, or the name"),
        (["--env", "=1", "--", "a"], "--env =1: it is NAME=VALUE, or the name"),
        (["--", "a"], "nothing tells the agent its model: put {{gateway.openai}}"),
        (["--agent-cwd", "no/such", "--", MODEL_URL], "no/such is not a directory"),
        (["--again", "no/such", "--", MODEL_URL], "no/such/input.json: No such file or directory"),
        (["--steps", "0", "--", MODEL_URL], "it must be at least 1"),
        (["--timeout", "0", "--", MODEL_URL], "it must be a number of seconds above 0"),
        (["--exit-timeout", "soon", "--", MODEL_URL], "invalid"),
    ],
)
def test_wrong_usage_is_told_before_anything_starts(
    arguments: list[str], message: str, capsys: Printed
) -> None:
    """Exit code 2, and what to write instead."""
    assert cli.main(["fuzz", *arguments]) == 2
    out, err = capsys.readouterr()
    assert out == "" and message in err


def test_an_agent_that_does_not_start_is_no_finding(capsys: Printed) -> None:
    """Exit code 3, with the end of its stderr."""
    assert cli.main(["fuzz", *TELL, *agent("does-not-start")]) == 3
    assert "no licence" in capsys.readouterr().err


def test_an_agent_that_does_not_start_again_is_no_finding(tmp_path: Path, capsys: Printed) -> None:
    """What was found may be mended; this agent cannot tell."""
    folder = save(Found(Case(), "alive", "alive: it died"), 1, tmp_path)
    assert cli.main(["fuzz", "--again", str(folder), *TELL, *agent("does-not-start")]) == 3
    assert "no licence" in capsys.readouterr().err


def test_without_hypothesis_the_error_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: Printed
) -> None:
    """And --help still teaches."""
    monkeypatch.setitem(sys.modules, "hypothesis", None)
    assert cli.main(["fuzz", *TELL, *agent("none")]) == 2
    assert "onetake fuzz needs Hypothesis: pip install onetake[testing]" in capsys.readouterr().err


def test_help_teaches_what_is_checked(capsys: Printed) -> None:
    """Every check, an example, and the exit codes."""
    assert cli.main(["fuzz", "--help"]) == 0
    out = capsys.readouterr().out
    for name, what in CHECKS.items():
        assert name in out and what in out
    assert "onetake fuzz --env MODEL_URL={{gateway.openai}}" in out and "3 the agent does not start" in out
