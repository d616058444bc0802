"""The model's stand-in: it answers each call of each live session with what the recording holds for it.

A live session is bound to a recorded one (see `onetake.replay.binding`) and goes through its script with a
cursor of its own, so any number of sessions replays at the same time without touching each other. Tokens in
a recorded answer become the values of the live run at the moment of the call. What the recording does not
answer is reported to the runner first (see `onetake.replay.violations`) and then fails the call.
"""

from __future__ import annotations

import asyncio
import errno
import itertools
import os
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from onetake.fixture.grammar import UnknownToken, substitute
from onetake.fixture.ids import minted_name, owner_of
from onetake.fixture.lineage import SessionFacts, open_before, session_facts
from onetake.fixture.tokens import LogView, TokenTable, map_strings
from onetake.model.failures import ModelFailure, failure
from onetake.model.registry import ModelInfo
from onetake.model.request import ModelRequest
from onetake.model.types import Chunk
from onetake.replay import violations
from onetake.replay.binding import bind
from onetake.replay.override import NoMatch, Override, fill
from onetake.replay.script import Entry, RecordedCall, derive_calls, own_events, require_derivable
from onetake.session.log import SessionLog

_EXCERPT = 80
_TURNS = ("turn/start", "turn/end")
_POLL_S = 0.005
_PATIENCE = 6000
"""How often a call looks for a value that a session beside it is about to see, every 5 ms: for 30 s."""
_PATIENCE_QUIET = 400
"""The same while that one has nothing to do: it is a child whose call came first, or a session that a client
talks to at the same time; either goes on at once or never."""


class Line(msgspec.Struct, frozen=True):
    """One answer of a script."""

    entry: Entry
    call: RecordedCall | None = None
    """The recorded call that it repeats; None for an entry of an override."""


class Recording(msgspec.Struct, frozen=True):
    """One recorded session, ready to be served."""

    name: str
    """Path of the fixture."""
    facts: SessionFacts
    lines: list[Line]


def make_recording(
    name: str,
    header: Mapping[str, Any],
    events: Sequence[dict[str, Any]],
    override: Override | None = None,
    *,
    primary: bool = True,
) -> Recording:
    """Derive the script of a recorded session, with an override applied (one is for the `primary` session).

    Raises UsageError for a call without an end that no override patches, and for a patch beyond the end.
    """
    calls = derive_calls(own_events(header, events))
    script = [call.entry() for call in calls]
    own = override.own_entries() if override is not None else []
    script = override.apply(script) if override is not None else script
    entries = require_derivable(script, name, patchable=primary)
    lines: list[Line] = []
    for index, entry in enumerate(entries):
        overridden = any(entry is other for other in own)
        lines.append(Line(entry, None if overridden else calls[index]))
    return Recording(name, session_facts(header, events), lines)


