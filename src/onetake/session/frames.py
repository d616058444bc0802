"""The bytes of a stored log: checksummed Zstandard frames or plain lines, whole, torn or damaged.

A compressed log is a sequence of independent frames, one for the header and one per batch, each of whole
lines and each with a checksum. A process that is killed while it writes leaves a *torn tail*: a beginning of
a frame, or of a line, behind everything that was acknowledged. A torn tail is normal and can be cut off.
Anything else that does not read is *damage* and is refused with its place, because cutting there would lose
acknowledged events.
"""

from __future__ import annotations

import sys
from typing import Any

import msgspec

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
    return _read_frames(raw, name, lenient) if is_compressed(raw) else _read_lines(raw)


def _read_lines(raw: bytes) -> Image:
    end = raw.rfind(b"\n") + 1
    return Image(raw[:end] if end < len(raw) else raw, end, _tail(raw, end), compressed=False)


def _read_frames(raw: bytes, name: str, lenient: bool) -> Image:
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
    if flaw is not None and not lenient:
        raise UsageError(
            f"{name}: {flaw}: what comes after it cannot be trusted. Restore the file from a copy; "
            f"`onetake log show {name}` prints what is before the damage."
        )
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
    return not decompressor.eof and not _holds_frame(rest, 1)


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


def _zstd() -> Any:
    if sys.version_info >= (3, 14):
        from compression import zstd
    else:
        from backports import zstd
    return zstd
