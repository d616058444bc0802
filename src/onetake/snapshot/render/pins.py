"""Pins: each distinct prompt and set of tool schemas is committed once, readable, and named elsewhere.

A prompt of three thousand words in every fixture would turn one edited word into hundreds of changed lines.
So a scenario with `pins_header` keeps the texts as sidecars, and every header of the suite carries a token
that names one. The price of a name is that it must be checked: each live header must *equal* the sidecar that
it names.

Names: the first text of a pin is the scenario's name (`{{system:text-turn}}`, system-prompt.expected.md),
further ones are numbered (`{{system:text-turn.1}}`, system-prompt.1.expected.md). Prompts and schemas are
named independently. Texts are compared in the form in which they are committed, that is, tokenized.

A run may have several headers: of children, after a change in the middle, after a resumption. Each names
the text that it has; in a pin each text that no earlier pin of the suite holds gets a sidecar, numbered in
the order in which the run's headers (session by session) had it first.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from onetake import jsontext
from onetake.errors import UsageError
from onetake.fixture.grammar import pin_of
from onetake.snapshot.suites.suite import Scenario, Suite

KINDS = ("system", "tools")
_FILE = re.compile(r"(system-prompt|tool-schemas)(?:\.([1-9][0-9]*))?\.expected\.(md|json)")
_STEM = {"system": ("system-prompt", "md"), "tools": ("tool-schemas", "json")}


def sidecar_file(kind: str, number: int) -> str:
    """The file of a pin's text: `number` 0 is the unnumbered one."""
    stem, suffix = _STEM[kind]
    return f"{stem}.{number}.expected.{suffix}" if number else f"{stem}.expected.{suffix}"


def sidecar_of(file: str) -> tuple[str, int] | None:
    """The kind and number of a sidecar by its file name; None for any other file."""
    match = _FILE.fullmatch(file)
    for kind, (stem, suffix) in _STEM.items():
        if match and (match[1], match[3]) == (stem, suffix):
            return kind, int(match[2] or 0)
    return None


class Pin(msgspec.Struct, frozen=True):
    """One committed text."""

    scenario: str
    number: int
    kind: str
    value: Any
    """The tokenized prompt, or the decoded, tokenized schemas."""

    @property
    def name(self) -> str:
        """What tokens call it."""
        return f"{self.scenario}.{self.number}" if self.number else self.scenario

    @property
    def token(self) -> str:
        """The token that names it."""
        return "{{" + f"{self.kind}:{self.name}" + "}}"

    @property
    def file(self) -> str:
        """Its file, relative to the suite's folder."""
        return f"{self.scenario}/{sidecar_file(self.kind, self.number)}"


class PinClash(UsageError):
    """Two texts of a suite would be called by one name."""


class Pins:
    """All committed pins of a suite, in the suite's order."""

    fresh: frozenset[str] = frozenset()
    """Pin scenarios that this very command has run already: their sidecars say what they send today."""

    def __init__(self, pins: Iterable[Pin] = (), scenarios: Sequence[str] = ()) -> None:
        self.all = list(pins)
        self.scenarios = list(scenarios)
        """Names of the scenarios with `pins_header`, in the suite's order."""
        self._named = {(pin.kind, pin.name): pin for pin in self.all}

    def named(self, kind: str, name: str) -> Pin | None:
        """The pin that a token body names; an empty name means the suite's only pin."""
        if not name and len(self.scenarios) == 1:
            name = self.scenarios[0]
        return self._named.get((kind, name))

    def holding(self, kind: str, value: Any) -> list[Pin]:
        """The pins that hold this very text."""
        wanted = _key(value)
        return [pin for pin in self.all if pin.kind == kind and _key(pin.value) == wanted]

    def with_sidecars(self, scenario: str, files: Mapping[str, bytes]) -> Pins:
        """These pins with a scenario's sidecars replaced, in the suite's order."""
        new = [
            Pin(scenario, place[1], place[0], read_sidecar(place[0], data, f"{scenario}/{name}"))
            for name, data in files.items()
            if (place := sidecar_of(name)) is not None
        ]
        pins = [pin for pin in self.all if pin.scenario != scenario] + new
        order = {name: number for number, name in enumerate(self.scenarios)}
        result = Pins(sorted(pins, key=lambda pin: order[pin.scenario]), self.scenarios)
        result.fresh = self.fresh
        return result

    def full_name(self, token: str) -> str:
        """A header token with the pin's name written out; other text as it is."""
        body = pin_of(token)
        if body in KINDS and len(self.scenarios) == 1:
            return "{{" + f"{body}:{self.scenarios[0]}" + "}}"
        return token


