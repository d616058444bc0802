"""Whole scenarios in old layouts, rewritten to canonical form: fixtures, expected files and sidecars.

`onetake.fixture.migrate` does the logs and proves that they still say the same. Around that: pins get their
names, raw prompts become sidecars of a pin or name one, the other files get the same tokens and line ends.
A scenario is written whole or not at all, and only if migrating the result once more would change nothing.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from onetake import jsontext
from onetake.errors import OnetakeError, UsageError
from onetake.fixture.check import fixture_faults
from onetake.fixture.grammar import pin_of
from onetake.fixture.migrate import MeaningChanged, Migration, clean_lines
from onetake.snapshot.findings import Problem
from onetake.snapshot.guard.secrets import find_secrets
from onetake.snapshot.modes.judge import compare_file, read_committed, surface_of
from onetake.snapshot.modes.write import recover, write_files
from onetake.snapshot.render.pins import (
    KINDS,
    HeaderNamer,
    Pins,
    header_lines,
    load_pins,
    read_sidecar,
    session_index,
    sidecar_of,
    write_order,
    write_sidecar,
)
from onetake.snapshot.render.requests import FILE as REQUESTS_FILE
from onetake.snapshot.suites.suite import Scenario, Suite


class Change(msgspec.Struct, frozen=True):
    """One file that is (or would be) rewritten."""

    file: str
    notes: list[str]
    message: str
    """The first difference with context."""


class Result(msgspec.Struct, kw_only=True):
    """What became of one scenario, or of a log that belongs to none."""

    name: str
    """The path of its folder, or of the log."""
    changes: list[Change] = []
    problems: list[Problem] = []
    """With problems nothing was written."""
    pins: Pins | None = None
    """The suite's pins as they are (or would be) afterwards."""

    @property
    def exit_code(self) -> int:
        """0 as expected, else what the worst problem stands for."""
        return max((problem.exit_code for problem in self.problems), default=0)


def migrate_suite(suite: Suite, *, dry_run: bool = False, only: str | None = None) -> list[Result]:
    """Migrate every scenario of a suite (or one), pins first. Raises `UsageError` for pins that cannot be
    read."""
    for scenario in suite.scenarios.values():
        recover(scenario.dir)
    pins = load_pins(suite)
    mint = [(rule.pattern, rule.as_) for rule in suite.settings.normalize.mint]
    chosen = [scenario for name, scenario in suite.scenarios.items() if only in (None, name)]
    results = []
    for scenario in write_order(suite, chosen):
        result = _migrate(scenario.dir, read_committed(scenario.dir), pins, scenario, mint, dry_run)
        pins = result.pins or pins
        results.append(result)
    return results


def migrate_logs(logs: Sequence[Path], *, dry_run: bool = False) -> Result:
    """Migrate logs that share their tokens and belong to no suite, with the expected files beside them."""
    folder = logs[0].parent
    recover(folder)
    files = {log.name: log.read_bytes() for log in logs}
    if session_index(logs[0].name) is not None:
        files = read_committed(folder)
    result = _migrate(folder, files, Pins(), None, (), dry_run)
    if session_index(logs[0].name) is None:
        result.name = str(logs[0])
    return result


def _migrate(
    folder: Path,
    files: Mapping[str, bytes],
    pins: Pins,
    scenario: Scenario | None,
    mint: Sequence[tuple[str, str]],
    dry_run: bool,
) -> Result:
    result = Result(name=str(folder))
    try:
        done = _Rewriting(folder, files, pins, scenario, mint)
        new, notes, result.problems = done.files, done.notes, done.problems
        if result.problems:
            return result
        after = pins.with_sidecars(scenario.name, new) if scenario is not None and _is_pin(scenario) else pins
        again = _Rewriting(folder, new, after, scenario, mint)
        if again.files != new or again.problems:
            raise MeaningChanged(f"{folder}: migrating twice is not migrating once; please report this bug")
    except UsageError as error:
        result.problems = [_problem("unreadable", folder, str(error), exit_code=error.exit_code)]
        return result
    except OnetakeError as error:
        result.problems = [_problem("internal", folder, str(error))]
        return result
    changed = {name: data for name, data in new.items() if files.get(name) != data}
    gone = [name for name in files if name not in new]
    result.problems = [
        _problem("secret", folder / found.file, f"holds a secret: {found.text()}", exit_code=2)
        for found in find_secrets(changed, os.environ)
    ]
    if result.problems:
        return result
    result.pins = after
    result.changes = [
        _change(folder, name, files.get(name), new.get(name), notes) for name in sorted([*changed, *gone])
    ]
    if not dry_run:
        write_files(folder, {**changed, **dict.fromkeys(gone)})
    return result


