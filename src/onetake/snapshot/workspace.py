"""The workspace surface: the files that a run left behind, by path, mode and content.

Text is rendered line by line, so that a difference reads like a diff; anything else by its digest.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

from onetake import jsontext
from onetake.fixture.normalize import Rules

FILE = "workspace.expected.jsonl"
MAX_TEXT = 64 * 1024
"""Larger files are rendered by digest, whatever they hold (bytes)."""


def render_workspace(root: Path, tokenize: Callable[[Any], Any], rules: Rules) -> bytes:
    """Render everything under a folder by path; `.git` is left out (its bytes change from run to run)."""
    entries: list[dict[str, Any]] = []
    _walk(root, "", entries)
    entries.sort(key=lambda entry: str(entry["path"]))
    return b"".join(jsontext.dumps(tokenize(rules.apply(entry))) + b"\n" for entry in entries)


def _walk(folder: Path, prefix: str, into: list[dict[str, Any]]) -> None:
    children = list(os.scandir(folder)) if folder.is_dir() else []
    for child in children:
        path = prefix + child.name
        if child.is_symlink():
            into.append({"path": path, "link": os.readlink(child.path)})
        elif child.is_dir():
            if child.name != ".git":
                into.append({"path": path + "/"})
                _walk(Path(child.path), path + "/", into)
        elif child.is_file():
            into.append(
                {"path": path, "mode": "executable" if _executable(child) else "plain", **_content(child)}
            )
        else:
            into.append({"path": path, "kind": "special"})


def _executable(entry: os.DirEntry[str]) -> bool:
    return bool(entry.stat().st_mode & stat.S_IXUSR)


def _content(entry: os.DirEntry[str]) -> dict[str, Any]:
    data = Path(entry.path).read_bytes()
    if len(data) <= MAX_TEXT and b"\0" not in data:
        try:
            return {"lines": data.decode("utf-8").split("\n")}
        except UnicodeDecodeError:
            pass
    return {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
