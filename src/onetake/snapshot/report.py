"""What a run prints: a line per scenario as it ends, then the failures together, then a summary; and JSON.

A failure names scenario, surface, file and the first difference with context, the agent's last stderr, where
the artifacts are, and then the command that would accept it. Scenarios that fail alike are one failure.
"""

from __future__ import annotations

import os
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TextIO

import msgspec

from onetake.snapshot.artifacts import LIVE
from onetake.snapshot.attempt import Outcome
from onetake.snapshot.diff.causes import accepting, alike
from onetake.snapshot.findings import Difference, Verdict
from onetake.snapshot.suites.suite import Suite

WIDTH = 100
"""Width to which lists of scenarios are wrapped, in characters."""
_RED, _GREEN, _YELLOW, _BOLD = "31", "32", "33", "1"


class Reporter:
    """Writes to one stream; colours only for people.

    Nothing that happens to the stream disturbs the run: after the first failure nothing more is written.
    """

    def __init__(
        self, stream: TextIO, mode: str, total: int, *, environ: Mapping[str, str], dry_run: bool
    ) -> None:
        self._stream = stream
        self._mode = mode
        self._total = total
        self._dry_run = dry_run
        self._done = 0
        self.lost: OSError | None = None
        """Why the stream took no more; None while it does."""
        self._colours = stream.isatty() and "NO_COLOR" not in environ and environ.get("TERM") != "dumb"

    def finished(self, outcome: Outcome) -> None:
        """One scenario is done: one line, at once."""
        self._done += 1
        status, colour = _status(outcome, self._mode)
        if status == "written" and self._dry_run:
            status = "would write"
        counter = f"[{self._done:>{len(str(self._total))}}/{self._total}]"
        line = f"{counter} {self._paint(f'{status:<7}', colour)} {outcome.name}  {outcome.seconds:.2f} s"
        self._print(f"{line}{_note(outcome)}", *(f"    note: {note}" for note in outcome.verdict.notes))

    def summary(self, outcomes: Sequence[Outcome], seconds: float) -> None:
        """Changes of a writing mode, every failure, and the counts."""
        if self._dry_run:
            self._changes([change for outcome in outcomes for change in outcome.verdict.changes])
        shown: dict[str, str] = {}
        for group in groups(outcomes):
            self._failure(group, shown)
        self._print("", self._counts(outcomes, seconds))

    def _changes(self, changes: Sequence[Difference]) -> None:
        alike: dict[str, list[Difference]] = {}
        for change in changes:
            alike.setdefault(change.cause or change.file, []).append(change)
        for same in alike.values():
            files = _listed(f"would change {same[0].file}", [change.file for change in same[1:]], ", ")
            self._print("", self._paint(files, _YELLOW), _indented(same[0].message))

    def _failure(self, group: Group, shown: dict[str, str]) -> None:
        outcome = group.outcomes[0]
        place = display(outcome.suite.path)
        many = len(group.outcomes) > 1
        title = outcome.name or "the suite as a whole"
        if many:
            what = "differ only by this" if outcome.verdict.differences else "fail alike"
            title = f"{len(group.outcomes)} scenarios {what}"
        self._print("", self._paint(f"=== {place}: {title} ===", _RED))
        if many:
            self._print(_listed("scenarios:", [str(member.name) for member in group.outcomes], " "))
        for problem in outcome.verdict.problems:
            self._print(problem.text())
        for number, difference in enumerate(outcome.verdict.differences):
            files = {member.verdict.differences[number].file for member in group.outcomes}
            self._difference(str(outcome.name), difference, len(files) - 1, shown)
        for line in _after(outcome):
            self._print(line)
        if many and outcome.artifacts is not None:
            self._print(f"kept: {display(outcome.artifacts.parent)}{os.sep} (a folder for each)")
        elif outcome.artifacts is not None:
            self._print(_kept(outcome.artifacts))
        for member in group.outcomes:
            if member.not_kept:
                self._print(f"could not keep what {member.name} left: {member.not_kept}")
        for command in group.accept:
            self._print(f"accept: {command}")

    def _difference(self, name: str, difference: Difference, more: int, shown: dict[str, str]) -> None:
        like_it = f", and {more} more like it" if more else ""
        self._print(self._paint(f"{name}: {difference.surface}: {difference.file}{like_it}", _BOLD))
        first = shown.setdefault(difference.cause, name) if difference.cause else name
        text = difference.message if first == name else f"the same difference as in {first}"
        self._print(_indented(text))

    def _counts(self, outcomes: Sequence[Outcome], seconds: float) -> str:
        counts = count(outcomes)
        parts = [f"{counts[key]} {key}" for key in ("passed", "failed", "skipped") if counts[key]]
        written = sum(len(outcome.verdict.written) for outcome in outcomes)
        if self._mode != "replay":
            parts.append(
                f"{written} file{'s' * (written != 1)} {'would change' if self._dry_run else 'changed'}"
            )
        if any(outcome.name is None for outcome in outcomes):
            parts.append("suite-wide problems")
        if nothing_ran(outcomes):
            parts.append("so nothing ran")
        bad = exit_code(outcomes) != 0
        text = f"{self._mode}: {', '.join(parts)} in {seconds:.2f} s"
        return self._paint(text, _RED if bad else _GREEN)

    def _paint(self, text: str, colour: str) -> str:
        return f"\x1b[{colour}m{text}\x1b[0m" if self._colours else text

    def _print(self, *lines: str) -> None:
        if self.lost is None:
            try:
                print(*lines, sep="\n", file=self._stream, flush=True)
            except OSError as error:
                self.lost = error