class _Rewriting:
    """The files of one scenario in canonical form; pure."""

    def __init__(
        self,
        folder: Path,
        files: Mapping[str, bytes],
        pins: Pins,
        scenario: Scenario | None,
        mint: Sequence[tuple[str, str]],
    ) -> None:
        self.files: dict[str, bytes] = {}
        self.notes: dict[str, list[str]] = {}
        self.problems: list[Problem] = []
        self._folder = folder
        self._scenario = scenario
        self._pins = pins
        ordered = sorted((name for name in files if surface_of(name) in (None, "log")), key=_place)
        logs = [(name, files[name]) for name in ordered]
        # A pin that holds raw headers writes its sidecars anew, all of them in the order of its headers.
        anew = scenario is not None and _is_pin(scenario) and any(_raw_headers(data) for _, data in logs)
        self._namer = HeaderNamer(pins, scenario, files) if scenario is not None and anew else None
        self._counts: dict[tuple[int, str], int] = {}
        migration = Migration([(f"{folder}/{name}", data) for name, data in logs], mint)
        for (name, _), migrated in zip(logs, migration.migrate(self._pin), strict=True):
            self.files[name] = migrated.data
            self.notes[name] = migrated.notes
        for name, data in files.items():
            if name in self.files or (self._namer is not None and sidecar_of(name) is not None):
                continue
            self.files[name] = self._other(name, data, migration)
        if self._namer is not None:
            self.files |= self._namer.sidecars()
        self._check([(name, self.files[name]) for name, _ in logs], [name for _, name in mint])

    def _pin(self, session: int, kind: str, value: Any) -> str | None:
        """The token of a header's text, or of an unnamed token."""
        body = pin_of(value)
        ordinal = self._counts[session, kind] = self._counts.get((session, kind), -1) + 1
        if self._namer is not None:
            pin = self._pins.named(kind, body.partition(":")[2]) if body is not None else None
            if body is not None and pin is None:
                return None
            return self._namer.header(session, ordinal, kind, value if pin is None else pin.value)
        if body is not None:
            return self._named(kind) if ":" not in body else None
        held = self._pins.holding(kind, value)
        if not held:
            problem = self._unpinned(kind)
            self.problems += [problem] * (problem not in self.problems)
            return None
        return held[0].token

    def _named(self, kind: str) -> str | None:
        """What an unnamed token means: the only text of the suite, or of this pin. None when unclear."""
        of_kind = [pin for pin in self._pins.all if pin.kind == kind]
        own = [pin for pin in of_kind if self._scenario is not None and pin.scenario == self._scenario.name]
        for held in (of_kind, own):
            if len(held) == 1:
                return held[0].token
        return self._pins.full_name("{{" + kind + "}}")

    def _other(self, name: str, data: bytes, migration: Migration) -> bytes:
        """An expected file or a sidecar: line ends, layout, and the tokens of the scenario's values."""
        place = sidecar_of(name)
        if place is not None:
            kind = place[0]
            text = data
            if kind == "tools" or data.count(b"\r\n") == data.count(b"\n"):
                # A prompt has CRLF line ends of its own only where the file's last one is no CRLF.
                text = data.replace(b"\r\n", b"\n")
            value = migration.retokenizer.value(read_sidecar(kind, text, f"{self._folder}/{name}"))
            self.notes[name] = ["rewrote the sidecar as it is written today"]
            return write_sidecar(kind, value)
        text, notes = clean_lines(data, f"{self._folder}/{name}")
        before = migration.retokenizer.used.total()
        lines = []
        for number, line in enumerate(text.removesuffix(b"\n").split(b"\n") if text else [], 1):
            try:
                value = migration.retokenizer.value(jsontext.loads(line))
            except ValueError as error:
                raise UsageError(f"{self._folder}/{name}, line {number}: {error}") from error
            if name == REQUESTS_FILE and isinstance(value, dict):
                for kind in KINDS:
                    if pin_of(value.get(kind)) == kind:
                        value[kind] = self._named(kind)
            lines.append(jsontext.dumps(value) + b"\n")
        count = migration.retokenizer.used.total() - before
        if count:
            notes.append(f"{count} value{'s' * (count != 1)} became tokens")
        self.notes[name] = notes or ["rewrote lines as they are written today"]
        return b"".join(lines)

    def _check(self, logs: Sequence[tuple[str, bytes]], mint: Sequence[str]) -> None:
        """What is left to complain about in the logs is a problem here, or a bug."""
        for fault in fixture_faults(logs, mint):
            if fault.kind in ("layout", "identity"):
                raise MeaningChanged(
                    f"{self._folder}/{fault.file}: is still no fixture after its migration "
                    f"({fault.message}); please report this bug"
                )

    def _unpinned(self, kind: str) -> Problem:
        what = "system prompt" if kind == "system" else "set of tool schemas"
        if self._scenario is None:
            remedy = "move the log into a scenario of a suite, or exclude it: [tool.onetake] exclude"
        else:
            name = self._scenario.name
            remedy = f"make this scenario a pin (pins_header = true in [scenarios.{name}]) and migrate again"
        message = f"holds a {what} in full that no pin has, so nothing was written"
        return _problem("unpinned-header", self._folder, message, remedy)


def _problem(guard: str, place: Path, message: str, remedy: str = "", exit_code: int = 1) -> Problem:
    return Problem(guard=guard, file=str(place), message=message, remedy=remedy, exit_code=exit_code)


def _change(
    folder: Path, name: str, old: bytes | None, new: bytes | None, notes: Mapping[str, list[str]]
) -> Change:
    comparison = compare_file(old, new, name)
    # Equal but for recorded gaps and line ends: there is nothing to show.
    message = comparison.message if comparison is not None else ""
    default = ["no header names it any more"] if new is None else ["holds what stood in the headers"]
    return Change(str(folder / name), notes.get(name, default), message)


def _is_pin(scenario: Scenario) -> bool:
    return scenario.settings.pins_header


def _raw_headers(data: bytes) -> bool:
    headers: Iterable[dict[str, Any]] = header_lines(data)
    return any(h.get(kind) is not None and pin_of(h[kind]) is None for h in headers for kind in KINDS)


def _place(name: str) -> int:
    return session_index(name) or 0
