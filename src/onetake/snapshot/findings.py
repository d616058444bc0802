"""What judging a run yields: differences, problems, and the verdict that holds them.

A *difference* is something that the owner of the suite may accept (the harness changed, and the change is
wanted). A *problem* is something that nobody may accept by rewriting files: replay left the recording, a file
is missing, the agent printed where only frames belong. Problems block every write.
"""

from __future__ import annotations

import msgspec


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """One file of one surface that is not what the run gave."""

    scenario: str
    surface: str
    """requests, stdout, log, workspace or pins."""
    file: str
    """Path relative to the suite's folder."""
    message: str
    """The first difference with context, several lines, ready to print."""
    diff: str
    """The whole difference as a unified diff (bounded)."""
    accept: str
    """The command that accepts the change."""
    cause: str = ""
    """Equal for differences that have the same cause, so that a run can group them; empty when unknown."""


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    """One broken requirement; `guard` is its id in `guards.GUARDS`."""

    guard: str
    message: str
    remedy: str = ""
    scenario: str | None = None
    """None for a problem of the suite or of the repository."""
    surface: str | None = None
    file: str | None = None
    """Path relative to the suite's folder (or to the working directory for `check`)."""
    exit_code: int = 1
    """1 the run is red, 2 missing or malformed input, 3 the agent did not start or died."""

    def __post_init__(self) -> None:
        """Escape half characters, which agents may write and no stream takes (nor does pytest-xdist)."""
        printable = self.message.encode("utf-8", "backslashreplace").decode()
        msgspec.structs.force_setattr(self, "message", printable)

    def text(self) -> str:
        """One paragraph for people: place, message, remedy, and the guard's id."""
        place = "/".join(p for p in (self.scenario, self.surface) if p)
        where = ": ".join(p for p in (place, self.file) if p)
        lines = [f"{where}: {self.message} [{self.guard}]" if where else f"{self.message} [{self.guard}]"]
        if self.remedy:
            lines.append(f"  remedy: {self.remedy}")
        return "\n".join(lines)


class Advice(msgspec.Struct, frozen=True, kw_only=True):
    """Why runs of one recording disagree, and what would mend it. Nothing of it is applied."""

    text: str
    """For people, several lines."""
    rules: str = ""
    """The rules that were tried and make the runs agree, as TOML; empty when none do."""


class Verdict(msgspec.Struct, kw_only=True):
    """The outcome of one scenario in one mode."""

    scenario: str
    differences: list[Difference] = []
    problems: list[Problem] = []
    used_rules: set[str] = set()
    """Ids of the normalization rules that matched (`guards.rule_ids`), for the suite-wide check."""
    named_pins: set[str] = set()
    """Pin names that the rendered headers carry."""
    written: list[str] = []
    """Files of the scenario's folder that record or refresh changed (in a dry run: would change)."""
    sidecars: dict[str, bytes] = {}
    """The sidecars of a pin as record or refresh made them (file name -> bytes), written or not."""
    changes: list[Difference] = []
    """What record or refresh changed (in a dry run: would change), old against new. No failure."""
    notes: list[str] = []
    """What its owner should know though nothing is red."""
    advice: Advice | None = None
    """What record found out about values that change from run to run."""

    @property
    def ok(self) -> bool:
        """Whether nothing is red."""
        return not self.differences and not self.problems

    @property
    def exit_code(self) -> int:
        """The highest exit code of what was found; 0 when nothing was."""
        return max([p.exit_code for p in self.problems] + [1] * bool(self.differences), default=0)
