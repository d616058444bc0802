"""A recorded suite of a real agent, made once per test session; each test works on a copy of its own."""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from onetake.snapshot.drive.env import remove_tree
from tests.snapshot.lab import Lab, build_lab


@pytest.fixture(autouse=True)
def _outside_ci(monkeypatch: pytest.MonkeyPatch) -> None:
    """Record and refresh refuse where CI is set; what tests that refusal sets it again."""
    monkeypatch.delenv("CI", raising=False)


@pytest.fixture(scope="session")
def recorded_lab(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The suite as record and refresh wrote it. Read only."""
    folder = tmp_path_factory.mktemp("lab") / "agent"
    before = os.environ.pop("CI", None)
    try:
        build_lab(folder)
    finally:
        if before is not None:
            os.environ["CI"] = before
    return folder


@pytest.fixture
def lab(recorded_lab: Path, tmp_path: Path) -> Lab:
    """A copy to break."""
    folder = tmp_path / "agent"
    shutil.copytree(recorded_lab, folder)
    return Lab(folder)


@pytest.fixture
def own_tmp(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A temporary directory of this test alone, short and plain as the generated roots need it."""
    folder = Path("/tmp").resolve() / f"x{secrets.token_hex(4)}"
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    yield folder
    remove_tree(folder)
