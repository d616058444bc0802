"""A finding as a folder: the script, the model's script, and how to run it again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from onetake import jsontext
from onetake.errors import UsageError
from onetake.testing.fuzz.campaign import Found
from onetake.testing.fuzz.judge import CHECKS
from onetake.testing.fuzz.steps import Case, read_case

SCRIPT, MODEL = "input.json", "mock-model.json"


def save(found: Found, seed: int, directory: Path) -> Path:
    """Write a finding to a new folder in `directory`, named after its check; returns the folder."""
    folder = _free(directory, found.check)
    folder.mkdir(parents=True)
    script = msgspec.to_builtins(found.case)
    del script["replies"]
    _write(folder / SCRIPT, jsontext.dumps_pretty(script))
    _write(folder / MODEL, jsontext.dumps_pretty(found.case.model_script))
    _write(folder / "README.md", _readme(found, seed, folder.name))
    return folder


def load(folder: Path) -> Case:
    """Read the script of a saved finding. Raises UsageError."""
    return read_case(_read(folder / SCRIPT), _read(folder / MODEL), str(folder))


def _free(directory: Path, name: str) -> Path:
    folder, number = directory / name, 1
    while folder.exists():
        number += 1
        folder = directory / f"{name}-{number}"
    return folder


def _write(path: Path, text: str) -> None:
    path.write_bytes(f"{text.rstrip()}\n".encode("utf-8", "backslashreplace"))


def _read(path: Path) -> Any:
    try:
        return jsontext.loads_strict(path.read_bytes())
    except OSError as error:
        raise UsageError(
            f"{path}: {error.strerror}; --again takes a folder that `onetake fuzz` saved"
        ) from error
    except ValueError as error:
        raise UsageError(f"{path}: {error}") from error


def _readme(found: Found, seed: int, name: str) -> str:
    quoted = "\n".join(f"    {line}" for line in found.text.split("\n"))
    return f"""\
# A finding of onetake fuzz: {found.check}

What must hold: {CHECKS[found.check]}. What came (seed {seed}):

{quoted}

`{SCRIPT}` is what the client does, `{MODEL}` what the model answers. Run it again, with the same options and
the command of your agent:

    onetake fuzz --again {name} [--env NAME=VALUE ...] -- COMMAND
"""
