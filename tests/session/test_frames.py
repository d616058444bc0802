"""Stored bytes: whole, torn or damaged, and never confused."""

from __future__ import annotations

import pytest

from onetake.errors import UsageError
from onetake.session.frames import MAGIC, Image, TornTail, compress, is_compressed, read_image

LINES = [b'{"type":"session"}\n', b'{"type":"a"}\n{"type":"b"}\n', b'{"type":"c"}\n' * 50]
FRAMES = [compress(part) for part in LINES]
WHOLE = b"".join(FRAMES)


def test_whole_frames_are_read_as_their_lines() -> None:
    """However many frames there are."""
    assert is_compressed(WHOLE) and not is_compressed(LINES[0])
    assert read_image(WHOLE, "log") == Image(b"".join(LINES), len(WHOLE), None, compressed=True)


def test_every_cut_is_a_torn_tail_behind_whole_frames() -> None:
    """Wherever a write ended, the frames before it are there and the rest is named."""
    boundaries = [len(FRAMES[0]), len(FRAMES[0]) + len(FRAMES[1]), len(WHOLE)]
    for cut in range(len(FRAMES[0]), len(WHOLE) + 1):
        image = read_image(WHOLE[:cut], "log")
        durable = max(end for end in boundaries if end <= cut)
        assert image.durable == durable
        assert image.torn == (TornTail(durable, cut - durable) if cut > durable else None)
        assert image.text == b"".join(LINES[: boundaries.index(durable) + 1])


def test_zeros_of_a_file_that_grew_are_a_torn_tail() -> None:
    """Some file systems grow the file before the bytes arrive."""
    image = read_image(WHOLE + bytes(100), "log")
    assert image.torn == TornTail(len(WHOLE), 100)
    assert str(image.torn) == f"100 bytes of an unfinished write from byte {len(WHOLE)} on"


def flip(at: int, bit: int = 0) -> bytes:
    """Return the whole log with one bit flipped."""
    return WHOLE[:at] + bytes([WHOLE[at] ^ (1 << bit)]) + WHOLE[at + 1 :]


@pytest.mark.parametrize(
    ("raw", "place"),
    [
        (flip(len(FRAMES[0]) + 10), f"frame 1 (byte {len(FRAMES[0])})"),
        (flip(len(WHOLE) - 1), "frame 2"),
        (WHOLE + b"garbage", "frame 3"),
        (WHOLE + MAGIC + b"\xff" * 20, "frame 3"),
        (FRAMES[0] + b"garbage" + FRAMES[1], "frame 1"),
        (FRAMES[0] + FRAMES[1][:20] + FRAMES[2], "frame 1"),
        (
            FRAMES[0] + compress(b"half a line"),
            f"frame 1 (byte {len(FRAMES[0])}) does not end with a whole line",
        ),
    ],
    ids=[
        "flip",
        "flip checksum",
        "garbage",
        "bad frame",
        "garbage between",
        "torn in the middle",
        "half line",
    ],
)
def test_damage_is_refused_with_its_place(raw: bytes, place: str) -> None:
    """A tail is cut off only when it can be nothing but an unfinished write."""
    with pytest.raises(UsageError) as caught:
        read_image(raw, "log")
    assert str(caught.value).startswith(f"log: {place}")
    lenient = read_image(raw, "log", lenient=True)
    assert lenient.flaw is not None and lenient.torn is None
    assert b"".join(LINES).startswith(lenient.text)


def long_frame(bits: int) -> bytes:
    """Return a frame with these bits of the length of its only block flipped: 0x20 are 1024 bytes more."""
    words = [f"word{number * number % 97} " for number in range(2000)]
    long = bytearray(compress(" ".join(words).encode() + b"\n"))
    long[4 + 1 + 2 + 1] ^= bits  # behind magic, descriptor and size
    return bytes(long)


def test_a_frame_that_claims_to_be_longer_is_damage_when_frames_follow() -> None:
    """A wrong length must not make the frames behind it look like the rest of one."""
    torn = read_image(FRAMES[0] + long_frame(0x60), "log").torn
    assert torn is not None, "without a frame behind it, it cannot be told from a torn one"
    for between in (b"", MAGIC):
        with pytest.raises(UsageError, match=r"frame 1 \(byte"):
            read_image(FRAMES[0] + long_frame(0x60) + between + FRAMES[1], "log")


def test_one_flipped_bit_does_not_make_an_acknowledged_batch_a_torn_one() -> None:
    """Also when it is the last one, and the bit says how long it is, or whether more comes."""
    with pytest.raises(UsageError, match=rf"frame 1 \(byte {len(FRAMES[0])}\) is damaged"):
        read_image(FRAMES[0] + long_frame(0x20), "log")
    lines = b"".join(b'{"type":"x","data":"%x"}\n' % (3**number) for number in range(60))
    frame = compress(lines)
    for bit in range(8 * len(frame)):
        flipped = bytearray(frame)
        flipped[bit // 8] ^= 1 << bit % 8
        try:
            assert read_image(FRAMES[0] + flipped, "log").text == LINES[0] + lines
        except UsageError as error:
            assert " is damaged: what comes after it cannot be trusted" in str(error)


def test_a_damaged_newline_at_the_end_is_no_torn_tail() -> None:
    """An unfinished write ends within its line, or just before its newline, and with nothing else."""
    with pytest.raises(UsageError, match=r"line 2 \(byte 3\) ends with a damaged byte in place of a newline"):
        read_image(b'{}\n{"a":1}\x0b', "log")
    assert read_image(b'{}\n{"a":1}', "log").torn == TornTail(3, 7)
    assert read_image(b'{}\n{"a":{}}', "log").torn == TornTail(3, 8)
    assert read_image(b"{}\n}}", "log").torn == TornTail(3, 2)


def test_plain_lines_are_cut_at_the_last_newline() -> None:
    """Without compression, what follows the last newline is the torn tail."""
    assert read_image(b"a\nb\n", "log") == Image(b"a\nb\n", 4, None, compressed=False)
    assert read_image(b"a\nb", "log") == Image(b"a\n", 2, TornTail(2, 1), compressed=False)
    assert read_image(b"", "log").text == b""
