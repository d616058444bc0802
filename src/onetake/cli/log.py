"""`onetake log`: look into session logs, and change their spelling but never their content."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

from onetake import jsontext
from onetake.errors import UsageError
from onetake.session import jsonl
from onetake.session.jsonl import LogFile

HELP = """\
Read, pack and unpack session logs: live ones (session.jsonl.zstd, session.jsonl) and committed
fixtures alike. No command changes the file that it reads.

  onetake log show ~/.onetake/sessions/my-project/*/session.jsonl.zstd   # what happened?
  onetake log events session.jsonl | jq -c 'select(.type == "tool/call")'
  onetake log unpack session.jsonl | onetake log pack --project /dev/stdin | diff - session.jsonl
"""

ACTIONS: dict[str, tuple[str, str]] = {
    "show": (
        "an overview for people: turns, steps, texts and tools",
        "Reads a log in any state: compressed, plain, projected, being written, torn by a kill. Exit code 2 "
        "when it is damaged; what is before the damage is shown.",
    ),
    "events": (
        "every event, one JSON object per line",
        "Packed rows are unpacked; absent sequence numbers and times are filled in.",
    ),
    "messages": (
        "the model's history, one message per line",
        "What a model would be sent after the last event, derived from the surface events alone.",
    ),
    "script": (
        "the replay script, one entry per line",
        "One entry per recorded model call, without what a forked child inherited. A call whose stream has "
        "no end is an entry of kind `underivable`.",
    ),
    "figures": (
        "counts and digests, one JSON object per file",
        "For comparing decoders: two programs that read a log alike print the same figures.",
    ),
    "pack": (
        "rewrite with maximal packed rows",
        "Runs of delta events become rows. Everything else keeps its bytes.",
    ),
    "unpack": (
        "rewrite with one event per line and full envelopes",
        "The reverse of pack: every event has its line, its sequence number and its time.",
    ),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the actions and their arguments."""
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    for name, (summary, description) in ACTIONS.items():
        action = actions.add_parser(name, help=summary, description=description, allow_abbrev=False)
        several = name in ("figures", "show")
        action.add_argument("files", metavar="FILE", nargs="+" if several else 1, type=Path)
        if name in ("pack", "unpack"):
            action.add_argument(
                "--output", metavar="FILE", type=Path, help="write there instead of to stdout"
            )
        if name == "pack":
            action.add_argument(
                "--project", action="store_true", help="leave sequence numbers and times out, as fixtures do"
            )


def run(args: argparse.Namespace) -> int:
    """Run the chosen action on each file and return the exit code."""
    action: Callable[[Path, argparse.Namespace], int] = globals()[f"_{args.action}"]
    return max([action(path, args) for path in args.files])


def _show(path: Path, args: argparse.Namespace) -> int:
    from onetake.cli.overview import overview

    log = jsonl.read_log(_content(path), str(path), live=True)
    text = "".join(f"{line}\n" for line in overview(log))
    _print([text.encode("utf-8", "replace")])
    return 2 if log.flaw else 0


def _events(path: Path, args: argparse.Namespace) -> int:
    lines = jsonl.rewrite(_read(path), packed=False)
    _print([lines[lines.index(b"\n") + 1 :]])
    return 0


def _messages(path: Path, args: argparse.Namespace) -> int:
    from onetake.session.history import HistoryError, derive_messages

    try:
        messages = derive_messages(_read(path).events)
    except HistoryError as error:
        raise UsageError(f"{path}: {error}") from None
    _print(jsontext.dumps(message) + b"\n" for message in messages)
    return 0


def _script(path: Path, args: argparse.Namespace) -> int:
    from onetake.replay.script import derive_replay_script, own_events

    log = _read(path)
    _print(
        jsontext.dumps(entry) + b"\n" for entry in derive_replay_script(own_events(log.header, log.events))
    )
    return 0


def _figures(path: Path, args: argparse.Namespace) -> int:
    from onetake.cli.figures import log_figures
    from onetake.session.frames import read_image

    raw = _content(path)
    log = jsonl.read_log(raw, str(path))
    _print([jsontext.dumps(log_figures(log, raw, read_image(raw, str(path)).text)) + b"\n"])
    return 0


def _pack(path: Path, args: argparse.Namespace) -> int:
    return _write(args.output, jsonl.rewrite(_read(path), packed=True, project=args.project))


def _unpack(path: Path, args: argparse.Namespace) -> int:
    return _write(args.output, jsonl.rewrite(_read(path), packed=False))


def _read(path: Path) -> LogFile:
    return jsonl.read_log(_content(path), str(path))


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror}. Name a session log.") from None


def _print(parts: Iterable[bytes]) -> None:
    sys.stdout.flush()
    for part in parts:
        sys.stdout.buffer.write(part)


def _write(output: Path | None, content: bytes) -> int:
    if output is None:
        _print([content])
        return 0
    temporary = output.with_name(f".{output.name}.{os.getpid()}.tmp")
    try:
        temporary.write_bytes(content)
        temporary.replace(output)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise UsageError(f"{output}: cannot be written: {error.strerror}") from None
    return 0
