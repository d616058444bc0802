"""`onetake replay`, `record` and `refresh`: run suites, print what was found, exit with the highest code."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import time
from collections.abc import Sequence
from itertools import takewhile
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING

from onetake.errors import UsageError

if TYPE_CHECKING:
    import argparse

    from onetake.snapshot.attempt import Outcome
    from onetake.snapshot.report import Reporter
    from onetake.snapshot.run import Selection

INTERRUPTED = 130


def add_arguments(parser: argparse.ArgumentParser, *, writes: bool) -> None:
    """The arguments of the three commands; those that make no sense in one are refused or ignored there."""
    from argparse import SUPPRESS

    parser.add_argument(
        "suites",
        nargs="*",
        metavar="SUITE",
        type=Path,
        help="suite.toml, or a folder to search (default: here)",
    )
    parser.add_argument(
        "-k",
        dest="expression",
        metavar="EXPR",
        help="only scenarios whose name holds EXPR; `and`, `or`, `not` and parentheses work",
    )
    parser.add_argument("--report", type=Path, metavar="FILE", help="also write the outcome as JSON")
    parser.add_argument(
        "--jobs", type=int, metavar="N", help=SUPPRESS if writes else "scenarios at a time (default: CPUs)"
    )
    parser.add_argument(
        "--dry-run", action="store_true", help="show what would change, write nothing" if writes else SUPPRESS
    )
    parser.add_argument("--mode", metavar="MODE", help=SUPPRESS)  # for scripts: the command is the mode


def usual(command: str, argv: Sequence[str]) -> SimpleNamespace | None:
    """What argparse makes of `[SUITE ...] [-k EXPR] [--jobs N]`, without loading it; None for all else.

    Loading it and building a parser costs as much as reading the suite.
    """
    args = SimpleNamespace(command=command, expression=None, jobs=None, report=None, dry_run=False, mode=None)
    names = list(takewhile(lambda word: not word.startswith("-"), argv))
    args.suites = list(map(Path, names))
    options = argv[len(names) :]
    for option, value in zip(options[::2], options[1::2], strict=False):
        if option == "-k" and not value.startswith("-"):
            args.expression = value
        elif option == "--jobs" and value.isascii() and value.isdigit():
            args.jobs = int(value)
        else:
            return None
    return None if len(options) % 2 else args


def run(args: argparse.Namespace | SimpleNamespace) -> int:
    """Run the command; the exit code. Raises `UsageError`."""
    from onetake.snapshot.mode import mode_of_command
    from onetake.snapshot.report import Reporter, as_json, exit_code
    from onetake.snapshot.run import select
    from onetake.snapshot.suites.suite import find_suites, load_suite

    mode = mode_of_command(args.command, args.mode, os.environ)
    if args.jobs is not None and args.jobs < 1:
        raise UsageError(f"--jobs {args.jobs}: at least one scenario has to run at a time")
    if args.dry_run and mode == "replay":
        raise UsageError("--dry-run: replay never writes; use it with record or refresh")
    suites = [load_suite(path) for path in find_suites(args.suites or [Path()])]
    selections = select(suites, args.expression)
    total = sum(len(selection.scenarios) for selection in selections)
    reporter = Reporter(sys.stdout, mode, total, environ=os.environ, dry_run=args.dry_run)
    jobs = args.jobs or _cpus()
    if args.report is not None:
        _write_report(args.report, "")  # a run must not be lost for a typo here
    started = time.monotonic()
    try:
        outcomes = asyncio.run(_run(selections, mode, jobs, args.dry_run, reporter))
    except (KeyboardInterrupt, asyncio.CancelledError):
        written = "" if mode == "replay" else "; what is reported as written stays, all else is as it was"
        print(f"interrupted: every agent was ended{written}", file=sys.stderr)
        return INTERRUPTED
    seconds = time.monotonic() - started
    reporter.summary(outcomes, seconds)
    if args.report is not None:
        from onetake.jsontext import dumps_pretty

        _write_report(args.report, dumps_pretty(as_json(outcomes, mode, seconds)) + "\n")
    if isinstance(reporter.lost, BrokenPipeError):
        raise reporter.lost
    if reporter.lost is not None:
        raise UsageError(f"stdout: {reporter.lost.strerror}")
    return exit_code(outcomes)


def _write_report(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"--report {path}: {error.strerror}") from error


def _cpus() -> int:
    """How many CPUs this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


async def _run(
    selections: list[Selection], mode: str, jobs: int, dry_run: bool, reporter: Reporter
) -> list[Outcome]:
    from onetake.snapshot.run import run_all

    task = asyncio.current_task()
    assert task is not None
    for number in (signal.SIGTERM, signal.SIGHUP):
        with contextlib.suppress(
            ValueError
        ):  # not in the main thread: then whoever embeds us handles signals
            asyncio.get_running_loop().add_signal_handler(number, task.cancel)
    return await run_all(selections, mode, jobs=jobs, dry_run=dry_run, on_outcome=reporter.finished)