def clash_text(pin: Pin) -> str:
    """What to say when the name of a numbered text is that of another pin."""
    return (
        f"{pin.token} would name this text and the first one of the scenario {pin.name}; rename that scenario"
    )


def load_pins(suite: Suite, *, lenient: bool = False) -> Pins:
    """Read every sidecar of the suite's pins.

    Raises `PinClash` for two texts of one name, and `UsageError` for a sidecar that cannot be read. `lenient`
    leaves the latter out: what is about to be written anew need not be readable.
    """
    scenarios = [s for s in suite.scenarios.values() if s.settings.pins_header]
    names = {scenario.name for scenario in scenarios}
    pins = []
    for scenario in scenarios:
        found = [
            (place, path)
            # A suite in Python has no folder for what was never written.
            for path in (scenario.dir.iterdir() if scenario.dir.is_dir() else ())
            if (place := sidecar_of(path.name)) is not None and path.is_file()
        ]
        for (kind, number), path in sorted(found):
            try:
                value = read_sidecar(kind, path.read_bytes(), str(path))
            except UsageError:
                if lenient:
                    continue
                raise
            pin = Pin(scenario.name, number, kind, value)
            if number and pin.name in names:
                raise PinClash(f"{path}: {clash_text(pin)}")
            pins.append(pin)
    return Pins(pins, [scenario.name for scenario in scenarios])


def read_sidecar(kind: str, data: bytes, file: str) -> Any:
    """The text or the schemas that a sidecar holds. Raises `UsageError`."""
    try:
        if kind == "tools":
            return jsontext.loads(data)
        return data.decode("utf-8", "surrogatepass").removesuffix("\n")
    except ValueError as error:
        raise UsageError(f"{file}: {error}; refresh the pin with `onetake refresh -k`") from error


def write_sidecar(kind: str, value: Any) -> bytes:
    """The bytes of a sidecar: readable, one newline more than the text has."""
    text = jsontext.dumps_pretty(value) if kind == "tools" else str(value)
    return (text + "\n").encode("utf-8", "surrogatepass")


def write_order(suite: Suite, scenarios: Iterable[Scenario]) -> list[Scenario]:
    """The order in which record and refresh write: pins first, then the suite's order."""
    chosen = {scenario.name for scenario in scenarios}
    ordered = [scenario for scenario in suite.scenarios.values() if scenario.name in chosen]
    return sorted(ordered, key=lambda scenario: not scenario.settings.pins_header)


class Unpinned(msgspec.Struct, frozen=True):
    """A live header text that no pin holds."""

    kind: str
    value: Any
    committed: Pin | None
    """The pin that the fixture names at this place, when it exists."""
    session: int = 0
    """Index of the session whose header it is."""
    fresh: bool = False
    """Whether that pin was run by this command, so that its sidecar is what the agent sends there today."""


