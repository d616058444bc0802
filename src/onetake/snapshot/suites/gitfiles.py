"""What git knows about files: which it lists, and which it ignores. Without git, or a repository: nothing."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterable
from pathlib import Path

_VARIABLES = frozenset({"GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_PREFIX"})


def listed_files(path: Path) -> list[Path] | None:
    """What git tracks or would track under a folder; None outside a work tree or without git."""
    names = _git(path, "ls-files", "-z", "--cached", "--others", "--exclude-standard")
    if names is None:
        return None
    return [file for name in names if (file := path / name).is_file()]


def ignored_names(folder: Path, names: Iterable[str]) -> set[str]:
    """Which entries of a folder git ignores; what is tracked all the same is not among them."""
    asked = b"\0".join(os.fsencode(name) for name in names)
    return (_git(folder, "check-ignore", "-z", "--stdin", asked=asked) or set()) if asked else set()


def _git(folder: Path, *arguments: str, asked: bytes = b"") -> set[str] | None:
    """The names that a git command lists, of those that it is asked for on stdin; None when it fails."""
    # In a git hook these name the repository relative to its root, and that is not where we look from.
    environ = {name: value for name, value in os.environ.items() if name not in _VARIABLES}
    try:
        listed = subprocess.run(
            ["git", "-C", str(folder), *arguments], input=asked, capture_output=True, check=False, env=environ
        )
    except OSError:
        return None
    if listed.returncode != 0:
        return None
    return {os.fsdecode(name) for name in listed.stdout.split(b"\0") if name}
