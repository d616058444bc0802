"""`onetake refresh`: accept a changed harness, keep what the model said."""

from __future__ import annotations

from typing import TYPE_CHECKING

from onetake.cli import suite

if TYPE_CHECKING:
    import argparse

HELP = """\
Replay scenarios and rewrite what the agent put out: expected files, and the log around what the model
said, which stays byte for byte. This is how a change of the agent is accepted, to be reviewed as a diff.
Needs no key.

  onetake refresh my-agent --dry-run        what would change
  onetake refresh my-agent -k front-desk

Refused, and nothing written, where the run left the recording: then record the scenario again. One
scenario at a time, pins first. Refused while CI is set.
"""
run = suite.run


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of the command."""
    suite.add_arguments(parser, writes=True)
