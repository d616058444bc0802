"""What a failing scenario leaves to look at: `.onetake/failed/<scenario>/` in the suite's folder."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from onetake.snapshot.env import remove_tree
from onetake.snapshot.harvest import Harvest
from onetake.snapshot.suite import Scenario, Suite

FOLDER = ".onetake"


def artifacts_dir(suite: Suite, scenario: Scenario) -> Path:
    """Where the artifacts of a scenario are, if it failed."""
    return suite.dir / FOLDER / "failed" / scenario.name


def clear(suite: Suite, scenario: Scenario) -> None:
    """Remove what an earlier failure left, so that it is not taken for this run's."""
    remove_tree(artifacts_dir(suite, scenario))


def keep(harvest: Harvest, suite: Suite, scenario: Scenario, failure: str) -> Path:
    """Keep workspace, logs, requests, stdout and stderr of a failed run, with the failure's text; the folder.

    The workspace and the store are moved, so this comes after everything that reads them.
    """
    target = artifacts_dir(suite, scenario)
    remove_tree(target)
    target.mkdir(parents=True)
    with contextlib.suppress(FileExistsError), (suite.dir / FOLDER / ".gitignore").open("x") as ignore:
        ignore.write("*\n")
    for log in harvest.sessions:
        index = harvest.bindings[log.id]
        name = f"session.{index}.jsonl" if index else "session.jsonl"
        lines = [log.header_raw, *(record.raw for record in log.records)]
        (target / name).write_bytes(b"\n".join(lines) + b"\n")
    (target / "stdout.jsonl").write_bytes(b"".join(frame + b"\n" for frame in harvest.frames))
    (target / "failure.txt").write_text(failure + "\n", encoding="utf-8")
    _move(harvest.workspace, target / "workspace")
    for name, kept in (
        ("logs", "store"),
        ("stderr.txt",) * 2,
        ("requests.jsonl",) * 2,
        ("violations.jsonl",) * 2,
    ):
        _move(harvest.run_dir / name, target / kept)
    return target


def _move(source: Path, target: Path) -> None:
    with contextlib.suppress(FileNotFoundError):
        try:
            os.rename(source, target)
        except OSError as error:
            if isinstance(error, FileNotFoundError):
                raise
            import shutil  # another file system; rare, and the import is not cheap

            shutil.move(source, target)
