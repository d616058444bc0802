"""The recordings that a run file names, read and ready to be served."""

from __future__ import annotations

from pathlib import Path

from onetake.errors import UsageError
from onetake.replay.override import Override, parse_override
from onetake.replay.provider import Recording, make_recording
from onetake.runfile import RunFile
from onetake.session.jsonl import read_log


def load_recordings(run: RunFile) -> list[Recording]:
    """The recorded sessions of a run, in fixture order, the override applied to the primary one.

    An override that is a list is a recording by itself. Raises UsageError naming file and place.
    """
    override = _read_override(run.override)
    recordings: list[Recording] = []
    for index, name in enumerate(run.fixtures):
        log = read_log(_read(name), name)
        primary = index == 0
        own = override if primary else None
        recordings.append(make_recording(name, log.header, log.events, own, primary=primary))
    if not recordings and override is not None:
        recordings.append(make_recording(override.name, {"id": "primary"}, [], override))
    return recordings


def _read_override(name: str | None) -> Override | None:
    return parse_override(_read(name), name) if name is not None else None


def _read(name: str) -> bytes:
    try:
        return Path(name).read_bytes()
    except OSError as error:
        raise UsageError(f"{name}: cannot be read: {error.strerror}") from error
