"""Find everything that `check` can look at: suites, and session logs wherever they lie in a repository.

A fixture that was copied out of its suite, or that another tool keeps, is still a recording somebody relies
on. So logs are found by what they are (their first line is a session header) and not by where they are. Paths
that git ignores, and `exclude` patterns of `[tool.onetake]` in pyproject.toml, are left out.
"""

from __future__ import annotations

import codecs
import fnmatch
import os
import re
import tomllib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from onetake import jsontext
from onetake.errors import UsageError
from onetake.fixture.check import fixture_faults
from onetake.session.frames import MAGIC, is_compressed
from onetake.snapshot.drive.execute import OVERRIDE_FILE
from onetake.snapshot.findings import Problem
from onetake.snapshot.guard.contents import FAULT_GUARDS
from onetake.snapshot.guard.secrets import find_secrets
from onetake.snapshot.guard.static import static_problems
from onetake.snapshot.modes.judge import surface_of
from onetake.snapshot.modes.write import PENDING, recover
from onetake.snapshot.render.pins import session_index
from onetake.snapshot.suites.gitfiles import listed_files
from onetake.snapshot.suites.suite import SCRIPT_FILE, SUITE_FILE, Scenario, Suite, is_suite, load_suite

_HEAD = 65536
"""Bytes within which a session header has to end."""
_LINE_END = re.compile(rb"[\r\n]")
_BLANK = b" \t\r\n"
_MARKS = {codecs.BOM_UTF8: "utf-8", codecs.BOM_UTF16_LE: "utf-16-le", codecs.BOM_UTF16_BE: "utf-16-be"}
_SKIPPED = frozenset({".git", ".hg", "node_modules", "__pycache__", ".venv", "venv", ".onetake", PENDING})


class Finding(list[Problem]):
    """The problems of a check, and what was looked at."""

    suites = 0
    logs = 0


def check_paths(paths: Sequence[Path]) -> Finding:
    """Check every suite and every session log under some paths.

    Finishes first what a killed command left half written. Raises `UsageError` for a path that does not
    exist, and when there is nothing to check.
    """
    found = Finding()
    files = list(dict.fromkeys(file for path in paths for file in repository_files(path)))
    in_suites: set[Path] = set()
    for file in files:
        if file.name == SUITE_FILE and is_suite(file):
            found.suites += 1
            in_suites.add(file.parent.resolve())
            found += _check_suite(file)
    logs = [file for file in files if _is_jsonl(file) and is_session_log(file)]
    found.logs = len(logs)
    outside = [log for log in logs if not in_suites.intersection(log.resolve().parents)]
    owned = {log: owner for log in outside if (owner := suite_of(log.parent)) is not None}
    for owner, name in dict.fromkeys((owner, log.resolve().parent.name) for log, owner in owned.items()):
        found += _check_suite(owner, name)
    for group in _by_scenario(log for log in outside if log not in owned):
        found += _check_logs(group)
    if not found.suites and not logs:
        shown = ", ".join(str(path) for path in paths)
        raise UsageError(
            f"{shown}: neither a {SUITE_FILE} nor a session log was found, so nothing was checked"
        )
    return found


def repository_files(path: Path) -> list[Path]:
    """The repository's files under a path, sorted. Raises `UsageError` when the path does not exist."""
    if not path.exists():
        raise UsageError(f"{path}: does not exist")
    if path.is_file():
        return [path]
    listed = listed_files(path)
    files = sorted(listed if listed is not None else _walk(path))
    patterns = _excluded(path)
    if not patterns:
        return files
    root, globs = patterns
    return [file for file in files if not _matches(file, root, globs)]


def log_groups(path: Path) -> list[list[Path]]:
    """The session logs under a path, in groups that share their tokens. For one log: its own group.

    Raises `UsageError` when the path does not exist, and for a file that is no session log.
    """
    if path.is_file():
        if not is_session_log(path):
            with path.open("rb") as file:
                if is_compressed(file.read(len(MAGIC))):
                    raise UsageError(f"{path}: is compressed: `onetake log unpack {path}` writes it as JSONL")
            raise UsageError(f"{path}: does not begin with a session header, so it is no session log")
        if session_index(path.name) is not None:
            return _by_scenario(file for file in sorted(path.parent.iterdir()) if _is_fixture(file))
        return [[path]]
    logs = [file for file in repository_files(path) if _is_jsonl(file) and is_session_log(file)]
    return _by_scenario(logs)


def suite_of(folder: Path) -> Path | None:
    """The suite.toml that has this folder as a scenario, if any."""
    folder = folder.resolve()
    owner = folder.parent / SUITE_FILE
    if not owner.is_file() or not is_suite(owner):
        return None
    return owner if folder.name in load_suite(owner).scenarios else None


def _is_fixture(file: Path) -> bool:
    return session_index(file.name) is not None and is_session_log(file)


def _is_jsonl(path: Path) -> bool:
    return path.suffix.lower() == ".jsonl"


def is_session_log(path: Path) -> bool:
    """Whether the first line of a file is a session header, in whatever state the file is.

    A newline may be missing; a byte order mark, blank lines and other line ends are somebody's mistake, which
    must be found and not make the log invisible.
    """
    try:
        with path.open("rb") as file:
            head = file.read(_HEAD)
    except OSError:
        return False
    lines = _LINE_END.split(_utf8(head).lstrip(_BLANK), maxsplit=1)
    line = lines[0]
    if (len(lines) == 1 and len(head) == _HEAD) or b'"session"' not in line:
        return False
    try:
        header = jsontext.loads(line)
    except ValueError:
        return False
    return isinstance(header, dict) and header.get("type") == "session" and isinstance(header.get("id"), str)


