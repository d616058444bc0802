"""Refresh: run without a model and write what the harness makes of the recording today.

The one thing that refresh may not touch is what the model said: the chunks of each recorded call stay
byte-equal (they may move to another turn or step). That is verified here and not assumed, because a fixture
whose chunks drift with every refresh is no recording any more.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path

from onetake import jsontext
from onetake.fixture.gaps import keep_gaps
from onetake.replay.override import parse_override
from onetake.replay.script import derive_calls, own_events
from onetake.session.jsonl import read_log
from onetake.snapshot.drive.env import scratch_directory
from onetake.snapshot.drive.execute import OVERRIDE_FILE
from onetake.snapshot.drive.harvest import Harvest
from onetake.snapshot.findings import Problem, Verdict
from onetake.snapshot.mode import refuse_in_ci
from onetake.snapshot.modes.commit import commit, planned, staged
from onetake.snapshot.modes.judge import (
    apply_to,
    disagreements,
    harvest_problems,
    read_committed,
    write_scratch,
)
from onetake.snapshot.render.pins import Pins, header_lines, load_pins, session_index
from onetake.snapshot.render.render import render
from onetake.snapshot.suites.select import command
from onetake.snapshot.suites.suite import Scenario, Suite
from onetake.snapshot.volatile.volatile import Trial, explain

RunOnce = Callable[[str, Scenario, Path], Awaitable[Harvest]]
"""Drives the agent once: (mode, scenario, folder of the fixtures) -> what it left."""


async def refresh_scenario(
    run_once: RunOnce,
    scenario: Scenario,
    suite: Suite,
    *,
    environ: Mapping[str, str] | None = None,
    dry_run: bool = False,
    pins: Pins | None = None,
    trial: Trial | None = None,
) -> Verdict:
    """Rewrite the harness output of one scenario. A red verdict means that nothing was written.

    What would change is replayed once more first, and has to come out the same. `pins` replaces the committed
    pins (a dry run shows what follows from a pin that it did not write). With `trial` the verdict on runs
    that disagree has advice, tried by further replays. Raises `UsageError` when `CI` is set, and for input
    that cannot be used.
    """
    environ = os.environ if environ is None else environ
    refuse_in_ci("refresh", environ)
    committed = read_committed(scenario.dir)
    harvest = await run_once("refresh", scenario, scenario.dir)
    verdict = Verdict(scenario=scenario.name, problems=harvest_problems(harvest, suite, scenario))
    pins = pins or load_pins(suite)
    rendered = render(harvest, scenario, suite, pins, committed)
    apply_to(verdict, rendered, scenario, suite)
    if not verdict.ok:
        return verdict
    files = {
        name: keep_gaps(committed[name], data)
        if name in committed and session_index(name) is not None
        else data
        for name, data in rendered.files.items()
    }
    verdict.problems += chunk_problems(committed, files, scenario, suite)
    new = planned(committed, files, scenario, suite)
    after = staged(committed, new)
    if verdict.ok and after != committed:
        again = await _again(run_once, scenario, after)
        _agree(verdict, again, rendered.files, scenario, suite, pins, committed)
        if verdict.differences and not verdict.problems and trial is not None:
            verdict.advice = await explain([harvest, again], scenario, suite, pins, committed, trial)
    if verdict.ok:
        verdict.notes += relabelled(committed, files, scenario, suite)
        commit(verdict, committed, new, scenario, suite, pins, environ, dry_run=dry_run)
    return verdict


async def _again(run_once: RunOnce, scenario: Scenario, files: Mapping[str, bytes]) -> Harvest:
    """Replay what is about to be written: a value that changes from run to run must not get into a file."""
    with scratch_directory() as folder:
        write_scratch(folder, files)
        return await run_once("replay", scenario, folder)


def _agree(
    verdict: Verdict,
    again: Harvest,
    refreshed: Mapping[str, bytes],
    scenario: Scenario,
    suite: Suite,
    pins: Pins,
    committed: Mapping[str, bytes],
) -> None:
    """Note what is wrong with the second run, and where it differs from the first."""
    rendered = render(again, scenario, suite, pins, committed)
    verdict.problems += harvest_problems(again, suite, scenario)
    apply_to(verdict, rendered, scenario, suite)
    if verdict.ok:
        what = "the refreshed run (-) and a replay of it (+) disagree [unstable]"
        verdict.differences += disagreements(refreshed, rendered.files, what, scenario, suite, pins)


def relabelled(
    committed: Mapping[str, bytes], files: Mapping[str, bytes], scenario: Scenario, suite: Suite
) -> list[str]:
    """A warning when recorded answers would stand under the name of a model that did not give them."""
    if not scenario.recorded:
        return []
    before, after = _models(committed), _models(files)
    if before == after or not before:
        return []
    return [
        f"recorded from another model: what {', '.join(before)} said now stands under {', '.join(after)}; "
        f"to ask that one: {command('record', suite, scenario.name)}"
    ]


def _models(files: Mapping[str, bytes]) -> list[str]:
    """The models that the headers of a scenario's fixtures name, each once, in order."""
    configs = [
        header.get("config") or {}
        for name in sorted(files)
        if session_index(name) is not None
        for header in header_lines(files[name])
    ]
    return list(dict.fromkeys(f"{config.get('provider')}/{config.get('model')}" for config in configs))


def chunk_problems(
    committed: Mapping[str, bytes], files: Mapping[str, bytes], scenario: Scenario, suite: Suite
) -> list[Problem]:
    """Recorded calls whose chunks would not stay byte-equal."""
    found = []
    for name, old in committed.items():
        index = session_index(name)
        if index is None:
            continue
        free = overridden_calls(scenario) if index == 0 else ()
        before = _calls(old, name, free)
        after = _calls(files[name], name, free) if name in files else []
        for number in range(max(len(before), len(after))):
            was = before[number] if number < len(before) else None
            now = after[number] if number < len(after) else None
            if was != now:
                found.append(
                    Problem(
                        guard="chunks-changed",
                        scenario=scenario.name,
                        surface="log",
                        file=f"{scenario.name}/{name}",
                        message=f"model call {number + 1}: refresh would change what the model said "
                        f"({_count(was)} recorded, {_count(now)} now); nothing was written",
                        remedy="model input is written by record only: "
                        + command("record", suite, scenario.name),
                    )
                )
    return found


def overridden_calls(scenario: Scenario) -> range | tuple[int, ...]:
    """The calls of the primary session whose answer comes from the override, not from the recording."""
    if not scenario.settings.overridden:
        return ()
    override = parse_override((scenario.dir / OVERRIDE_FILE).read_bytes(), OVERRIDE_FILE)
    if override.patches is None:
        return range(10**9)  # the list replaces the whole script
    return tuple(patch.at for patch in override.patches)


def _calls(data: bytes, name: str, free: range | tuple[int, ...]) -> list[list[bytes] | None]:
    """The chunks of each recorded call, encoded; None for an overridden one."""
    log = read_log(data, name)
    calls = derive_calls(own_events(log.header, log.events))
    return [
        None if number in free else [jsontext.dumps(chunk) for chunk in call.chunks]
        for number, call in enumerate(calls)
    ]


def _count(call: list[bytes] | None) -> str:
    return "no call" if call is None else f"{len(call)} chunks"