class HeaderNamer:
    """Names the header texts of one run. Feed it headers in order, then ask for tokens and sidecars."""

    def __init__(self, pins: Pins, scenario: Scenario, committed: Mapping[str, bytes]) -> None:
        self._pins = pins
        self._pinning = scenario.settings.pins_header
        self._scenario = scenario.name
        self._committed = committed_tokens(committed)
        self._own: dict[str, list[Any]] = {kind: [] for kind in KINDS}
        self._tokens: dict[tuple[str, bytes], str] = {}
        self.unpinned: list[Unpinned] = []
        """Texts that no pin holds, each once."""
        self.clashes: list[Pin] = []
        """Texts of this pin whose name another pin of the suite has."""
        self.names: set[str] = set()
        """Names of the pins in use."""

    def header(self, session: int, ordinal: int, kind: str, value: Any) -> str:
        """The token of a header's text: the `ordinal`-th (from 0) of its kind in the session."""
        known = self.token(kind, value)
        if known is not None:
            return known
        token = self._choose(session, ordinal, kind, value)
        self._tokens[kind, _key(value)] = token
        body = pin_of(token)
        if body is not None:
            self.names.add(body.partition(":")[2])
        return token

    def token(self, kind: str, value: Any) -> str | None:
        """The token of a text that a header of this run had; None for any other text."""
        return self._tokens.get((kind, _key(value)))

    def sidecars(self) -> dict[str, bytes]:
        """The sidecar files of a pinning scenario (file name -> bytes)."""
        return {
            sidecar_file(kind, number): write_sidecar(kind, value)
            for kind, values in self._own.items()
            for number, value in enumerate(values)
        }

    def _choose(self, session: int, ordinal: int, kind: str, value: Any) -> str:
        held = self._pins.holding(kind, value)
        if self._pinning:
            # Each distinct text is committed once: by the first pin of the suite that has it.
            place = self._pins.scenarios.index(self._scenario)
            earlier = [pin for pin in held if self._pins.scenarios.index(pin.scenario) < place]
            if earlier:
                return earlier[0].token
            pin = Pin(self._scenario, len(self._own[kind]), kind, value)
            self._own[kind].append(value)
            if pin.number and pin.name in self._pins.scenarios:
                self.clashes.append(pin)
            return pin.token
        before = self._named_before(session, ordinal, kind)
        if held:
            return (before if before in held else held[0]).token
        fresh = before is not None and before.scenario in self._pins.fresh
        self.unpinned.append(Unpinned(kind, value, before, session, fresh))
        # The fixture's own token stands in, so that one changed text is reported once and not on every
        # surface.
        return before.token if before is not None else "{{" + kind + "}}"

    def _named_before(self, session: int, ordinal: int, kind: str) -> Pin | None:
        tokens = self._committed.get((session, kind), [])
        body = tokens[ordinal] if ordinal < len(tokens) else tokens[-1] if tokens else ""
        pin = self._pins.named(kind, body)
        if pin is None and not body and self._pins.scenarios:
            return self._pins.named(kind, self._pins.scenarios[0])
        return pin


def committed_tokens(files: Mapping[str, bytes]) -> dict[tuple[int, str], list[str]]:
    """The pin names that committed headers carry, by session and kind; unreadable lines are passed over."""
    result: dict[tuple[int, str], list[str]] = {}
    for name, data in files.items():
        session = session_index(name)
        if session is None:
            continue
        for header in header_lines(data):
            for kind in KINDS:
                body = pin_of(header.get(kind))
                if body is not None:
                    result.setdefault((session, kind), []).append(body.partition(":")[2])
    return result


def header_lines(data: bytes) -> list[dict[str, Any]]:
    """The request headers of a fixture, in order; lines that are none are passed over."""
    found = []
    for line in data.split(b"\n"):
        if b'"request/header"' not in line:
            continue
        try:
            event = jsontext.loads(line)
        except ValueError:
            continue
        described = (
            event.get("data") if isinstance(event, dict) and event.get("type") == "request/header" else None
        )
        header = described.get("header") if isinstance(described, dict) else None
        if isinstance(header, dict):
            found.append(header)
    return found


def session_index(file: str) -> int | None:
    """The index of a fixture: session.jsonl is 0, session.N.jsonl is N; None for other files."""
    match = re.fullmatch(r"session(?:\.([1-9][0-9]*))?\.jsonl", file)
    return int(match[1] or 0) if match else None


def session_file(index: int) -> str:
    """The file name of a fixture."""
    return f"session.{index}.jsonl" if index else "session.jsonl"


def with_full_names(data: bytes, pins: Pins) -> bytes:
    """A committed file with unnamed header tokens (`{{system}}`) written out, for comparison."""
    if b'"{{system}}"' not in data and b'"{{tools}}"' not in data:
        return data
    lines = []
    for line in data.split(b"\n"):
        if line.startswith((b'{"type":"request/header"', b'{"session":')):
            for kind in KINDS:
                short = "{{" + kind + "}}"
                field = f'"{kind}":"'
                line = line.replace(f'{field}{short}"'.encode(), f'{field}{pins.full_name(short)}"'.encode())
        lines.append(line)
    return b"\n".join(lines)


def _key(value: Any) -> bytes:
    return jsontext.dumps(value)
