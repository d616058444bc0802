"""The `onetake` command: pick the command by name, import only its module, turn errors into exit codes.

A command is a module with `HELP` (a description with an example), `add_arguments(parser)` and `run(args) ->
int`; `args.command` is the name it was called by. A command whose start-up time counts may also have
`quick(argv) -> int | None`, which gets the usual spelling done without argparse and returns None for any
other.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module
from types import ModuleType

from onetake.errors import OnetakeError

COMMANDS = {
    "replay": ("onetake.cli.suite", "run suites against their recordings (keyless)"),
    "record": ("onetake.cli.suite", "run suites against the real model and write what happens"),
    "refresh": ("onetake.cli.suite", "rewrite expected output, keep what the model said (keyless)"),
    "check": ("onetake.cli.check", "look for broken fixtures without starting anything"),
    "new": ("onetake.cli.new", "add a scenario to a suite, or begin a suite"),
    "migrate": ("onetake.cli.migrate", "rewrite old fixture layouts in canonical form"),
    "log": ("onetake.cli.log", "read, pack and unpack session logs"),
    "acp": ("onetake.cli.acp", "serve the agent over the Agent Client Protocol on stdin and stdout"),
    "run": ("onetake.cli.run", "give the agent one prompt, JSON events on stdout"),
    "mock-model": ("onetake.cli.mock_model", "serve a scripted model endpoint"),
    "config": ("onetake.cli.config", "show the composition that a file really boots"),
}

_INTRODUCTION = """\
usage: onetake COMMAND [...]

Record an agent once. Replay it forever, without a key, and see every change it makes.

"""
_CONCLUSION = """
`onetake COMMAND --help` explains a command. To try it out, in a checkout of onetake:

  onetake replay examples/acp-agent/tests/snapshots

exit codes: 0 as expected; 1 something differs; 2 wrong usage or malformed input; 3 the agent did not start or
died
"""

BROKEN_PIPE = 141
"""What a shell reports for a process that writes to nobody: not 0, because work may have been left undone."""
INTERRUPTED = 130


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command that `argv` names (default: the process' arguments) and return the exit code."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    try:
        code = _dispatch(arguments)
        sys.stdout.flush()
        return code
    except OnetakeError as error:
        print(f"onetake: {error}", file=sys.stderr)
        return error.exit_code
    except BrokenPipeError:
        _silence_stdout()
        return BROKEN_PIPE
    except KeyboardInterrupt:
        return INTERRUPTED


def _dispatch(arguments: list[str]) -> int:
    if not arguments:
        print(_overview(), end="", file=sys.stderr)
        return 2
    name, *rest = arguments
    if name in ("-h", "--help", "help"):
        print(_overview(), end="")
        return 0
    if name in ("-V", "--version"):
        from onetake import __version__

        print(f"onetake {__version__}")
        return 0
    if name not in COMMANDS:
        print(f"onetake: there is no command {name!r}{_suggestion(name)}", file=sys.stderr)
        return 2
    module = import_module(COMMANDS[name][0])
    quick = getattr(module, "quick", None)
    code: int | None = quick(rest) if quick is not None else None
    return _run_parsed(module, name, rest) if code is None else code


def _run_parsed(module: ModuleType, name: str, rest: list[str]) -> int:
    import argparse

    parser = argparse.ArgumentParser(
        prog=f"onetake {name}",
        description=module.HELP,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    module.add_arguments(parser)
    try:
        args = parser.parse_args(rest)
    except SystemExit as leave:  # argparse has said why
        return leave.code if isinstance(leave.code, int) else 2
    args.command = name
    code: int = module.run(args)
    return code


def _overview() -> str:
    width = max(map(len, COMMANDS))
    lines = [f"  {name.ljust(width)}  {summary}\n" for name, (_, summary) in COMMANDS.items()]
    return f"{_INTRODUCTION}commands:\n{''.join(lines)}{_CONCLUSION}"


def _suggestion(name: str) -> str:
    import difflib

    close = difflib.get_close_matches(name, COMMANDS, 1)
    return f"; did you mean {close[0]!r}?" if close else f"; there are {', '.join(COMMANDS)}"


def _silence_stdout() -> None:
    """Let the interpreter's own flush at exit go nowhere, instead of complaining about the pipe again."""
    import os

    try:
        target = sys.stdout.fileno()
    except (OSError, ValueError):  # not a real stream
        return
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, target)
    os.close(nowhere)
