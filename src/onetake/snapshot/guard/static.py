"""The static guards of one suite: everything that can be seen to be wrong without starting an agent."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import msgspec

from onetake import jsontext
from onetake.errors import UsageError
from onetake.fixture.check import fixture_faults
from onetake.fixture.grammar import pin_of, substitute
from onetake.fixture.tokens import map_strings
from onetake.model.contract import contradictions
from onetake.replay.override import Override, parse_override
from onetake.replay.script import derive_calls, own_events, require_derivable
from onetake.session.jsonl import read_log
from onetake.snapshot.drive.execute import OVERRIDE_FILE
from onetake.snapshot.findings import Problem
from onetake.snapshot.guard.overlay import overlay_faults
from onetake.snapshot.guard.secrets import find_secrets
from onetake.snapshot.modes.judge import is_compared, read_committed, surface_of
from onetake.snapshot.modes.write import PENDING
from onetake.snapshot.render.pins import (
    KINDS,
    PinClash,
    Pins,
    committed_tokens,
    header_lines,
    load_pins,
    read_sidecar,
    session_file,
    session_index,
    sidecar_of,
    write_sidecar,
)
from onetake.snapshot.render.requests import FILE as REQUESTS_FILE
from onetake.snapshot.render.transcript import FILE as STDOUT_FILE
from onetake.snapshot.render.unpinned import empty_pin
from onetake.snapshot.render.workspace import FILE as WORKSPACE_FILE
from onetake.snapshot.suites.gitfiles import ignored_names
from onetake.snapshot.suites.ops import LogStep
from onetake.snapshot.suites.select import command
from onetake.snapshot.suites.suite import SCRIPT_FILE, Scenario, Suite

_UNREAD = "nothing compares or reads this file"
NOTES = frozenset({"README.md", ".gitattributes", ".gitignore"})
"""Files that may stand beside fixtures."""
_EXPECTED = {"requests": REQUESTS_FILE, "stdout": STDOUT_FILE, "workspace": WORKSPACE_FILE}
_REFUSED = "nothing was written; a replay of it would be red for this"
_REMEDIES = {
    "model-input": "record the scenario again; when it comes so again, mend the adapter or its model; "
}
"""What mends files that are not written yet. All else is a fault of the agent, which its message tells."""
FAULT_GUARDS = {
    "layout": "non-canonical",
    "header": "unscrubbed-header",
    "identity": "not-fixed-point",
    "token": "unknown-token",
}


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


class _Reporter:
    """Makes problems of one scenario."""

    def __init__(self, scenario: Scenario) -> None:
        self.scenario = scenario
        self.found: list[Problem] = []

    def add(self, guard: str, file: str, message: str, remedy: str = "", exit_code: int = 2) -> None:
        problem = Problem(
            guard=guard,
            scenario=self.scenario.name,
            surface=surface_of(file),
            file=f"{self.scenario.name}/{file}" if file else None,
            message=message,
            remedy=remedy,
            exit_code=exit_code,
        )
        if problem not in self.found:  # two guards may stumble over the same broken file
            self.found.append(problem)

    def attempt(self, file: str, work: Callable[[], None]) -> None:
        """Do something that raises `UsageError` for a file that cannot be decoded."""
        try:
            work()
        except UsageError as error:
            self.unreadable(file, error)

    def unreadable(self, file: str, error: UsageError) -> None:
        """Add what a reader says about a file."""
        session = session_index(file) is not None
        remedy = f"restore it from git; what an editor did to its line ends, {self.migrate} mends"
        self.add("unreadable", file, str(error), remedy if session else "")

    @property
    def migrate(self) -> str:
        """The command that rewrites the files of the scenario."""
        return f"`onetake migrate {os.path.relpath(self.scenario.dir)}`"


def staged_problems(scenario: Scenario, suite: Suite, files: dict[str, bytes], pins: Pins) -> list[Problem]:
    """What a replay would object to in files that are about to be written, with the suite's pins as they
    are then."""
    report = _Reporter(scenario)
    _files(report, scenario, suite, files, pins)
    return [
        msgspec.structs.replace(problem, remedy=f"{_REMEDIES.get(problem.guard, '')}{_REFUSED}")
        for problem in report.found
    ]


def _files(report: _Reporter, scenario: Scenario, suite: Suite, files: dict[str, bytes], pins: Pins) -> None:
    """What is wrong with the files that runs of a scenario gave, whatever else lies beside them."""
    _missing(report, scenario, suite, files, pins)
    fixtures = {name: data for name, data in files.items() if session_index(name) is not None}
    for name in fixtures:
        if session_index(name) not in range(len(fixtures)):
            report.add("orphan-file", name, "fixtures are numbered without holes", "rename or remove it")
    if "log" in suite.surfaces(scenario):
        report.attempt(session_file(0), lambda: _fixtures(report, suite, fixtures))
    _derivable(report, scenario, fixtures)
    for name, data in files.items():
        if is_compared(surface_of(name) or "", scenario, suite):
            report.attempt(name, lambda name=name, data=data: _layout(report, name, data))  # type: ignore[misc]
            report.attempt(name, lambda name=name, data=data: _header_tokens(report, name, data, pins))  # type: ignore[misc]


def _scenario_problems(scenario: Scenario, suite: Suite, pins: Pins) -> list[Problem]:
    report = _Reporter(scenario)
    files = read_committed(scenario.dir)
    _orphans(report, scenario, suite)
    if "log" not in suite.settings.suite.surfaces:
        _log_ops(report, scenario)
    _files(report, scenario, suite, files, pins)
    for secret in find_secrets(files, {}):
        report.add("secret", secret.file, f"holds a secret: {secret.text()}", "revoke it, and take it out")
    return report.found


def _missing(
    report: _Reporter, scenario: Scenario, suite: Suite, files: dict[str, bytes], pins: Pins
) -> None:
    recording = scenario.recorded and session_file(0) not in files  # all else a refresh gives
    write = command("record" if recording else "refresh", suite, scenario.name)
    needed = [session_file(0)]
    needed += [_EXPECTED[surface] for surface in suite.surfaces(scenario) if surface in _EXPECTED]
    for name in needed:
        if name not in files:
            report.add("missing-file", name, "the file is not committed", f"write it with `{write}`")
    pins_compared = scenario.settings.pins_header and is_compared("pins", scenario, suite)
    if pins_compared and not any(sidecar_of(name) for name in files):
        if elsewhere := _pinned_elsewhere(files, pins):
            report.found.append(empty_pin(scenario, f"it has the same header as pin {', '.join(elsewhere)}"))
        else:
            message = "the scenario is a pin, and no sidecar is committed"
            report.add("missing-file", "system-prompt.expected.md", message, f"write it with `{write}`")
    if scenario.settings.overridden and not (scenario.dir / OVERRIDE_FILE).is_file():
        message = "the scenario is `overridden`, and its override is not there"
        report.add(
            "missing-file", OVERRIDE_FILE, message, "write one, or remove `overridden` from suite.toml"
        )


def _pinned_elsewhere(files: dict[str, bytes], pins: Pins) -> list[str]:
    """The pins that the headers of a scenario name, if every one of them exists."""
    named = [pins.named(kind, name) for (_, kind), names in committed_tokens(files).items() for name in names]
    return list(dict.fromkeys(pin.name if pin is not None else "" for pin in named)) if all(named) else []


def _orphans(report: _Reporter, scenario: Scenario, suite: Suite) -> None:
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


def _log_ops(report: _Reporter, scenario: Scenario) -> None:
    for number, step in enumerate(scenario.steps, 1):
        if isinstance(step, LogStep):
            op = type(step).__struct_config__.tag
            message = f"step {number} ({op}) reads the session log, and `log` is no surface of the suite"
            report.add("log-op", SCRIPT_FILE, message, "wait for a file or an answer instead")


def _fixtures(report: _Reporter, suite: Suite, fixtures: dict[str, bytes]) -> None:
    ordered = sorted(fixtures.items(), key=lambda item: session_index(item[0]) or 0)
    rules = {rule.as_ for rule in suite.settings.normalize.mint}
    for fault in fixture_faults(ordered, rules):
        remedy = "" if fault.kind == "token" else f"rewrite it with {report.migrate}"
        report.add(FAULT_GUARDS[fault.kind], fault.file, fault.message, remedy)


def _derivable(report: _Reporter, scenario: Scenario, fixtures: dict[str, bytes]) -> None:
    override: Override | None = None
    path = scenario.dir / OVERRIDE_FILE
    if scenario.settings.overridden and path.is_file():
        try:
            override = parse_override(path.read_bytes(), OVERRIDE_FILE)
        except UsageError as error:
            report.add("override", OVERRIDE_FILE, str(error))
            return
    for name, data in fixtures.items():
        try:
            log = read_log(data, name)
        except UsageError as error:
            report.unreadable(name, error)
            continue
        calls = derive_calls(own_events(log.header, log.events))
        script = [call.entry() for call in calls]
        try:
            script = override.apply(script) if override is not None and session_index(name) == 0 else script
        except UsageError as error:
            report.add("override", OVERRIDE_FILE, str(error))
            continue
        try:
            require_derivable(script, name, patchable=session_index(name) == 0)
        except UsageError as error:
            report.add("underivable", name, str(error))
        for call, entry in zip(calls, script, strict=False):
            if entry.get("chunks") is call.chunks:  # what an override says is not recorded
                for fault in contradictions(map_strings(call.chunks, _meant)):
                    message = f"{call.place()}: {fault}".replace(repr(_TOKEN)[1:-1], "{{")
                    report.add("model-input", name, message, _RERECORD, exit_code=1)


_TOKEN = "{{\0"
"""How a token begins while it is compared."""
_RERECORD = "restore what the model said (from git, say), or record the scenario again"


def _meant(text: str) -> str:
    """What a text of a fixture stands for: an escape is a literal, and no literal looks like a token."""
    return substitute(text, lambda body: f"{_TOKEN}{body}}}}}")


def _layout(report: _Reporter, name: str, data: bytes) -> None:
    """Expected files are written compactly, line by line; fixtures have a check of their own."""
    remedy = "refresh the scenario; check that no editor or git setting rewrites line ends"
    place = sidecar_of(name)
    if place is not None:
        if write_sidecar(place[0], read_sidecar(place[0], data, name)) != data:
            report.add("non-canonical", name, "is not laid out as a refresh would write it", remedy)
        return
    if session_index(name) is not None:
        return
    if data and not data.endswith(b"\n"):
        report.add("non-canonical", name, "does not end with a newline", remedy)
    for number, line in enumerate(data.removesuffix(b"\n").split(b"\n") if data else [], 1):
        try:
            same = jsontext.dumps(jsontext.loads(line)) == line
        except ValueError as error:
            raise UsageError(f"{name}, line {number}: {error}") from error
        if not same:
            report.add(
                "non-canonical", name, f"line {number} is not compact JSON as it would be written", remedy
            )


def _header_tokens(report: _Reporter, name: str, data: bytes, pins: Pins) -> None:
    for header in header_lines(data) if session_index(name) is not None else []:
        for kind in KINDS:
            body = pin_of(header.get(kind))
            if body is None:
                continue
            if pins.named(kind, body.partition(":")[2]) is None:
                known = ", ".join(pin.name for pin in pins.all if pin.kind == kind) or "none"
                message = f"the header names the pin {header[kind]}, which does not exist (there is: {known})"
                report.add("unknown-pin", name, message, "refresh the scenario, or add the pin", exit_code=1)


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
