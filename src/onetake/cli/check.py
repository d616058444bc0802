"""`onetake check`: the static guards, over suites and session logs wherever they are; starts no agent."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import argparse

HELP = """\
Look for broken suites and fixtures without starting anything.

Finds every suite.toml, and every JSONL file that begins with a session header, except what git ignores and
what `exclude` in [tool.onetake] of pyproject.toml names.

  onetake check
  onetake check examples tests/data
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of the command."""
    parser.add_argument(
        "paths", nargs="*", metavar="PATH", type=Path, help="files or folders (default: here)"
    )


def run(args: argparse.Namespace) -> int:
    """Print every problem and the count; the highest exit code of them. Raises `UsageError`."""
    from onetake.snapshot.suites.repository import check_paths

    found = check_paths(args.paths or [Path()])
    for problem in found:
        print(problem.text())
    suites = f"{found.suites} suite{'s' * (found.suites != 1)}"
    logs = f"{found.logs} session log{'s' * (found.logs != 1)}"
    problems = f"{len(found)} problem{'s' * (len(found) != 1)}" if found else "no problems"
    print(f"check: {suites}, {logs}: {problems}")
    return max((problem.exit_code for problem in found), default=0)
