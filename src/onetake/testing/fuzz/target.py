"""The agent that is fuzzed: its command and environment, and how one process of it is started.

An agent never sees the environment of whoever runs the fuzzer, so no key reaches it: it gets `PATH`, a home
of its own and what it is given by name. `{{gateway.openai}}` in arguments and in variables stands for the
base URL of the model that answers.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import msgspec

from onetake.errors import UsageError
from onetake.snapshot.drive.env import find_program, search_path
from onetake.snapshot.drive.process import AgentProcess

MODEL_URL = "{{gateway.openai}}"
"""Where a command or a variable takes the base URL of a chat-completions endpoint (it ends in `/v1`)."""
MARK = "ONETAKE_FUZZ"
"""The variable by which the processes of a run are found again, whatever group they are in."""


class Place(msgspec.Struct, frozen=True):
    """The directories of one run, all under `run_dir`, but for a `cwd` that the user chose."""

    run_dir: Path
    cwd: Path
    home: Path
    stderr: Path


class Target(msgspec.Struct, frozen=True):
    """An agent."""

    command: Sequence[str]
    env: Mapping[str, str] = {}
    cwd: Path | None = None
    """Where the agent is started and its sessions work; by default in a new folder for each run."""

    def check(self) -> None:
        """Raises UsageError for an agent that cannot be told its model, or whose folder is not there."""
        if not any(MODEL_URL in text for text in (*self.command, *self.env.values())):
            raise UsageError(
                f"nothing tells the agent its model: put {MODEL_URL}, the base URL of the scripted one, into "
                f"a variable (--env NAME={MODEL_URL}) or into an argument of COMMAND"
            )
        if self.cwd is not None and not self.cwd.is_dir():
            raise UsageError(f"{self.cwd} is not a directory; --agent-cwd names one")

    def settle(self, run_dir: Path) -> Place:
        """Make the directories of a run."""
        place = Place(run_dir, self.cwd or run_dir / "work", run_dir / "home", run_dir / "stderr.txt")
        for directory in (place.cwd, place.home):
            directory.mkdir(exist_ok=True)
        return place

    def start(self, place: Place, model_url: str, on_line: Callable[[bytes], None]) -> AgentProcess:
        """Start a process of the agent. Raises AgentError when it cannot be started."""
        path = search_path(os.environ)
        program, *arguments = [part.replace(MODEL_URL, model_url) for part in self.command]
        env = {
            "PATH": path,
            "HOME": str(place.home),
            "LANG": "C.UTF-8",
            "TZ": "UTC",
            **{name: value.replace(MODEL_URL, model_url) for name, value in self.env.items()},
            MARK: f"{place.run_dir}/",
        }
        if "/" not in program:
            program = find_program(program, path) or program
        elif not os.path.isabs(program):
            program = os.path.abspath(program)
        return AgentProcess.start(
            [program, *arguments], env=env, cwd=place.cwd, stderr=place.stderr, on_line=on_line
        )
