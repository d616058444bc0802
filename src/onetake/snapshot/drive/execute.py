"""Run one scenario once and bring home what it left: the `run_once` of all three modes.

This module never judges. A run that could not be carried through still gives a harvest: its `error` says
why, and what was collected until then helps to see where it went wrong. Only what is wrong before the agent
starts (a missing fixture, a missing overlay) raises.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from onetake.errors import OnetakeError, UsageError
from onetake.fixture.lineage import SessionFacts, session_facts
from onetake.snapshot.drive.base import Driver, timeouts_for
from onetake.snapshot.drive.behind import Behind, behind_gateway
from onetake.snapshot.drive.env import (
    World,
    agent_command,
    agent_environment,
    find_program,
    make_world,
    prepare_workspace,
    remove_run,
    write_run_file,
)
from onetake.snapshot.drive.harvest import Harvest, Leftover
from onetake.snapshot.drive.livelog import LiveLogs, find_logs, in_order_of_creation
from onetake.snapshot.drive.process import Launch
from onetake.snapshot.drive.registry import driver_class
from onetake.snapshot.drive.strays import find_strays, kill_strays, left_running
from onetake.snapshot.drive.written import REQUEST, SHOWN, VIOLATION, log_fault, read_lines
from onetake.snapshot.suites.ops import Kill
from onetake.snapshot.suites.select import command as command_for
from onetake.snapshot.suites.suite import Scenario, Suite

if TYPE_CHECKING:
    from onetake.session.jsonl import LogFile

OVERRIDE_FILE = "replay.override.json"


async def execute(
    suite: Suite,
    scenario: Scenario,
    mode: str,
    fixture_dir: Path | None = None,
    *,
    environ: Mapping[str, str] | None = None,
) -> Harvest:
    """Drive the agent once. The caller owns the harvest and must `discard` it.

    `fixture_dir` is where `session*.jsonl` is read from (default: the scenario's folder; record mode reads
    none). Raises `UsageError` when the run cannot begin.
    """
    from onetake.session.store import read_file

    environ = os.environ if environ is None else environ
    started = time.monotonic()
    directory = fixture_dir or scenario.dir
    fixtures = [] if mode == "record" else fixture_files(directory)
    config = _config(suite, scenario, mode)
    override = _override(scenario, mode)
    _require_fixture(suite, scenario, mode, directory, fixtures, override)
    world = make_world(suite, scenario)
    try:
        await prepare_workspace(scenario, world.cwd)
        environment = agent_environment(suite, scenario, world, mode, environ)
        command = agent_command(suite, config, environment["PATH"])
        write_run_file(suite, world, mode, fixtures=fixtures, override=override)
        recorded = None if mode == "record" else [read_file(path) for path in fixtures]
        timeouts = timeouts_for(mode, scenario.settings.timeout_s or suite.settings.suite.timeout_s)
        error: OnetakeError | None = None
        running: list[str] = []
        async with behind_gateway(suite, scenario, world, mode, directory, environ) as behind:
            logs = LiveLogs(world.sessions, _facts(recorded))
            if behind is not None:
                behind.fill_home(world.home)
                command = [behind.filled(part) for part in command]
                environment = {name: behind.filled(value) for name, value in environment.items()}
                logs = LiveLogs(world.unlogged, None)
            ends = suite.settings.agent.ends_with_input
            launch = Launch(command, environment, world.cwd, world.stderr, ends)
            driver = driver_class(suite.settings.suite.driver)(scenario.script, world, timeouts, launch, logs)
            try:
                await driver.run()
                if _ended_by_itself(scenario, driver):
                    running = [*driver.left_running, *await left_running(lambda: find_strays(world.run_dir))]
            except UsageError:
                raise
            except OnetakeError as caught:
                error = caught
            finally:
                kill_strays(world.run_dir)
        harvest = _harvest(
            scenario, mode, world, driver, error, recorded, override, time.monotonic() - started, behind
        )
        harvest.left_running = running
        return harvest
    except BaseException:
        remove_run(world.run_dir, world.cwd)
        raise


def _ended_by_itself(scenario: Scenario, driver: Driver) -> bool:
    """Whether the agent could end what it had started: no signal ended it, now or earlier."""
    killed = any(isinstance(step, Kill) for step in scenario.steps)
    return not killed and driver.exit_code is not None and driver.exit_code >= 0


def fixture_files(directory: Path) -> list[Path]:
    """`session.jsonl`, `session.1.jsonl`, ... as far as they are contiguous."""
    files: list[Path] = []
    while (path := directory / fixture_name(len(files))).is_file():
        files.append(path)
    return files


def fixture_name(index: int) -> str:
    """The file name of a fixture: 0 is the primary session."""
    return f"session.{index}.jsonl" if index else "session.jsonl"


def missing_programs(scenario: Scenario, path: str) -> list[str]:
    """Which of the programs that the scenario needs are not on the search path."""
    return [name for name in scenario.settings.needs if find_program(name, path) is None]


def _config(suite: Suite, scenario: Scenario, mode: str) -> Path:
    if suite.settings.gateway is not None and not suite.settings.agent.config:
        return suite.path  # nothing is booted from a composition
    config = suite.live_config(scenario) if mode == "record" else suite.snapshot_config(scenario)
    if not config.is_file():
        raise UsageError(f"{suite.path}: [agent] config: {config} does not exist; {mode} boots it")
    return config


def _override(scenario: Scenario, mode: str) -> Path | None:
    path = scenario.dir / OVERRIDE_FILE
    if mode == "record" or not scenario.settings.overridden:
        return None
    if not path.is_file():
        raise UsageError(f"{path}: missing, but the scenario is `overridden`")
    return path


def _require_fixture(
    suite: Suite, scenario: Scenario, mode: str, directory: Path, fixtures: list[Path], override: Path | None
) -> None:
    if mode == "record" or fixtures:
        return
    authored = override is not None or not scenario.settings.model_turn
    if mode == "refresh" and authored:
        return
    remedy = "refresh" if authored else "record"
    raise UsageError(
        f"{directory / fixture_name(0)}: the fixture is missing; make it with "
        f"`{command_for(remedy, suite, scenario.name)}`"
    )


def _harvest(
    scenario: Scenario,
    mode: str,
    world: World,
    driver: Driver,
    error: OnetakeError | None,
    recorded: list[LogFile] | None,
    override: Path | None,
    seconds: float,
    behind: Behind | None,
) -> Harvest:
    harvest = Harvest(
        scenario=scenario.name,
        mode=mode,
        frames=driver.frames,
        stderr=_text(world.stderr),
        exit_code=driver.exit_code,
        opened=list(driver.session_ids),
        unused_answers=[answer.kind for answer in driver.unused_answers],
        roots=world.roots,
        nonce=world.nonce,
        run_dir=world.run_dir,
        workspace=world.cwd,
        seconds=seconds,
    )
    if error is not None:
        harvest.error, harvest.error_exit = str(error), error.exit_code
    code = harvest.exit_code
    harvest.ended = code == 0 or (code is not None and code > 0 and error is None)
    harvest.requests = _read_lines(harvest, world.requests, REQUEST, may_be_torn=not harvest.ended)
    harvest.violations = _read_lines(harvest, world.violations, VIOLATION, may_be_torn=False)
    _collect_sessions(harvest, world, driver.session_ids, recorded, behind)
    if behind is not None:
        harvest.warnings = behind.losses
        for text in behind.cut if mode == "record" else ():
            _add_error(harvest, text)
    if recorded is not None and harvest.error is None:
        harvest.leftovers = count_leftovers(harvest, recorded, override)
    return harvest


def _facts(logs: list[LogFile] | None) -> list[SessionFacts] | None:
    return None if logs is None else [session_facts(log.header, log.events) for log in logs]


def _collect_sessions(
    harvest: Harvest,
    world: World,
    opened: list[str],
    recorded: list[LogFile] | None,
    behind: Behind | None = None,
) -> None:
    """Read every log, in fixture order; what cannot be read whole is an error of the run.

    Where there is a recording, each session has the number of the recorded one whose place it takes, so that
    a child more or less renumbers nobody else.
    """
    from onetake.replay.binding import bind
    from onetake.session.store import read_file

    logs: list[LogFile] = []
    for path in find_logs(world.sessions):
        try:
            log = read_file(path, live=True)
        except UsageError as error:
            _add_error(harvest, str(error))
            continue
        if any(log.id == other.id for other in logs):  # of which one alone would be compared
            _add_error(harvest, f"the agent left two logs of one session: {path} is the second")
        logs.append(log)
        if fault := log_fault(log):
            _add_error(harvest, f"the agent wrote a log that cannot be taken as it is: {path}: {fault}")
        flaw = log.torn or log.flaw
        if harvest.ended and flaw is not None:
            _add_error(
                harvest, f"the agent exited with {harvest.exit_code} but left a broken log: {path}: {flaw}"
            )
    logs = in_order_of_creation(logs, opened)
    harvest.bindings = bind(
        [session_facts(log.header, log.events) for log in logs],
        _facts(recorded),
    )
    if behind is not None and behind.bindings:  # what was asked decided there
        harvest.bindings = dict(behind.bindings)
    harvest.sessions = sorted(logs, key=lambda log: harvest.bindings[log.id])


def _add_error(harvest: Harvest, message: str) -> None:
    harvest.error = message if harvest.error is None else f"{harvest.error}\n{message}"
    harvest.error_exit = max(harvest.error_exit, 1)


def count_leftovers(harvest: Harvest, recorded: list[LogFile], override: Path | None) -> list[Leftover]:
    """Recorded calls that were not made, by fixture. The runner counts: a killed agent cannot report."""
    from onetake.replay.script import derive_calls, own_events

    scripts = [
        [call.entry() for call in derive_calls(own_events(log.header, log.events))] for log in recorded
    ]
    if override is not None:
        from onetake.replay.override import parse_override

        document = parse_override(override.read_bytes(), str(override))
        scripts[:1] = [document.apply(scripts[0] if scripts else [])]
    made: dict[int, int] = {}
    for request in harvest.requests:
        index = harvest.bindings.get(str(request.get("session")), -1)
        made[index] = max(made.get(index, 0), request["call"])
    return [
        Leftover(index, fixture_name(index), len(entries), made.get(index, 0))
        for index, entries in enumerate(scripts)
        if made.get(index, 0) < len(entries)
    ]


def _read_lines(
    harvest: Harvest, path: Path, fields: Mapping[str, type], may_be_torn: bool
) -> list[dict[str, Any]]:
    """What the agent appended to a file of the runner; any other line is an error of the run."""
    found, faults, torn = read_lines(path, fields)
    if torn and not may_be_torn:
        faults.append(f"{path.name} ends in the middle of a line: {torn[:SHOWN]!r}")
    for fault in faults:
        _add_error(harvest, f"the agent wrote what cannot be read: {fault}")
    return found


def _text(path: Path) -> str:
    try:
        return path.read_bytes().decode("utf-8", "replace")
    except FileNotFoundError:
        return ""
