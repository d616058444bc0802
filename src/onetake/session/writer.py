"""Write one session log while it grows, in batches, so that what was acknowledged stays.

- Events wait for at most 200 ms; `flush` writes at once, and when it returns, they are on disk.
- The first batch is published together with the header and never overwrites a log.
- When a batch cannot be written, its events wait on and are tried again; `flush` raises until they are on
  disk.

Writing and syncing happen on the event loop: a batch takes about a millisecond, and no thread has to be
started, waited for or shut down. Without a running loop only `flush`, `flush_now` and `close` write.
"""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path

from onetake import jsontext
from onetake.errors import OnetakeError
from onetake.session import frames
from onetake.session.appendfile import AppendFile
from onetake.session.events import Event
from onetake.session.jsonl import encode_records
from onetake.session.log import SessionLog

BATCH_SECONDS = 0.2


class StoreError(OnetakeError):
    """A log could not be written; its events are kept for the next try."""


class SessionWriter:
    """Stores one log. Made by `SessionStore.open` and `SessionStore.resume`."""

    def __init__(
        self, log: SessionLog, path: Path, *, file: AppendFile | None = None, synced: bool = True
    ) -> None:
        """Store `log` at `path`; `file`, when given, already holds all events that `log` has now."""
        self.path = path
        self.error: StoreError | None = None
        """Why the last try to write failed; None after a success."""
        self._log = log
        self._file = file
        self._synced = synced
        self._written = len(log.events) if file else 0
        self._frames = path.name.endswith(".zstd")
        self._timer: asyncio.TimerHandle | None = None
        self._unsubscribe = log.subscribe(self._schedule)
        if self.pending:
            self._schedule()

    @property
    def pending(self) -> int:
        """How many events are not on disk yet."""
        return len(self._log.events) - self._written

    async def flush(self) -> None:
        """Return when all events are on disk. Raises `StoreError` when that fails; they are kept."""
        self.flush_now()

    def flush_now(self) -> None:
        """Do what `flush` does, outside of an event loop too."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if not self.pending:
            return
        try:
            self._write(self._log.events[self._written :])
        except (OSError, TypeError, ValueError) as error:
            self.error = StoreError(
                f"{self.path}: {_reason(error)}. {self.pending} events wait for the next try."
            )
            self._schedule()
            raise self.error from error
        self.error = None

    async def close(self) -> None:
        """Flush and stop. Raises `StoreError`, and stays open, when the events cannot be written."""
        self.flush_now()
        self.abandon()

    def abandon(self) -> None:
        """Stop without writing what is pending."""
        self._unsubscribe()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._file is not None:
            self._file.close()
            self._file = None

    def _schedule(self, event: Event | None = None) -> None:
        if self._timer is not None:
            return
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            return
        self._timer = loop.call_later(BATCH_SECONDS, self._flush_in_time)

    def _flush_in_time(self) -> None:
        self._timer = None
        with contextlib.suppress(StoreError):  # kept in `error`, tried again, and raised by the next flush
            self.flush_now()

    def _write(self, batch: list[Event]) -> None:
        content = self._stored(encode_records(batch))
        if self._file is None:
            header = self._stored(jsontext.dumps(self._log.header) + b"\n")
            self._file = AppendFile.publish(self.path, header + content, synced=self._synced)
        else:
            self._file.append(content)
        self._written += len(batch)

    def _stored(self, lines: bytes) -> bytes:
        return frames.compress(lines) if self._frames else lines


def _reason(error: Exception) -> str:
    if isinstance(error, FileExistsError):
        return "exists already and is never overwritten; resume it, or start a session with another id"
    if isinstance(error, OSError):
        return f"cannot be written: {error.strerror or error}"
    return f"holds what JSON cannot say: {error}"
