"""Lets `python -m onetake` stand in for the `onetake` command, where no script directory is on the PATH."""

from __future__ import annotations

from onetake.cli import main

if __name__ == "__main__":
    raise SystemExit(main())
