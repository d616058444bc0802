"""Timing that survives a noisy machine: all contestants take turns in each round, medians are compared."""

from __future__ import annotations

import resource
import statistics
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence

import msgspec

Work = Callable[[], object]


class Cost(msgspec.Struct):
    """The median cost of one contestant."""

    wall: float
    """Seconds on the clock."""
    cpu: float
    """Seconds of CPU time, ours and that of the children we waited for."""


def interleaved(contestants: Mapping[str, Work], rounds: int) -> dict[str, Cost]:
    """Run every contestant once a round, in order, and return the medians."""
    walls: dict[str, list[float]] = {name: [] for name in contestants}
    cpus: dict[str, list[float]] = {name: [] for name in contestants}
    for _ in range(rounds):
        for name, work in contestants.items():
            cpu, wall = _cpu(), time.perf_counter()
            work()
            walls[name].append(time.perf_counter() - wall)
            cpus[name].append(_cpu() - cpu)
    return {name: Cost(statistics.median(walls[name]), statistics.median(cpus[name])) for name in contestants}


def command(arguments: Sequence[str]) -> Work:
    """Work that runs a program to its end; raises when it fails."""

    def run() -> None:
        done = subprocess.run(arguments, capture_output=True, stdin=subprocess.DEVNULL)
        if done.returncode != 0:
            raise SystemExit(f"{' '.join(arguments)} failed:\n{done.stdout.decode()}{done.stderr.decode()}")

    return run


def report(name: str, measured: str, ratio: float, aim: float | None, of: str) -> None:
    """Print one line: what was measured, the ratio to its baseline and the aim, if there is one."""
    goal = "" if aim is None else f"  (aim: {aim:g}, {'met' if ratio <= aim else 'missed'})"
    print(f"  {name:<44} {measured:>16}   {ratio:6.2f} x {of}{goal}", flush=True)


def _cpu() -> float:
    total = 0.0
    for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN):
        usage = resource.getrusage(who)
        total += usage.ru_utime + usage.ru_stime
    return total
