"""The run file: exactly what runner and agent agreed on, or an error."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from onetake.errors import UsageError
from onetake.runfile import MintRule, RunFile, load_run

FULL: dict[str, Any] = {
    "mode": "replay",
    "fixtures": ["/s/session.jsonl"],
    "override": "/s/replay.override.json",
    "roots": {"cwd": "/c", "home": "/h", "spill": "/x"},
    "nonce": "abc",
    "mint": [{"pattern": "commit (.*)", "as": "commit"}],
    "sessionsRoot": "/logs",
    "requests": "/r.jsonl",
    "violations": "/v.jsonl",
    "pace": True,
}


def load(folder: Path, content: Any) -> RunFile | None:
    path = folder / "run.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    return load_run({"ONETAKE_RUN": str(path)})


def test_every_field_is_read(tmp_path: Path) -> None:
    run = load(tmp_path, FULL)
    assert run is not None
    assert run.mint == [MintRule("commit (.*)", "commit")]
    assert (run.sessions_root, run.requests, run.violations, run.pace) == (
        "/logs",
        "/r.jsonl",
        "/v.jsonl",
        True,
    )
    assert (run.mode, run.fixtures, run.override, run.nonce) == (
        "replay",
        ["/s/session.jsonl"],
        "/s/replay.override.json",
        "abc",
    )
    assert run.roots == FULL["roots"]


def test_only_the_mode_is_required(tmp_path: Path) -> None:
    run = load(tmp_path, {"mode": "record"})
    assert run == RunFile(mode="record")


@pytest.mark.parametrize("environ", [{}, {"ONETAKE_RUN": ""}])
def test_without_the_variable_there_is_no_run(environ: dict[str, str]) -> None:
    assert load_run(environ) is None


@pytest.mark.parametrize(
    "content", ["{", "[]", {}, {**FULL, "paces": True}, {**FULL, "mint": [{"pattern": "x", "name": "y"}]}]
)
def test_anything_else_is_refused(tmp_path: Path, content: Any) -> None:
    with pytest.raises(UsageError, match=r"run\.json: not a run file of this version: .*same onetake"):
        load(tmp_path, content)


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot read the run file: No such file"):
        load_run({"ONETAKE_RUN": str(tmp_path / "none.json")})
