"""What the model sees of an output, short or long."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onetake.toolkit.bash.output import present
from onetake.toolkit.bash.process import Stream


def stream(data: bytes) -> Stream:
    made = Stream()
    made.write(data)
    return made


def shown(out: bytes, err: bytes, markers: list[str], spill: Path, max_bytes: int = 30_000) -> str:
    streams = stream(out), stream(err)
    try:
        return asyncio.run(present(*streams, markers, max_bytes=max_bytes, spill=spill))
    finally:
        for each in streams:
            each.file.close()


@pytest.mark.parametrize(
    ("out", "err", "markers", "text"),
    [
        (b"", b"", [], "(no output)"),
        (b"", b"", ["[exit code: 1]"], "(no output)\n[exit code: 1]"),
        (b"a\n", b"", [], "a\n"),
        (b"a", b"", [], "a"),
        (b"a", b"", ["[exit code: 2]"], "a\n[exit code: 2]"),
        (b"a\n", b"", ["[exit code: 2]"], "a\n[exit code: 2]"),
        (b"", b"e\n", [], "[stderr]\ne\n"),
        (b"", b"e", ["[exit code: 2]"], "[stderr]\ne\n[exit code: 2]"),
        (b"a", b"e\n", ["[x]", "[y]"], "a\n[stderr]\ne\n[x]\n[y]"),
        (b"a\n", b"e", [], "a\n[stderr]\ne"),
        (b"\r\n\x00\x1b[1m", b"", [], "\r\n\x00\x1b[1m"),
        (b"\xff\xc3", b"", [], "��"),
        ("é\u2028".encode(), b"", [], "é\u2028"),
    ],
)
def test_a_short_result(tmp_path: Path, out: bytes, err: bytes, markers: list[str], text: str) -> None:
    assert shown(out, err, markers, tmp_path / "spill.txt") == text
    assert list(tmp_path.iterdir()) == []


def test_a_long_result_keeps_head_and_tail_and_names_the_rest(tmp_path: Path) -> None:
    spill = tmp_path / "deep" / "spill.txt"
    text = shown(b"<" + b"x" * 5000 + b">", b"e\n", ["[exit code: 1]"], spill, 800)
    body, _, notice = text.rpartition("\n\n")
    whole = "<" + "x" * 5000 + ">\n[stderr]\ne\n[exit code: 1]"
    assert spill.read_text() == whole
    assert len(text) == 800 or len(text) == 799
    assert body.startswith("<xxx") and body.endswith("xx>\n[stderr]\ne\n[exit code: 1]")
    head = body.rindex("x", 0, len(body) // 2) + 1
    assert notice == (
        f"({len(whole) - len(body)} bytes are missing after the first {head}. "
        f"The complete result is in {spill}: search it, or read the part you need.)"
    )


def test_the_budget_is_reached_exactly_to_the_byte(tmp_path: Path) -> None:
    spill = tmp_path / "spill.txt"
    assert shown(b"x" * 800, b"", [], spill, 800) == "x" * 800
    assert not spill.exists()
    assert len(shown(b"x" * 801, b"", [], spill, 800)) <= 800
    assert spill.exists()


def test_replaced_bytes_count_with_what_replaces_them(tmp_path: Path) -> None:
    spill = tmp_path / "spill.txt"
    text = shown(b"\xff" * 700, b"", [], spill, 800)
    assert len(text.encode()) <= 800
    assert spill.read_text() == "�" * 700
    assert text.startswith("�")


def test_a_budget_smaller_than_the_notice_leaves_the_notice(tmp_path: Path) -> None:
    text = shown(b"x" * 100, b"", [], tmp_path / "spill.txt", 10)
    assert text.startswith("\n\n(100 bytes are missing after the first 0. ")


def test_a_character_is_never_cut(tmp_path: Path) -> None:
    for shift in range(8):
        text = shown(b"x" * shift + "🎬é".encode() * 500, b"", [], tmp_path / "spill.txt", 600)
        assert "�" not in text
        assert len(text.encode()) <= 600


def test_a_character_that_spans_two_reads_stays_whole(tmp_path: Path) -> None:
    spill = tmp_path / "spill.txt"
    data = b"x" + "é".encode() * 400_000
    shown(data, b"", [], spill, 800)
    assert spill.read_bytes() == data


def test_other_work_goes_on_while_a_long_output_is_copied(tmp_path: Path) -> None:
    async def run() -> int:
        big, empty = stream(b"y" * 3_000_000), stream(b"")
        task = asyncio.create_task(present(big, empty, [], max_bytes=800, spill=tmp_path / "spill.txt"))
        rounds = 0
        while not task.done():
            rounds += 1
            await asyncio.sleep(0)
        big.file.close()
        empty.file.close()
        return rounds

    assert asyncio.run(run()) > 5


@pytest.fixture(scope="module")
def spill(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("property") / "spill.txt"


@given(st.binary(max_size=600), st.binary(max_size=600), st.lists(st.just("[exit code: 1]"), max_size=1))
def test_the_budget_holds_and_nothing_is_lost(
    spill: Path, out: bytes, err: bytes, markers: list[str]
) -> None:
    spill.unlink(missing_ok=True)
    whole = shown(out, err, markers, spill, 1_000_000)
    assert not spill.exists()
    text = shown(out, err, markers, spill, 500)
    if len(whole.encode()) <= 500:
        assert text == whole
        return
    assert len(text.encode()) <= 500
    assert spill.read_bytes().decode() == whole
    body = text.rpartition("\n\n(")[0]
    kept = len(body.encode())
    omitted, position = (
        int(text.rpartition("\n\n(")[2].split()[0]),
        int(text.rpartition("first ")[2].split(".")[0]),
    )
    assert kept + omitted == len(whole.encode())
    assert whole.encode()[:position] + whole.encode()[position + omitted :] == body.encode()
