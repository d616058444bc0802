"""`onetake acp`: serve the Agent Client Protocol on stdin and stdout, which carry nothing else."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import argparse

HELP = """\
Serve the Agent Client Protocol (ACP) on stdin and stdout, for an editor or any other client.

  onetake acp --config examples/acp-agent/agent.yml
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument(
        "--config", required=True, type=Path, metavar="FILE", help="the composition (agent.yml) to boot"
    )


def run(args: argparse.Namespace) -> int:
    """Serve until stdin ends or SIGTERM or SIGINT arrives; returns the exit code."""
    return serve(args.config)


def quick(argv: list[str]) -> int | None:
    """Serve `--config FILE` without loading argparse; None for any other spelling."""
    if len(argv) == 2 and argv[0] == "--config" and not argv[1].startswith("-"):
        return serve(Path(argv[1]))
    return None


def serve(config: Path) -> int:
    """Boot a composition and serve it on descriptors 0 and 1."""
    import asyncio

    from onetake.cli.descriptors import take_descriptors

    stdin, stdout = take_descriptors()
    asyncio.run(_serve(config, stdin, stdout))
    return 0


async def _serve(config: Path, stdin: int, stdout: int) -> None:
    import asyncio
    import signal

    from onetake.app.boot import boot
    from onetake.app.composition import load_composition
    from onetake.app.plugins import AcpOptions
    from onetake.runfile import load_run
    from onetake.surfaces.acp.server import serve_acp

    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    composition = load_composition(config, os.environ)
    async with boot(composition, run=load_run(os.environ)) as ctx:
        options = ctx.surface_options.get("acp", AcpOptions())
        await serve_acp(ctx, stdin, stdout, options, stop=stop)
