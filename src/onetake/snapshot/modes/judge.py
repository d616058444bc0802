"""Replay's verdict: what a run left behind against what is committed. The other modes: `record`, `refresh`.

How the runner calls the judging side (all it needs to know):

    pins = load_pins(suite)                                  # render.pins: the committed sidecars
    static_problems(suite)                                   # guard.static: without any process
    judge(harvest, scenario, suite, pins) -> Verdict         # here: replay, writes nothing
    await record_scenario(run_once, scenario, suite)         # record: live run, two replays, write
    await refresh_scenario(run_once, scenario, suite)        # refresh: one keyless run, write
    write_order(suite, scenarios)                            # render.pins: pins first, else as in the suite
    suite_problems(suite, verdicts)                          # guard.guards: only after a full run
    recover(directory)                                       # write: first thing of every command

`run_once(mode, scenario, fixture_dir)` is an async callable that drives the agent once and returns its
`Harvest`; `fixture_dir` is where `session*.jsonl` is read from (input.json, workspace/ and
replay.override.json are always read from the scenario's own folder). The runner owns the harvests: it
discards them, or keeps them as artifacts.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import msgspec

from onetake.errors import AgentError
from onetake.snapshot.diff import compare as comparing
from onetake.snapshot.drive.harvest import Harvest
from onetake.snapshot.findings import Difference, Problem, Verdict
from onetake.snapshot.render import files, requests, transcript, workspace
from onetake.snapshot.render.pins import (
    Pins,
    session_file,
    session_index,
    sidecar_of,
    with_full_names,
)
from onetake.snapshot.render.render import Rendered, render
from onetake.snapshot.render.unpinned import empty_pin, pin_difference, unpinned_problem
from onetake.snapshot.suites.select import command
from onetake.snapshot.suites.suite import SCRIPT_FILE, Scenario, Suite

VIOLATION_GUARDS = frozenset({"extra-call", "unbound-session", "unknown-token", "no-match"})
"""Kinds of violation lines that are guards of their own; any other kind counts as `violation`."""


_SURFACES = {
    requests.FILE: "requests",
    transcript.FILE: "stdout",
    workspace.FILE: "workspace",
    files.FILE: "files",
}


def judge(harvest: Harvest, scenario: Scenario, suite: Suite, pins: Pins) -> Verdict:
    """Compare a replayed run with the scenario's files. Raises `UsageError` for unusable rules."""
    committed = read_committed(scenario.dir)
    rendered = render(harvest, scenario, suite, pins, committed)
    verdict = Verdict(
        scenario=scenario.name,
        problems=harvest_problems(harvest, suite, scenario) + rendered.problems,
        used_rules=rendered.used_rules,
        named_pins=rendered.named_pins,
    )
    if harvest.error is not None and harvest.error_exit == AgentError.exit_code:
        return verdict  # an agent that did not start or died left less of everything: that says no more
    verdict.differences = differences(committed, rendered.files, scenario, suite, pins)
    for unpinned in rendered.unpinned:
        if unpinned.committed is None:
            verdict.problems.append(unpinned_problem(unpinned, scenario, suite))
        else:
            verdict.differences.append(pin_difference(unpinned, scenario, suite))
    if verdict.problems:  # refresh would refuse, so there is nothing to accept until they are mended
        verdict.differences = [msgspec.structs.replace(found, accept="") for found in verdict.differences]
    return verdict


def read_committed(directory: Path) -> dict[str, bytes]:
    """The files of a scenario that are fixtures or expected outputs (file name -> bytes)."""
    return {
        path.name: path.read_bytes()
        for path in sorted(directory.iterdir())
        if surface_of(path.name) is not None and path.is_file()
    }


def surface_of(file: str) -> str | None:
    """The surface that a file of a scenario belongs to; None for files that no run gives."""
    if session_index(file) is not None:
        return "log"
    if sidecar_of(file) is not None:
        return "pins"
    return _SURFACES.get(file)


