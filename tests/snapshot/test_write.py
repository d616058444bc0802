"""Writing a scenario: killed at any moment, it leaves the old bytes or (recovered) the new ones."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from onetake.errors import UsageError
from onetake.snapshot.modes import write
from onetake.snapshot.modes.write import MANIFEST, PENDING, recover, write_files

OLD = {"session.jsonl": b"old log\n", "stdout.expected.jsonl": b"old\n", "gone.jsonl": b"old gone\n"}
NEW: dict[str, bytes | None] = {
    "session.jsonl": b"new log\n",
    "stdout.expected.jsonl": b"new\n",
    "gone.jsonl": None,
}
NEW["more.jsonl"] = b"more\n"
AFTER = {name: data for name, data in NEW.items() if data is not None}


def fill(folder: Path) -> None:
    """The state before."""
    folder.mkdir(exist_ok=True)
    for name, data in OLD.items():
        (folder / name).write_bytes(data)


def state(folder: Path) -> dict[str, bytes]:
    """Every file, the stage included."""
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def test_all_files_are_written_and_only_what_changed(tmp_path: Path) -> None:
    """Unchanged files keep their time stamps, and nothing is left behind."""
    fill(tmp_path)
    (tmp_path / "same.jsonl").write_bytes(b"same\n")
    before = (tmp_path / "same.jsonl").stat()
    changed = write_files(tmp_path, {**NEW, "same.jsonl": b"same\n", "never.jsonl": None})
    assert changed == ["gone.jsonl", "more.jsonl", "session.jsonl", "stdout.expected.jsonl"]
    assert state(tmp_path) == {**AFTER, "same.jsonl": b"same\n"}
    assert (tmp_path / "same.jsonl").stat().st_ino == before.st_ino
    assert write_files(tmp_path, NEW) == []
    assert not (tmp_path / PENDING).exists()


class Killed(BaseException):
    """Stands for SIGKILL: nothing after it runs."""


def operations(monkeypatch: pytest.MonkeyPatch, hook: Callable[[int], None]) -> None:
    """Call `hook` with a running number before every operation on files that `write` performs."""
    count = 0

    def wrapped(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            nonlocal count
            count += 1
            hook(count)
            return function(*arguments, **options)

        return call

    for name in ("mkdir", "rename", "unlink", "rmdir", "open"):
        monkeypatch.setattr(Path, name, wrapped(getattr(Path, name)))
    monkeypatch.setattr(os, "fsync", wrapped(os.fsync))


def count_operations(folder: Path, work: Callable[[], object]) -> int:
    """How many operations the work takes."""
    last = 0

    def note(number: int) -> None:
        nonlocal last
        last = number

    with pytest.MonkeyPatch.context() as patch:
        operations(patch, note)
        work()
    return last


def kill_at(number: int, work: Callable[[], object]) -> None:
    """Run the work and die before its operation of this number."""

    def die(current: int) -> None:
        if current == number:
            raise Killed

    with pytest.MonkeyPatch.context() as patch, pytest.raises(Killed):
        operations(patch, die)
        work()


def test_a_kill_between_any_two_operations(tmp_path: Path) -> None:
    """Before the commit the old files are back, after it the new ones are there; the turn happens once."""
    fill(tmp_path / "probe")
    total = count_operations(tmp_path, lambda: write_files(tmp_path / "probe", NEW))
    assert total > 20
    outcomes = []
    for number in range(1, total + 1):
        folder = tmp_path / str(number)
        fill(folder)
        kill_at(number, lambda folder=folder: write_files(folder, NEW))  # type: ignore[misc]
        outcome = recover(folder)
        assert state(folder) in (OLD, AFTER)
        outcomes.append("new" if state(folder) == AFTER else "old")
        assert outcome in (None, "completed", "discarded")
        assert recover(folder) is None
    assert outcomes == sorted(outcomes, reverse=True) and {"old", "new"} == set(outcomes)


def test_a_kill_while_rolling_forward(tmp_path: Path) -> None:
    """Recovering can be interrupted as often as one likes."""
    fill(tmp_path / "probe")
    total = count_operations(tmp_path, lambda: write_files(tmp_path / "probe", NEW))
    for number in range(1, total + 1):
        folder = tmp_path / str(number)
        fill(folder)
        kill_at(number, lambda folder=folder: write_files(folder, NEW))  # type: ignore[misc]
        committed = (folder / PENDING / MANIFEST).exists()
        for again in range(1, total):
            try:
                kill_at(again, lambda folder=folder: recover(folder))  # type: ignore[misc]
            except pytest.fail.Exception:
                break  # it came to its end before that operation
        recover(folder)
        assert state(folder) == AFTER if committed else state(folder) in (OLD, AFTER)


@pytest.mark.parametrize("number", [2, 4, 9])
def test_a_full_disk_leaves_the_folder_as_it_was(tmp_path: Path, number: int) -> None:
    """No stage either: nobody would know what it is until the next command."""
    fill(tmp_path)

    def refuse(current: int) -> None:
        if current == number:
            raise OSError(28, "No space left on device")

    with pytest.MonkeyPatch.context() as patch, pytest.raises(OSError, match="No space left"):
        operations(patch, refuse)
        write_files(tmp_path, NEW)
    assert state(tmp_path) == OLD and not (tmp_path / PENDING).exists()
    assert set(write_files(tmp_path, NEW)) == set(NEW) and state(tmp_path) == AFTER


def test_a_new_write_finishes_the_old_one_first(tmp_path: Path) -> None:
    """What was committed is not lost to the next write."""
    fill(tmp_path)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(write, "_roll_forward", lambda folder: None)
        write_files(tmp_path, NEW)
    assert (tmp_path / PENDING / MANIFEST).exists()
    write_files(tmp_path, {"stdout.expected.jsonl": b"newest\n"})
    assert state(tmp_path) == {**AFTER, "stdout.expected.jsonl": b"newest\n"}


def test_real_kills(tmp_path: Path, nightly: bool) -> None:
    """SIGKILL at random moments of a real process that writes over and over."""
    import random
    import time

    program = (
        "import sys; from pathlib import Path; from onetake.snapshot.modes.write import write_files\n"
        "folder = Path(sys.argv[1])\n"
        "n = 0\n"
        "while True:\n"
        "    n += 1\n"
        "    write_files(folder, {f'{i}.jsonl': b'%d\\n' % n for i in range(4)})\n"
        "    if n == 1: print('ready', flush=True)\n"
    )
    chance = random.Random()
    for _ in range(50 if nightly else 3):
        process = subprocess.Popen([sys.executable, "-c", program, str(tmp_path)], stdout=subprocess.PIPE)
        assert process.stdout is not None and process.stdout.readline() == b"ready\n"
        time.sleep(chance.uniform(0.01, 0.2))
        process.kill()
        process.wait()
        process.stdout.close()
        recover(tmp_path)
        assert len({(tmp_path / f"{i}.jsonl").read_bytes() for i in range(4)}) == 1
        assert not (tmp_path / PENDING).exists()


@pytest.mark.parametrize(
    ("manifest", "message"),
    [
        (b"{", "not a manifest"),
        (b'{"files":{},"delete":["../../etc/passwd"]}', "is not a file name"),
        (b'{"files":{"session.jsonl":"00"},"delete":[]}', "does not hold what"),
    ],
)
def test_a_damaged_stage_is_an_error(tmp_path: Path, manifest: bytes, message: str) -> None:
    """It is neither followed nor thrown away."""
    fill(tmp_path)
    (tmp_path / PENDING).mkdir()
    (tmp_path / PENDING / "session.jsonl").write_bytes(b"new")
    (tmp_path / PENDING / MANIFEST).write_bytes(manifest)
    with pytest.raises(UsageError, match=message):
        recover(tmp_path)
    assert {name: (tmp_path / name).read_bytes() for name in OLD} == OLD


def test_what_is_no_stage_is_an_error_that_says_what_to_do(tmp_path: Path) -> None:
    """A file of this name, or a stage with a folder in it, was left by no command of ours."""
    fill(tmp_path)
    pending = tmp_path / PENDING
    pending.write_text("mine")
    message = f"{re.escape(str(pending))}: holds what no command left there.*remove it and run"
    with pytest.raises(UsageError, match=message):
        recover(tmp_path)
    assert pending.read_text() == "mine"
    pending.unlink()
    (pending / "folder").mkdir(parents=True)
    with pytest.raises(UsageError, match=message):
        recover(tmp_path)
    assert (pending / "folder").exists()
    assert {name: (tmp_path / name).read_bytes() for name in OLD} == OLD
