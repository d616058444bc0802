"""`kill -9` at random moments: the log loads, all that was acknowledged is there, the tail is reported."""

from __future__ import annotations

import asyncio
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

from onetake.session.store import Compression, SessionStore

PROGRAM = Path(__file__).with_name("acknowledge.py")
SOURCES = Path(__file__).parents[2] / "src"


def write_and_kill(root: Path, compression: str, acknowledgements: int, delay: float) -> int:
    """Let the program write, kill it some time after it acknowledged, return the last acknowledged count."""
    process = subprocess.Popen(
        [sys.executable, PROGRAM, root, compression],
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(SOURCES)},
    )
    assert process.stdout is not None
    try:
        last = [int(process.stdout.readline()) for _ in range(acknowledgements)][-1]
        try:
            process.wait(delay)
        except subprocess.TimeoutExpired:
            process.kill()
        rest = process.stdout.read()
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
    counts = [int(line) for line in rest.split(b"\n")[:-1]]  # only whole lines say something
    return max(counts, default=last)


@pytest.mark.parametrize("compression", ["zstd", "none"])
def test_what_was_acknowledged_survives_kill_9(
    tmp_path: Path, compression: Compression, nightly: bool
) -> None:
    """3 rounds, 50 in the nightly run; each continues to work after resuming."""
    for round_ in range(50 if nightly else 3):
        root = tmp_path / str(round_)
        acknowledged = write_and_kill(root, compression, random.randrange(1, 4), random.uniform(0, 0.05))
        store = SessionStore(root, compression=compression, project="p")
        (path,) = store.logs()
        size = path.stat().st_size
        loaded = store.load(path)
        assert len(loaded.log.events) >= acknowledged
        assert [event["seq"] for event in loaded.log.events] == list(range(len(loaded.log.events)))
        resumed = store.resume(path)
        assert resumed.torn == loaded.torn
        if loaded.torn is not None:
            assert loaded.torn.offset + loaded.torn.size == size
            assert path.stat().st_size == loaded.torn.offset
        asyncio.run(resumed.writer.close())
        again = store.load(path)
        assert again.torn is None
        assert again.log.events == resumed.log.events
        assert again.log.events[-1]["data"] == {"turn": 1, "reason": {"kind": "interrupted"}}