def is_compared(surface: str, scenario: Scenario, suite: Suite) -> bool:
    """Whether a scenario compares a surface; pins matter where headers are seen at all."""
    surfaces = suite.surfaces(scenario)
    return surface in surfaces or (surface == "pins" and ("requests" in surfaces or "log" in surfaces))


def write_scratch(folder: Path, files: Mapping[str, bytes]) -> None:
    """Write what a run is answered from into a folder for that run: the fixtures, and the texts that their
    headers name."""
    for name, data in files.items():
        if session_index(name) is not None or sidecar_of(name) is not None:
            (folder / name).write_bytes(data)


def disagreements(
    one: Mapping[str, bytes],
    other: Mapping[str, bytes],
    what: str,
    scenario: Scenario,
    suite: Suite,
    pins: Pins,
) -> list[Difference]:
    """Where two runs differ that should be equal, `what` says which two; nothing can be accepted there."""
    return [
        msgspec.structs.replace(found, message=f"{what}; {found.message}", accept="", cause="")
        for found in differences(one, other, scenario, suite, pins)
    ]


def differences(
    committed: Mapping[str, bytes],
    rendered: Mapping[str, bytes],
    scenario: Scenario,
    suite: Suite,
    pins: Pins,
) -> list[Difference]:
    """Every file of a compared surface that differs, surfaces in reading order."""
    order = ("pins", "stdout", "requests", "log", "files", "workspace")
    files = [(surface_of(name), name) for name in {*committed, *rendered}]
    chosen = [(s, n) for s, n in files if s is not None and is_compared(s, scenario, suite)]
    found = []
    for surface, name in sorted(chosen, key=lambda item: (order.index(item[0]), item[1])):
        old, new = committed.get(name), rendered.get(name)
        if old is not None:
            old = with_full_names(old, pins)
        comparison = compare_file(old, new, name)
        if comparison is not None:
            found.append(
                Difference(
                    scenario=scenario.name,
                    surface=surface,
                    file=f"{scenario.name}/{name}",
                    message=comparison.message,
                    diff=comparison.diff,
                    accept=command("refresh", suite, scenario.name),
                    cause=f"{surface}:{comparison.cause}" if comparison.cause else "",
                )
            )
    return found


def compare_file(old: bytes | None, new: bytes | None, name: str) -> comparing.Comparison | None:
    """Compare two states of a file, either of which may be absent."""
    if old is None:
        return None if new is None else comparing.missing(new, name)
    return comparing.surplus(old, name) if new is None else comparing.compare(old, new, name)


def harvest_problems(harvest: Harvest, suite: Suite, scenario: Scenario) -> list[Problem]:
    """What went wrong in the run itself, before any file is looked at."""
    found = []
    if harvest.error is not None:
        found.append(
            Problem(
                guard="drive",
                scenario=scenario.name,
                message=harvest.error,
                exit_code=max(1, harvest.error_exit),
            )
        )
    if harvest.left_running:
        found.append(
            Problem(
                guard="left-running",
                scenario=scenario.name,
                message=f"the agent has ended, and left running: {'; '.join(harvest.left_running)}",
                remedy="let the agent end what it or a tool has started; the runner has killed it",
            )
        )
    for violation in harvest.violations:
        kind = str(violation.get("kind"))
        found.append(
            Problem(
                guard=kind if kind in VIOLATION_GUARDS else "violation",
                scenario=scenario.name,
                message=_violation_text(violation, harvest),
                remedy=_remedy(kind, suite, scenario),
            )
        )
    if harvest.unused_answers and harvest.error is None and not harvest.violations:
        found.append(
            Problem(
                guard="unused-answer",
                scenario=scenario.name,
                file=f"{scenario.name}/{SCRIPT_FILE}",
                message=f"the agent did not ask for the last {len(harvest.unused_answers)} of the "
                f"permissionAnswers: {', '.join(harvest.unused_answers)}",
                remedy="if the agent is right not to ask, remove them",
            )
        )
    if not harvest.violations:
        # A run that left the recording stops early; its leftovers would only repeat that.
        found += [
            Problem(
                guard="leftover",
                scenario=scenario.name,
                file=f"{scenario.name}/{leftover.fixture}",
                message=f"{leftover.recorded} model calls are recorded, and the agent made {leftover.made}",
                remedy=f"if the agent is right to ask for less, {_again(suite, scenario)}",
            )
            for leftover in harvest.leftovers
        ]
    return found


