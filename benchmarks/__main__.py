"""Run all benchmarks and print their ratios; `python -m benchmarks codec` runs one."""

from __future__ import annotations

import os
import sys

from benchmarks import codec, differences, gateway, processes, suites

ALL = {
    "processes": processes.main,
    "codec": codec.main,
    "differences": differences.main,
    "gateway": gateway.main,
    "suites": suites.main,
}

os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # users have compiled modules; so must what we start

for chosen in sys.argv[1:] or ALL:
    ALL[chosen]()
