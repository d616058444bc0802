"""From one harvest to every expected file: the one function that all three modes share.

Replay compares what `render` gives with the disk; record and refresh write it. It is pure but for reading the
workspace when that is a surface, so whatever is red in one mode is what another mode would write.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

import msgspec

from onetake.fixture.normalize import Rules
from onetake.fixture.projection import NonceSurvives, project_events, project_header, refuse_nonce, surviving
from onetake.fixture.tokens import LogView, TokenTable
from onetake.session.events import TOOL_RESULT
from onetake.session.jsonl import LogFile, encode_log
from onetake.snapshot.drive.harvest import Harvest
from onetake.snapshot.drive.registry import driver_class
from onetake.snapshot.findings import Problem
from onetake.snapshot.render import files, requests, transcript, workspace
from onetake.snapshot.render.pins import KINDS, HeaderNamer, Pins, Unpinned, clash_text, session_file
from onetake.snapshot.suites.rules import RuleBook
from onetake.snapshot.suites.suite import Scenario, Suite

HEADER_ONLY = b'{"type":"session","version":0,"id":"{{sessionId}}","createdAt":0,"delegationDepth":0}\n'
"""The fixture of a scenario without a model call whose agent logged nothing."""


class Rendered(msgspec.Struct, kw_only=True):
    """Every file that a run stands for, and what nobody may accept."""

    files: dict[str, bytes] = {}
    """File name -> bytes, relative to the scenario's folder."""
    problems: list[Problem] = []
    unpinned: list[Unpinned] = []
    """Header texts that no pin holds; the caller knows whether that is a difference or a refusal."""
    used_rules: set[str] = set()
    named_pins: set[str] = set()


def render(
    harvest: Harvest,
    scenario: Scenario,
    suite: Suite,
    pins: Pins,
    committed: Mapping[str, bytes],
    *,
    joined: bool = False,
) -> Rendered:
    """Render a harvest. `committed` holds the scenario's files as they are, for the pins that headers name.

    `joined` merges streamed text frames (see `transcript.render_transcript`). Raises `UsageError` for a rule
    of the suite that cannot be used.
    """
    surfaces = suite.surfaces(scenario)
    mint = [(rule.pattern, rule.as_) for rule in suite.settings.normalize.mint]
    logs = {harvest.bindings[log.id]: log for log in harvest.sessions}
    views = [LogView(index, log.header, log.events) for index, log in logs.items()]
    logged_ids = {log.id for log in harvest.sessions}
    silent = [session for session in harvest.opened if session not in logged_ids]
    unused = max(logs, default=-1) + 1
    views += [LogView(index, {"id": session}, []) for index, session in enumerate(silent, unused)]
    table = TokenTable.build(harvest.roots, views, mint=mint, nonce=harvest.nonce)
    book = RuleBook(suite.settings.normalize, table.spans)
    namer = HeaderNamer(pins, scenario, committed)
    result = Rendered()
    for index, log in logs.items():
        result.files[session_file(index)] = _log(index, log, table, namer, book["log"], result, scenario)
        result.problems += _unknown_tools(index, log, scenario)
    if not logs:
        _headers_of_requests(harvest, table, namer)
        if not scenario.settings.model_turn:
            result.files[session_file(0)] = HEADER_ONLY
    if "requests" in surfaces:
        # A token stands for what the log says, so it says something only where the log is compared too.
        logged = {index: requests.Logged(log.events) for index, log in logs.items() if "log" in surfaces}
        result.files[requests.FILE] = requests.render_requests(
            harvest.requests, harvest.bindings, logged, table.tokenize_value, namer.token, book["requests"]
        )
    if "stdout" in surfaces:
        driver = driver_class(suite.settings.suite.driver)
        shown = driver.render(harvest.frames, table.tokenize_value, book["stdout"], joined=joined)
        result.files[transcript.FILE] = shown.data
        result.problems += [
            Problem(
                guard="stray-output",
                scenario=scenario.name,
                surface="stdout",
                file=transcript.FILE,
                message=message,
                remedy="stdout carries protocol frames only: print to stderr, or log",
            )
            for message in shown.stray
        ]
    if "workspace" in surfaces:
        tree = workspace.render_workspace(harvest.workspace, table.tokenize_value, book["workspace"])
        result.files[workspace.FILE] = tree
    if "files" in surfaces:
        named = suite.settings.suite.files
        result.files[files.FILE] = files.render_files(
            harvest.roots, named, table.tokenize_value, book["files"]
        )
    if "requests" in surfaces or "log" in surfaces:
        result.files |= namer.sidecars()
        result.unpinned = namer.unpinned
        result.problems += [
            Problem(
                guard="pin-clash",
                scenario=scenario.name,
                surface="pins",
                file=pin.file,
                message=clash_text(pin),
            )
            for pin in namer.clashes
        ]
        result.named_pins = namer.names
    result.problems += _surviving_nonce(result.files, harvest.nonce, scenario)
    result.used_rules = book.used() | {f"mint[{number}]" for number in table.used_mint}
    return result


