"""What a scenario costs in suites of 1, 10 and 100, runner included; next to a bare interpreter.

The suite is the example's text scenario over and over, each a folder of its own that names the one pin. A
runner that looks at everything for each scenario would show in the last line. A suite of one scenario is two
interpreters, runner and agent, so that twice the baseline is where it begins.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

from benchmarks.measure import command, interleaved, report
from benchmarks.processes import BASELINE, EXAMPLE, ONETAKE, SUITE

SIZES = {1: 9, 10: 5, 100: 3}
"""Scenarios in the suite -> rounds."""
PIN = "text-turn"
CPUS = 2


def make_suite(folder: Path, size: int) -> Path:
    """Copy the example agent with a suite of `size` text scenarios; the folder of the suite."""
    for name in ("agent.yml", "agent.snapshot.yml"):
        folder.mkdir(parents=True, exist_ok=True)
        shutil.copy(EXAMPLE / name, folder)
    suite = folder / "tests" / "snapshots"
    shutil.copytree(SUITE / PIN, suite / PIN)
    head = (SUITE / "suite.toml").read_text().split("[scenarios.", 1)[0]
    tables = [f"[scenarios.{PIN}]\npins_header = true\n"]
    for number in range(1, size):
        name = f"text-{number:03}"
        tables.append(f"[scenarios.{name}]\n")
        shutil.copytree(suite / PIN, suite / name, ignore=shutil.ignore_patterns("*.md", "*-schemas*"))
    (suite / "suite.toml").write_text(head + "\n".join(tables))
    return suite


def limit_cpus() -> None:
    """Stay on two CPUs where the system lets a process choose."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:CPUS])


def main() -> None:
    """Measure and print."""
    limit_cpus()
    baseline = "python -c 'import asyncio, msgspec'"
    print(f"suites of text scenarios on {CPUS} CPUs, per scenario, runner included; baseline {baseline}")
    per_scenario = {}
    with tempfile.TemporaryDirectory(prefix="onetake-bench-") as folder:
        for size, rounds in SIZES.items():
            suite = make_suite(Path(folder, str(size)), size)
            replay = command([*ONETAKE, "replay", str(suite), "--jobs", str(CPUS)])
            replay()  # compiled modules and files in the page cache are what a user's second run has
            costs = interleaved({"baseline": command(BASELINE), "replay": replay}, rounds)
            base, run = costs["baseline"], costs["replay"]
            per_scenario[size] = run.cpu / size / base.cpu
            report(
                f"{size} scenario{'s' * (size > 1)}",
                f"{run.wall / size:.3f} s, CPU {run.cpu / size:.3f} s",
                per_scenario[size],
                2.5,
                f"CPU ({base.cpu:.3f} s)",
            )
    growth = per_scenario[100] / per_scenario[10]
    report("growth from 10 to 100 scenarios", "", growth, 1.05, "the CPU of a scenario among 10")
