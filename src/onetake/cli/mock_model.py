"""`onetake mock-model`: a scripted model endpoint to record against, and to test clients with."""

from __future__ import annotations

import argparse
from pathlib import Path

HELP = """\
Serve a chat-completions endpoint on loopback that answers from a script, and print its base URL when it is
ready. It runs until it gets SIGTERM or SIGINT. A request that no reply fits is answered with HTTP 400, naming
the request.

  onetake mock-model --script replies.json --port 8080
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    from onetake.gateway import script

    parser.description = f"{HELP}\n{script.__doc__}"
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--script", type=Path, required=True, metavar="FILE", help="the script, a JSON file")
    parser.add_argument("--port", type=int, default=0, metavar="N", help="port; by default a free one")
    parser.add_argument(
        "--capture", type=Path, metavar="FILE", help="append every request body as a JSON line"
    )
    parser.add_argument("--port-file", type=Path, metavar="FILE", help="write the port there once it is open")


def run(args: argparse.Namespace) -> int:
    """Serve until a signal comes. Raises UsageError for an unreadable script or a port that is taken."""
    import asyncio

    return asyncio.run(_serve(args.script, args.port, args.capture, args.port_file))


async def _serve(script_path: Path, port: int, capture: Path | None, port_file: Path | None) -> int:
    import asyncio
    import signal

    from onetake.errors import UsageError
    from onetake.gateway.mock import MockModel
    from onetake.gateway.script import load_script

    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopped.set)
    try:
        raw = script_path.read_bytes()
    except OSError as error:
        raise UsageError(
            f"{script_path}: cannot be read: {error.strerror}; --script names a script"
        ) from error
    try:
        script = load_script(raw, str(script_path))
        async with MockModel(script, port=port, capture=capture) as mock:
            if port_file is not None:
                _publish(port_file, mock.port)
            print(f"mock-model: {mock.base_url}", flush=True)
            await stopped.wait()
    except OSError as error:
        raise UsageError(f"mock-model: {error}") from error
    return 0


def _publish(path: Path, port: int) -> None:
    """Write the port so that a reader sees either no file or all of it."""
    import os

    part = path.with_name(f"{path.name}.part")
    part.write_text(f"{port}\n", encoding="ascii")
    os.replace(part, path)
