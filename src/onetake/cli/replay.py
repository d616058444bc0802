"""`onetake replay`: compare what an agent does with its recordings."""

from __future__ import annotations

from typing import TYPE_CHECKING

from onetake.cli import suite

if TYPE_CHECKING:
    import argparse

HELP = """\
Run the scenarios of snapshot suites against their recordings. The agent boots with the recording in place
of the model; its requests, its transcript and its log are compared with what is committed. Needs no key
and writes nothing but what a failing scenario left behind, in .onetake/failed/ of the suite.

  onetake replay                            every suite here and below
  onetake replay examples/acp-agent -k "bash and not cancel"

A failure ends with the command that would accept it. The model may only say what it said: a call that was
not recorded, or a recorded one that was not made, is red. Tools run live: their network is neither
recorded nor blocked. Exit codes: 0 as expected, 1 something differs, 2 wrong usage or malformed input, 3
the agent did not start or died.
"""
run = suite.run


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of the command."""
    suite.add_arguments(parser, writes=False)


def quick(argv: list[str]) -> int | None:
    """Run the usual spelling without loading argparse; None for any other."""
    args = suite.usual("replay", argv)
    return None if args is None else run(args)
