"""Real nondeterminism, end to end: record the same script twice from a model that samples, and replay both.

`make record-e2e` runs this. Two scratch copies of the example agent record a short talk with the local model.
The lane fails unless

- the two recordings hold different texts (or nothing here was nondeterministic),
- each replays twice without a model, an endpoint or a key, and no file changes,
- the one, given the transcript of the other, goes red (or the replays above proved nothing).

Nothing in the checkout is written. A red lane keeps its scratch copies and says where they are.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from endpoint import environment, local_model

from onetake.replay.script import derive_replay_script
from onetake.session.jsonl import read_log

AGENT = Path(__file__).resolve().parent.parent / "acp-agent"
SUITE = """\
[suite]
driver = "acp"
surfaces = ["requests", "stdout", "log"]

[agent]
command = ["onetake", "acp", "--config", "{config}"]
config = "agent.yml"
record_env = ["DEEPSEEK_API_KEY", "DEEPSEEK_BASE_URL"]

[scenarios.story]
pins_header = true
"""
# A story is long enough never to come out twice; the second turn sends it back to the model.
STEPS = [
    {"op": "initialize"},
    {"op": "newSession"},
    {"op": "prompt", "text": "Tell me a short story about a lighthouse keeper and a fox."},
    {"op": "prompt", "text": "How does the fox feel about it?"},
]
FIXTURE = Path("story") / "session.jsonl"
TRANSCRIPT = Path("story") / "stdout.expected.jsonl"


class Failed(Exception):
    """The lane is red; the text says why."""


def onetake(mode: str, take: Path, environ: Mapping[str, str]) -> int:
    """Run the suite of a take in a mode, its output shown; returns the exit code."""
    return subprocess.run(
        [sys.executable, "-m", "onetake", mode, str(take)], env=environ, check=False
    ).returncode


def new_take(folder: Path) -> Path:
    """A suite of one scenario, not yet recorded, beside a copy of the example agent's compositions."""
    (folder / "story").mkdir(parents=True)
    for name in ("agent.yml", "agent.snapshot.yml"):
        shutil.copy(AGENT / name, folder)
    (folder / "suite.toml").write_text(SUITE)
    (folder / "story" / "input.json").write_text(json.dumps({"steps": STEPS}, indent=2) + "\n")
    return folder


def said(take: Path) -> str:
    """The text that the model of a recording wrote, all calls joined."""
    fixture = take / FIXTURE
    script = derive_replay_script(read_log(fixture.read_bytes(), str(fixture)).events)
    return "".join(chunk.get("text", "") for entry in script for chunk in entry["chunks"])


def fingerprint(take: Path) -> str:
    """A digest of every file of a take, by name and content."""
    digest = hashlib.sha256()
    for path in sorted(path for path in take.rglob("*") if path.is_file()):
        digest.update(f"{path.relative_to(take)}\0".encode() + hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()


def run(scratch: Path) -> None:
    """The lane; raises Failed."""
    # `record` refuses under CI: a job that rewrites its own goldens cannot fail. This writes scratch copies.
    environ = {name: value for name, value in os.environ.items() if name not in ("CI", "ONETAKE_SNAPSHOT")}
    takes = [new_take(scratch / name) for name in ("first", "second")]
    with local_model() as base_url:
        for take in takes:
            if onetake("record", take, environment(base_url, environ)) != 0:
                raise Failed(f"the recording of the {take.name} take failed")

    texts = [said(take) for take in takes]
    for take, text in zip(takes, texts, strict=True):
        print(f"\n{take.name} take: {text[:200]!r}... ({len(text)} characters)\n", flush=True)
    if not all(texts):
        raise Failed("a recording holds no text")
    if texts[0] == texts[1]:
        raise Failed("both recordings hold the same text: the model did not sample")

    for take in takes:
        before = fingerprint(take)
        for attempt in (1, 2):
            if onetake("replay", take, environ) != 0:
                raise Failed(f"replay {attempt} of the {take.name} take is red")
        if fingerprint(take) != before:
            raise Failed(f"replaying the {take.name} take changed its files")

    shutil.copytree(takes[0], scratch / "crossed")
    shutil.copy(takes[1] / TRANSCRIPT, scratch / "crossed" / TRANSCRIPT)
    print("\nThe first take with the transcript of the second; this must go red:", flush=True)
    if onetake("replay", scratch / "crossed", environ) != 1:
        raise Failed("the first take replays green against the transcript of the second")


def main() -> int:
    """Run the lane in a scratch folder, which stays only when the lane is red."""
    scratch = Path(tempfile.mkdtemp(prefix="onetake-record-e2e-"))
    try:
        run(scratch)
    except Failed as failure:
        print(f"\nrecord-e2e: {failure}; see {scratch}", file=sys.stderr)
        return 1
    shutil.rmtree(scratch)
    print("\nrecord-e2e: two recordings, two texts; each replays green twice, and crossed they go red")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