def _log(
    index: int,
    log: LogFile,
    table: TokenTable,
    namer: HeaderNamer,
    rules: Rules,
    result: Rendered,
    scenario: Scenario,
) -> bytes:
    counters = {kind: itertools.count() for kind in KINDS}

    def pin(kind: str, value: Any) -> str:
        return namer.header(index, next(counters[kind]), kind, value)

    events = [rules.apply_event(event) for event in log.events] if rules else log.events
    header = project_header(log.header, table)
    projected = project_events(events, table, pin)
    try:
        refuse_nonce(header, projected, table)
    except NonceSurvives as error:
        result.problems.append(
            Problem(
                guard="nonce",
                scenario=scenario.name,
                surface="log",
                file=session_file(index),
                message=str(error),
            )
        )
    return encode_log(header, projected, packed=True, project=True)


def _headers_of_requests(harvest: Harvest, table: TokenTable, namer: HeaderNamer) -> None:
    """An agent without a log says what its headers are by its requests alone."""
    counters = {kind: itertools.count() for kind in KINDS}
    for request in harvest.requests:
        for kind in KINDS:
            if request.get("purpose") == "main" and request.get(kind) is not None:
                namer.header(0, next(counters[kind]), kind, table.tokenize_value(request[kind]))


def _unknown_tools(index: int, log: LogFile, scenario: Scenario) -> list[Problem]:
    """Calls of a tool that the agent does not have: the composition lost it, and the log would bless that."""
    found = []
    for event in log.events:
        data = event.get("data")
        error = data.get("error") if event.get("type") == TOOL_RESULT and isinstance(data, dict) else None
        if isinstance(error, dict) and error.get("code") == "UNKNOWN_TOOL":
            found.append(
                Problem(
                    guard="unknown-tool",
                    scenario=scenario.name,
                    surface="log",
                    file=session_file(index),
                    message=f"event {event.get('seq')}: the model called a tool that the agent lacks: "
                    f"{_called(log, data)}",
                    remedy="put the tool back into the composition, or record the scenario again",
                )
            )
    return found


def _called(log: LogFile, data: Any) -> str:
    """The name of the tool that a result answers, else the id of the call."""
    message = data.get("message")
    source = message.get("source") if isinstance(message, dict) else None
    call_id = source.get("callId") if isinstance(source, dict) else None
    for event in log.events:
        call = event.get("data")
        if event.get("type") == "tool/call" and isinstance(call, dict) and call.get("callId") == call_id:
            return str(call.get("name"))
    return str(call_id)


def _surviving_nonce(files: Mapping[str, bytes], nonce: str, scenario: Scenario) -> list[Problem]:
    """Generated paths in the other surfaces (the logs were searched event by event, deltas joined)."""
    found = []
    for name, data in files.items():
        excerpts = [] if name.startswith("session") else surviving(data.decode("utf-8", "replace"), nonce)
        if excerpts:
            found.append(
                Problem(
                    guard="nonce",
                    scenario=scenario.name,
                    file=name,
                    message=f"a part of a generated path is left, which no two runs share: {excerpts[0]!r}",
                    remedy="print paths relative to the workspace, or cover it with a `mint` or `mask` rule",
                )
            )
    return found
