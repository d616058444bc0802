"""Temporary directories that are removed whatever happens, `kill -9` of the command included.

Each is locked by the command that made it, in the kernel, so that the lock is free as soon as the command is
gone. Every command first sweeps away what is not locked: the processes of the run, its workspace if that lies
elsewhere, and the directory.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import time
from collections.abc import Iterator
from pathlib import Path

from onetake.snapshot.drive.strays import kill_strays

NONCE_LENGTH = 10
"""Characters of a nonce."""
ELSEWHERE = "elsewhere"
"""A link in a run's directory to a workspace that is not in it; both have the same name."""

_NONCE_ALPHABET = "abcdefghijkmnpqrstuvwxyz23456789"  # 32 characters, so that each byte gives any as likely
_NAME = re.compile(rf"ot-[{_NONCE_ALPHABET}]{{{NONCE_LENGTH}}}-[a-z0-9]+")
_DRAFT = "new-"
_DRAFT_SECONDS = 60
_locks: dict[Path, int] = {}
"""The directories of this command, with the open descriptors that lock them."""


def new_nonce() -> str:
    """Text that occurs nowhere else."""
    return "".join(_NONCE_ALPHABET[byte % len(_NONCE_ALPHABET)] for byte in os.urandom(NONCE_LENGTH))


def make_directory(path: Path) -> None:
    """Make a directory `ot-NONCE-KEY` that is this command's alone."""
    draft = path.with_name(f"{_DRAFT}{path.name}")  # it has its name only when it is locked
    draft.mkdir(mode=0o700)
    _locks[path] = os.open(draft, os.O_RDONLY)
    with contextlib.suppress(OSError):  # a file system without locks; no sweep can lock it either
        fcntl.flock(_locks[path], fcntl.LOCK_EX)
    draft.rename(path)


def remove_directory(path: Path) -> None:
    """Remove such a directory; what something else still writes to is left to a sweep."""
    with contextlib.suppress(OSError):
        remove_tree(path)
    lock = _locks.pop(path, None)
    if lock is not None:
        os.close(lock)


@contextlib.contextmanager
def scratch(base: Path) -> Iterator[Path]:
    """A directory under `base` for a while."""
    path = base / f"ot-{new_nonce()}-scratch"
    make_directory(path)
    try:
        yield path
    finally:
        remove_directory(path)


def sweep(base: Path) -> None:
    """Remove what commands that were killed left under `base`."""
    with contextlib.suppress(OSError), os.scandir(base) as entries:
        for entry in entries:
            if _NAME.fullmatch(entry.name) and entry.is_dir(follow_symlinks=False):
                with contextlib.suppress(
                    OSError
                ):  # locked, somebody else's, or just swept by another command
                    _sweep_directory(Path(entry.path))
            elif _NAME.fullmatch(entry.name.removeprefix(_DRAFT)):
                with contextlib.suppress(OSError):
                    # It is empty, and has its name within moments unless its command was killed.
                    if time.time() - entry.stat(follow_symlinks=False).st_mtime > _DRAFT_SECONDS:
                        os.rmdir(entry.path)


def _sweep_directory(path: Path) -> None:
    lock = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
    try:
        if os.fstat(lock).st_uid != os.getuid():
            return
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        kill_strays(path)
        with contextlib.suppress(OSError):
            workspace = Path(os.readlink(path / ELSEWHERE))
            if workspace.name == path.name:
                remove_tree(workspace)
        remove_tree(path)
    finally:
        os.close(lock)


def remove_tree(path: Path) -> None:
    """Remove a directory whatever the modes inside; what is already gone is fine."""
    try:
        os.chmod(path, 0o700)
        entries = list(os.scandir(path))
    except FileNotFoundError:
        return
    for entry in entries:
        if entry.is_dir(follow_symlinks=False):
            remove_tree(Path(entry.path))
        else:
            os.unlink(entry.path)
    os.rmdir(path)
