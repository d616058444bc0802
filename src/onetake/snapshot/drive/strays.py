"""Processes that a run left behind: found, named and ended.

A tool may put its child into a session of its own, where ending the agent's group does not reach it. It is
found by what it inherited: it works under the run's directory, or its environment names a path there (HOME is
one). The directory is generated, so nothing but the run has it. Only where /proc exists; and a process that
gave up its session, its folder and its whole environment is a stranger.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
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
                found[int(name)] = _read(name, "cmdline").replace(b"\0", b" ").decode("utf-8", "replace")
    return found


def kill_strays(directory: Path) -> int:
    """Kill every process of the run in `directory`, in whatever group; how many there were."""
    strays = find_strays(directory)
    for pid in strays:
        with contextlib.suppress(OSError):
            os.kill(pid, signal.SIGKILL)
    return len(strays)


async def left_running(directory: Path) -> list[str]:
    """What the run in `directory` has left running, once all that is about to end had its time to."""
    strays = find_strays(directory)
    for _ in range(round(_PATIENCE_S / _POLL_S)):
        if not strays:
            break
        await asyncio.sleep(_POLL_S)
        strays = find_strays(directory)
    return [text.strip()[:_SHOWN] for text in strays.values()]


def _read(pid: str, file: str) -> bytes:
    with open(f"/proc/{pid}/{file}", "rb") as opened:
        return opened.read()
