"""What a user waits for: starting the agent, one scenario, a suite; next to a bare interpreter."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from benchmarks.measure import command, interleaved, report

EXAMPLE = Path(__file__).resolve().parent.parent / "examples" / "acp-agent"
SUITE = EXAMPLE / "tests" / "snapshots"
ONETAKE = [sys.executable, "-m", "onetake"]
BASELINE = [sys.executable, "-c", "import asyncio, msgspec"]
INITIALIZE = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {"protocolVersion": 1, "clientCapabilities": {}},
}
ROUNDS = 15


def agent_to_initialize() -> subprocess.Popen[bytes]:
    """Start the agent and wait for its answer to `initialize`; the caller ends it."""
    agent = subprocess.Popen(
        [*ONETAKE, "acp", "--config", str(EXAMPLE / "agent.yml")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "DEEPSEEK_API_KEY": "unused"},
    )
    assert agent.stdin is not None
    assert agent.stdout is not None
    agent.stdin.write(json.dumps(INITIALIZE).encode() + b"\n")
    agent.stdin.flush()
    answer = json.loads(agent.stdout.readline())
    assert answer["result"]["protocolVersion"] == 1
    return agent


def end(agent: subprocess.Popen[bytes]) -> None:
    """End an agent and wait for it, so that its CPU time is not counted for whoever comes next."""
    agent.kill()
    agent.communicate()


def peak_memory_mib() -> float | None:
    """Return an agent's peak resident memory after `initialize`, in MiB; None on systems without /proc."""
    agent = agent_to_initialize()
    try:
        status = Path(f"/proc/{agent.pid}/status").read_text()
    except FileNotFoundError:
        return None
    finally:
        agent.communicate()
    return int(status.split("VmHWM:")[1].split()[0]) / 1024


def main() -> None:
    """Measure and print."""
    costs = interleaved(
        {
            "baseline": command(BASELINE),
            "initialize": lambda: end(agent_to_initialize()),
            "scenario": command([*ONETAKE, "replay", str(SUITE), "-k", "text-turn", "--jobs", "1"]),
        },
        ROUNDS,
    )
    base, start, scenario = costs["baseline"], costs["initialize"], costs["scenario"]
    of = "python -c 'import asyncio, msgspec'"
    print(
        f"processes, medians of {ROUNDS} rounds; baseline {of}: "
        f"{base.wall * 1000:.0f} ms, CPU {base.cpu:.3f} s"
    )
    report(
        "spawn to initialize of the agent", f"{start.wall * 1000:.0f} ms", start.wall / base.wall, 1.5, "wall"
    )
    report(
        "one text scenario, runner included", f"{scenario.cpu:.3f} s CPU", scenario.cpu / base.cpu, 2.5, "CPU"
    )
    suite = interleaved(
        {"baseline": command(BASELINE), "suite": command([*ONETAKE, "replay", str(SUITE)])}, 3
    )
    wall, count = suite["suite"].wall, sum((path / "input.json").exists() for path in SUITE.iterdir())
    report(
        f"example suite, {count} scenarios in parallel",
        f"{wall:.2f} s",
        wall / suite["baseline"].wall,
        None,
        "wall",
    )
    memory = peak_memory_mib()
    if memory is not None:
        print(f"  {'peak memory of the agent after initialize':<44} {memory:>12.1f} MiB   (aim: 50 MiB)")
