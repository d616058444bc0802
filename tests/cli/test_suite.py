"""The usual spelling of `onetake replay` is read without argparse, and means what argparse makes of it."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onetake.cli import suite

SOURCES = Path(__file__).parents[2] / "src"
WORDS = [
    "-k",
    "--jobs",
    "--",
    "-",
    "one",
    "tests/a b",
    "",
    "0",
    "12",
    "-1",
    "٣",
    "--dry-run",
    "-kone",
    "--jobs=2",
]


def parsed(argv: list[str]) -> argparse.Namespace | None:
    """What argparse says; None when it refuses."""
    parser = argparse.ArgumentParser(allow_abbrev=False)
    suite.add_arguments(parser, writes=False)
    try:
        args = parser.parse_args(argv)
    except SystemExit:
        return None
    args.command = "replay"
    return args


@pytest.mark.parametrize(
    "argv",
    [[], ["a", "b"], ["-k", "one"], ["a", "-k", "not one", "--jobs", "2"], ["--jobs", "1", "--jobs", "3"]],
)
def test_the_usual_spelling_is_read_without_argparse(argv: list[str]) -> None:
    usual = suite.usual("replay", argv)
    assert usual is not None
    assert vars(usual) == vars(parsed(argv) or argparse.Namespace())


@pytest.mark.parametrize(
    "argv", [["--dry-run"], ["-k"], ["-k", "-x"], ["--jobs", "two"], ["-k", "one", "a"], ["--", "-a"], ["-h"]]
)
def test_every_other_spelling_is_left_to_argparse(argv: list[str]) -> None:
    assert suite.usual("replay", argv) is None


@given(st.lists(st.sampled_from(WORDS), max_size=5))
def test_what_is_read_without_argparse_is_what_argparse_reads(argv: list[str]) -> None:
    usual = suite.usual("replay", argv)
    if usual is not None:
        assert vars(usual) == vars(parsed(argv) or argparse.Namespace())


def test_a_usual_replay_loads_neither_argparse_nor_shutil(tmp_path: Path) -> None:
    program = (
        "import sys; from onetake.cli import main; code = main(['replay', 'nowhere', '-k', 'one']);"
        "print(code, sorted({'argparse', 'shutil', 'gettext'} & set(sys.modules)))"
    )
    environment = {**os.environ, "PYTHONPATH": str(SOURCES)}
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, check=True, cwd=tmp_path, env=environment
    )
    assert done.stdout.decode().strip() == "2 []"
    assert "nowhere" in done.stderr.decode()
