"""What is wrong within the files of a scenario, whatever lies beside them; also before they are written."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial

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
from onetake.snapshot.modes.judge import is_compared, surface_of
from onetake.snapshot.render.files import FILE as FILES_FILE
from onetake.snapshot.render.pins import (
    KINDS,
    Pins,
    committed_tokens,
    header_lines,
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
from onetake.snapshot.suites.select import command
from onetake.snapshot.suites.suite import Scenario, Suite

_EXPECTED = {
    "requests": REQUESTS_FILE,
    "stdout": STDOUT_FILE,
    "workspace": WORKSPACE_FILE,
    "files": FILES_FILE,
}
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


class Reporter:
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
    report = Reporter(scenario)
    file_problems(report, scenario, suite, files, pins)
    return [
        msgspec.structs.replace(problem, remedy=f"{_REMEDIES.get(problem.guard, '')}{_REFUSED}")
        for problem in report.found
    ]


def file_problems(
    report: Reporter, scenario: Scenario, suite: Suite, files: dict[str, bytes], pins: Pins
) -> None:
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
            report.attempt(name, partial(_layout, report, name, data))
            report.attempt(name, partial(_header_tokens, report, name, data, pins))


def _missing(report: Reporter, scenario: Scenario, suite: Suite, files: dict[str, bytes], pins: Pins) -> None:
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


def _fixtures(report: Reporter, suite: Suite, fixtures: dict[str, bytes]) -> None:
    ordered = sorted(fixtures.items(), key=lambda item: session_index(item[0]) or 0)
    rules = {rule.as_ for rule in suite.settings.normalize.mint}
    for fault in fixture_faults(ordered, rules):
        remedy = "" if fault.kind == "token" else f"rewrite it with {report.migrate}"
        report.add(FAULT_GUARDS[fault.kind], fault.file, fault.message, remedy)


def _derivable(report: Reporter, scenario: Scenario, fixtures: dict[str, bytes]) -> None:
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


def _layout(report: Reporter, name: str, data: bytes) -> None:
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


def _header_tokens(report: Reporter, name: str, data: bytes, pins: Pins) -> None:
    for header in header_lines(data) if session_index(name) is not None else []:
        for kind in KINDS:
            body = pin_of(header.get(kind))
            if body is None:
                continue
            if pins.named(kind, body.partition(":")[2]) is None:
                known = ", ".join(pin.name for pin in pins.all if pin.kind == kind) or "none"
                message = f"the header names the pin {header[kind]}, which does not exist (there is: {known})"
                report.add("unknown-pin", name, message, "refresh the scenario, or add the pin", exit_code=1)
