"""`onetake migrate`: fixtures of old layouts in canonical form."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import argparse

    from onetake.snapshot.modes.migrate import Result

HELP = """\
Rewrite fixtures of old layouts in canonical form, and the expected files beside them: CRLF line ends,
a missing last newline, unpacked events and split runs, envelopes and times, raw ids, unnamed pins, and
logs copied straight from a session store. What a log says stays the same, which is proved for each before
it is written; a second migration changes nothing.

  onetake migrate --dry-run
  onetake migrate tests/snapshots
  onetake migrate data/session.jsonl
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of the command."""
    parser.add_argument(
        "paths",
        nargs="*",
        metavar="SUITE",
        type=Path,
        help="suite.toml, a folder to search for suites (or for session logs, if it has none), a scenario's "
        "folder, or a log",
    )
    parser.add_argument("--dry-run", action="store_true", help="show what would change, write nothing")


def run(args: argparse.Namespace) -> int:
    """Migrate, print what changed in each file; the highest exit code. Raises `UsageError`."""
    import os

    from onetake.snapshot.mode import refuse_in_ci

    if not args.dry_run:
        refuse_in_ci("migrate", os.environ)
    results = [result for path in args.paths or [Path()] for result in _migrated(path, args.dry_run)]
    for result in results:
        _show(result, args.dry_run)
    files = sum(len(result.changes) for result in results)
    failed = sum(bool(result.problems) for result in results)
    parts = [f"{len(results)} scenario{'s' * (len(results) != 1)}"]
    parts += [f"{failed} failed"] if failed else []
    parts.append(f"{files} file{'s' * (files != 1)} {'would change' if args.dry_run else 'changed'}")
    print(f"migrate: {', '.join(parts)}")
    return max(result.exit_code for result in results)


def _migrated(path: Path, dry_run: bool) -> list[Result]:
    """The results for one path of the command line; never an empty list."""
    from onetake.errors import UsageError
    from onetake.snapshot.modes.migrate import migrate_logs, migrate_suite
    from onetake.snapshot.suites.repository import log_groups, suite_of
    from onetake.snapshot.suites.suite import SUITE_FILE, find_suites, load_suite

    folder = path if path.is_dir() else path.parent
    owner = suite_of(folder) if path.name != SUITE_FILE and path.exists() else None
    if owner is not None:
        return migrate_suite(load_suite(owner), dry_run=dry_run, only=folder.resolve().name)
    if path.is_file() and path.name != SUITE_FILE:
        return [migrate_logs(group, dry_run=dry_run) for group in log_groups(path)]
    try:
        suites = find_suites([path])
    except UsageError:
        groups = log_groups(path)
        if not groups:
            raise UsageError(f"{path}: neither a {SUITE_FILE} nor a session log is here or below") from None
        return [migrate_logs(group, dry_run=dry_run) for group in groups]
    return [result for suite in suites for result in migrate_suite(load_suite(suite), dry_run=dry_run)]


def _show(result: Result, dry_run: bool) -> None:
    from onetake.snapshot.report import display

    for change in result.changes:
        verb = "would change" if dry_run else "changed"
        print(f"{verb} {display(Path(change.file))}: {'; '.join(change.notes)}")
        if dry_run and change.message:
            print("\n".join(f"    {line}".rstrip() for line in change.message.split("\n")))
    for problem in result.problems:
        print(problem.text())
