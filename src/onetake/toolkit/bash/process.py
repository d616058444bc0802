"""Run one command to its end, and its descendants with it.

What makes this harder than it looks is whoever outlives the command: a background child that keeps the output
pipe open would hold `communicate()` for ever, and one that ignores signals would stay behind. So the command
leads a session of its own; only the leader is waited for; then everything that is left in that session is
killed, and what is in the pipes at that moment is the output. Nobody waits for the end of a pipe. (Output
does not go straight into files because `echo ... > /dev/stderr` would reopen, and thereby empty, such a
file.)

No threads and no child watcher are involved: on Linux the event loop watches a pidfd.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import BinaryIO, cast

import msgspec

EXITED = "exited"
TIMED_OUT = "timed-out"
TOO_MUCH_OUTPUT = "too-much-output"

_READ_BYTES = 64 * 1024
_IN_MEMORY_BYTES = 256 * 1024
_LAST_READ_BYTES = 1024 * 1024
"""Most that is read from a pipe after the end: more than it can hold, so an escaped writer cannot keep us."""
_POLL_SECONDS = 0.02
_KILL_ROUNDS = 1000


class Outcome(msgspec.Struct):
    """How a command ended, and what it wrote. Close the streams after use."""

    ending: str
    """`exited`, `timed-out` or `too-much-output`; in the last two cases it was killed."""
    exit_code: int
    """The exit status as a shell gives it: 128 + n for a command that signal n ended."""
    stdout: Stream
    """The standard output."""
    stderr: Stream
    """The standard error output."""

    def close(self) -> None:
        """Let go of the collected output."""
        self.stdout.file.close()
        self.stderr.file.close()


class Stream:
    """One collected output: in memory while it is small, in an unnamed temporary file when it is not."""

    def __init__(self) -> None:
        from tempfile import SpooledTemporaryFile  # slow to load, and not needed before a command runs

        spooled = SpooledTemporaryFile(max_size=_IN_MEMORY_BYTES)  # noqa: SIM115 (closed by `Outcome.close`)
        self.file = cast("BinaryIO", spooled)
        self.size = 0

    def write(self, data: bytes) -> None:
        """Append; raises OSError when the disk is full."""
        self.file.write(data)
        self.size += len(data)


async def run_command(
    argv: Sequence[str], *, cwd: str, env: Mapping[str, str], timeout_s: float, max_bytes: int
) -> Outcome:
    """Run a command with an empty stdin until it ends, takes too long, or writes more than `max_bytes`.

    When this returns or raises, no process of the command's session is left; one that made a session of its
    own (a daemon) is out of reach, and what it writes from then on is lost. Cancellation kills at once and is
    passed on. Raises OSError or ValueError when the command cannot be started, OSError when its output cannot
    be kept.
    """
    pipes: list[int] = []
    streams = (Stream(), Stream())
    try:
        pipes += os.pipe()
        pipes += os.pipe()
        process = subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=pipes[1],
            stderr=pipes[3],
            cwd=cwd,
            env=env,
            start_new_session=True,
        )
        for end in (3, 1):
            os.close(pipes.pop(end))
        ending = await _supervise(process, pipes, streams, timeout_s, max_bytes)
    except BaseException:
        for stream in streams:
            stream.file.close()
        raise
    finally:
        for pipe in pipes:
            os.close(pipe)
    status = process.returncode
    return Outcome(ending, status if status >= 0 else 128 - status, *streams)


async def _supervise(
    process: subprocess.Popen[bytes],
    pipes: list[int],
    streams: tuple[Stream, Stream],
    timeout_s: float,
    max_bytes: int,
) -> str:
    """Collect output until the command is over, then end its session; return how it ended."""
    loop = asyncio.get_running_loop()
    over: asyncio.Future[str] = loop.create_future()

    def end(how: str) -> None:
        if not over.done():
            over.set_result(how)

    def collect(pipe: int, stream: Stream) -> None:
        try:
            data = os.read(pipe, _READ_BYTES)
            stream.write(data)
        except OSError as error:  # the disk is full
            loop.remove_reader(pipe)
            if not over.done():
                over.set_exception(error)
            return
        if not data:
            loop.remove_reader(pipe)
        elif streams[0].size + streams[1].size > max_bytes:
            end(TOO_MUCH_OUTPUT)

    timer = loop.call_later(timeout_s, end, TIMED_OUT)
    unwatch = _watch(process, loop, lambda: end(EXITED))
    for pipe, stream in zip(pipes, streams, strict=True):
        os.set_blocking(pipe, False)
        loop.add_reader(pipe, collect, pipe, stream)
    try:
        ending = await over
    finally:
        timer.cancel()
        unwatch()
        for pipe in pipes:
            loop.remove_reader(pipe)
        _end_session(process)
    for pipe, stream in zip(pipes, streams, strict=True):
        _drain(pipe, stream)
    return ending


def _watch(
    process: subprocess.Popen[bytes], loop: asyncio.AbstractEventLoop, on_exit: Callable[[], None]
) -> Callable[[], None]:
    """Call back when the process has exited; return what stops the watch."""
    try:
        pidfd = os.pidfd_open(process.pid)
    except (AttributeError, OSError):  # not Linux, or a kernel without it
        return _poll(process, loop, on_exit)
    loop.add_reader(pidfd, on_exit)

    def unwatch() -> None:
        loop.remove_reader(pidfd)
        os.close(pidfd)

    return unwatch


def _poll(
    process: subprocess.Popen[bytes], loop: asyncio.AbstractEventLoop, on_exit: Callable[[], None]
) -> Callable[[], None]:
    handle: asyncio.TimerHandle | None = None

    def look() -> None:
        nonlocal handle
        if process.poll() is not None:
            on_exit()
        else:
            handle = loop.call_later(_POLL_SECONDS, look)

    look()
    return lambda: handle.cancel() if handle is not None else None


def _end_session(process: subprocess.Popen[bytes]) -> None:
    """Kill what is left of the command's session and reap the leader; returns when nobody is left.

    The leader is reaped last: until then its id, which names group and session, cannot be given to anybody
    else.
    """
    for _ in range(_KILL_ROUNDS):
        with suppress(ProcessLookupError, PermissionError):  # macOS: EPERM when only zombies are left
            os.killpg(process.pid, signal.SIGKILL)
        members = _session_members(process.pid)
        if not members:
            break
        for pid in members:  # job control (`set -m`) gives children groups of their own
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.001)
    process.wait()


def _session_members(session: int) -> list[int]:
    """Return the living processes of a session; none where there is no /proc to tell."""
    members = []
    with suppress(FileNotFoundError):
        for name in os.listdir("/proc"):
            if name.isdigit() and (stat := _stat(name)) is not None:
                state, _parent, _group, session_of = stat
                if session_of == str(session).encode() and state not in (b"Z", b"X"):
                    members.append(int(name))
    return members


def _stat(pid: str) -> list[bytes] | None:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()[:4]
    except OSError:  # it is gone
        return None


def _drain(pipe: int, stream: Stream) -> None:
    """Read what is in the pipe now."""
    left = _LAST_READ_BYTES
    with suppress(BlockingIOError):
        while left > 0 and (data := os.read(pipe, _READ_BYTES)):
            stream.write(data)
            left -= len(data)