class Replay:
    """Answers the calls of all sessions of one agent process.

    `live` gives the logs of the open sessions, oldest first. `earlier` are those that former processes of the
    same run left, oldest first, and `made` counts the calls that these made, by session. `roots`, `mint` and
    `nonce` are those of the run; `workspace` is where a `hang` writes its ready file. With `pace`, recorded
    gaps between chunks are waited for.
    """

    def __init__(
        self,
        recordings: Sequence[Recording],
        live: Callable[[], Iterable[SessionLog]],
        *,
        roots: Mapping[str, str],
        workspace: Path,
        violations_file: str = "",
        mint: Sequence[tuple[str, str]] = (),
        nonce: str = "",
        earlier: Iterable[SessionLog] = (),
        made: Mapping[str, int] | None = None,
        pace: bool = False,
    ) -> None:
        self._recordings = recordings
        self._live = live
        self._roots = roots
        self._workspace = workspace
        self._violations_file = violations_file
        self._mint = mint
        self._nonce = nonce
        self._pace = pace
        self._cursor: dict[str, int] = dict(made or {})
        self._sessions: dict[str, SessionLog] = {log.id: log for log in earlier}
        self._violated = False
        """Whether the run has left its recording: what is missing then will not come."""

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Chunk, None]:
        """Answer one call. Raises ModelFailure for a scripted failure and for a violation."""
        index = self._bind(request)
        place = self._cursor.get(request.session_id, 0)
        self._cursor[request.session_id] = place + 1
        lines = self._recordings[index].lines
        if place >= len(lines):
            raise self._extra_call(request, index, place)
        line = lines[place]
        entry = await self._filled(line, request, place)
        await asyncio.sleep(0)  # a model is never faster than the event loop
        if entry["kind"] == "hang":
            yield {"type": "block-start", "index": 0, "blockType": "text"}
            yield {"type": "text-delta", "index": 0, "text": "partial"}
            self._mark_ready(entry.get("readyFile"), request, line, place)
            await asyncio.Event().wait()
        gaps = recorded_gaps(line.call) if self._pace and line.call is not None else []
        for number, chunk in enumerate(entry["chunks"]):
            if gaps and gaps[number]:
                await asyncio.sleep(gaps[number] / 1000)
            yield chunk
        if entry["kind"] == "throw":
            raise ModelFailure(failure(entry["message"], entry["code"]))

    def _bind(self, request: ModelRequest) -> int:
        """The index of the recording that answers the session. Raises ModelFailure when there is none."""
        bound = self._bindings(request.session_id)
        index = bound.get(request.session_id)
        if index is not None and index < len(self._recordings):
            return index
        names = ", ".join(Path(recording.name).name for recording in self._recordings) or "none"
        raise self._violation(
            request,
            violations.UNBOUND_SESSION,
            f"session {request.session_id} (call {request.call}, {request.purpose}) has no place in the "
            f"recording, which holds {names}{self._where(request)}",
            nearest=None,
        )

    def _bindings(self, caller: str = "") -> dict[str, int]:
        # Closed sessions stay known, so that those opened later keep their places.
        for log in self._live():
            self._sessions[log.id] = log
        # A session that nobody said anything to leaves no log, so a recording has no place for it.
        logged = [log for log in self._sessions.values() if log.events or log.id == caller]
        facts = [session_facts(log.header, log.events) for log in logged]
        return bind(facts, [recording.facts for recording in self._recordings])

    def _where(self, request: ModelRequest) -> str:
        log = self._sessions.get(request.session_id)
        if log is None:
            return ""
        facts = session_facts(log.header, log.events)
        if facts.parent is None:
            return "; it is a top-level session"
        if facts.spawn is None:
            return f"; it is a child of {facts.parent} and records no spawning call"
        spawn = facts.spawn
        return (
            f"; it is a child of {facts.parent}, spawned by call {spawn.call_id} in turn {spawn.turn}, "
            f"step {spawn.step} (place {spawn.ordinal})"
        )

    async def _filled(self, line: Line, request: ModelRequest, place: int) -> Entry:
        """The entry with live values in place of tokens."""
        polls = itertools.count(1)
        while True:
            written = self._written()
            try:
                return self._filled_now(line, request)
            except UnknownToken as error:
                if await self._is_coming(error.token, request.session_id, written, polls):
                    continue
                raise self._violation(
                    request,
                    violations.UNKNOWN_TOKEN,
                    f"the answer to call {place + 1} repeats {error.token}, {self._why_unknown(error.token)}",
                    nearest=_described(line, place),
                ) from error
            except NoMatch as error:
                raise self._violation(
                    request,
                    violations.NO_MATCH,
                    f"call {place + 1}: {{{{fromRequest:{error.pattern}}}}} finds nothing "
                    "in the live request",
                    nearest=_described(line, place),
                ) from error

    def _filled_now(self, line: Line, request: ModelRequest) -> Entry:
        table: list[TokenTable] = []

        def resolve(body: str) -> str:
            if not table:
                table.append(self._table(request.session_id))
            return table[0].resolve(body)

        if line.call is None:
            filled: Entry = fill(line.entry, resolve, request.messages)
        else:
            filled = restore(line.entry, resolve)
        return filled

    async def _is_coming(
        self, token: str, caller: str, written: Mapping[int, int], polls: Iterator[int]
    ) -> bool:
        """Wait until the session that gives a token its value has logged more than `written`; else False.

        Sessions that run at the same time may all see one value, which is named by the first of them in the
        order of the recording. In this run another one may be the first to see it, and to repeat it. `polls`
        counts the looks of the whole call.
        """
        owner = owner_of(token.strip("{}"))
        if owner is None or owner >= len(self._recordings):
            return False
        quiet = 0
        while True:
            now = self._written()
            if now.get(owner) != written.get(owner):
                return True
            log = self._open_log(owner, caller)
            never = owner in now if log is None else self._waits_for(log, caller)
            quiet = 0 if log is not None and _is_busy(log) else quiet + 1
            if self._violated or never or quiet > _PATIENCE_QUIET or next(polls) > _PATIENCE:
                return False
            await asyncio.sleep(_POLL_S)

    def _open_log(self, index: int, caller: str) -> SessionLog | None:
        """The log of the open session that stands where this recorded one stood."""
        bound = self._bindings(caller)
        return next((log for log in self._live() if bound.get(log.id) == index), None)

    def _waits_for(self, log: SessionLog, caller: str) -> bool:
        """Whether a session can log nothing before the caller goes on.

        That is the caller itself, and those above it, once all is done that they asked for before.
        """
        below = self._sessions[caller]
        if below is log:
            return True
        while (facts := session_facts(below.header, below.events)).parent in self._sessions:
            above = self._sessions[facts.parent]
            if above is log:
                return facts.spawn is None or not open_before(log.events, facts.spawn)
            below = above
        return False

    def _written(self) -> dict[int, int]:
        """How many events each live session has logged, by the index of its recording."""
        bound = self._bindings()
        return {bound[log.id]: len(log.events) for log in self._sessions.values() if log.id in bound}

    def _why_unknown(self, token: str) -> str:
        name = minted_name(token.strip("{}"))
        if name is not None and all(name != known for _, known in self._mint):
            return f"and suite.toml has no mint rule named `{name}`"
        return (
            "a value that this run has not produced so far; record the scenario again, or script the call in "
            "replay.override.json"
        )

    def _table(self, caller: str) -> TokenTable:
        """The values of the run as far as it has come."""
        bound = self._bindings(caller)
        known = len(self._recordings)
        views = [
            LogView(bound[log.id], log.header, log.events)
            for log in self._sessions.values()
            if bound.get(log.id, known) < known
        ]
        return TokenTable.build(self._roots, views, mint=self._mint, nonce=self._nonce)

    def _extra_call(self, request: ModelRequest, index: int, place: int) -> ModelFailure:
        recording = self._recordings[index]
        lines = recording.lines
        nearest = _described(lines[-1], len(lines) - 1) if lines else None
        last = f"; the last recorded call is {nearest['place']}: {nearest['says']!r}" if nearest else ""
        return self._violation(
            request,
            violations.EXTRA_CALL,
            f"session {request.session_id} made call {place + 1} ({request.purpose}), but "
            f"{Path(recording.name).name} holds {len(lines)}{last}",
            nearest=nearest,
        )

    def _violation(
        self, request: ModelRequest, kind: str, message: str, *, nearest: dict[str, Any] | None
    ) -> ModelFailure:
        self._violated = True
        described = {
            "kind": kind,
            "session": request.session_id,
            "call": request.call,
            "message": message,
            "nearest": nearest,
        }
        return ModelFailure(violations.report(self._violations_file, described))

    def _mark_ready(self, ready_file: str | None, request: ModelRequest, line: Line, place: int) -> None:
        if ready_file is None:
            return
        path = self._workspace / ready_file
        try:
            if not path.resolve().is_relative_to(self._workspace.resolve()):
                raise OSError(errno.EPERM, "is outside of the workspace")
            path.parent.mkdir(parents=True, exist_ok=True)
            os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644))
        except (OSError, ValueError) as error:
            why = error.strerror if isinstance(error, OSError) else error
            raise self._violation(
                request,
                violations.READY_FILE,
                f"call {place + 1}: the readyFile {ready_file!r} cannot be written: {why}",
                nearest=_described(line, place),
            ) from error