class Group(msgspec.Struct, frozen=True):
    """Outcomes that are red for one cause; mostly one."""

    outcomes: list[Outcome]
    accept: list[str]
    """The commands that accept what differs."""


def groups(outcomes: Sequence[Outcome]) -> list[Group]:
    """The red outcomes by cause, in the order of the run."""
    result = []
    for path in dict.fromkeys(outcome.suite.path for outcome in outcomes):
        mine = [outcome for outcome in outcomes if outcome.suite.path == path]
        named = {outcome.name: outcome for outcome in mine if outcome.name is not None}
        found = alike(outcome.verdict for outcome in named.values())
        for group in found:
            suite = mine[0].suite
            everything = len(found) == 1 and len(named) == len(suite.scenarios)
            members = [named[verdict.scenario] for verdict in group]
            result.append(Group(members, accepting(suite, group, everything=everything and len(group) > 1)))
        result += [
            Group([outcome], []) for outcome in mine if outcome.name is None and not outcome.verdict.ok
        ]
    return result


def shared_cause(suite: Suite, group: Sequence[Verdict], *, everything: bool) -> str:
    """A few lines about scenarios that fail alike, where each has reported its own failure already."""
    first = group[0]
    what = "differ only by the same" if first.differences else "fail alike"
    surfaces = ", ".join(dict.fromkeys(difference.surface for difference in first.differences))
    head = f"{display(suite.path)}: {len(group)} scenarios {what} {surfaces}".rstrip()
    names = _listed(f"{head}:", [verdict.scenario for verdict in group], " ")
    return "\n".join([names, *(f"  accept: {c}" for c in accepting(suite, group, everything=everything))])


def failure_text(outcome: Outcome) -> str:
    """The whole failure of one scenario, for a test report."""
    lines = [problem.text() for problem in outcome.verdict.problems]
    for difference in outcome.verdict.differences:
        lines += [f"{difference.surface}: {difference.file}", _indented(difference.message)]
    lines += _after(outcome)
    if outcome.artifacts is not None:
        lines.append(_kept(outcome.artifacts))
    if outcome.not_kept:
        lines.append(f"could not keep what the run left: {outcome.not_kept}")
    lines += [f"accept: {command}" for command in accepting(outcome.suite, [outcome.verdict])]
    return "\n".join(lines)


def count(outcomes: Sequence[Outcome]) -> dict[str, int]:
    """How many scenarios passed, failed and were skipped."""
    scenarios = [outcome for outcome in outcomes if outcome.name is not None]
    skipped = sum(bool(outcome.skipped) for outcome in scenarios)
    failed = sum(not outcome.verdict.ok for outcome in scenarios)
    return {"passed": len(scenarios) - skipped - failed, "failed": failed, "skipped": skipped}


