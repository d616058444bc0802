"""Processes that a run left behind: found, named and ended.

What stays in the agent's group is found by that, before the group is ended. But a tool may put its child into
a session of its own, where ending the agent's group does not reach it. It is found by what it inherited: it
works under the run's directory, or its environment names a path there (HOME is one). The directory is
generated, so nothing but the run has it. Only where /proc exists; and a process that gave up its session, its
folder and its whole environment is a stranger.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterable
from pathlib import Path

_PATIENCE_S = 1.0
"""How long a process may take to die that was told to."""
_POLL_S = 0.01
_OVER = (b"Z", b"X")
"""States of processes that have ended."""
_SHOWN = 80
"""Characters of a command line."""


def find_strays(directory: Path) -> dict[int, str]:
    """The processes that belong to the run in `directory`: their ids and command lines."""
    found = {}
    prefix = f"{directory}/"
    for name in os.listdir("/proc") if os.path.isdir("/proc") else ():
        if not name.isdigit() or int(name) == os.getpid():
            continue
        with contextlib.suppress(OSError):
            here = f"{os.readlink(f'/proc/{name}/cwd')}/".startswith(prefix)
            if here or prefix.encode() in _read(name, "environ"):
                found[int(name)] = _command(name)
    return found


def kill_strays(directory: Path) -> int:
    """Kill every process of the run in `directory`, in whatever group; how many there were."""
    strays = find_strays(directory)
    kill_all(strays)
    return len(strays)


def kill_all(pids: Iterable[int]) -> None:
    """Kill processes and wait until none runs, though for no more than a second.

    A signal is delivered when the system gets to it. Whoever reads next what they wrote must not race them.
    """
    left = list(pids)
    for pid in left:
        with contextlib.suppress(OSError):
            os.kill(pid, signal.SIGKILL)
    for _ in range(round(_PATIENCE_S / _POLL_S)):
        left = [pid for pid in left if not _is_over(str(pid))]
        if not left:
            break
        time.sleep(_POLL_S)


def find_group(leader: int) -> dict[int, str]:
    """The processes in the group of a leader that has ended: their ids and command lines."""
    found = {}
    for name in os.listdir("/proc") if os.path.isdir("/proc") else ():
        if not name.isdigit() or int(name) == leader:
            continue
        with contextlib.suppress(OSError):
            state, _, group = _stat(name)
            if int(group) == leader and state not in _OVER:
                found[int(name)] = _command(name)
    return found


async def left_running(find: Callable[[], dict[int, str]]) -> list[str]:
    """What `find` still finds once all that is about to end had its time to: command lines, shortened."""
    strays = find()
    for _ in range(round(_PATIENCE_S / _POLL_S)):
        if not strays:
            break
        await asyncio.sleep(_POLL_S)
        strays = find()
    return [text.strip()[:_SHOWN] for text in strays.values()]


def _is_over(pid: str) -> bool:
    """Whether a process has ended. Who is its parent may take its time to look after it: it runs no more.

    Its memory and folder go earlier, so that `find_strays` does not see it any more while it still ends.
    """
    try:
        return _stat(pid)[0] in _OVER
    except OSError:
        return True


def _stat(pid: str) -> list[bytes]:
    """State, parent and group of a process. Raises `OSError` when it is gone."""
    return _read(pid, "stat").rpartition(b") ")[2].split(b" ", 3)[:3]


def _command(pid: str) -> str:
    return _read(pid, "cmdline").replace(b"\0", b" ").decode("utf-8", "replace")


def _read(pid: str, file: str) -> bytes:
    with open(f"/proc/{pid}/{file}", "rb") as opened:
        return opened.read()
