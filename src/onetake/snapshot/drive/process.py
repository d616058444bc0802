"""One agent process: started in a session of its own, read line by line, and never left behind.

asyncio's own subprocess support is not used, for three reasons that were met in practice: its stream reader
stops at 64 KiB a line, Python 3.11's default child watcher starts threads, and it waits for grandchildren
that hold a pipe. Here stderr goes to a file, stdout is split at newlines only, the end of the leader is the
end of the run, and the whole process group is killed before the leader is reaped, while its id cannot have
been reused.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

import msgspec

from onetake.errors import AgentError
from onetake.snapshot.drive.env import UMASK
from onetake.snapshot.drive.strays import find_group, kill_all, left_running

PROMPT = "{prompt}"
"""Where a command takes a prompt as an argument."""
_READ_SIZE = 1 << 18
_POLL_S = 0.01
_GRACE_S = 2.0
"""How long a signal has to do its work."""


class AgentProcess:
    """A running agent. Create with `start`; `end` must be awaited in the end, whatever happened."""

    def __init__(self, popen: subprocess.Popen[bytes], on_line: Callable[[bytes], None]) -> None:
        assert popen.stdin is not None and popen.stdout is not None
        self.pid = popen.pid
        self.exited: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        """Resolves to the exit code (negative: a signal) once all output was delivered."""
        self.left_running: list[str] = []
        """Command lines of what was left in its group when it had ended by itself; known once it `exited`."""
        self._popen = popen
        self._on_line = on_line
        self._loop = asyncio.get_running_loop()
        self._stdin: int | None = popen.stdin.fileno()
        self._stdout = popen.stdout.fileno()
        self._unsent = bytearray()
        self._parts: list[bytes] = []
        self._closing = False
        self._pidfd = -1
        self._watcher: asyncio.Task[None] | None = None
        os.set_blocking(self._stdin, False)
        os.set_blocking(self._stdout, False)
        self._loop.add_reader(self._stdout, self._read)
        self._watch()

    @classmethod
    def start(
        cls,
        command: Sequence[str],
        *,
        env: Mapping[str, str],
        cwd: Path,
        stderr: Path,
        on_line: Callable[[bytes], None],
    ) -> AgentProcess:
        """Start the command; its stderr is appended to the file. Raises `AgentError` when it cannot be
        started."""
        with stderr.open("ab") as stderr_file:
            try:
                popen = subprocess.Popen(
                    command,
                    env=dict(env),
                    cwd=cwd,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=stderr_file,
                    start_new_session=True,
                    umask=UMASK,
                    bufsize=0,
                )
            except OSError as error:
                raise AgentError(f"the agent could not be started: {command[0]}: {error.strerror}") from error
        return cls(popen, on_line)

    @property
    def partial(self) -> bytes:
        """What stdout held after its last newline."""
        return b"".join(self._parts)

    def send(self, data: bytes) -> None:
        """Write to the agent's stdin without ever blocking the runner."""
        if self._stdin is None or self._closing:
            return
        waiting = bool(self._unsent)
        self._unsent += data
        if not waiting:
            self._write()

    def close_stdin(self) -> None:
        """Let the agent see the end of its input, after what was sent."""
        self._closing = True
        if not self._unsent:
            self._drop_stdin()

    def signal(self, number: int) -> None:
        """Send a signal: SIGKILL to the whole group, any other to the agent alone."""
        if self.exited.done():
            return
        if number == signal.SIGKILL:
            self._kill_group()
        else:
            os.kill(self.pid, number)

    async def end_group(self) -> None:
        """Ask the whole group to end, and kill what does not."""
        for number in (signal.SIGTERM, signal.SIGKILL):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, number)
            if (await asyncio.wait([self.exited], timeout=_GRACE_S))[0]:
                return

    async def end(self) -> int:
        """Kill what still runs and reap it; the exit code. Safe to call twice, and from a cancelled task."""
        if not self.exited.done():
            self._kill_group()
            await asyncio.shield(self.exited)
        return self.exited.result()

    def _write(self) -> None:
        assert self._stdin is not None
        try:
            sent = os.write(self._stdin, self._unsent)
        except BlockingIOError:
            sent = 0
        except OSError:  # the agent closed its stdin; that it died, or no longer answers, is found elsewhere
            self._unsent.clear()
            self._drop_stdin()
            return
        del self._unsent[:sent]
        self._loop.remove_writer(self._stdin)
        if self._unsent:
            self._loop.add_writer(self._stdin, self._write)
        elif self._closing:
            self._drop_stdin()

    def _drop_stdin(self) -> None:
        if self._stdin is None:
            return
        self._loop.remove_writer(self._stdin)
        self._stdin = None
        assert self._popen.stdin is not None
        self._popen.stdin.close()

    def _read(self) -> bool:
        """Take what is there; False when there is nothing more for now, or for ever."""
        try:
            data = os.read(self._stdout, _READ_SIZE)
        except BlockingIOError:
            return False
        if not data:
            self._loop.remove_reader(self._stdout)
            return False
        *ends, rest = data.split(b"\n")
        for end in ends:  # a long line is joined once, not with every piece of it
            self._parts.append(end)
            line = b"".join(self._parts)
            self._parts.clear()
            self._on_line(line)
        if rest:
            self._parts.append(rest)
        return True

    def _watch(self) -> None:
        if hasattr(os, "pidfd_open"):
            self._pidfd = os.pidfd_open(self.pid)
            self._loop.add_reader(self._pidfd, self._finish)
        else:
            self._watcher = self._loop.create_task(self._poll())

    async def _poll(self) -> None:
        while self._popen.poll() is None:
            await asyncio.sleep(_POLL_S)
        self._finish()

    def _finish(self) -> None:
        """The leader is gone; what it left in its group gets a moment to end, and is noted if it does not."""
        if self._pidfd >= 0:
            self._loop.remove_reader(self._pidfd)
            os.close(self._pidfd)
        group = find_group(self.pid)
        if group and not self._was_killed():
            self._watcher = self._loop.create_task(self._settle())
        else:
            self._close(group)

    def _was_killed(self) -> bool:
        """Whether a signal ended the leader, which then could end nothing; it is not reaped by this."""
        if self._popen.returncode is not None:
            return self._popen.returncode < 0
        ended = os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT)
        return ended is not None and ended.si_code != os.CLD_EXITED

    async def _settle(self) -> None:
        self.left_running = await left_running(lambda: find_group(self.pid))
        self._close(find_group(self.pid))

    def _close(self, group: Iterable[int]) -> None:
        """End the group, which is known as far as the system tells; reap the leader, take the last words."""
        self._kill_group()
        kill_all(group)
        code = self._popen.wait()
        while self._read():
            pass
        self._loop.remove_reader(self._stdout)
        self._drop_stdin()
        assert self._popen.stdout is not None
        self._popen.stdout.close()
        self.exited.set_result(code)

    def _kill_group(self) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)


class Launch(msgspec.Struct, frozen=True):
    """How the agent of a scenario is started, the first time and again."""

    command: Sequence[str]
    env: Mapping[str, str]
    cwd: Path
    stderr: Path
    ends_with_input: bool = True
    """Whether the end of its input ends it; if not, signals do."""

    def start(self, on_line: Callable[[bytes], None], *, prompt: str | None = None) -> AgentProcess:
        """Start it; `prompt` stands for `{prompt}` in the command. Raises `AgentError`."""
        command = self.command
        if prompt is not None:
            command = [part.replace(PROMPT, prompt) for part in command]
        return AgentProcess.start(command, env=self.env, cwd=self.cwd, stderr=self.stderr, on_line=on_line)

    @property
    def takes_prompt(self) -> bool:
        """Whether the command has a place for a prompt."""
        return any(PROMPT in part for part in self.command)
