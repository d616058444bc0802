"""What a failing scenario leaves to look at: `.onetake/failed/<scenario>/` in the suite's folder.

    failure.txt        what was reported, with whole diffs
    session*.jsonl     the logs in plain text, numbered like the fixtures
    store/             the logs as the agent stored them
    requests.jsonl     every model call in full
    stdout.jsonl       every line of the agent's stdout
    stderr.txt, violations.jsonl, workspace/
    live/              the same of the run that asked the model, where a replay refused its recording

The folder ignores itself for git. All of it is from one command: commands that run the same scenario at the
same time take turns, and the last one stays. The next run of the scenario removes it.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from onetake.snapshot.drive.harvest import Harvest
from onetake.snapshot.drive.rundirs import remove_tree
from onetake.snapshot.suites.suite import Scenario, Suite

FOLDER = ".onetake"
LIVE = "live"


def artifacts_dir(suite: Suite, scenario: Scenario) -> Path:
    """Where the artifacts of a scenario are, if it failed."""
    return suite.dir / FOLDER / "failed" / scenario.name


def clear(suite: Suite, scenario: Scenario) -> None:
    """Remove what an earlier failure left, so that it is not taken for this run's."""
    target = artifacts_dir(suite, scenario)
    if target.exists():
        from onetake.snapshot.modes.write import locked

        with locked(suite.dir / FOLDER):
            remove_tree(target)


def keep(
    harvest: Harvest, suite: Suite, scenario: Scenario, failure: str, *, live: Harvest | None = None
) -> Path:
    """Keep workspace, logs, requests, stdout and stderr of a failed run, with the failure's text; the folder.

    `live` is the run that asked the model, where the failed one is a replay of it: what it brought was paid
    for.
    The workspace and the store are moved, so this comes after everything that reads them. OSErrors pass
    through.
    """
    from onetake.snapshot.modes.write import locked

    target, folder = artifacts_dir(suite, scenario), suite.dir / FOLDER
    folder.mkdir(exist_ok=True)
    with locked(folder):
        _ignore(folder / ".gitignore")
        remove_tree(target)
        target.mkdir(parents=True)
        text = f"{failure}\n"
        (target / "failure.txt").write_text(text, encoding="utf-8", errors="backslashreplace")
        _fill(target, harvest)
        if live is not None:
            (target / LIVE).mkdir()
            _fill(target / LIVE, live)
    return target


def _ignore(file: Path) -> None:
    """Let git see nothing of the folder. An empty file is what a full disk left."""
    if not file.exists() or not file.stat().st_size:
        file.write_text("*\n", encoding="utf-8")


def _fill(target: Path, harvest: Harvest) -> None:
    for log in harvest.sessions:
        index = harvest.bindings[log.id]
        name = f"session.{index}.jsonl" if index else "session.jsonl"
        lines = [log.header_raw, *(record.raw for record in log.records)]
        (target / name).write_bytes(b"\n".join(lines) + b"\n")
    (target / "stdout.jsonl").write_bytes(b"".join(frame + b"\n" for frame in harvest.frames))
    _move(harvest.workspace, target / "workspace")
    for name, kept in (
        ("logs", "store"),
        ("stderr.txt",) * 2,
        ("requests.jsonl",) * 2,
        ("violations.jsonl",) * 2,
    ):
        _move(harvest.run_dir / name, target / kept)


def _move(source: Path, target: Path) -> None:
    with contextlib.suppress(FileNotFoundError):
        try:
            os.rename(source, target)
        except OSError as error:
            if isinstance(error, FileNotFoundError):
                raise
            import shutil  # another file system; rare, and the import is not cheap

            shutil.move(source, target)
