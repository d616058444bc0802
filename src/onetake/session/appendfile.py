"""A file that only grows, by whole writes that are on disk when `append` returns.

The rules that make a log survive `kill -9`, a full disk and a second writer, free of what the file holds:

- It comes into being complete, under its final name, and never in the place of another file: written under a
  temporary name, synced, linked.
- A write that fails leaves the length as it was. Syncing again after a failed sync proves nothing, so the
  next try writes the bytes again.
- An exclusive lock on the open file keeps every other writer out; it ends with the process, however it ends.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from pathlib import Path

from onetake.errors import UsageError


class AppendFile:
    """An open, locked file. Methods raise `OSError` as the system does."""

    def __init__(self, path: Path, fd: int, length: int, *, synced: bool = True) -> None:
        self.path = path
        self.length = length
        """Bytes that are whole and synced."""
        self._fd = fd
        self._sync = os.fsync if synced else _trust
        self._dirty = False
        """Whether a failed write may have left bytes behind `length`."""

    @classmethod
    def publish(cls, path: Path, content: bytes, *, synced: bool = True) -> AppendFile:
        """Create `path`, holding `content`, and its directories. `FileExistsError` when it exists already.

        Without `synced` it survives a process that is killed, and not a machine that stops.
        """
        changed = _make_directories(path.parent)
        temporary = path.parent / f".{path.name}.{os.getpid()}.tmp"
        fd = os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        file = cls(path, fd, 0, synced=synced)
        try:
            file._lock()
            file.append(content)
            os.link(temporary, path)
            for directory in changed if synced else ():
                _sync_directory(directory)
        except BaseException:
            file.close()
            raise
        finally:
            temporary.unlink(missing_ok=True)
        return file

    @classmethod
    def reopen(cls, path: Path) -> AppendFile:
        """Open an existing file to go on with it. `UsageError` when missing or written by another."""
        try:
            fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        except OSError as error:
            raise UsageError(f"{path}: cannot be opened for writing: {error.strerror}") from None
        file = cls(path, fd, os.fstat(fd).st_size)
        try:
            file._lock()
        except BlockingIOError:
            file.close()
            raise UsageError(f"{path}: is being written by another process; wait for it or end it") from None
        return file

    def append(self, content: bytes) -> None:
        """Add `content` and wait until it is on disk; after an `OSError` the file is as it was before."""
        if self._dirty:
            self._truncate()
        try:
            self._dirty = True
            _write(self._fd, content, self.length)
            self._sync(self._fd)
        except OSError:
            with contextlib.suppress(OSError):  # else the next try does it first
                self._truncate()
            raise
        self._dirty = False
        self.length += len(content)

    def cut(self, length: int) -> Path | None:
        """Shorten the file to `length` bytes; keep what is cut off in a file beside it, which is returned."""
        if length == self.length:
            return None
        copy = self.path.with_name(f"{self.path.name}.torn-{length}")
        copy.write_bytes(os.pread(self._fd, self.length - length, length))
        self.length = length
        self._truncate()
        return copy

    def close(self) -> None:
        """Give the file and its lock up."""
        os.close(self._fd)

    def _lock(self) -> None:
        fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def _truncate(self) -> None:
        os.ftruncate(self._fd, self.length)
        self._sync(self._fd)
        self._dirty = False


def _trust(fd: int) -> None:
    """Leave it to the system when what was written gets to the disk."""


def _write(fd: int, content: bytes, offset: int) -> None:
    view = memoryview(content)
    while view:
        count = os.pwrite(fd, view, offset)
        view, offset = view[count:], offset + count


def _make_directories(directory: Path) -> list[Path]:
    """Create `directory` and what is missing above it; return the directories that then need a sync."""
    changed = [directory]
    while not directory.exists():
        directory = directory.parent
        changed.append(directory)
    changed[0].mkdir(parents=True, exist_ok=True)
    return changed


def _sync_directory(directory: Path) -> None:
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
