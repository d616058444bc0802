"""Suites for tests of the runner, with the fake agent as their subject."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from onetake.snapshot.drive.execute import execute
from onetake.snapshot.drive.harvest import Harvest
from onetake.snapshot.suites.suite import Suite, load_suite

FAKE_AGENT = Path(__file__).parent / "fake_agent.py"
HEADER = '{"type":"session","version":0,"id":"{{sessionId}}","createdAt":0,"delegationDepth":0}\n'
LIVE = "- {id: model, use: openai-chat, config: {id: p, base_url: 'http://127.0.0.1:9', models: [m]}}\n"
"""The fake agent reads no composition, but the guards do."""
OVERLAY = """\
base: agent.yml
patches:
  - {id: model, disabled: true}
  - {insert: [{id: replay, use: replay}], after: model}
"""
OPENING: list[dict[str, Any]] = [{"op": "initialize"}, {"op": "newSession"}]


def make_suite(
    folder: Path,
    scenarios: Mapping[str, Sequence[dict[str, Any]]],
    *,
    command: Sequence[str] = (sys.executable, str(FAKE_AGENT)),
    suite: str = "",
    agent: str = "",
    tables: Mapping[str, str] | None = None,
    answers: Sequence[str] = (),
    extra: str = "",
) -> Suite:
    """A suite with one folder per scenario; every scenario is authored and makes no recorded call."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "agent.yml").write_text(LIVE)
    (folder / "agent.snapshot.yml").write_text(OVERLAY)
    lines = [
        "[suite]",
        suite,
        "[agent]",
        f"command = {json.dumps(list(command))}",
        'config = "agent.yml"',
        agent,
    ]
    for name, steps in scenarios.items():
        lines += [f"[scenarios.'{name}']", (tables or {}).get(name, "model_turn = false")]
        (folder / name).mkdir(exist_ok=True)
        script = {"steps": list(steps), "permissionAnswers": [{"kind": kind} for kind in answers]}
        (folder / name / "input.json").write_text(json.dumps(script))
        (folder / name / "session.jsonl").write_text(HEADER)
    (folder / "suite.toml").write_text("\n".join([*lines, extra]) + "\n")
    return load_suite(folder)


def prompts(*texts: str) -> list[dict[str, Any]]:
    """A script that opens a session and sends these prompts."""
    return [*OPENING, *({"op": "prompt", "text": text} for text in texts)]


def drive(suite: Suite, name: str = "one", mode: str = "replay", **environ: str) -> Harvest:
    """Run one scenario of the suite once."""
    variables = {"PATH": os.environ["PATH"], **environ}
    return asyncio.run(execute(suite, suite.scenarios[name], mode, environ=variables))


def drive_steps(
    folder: Path, steps: Sequence[dict[str, Any]], mode: str = "replay", **options: Any
) -> Harvest:
    """Run these steps against the fake agent, once."""
    return drive(make_suite(folder, {"one": steps}, **options), mode=mode)


def said(harvest: Harvest) -> str:
    """Everything that the agent said, joined."""
    texts = []
    for frame in map(json.loads, harvest.frames):
        if frame.get("method") == "session/update":
            texts.append(frame["params"]["update"]["content"]["text"])
    return "".join(texts)


def alive(pid: int) -> bool:
    """Whether a process runs (a zombie does not)."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


def processes_in(folder: Path) -> list[int]:
    """The processes that work under a folder."""
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            if os.readlink(f"/proc/{name}/cwd").startswith(f"{folder}/"):
                found.append(int(name))
    return found
