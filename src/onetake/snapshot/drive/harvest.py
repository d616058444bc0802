"""What one run of an agent left behind: the only thing that the judging side ever sees of it.

The runner fills a `Harvest`; rendering it into expected files is pure. Nothing here is tokenized or
normalized yet: values are live, frames are raw bytes, logs are decoded from the store.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from onetake.snapshot.drive.env import remove_run

if TYPE_CHECKING:
    from onetake.session.jsonl import LogFile


class Leftover(msgspec.Struct, frozen=True):
    """A recorded session whose calls were not all made (counted by the runner from the requests file)."""

    session: int
    """Index of the fixture: 0 is session.jsonl, N is session.N.jsonl."""
    fixture: str
    recorded: int
    """Calls that the fixture (or its override) holds."""
    made: int
    """Calls that the run made."""


class Harvest(msgspec.Struct, kw_only=True):
    """One run, live values and raw bytes."""

    scenario: str
    mode: str
    """What the agent ran as: replay, record or refresh."""
    frames: list[bytes] = []
    """Every line of the agent's stdout, without its newline, in order, whether it parses or not."""
    stderr: str = ""
    exit_code: int | None = None
    """Of the last agent process; None when it never started or had to be killed by the runner."""
    ended: bool = False
    """Whether the agent ended by itself: then whatever it wrote must be whole."""
    sessions: list[LogFile] = []
    """Decoded logs in fixture order: 0 is the primary one (`replay.binding` decides).

    Their numbers are in `bindings`: where a recorded session did not take place, one is missing.
    """
    opened: list[str] = []
    """Ids of the sessions that the script opened, in order, whether they logged anything or not."""
    bindings: dict[str, int] = {}
    """Live session id -> fixture index."""
    requests: list[dict[str, Any]] = []
    """Captured model calls, in the order of the file (order of arrival)."""
    violations: list[dict[str, Any]] = []
    leftovers: list[Leftover] = []
    left_running: list[str] = []
    """Command lines of processes that outlived an agent which ended by itself. They were killed."""
    warnings: list[str] = []
    """What a recording of this run could not keep of what the endpoint sent."""
    unused_answers: list[str] = []
    """The kinds of the permission answers of the script that the agent did not ask for."""
    roots: dict[str, str] = {}
    """The generated roots: cwd, home, spill."""
    nonce: str = ""
    run_dir: Path
    """The directory that holds everything of this run; `discard` removes it."""
    workspace: Path
    error: str | None = None
    """Why the drive failed: what was awaited, with the end of the agent's stderr. None when it succeeded."""
    error_exit: int = 0
    """The exit code that `error` stands for: 1 the agent misbehaved, 3 it did not start or died."""
    seconds: float = 0.0

    def discard(self) -> None:
        """Remove what the run left on disk; what something else still writes to stays, for the next sweep."""
        remove_run(self.run_dir, self.workspace)
