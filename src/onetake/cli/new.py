"""`onetake new`: the skeleton of a scenario, and of a suite when there is none yet."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import argparse

HELP = """\
Add a scenario to a suite: a folder with a script, and an entry at the end of suite.toml. Nothing that
exists is overwritten, and nothing is run; the last line says what to run next.

  onetake new tests/snapshots two-tools --prompt "Read both files." --prompt "Now compare them."

Begin a suite for an agent that has none. The overlay that replay boots is written too, unless it is there:

  onetake new tests/snapshots hello --config agent.yml --prompt "Say hello."
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of the command."""
    parser.add_argument("suite", metavar="SUITE", type=Path, help="suite.toml, or the folder that holds it")
    parser.add_argument("name", metavar="NAME", help="the scenario; its folder is called so")
    parser.add_argument(
        "--prompt",
        action="append",
        default=[],
        metavar="TEXT",
        help="a prompt of the script; repeatable",
    )
    parser.add_argument(
        "--pin",
        action="store_true",
        help="the scenario keeps prompt and tool schemas in full (the first one of a suite always does)",
    )
    parser.add_argument(
        "--config",
        metavar="FILE",
        type=Path,
        help="a new suite: the composition of the agent; else: another one than the suite's",
    )
    parser.add_argument(
        "--driver",
        choices=("acp", "headless"),
        help="a new suite: how the agent is talked to (default: acp)",
    )


def run(args: argparse.Namespace) -> int:
    """Write the skeleton and say what comes next. Raises `UsageError`."""
    from onetake.snapshot.report import display
    from onetake.snapshot.suites.scaffold import new_scenario

    made = new_scenario(
        args.suite,
        args.name,
        prompts=args.prompt,
        pin=args.pin,
        config=args.config,
        driver=args.driver,
    )
    for file in made.files:
        print(f"wrote {display(file)}")
    for note in made.notes:
        print(f"note: {note}")
    print(f"next: {made.next}")
    return 0
