"""The tables of a suite.toml, decoded strictly.

A typo in a settings file must never weaken a test (a misspelt `pins_header` would silently compare less), so
every table refuses keys that it does not know, and every message names the file and the place in it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec

from onetake.errors import PATTERN_ERRORS, UsageError
from onetake.snapshot.drive.registry import DRIVERS

SURFACES = ("requests", "stdout", "log", "workspace", "files")


class MintRule(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """A value that changes from run to run: group 1 of `pattern` becomes `{{as:N}}`, identity kept."""

    pattern: str
    """A regular expression, matched over tool results in log order; its group 1 is the value."""
    as_: str = msgspec.field(name="as")
    """What tokens call it."""


class MaskRule(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """Text that is replaced on one surface before it is compared; its identity is lost."""

    pattern: str
    """A regular expression, matched over every text of the surface."""
    with_: str = msgspec.field(name="with")
    """What stands in the expected file instead; `\\1` is group 1."""


class SurfaceRules(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """The normalization of one surface."""

    drop: list[str] = []
    """Dotted paths that are removed from each frame or record; `*` is any key or index."""
    mask: list[MaskRule] = []
    """Rules that replace text."""


class Normalize(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """The `[normalize]` table: rules for values that are not stable by themselves."""

    mint: list[MintRule] = []
    """Values to keep by identity, on every surface."""
    stdout: SurfaceRules = SurfaceRules()
    """What is left out of the transcript, or replaced."""
    log: SurfaceRules = SurfaceRules()
    """The same for the session log; what the model said is never touched."""
    requests: SurfaceRules = SurfaceRules()
    """The same for the requests."""
    workspace: SurfaceRules = SurfaceRules()
    """The same for the files left behind."""
    files: SurfaceRules = SurfaceRules()
    """The same for the files that the suite names."""


Seconds = Annotated[float, msgspec.Meta(gt=0, le=86_400)]
"""How long to wait for something: not for ever, and not for nothing."""


class SuiteTable(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """The `[suite]` table."""

    driver: str = "acp"
    """How the agent is talked to: `acp`, `headless` (one prompt, JSON events out), or `command` (a program
    that is run, and prints text)."""
    surfaces: tuple[str, ...] = ("requests", "stdout", "log")
    """What is compared; `workspace`, the files left behind, and `files`, those named below, may be added."""
    files: list[str] = []
    """Patterns of files to compare: `~/...` below the agent's HOME, others below the workspace."""
    timeout_s: Seconds | None = None
    """Replaces the default time-outs of waits and prompts, in seconds."""


