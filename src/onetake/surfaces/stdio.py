"""Lines from one file descriptor, frames to another, with back-pressure on both sides.

asyncio's own stream reader is not used because it refuses lines beyond 64 KiB. Pipes, sockets and terminals
are watched by the event loop; a plain file (a script fed with `<`, a transcript written with `>`) cannot be
watched and is read and written directly.
"""

from __future__ import annotations

import asyncio
import os
import selectors
import stat
from collections import deque

_MOST_WAITING = 64
"""Lines that may wait to be handled before the reader stops taking more."""
_READ_SIZE = 1 << 18


class LineSplitter:
    """Cuts a byte stream into lines; the cost of a line is linear in its length however it arrives."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []

    def feed(self, data: bytes) -> list[bytes]:
        """The lines that `data` completes, without their newline."""
        *ends, rest = data.split(b"\n")
        lines = []
        for end in ends:
            self._parts.append(end)
            lines.append(b"".join(self._parts))
            self._parts.clear()
        if rest:
            self._parts.append(rest)
        return lines

    def close(self) -> bytes:
        """What came after the last newline."""
        rest = b"".join(self._parts)
        self._parts.clear()
        return rest


class LineReader(asyncio.Protocol):
    """The lines of an input. Made by `open_reader`."""

    def __init__(self) -> None:
        self._splitter = LineSplitter()
        self._lines: deque[bytes] = deque()
        self._arrived = asyncio.Event()
        self._ended = False
        self._transport: asyncio.ReadTransport | None = None
        self._paused = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Called by asyncio."""
        assert isinstance(transport, asyncio.ReadTransport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """Called by asyncio."""
        self._lines.extend(self._splitter.feed(data))
        if self._lines:
            self._arrived.set()
        if len(self._lines) > _MOST_WAITING and self._transport is not None and not self._paused:
            self._paused = True
            self._transport.pause_reading()

    def eof_received(self) -> None:
        """Called by asyncio."""
        self.end()

    def connection_lost(self, exc: Exception | None) -> None:
        """Called by asyncio."""
        self.end()

    def end(self) -> None:
        """Behave as if the input had ended here; lines that arrived before are still given."""
        if not self._ended:
            self._ended = True
            rest = self._splitter.close()
            if rest:
                self._lines.append(rest)
        self._arrived.set()

    async def line(self) -> bytes | None:
        """The next line without its newline; None at the end of the input."""
        while not self._lines:
            if self._ended:
                return None
            self._arrived.clear()
            await self._arrived.wait()
        line = self._lines.popleft()
        if self._paused and len(self._lines) <= _MOST_WAITING // 2 and self._transport is not None:
            self._paused = False
            self._transport.resume_reading()
        return line

    def close(self) -> None:
        """Stop watching the input."""
        self.end()
        if self._transport is not None:
            self._transport.close()


class FrameWriter(asyncio.BaseProtocol):
    """Bytes to an output. Made by `open_writer`. What is written after the reader has gone is dropped."""

    def __init__(self, *, on_lost: asyncio.Event) -> None:
        self._lost = on_lost
        self._transport: asyncio.WriteTransport | None = None
        self._room = asyncio.Event()
        self._room.set()
        self._file: int | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Called by asyncio."""
        assert isinstance(transport, asyncio.WriteTransport)
        self._transport = transport

    def pause_writing(self) -> None:
        """Called by asyncio."""
        self._room.clear()

    def resume_writing(self) -> None:
        """Called by asyncio."""
        self._room.set()

    def connection_lost(self, exc: Exception | None) -> None:
        """Called by asyncio."""
        self._lost.set()
        self._room.set()

    def write(self, data: bytes) -> None:
        """Write in order; never blocks on a pipe (see `drain`)."""
        if self._lost.is_set():
            return
        if self._transport is not None:
            self._transport.write(data)
        elif self._file is not None:
            _write_all(self._file, data)

    async def drain(self) -> None:
        """Wait until the reader has caught up enough."""
        await self._room.wait()

    async def close(self, timeout_s: float | None) -> None:
        """Hand everything over and close; a reader that is not done in `timeout_s` seconds loses the rest.

        None waits for the reader as long as there is one.
        """
        if self._transport is None:
            if self._file is not None:
                os.close(self._file)
                self._file = None
            return
        self._transport.close()
        try:
            await asyncio.wait_for(self._lost.wait(), timeout_s)
        except TimeoutError:
            self._transport.abort()


def _write_all(file: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(file, rest) :]


def _is_watchable(file: int) -> bool:
    """Whether the event loop can watch a descriptor: it refuses plain files and /dev/null, for instance."""
    with selectors.DefaultSelector() as selector:
        try:
            selector.register(file, selectors.EVENT_READ)
        except (OSError, ValueError):
            return False
    return not stat.S_ISREG(os.fstat(file).st_mode)  # kqueue accepts plain files, asyncio does not


async def open_reader(file: int) -> LineReader:
    """Read lines from a file descriptor, which is closed with the reader."""
    reader = LineReader()
    if not _is_watchable(file):
        with os.fdopen(file, "rb", buffering=0) as source:
            while data := source.read(_READ_SIZE):
                reader.data_received(data)
        reader.end()
    else:
        await asyncio.get_running_loop().connect_read_pipe(lambda: reader, os.fdopen(file, "rb", buffering=0))
    return reader


async def open_writer(file: int, *, on_lost: asyncio.Event) -> FrameWriter:
    """Write to a file descriptor, which is closed with the writer; `on_lost` is set when nobody reads on."""
    writer = FrameWriter(on_lost=on_lost)
    if not _is_watchable(file):
        writer._file = file
    else:
        await asyncio.get_running_loop().connect_write_pipe(
            lambda: writer, os.fdopen(file, "wb", buffering=0)
        )
    return writer
