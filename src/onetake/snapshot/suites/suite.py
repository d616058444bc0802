"""What a suite is: `suite.toml` decoded strictly, and the scenario folders that it names.

A typo in a settings file must never weaken a test (a misspelt `pins_header` would silently compare less), so
every table refuses keys that it does not know, and every message names the file and the place in it.
"""

from __future__ import annotations

import codecs
import os
import re
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec

from onetake.errors import PATTERN_ERRORS, UsageError
from onetake.snapshot.drive.registry import DRIVERS, driver_class
from onetake.snapshot.suites.ops import LogStep, Script, Step, load_script

SUITE_FILE = "suite.toml"
SCRIPT_FILE = "input.json"
SURFACES = ("requests", "stdout", "log", "workspace")

NAME_PATTERN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
"""What a scenario may be called."""


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


Seconds = Annotated[float, msgspec.Meta(gt=0, le=86_400)]
"""How long to wait for something: not for ever, and not for nothing."""


class SuiteTable(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """The `[suite]` table."""

    driver: str = "acp"
    """How the agent is talked to: `acp`, `headless` (one prompt, JSON events out), or `command` (a program
    that is run, and prints text)."""
    surfaces: tuple[str, ...] = ("requests", "stdout", "log")
    """What is compared; `workspace`, the files left behind, may be added."""
    timeout_s: Seconds | None = None
    """Replaces the default time-outs of waits and prompts, in seconds."""


class AgentTable(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """The `[agent]` table: how the subject is started."""

    command: list[str]
    """Program and arguments; `{config}` is the composition, `{prompt}` the prompt of a headless run."""
    config: str = ""
    """The live composition, relative to suite.toml; replay and refresh boot `<stem>.snapshot<suffix>`. An
    agent behind the gateway needs none, and boots the same one in every mode."""
    home: str | None = None
    """A folder, relative to suite.toml, that is copied to the agent's HOME; templates in it are filled in."""
    env: dict[str, str] = {}
    """Extra variables of the agent, in every mode."""
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


class Scenario(msgspec.Struct, frozen=True):
    """One scenario: its folder, its settings, and its script, decoded."""

    name: str
    dir: Path
    settings: ScenarioSettings
    script: Script
    prepare: Callable[[Path], object] | None = None
    """Called with the workspace of each run, after it was copied; only suites in Python have one."""

    @property
    def steps(self) -> list[Step]:
        """The ops of `input.json`, in order."""
        return self.script.steps

    @property
    def recorded(self) -> bool:
        """Whether record mode may write its model input (overridden and header-only ones are authored)."""
        return self.settings.recorded and not self.settings.overridden and self.settings.model_turn


class Suite(msgspec.Struct, frozen=True):
    """One suite.toml with its scenarios, in the order of the file."""

    path: Path
    """The resolved path of suite.toml."""
    dir: Path
    settings: Settings
    scenarios: dict[str, Scenario]
    in_code: bool = False
    """Whether it is built in Python (`api.py`), so that there is no suite.toml; `path` is then its folder."""

    def surfaces(self, scenario: Scenario) -> list[str]:
        """The surfaces that this scenario compares, in the suite's order."""
        return [s for s in self.settings.suite.surfaces if s != "log" or scenario.settings.compares_log]

    def live_config(self, scenario: Scenario) -> Path:
        """The composition that record boots."""
        config = scenario.settings.config or self.settings.agent.config
        # Not resolved: beside a link is the overlay of the link, whatever it leads to.
        return Path(os.path.normpath(self.dir / config))

    def snapshot_config(self, scenario: Scenario) -> Path:
        """The overlay that replay and refresh boot: `agent.yml` -> `agent.snapshot.yml` beside it.

        Behind the gateway it is the live composition: there the model is replaced outside of the agent.
        """
        live = self.live_config(scenario)
        if self.settings.gateway is not None:
            return live
        return live.with_name(f"{live.stem}.snapshot{live.suffix}")


def find_suites(paths: Sequence[Path]) -> list[Path]:
    """The suite.toml files that the paths mean: a file itself, or all below a folder, each once, in order.

    Hidden folders, virtual environments and node_modules are not searched. Raises `UsageError` when a path
    leads to none.
    """
    found: dict[Path, None] = {}
    for path in paths:
        if path.is_dir() or (path.is_file() and path.suffix != ".toml"):
            below = _search(path)
            if not below:
                raise UsageError(f"{path}: {_no_suite(path)}")
            found |= dict.fromkeys(below)
        elif path.is_file():
            found[path.resolve()] = None
        else:
            raise UsageError(f"{path}: does not exist; name a {SUITE_FILE} or a folder that holds one")
    return list(found)


def _no_suite(path: Path) -> str:
    """What to say about a path that leads to no suite: whether it lies inside one."""
    inside = path.resolve()
    for owner in inside.parents:
        if (owner / SUITE_FILE).is_file() and is_suite(owner / SUITE_FILE):
            name = inside.relative_to(owner).parts[0]
            shown = os.path.relpath(owner)
            return f"lies inside a suite; name that, and choose the scenario: {shown} -k {name}"
    return f"no {SUITE_FILE} here or below; `onetake new` begins a suite"


def is_suite(path: Path) -> bool:
    """Whether a file that is called suite.toml is one of ours: another tool may use the name.

    What cannot be read counts as ours, so that a broken suite is an error and not a suite less.
    """
    try:
        tables = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return True
    return not tables or not tables.keys().isdisjoint(Settings.__struct_fields__)


def _search(folder: Path) -> list[Path]:
    found = []
    for directory, folders, files in os.walk(folder):
        folders[:] = sorted(
            name
            for name in folders
            if not name.startswith(".")
            and name != "node_modules"
            and not os.path.exists(os.path.join(directory, name, "pyvenv.cfg"))
        )
        if SUITE_FILE in files and is_suite(path := Path(directory, SUITE_FILE)):
            found.append(path.resolve())
            folders.clear()  # what is inside a suite is its scenarios
    return found


def load_suite(path: Path) -> Suite:
    """Read a suite from its suite.toml or the folder that holds it. Raises `UsageError` with the place."""
    if path.is_dir():
        path = path / SUITE_FILE
    path = path.resolve()
    settings = _decode_settings(path)
    directory = path.parent
    scenarios: dict[str, Scenario] = {}
    taken: dict[str, str] = {}
    for name, table in settings.scenarios.items():
        require_name(path, name, taken)
        taken[name.lower()] = name
        folder = directory / name
        if not folder.is_dir():
            raise UsageError(
                f"{path}: [scenarios.{name}]: the folder {folder} does not exist; remove the table, and let "
                "`onetake new` write both"
            )
        script = load_script(folder / SCRIPT_FILE)
        check_script(settings, script, str(folder / SCRIPT_FILE))
        scenarios[name] = Scenario(name, folder, table, script)
    return Suite(path, directory, settings, scenarios)


def check_script(settings: Settings, script: Script, place: str) -> None:
    """Refuse a script that the suite's driver cannot carry out. Raises `UsageError`; `place` is the file."""
    driver_class(settings.suite.driver).check(script, place)
    for number, step in enumerate(script.steps, 1) if settings.gateway is not None else ():
        if isinstance(step, LogStep):
            raise UsageError(
                f"{place}: step {number}: an agent behind the gateway keeps no log of ours while it runs; "
                "wait for a file or an answer instead"
            )


def require_name(path: Path, name: str, taken: Mapping[str, str]) -> None:
    """Raise `UsageError` for what a scenario cannot be called. `taken`: other names by their lower case."""
    if not NAME_PATTERN.fullmatch(name):
        raise UsageError(
            f"{path}: [scenarios.{name}]: a scenario is named with letters, digits, `.`, `_` and `-`"
        )
    if name.lower() in taken:
        raise UsageError(
            f"{path}: [scenarios.{name}]: differs from {taken[name.lower()]!r} in case only, "
            "which neither -k nor every file system tells apart"
        )


def lower_names(names: Iterable[str]) -> dict[str, str]:
    """The names by their lower case, for `require_name`."""
    return {name.lower(): name for name in names}


def _decode_settings(path: Path) -> Settings:
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise UsageError(f"{path}: cannot read the suite: {error.strerror}") from error
    if raw.startswith(codecs.BOM_UTF8):
        raise UsageError(f"{path}: begins with a byte order mark, which is no TOML; save it as UTF-8 without")
    try:
        tables = tomllib.loads(raw.decode("utf-8"))
    except ValueError as error:
        mixed = "; a list in brackets takes no [[...]] table: write all of its rules as such tables"
        hint = mixed if "immutable namespace" in str(error) else ""
        raise UsageError(f"{path}: {error}{hint}") from error
    except RecursionError:
        raise UsageError(f"{path}: nested too deeply to read") from None
    return settings_from(tables, path)


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
    if not settings.agent.command:
        raise UsageError(f"{path}: [agent] command is empty")
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
