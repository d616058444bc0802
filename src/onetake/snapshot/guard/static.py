"""The static guards of one suite: everything that can be seen to be wrong without starting an agent."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from onetake.errors import UsageError
from onetake.snapshot.drive.execute import OVERRIDE_FILE
from onetake.snapshot.findings import Problem
from onetake.snapshot.guard.contents import Reporter, file_problems
from onetake.snapshot.guard.overlay import overlay_faults
from onetake.snapshot.guard.secrets import find_secrets
from onetake.snapshot.modes.judge import is_compared, read_committed, surface_of
from onetake.snapshot.modes.write import PENDING
from onetake.snapshot.render.pins import (
    PinClash,
    Pins,
    load_pins,
)
from onetake.snapshot.suites.gitfiles import ignored_names
from onetake.snapshot.suites.ops import LogStep
from onetake.snapshot.suites.suite import SCRIPT_FILE, Scenario, Suite

_UNREAD = "nothing compares or reads this file"
NOTES = frozenset({"README.md", ".gitattributes", ".gitignore"})
"""Files that may stand beside fixtures."""


def static_problems(suite: Suite, scenarios: Iterable[Scenario] | None = None) -> list[Problem]:
    """Every static problem of a suite. Never raises for what is in its files: that is a problem too.

    With `scenarios` only their files are looked at; what concerns the whole suite is never left out.
    """
    chosen = list(suite.scenarios.values() if scenarios is None else scenarios)
    found = list(_folder_problems(suite))
    try:
        pins = load_pins(suite)
    except UsageError as error:
        guard = "pin-clash" if isinstance(error, PinClash) else "unreadable"
        found.append(Problem(guard=guard, message=str(error), exit_code=2))
        pins = Pins(scenarios=[s.name for s in suite.scenarios.values() if s.settings.pins_header])
    for scenario in chosen:
        found += _scenario_problems(scenario, suite, pins)
    found += duplicate_sidecars(pins)
    for config in dict.fromkeys(scenario.settings.config for scenario in chosen):
        scenario = next(s for s in chosen if s.settings.config == config)
        found += overlay_problems(suite, scenario)
    return found


def overlay_problems(suite: Suite, scenario: Scenario) -> list[Problem]:
    """What is wrong with the overlay of a scenario (a problem of the suite when it is the suite's own)."""
    if not boots_composition(suite) or suite.settings.gateway is not None:
        return []
    live, snapshot = suite.live_config(scenario), suite.snapshot_config(scenario)
    name = scenario.name if scenario.settings.config is not None else None
    try:
        return [
            Problem(
                guard=guard,
                scenario=name,
                file=os.path.relpath(snapshot, suite.dir),
                message=message,
                remedy="an overlay may switch adapter rows off, insert one replay row and pin retry delays",
                exit_code=2,
            )
            for guard, message in overlay_faults(live, snapshot, suite.settings.agent.adapters)
        ]
    except UsageError as error:
        remedy = "" if snapshot.exists() or not live.exists() else _overlay_remedy(live)
        return [Problem(guard="unreadable", scenario=name, message=str(error), remedy=remedy, exit_code=2)]


def _overlay_remedy(live: Path) -> str:
    return f"restore it, or write it anew: `base: {live.name}`, and patches as docs/agent.md shows them"


def boots_composition(suite: Suite) -> bool:
    """Whether the agent is onetake, so that its config is a composition; others have their own formats."""
    return any(Path(part).name in ("onetake", "onetake.exe") for part in suite.settings.agent.command)


def _folder_problems(suite: Suite) -> Iterator[Problem]:
    if not suite.scenarios:
        yield Problem(
            guard="no-scenarios",
            file=suite.path.name,
            message="the suite names no scenario",
            remedy="add a [scenarios.NAME] table",
            exit_code=2,
        )
    known = {*suite.scenarios, suite.settings.agent.home}
    others = [path for path in sorted(suite.dir.iterdir()) if path.is_dir() and path.name not in known]
    for path in _noticed(suite.dir, others):
        if not path.name.startswith("__"):
            yield Problem(
                guard="orphan-folder",
                file=path.name,
                message="the folder is no scenario of this suite, so nothing in it is tested",
                remedy=f"add [scenarios.{path.name}] to {suite.path.name}, or remove the folder",
                exit_code=2,
            )
    for path in sorted(suite.dir.iterdir()):
        if path.is_file() and (
            surface_of(path.name) is not None or path.name in (SCRIPT_FILE, OVERRIDE_FILE)
        ):
            yield Problem(
                guard="orphan-file",
                file=path.name,
                message="the file belongs to no scenario",
                remedy="move it into the scenario's folder, or remove it",
                exit_code=2,
            )


def _scenario_problems(scenario: Scenario, suite: Suite, pins: Pins) -> list[Problem]:
    report = Reporter(scenario)
    files = read_committed(scenario.dir)
    _orphans(report, scenario, suite)
    if "log" not in suite.settings.suite.surfaces:
        _log_ops(report, scenario)
    file_problems(report, scenario, suite, files, pins)
    for secret in find_secrets(files, {}):
        report.add("secret", secret.file, f"holds a secret: {secret.text()}", "revoke it, and take it out")
    return report.found


def _orphans(report: Reporter, scenario: Scenario, suite: Suite) -> None:
    settings = scenario.settings
    names = {path.name for path in scenario.dir.iterdir()}
    unread = []
    for name in sorted(names - NOTES - {SCRIPT_FILE, "workspace", PENDING}):
        surface = surface_of(name)
        if surface == "log":
            continue  # any run needs them, and looks at them
        if name == OVERRIDE_FILE:
            if not settings.overridden:
                remedy = f"set overridden = true in [scenarios.{scenario.name}], or remove it"
                report.add("orphan-file", name, "the override is not in use", remedy)
        elif surface == "pins":
            if not settings.pins_header:
                remedy = f"set pins_header = true in [scenarios.{scenario.name}], or remove it"
                report.add("orphan-file", name, "the scenario is no pin", remedy)
        elif surface is None:
            unread.append(scenario.dir / name)
        elif not is_compared(surface, scenario, suite):
            report.add("orphan-file", name, _UNREAD, "remove it")
    for path in _noticed(scenario.dir, unread):
        report.add("orphan-file", path.name, _UNREAD, "remove it, or let git ignore it")


def _noticed(folder: Path, paths: Iterable[Path]) -> list[Path]:
    """Entries of a folder that somebody put there: no hidden file, no backup, nothing that git ignores."""
    kept = [path for path in paths if not path.name.startswith(".") and not path.name.endswith("~")]
    ignored = ignored_names(folder, (path.name for path in kept))
    return [path for path in kept if path.name not in ignored]


def _log_ops(report: Reporter, scenario: Scenario) -> None:
    for number, step in enumerate(scenario.steps, 1):
        if isinstance(step, LogStep):
            op = type(step).__struct_config__.tag
            message = f"step {number} ({op}) reads the session log, and `log` is no surface of the suite"
            report.add("log-op", SCRIPT_FILE, message, "wait for a file or an answer instead")


def duplicate_sidecars(pins: Pins) -> Iterator[Problem]:
    """Texts that are committed twice."""
    for number, pin in enumerate(pins.all):
        first = pins.holding(pin.kind, pin.value)[0]
        if first is not pins.all[number]:
            yield Problem(
                guard="duplicate-sidecar",
                scenario=pin.scenario,
                file=pin.file,
                message=f"holds the same text as {first.file}",
                remedy="refresh both scenarios, the one that stands first in suite.toml first",
            )
