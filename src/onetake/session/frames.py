"""The bytes of a stored log: checksummed Zstandard frames or plain lines, whole, torn or damaged.

A compressed log is a sequence of independent frames, one for the header and one per batch, each of whole
lines and each with a checksum. A process that is killed while it writes leaves a *torn tail*: a beginning of
a frame, or of a line, behind everything that was acknowledged. A torn tail is normal and can be cut off.
Anything else that does not read is *damage* and is refused with its place, because cutting there would lose
acknowledged events.
"""

from __future__ import annotations

import sys
from collections import deque
from importlib import import_module
from typing import Any

import msgspec

from onetake import jsontext
from onetake.errors import UsageError

MAGIC = b"\x28\xb5\x2f\xfd"


class TornTail(msgspec.Struct, frozen=True):
    """The rest of an unfinished write at the end of a file."""

    offset: int
    """Where it begins: everything before is whole."""
    size: int
    """How many bytes it has."""

    def __str__(self) -> str:
        return f"{self.size} bytes of an unfinished write from byte {self.offset} on"


class Image(msgspec.Struct, frozen=True):
    """What a stored log holds."""

    text: bytes
    """The whole lines, decompressed."""
    durable: int
    """How many bytes of the file are whole."""
    torn: TornTail | None
    compressed: bool
    flaw: str | None = None
    """With `lenient`, the damage at which reading stopped."""


def is_compressed(raw: bytes) -> bool:
    """Tell whether `raw` begins like a Zstandard frame."""
    return raw.startswith(MAGIC)


def compress(lines: bytes) -> bytes:
    """Return `lines` as one independent frame with a checksum."""
    zstd = _zstd()
    frame: bytes = zstd.compress(lines, options={zstd.CompressionParameter.checksum_flag: 1})
    return frame


def read_image(raw: bytes, name: str, *, lenient: bool = False) -> Image:
    """Split the bytes of the file `name` into whole content and torn tail.

    Damage raises `UsageError` with the place, or with `lenient` ends the reading and is noted as `flaw`.
    """
    image = _read_frames(raw) if is_compressed(raw) else _read_lines(raw)
    if image.flaw is not None and not lenient:
        raise UsageError(
            f"{name}: {image.flaw}: what comes after it cannot be trusted. Restore the file from a copy; "
            f"`onetake log show {name}` prints what is before the damage."
        )
    return image


def _read_lines(raw: bytes) -> Image:
    end = raw.rfind(b"\n") + 1
    flaw = None
    if _is_line(raw[end:-1]):  # an unfinished write ends within its line, or with it
        line = raw.count(b"\n") + 1
        flaw = f"line {line} (byte {end}) ends with a damaged byte in place of a newline"
    return Image(raw[:end], end, None if flaw else _tail(raw, end), compressed=False, flaw=flaw)


def _is_line(text: bytes) -> bool:
    try:
        return text.endswith(b"}") and isinstance(jsontext.loads(text), dict)
    except jsontext.JsonError:
        return False


def _read_frames(raw: bytes) -> Image:
    zstd = _zstd()
    view = memoryview(raw)
    parts: list[bytes] = []
    at, flaw = 0, None
    while at < len(raw) and flaw is None:
        try:
            size = zstd.get_frame_size(view[at:])
            part = zstd.decompress(view[at : at + size])
        except zstd.ZstdError:
            if _is_torn(view, at):
                break
            flaw = f"frame {len(parts)} (byte {at}) is damaged"
        else:
            if not part.endswith(b"\n"):
                flaw = f"frame {len(parts)} (byte {at}) does not end with a whole line"
                break
            parts.append(part)
            at += size
    return Image(b"".join(parts), at, None if flaw else _tail(raw, at), compressed=True, flaw=flaw)


def _tail(raw: bytes, end: int) -> TornTail | None:
    return TornTail(end, len(raw) - end) if end < len(raw) else None


def _is_torn(view: memoryview, at: int) -> bool:
    """Tell whether the bytes from `at` on are the beginning of one frame, cut off, and not a broken frame."""
    rest = bytes(view[at:])
    if not any(rest):  # a file system that grew the file before it stored the bytes
        return True
    if not rest.startswith(MAGIC[: len(rest)]):
        return False
    zstd = _zstd()
    decompressor = zstd.ZstdDecompressor()
    try:
        decompressor.decompress(rest)
    except zstd.ZstdError:
        return False
    # A whole frame behind it means that its length is wrong, not that the file ends early.
    return not decompressor.eof and not _holds_frame(rest, 1) and not _is_flipped(rest)


def _holds_frame(rest: bytes, start: int) -> bool:
    zstd = _zstd()
    at = rest.find(MAGIC, start)
    while at >= 0:
        try:
            zstd.decompress(rest[at : at + zstd.get_frame_size(rest[at:])])
        except zstd.ZstdError:
            at = rest.find(MAGIC, at + 1)
        else:
            return True
    return False


def _is_flipped(rest: bytes) -> bool:
    """Tell whether `rest` is a whole frame of which one bit was flipped that says how long a block is."""
    zstd = _zstd()
    for at in _lengths(rest) if len(rest) > len(MAGIC) else ():
        for bit in range(8):
            mended = bytearray(rest)
            mended[at] ^= 1 << bit
            try:
                zstd.decompress(mended)
            except zstd.ZstdError:
                continue
            return True
    return False


def _lengths(frame: bytes) -> list[int]:
    """Return the places in `frame` of what says how long its last blocks are (RFC 8878, section 3.1.1)."""
    descriptor = frame[len(MAGIC)]
    single = descriptor >> 5 & 1
    at = len(MAGIC) + 2 - single + (0, 1, 2, 4)[descriptor & 3] + (single, 2, 4, 8)[descriptor >> 6]
    places: deque[int] = deque(maxlen=9)  # a wrong length soon leads out of the frame
    while at + 3 <= len(frame):
        places += range(at, at + 3)
        block = int.from_bytes(frame[at : at + 3], "little")
        at += 3 + (1 if block >> 1 & 3 == 1 else block >> 3)
    return list(places)


def _zstd() -> Any:
    return import_module("compression.zstd" if sys.version_info >= (3, 14) else "backports.zstd")
