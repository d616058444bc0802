"""`onetake record`: ask the real model once, and keep what can be replayed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from onetake.cli import suite

if TYPE_CHECKING:
    import argparse

HELP = """\
Run scenarios against the real model and write what happens: session.jsonl, which holds what the model
said, and every expected file. Before anything is written, two replays must repeat the run; else the
recording is refused, the difference is shown, and what the model said is kept in .onetake/failed/.

  MODEL_KEY=... onetake record my-agent -k front-desk
  onetake record my-agent --dry-run         asks the model too, and writes nothing

The agent sees the variables that suite.toml names in [agent] record_env, from the environment or from
.env beside its composition. Authored scenarios (recorded = false, overridden, model_turn = false) are
skipped; their files are written by `onetake refresh`. One scenario at a time, pins first. Refused while
CI is set.
"""
run = suite.run


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of the command."""
    suite.add_arguments(parser, writes=True)
