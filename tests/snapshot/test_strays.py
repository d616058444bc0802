"""Processes that outlive their agent are found by what they inherited, ended, and reported."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from onetake.snapshot.drive import strays
from onetake.snapshot.drive.strays import find_strays, kill_strays, left_running
from tests.snapshot.driving import alive, drive_steps, prompts, said

pytestmark = pytest.mark.skipif(not Path("/proc").is_dir(), reason="strays are found in /proc")


@contextlib.contextmanager
def sleeper(folder: str | Path, **environ: str) -> Iterator[subprocess.Popen[bytes]]:
    """A process that works in a folder, with no more than this environment."""
    process = subprocess.Popen(["/bin/sleep", "300"], cwd=folder, env=environ, start_new_session=True)
    try:
        # It has neither for a moment while the system replaces the one program by the other.
        while not Path(f"/proc/{process.pid}/{'environ' if environ else 'cmdline'}").read_bytes():
            pass
        yield process
    finally:
        process.kill()
        process.wait()


def test_a_process_is_found_by_its_folder_or_its_environment(tmp_path: Path) -> None:
    run = tmp_path / "run"
    (run / "work").mkdir(parents=True)
    with (
        sleeper(run / "work") as working,
        sleeper("/", HOME=f"{run}/home") as elsewhere,
        sleeper("/", HOME=f"{run}-2/home"),
        sleeper(tmp_path),
    ):
        command = "/bin/sleep 300"
        assert find_strays(run) == {working.pid: command + " ", elsewhere.pid: command + " "}
        assert asyncio.run(left_running(lambda: find_strays(run))) == [command, command]
        assert kill_strays(run) == 2
        assert (working.wait(), elsewhere.wait()) == (-signal.SIGKILL,) * 2
        assert find_strays(run) == {}


def test_what_is_about_to_end_is_not_left_running(tmp_path: Path) -> None:
    with sleeper("/", HOME=f"{tmp_path}/home") as process:

        async def main() -> list[str]:
            asyncio.get_running_loop().call_later(0.05, process.terminate)
            return await left_running(lambda: find_strays(tmp_path))

        assert asyncio.run(main()) == []


def test_where_there_is_no_proc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os.path, "isdir", lambda path: False)
    assert find_strays(Path("/")) == {}


@pytest.mark.parametrize("killed", [False, True])
@pytest.mark.parametrize("kind", ["helper", "orphan", "daemon"])
def test_a_process_that_is_left_in_whatever_session_and_folder_is_ended_and_reported(
    tmp_path: Path, kind: str, killed: bool
) -> None:
    """Not where the script killed the agent, which then could not end it."""
    kill = [{"op": "kill", "signal": "SIGKILL"}] if killed else []
    harvest = drive_steps(tmp_path, [*prompts(kind), *kill])
    harvest.discard()
    assert harvest.error is None
    assert harvest.left_running == ([] if killed else ["sleep 300"])
    assert not alive(int(said(harvest)))


def test_killed_processes_are_over_on_return(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A signal is delivered when the system gets to it; whoever reads on must not meet the process."""
    kill, pauses = os.kill, list[float]()
    with sleeper("/", HOME=f"{tmp_path}/home") as process:

        def late(seconds: float) -> None:
            pauses.append(seconds)
            if len(pauses) == 3:
                kill(process.pid, signal.SIGKILL)
                os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)

        with monkeypatch.context() as patch:
            patch.setattr(os, "kill", lambda pid, number: None)
            patch.setattr(strays.time, "sleep", late)
            assert kill_strays(tmp_path) == 1
    assert len(pauses) == 3


def test_what_cannot_be_killed_is_not_waited_for_without_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses: list[float] = []
    with sleeper("/", HOME=f"{tmp_path}/home"), monkeypatch.context() as patch:
        patch.setattr(os, "kill", lambda pid, number: None)
        patch.setattr(strays.time, "sleep", pauses.append)
        assert kill_strays(tmp_path) == 1
    assert 0 < sum(pauses) <= 2
