"""`onetake run`: one prompt, JSON events on stdout, and an exit code that says how it ended."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import argparse

HELP = """\
Give an agent one prompt and print what happens, one JSON object a line: messages, tool calls and results,
and at the end a line of the type `result` with the ending, the last answer and the token counts.

  onetake run --config examples/headless-agent/agent.yml "Which files are here?"
  git diff | onetake run --config agent.yml - | tail -1

Exit codes: 0 completed, 4 a turn failed, 5 cut off at the output limit, 6 too many steps, 7 refused,
130 cancelled by SIGINT (143 by SIGTERM; before the agent had started: without a result line). Without a
result line: 1 a fault of onetake, 2 wrong usage or malformed input, 3 the agent could not be started, 141 the
reader of stdout has gone.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument(
        "--config", required=True, type=Path, metavar="FILE", help="the composition (agent.yml) to boot"
    )
    parser.add_argument(
        "--cwd", type=Path, default=Path(), metavar="DIR", help="where the agent works (default: here)"
    )
    parser.add_argument("prompt", metavar="PROMPT", help="what to do; - reads it from stdin")


def run(args: argparse.Namespace) -> int:
    """Run the prompt; returns the exit code that its ending stands for. Raises UsageError."""
    return run_prompt(args.config, args.prompt, args.cwd)


def quick(argv: list[str]) -> int | None:
    """Run `--config FILE PROMPT` without loading argparse; None for any other spelling."""
    if len(argv) != 3 or argv[0] != "--config" or argv[1].startswith("-"):
        return None
    if argv[2].startswith("-") and argv[2] != "-":
        return None
    return run_prompt(Path(argv[1]), argv[2], Path())


def run_prompt(config: Path, prompt: str, cwd: Path) -> int:
    """Boot a composition and run one prompt in it. Raises UsageError and AgentError before there is one."""
    import asyncio

    from onetake.cli.descriptors import take_descriptors
    from onetake.errors import UsageError

    if not cwd.is_dir():
        raise UsageError(f"--cwd {cwd}: is not a directory")
    stdin, stdout = take_descriptors()
    with os.fdopen(stdin, "rb") as source:
        text = _decoded(source.read()) if prompt == "-" else prompt
    if not text.strip():
        raise UsageError("the prompt is empty")
    return asyncio.run(_run(config, text, Path(os.path.abspath(cwd)), stdout))


def _decoded(data: bytes) -> str:
    """The prompt on stdin, without the newline that ends its last line."""
    from onetake.errors import UsageError

    try:
        return data.decode("utf-8").removesuffix("\n")
    except UnicodeDecodeError as error:
        raise UsageError(f"the prompt on stdin is not UTF-8: {error}") from error


async def _run(config: Path, prompt: str, cwd: Path, stdout: int) -> int:
    import asyncio
    from contextlib import AsyncExitStack

    from onetake.app.boot import boot
    from onetake.app.composition import load_composition
    from onetake.runfile import load_run
    from onetake.surfaces.headless import Stop, run_headless

    stop = Stop()
    stop.on_signals()
    composition = load_composition(config, os.environ)
    async with AsyncExitStack() as stack:
        try:
            with stop.hurried():
                ctx = await stack.enter_async_context(boot(composition, run=load_run(os.environ)))
        except asyncio.CancelledError:
            if stop.code is None:
                raise
            return stop.code
        return await run_headless(ctx, prompt, cwd, stdout, stop)