def _violation_text(violation: Mapping[str, object], harvest: Harvest) -> str:
    session = str(violation.get("session"))
    index = harvest.bindings.get(session)
    place = f"session {index}" if index is not None else f"session {session}"
    text = f"{violation.get('message')} ({violation.get('kind')}: {place}, call {violation.get('call')}"
    nearest = violation.get("nearest")
    if isinstance(nearest, Mapping):
        nearest = f"{nearest.get('place')}, which says {nearest.get('says')!r}"
    return f"{text}; nearest recorded: {nearest})" if nearest not in (None, "") else f"{text})"


def _remedy(kind: str, suite: Suite, scenario: Scenario) -> str:
    """The way out of a violation."""
    override = f"{scenario.name}/replay.override.json"
    if kind == "ready-file":
        return f"name another readyFile in {override}"
    if kind == "no-match":
        return f"mend the {{{{fromRequest:...}}}} in {override}"
    if kind == "changed-request":
        return f"if the change is meant: {command('refresh', suite, scenario.name)}"
    if kind == "unknown-token":
        return f"mend what lost the value (a renamed `mint` rule, say), or {_again(suite, scenario)}"
    if kind == "unbound-session" and scenario.settings.overridden:
        return f"{override} scripts session.jsonl only: record the scenario without it before you add it"
    return f"if the agent is right to ask for more, {_again(suite, scenario)}"


def _again(suite: Suite, scenario: Scenario) -> str:
    """How to give a scenario other answers of the model; `record` refuses one that is authored."""
    if scenario.recorded:
        return f"record the scenario again: {command('record', suite, scenario.name)}"
    if scenario.settings.overridden:
        return f"change {scenario.name}/replay.override.json"
    if not scenario.settings.model_turn:
        return f"remove `model_turn = false` of {scenario.name} from suite.toml, and record the scenario"
    return f"change the fixtures of {scenario.name} by hand: suite.toml says `recorded = false`"


def apply_to(verdict: Verdict, rendered: Rendered, scenario: Scenario, suite: Suite) -> None:
    """Take over what rendering found, for a mode that writes: there a header without a pin is a problem."""
    driven = not any(problem.guard == "drive" for problem in verdict.problems)
    verdict.problems += rendered.problems
    if driven:  # else it would hide why the run failed
        verdict.problems += [unpinned_problem(found, scenario, suite) for found in rendered.unpinned]
        verdict.problems += _empty_pin(rendered, scenario, suite)
    verdict.sidecars = {name: data for name, data in rendered.files.items() if sidecar_of(name) is not None}
    verdict.used_rules |= rendered.used_rules
    verdict.named_pins |= rendered.named_pins


def _empty_pin(rendered: Rendered, scenario: Scenario, suite: Suite) -> list[Problem]:
    """A pin for which this run gives no text: written or not, the next replay would be red."""
    pins = is_compared("pins", scenario, suite) and scenario.settings.pins_header
    if not pins or any(sidecar_of(name) is not None for name in rendered.files):
        return []
    holders = ", ".join(sorted(rendered.named_pins))
    if not holders and session_file(0) not in rendered.files:
        return []  # there is no run to speak of
    why = f"the run sent the same header as pin {holders}" if holders else "the run sent no header to pin"
    return [empty_pin(scenario, why)]
