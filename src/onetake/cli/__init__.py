"""The `onetake` command: pick the command by name, import only its module, turn errors into exit codes.

A command is a module with `HELP` (a description with an example), `add_arguments(parser)` and `run(args) ->
int`; `args.command` is the name it was called by. A command whose start-up time counts may also have
`quick(argv) -> int | None`, which gets the usual spelling done without argparse and returns None for any
other.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import io
import sys
from collections.abc import Sequence
from importlib import import_module
from types import ModuleType
from typing import TextIO

from onetake.errors import OnetakeError, UsageError

COMMANDS = {
    "replay": ("onetake.cli.replay", "run suites against their recordings (keyless)"),
    "record": ("onetake.cli.record", "run suites against the real model and write what happens"),
    "refresh": ("onetake.cli.refresh", "rewrite expected output, keep what the model said (keyless)"),
    "check": ("onetake.cli.check", "look for broken fixtures without starting anything"),
    "init": ("onetake.cli.init", "write and record a first suite for an agent that is not onetake's"),
    "new": ("onetake.cli.new", "add a scenario to a suite, or begin a suite"),
    "migrate": ("onetake.cli.migrate", "rewrite old fixture layouts in canonical form"),
    "log": ("onetake.cli.log", "read, pack and unpack session logs"),
    "acp": ("onetake.cli.acp", "serve the agent over the Agent Client Protocol on stdin and stdout"),
    "run": ("onetake.cli.run", "give the agent one prompt, JSON events on stdout"),
    "fuzz": ("onetake.cli.fuzz", "look for what breaks an agent, with random scripts (keyless)"),
    "gateway": ("onetake.cli.gateway", "record or replay the model of one run of any program"),
    "mock-model": ("onetake.cli.mock_model", "serve a scripted model endpoint"),
    "config": ("onetake.cli.config", "show the composition that a file really boots"),
}

_INTRODUCTION = """\
usage: onetake COMMAND [...]

Record an agent once. Replay it forever, without a key, and see every change it makes.

"""
_CONCLUSION = """
`onetake COMMAND --help` explains a command; `onetake help suite` explains suite.toml, input.json and the
files of a scenario. To try it out, in a checkout of onetake:

  onetake replay examples/acp-agent/tests/snapshots

exit codes: 0 as expected; 1 something differs; 2 wrong usage or malformed input; 3 the agent did not start or
died
"""

BROKEN_PIPE = 141
"""What a shell reports for a process that writes to nobody: not 0, because work may have been left undone."""
INTERRUPTED = 130


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command that `argv` names (default: the process' arguments) and return the exit code."""
    if argv is None:
        _tune_garbage_collector()
    arguments = list(sys.argv[1:] if argv is None else argv)
    _prepare_streams()
    try:
        code = _dispatch(arguments)
        sys.stdout.flush()
        return code
    except OnetakeError as error:
        _complain(str(error))
        return error.exit_code
    except BrokenPipeError:
        return BROKEN_PIPE
    except OSError as error:
        _complain(f"the system refuses: {error}")
        return UsageError.exit_code
    except KeyboardInterrupt:
        return INTERRUPTED
    finally:
        for stream in (sys.stdout, sys.stderr):
            _settle(stream)


def _tune_garbage_collector() -> None:
    """Collect less while a process of our own starts and ends, which is a fifth of its CPU time.

    What is imported lives until the end, so looking at it again and again finds nothing; and what is left at
    the exit goes with the process. Later, garbage in circles may come to some ten megabytes before it goes.
    """
    gc.set_threshold(100_000, 20, 100)
    atexit.register(gc.freeze)


def _dispatch(arguments: list[str]) -> int:
    if not arguments:
        print(_overview(), end="", file=sys.stderr)
        return 2
    name, *rest = arguments
    if name == "help" and rest:
        return _help(rest[0])
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


def _help(topic: str) -> int:
    if topic == "suite":
        from onetake.snapshot.suites.reference import reference

        print(reference(), end="")
        return 0
    return _dispatch([topic, "--help"])


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


def _prepare_streams() -> None:
    """Make sure that there are three standard streams, and that none refuses a character.

    A descriptor that the caller closed would be given to the next file that is opened, and be written to.
    """
    import os

    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)  # takes the lowest free number: this one
            if getattr(sys, name) is None:
                setattr(sys, name, os.fdopen(number, "w" if number else "r", encoding="utf-8", closefd=False))
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _complain(text: str) -> None:
    """Say it on stderr; a stderr that takes nothing must not hide the exit code."""
    with contextlib.suppress(OSError):
        print(f"onetake: {text}", file=sys.stderr)


def _settle(stream: TextIO) -> None:
    """Write what is still buffered, or let it go nowhere.

    The interpreter would try again at its exit, complain, and replace our exit code by one of its own.
    """
    import os

    try:
        target = stream.fileno()
    except (OSError, ValueError):  # not a real stream
        return
    with contextlib.suppress(OSError):
        stream.flush()
        return
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, target)
    os.close(nowhere)
