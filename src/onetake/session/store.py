"""Session logs on disk: where they lie, how they are found, read and continued.

    <root>/<readable project dir>/<session id>/session.jsonl.zstd   checksummed Zstandard frames (the default)
    <root>/<readable project dir>/<session id>/session.jsonl        plain lines

One process writes a log (a lock sees to it), any may read it at any time. Reading never changes a file.
Continuing one cuts a torn tail off, keeps its bytes beside the log, and says so.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Literal

import msgspec

from onetake.errors import UsageError
from onetake.session import frames
from onetake.session.appendfile import AppendFile
from onetake.session.events import Event, Header, unresumable_types
from onetake.session.frames import TornTail
from onetake.session.history import HistoryError
from onetake.session.jsonl import LogFile, parse_log, read_log
from onetake.session.log import SessionLog
from onetake.session.writer import SessionWriter

Compression = Literal["zstd", "none"]

FILE_NAMES: dict[Compression, str] = {"zstd": "session.jsonl.zstd", "none": "session.jsonl"}


class LoadedLog(msgspec.Struct):
    """A stored log, read as far as it is whole."""

    path: Path
    log: SessionLog
    torn: TornTail | None
    """The rest of an unfinished write that was left out; None for a clean end."""


class ResumedLog(msgspec.Struct):
    """A stored log that goes on."""

    path: Path
    log: SessionLog
    writer: SessionWriter
    torn: TornTail | None
    """What was cut off the file; the bytes are kept in `torn_copy`."""
    torn_copy: Path | None
    repaired: list[Event]
    """What was appended to close an interrupted turn; written with the next batch."""


class SessionStore:
    """The logs below one root; new ones go to the directory of `project`.

    `compression` is of new logs: "zstd" or "none". Existing ones keep theirs.
    """

    def __init__(
        self, root: Path, *, compression: Compression = "zstd", project: str, synced: bool = True
    ) -> None:
        """Keep logs below `root`.

        Without `synced`, what is written survives a process that is killed, and not a machine that stops: for
        logs that are read at once and thrown away. Raises `UsageError`.
        """
        if compression not in FILE_NAMES:
            raise UsageError(f"compression is {compression!r}; it can be 'zstd' or 'none'")
        self.root = root
        self.compression = compression
        self.project = _safe_name(project, "project directory")
        self._synced = synced

    def open(self, log: SessionLog) -> SessionWriter:
        """Start to store a new log: what it holds and everything that is appended to it.

        Nothing is created before the first event; a stored log of the same id is never overwritten.
        """
        directory = self.root / self.project / _safe_name(log.id, "session id")
        if any((directory / name).exists() for name in FILE_NAMES.values()):
            raise UsageError(f"{directory}: holds a log of session {log.id} already; resume it instead")
        return SessionWriter(log, directory / FILE_NAMES[self.compression], synced=self._synced)

    def resume(self, path: Path) -> ResumedLog:
        """Load the log at `path` and go on writing it.

        A torn tail is cut off (and kept beside the log), an interrupted turn is closed. Raises `UsageError`,
        and changes nothing, when the log is damaged, is being written by another process, or holds events of
        unknown types that are not ignorable.
        """
        from onetake.session.repair import close_interrupted  # not needed at the start of most agents

        file = AppendFile.reopen(path)
        try:
            loaded, durable = _load(path)
            _check_resumable(path, loaded.log)
            repairs = close_interrupted(loaded.log.events)
            torn_copy = file.cut(durable)
        except BaseException:
            file.close()
            raise
        writer = SessionWriter(loaded.log, path, file=file)
        repaired = [
            loaded.log.append(
                closing.type,
                closing.data,
                source_event_seqs=closing.source_event_seqs,
                surface_op=closing.surface_op,
            )
            for closing in repairs
        ]
        return ResumedLog(path, loaded.log, writer, loaded.torn, torn_copy, repaired)

    def load(self, path: Path) -> LoadedLog:
        """Read the log at `path` as far as it is whole. Raises `UsageError` when it is damaged or missing."""
        return _load(path)[0]

    def find(self, session_id: str) -> Path | None:
        """Return the log of a session of any project, or None."""
        name = _safe_name(session_id, "session id")
        return next((path for path in self.logs() if path.parent.name == name), None)

    def logs(self) -> list[Path]:
        """Return all stored logs, sorted."""
        return sorted(path for name in FILE_NAMES.values() for path in self.root.glob(f"*/*/{name}"))


def read_live(path: Path) -> tuple[Header, list[Event]]:
    """Return header and complete events of a log that may be written at this moment.

    Never raises on a torn tail; raises `UsageError` when there is no readable header.
    """
    log = read_file(path, live=True)
    return log.header, log.events


def read_file(path: Path, *, live: bool = False) -> LogFile:
    """Read the log at `path`, stored or committed; `live` as with `jsonl.read_log`."""
    return read_log(_read_bytes(path), str(path), live=live)


def project_name(cwd: str) -> str:
    """Return a readable directory name for the project in `cwd`, at most 100 characters long."""
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", cwd).strip("-.")
    return name[-100:].lstrip("-.") or "root"


def _load(path: Path) -> tuple[LoadedLog, int]:
    image = frames.read_image(_read_bytes(path), str(path))
    log = parse_log(image, str(path))
    return LoadedLog(path, SessionLog(log.header, log.events), image.torn), image.durable


def _check_resumable(path: Path, log: SessionLog) -> None:
    try:
        log.messages()
    except HistoryError as error:
        raise UsageError(f"{path}: cannot be resumed: {error}") from None
    unknown = unresumable_types(log.events)
    if unknown:
        raise UsageError(
            f"{path}: cannot be resumed: it holds events of the unknown type {', '.join(unknown)}, which may "
            "stand for state that this program would lose. Resume it with the program that wrote it."
        )


def _read_bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror or error}") from None


def _safe_name(name: str, what: str) -> str:
    if not name or name in (".", "..") or "/" in name or "\0" in name:
        raise UsageError(
            f"the {what} {name!r} cannot name a directory; use letters, digits, '.', '_' and '-'"
        )
    return name
