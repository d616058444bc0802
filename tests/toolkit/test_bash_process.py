"""Real processes: nothing holds us, nothing outlives us, nothing fills the memory."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import pytest

from onetake.toolkit.bash import process as module
from onetake.toolkit.bash.process import Outcome, run_command

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="needs a Unix")


@pytest.fixture(params=["pidfd", "poll"])
def watcher(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Both ways of noticing the end of a command: the pidfd of Linux, and polling elsewhere."""
    if request.param == "poll":

        def missing(pid: int) -> int:
            raise OSError("no pidfd here")

        monkeypatch.setattr(os, "pidfd_open", missing, raising=False)
    return str(request.param)


async def bash(command: str, *, timeout_s: float = 60, max_bytes: int = 1 << 28) -> Outcome:
    argv = ["bash", "--noprofile", "--norc", "-c", command]
    return await run_command(argv, cwd="/", env=dict(os.environ), timeout_s=timeout_s, max_bytes=max_bytes)


def run(command: str, **options: float) -> tuple[str, int, bytes, bytes]:
    """Run a command; return ending, exit code, stdout and stderr."""
    outcome = asyncio.run(bash(command, **options))  # type: ignore[arg-type]
    try:
        written = []
        for stream in (outcome.stdout, outcome.stderr):
            stream.file.seek(0)
            written.append(stream.file.read())
            assert len(written[-1]) == stream.size
        return outcome.ending, outcome.exit_code, written[0], written[1]
    finally:
        outcome.close()


def is_alive(pid: int) -> bool:
    """Whether a process runs; one that only waits to be reaped by its parent does not."""
    listed = subprocess.run(["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True)
    return listed.stdout.strip()[:1] not in ("", "Z")


@pytest.fixture
def open_files() -> Iterator[None]:
    """Check that a test leaves no descriptor open."""
    before = len(os.listdir("/dev/fd"))
    yield
    assert len(os.listdir("/dev/fd")) == before


@pytest.mark.usefixtures("watcher", "open_files")
def test_both_outputs_and_the_exit_status_are_collected_apart() -> None:
    assert run("echo out; echo err >&2; exit 3") == ("exited", 3, b"out\n", b"err\n")


@pytest.mark.usefixtures("watcher")
def test_a_signal_reads_as_a_shell_reads_it() -> None:
    assert run("kill -TERM $$")[:2] == ("exited", 143)


def test_stdin_is_empty() -> None:
    assert run("cat; echo end")[2] == b"end\n"


def test_reopening_an_output_loses_nothing() -> None:
    script = "echo a >/dev/stderr; echo b >/dev/stderr; echo c >&2; echo d >/dev/stdout; echo e"
    assert run(script)[2:] == (b"d\ne\n", b"a\nb\nc\n")


@pytest.mark.usefixtures("watcher", "open_files")
def test_a_grandchild_that_holds_the_pipes_does_not_hold_us() -> None:
    ending, code, out, _ = run("sleep 600 & echo $!")
    assert (ending, code) == ("exited", 0)
    assert not is_alive(int(out))


@pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="needs /proc to find the members of a session")
def test_job_control_does_not_help_a_child_to_stay() -> None:
    out = run("set -m; sleep 600 & echo $!")[2]
    assert not is_alive(int(out))


@pytest.mark.usefixtures("watcher")
def test_a_child_that_closed_its_outputs_is_ended_too() -> None:
    out = run("sleep 600 >/dev/null 2>&1 & echo $!")[2]
    assert not is_alive(int(out))


@pytest.mark.usefixtures("watcher", "open_files")
def test_the_time_limit_ends_even_those_that_ignore_signals() -> None:
    script = "trap '' TERM INT HUP; (trap '' TERM INT HUP; while :; do sleep 600; done) & echo $$ $!; wait"
    ending, code, out, _ = run(script, timeout_s=2)
    assert (ending, code) == ("timed-out", 137)
    assert [is_alive(int(pid)) for pid in out.split()] == [False, False]


def test_a_command_that_closes_its_outputs_still_has_its_time() -> None:
    assert run("exec >&- 2>&-; sleep 0.1; exit 4")[:2] == ("exited", 4)


@pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="needs setsid")
def test_a_writer_that_escapes_by_a_session_of_its_own_cannot_hold_us() -> None:
    script = "setsid bash -c 'echo $$; trap \"\" PIPE; while echo x; do :; done; sleep 0.2' & sleep 0.3"
    ending, _, out, _ = run(script)
    assert ending == "exited"
    assert out.endswith(b"x\n") or out.endswith(b"x")


