"""Find the values that change from run to run by themselves, and the rules that would cover them.

When the live run and its replays disagree, the reason is mostly small: a tool printed a random id, the time,
a port. Then the useful answer is not a diff but its cause, and the rule to paste into suite.toml. So the runs
are aligned by event, and the first value that differs is covered: by a `mint` rule when it is an identity
(the model or another result repeats it), else by a `mask` on the surface that shows it, or a `drop` when it
is a number of its own. Then the runs are compared again under that rule, until they agree.

A minted value reaches the model's words too, so under a new `mint` rule the recording is replayed anew. What
is proposed has therefore been tried: the live run and two replays agree with it. Nothing is applied here.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from onetake import jsontext
from onetake.fixture.echoes import delta_text, streams
from onetake.fixture.ids import result_texts
from onetake.snapshot.diff.pairing import kind_of
from onetake.snapshot.drive.env import scratch_directory
from onetake.snapshot.drive.harvest import Harvest
from onetake.snapshot.findings import Advice
from onetake.snapshot.modes.judge import harvest_problems, is_compared, surface_of
from onetake.snapshot.render.pins import Pins, session_index
from onetake.snapshot.render.render import Rendered, render
from onetake.snapshot.suites.suite import Scenario, Suite
from onetake.snapshot.volatile.places import Place, places, where
from onetake.snapshot.volatile.proposal import Rule, as_toml, with_rule
from onetake.snapshot.volatile.varying import Varying, find_varying, same_lines

MAX_RULES = 12
"""More rules than that are no explanation any more."""
MAX_TRIALS = 4
"""How often a recording is replayed anew (each time twice) to try a `mint` rule."""
SHORTEST_IDENTITY = 3
"""Shorter values occur by chance, so they are not minted (characters)."""

Trial = Callable[[Suite, Scenario, Path], Awaitable[Harvest]]
"""Replays the fixtures of a folder once, under the rules of the given suite."""

# The log is explained first, for it says what happened.
_ORDER = ("log", "stdout", "requests", "workspace", "pins")


class Found(msgspec.Struct, frozen=True):
    """A value that changes, where it was seen first, and the rule that covers it."""

    place: Place
    values: tuple[str, ...]
    rule: Rule
    why: str = ""


async def explain(
    runs: Sequence[Harvest],
    scenario: Scenario,
    suite: Suite,
    pins: Pins,
    committed: Mapping[str, bytes],
    trial: Trial,
) -> Advice | None:
    """What makes runs disagree (the live run first, then its replays), with rules when rules can mend it.

    None when there is nothing to add to the difference itself.
    """
    search = _Search(runs, scenario, suite, pins, committed, trial)
    agreed = await search.run(times_as_ids=False)
    if not agreed and search.echoed_time:
        agreed = await search.run(times_as_ids=True)
    return search.proposal() if agreed else search.failure()


class _Search:
    """One search for rules: the runs as they are seen under the rules found so far."""

    def __init__(
        self,
        runs: Sequence[Harvest],
        scenario: Scenario,
        suite: Suite,
        pins: Pins,
        committed: Mapping[str, bytes],
        trial: Trial,
    ) -> None:
        self._given = list(runs)
        self._scenario = scenario
        self._before = suite
        self._pins = pins
        self._committed = committed
        self._trial = trial
        self._trials = 0
        self._evidence: list[Harvest] = []
        """Replays under a rule that turned out too narrow: they show what else the value can be."""
        self.echoed_time = False
        """Whether the model repeated a time or a duration, which is masked at first all the same."""
        self._start()

    def _start(self) -> None:
        self._runs = list(self._given)
        self._suite = self._before
        self._found: list[Found] = []
        self._refused: set[Rule] = set()
        self._left: Place | None = None

    async def run(self, *, times_as_ids: bool) -> bool:
        """Add rules until the runs agree; whether they do."""
        self._start()
        while len(self._runs) < 3:
            if not await self._replay():
                return False
        while len(self._found) < MAX_RULES:
            self._left = self._first_difference()
            if self._left is None:
                return True
            found = self._cover(self._left, times_as_ids)
            if found is None or any(found.rule == known.rule for known in self._found):
                return False
            if not await self._adopt(found):
                self._refused.add(found.rule)
        return False

    def _cover(self, place: Place, times_as_ids: bool) -> Found | None:
        """The smallest rule for the value at a place, of those that were not tried in vain."""
        if all(isinstance(value, int | float) and not isinstance(value, bool) for value in place.values):
            path = ".".join("*" if isinstance(key, int) else key for key in place.path)
            rule = Rule("drop", place.surface, path)
            shown = tuple(dict.fromkeys(map(str, place.values)))
            dotted = any(isinstance(key, str) and (not key or "." in key) for key in place.path)
            return Found(place, shown, rule) if place.surface != "pins" and not dotted else None
        texts = [value for value in place.values if isinstance(value, str)]
        shuffled = any(same_lines(texts[0], text) for text in texts)
        if place.surface == "pins" or len(texts) != len(place.values) or shuffled:
            return None
        for alone in (True, False):
            varying = find_varying(texts, alone=alone)
            if varying is None:
                break
            why = self._identity(varying, times_as_ids)
            mint = Rule("mint", "", varying.mint, varying.name)
            if why and mint not in self._refused:
                return Found(place, varying.values, mint, why)
            mask = Rule("mask", place.surface, varying.mask, varying.replacement)
            if mask not in self._refused:
                return Found(place, varying.values, mask)
        return None

    def _identity(self, varying: Varying, times_as_ids: bool) -> str:
        """Why a value is more than noise: who repeats it. Empty when it is noise, or cannot be minted."""
        live, value = self._runs[0], varying.values[0]
        results = [text for log in live.sessions for event in log.events for text in result_texts(event)]
        pattern = re.compile(varying.mint)
        minted = any(match[1] == value for text in results for match in pattern.finditer(text))
        if not minted or len(value) < SHORTEST_IDENTITY:
            return ""
        whole = re.compile(rf"(?<![A-Za-z0-9]){re.escape(value)}(?![A-Za-z0-9])")
        echoed = any(whole.search(text) for text in _said(live))
        if varying.kind in ("time", "duration"):
            # Two of them may be equal by chance, and are not in the next run: no identity to keep.
            self.echoed_time |= echoed
            return "the model repeats it" if echoed and times_as_ids else ""
        if echoed:
            return "the model repeats it"
        return "results repeat it" if sum(len(whole.findall(text)) for text in results) > 1 else ""

    async def _adopt(self, found: Found) -> bool:
        """Put a rule in force; False (and all as before) when it hides more than what changes, or when the
        recording does not replay under it."""
        suite, runs = self._suite, self._runs
        if found.rule.kind == "mask" and self._hides_more(found.rule):
            return False
        self._suite = with_rule(suite, found.rule)
        self._found.append(found)
        if found.rule.kind != "mint":
            return True
        self._runs = runs[:1]
        if await self._replay() and await self._replay():
            return True
        self._evidence += self._runs[1:]
        self._suite, self._runs = suite, runs
        self._found.pop()
        return False

    def _hides_more(self, rule: Rule) -> bool:
        """Whether a mask covers anything in which all runs agree."""
        live, *replays = [self._render(run).files for run in self._runs]
        suite, self._suite = self._suite, with_rule(self._suite, rule)
        masked = self._render(self._runs[0]).files
        self._suite = suite
        varying = {place for files in replays for place in where(live, files)}
        return not where(live, masked) <= varying

    async def _replay(self) -> bool:
        """One replay more, of the live run as it is recorded under the rules; False when it went wrong."""
        if self._trials >= 2 * MAX_TRIALS:
            return False
        self._trials += 1
        with scratch_directory() as folder:
            for file, data in self._render(self._runs[0]).files.items():
                if session_index(file) is not None:
                    (folder / file).write_bytes(data)
            harvest = await self._trial(self._suite, self._scenario, folder)
        self._runs.append(harvest)
        return (
            not harvest_problems(harvest, self._suite, self._scenario) and not self._render(harvest).problems
        )

    def _render(self, harvest: Harvest) -> Rendered:
        return render(harvest, self._scenario, self._suite, self._pins, self._committed, joined=True)

    def _first_difference(self) -> Place | None:
        """The first leaf at which any replay differs from the live run, with what all of them have there."""
        live, *replays = [self._render(run).files for run in self._runs]
        names = {name for files in (live, *replays) for name in files}
        compared = [
            (_ORDER.index(surface), session_index(name) or 0, name)
            for name in names
            if (surface := surface_of(name)) is not None and is_compared(surface, self._scenario, self._suite)
        ]
        for _, _, name in sorted(compared):
            firsts = [next(places(name, live.get(name), files.get(name)), None) for files in replays]
            different = [place for place in firsts if place is not None]
            if different:
                first = min(different, key=lambda place: place.line)
                same = [place for place in different if (place.line, place.path) == (first.line, first.path)]
                values = (first.values[0], *(place.values[1] for place in same), *self._more(first))
                return msgspec.structs.replace(first, values=values)
        return None

    def _more(self, first: Place) -> Iterator[Any]:
        """What the evidence has at a place."""
        live = self._render(self._runs[0]).files.get(first.file)
        for run in self._evidence:
            place = next(places(first.file, live, self._render(run).files.get(first.file)), None)
            if place is not None and (place.line, place.path) == (first.line, first.path):
                yield place.values[1]

    def proposal(self) -> Advice | None:
        """The rules that make the runs agree; None when they agree without any by now."""
        if not self._found:
            return None
        toml = as_toml([found.rule for found in self._found], self._suite.path.read_text(encoding="utf-8"))
        many = "these rules" if len(self._found) > 1 else "this rule"
        mode = self._runs[0].mode
        runs = "the live run and two replays" if mode == "record" else "this run and its replays"
        lines = [
            *self._told(),
            f"tried: with {many} {runs} agree; paste into {self._suite.path.name} and {mode} again:",
            "",
            *(f"    {line}".rstrip() for line in toml.split("\n")),
        ]
        return Advice(text="\n".join(lines), rules=toml)

    def failure(self) -> Advice | None:
        """What was found out all the same."""
        lines = [*self._told(), *(self._unexplained(self._left) if self._left is not None else ())]
        return Advice(text="\n".join(lines)) if lines else None

    def _told(self) -> Iterator[str]:
        for found, more in self._merged():
            values = ", ".join(f"`{_clipped(value)}`" for value in found.values)
            what, where = _described(found.place, self._runs[0])
            yield f"{what} prints a value that changes from run to run: {values}"
            also = f", and on {' and '.join(more)}" if more else ""
            yield f"    {self._scenario.name}/{found.place.file}, line {found.place.line}{where}{also}"
            if found.why:
                yield f"    {found.why}, so it is an identity to keep"

    def _merged(self) -> list[tuple[Found, list[str]]]:
        """What was found, a value that shows on several surfaces once."""
        merged: dict[tuple[str, ...], tuple[Found, list[str]]] = {}
        for found in self._found:
            entry = merged.setdefault(found.values, (found, []))
            if entry[0] is not found:
                entry[1].append(found.place.surface)
        return list(merged.values())

    def _unexplained(self, place: Place) -> Iterator[str]:
        what, where = _described(place, self._runs[0])
        yield f"no rule covers what differs in {what}"
        yield f"    {self._scenario.name}/{place.file}, line {place.line}{where}"
        texts = [value for value in place.values if isinstance(value, str)]
        if any(same_lines(texts[0], text) for text in texts):
            yield "    the same lines come in another order: let the tool sort them"
        elif len(texts) > 1:
            yield from (f"    {sign} {_clipped(text)!r}" for sign, text in zip("-+", texts, strict=False))
        if place.surface == "pins":
            yield "    a prompt holds nothing that changes: keep dates, versions and host names out of it"
        else:
            yield "    fence what varies (a seed, a fixed clock, an order), or it is a bug in the agent"


def _said(run: Harvest) -> Iterator[str]:
    """What the model said, block by block, deltas joined."""
    for log in run.sessions:
        for positions in streams(log.events):
            yield "".join(delta_text(log.events[position]) for position in positions)


def _described(place: Place, live: Harvest) -> tuple[str, str]:
    """What stands at a place, and more about where that is."""
    record: dict[str, Any] = place.record if isinstance(place.record, dict) else {}
    data = _member(record, "data")
    kind = record.get("type")
    if place.surface == "log" and kind == "tool/result":
        call = _member(data, "message", "source", "callId")
        name = next(
            (
                event["data"].get("name")
                for log in live.sessions
                for event in log.events
                if event.get("type") == "tool/call" and event["data"].get("callId") == call
            ),
            None,
        )
        return "this tool result", f": `{name}`, turn {_member(data, 'turn')}, step {_member(data, 'step')}"
    if place.surface == "log":
        return f"this `{kind}` event" if isinstance(kind, str) else "this event", _at(place)
    if place.surface == "stdout":
        return "this frame", f" ({kind_of(jsontext.dumps(record))}){_at(place)}"
    words = {"requests": "this request", "workspace": "this file", "pins": "this prompt or schema"}
    path = record.get("path")
    return words.get(place.surface, "this file"), f": {path}" if isinstance(path, str) else _at(place)


def _at(place: Place) -> str:
    return f" at {'.'.join(map(str, place.path))}" if place.path else ""


def _member(value: Any, *keys: str) -> Any:
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return value


def _clipped(text: str) -> str:
    return text if len(text) <= 60 else f"{text[:57]}..."
