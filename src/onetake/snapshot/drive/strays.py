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
from collections.abc import Callable
from pathlib import Path

_PATIENCE_S = 1.0
"""How long a process may take to die that was told to."""
_POLL_S = 0.01
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
    """Kill every process of the run in `directory`, in whatever group; how many there were.

    They are gone on return, unless the system takes more than a second to end them.
    """
    strays = find_strays(directory)
    for pid in strays:
        with contextlib.suppress(OSError):
            os.kill(pid, signal.SIGKILL)
    for _ in range(round(_PATIENCE_S / _POLL_S) if strays else 0):
        if not find_strays(directory):
            break
        time.sleep(_POLL_S)
    return len(strays)


def find_group(leader: int) -> dict[int, str]:
    """The processes in the group of a leader that has ended: their ids and command lines."""
    found = {}
    for name in os.listdir("/proc") if os.path.isdir("/proc") else ():
        if not name.isdigit() or int(name) == leader:
            continue
        with contextlib.suppress(OSError):
            state, _, group = _read(name, "stat").rpartition(b") ")[2].split(b" ", 3)[:3]
            if int(group) == leader and state != b"Z":
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


def _command(pid: str) -> str:
    return _read(pid, "cmdline").replace(b"\0", b" ").decode("utf-8", "replace")


def _read(pid: str, file: str) -> bytes:
    with open(f"/proc/{pid}/{file}", "rb") as opened:
        return opened.read()