def test_what_was_written_before_the_end_is_never_lost() -> None:
    for _ in range(20):
        assert len(run("head -c 60000 /dev/zero; exit 0")[2]) == 60_000


@pytest.mark.usefixtures("open_files")
def test_the_last_read_takes_what_is_in_the_pipe_and_does_not_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    read, write = os.pipe()
    stream = module.Stream()
    try:
        os.set_blocking(read, False)
        os.write(write, b"x" * 60_000)
        module._drain(read, stream)
        assert stream.size == 60_000
        os.write(write, b"x" * 60_000)
        monkeypatch.setattr(module, "_READ_BYTES", 1000)
        monkeypatch.setattr(module, "_LAST_READ_BYTES", 2500)
        module._drain(read, stream)
        assert stream.size == 63_000
    finally:
        stream.file.close()
        os.close(read)
        os.close(write)


def test_a_flood_is_stopped() -> None:
    ending, code, out, _ = run("yes", max_bytes=1_000_000)
    assert (ending, code) == ("too-much-output", 137)
    assert 1_000_000 < len(out) < 4_000_000


def test_large_output_is_kept_out_of_memory() -> None:
    async def measured() -> tuple[int, int]:
        tracemalloc.start()
        outcome = await bash("head -c 50000000 /dev/zero")
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        outcome.close()
        return outcome.stdout.size, peak

    size, peak = asyncio.run(measured())
    assert size == 50_000_000
    assert peak < 3_000_000


@pytest.mark.usefixtures("watcher", "open_files")
def test_cancellation_leaves_no_process_behind(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    script = f"trap '' TERM; sleep 600 & echo $$ $! > {pids}.part && mv {pids}.part {pids}; wait; sleep 600"

    async def cancelled() -> None:
        task = asyncio.create_task(bash(script))
        while not pids.exists():
            await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(cancelled())
    assert [is_alive(int(pid)) for pid in pids.read_text().split()] == [False, False]


@pytest.mark.usefixtures("open_files")
def test_cancellation_before_anything_happens_is_fine() -> None:
    async def cancelled() -> None:
        task = asyncio.create_task(bash("sleep 600"))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(cancelled())


@pytest.mark.usefixtures("open_files")
def test_many_commands_at_once() -> None:
    async def all_of_them() -> list[bytes]:
        outcomes = await asyncio.gather(*(bash(f"sleep 0.0{n % 3}; echo {n}") for n in range(20)))
        written = []
        for outcome in outcomes:
            outcome.stdout.file.seek(0)
            written.append(outcome.stdout.file.read())
            outcome.close()
        return written

    assert asyncio.run(all_of_them()) == [f"{n}\n".encode() for n in range(20)]


@pytest.mark.usefixtures("open_files")
def test_a_command_that_cannot_be_started_raises_and_leaks_nothing() -> None:
    async def missing() -> None:
        await run_command(["no-such-program"], cwd="/", env={}, timeout_s=1, max_bytes=1)

    with pytest.raises(FileNotFoundError):
        asyncio.run(missing())


@pytest.mark.usefixtures("open_files")
def test_output_that_cannot_be_kept_ends_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(self: module.Stream, data: bytes) -> None:
        raise OSError(28, "disk full")

    monkeypatch.setattr(module.Stream, "write", full)
    with pytest.raises(OSError, match="disk full"):
        asyncio.run(bash("yes & yes >&2"))


def test_without_proc_the_group_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    listdir = os.listdir

    def hidden(path: str) -> list[str]:
        if path == "/proc":
            raise FileNotFoundError(path)
        return listdir(path)

    monkeypatch.setattr(os, "listdir", hidden)
    out = run("sleep 600 & echo $!")[2]
    for _ in range(200):
        if not is_alive(int(out)):
            break
    assert not is_alive(int(out))


def test_no_threads_are_started() -> None:
    import threading

    async def counted() -> int:
        outcome = await bash("echo x")
        outcome.close()
        return threading.active_count()

    assert asyncio.run(counted()) == threading.active_count()