def _utf8(head: bytes) -> bytes:
    """The beginning of a file without its byte order mark, from the encoding that the mark names."""
    for mark, encoding in _MARKS.items():
        if head.startswith(mark):
            return head[len(mark) :].decode(encoding, "ignore").encode("utf-8", "ignore")
    return head


def _walk(path: Path) -> Iterator[Path]:
    for folder, folders, files in os.walk(path):
        folders[:] = [name for name in folders if name not in _SKIPPED]
        # Not a pipe, which would be waited for.
        yield from (file for name in files if (file := Path(folder, name)).is_file())


def _excluded(path: Path) -> tuple[Path, list[str]] | None:
    """The nearest pyproject.toml above with `[tool.onetake] exclude`: its folder and its patterns."""
    for folder in [path.resolve(), *path.resolve().parents]:
        file = folder / "pyproject.toml"
        if not file.is_file():
            continue
        try:
            tools = tomllib.loads(file.read_text(encoding="utf-8")).get("tool")
        except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
            raise UsageError(f"{file}: {error}") from error
        table = tools.get("onetake") if isinstance(tools, dict) else None
        if table is not None:
            if not isinstance(table, dict) or not table.keys() <= {"exclude"}:
                raise UsageError(f"{file}: [tool.onetake]: has one key, `exclude`: a list of patterns")
            patterns = table.get("exclude", [])
            if not isinstance(patterns, list) or not all(isinstance(item, str) for item in patterns):
                raise UsageError(f"{file}: [tool.onetake] exclude: expected a list of patterns")
            return folder, patterns
    return None


def _matches(file: Path, root: Path, patterns: Iterable[str]) -> bool:
    """Whether a pattern names the file or a folder above it, relative to pyproject.toml."""
    resolved = file.resolve()
    if not resolved.is_relative_to(root):
        return False
    relative = resolved.relative_to(root)
    names = [str(relative), *(str(parent) for parent in relative.parents if str(parent) != ".")]
    return any(fnmatch.fnmatchcase(name, pattern.rstrip("/")) for name in names for pattern in patterns)


def _check_suite(file: Path, only: str | None = None) -> list[Problem]:
    """The problems of a suite, or of one of its scenarios and the suite as a whole."""
    try:
        suite = load_suite(file)
        for scenario in suite.scenarios.values():
            recover(scenario.dir)
        chosen = [scenario for name, scenario in suite.scenarios.items() if only in (None, name)]
        problems = [*static_problems(suite, chosen), *_ignored(suite, chosen)]
    except UsageError as error:
        return [Problem(guard="unreadable", file=str(file), message=str(error), exit_code=2)]
    return [_placed(problem, file.parent) for problem in problems]


def _ignored(suite: Suite, scenarios: Iterable[Scenario]) -> Iterator[Problem]:
    """Files of scenarios that git ignores: they are there here, and nowhere else."""
    listed = listed_files(suite.dir)
    known = {str(file) for file in listed or []}
    if str(suite.path) not in known:
        return  # no repository, or a suite that is ignored as a whole
    for scenario in scenarios:
        for file in sorted(scenario.dir.rglob("*")):
            relative = file.relative_to(suite.dir)
            if file.is_file() and str(file) not in known and _is_read(file.relative_to(scenario.dir)):
                yield Problem(
                    guard="missing-file",
                    scenario=scenario.name,
                    file=str(relative),
                    message="git ignores the file, so it is not committed, and no other machine has it",
                    remedy=f"mend the .gitignore that names it, or add it with `git add -f {relative}`",
                    exit_code=2,
                )


def _is_read(file: Path) -> bool:
    """Whether a run reads or compares this file of a scenario's folder."""
    if len(file.parts) > 1:
        return file.parts[0] == "workspace"
    return file.name in (SCRIPT_FILE, OVERRIDE_FILE) or surface_of(file.name) is not None


def _placed(problem: Problem, folder: Path) -> Problem:
    """The problem with its file as seen from where the command runs."""
    import msgspec

    return (
        msgspec.structs.replace(problem, file=os.path.normpath(folder / problem.file))
        if problem.file
        else problem
    )


def _by_scenario(logs: Iterable[Path]) -> list[list[Path]]:
    """Logs in groups that share their tokens: session.jsonl with its children; any other log by itself."""
    groups: dict[Path, list[Path]] = {}
    for log in logs:
        key = log.parent if session_index(log.name) is not None else log
        groups.setdefault(key, []).append(log)
    return [sorted(group, key=lambda log: session_index(log.name) or 0) for group in groups.values()]


def _check_logs(logs: Sequence[Path]) -> list[Problem]:
    files = [(str(log), log.read_bytes()) for log in logs]
    remedy = f"rewrite it with `onetake migrate {files[0][0]}`, "
    remedy += "or exclude it: [tool.onetake] exclude in pyproject.toml"
    try:
        faults = fixture_faults(files)
    except UsageError as error:
        save = "save it as UTF-8 without byte order mark and blank lines, with line ends `\\n`, then "
        message = str(error)
        return [
            Problem(guard="unreadable", file=files[0][0], message=message, remedy=save + remedy, exit_code=2)
        ]
    found = [
        Problem(guard=FAULT_GUARDS[fault.kind], file=fault.file, message=fault.message, remedy=remedy)
        for fault in faults
    ]
    return found + [
        Problem(guard="secret", file=secret.file, message=f"holds a secret: {secret.text()}", exit_code=2)
        for secret in find_secrets(dict(files), {})
    ]