def exit_code(outcomes: Sequence[Outcome]) -> int:
    """The highest wins; a run in which nothing ran is wrong usage, and no success."""
    return max((outcome.exit_code for outcome in outcomes), default=0) or 2 * nothing_ran(outcomes)


def nothing_ran(outcomes: Sequence[Outcome]) -> bool:
    """Whether every scenario was skipped."""
    return all(outcome.skipped for outcome in outcomes)


def as_json(outcomes: Sequence[Outcome], mode: str, seconds: float) -> dict[str, Any]:
    """The report for machines: `--report FILE`."""
    return {
        "mode": mode,
        "exitCode": exit_code(outcomes),
        "seconds": round(seconds, 3),
        "counts": count(outcomes),
        "outcomes": [
            {
                "suite": display(outcome.suite.path),
                "scenario": outcome.name,
                "status": _status(outcome, mode)[0],
                "exitCode": outcome.exit_code,
                "seconds": round(outcome.seconds, 3),
                "skipped": outcome.skipped or None,
                "artifacts": None if outcome.artifacts is None else display(outcome.artifacts),
                "notKept": outcome.not_kept or None,
                "written": outcome.verdict.written,
                "notes": outcome.verdict.notes,
                "problems": msgspec.to_builtins(outcome.verdict.problems),
                "differences": msgspec.to_builtins(outcome.verdict.differences),
                "changes": msgspec.to_builtins(outcome.verdict.changes),
                "advice": msgspec.to_builtins(outcome.verdict.advice),
            }
            for outcome in outcomes
        ],
        "groups": [
            {
                "suite": display(group.outcomes[0].suite.path),
                "scenarios": [outcome.name for outcome in group.outcomes],
                "accept": group.accept,
            }
            for group in groups(outcomes)
        ],
    }


def display(path: Path) -> str:
    """A path as people would type it here: relative when that is shorter."""
    relative = os.path.relpath(path)
    return relative if len(relative) < len(str(path)) else str(path)


def _status(outcome: Outcome, mode: str) -> tuple[str, str]:
    if not outcome.verdict.ok:
        return "FAILED", _RED
    if outcome.skipped:
        return "skipped", _YELLOW
    if mode != "replay" and outcome.verdict.written:
        return "written", _YELLOW
    return "ok", _GREEN


def _note(outcome: Outcome) -> str:
    if outcome.skipped:
        return f"  {outcome.skipped}"
    surfaces = [d.surface for d in outcome.verdict.differences] + [p.guard for p in outcome.verdict.problems]
    if surfaces:
        return f"  {', '.join(dict.fromkeys(surfaces))}"
    return f"  {', '.join(outcome.verdict.written)}" if outcome.verdict.written else ""


def _after(outcome: Outcome) -> list[str]:
    """What helps beyond the findings: advice about values that change, and the agent's last words."""
    verdict = outcome.verdict
    lines = [verdict.advice.text] if verdict.advice is not None else []
    if any(not difference.accept for difference in verdict.differences) and not verdict.problems:
        lines.append("nothing was written: fence what varies, cover it with a rule, or report a bug")
    if outcome.stderr and not any(problem.guard == "drive" for problem in verdict.problems):
        lines += ["the agent's last stderr:", _indented(outcome.stderr)]
    return lines


def _kept(folder: Path) -> str:
    live = f" (what the model said is in {LIVE}/)" if (folder / LIVE).is_dir() else ""
    return f"kept: {display(folder)}{live}"


def _listed(head: str, names: Sequence[str], joint: str) -> str:
    """Names behind a head, wrapped."""
    text = joint.join([head, ", ".join(names)]) if names else head
    return textwrap.fill(
        text, WIDTH, subsequent_indent="    ", break_long_words=False, break_on_hyphens=False
    )


def _indented(text: str) -> str:
    return "\n".join(f"    {line}".rstrip() for line in text.split("\n"))