class ReplayProvider:
    """A provider of the live composition, played by a `Replay`."""

    def __init__(self, id: str, models: Mapping[str, ModelInfo], replay: Replay) -> None:
        self.id = id
        self.models = models
        self._replay = replay

    def stream(self, request: ModelRequest) -> AsyncGenerator[Chunk, None]:
        """Answer one call from the recording."""
        return self._replay.stream(request)


def _is_busy(log: SessionLog) -> bool:
    """Whether a session has something to do: a child until it is closed, any other while its turn is open."""
    if isinstance(log.header.get("parentSession"), str):
        return True
    return next((e["type"] == "turn/start" for e in reversed(log.events) if e["type"] in _TURNS), False)


def restore(value: Any, resolve: Callable[[str], str]) -> Any:
    """A recorded entry with tokens restored; `resolve` gives the value of a token's body."""
    return map_strings(value, lambda text: substitute(text, resolve))


def recorded_gaps(call: RecordedCall) -> list[int]:
    """Milliseconds to wait before each chunk; 0 where the recording does not say."""
    gaps: list[int] = []
    before: Any = None
    for time in call.times:
        known = isinstance(time, int) and isinstance(before, int)
        gaps.append(max(0, time - before) if known else 0)
        before = time
    return gaps


def _described(line: Line, place: int) -> dict[str, Any]:
    """A recorded call for the eye of someone who looks for the one that is missing or too much."""
    said = "".join(
        str(chunk.get("text") or chunk.get("argumentsDelta") or "") for chunk in line.entry.get("chunks", ())
    )
    where = line.call.place() if line.call is not None else f"an override ({line.entry['kind']})"
    return {"call": place + 1, "place": where, "says": said[:_EXCERPT]}