class AgentTable(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """The `[agent]` table: how the subject is started."""

    command: list[str]
    """Program and arguments; `{config}` is the composition, `{suite}` the folder of suite.toml, `{prompt}`
    the prompt of a run that takes one."""
    config: str = ""
    """The live composition, relative to suite.toml; replay and refresh boot `<stem>.snapshot<suffix>`. An
    agent behind the gateway needs none, and boots the same one in every mode."""
    home: str | None = None
    """A folder, relative to suite.toml, that is copied to the agent's HOME; templates in it are filled in."""
    env: dict[str, str] = {}
    """Extra variables of the agent, in every mode."""
    ends_with_input: bool = True
    """False: the agent goes on after the end of its input, as some of others do, and is ended by a signal
    together with its children. For `acp` behind the gateway."""
    record_env: list[str] = []
    """Names passed in record mode only, from the environment or from `.env` beside the config."""
    adapters: list[str] = []
    """Rows of the composition that reach a model through a plugin of your own: replay switches them off."""


class GatewayTable(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """The `[gateway]` table: the agent's model calls go through onetake. For agents that are not ours."""

    upstream: dict[Literal["openai", "anthropic"], str] = {}
    """Where record sends calls, as base URLs: `openai` (chat completions, Responses) and `anthropic`
    (Messages). `${NAME}` is a variable of the environment or of `.env`."""
    key_env: dict[Literal["openai", "anthropic"], str] = {}
    """By the same names, the variable with the key to ask with; without one the agent's own key is used."""
    script: str | None = None
    """A script of `onetake mock-model`, relative to suite.toml, that answers record, not an endpoint."""
    models: list[str] = []
    """What the agent is told when it asks for a list of models, in every mode."""


class ScenarioSettings(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """One `[scenarios.NAME]` table."""

    recorded: bool = True
    """False: the fixture is authored and never re-recorded."""
    pins_header: bool = False
    """The folder holds the full system prompt and tool schemas as sidecars."""
    overridden: bool = False
    """`replay.override.json` changes what the model says; implies `recorded = false`."""
    config: str | None = None
    """Another live composition than the suite's, relative to suite.toml."""
    env: dict[str, str] = {}
    """Extra variables of the agent in this scenario."""
    model_turn: bool = True
    """False: the script makes no model call, and the fixture is header-only."""
    compares_log: bool = True
    """False: the log of this scenario is recorded and replayed, but not compared."""
    workspace_parent: str | None = None
    """An authored directory under which the workspace is made; it stays literal."""
    timeout_s: Seconds | None = None
    """Replaces the suite's time-outs, in seconds."""
    needs: list[str] = []
    """Programs that must be on PATH for this scenario."""


class Settings(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """The whole of suite.toml."""

    agent: AgentTable
    """How the subject is started; the one table that must be there."""
    suite: SuiteTable = SuiteTable()
    """What holds for every scenario."""
    gateway: GatewayTable | None = None
    """Where the model calls of an agent go that is not ours."""
    normalize: Normalize = Normalize()
    """Rules for values that are not stable by themselves."""
    scenarios: dict[str, ScenarioSettings] = {}
    """A table for each folder."""


def settings_from(tables: Mapping[str, Any], path: Path) -> Settings:
    """The settings that the tables of a suite.toml mean. Raises `UsageError` that names path and place."""
    try:
        settings = msgspec.convert(tables, Settings)
    except msgspec.ValidationError as error:
        from onetake.snapshot.suites.hints import unknown_key_hint

        hint = unknown_key_hint(tables, Settings) if "unknown field" in str(error) else ""
        raise UsageError(f"{path}: {_faulty_scenario(tables) or error}{hint}") from error
    _validate(path, settings)
    return settings


def _faulty_scenario(tables: Mapping[str, Any]) -> str | None:
    """The fault of the first scenario that has one, with its name (which msgspec's own path lacks)."""
    scenarios = tables.get("scenarios")
    for name, table in scenarios.items() if isinstance(scenarios, dict) else ():
        try:
            msgspec.convert(table, ScenarioSettings)
        except msgspec.ValidationError as error:
            return f"[scenarios.{name}]: {error}"
    return None


def _validate(path: Path, settings: Settings) -> None:
    if settings.suite.driver not in DRIVERS:
        raise UsageError(
            f"{path}: [suite] driver = {settings.suite.driver!r} is not a driver; known: {', '.join(DRIVERS)}"
        )
    if not settings.suite.surfaces:
        raise UsageError(f"{path}: [suite] surfaces is empty, so nothing would be compared")
    for surface in settings.suite.surfaces:
        if surface not in SURFACES:
            raise UsageError(
                f"{path}: [suite] surfaces: {surface!r} is not a surface; known: {', '.join(SURFACES)}"
            )
    if ("files" in settings.suite.surfaces) != bool(settings.suite.files):
        raise UsageError(
            f"{path}: [suite] the surface `files` and `files = [...]`, the patterns of the files, go together"
        )
    if not settings.agent.command:
        raise UsageError(f"{path}: [agent] command is empty")
    if not settings.agent.ends_with_input and (settings.gateway is None or settings.suite.driver != "acp"):
        raise UsageError(
            f"{path}: [agent] ends_with_input = false is for an ACP agent behind the gateway: "
            "one of onetake's own flushes its log at the end of its input"
        )
    if settings.gateway is None and not settings.agent.config:
        raise UsageError(
            f"{path}: [agent] config is missing: name the composition, or add a [gateway] table for an agent "
            "that is not onetake's"
        )
    patterns = [(f"[normalize] mint[{i}]", rule.pattern) for i, rule in enumerate(settings.normalize.mint)]
    for surface in SURFACES:
        rules: SurfaceRules = getattr(settings.normalize, surface)
        patterns += [(f"[normalize.{surface}] mask[{i}]", rule.pattern) for i, rule in enumerate(rules.mask)]
    for place, pattern in patterns:
        try:
            compiled = re.compile(pattern)
        except PATTERN_ERRORS as error:
            raise UsageError(f"{path}: {place}: {pattern!r} is not a regular expression: {error}") from error
        if "mint" in place and compiled.groups < 1:
            raise UsageError(
                f"{path}: {place}: {pattern!r} needs a group: group 1 is the value that is minted"
            )
