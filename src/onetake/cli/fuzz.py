"""`onetake fuzz`: random scripts against any ACP agent, whose model is a scripted one."""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from onetake.testing.fuzz.campaign import Found, Report
    from onetake.testing.fuzz.client import Bounds
    from onetake.testing.fuzz.target import Target

HELP = """\
Start an ACP agent again and again, take it through random scripts, and check what every client relies on.

The agent is COMMAND, in any language, speaking ACP on stdin and stdout. Its model is a scripted endpoint of
the chat-completions format; {{gateway.openai}} in COMMAND and in --env stands for its base URL:

  onetake fuzz --env MODEL_URL={{gateway.openai}} --env MODEL_KEY=none -- my-agent --acp
  onetake fuzz --steps 10000 -- my-agent --acp --base-url {{gateway.openai}}

Scripts have prompts with hostile texts in several sessions at once, cancels at any moment, answers to
permission questions, restarts; the model's answers are proper, malformed, slow, broken off, errors, or never
end. The agent sees PATH, a home of its own and what --env names, no more, so no key of yours reaches it. Its
tools do run: with values such as `echo hello`, in a folder that is new for each run.

What is checked:

"""
AFTER = """\
The first thing that breaks a check is shrunk to the smallest script that does it, printed, and saved as a
folder: input.json (what the client does), mock-model.json (what the model answers), README.md (how to run
it again, with --again). A finding that does not come every time is reported all the same.

exit codes: 0 nothing found; 1 a finding; 2 wrong usage; 3 the agent does not start, or cannot answer `hello`
"""
AGAIN_RUNS = 5
"""How often --again tries: a finding may hang on moments."""
_EVERY_S = 2.0
"""How often progress is told, in seconds."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.usage = "onetake fuzz [options] -- COMMAND [ARGUMENT ...]"
    parser.description = HELP + _checks()
    parser.epilog = AFTER
    add = parser.add_argument
    add("--steps", type=_count, default=1000, metavar="N", help="steps of all runs together (1000)")
    add("--seed", type=int, metavar="N", help="decides what is drawn; by default another one each time")
    add(
        "--env", action="append", default=[], metavar="NAME=VALUE",
        help="a variable for the agent; NAME alone passes yours on",
    )  # fmt: skip
    add("--agent-cwd", type=Path, metavar="DIR", help="where the agent and its sessions work (a new folder)")
    add(
        "--save", type=Path, default=Path(".onetake/fuzz"), metavar="DIR",
        help="where a finding is saved (.onetake/fuzz)",
    )  # fmt: skip
    add("--again", type=Path, metavar="FOLDER", help=f"only run this finding, up to {AGAIN_RUNS} times")
    for name, default, what in (
        ("timeout", 20.0, "for an answer"),
        ("cancel-timeout", 5.0, "for the answer to a cancelled prompt"),
        ("exit-timeout", 5.0, "for the exit after the end of the input"),
        ("shrink-timeout", 120.0, "for shrinking"),
    ):
        add(f"--{name}", type=_seconds, default=default, metavar="S", help=f"seconds {what} ({default:g})")
    add("agent", nargs="*", metavar="COMMAND", help="the agent's command and arguments, after `--`")


def run(args: argparse.Namespace) -> int:
    """Fuzz the agent; 1 for a finding. Raises UsageError, and AgentError for an agent that does not start."""
    from onetake.errors import UsageError

    if not args.agent:
        raise UsageError("no agent: put its command after `--`, as in `onetake fuzz -- my-agent --acp`")
    try:
        import hypothesis  # noqa: F401 (whether it is there)
    except ModuleNotFoundError as error:
        raise UsageError("onetake fuzz needs Hypothesis: pip install onetake[testing]") from error
    from onetake.testing.fuzz.client import Bounds
    from onetake.testing.fuzz.target import Target

    cwd = None if args.agent_cwd is None else args.agent_cwd.resolve()
    target = Target(args.agent, _variables(args.env, os.environ), cwd)
    bounds = Bounds(answer=args.timeout, cancel=args.cancel_timeout, exit=args.exit_timeout)
    return _fuzz(args, target, bounds) if args.again is None else _again(args.again, target, bounds)


def _fuzz(args: argparse.Namespace, target: Target, bounds: Bounds) -> int:
    import secrets

    from onetake.testing.fuzz.campaign import Plan, fuzz
    from onetake.testing.fuzz.saved import save

    plan = Plan(args.steps, secrets.randbits(32) if args.seed is None else args.seed, args.shrink_timeout)
    _say(f"{plan.steps} steps with seed {plan.seed}")
    with _hypothesis_at_home():
        report = fuzz(target, bounds, plan, _Progress(plan.steps))
    _say(_summary(report))
    if report.found is None:
        return 0
    folder = save(report.found, plan.seed, args.save)
    _show(report.found)
    print(f"seed: {plan.seed}\nsaved: {folder}")
    print(f"again: {_again_command(args, folder)}")
    return 1


@contextlib.contextmanager
def _hypothesis_at_home() -> Iterator[None]:
    """Let Hypothesis keep its tables elsewhere than in a `.hypothesis` where the user happens to be."""
    import tempfile

    from hypothesis.configuration import set_hypothesis_home_dir

    with tempfile.TemporaryDirectory(prefix="onetake-fuzz-") as directory:
        set_hypothesis_home_dir(directory)
        try:
            yield
        finally:
            set_hypothesis_home_dir(None)


def _again(folder: Path, target: Target, bounds: Bounds) -> int:
    from onetake.testing.fuzz.campaign import run_again
    from onetake.testing.fuzz.saved import load

    found = run_again(load(folder), target, bounds, AGAIN_RUNS)
    if found is None:
        _say(f"nothing was found in {AGAIN_RUNS} runs of {folder}")
        return 0
    _show(found)
    return 1


def _show(found: Found) -> None:
    print(f"finding: {found.text}\nscript:")
    if not found.case.steps:
        print("  (no step: to start the agent, to prompt it once and to end it is enough)")
    for number, step in enumerate(found.case.steps, 1):
        print(f"  {number}. {_line(step)}")
    for number, reply in enumerate(found.case.replies, 1):
        print(f"  model's answer {number}: {_line(reply)}")


def _line(value: object) -> str:
    import msgspec

    from onetake import jsontext

    text = jsontext.dumps(msgspec.to_builtins(value)).decode()
    return text if len(text) <= 200 else f"{text[:200]}..."


def _again_command(args: argparse.Namespace, folder: Path) -> str:
    import shlex

    words = ["onetake", "fuzz", "--again", str(folder)]
    for each in args.env:
        words += ["--env", each]
    if args.agent_cwd is not None:
        words += ["--agent-cwd", str(args.agent_cwd)]
    return shlex.join([*words, "--", *args.agent])


class _Progress:
    """Tells on stderr how far it is, now and then."""

    def __init__(self, steps: int) -> None:
        self._steps = steps
        self._told = 0.0

    def __call__(self, report: Report) -> None:
        import time

        now = time.monotonic()
        if now - self._told < _EVERY_S:
            return
        self._told = now
        if report.found is None:
            _say(f"{report.steps} of {self._steps} steps, {_plural(report.runs, 'run')}")
        else:
            left = len(report.found.case.steps)
            _say(f"found {report.found.check}; shrinking: {_plural(left, 'step')} left")


def _summary(report: Report) -> str:
    ends = ", ".join(f"{number} {end}" for end, number in sorted(report.ends.items())) or "none"
    done = f"{_plural(report.steps, 'step')} in {_plural(report.runs, 'run')}; prompts ended: {ends}"
    found = "nothing found" if report.found is None else f"found {report.found.check}"
    return f"{found}; {done}"


def _plural(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _variables(given: list[str], environ: os._Environ[str]) -> dict[str, str]:
    """What --env says. Raises UsageError for a name alone that is not set."""
    from onetake.errors import UsageError

    variables = {}
    for each in given:
        name, equals, value = each.partition("=")
        if not name or not (equals or name in environ):
            raise UsageError(f"--env {each}: it is NAME=VALUE, or the name of a variable that is set")
        variables[name] = value if equals else environ[name]
    return variables


def _checks() -> str:
    from onetake.testing.fuzz.judge import CHECKS

    return "".join(f"  {name.ljust(15)} {what}\n" for name, what in CHECKS.items())


def _count(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError("it must be at least 1")
    return number


def _seconds(text: str) -> float:
    number = float(text)
    if not 0 < number < 1e6:
        raise argparse.ArgumentTypeError("it must be a number of seconds above 0")
    return number


def _say(text: str) -> None:
    print(f"onetake fuzz: {text}", file=sys.stderr, flush=True)
