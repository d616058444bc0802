"""What a run prints: a line per scenario as it ends, then the failures together, then a summary; and JSON.

A failure names scenario, surface, file and the first difference with context, where the artifacts are, and
then the command that would accept it. Differences that share a cause are shown in full once.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TextIO

import msgspec

from onetake.snapshot.attempt import Outcome
from onetake.snapshot.findings import Difference

_RED, _GREEN, _YELLOW, _BOLD = "31", "32", "33", "1"


class Reporter:
    """Writes to one stream; colours only for people."""

    def __init__(
        self, stream: TextIO, mode: str, total: int, *, environ: Mapping[str, str], dry_run: bool
    ) -> None:
        self._stream = stream
        self._mode = mode
        self._total = total
        self._dry_run = dry_run
        self._done = 0
        self._colours = stream.isatty() and "NO_COLOR" not in environ and environ.get("TERM") != "dumb"

    def finished(self, outcome: Outcome) -> None:
        """One scenario is done: one line, at once."""
        self._done += 1
        status, colour = _status(outcome, self._mode)
        counter = f"[{self._done:>{len(str(self._total))}}/{self._total}]"
        line = f"{counter} {self._paint(f'{status:<7}', colour)} {outcome.name}  {outcome.seconds:.2f} s"
        print(f"{line}{_note(outcome)}", file=self._stream, flush=True)

    def summary(self, outcomes: Sequence[Outcome], seconds: float) -> None:
        """Changes of a writing mode, every failure, and the counts."""
        for outcome in outcomes:
            for change in outcome.verdict.changes if self._dry_run else []:
                self._print(
                    "", self._paint(f"would change {change.file}", _YELLOW), _indented(change.message)
                )
        shown: dict[str, str] = {}
        for outcome in outcomes:
            if not outcome.verdict.ok:
                self._failure(outcome, shown)
        self._print("", self._counts(outcomes, seconds))

    def _failure(self, outcome: Outcome, shown: dict[str, str]) -> None:
        place = display(outcome.suite.path)
        title = f"{place}: {outcome.name}" if outcome.name else f"{place}: the suite as a whole"
        self._print("", self._paint(f"=== {title} ===", _RED))
        for problem in outcome.verdict.problems:
            self._print(problem.text())
        for difference in outcome.verdict.differences:
            self._difference(outcome, difference, shown)
        if outcome.artifacts is not None:
            self._print(f"kept: {display(outcome.artifacts)}")
        for command in _accepting(outcome):
            self._print(f"accept: {command}")

    def _difference(self, outcome: Outcome, difference: Difference, shown: dict[str, str]) -> None:
        self._print(self._paint(f"{outcome.name}: {difference.surface}: {difference.file}", _BOLD))
        first = (
            shown.setdefault(difference.cause, str(outcome.name)) if difference.cause else str(outcome.name)
        )
        if first != outcome.name:
            self._print(_indented(f"the same difference as in {first}"))
        else:
            self._print(_indented(difference.message))

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
        print(*lines, sep="\n", file=self._stream, flush=True)


def failure_text(outcome: Outcome) -> str:
    """The whole failure of one scenario, for a test report."""
    lines = [problem.text() for problem in outcome.verdict.problems]
    for difference in outcome.verdict.differences:
        lines += [f"{difference.surface}: {difference.file}", _indented(difference.message)]
    if outcome.artifacts is not None:
        lines.append(f"kept: {display(outcome.artifacts)}")
    lines += [f"accept: {command}" for command in _accepting(outcome)]
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
                "written": outcome.verdict.written,
                "problems": msgspec.to_builtins(outcome.verdict.problems),
                "differences": msgspec.to_builtins(outcome.verdict.differences),
                "changes": msgspec.to_builtins(outcome.verdict.changes),
            }
            for outcome in outcomes
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


def _accepting(outcome: Outcome) -> list[str]:
    """What accepts the differences, each once; usually one command."""
    return list(dict.fromkeys(difference.accept for difference in outcome.verdict.differences))


def _indented(text: str) -> str:
    return "\n".join(f"    {line}".rstrip() for line in text.split("\n"))
