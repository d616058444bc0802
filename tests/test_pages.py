"""What the pages show runs as shown."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT

PAGE = ROOT / "docs/property-testing.md"
BLOCKS = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.S | re.M)


@pytest.mark.parametrize("code", BLOCKS, ids=range(len(BLOCKS)))
def test_a_block_of_the_page_about_properties_runs(tmp_path: Path, code: str) -> None:
    (tmp_path / "block.py").write_text(code)
    done = subprocess.run(
        [sys.executable, "block.py"], cwd=tmp_path, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_there_are_blocks() -> None:
    assert len(BLOCKS) == 3
