"""What the model gets to see of a command's output: everything when it is short, head and tail when it is
not.

The result is one text: standard output as it came, standard error after a `[stderr]` line, then markers such
as `[exit code: 1]`. When that text exceeds the budget, all of it goes to a file, and the model gets its
beginning, its end and a notice that says what is missing and where to find it. The notice counts towards the
budget.
"""

from __future__ import annotations

import asyncio
from codecs import getincrementaldecoder
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import BinaryIO

from onetake.toolkit.bash.process import Stream

NO_OUTPUT = "(no output)"
STDERR = "[stderr]"

_PIECE_BYTES = 256 * 1024


async def present(
    stdout: Stream, stderr: Stream, markers: Sequence[str], *, max_bytes: int, spill: Path
) -> str:
    """Return the result text, at most `max_bytes` of UTF-8 long; write all of it to `spill` when it is
    longer.

    Memory is bounded by the budget, not by the output. Bytes that are not UTF-8 are replaced. Raises OSError
    when the spill file cannot be written.
    """
    pieces = formatted(stdout, stderr, markers)
    if stdout.size + stderr.size <= max_bytes:
        text = "".join(pieces)
        if len(text.encode()) <= max_bytes:
            return text
        pieces = iter([text])
    spill.parent.mkdir(parents=True, exist_ok=True)
    with open(spill, "w+b") as file:
        for piece in pieces:
            file.write(piece.encode())
            await asyncio.sleep(0)  # other sessions go on while a long output is copied
        return _shortened(file, max_bytes, spill)


def formatted(stdout: Stream, stderr: Stream, markers: Sequence[str]) -> Iterator[str]:
    """Yield the whole result text in pieces."""
    at_line_start = True
    for heading, stream in (("", stdout), (f"{STDERR}\n", stderr)):
        if stream.size and heading:
            yield heading if at_line_start else f"\n{heading}"
        for piece in _decoded(stream.file):
            yield piece
            at_line_start = piece.endswith("\n")
    if stdout.size == 0 and stderr.size == 0:
        yield NO_OUTPUT
        at_line_start = False
    if markers:
        yield ("" if at_line_start else "\n") + "\n".join(markers)


def _decoded(file: BinaryIO) -> Iterator[str]:
    decoder = getincrementaldecoder("utf-8")("replace")
    file.seek(0)
    while data := file.read(_PIECE_BYTES):
        if piece := decoder.decode(data):
            yield piece
    if piece := decoder.decode(b"", final=True):
        yield piece


def _shortened(file: BinaryIO, max_bytes: int, spill: Path) -> str:
    """Return head, tail and notice for a text that is too long; head and tail differ by one byte at most, but
    for characters that would be cut."""
    total = file.tell()
    room = max(0, max_bytes - len(_notice(total, total, spill).encode()))
    file.seek(0)
    head = _without_cut_end(file.read(room // 2 + 1), room // 2)
    file.seek(total - (room - room // 2))
    tail = _without_cut_start(file.read())
    omitted = total - len(head) - len(tail)
    return (head + tail).decode() + _notice(omitted, len(head), spill)


def _notice(omitted: int, position: int, spill: Path) -> str:
    return (
        f"\n\n({omitted} bytes are missing after the first {position}. "
        f"The complete result is in {spill}: search it, or read the part you need.)"
    )


def _without_cut_end(data: bytes, size: int) -> bytes:
    """Return at most `size` bytes of data that is at least one byte longer, ending where a character ends."""
    while size > 0 and data[size] & 0xC0 == 0x80:
        size -= 1
    return data[:size]


def _without_cut_start(data: bytes) -> bytes:
    start = 0
    while start < len(data) and data[start] & 0xC0 == 0x80:
        start += 1
    return data[start:]
