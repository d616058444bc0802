"""`onetake config show FILE`: the composition as it really boots.

Overlays are applied and variables put in, every plugin is resolved to its object and every config typed, so
that this fails exactly where a boot would fail before its first plugin starts. Values that came from
variables whose name looks like that of a secret are masked.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import argparse

HELP = """\
Show a composition as it really boots: overlays applied, variables put in, every plugin resolved.

  onetake config show examples/acp-agent/agent.snapshot.yml
"""
MASK = "(hidden)"

_SECRET_NAME = re.compile(r"KEY|TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIAL|AUTH", re.IGNORECASE)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    commands = parser.add_subparsers(dest="config_command", required=True, metavar="COMMAND")
    show = commands.add_parser("show", help="print the composition as YAML")
    show.add_argument("file", type=Path, metavar="FILE", help="a composition or an overlay")


def run(args: argparse.Namespace) -> int:
    """Print the composition; returns the exit code."""
    sys.stdout.write(describe(args.file, os.environ))
    return 0


def describe(path: Path, environ: Mapping[str, str]) -> str:
    """The composed tree as YAML. Raises UsageError where a boot would."""
    import yaml

    from onetake.app.composition import load_composition
    from onetake.app.resolve import resolve

    plugins = {plugin.row.id: plugin for plugin in resolve(load_composition(path, environ))}
    masked = {name: MASK if _SECRET_NAME.search(name) else value for name, value in environ.items()}
    rows: list[dict[str, Any]] = []
    for row in load_composition(path, masked).rows:
        shown: dict[str, Any] = {"id": row.id, "use": row.use}
        if row.id in plugins:
            shown["plugin"] = plugins[row.id].target
        else:
            shown["disabled"] = True
        shown["file"] = str(row.file)
        if row.config:
            shown["config"] = row.config
        rows.append(shown)
    return yaml.safe_dump(rows, sort_keys=False, allow_unicode=True, width=110)
