"""What a suite is: a suite.toml (see `settings`) and the scenario folders that it names."""

from __future__ import annotations

import codecs
import os
import re
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

import msgspec

from onetake.errors import UsageError
from onetake.snapshot.drive.registry import driver_class
from onetake.snapshot.suites.ops import LogStep, Script, Step, load_script
from onetake.snapshot.suites.settings import ScenarioSettings, Settings, settings_from

SUITE_FILE = "suite.toml"
SCRIPT_FILE = "input.json"

NAME_PATTERN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
"""What a scenario may be called."""


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
