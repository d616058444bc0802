"""The one variable between runner and agent: `ONETAKE_RUN` names a JSON file that describes the run.

A snapshot runner decides where a run may write and what it replays; the agent only obeys. Everything that
has to be agreed is in this file, so that no other variable, flag or convention can drift. The reading is
strict: a key that this version does not know means that runner and agent disagree, and that is an error.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import msgspec

from onetake.errors import UsageError

RUN_VARIABLE = "ONETAKE_RUN"


class MintRule(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A value minted at run time (a commit hash, a port): group 1 of `pattern` becomes `{{name:N}}`."""

    pattern: str
    name: str = msgspec.field(name="as")


class RunFile(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """What a runner tells the agent that it drives."""

    mode: str
    """`replay`, `record` or `refresh`."""
    fixtures: list[str] = []
    """The recorded logs in fixture order: `session.jsonl`, `session.1.jsonl`, ..."""
    override: str | None = None
    """The `replay.override.json` of the scenario, when it has one."""
    roots: dict[str, str] = {}
    """The generated roots: `cwd`, `home`, `spill`."""
    nonce: str = ""
    """The random part that all generated roots of this run share."""
    mint: list[MintRule] = []
    """The suite's rules for values that are minted at run time."""
    mask: list[tuple[str, str]] = []
    """What the suite masks in the log, as (pattern, replacement): for the gateway, which compares with it."""
    sessions_root: str = ""
    """Where the session store writes; empty: where the composition says."""
    requests: str = ""
    """The file to which every model request is appended before it leaves; empty: none."""
    violations: str = ""
    """The file to which replay reports what went outside the recording; empty: none."""
    pace: bool = False
    """Whether replay keeps the recorded gaps between chunks."""


def load_run(environ: Mapping[str, str]) -> RunFile | None:
    """The run that `ONETAKE_RUN` describes, or None when the agent was not started by a runner.

    Raises UsageError when the file is missing or is not exactly the shape above.
    """
    name = environ.get(RUN_VARIABLE)
    if not name:
        return None
    try:
        raw = Path(name).read_bytes()
    except OSError as error:
        raise UsageError(f"{RUN_VARIABLE}={name}: cannot read the run file: {error.strerror}") from error
    try:
        return msgspec.json.decode(raw, type=RunFile)
    except msgspec.MsgspecError as error:
        raise UsageError(
            f"{name}: not a run file of this version: {error}; use the same onetake for runner and agent"
        ) from error
