"""The workspace surface: what a run left behind, by path, mode and content.

Text is rendered line by line, so that a difference reads like a diff; anything else by its digest. Modes are
exact: the runner fixes the umask and the modes of what it copies, so that every bit is the agent's doing. The
first entry is the workspace itself, which an agent may have removed.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from onetake import jsontext
from onetake.fixture.normalize import Rules

FILE = "workspace.expected.jsonl"
MAX_TEXT = 64 * 1024
"""Larger files are rendered by digest, whatever they hold (bytes)."""
REPOSITORY = ".git/"
"""Listed, but not looked into: its bytes change from run to run. Deeper ones are folders like others."""


def render_workspace(root: Path, tokenize: Callable[[Any], Any], rules: Rules) -> bytes:
    """Render a folder and everything below, by path."""
    entries = sorted(_entries(root, ""), key=lambda entry: str(entry["path"]))
    return b"".join(jsontext.dumps(tokenize(rules.apply(entry))) + b"\n" for entry in entries)


def _entries(path: Path, name: str) -> Iterator[dict[str, Any]]:
    """What stands at a path; `name` is the path within the workspace, empty for the workspace itself."""
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        yield {"path": name or "./", "kind": "missing"}
        return
    bits = _bits(mode)
    if stat.S_ISDIR(mode):
        yield from _folder(path, f"{name}/" if name else "", bits)
    elif stat.S_ISLNK(mode):  # its own mode means nothing
        yield {"path": name or "./", "link": os.readlink(path)}
    elif stat.S_ISREG(mode):
        yield {"path": name or "./", "mode": bits, **content_of(path)}
    else:
        yield {"path": name or "./", "mode": bits, "kind": "special"}


def _folder(path: Path, inside: str, bits: str) -> Iterator[dict[str, Any]]:
    entry = {"path": inside or "./", "mode": bits}
    if inside == REPOSITORY:
        yield {**entry, "kind": "not compared"}
        return
    try:
        names = os.listdir(path)
    except PermissionError:
        yield {**entry, "kind": "unreadable"}
        return
    yield entry
    for name in names:
        yield from _entries(path / name, inside + name)


def mode_of(path: Path) -> str:
    """The mode of a file, as it is compared."""
    return _bits(path.stat().st_mode)


def _bits(mode: int) -> str:
    return f"{stat.S_IMODE(mode):04o}"


def content_of(path: Path) -> dict[str, Any]:
    """What a file holds: its lines, or its size and digest."""
    try:
        data = path.read_bytes()
    except PermissionError:
        return {"kind": "unreadable"}
    if len(data) <= MAX_TEXT and b"\0" not in data:
        try:
            return {"lines": data.decode("utf-8").split("\n")}
        except UnicodeDecodeError:
            pass
    return {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
