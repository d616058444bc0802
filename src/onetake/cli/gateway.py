"""`onetake gateway record|replay`: a model endpoint for one run of any program."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

HELP = """\
Run any program with its model recorded, or answered from a recording. The program finds the endpoint in
OPENAI_BASE_URL and ANTHROPIC_BASE_URL; where it looks elsewhere, --env names the variable:

  onetake gateway record --upstream openai=https://api.openai.com -- python agent.py "What is the sky?"
  onetake gateway replay -- python agent.py "What is the sky?"
  onetake gateway replay --env MY_URL={{gateway.openai}} -- ./my-agent

The recording is a folder of session logs, one a conversation (--dir, by default `recording`); `onetake log
show` reads them. `refresh` accepts what the program asks today, and keeps what the model said. The keys that
the program has are passed on when recording, and neither read nor stored. For a suite with scenarios, and for
everything else that a program does, see docs/other-agents.md.

exit codes: that of the program; 1 also when what it asked is not what was recorded; 2 wrong usage; 3 the
program cannot be started
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.usage = "onetake gateway record|replay|refresh [options] -- COMMAND [ARGUMENT ...]"
    parser.description = HELP
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("mode", choices=["record", "replay", "refresh"], help="what to do")
    parser.add_argument("--dir", type=Path, default=Path("recording"), metavar="DIR", help="the recording")
    parser.add_argument(
        "--upstream", action="append", default=[], metavar="NAME=URL", help="openai=... or anthropic=..."
    )
    parser.add_argument("--script", type=Path, metavar="FILE", help="record from a script of mock-model")
    parser.add_argument(
        "--env", action="append", default=[], metavar="NAME=VALUE", help="a variable for the program"
    )
    parser.add_argument("program", nargs="+", metavar="COMMAND", help="the program and its arguments")


def run(args: argparse.Namespace) -> int:
    """Run the program; the exit code. Raises UsageError, and AgentError when it cannot be started."""
    from onetake.errors import AgentError
    from onetake.snapshot.inprocess import recorded_model

    upstream = dict(_pair(text, "--upstream") for text in args.upstream)
    variables = dict(_pair(text, "--env") for text in args.env)
    try:
        with recorded_model(
            args.dir, upstream=upstream, script=_script(args.script), mode=args.mode
        ) as model:
            places = {"{{gateway.openai}}": model.openai, "{{gateway.anthropic}}": model.anthropic}
            environ = {**os.environ, "OPENAI_BASE_URL": model.openai, "ANTHROPIC_BASE_URL": model.anthropic}
            environ |= {name: _filled(value, places) for name, value in variables.items()}
            command = [_filled(part, places) for part in args.program]
            try:
                code = subprocess.run(command, env=environ, check=False).returncode
            except OSError as error:
                raise AgentError(f"{command[0]}: cannot be started: {error.strerror}") from error
    except AssertionError as error:
        print(error, file=sys.stderr)
        return 1
    if args.mode != "replay":
        print(f"onetake: {args.mode}ed in {args.dir}", file=sys.stderr)
    return code if code >= 0 else 128 - code


def _script(path: Path | None) -> Any:
    from onetake import jsontext
    from onetake.errors import UsageError

    if path is None:
        return None
    try:
        return jsontext.loads_strict(path.read_bytes())
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise UsageError(f"{path}: {error}") from error


def _filled(text: str, places: dict[str, str]) -> str:
    for place, value in places.items():
        text = text.replace(place, value)
    return text


def _pair(text: str, option: str) -> tuple[str, str]:
    from onetake.errors import UsageError

    name, equals, value = text.partition("=")
    if not name or not equals:
        raise UsageError(f"{option} {text}: write NAME=VALUE")
    return name, value
