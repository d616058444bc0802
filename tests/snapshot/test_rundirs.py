"""Temporary directories go away, whoever was killed while having them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from onetake.snapshot.drive import rundirs
from onetake.snapshot.drive.env import remove_tree
from tests.snapshot.driving import alive, make_suite, processes_in, prompts

NAME = "ot-abcdefghij-0123"
OTHER = "ot-bcdefghijk-0123"
MAKE = """
import sys, time
from pathlib import Path
from onetake.snapshot.drive.rundirs import make_directory
make_directory(Path(sys.argv[1]))
print("made", flush=True)
time.sleep(60)
"""


def killed_owner(path: Path) -> None:
    """Let another process make a directory, and kill it."""
    with subprocess.Popen([sys.executable, "-c", MAKE, str(path)], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stdout.readline() == b"made\n"
        rundirs.sweep(path.parent)
        assert path.is_dir(), "its owner lives"
        process.kill()


def test_only_what_a_dead_command_left_is_swept(tmp_path: Path) -> None:
    rundirs.make_directory(tmp_path / OTHER)
    (tmp_path / "ot-foreign").mkdir()
    (tmp_path / "ot-cdefghijkm-1").write_text("a file")
    (tmp_path / "ot-defghijkmn-1").symlink_to(tmp_path / "ot-foreign")
    before = set(tmp_path.iterdir())
    killed_owner(tmp_path / NAME)
    (tmp_path / NAME / "home").mkdir()
    (tmp_path / NAME / "home" / "file").write_text("x")
    rundirs.sweep(tmp_path)
    assert set(tmp_path.iterdir()) == before
    rundirs.remove_directory(tmp_path / OTHER)
    assert set(tmp_path.iterdir()) == before - {tmp_path / OTHER}
    rundirs.sweep(tmp_path / "gone")


def test_a_draft_that_got_no_name_is_swept_when_it_is_old(tmp_path: Path) -> None:
    """Its command was killed in the moment before; a new one is being locked by another command."""
    old, young = tmp_path / f"new-{NAME}", tmp_path / f"new-{OTHER}"
    for draft in (old, young):
        draft.mkdir()
    os.utime(old, (1, 1))
    rundirs.sweep(tmp_path)
    assert set(tmp_path.iterdir()) == {young}


def test_directories_of_other_users_are_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / NAME).mkdir()
    user = os.getuid()
    monkeypatch.setattr(os, "getuid", lambda: user + 1)
    rundirs.sweep(tmp_path)
    assert (tmp_path / NAME).is_dir()


def test_a_workspace_elsewhere_is_swept_with_its_run(tmp_path: Path) -> None:
    """Only the one of this run, whatever the link says."""
    for name, kept in ((NAME, False), ("else", True)):
        (tmp_path / "base" / NAME).mkdir(parents=True)
        workspace = tmp_path / "parent" / name
        workspace.mkdir(parents=True)
        (tmp_path / "base" / NAME / rundirs.ELSEWHERE).symlink_to(workspace)
        rundirs.sweep(tmp_path / "base")
        assert not list((tmp_path / "base").iterdir())
        assert workspace.exists() is kept


def test_without_locks_nothing_is_swept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: object) -> None:
        raise OSError(37, "No locks available")

    monkeypatch.setattr("fcntl.flock", refuse)
    rundirs.make_directory(tmp_path / NAME)
    rundirs.sweep(tmp_path)
    assert list(tmp_path.iterdir()) == [tmp_path / NAME]
    rundirs.remove_directory(tmp_path / NAME)
    assert not list(tmp_path.iterdir())


def test_scratch_goes_away(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), rundirs.scratch(tmp_path) as folder:
        (folder / "file").write_text("x")
        rundirs.sweep(tmp_path)
        assert (folder / "file").exists()
        raise ZeroDivisionError
    assert not list(tmp_path.iterdir())


def said(folder: Path) -> bool:
    """Whether an agent has begun to hang."""
    return any(b"about to hang" in path.read_bytes() for path in folder.glob("*/stderr.txt"))


def test_the_next_command_sweeps_up_after_a_killed_one(tmp_path: Path, own_tmp: Path) -> None:
    """Processes, directory and workspace."""
    (tmp_path / "parent").mkdir()
    suite = make_suite(
        tmp_path / "suite",
        {"one": prompts("orphan", "hang"), "two": prompts("hello")},
        tables={"one": 'model_turn = false\nworkspace_parent = "../parent"'},
    )
    for name in ("one", "two"):
        (suite.dir / name / "stdout.expected.jsonl").touch()
        (suite.dir / name / "requests.expected.jsonl").touch()
    environment = {**os.environ, "TMPDIR": str(own_tmp)}
    command = [sys.executable, "-m", "onetake", "replay", str(suite.dir), "-k"]
    with subprocess.Popen([*command, "one"], env=environment, stdout=subprocess.PIPE) as process:
        while len(pids := processes_in(tmp_path / "parent")) < 2 or not said(own_tmp):
            assert process.poll() is None
        process.send_signal(signal.SIGKILL)
    assert len(list(own_tmp.iterdir())) == 1
    subprocess.run([*command, "two"], env=environment, stdout=subprocess.PIPE)
    assert not list(own_tmp.iterdir())
    assert not list((tmp_path / "parent").iterdir())
    assert not any(map(alive, pids))


def test_trees_are_removed_whatever_their_modes(tmp_path: Path) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "b" / "file").write_text("x")
    (tmp_path / "a" / "b").chmod(0)
    remove_tree(tmp_path / "a")
    remove_tree(tmp_path / "a")
    assert not (tmp_path / "a").exists()
