"""What holds for whoever looks after committed suites: what is whole is left alone, what is not is mended."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from onetake.testing.errors import InvariantViolation
from onetake.testing.invariants.replay import Equal

Look = Callable[[Path], Sequence[Any]]
"""What is wrong with a suite, given its suite.toml; empty when nothing is."""
Mend = Callable[[Path], object]
"""Rewrite what is in an old layout, given the suite.toml."""


def check_clean(look: Look, mend: Mend, suite: Path) -> None:
    """A suite as a recording writes it has nothing wrong, and nothing to be mended."""
    found = look(suite)
    if found:
        raise InvariantViolation(f"a suite that was recorded is said to be wrong: {found!r}")
    before = _files(suite.parent)
    mend(suite)
    _require_equal(before, _files(suite.parent))


def check_mended(look: Look, mend: Mend, suite: Path, file: Path, aged: bytes, equal: Equal) -> None:
    """A file in another layout is noticed and mended: it says what it said, and no other file changes."""
    before = _files(suite.parent)
    file.write_bytes(aged)
    if not look(suite):
        raise InvariantViolation(f"nobody sees that {file.name} is {aged!r} instead of {before[file]!r}")
    mend(suite)
    after = _files(suite.parent)
    if look(suite) or not equal(before[file], after[file]):
        raise InvariantViolation(f"{file.name}: expected {before[file]!r}, came {after[file]!r} of {aged!r}")
    _require_equal(before, {**after, file: before[file]})


def _files(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def _require_equal(expected: dict[Path, bytes], came: dict[Path, bytes]) -> None:
    if expected.keys() != came.keys():
        raise InvariantViolation(f"files: expected {sorted(expected)}, came {sorted(came)}")
    for path, raw in expected.items():
        if came[path] != raw:
            raise InvariantViolation(f"{path.name}: expected {raw!r}, came {came[path]!r}")
