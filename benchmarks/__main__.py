"""Run all benchmarks and print their ratios; `python -m benchmarks codec` runs one."""

from __future__ import annotations

import sys

from benchmarks import codec, processes

ALL = {"processes": processes.main, "codec": codec.main}

for chosen in sys.argv[1:] or ALL:
    ALL[chosen]()
