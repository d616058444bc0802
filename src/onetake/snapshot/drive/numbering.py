"""Which live session is child N? Asked while the agent works, when not all of its children are there yet.

Children have the numbers of their fixtures: depth-first, siblings by turn, step and id of the call that
spawned them (see `onetake.replay.binding`). Where a recording is replayed it is known who comes: child N is
the session that stands where the N-th recorded child stood, and nobody else, whoever appears first.

Where nothing is recorded, a number is certain only when nobody can come any more who would be counted before:

- Each call of the parent that is counted before the child's own has its result, and the child that it started
  in the background, if it did, is there (or the parent was told how it ended).
- Each child that is counted before is over, so that it spawns none of its own: its call has its result; when
  it was in the background, the parent was told of it, or it was to do one turn only and has done it.
- The same is true of its parent among the parent's siblings, and so on up, and top-level sessions that are
  counted before are idle: the script speaks to the one that was opened last.

What belonged to a process that is gone can bring nothing more. Children whose log does not record a spawning
call are taken in the order of their creation, as far as they are there.

Logs grow while they are read, so the rules need three views, one taken after the other: whoever is in the
first has all calls of its step in the second (they are logged before the first one runs), and whoever was
there when a result in the second was written is in the third.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import takewhile
from typing import TYPE_CHECKING, Any

from onetake.fixture.lineage import SessionFacts, Spawn, session_facts
from onetake.session.events import SUBAGENT_DESCRIPTOR, SUBAGENT_ID, TOOL_CALL, TOOL_RESULT

if TYPE_CHECKING:
    from onetake.snapshot.drive.livelog import LiveLog

Logs = Sequence["LiveLog"]


def child_of_number(
    number: int, views: Sequence[Logs], recorded: Sequence[SessionFacts] | None
) -> tuple[LiveLog | None, bool]:
    """The child session that has this number (from 1) so far, and whether that is certain.

    `views` are three views of all logs, each in order of creation and taken after the one before; `recorded`
    are the facts of the recording that is replayed.
    """
    from onetake.replay.binding import bind

    first, second, third = views
    index = bind([_facts(log) for log in third], recorded)
    in_order = sorted(third, key=lambda log: index[log.id])
    places = [place for place, facts in enumerate(recorded or ()) if facts.parent is not None]
    if number <= len(places):
        return next((log for log in in_order if index[log.id] == places[number - 1]), None), True
    known = len(recorded or ())
    rest = [log for log in in_order if _facts(log).parent is not None and index[log.id] >= known]
    if number - len(places) > len(rest):
        return None, False
    child = rest[number - len(places) - 1]
    certain = any(log.id == child.id for log in first) and _Family(second, third).is_settled_before(child)
    return child, certain


class _Family:
    """Two views of all sessions: what they had logged, and who was there a little later."""

    def __init__(self, logged: Logs, there: Logs) -> None:
        self._logged = {log.id: log for log in logged}
        self._there = there
        self._facts = {log.id: _facts(log) for log in there}

    def is_settled_before(self, session: LiveLog) -> bool:
        """Whether nobody can come any more who would be counted before this session."""
        facts = self._facts[session.id]
        if facts.parent is None:
            tops = takewhile(lambda log: log.id != session.id, self._there)
            return all(self._is_idle(log) for log in tops if self._facts[log.id].parent is None)
        parent = self._logged.get(facts.parent)
        if parent is None:
            return False
        return self._is_settled_among_siblings(facts.spawn, parent) and self.is_settled_before(parent)

    def _is_settled_among_siblings(self, spawn: Spawn | None, parent: LiveLog) -> bool:
        if spawn is None:
            return True
        siblings = {
            facts.spawn: log
            for log in self._there
            if (facts := self._facts[log.id]).parent == parent.id and facts.spawn is not None
        }
        calls = Calls(parent)
        return (
            any(call.call == spawn.call for call in calls.spawns)
            and all(calls.is_over(call, there=call in siblings) for call in calls.spawns if call < spawn)
            and all(self._is_over(log, calls, call) for call, log in siblings.items() if call < spawn)
        )

    def _is_over(self, child: LiveLog, calls: Calls, spawn: Spawn) -> bool:
        """Whether a child spawns no more children of its own."""
        if child.left or calls.is_over(spawn, there=False):
            return True
        log = self._logged.get(child.id)
        return log is not None and _does_one_turn(log) and log.last_turn("turn/end") > 0 and log.idle

    def _is_idle(self, session: LiveLog) -> bool:
        log = self._logged.get(session.id)
        return log is not None and log.idle


class Calls:
    """The tool calls of a session, and what became of them."""

    def __init__(self, log: LiveLog) -> None:
        self._log = log
        self.spawns: dict[Spawn, int] = {}
        """What a child of each call would record about it, with the place of the call in the log."""
        self._results: dict[Spawn, Any] = {}
        for place, event in enumerate(log.own):
            if event.get("type") in (TOOL_CALL, TOOL_RESULT) and isinstance(event.get("data"), dict):
                data = event["data"]
                if event["type"] == TOOL_CALL:
                    self.spawns[_next_of(self.spawns, data, data.get("callId"))] = place
                else:
                    self._results[_next_of(self._results, data, _answered(data))] = data.get("meta")

    def is_over(self, call: Spawn, *, there: bool) -> bool:
        """Whether a call brings no child any more; `there`: the one that it started has a log already."""
        place = self.spawns.get(call)
        if place is not None and place < self._log.since:  # the process that made it is gone
            return True
        if call not in self._results:
            return False
        meta = self._results[call]
        child = meta.get(SUBAGENT_ID) if isinstance(meta, dict) else None
        return there or child not in self._log.background.owed()


def _next_of(known: dict[Spawn, Any], data: dict[str, Any], call_id: Any) -> Spawn:
    """The call of a row; calls of a step that share an id are told apart by their order."""
    turn, step = _number(data.get("turn")), _number(data.get("step"))
    ordinal = 0
    while Spawn(turn, step, str(call_id), ordinal) in known:
        ordinal += 1
    return Spawn(turn, step, str(call_id), ordinal)


def _answered(data: dict[str, Any]) -> Any:
    message = data.get("message")
    source = message.get("source") if isinstance(message, dict) else None
    return source.get("callId") if isinstance(source, dict) else None


def _number(value: Any) -> int:
    return value if isinstance(value, int) else 0


def _does_one_turn(log: LiveLog) -> bool:
    return any(data.get("mode") == "one-shot" for data in _descriptors(log))


def _descriptors(log: LiveLog) -> Iterator[dict[str, Any]]:
    for event in log.own:
        if event.get("type") == SUBAGENT_DESCRIPTOR and isinstance(event.get("data"), dict):
            yield event["data"]


def _facts(log: LiveLog) -> SessionFacts:
    return session_facts(log.header, log.events)
