"""The tool that models know as `bash`: its parameters, its limits, and what it says when things go wrong."""

from __future__ import annotations

import errno
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import UNSET, Meta, UnsetType

from onetake.toolkit.bash.output import present
from onetake.toolkit.bash.process import EXITED, TIMED_OUT, Outcome, run_command
from onetake.tools.registry import Tool, ToolContext, ToolResult, define_tool, error_result, text_result

_DESCRIPTION = (
    "Run a command with bash and get what it prints. Every call starts a new shell in the workspace: "
    "directories, variables and functions of earlier calls are gone, so join what belongs together with `&&` "
    "and use `workdir` instead of `cd`. Standard error follows after a `[stderr]` line. An exit status other "
    "than zero is shown as `[exit code: N]`. Standard input is empty: do not start anything interactive. "
    "Processes that are still running when the command ends are ended with it. Of a long output you get "
    "beginning and end, and the path of a file that holds all of it."
)


class BashConfig(msgspec.Struct, forbid_unknown_fields=True, kw_only=True, frozen=True):
    """The limits of the bash tool."""

    max_output_bytes: Annotated[int, Meta(ge=1)] = 30_000
    """Longest result text, in bytes of UTF-8, the notice about what is missing included."""
    default_timeout_ms: Annotated[int, Meta(ge=1)] = 120_000
    """How long a command may run when the call does not say."""
    max_timeout_ms: Annotated[int, Meta(ge=1)] = 600_000
    """How long a call may ask for; more is cut down to it."""
    max_captured_bytes: Annotated[int, Meta(ge=1)] = 256 * 1024 * 1024
    """A command that writes more than this is ended, before it fills the disk."""

    def __post_init__(self) -> None:
        if self.default_timeout_ms > self.max_timeout_ms:
            raise ValueError("default_timeout_ms must not exceed max_timeout_ms")


class BashArguments(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """What a model passes to the tool."""

    command: Annotated[str, Meta(description="The command line, or a whole script.")]
    description: (
        Annotated[str, Meta(description="What the command does, in a few words, for the person who watches.")]
        | UnsetType
    ) = UNSET
    workdir: (
        Annotated[
            str, Meta(description="Directory to run in, relative to the workspace, which is the default.")
        ]
        | UnsetType
    ) = UNSET
    timeout_ms: (
        Annotated[
            float,
            Meta(description="Milliseconds after which the command is ended; limited by the harness.", gt=0),
        ]
        | UnsetType
    ) = msgspec.field(default=UNSET, name="timeoutMs")


def bash_tool(config: BashConfig | None = None) -> Tool:
    """Return the tool with the given limits."""
    limits = config or BashConfig()

    async def bash(arguments: BashArguments, ctx: ToolContext) -> ToolResult:
        return await run_bash(arguments, ctx, limits)

    return define_tool("bash", _DESCRIPTION, BashArguments, bash)


async def run_bash(arguments: BashArguments, ctx: ToolContext, limits: BashConfig) -> ToolResult:
    """Serve one call: run the command, end it and all it started, and present what it wrote."""
    workdir = ctx.cwd if arguments.workdir is UNSET else Path(os.path.normpath(ctx.cwd / arguments.workdir))
    if not os.path.isdir(workdir):  # false, not an error, for what cannot be a path
        return error_result(
            f"Error: workdir {workdir} is not a directory", name="WorkdirError", code="NO_SUCH_WORKDIR"
        )
    asked = limits.default_timeout_ms if arguments.timeout_ms is UNSET else arguments.timeout_ms
    timeout_ms = min(asked, limits.max_timeout_ms)
    try:
        outcome = await run_command(
            ["bash", "--noprofile", "--norc", "-c", arguments.command],
            cwd=str(workdir),
            env=shell_environment(ctx.env, workdir),
            timeout_s=timeout_ms / 1000,
            max_bytes=limits.max_captured_bytes,
        )
    except (OSError, ValueError) as error:
        return error_result(
            f"Error: the command could not be run: {_cause(error)}", name="SpawnError", code="NOT_STARTED"
        )
    try:
        return await _result(outcome, ctx, limits, timeout_ms)
    finally:
        outcome.close()


async def _result(outcome: Outcome, ctx: ToolContext, limits: BashConfig, timeout_ms: float) -> ToolResult:
    markers, code = [], None
    if outcome.ending == EXITED:
        if outcome.exit_code != 0:
            markers = [f"[exit code: {outcome.exit_code}]"]
    elif outcome.ending == TIMED_OUT:
        markers = [f"[timed out after {timeout_ms:g} ms; the command and all it had started were ended]"]
        code = "TIMEOUT"
    else:
        markers = [f"[ended because it wrote more than {limits.max_captured_bytes} bytes]"]
        code = "TOO_MUCH_OUTPUT"
    text = await present(
        outcome.stdout,
        outcome.stderr,
        markers,
        max_bytes=limits.max_output_bytes,
        spill=ctx.spill_dir / f"bash-{ctx.turn}.{ctx.step}.{ctx.ordinal}.txt",
    )
    return text_result(text) if code is None else error_result(text, name="CommandError", code=code)


_STARTUP_VARIABLES = ("BASH_ENV", "ENV", "SHELLOPTS", "BASHOPTS", "OLDPWD")


def shell_environment(env: Mapping[str, str], workdir: Path) -> dict[str, str]:
    """Return the environment of a command.

    Left out are variables that would change how the shell starts (also exported functions), those between the
    runner and the agent (`ONETAKE_*`), and the keys of model providers (`*_API_KEY`), which no command needs
    and any could print into a fixture.
    """
    kept = {name: value for name, value in env.items() if not _is_hidden(name)}
    kept["PWD"] = str(workdir)  # keeps the spelling of a workspace that is reached by a symbolic link
    return kept


def _is_hidden(name: str) -> bool:
    return (
        name in _STARTUP_VARIABLES
        or name.startswith(("ONETAKE_", "BASH_FUNC_"))
        or name.upper().endswith("_API_KEY")
    )


def _cause(error: OSError | ValueError) -> str:
    if isinstance(error, UnicodeEncodeError):
        return "it holds half of a surrogate pair"
    if isinstance(error, OSError) and error.errno == errno.E2BIG:
        return "it is too long for the system; write a long script to a file in parts and run that"
    if isinstance(error, FileNotFoundError):
        return "bash was not found on PATH"
    return str(error)
