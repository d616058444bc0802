"""`scripts/find-python` chooses the interpreter of a fresh clone, and says what to do when there is none."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

TOOL = Path(__file__).resolve().parent.parent / "scripts" / "find-python"

# A stand-in answers the three questions that the tool asks: which version, is it too old, can it make a venv?
STAND_IN = """#!/bin/sh
case "$2" in
    *version_info\\[:2\\]*) {version} ;;
    *"version_info <"*) exit {too_old} ;;
    *ensurepip*) exit {no_pip} ;;
esac
"""


def interpreter(
    folder: Path, name: str, version: str = "", *, too_old: bool = False, no_pip: bool = False
) -> None:
    """Put a stand-in on the PATH; without a version it is a shim with nothing behind it."""
    answer = f"echo {version}" if version else "exit 127"
    path = folder / name
    path.write_text(STAND_IN.format(version=answer, too_old=int(too_old), no_pip=int(no_pip)))
    path.chmod(0o755)


def find(folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run the tool where only `folder` is on the PATH."""
    return subprocess.run([TOOL], env={"PATH": str(folder), **variables}, capture_output=True, text=True)


def test_the_newest_that_works_is_taken(tmp_path: Path) -> None:
    interpreter(tmp_path, "python3.14")
    interpreter(tmp_path, "python3.13", "3.13", no_pip=True)
    interpreter(tmp_path, "python3.12", "3.12")
    interpreter(tmp_path, "python3.11", "3.11")
    assert find(tmp_path).stdout.strip() == str(tmp_path / "python3.12")


def test_a_later_version_than_we_know_is_taken_when_it_is_the_only_one(tmp_path: Path) -> None:
    interpreter(tmp_path, "python3", "3.20")
    assert find(tmp_path).stdout.strip() == str(tmp_path / "python3")


def test_the_named_one_is_taken(tmp_path: Path) -> None:
    interpreter(tmp_path, "python3.14", "3.14")
    interpreter(tmp_path, "mine", "3.11")
    assert find(tmp_path, PYTHON="mine").stdout.strip() == str(tmp_path / "mine")


@pytest.mark.parametrize(
    ("version", "flaw", "said"),
    [
        (
            "3.11",
            "no_pip",
            "without venv or ensurepip: python3 (3.11) (on Debian and Ubuntu: apt-get install",
        ),
        ("3.9", "too_old", "too old: python3 (3.9)"),
        ("", "too_old", "no Python was found"),
    ],
)
def test_a_machine_without_a_usable_one_is_told_what_to_do(
    tmp_path: Path, version: str, flaw: str, said: str
) -> None:
    interpreter(tmp_path, "python3", version, **{flaw: True})
    found = find(tmp_path)
    assert found.returncode == 2
    assert found.stdout == ""
    assert said in found.stderr
    assert "make PYTHON=" in found.stderr


def test_this_machine_has_one() -> None:
    found = subprocess.run([TOOL], capture_output=True, text=True, check=True).stdout.strip()
    assert os.access(found, os.X_OK)
