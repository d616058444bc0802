"""The recording as a source: each request gets the answer that was given to an equal one.

A live conversation is bound to the recorded session whose first request its own first request equals, and
goes on within it. A request that nothing recorded equals is a violation, reported to the runner before the
agent learns of it, because an agent may swallow an error or repeat the call. Yet it is served the nearest
answer of the same conversation that was not given yet, so that the run can be compared to its end. In a
refresh it is served alike, and is no violation: what the agent asks today is what refresh writes down.

Values of the live run stand in for tokens in an answer, as for our own agent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from onetake.fixture.grammar import UnknownToken
from onetake.fixture.normalize import Rules
from onetake.fixture.tokens import LogView, TokenTable
from onetake.gateway.answer import PARTIAL, Answer, give
from onetake.gateway.conversation import Call, Conversation
from onetake.gateway.exchange import Exchange, Source
from onetake.gateway.http import HttpResponse
from onetake.gateway.identity import Identities, has_identities
from onetake.gateway.matching import Asked, Served, difference, key, likeness, request_facts
from onetake.model.failures import Failure, ModelFailure, failure
from onetake.model.types import Message
from onetake.replay import violations
from onetake.replay.override import NoMatch, fill
from onetake.replay.provider import recorded_gaps, restore
from onetake.replay.script import Entry

CHANGED_REQUEST = "changed-request"
"""A request that differs from every recorded one; the nearest answer was served."""


class Recorded(Source):
    """Serves the answers of a recording to the conversations of one run.

    `calls` are the recorded calls of each session, `live` gives the conversations of the run, oldest first.
    `lenient` is for refresh: a changed request is no violation. With `pace`, recorded gaps between chunks are
    waited for.
    """

    def __init__(
        self,
        calls: Sequence[Sequence[Served]],
        live: Callable[[], Iterable[Conversation]],
        *,
        roots: dict[str, str],
        workspace: Path,
        violations_file: str = "",
        mint: Sequence[tuple[str, str]] = (),
        mask: Sequence[tuple[str, str]] = (),
        nonce: str = "",
        lenient: bool = False,
        pace: bool = False,
    ) -> None:
        super().__init__()
        self.recorded = calls
        self._live = live
        self._roots = roots
        self._workspace = workspace
        self._violations_file = violations_file
        self._mint = mint
        self._masks = Rules(mask=mask)
        self._nonce = nonce
        self._lenient = lenient
        self._pace = pace
        self._keys = {id(served): key(served.asked) for each in calls for served in each if served.asked}
        self._with_ids = {id(s) for each in calls for s in each if s.asked and has_identities(s.asked)}
        self._identities = Identities()
        self._rootless = TokenTable.build(roots, nonce=nonce)

    async def respond(self, exchange: Exchange) -> HttpResponse:
        """Answer one call from the recording."""
        answer = self.answer(exchange.call)
        asked = exchange.call.request
        # By the place in the recording, so that it does not matter who came first this time.
        exchange.response_id = f"onetake-{self.bindings[asked.session_id]}-{asked.call}"
        return await give(answer, exchange)

    def answer(self, call: Call) -> Answer:
        """The answer to one call; a failure where nothing is left to serve."""
        try:
            served = self._serve(call)
            served.used = True
            entry = self._filled(served, call)
        except ModelFailure as error:
            return Answer([], failure=error.failure)
        recorded = served.line.call
        if entry["kind"] == "hang":
            return Answer(PARTIAL, hang=True, ready=self._ready(entry.get("readyFile")))
        waits = recorded_gaps(recorded) if self._pace and recorded is not None else []
        thrown = failure(entry["message"], entry["code"]) if entry["kind"] == "throw" else None
        return Answer(entry["chunks"], waits=waits, failure=thrown)

    def _ready(self, name: str | None) -> Path | None:
        return None if name is None else self._workspace / name

    # -- which answer --------------------------------------------------------------------------------------

    def _serve(self, call: Call) -> Served:
        session = call.request.session_id
        index = self.bindings.get(session)
        if index is None:
            return self._begin(call)
        asked = self._asked(call, index)
        left = [served for served in self._session(index) if not served.used]
        exact = [served for served in left if self._equals(served, asked)]
        if exact:
            return self._found(exact[0], asked)
        if not left:
            raise self._extra(call, asked, index)
        return self._changed(call, asked, left[0])

    def _begin(self, call: Call) -> Served:
        """Bind a conversation that begins, and answer its first call."""
        bound = set(self.bindings.values())
        free = [calls[0] for calls in self.recorded if calls and calls[0].index not in bound]
        asked: Asked = {}
        for served in free:
            asked = self._asked(call, served.index)
            if self._equals(served, asked):
                self.bindings[call.request.session_id] = served.index
                return self._found(served, asked)
        known = [served for served in free if served.asked is not None]
        if not known:
            index = max([len(self.recorded) - 1, *bound]) + 1
            self.bindings[call.request.session_id] = index
            raise self._extra(call, self._asked(call, index), index)
        nearest = max(known, key=lambda served: likeness(served.asked or {}, asked))
        self.bindings[call.request.session_id] = nearest.index
        return self._changed(call, self._asked(call, nearest.index), nearest)

    def _session(self, index: int) -> Sequence[Served]:
        return self.recorded[index] if index < len(self.recorded) else ()

    def _equals(self, served: Served, asked: Asked) -> bool:
        if served.asked is None:
            return True
        same = self._identities.like(served.asked, asked) if id(served) in self._with_ids else asked
        return self._keys[id(served)] == key(same)

    def _found(self, served: Served, asked: Asked) -> Served:
        if served.asked is not None:
            self._identities.learn(served.asked, asked)
        return served

    def _asked(self, call: Call, index: int) -> Asked:
        """What a call asks, in tokens, were its conversation the recorded session `index`."""
        request = call.request
        header = {"config": request.config, "system": request.system, "tools": request.tools}
        facts = request_facts(header, request.messages)
        if self._masks:  # as the log that was recorded has it
            facts |= self._masks.apply({name: facts[name] for name in ("config", "messages")})
        asked: Asked = self._table(request.session_id, index).tokenize_value(facts)
        return asked

    def _table(self, session: str, index: int) -> TokenTable:
        """The values of the run so far, with a session in a place of the recording."""
        if not self._mint:
            return self._rootless
        places = self.bindings | {session: index}
        views = [
            LogView(places[each.id], each.log.header, each.log.events)
            for each in self._live()
            if each.id in places
        ]
        return TokenTable.build(self._roots, views, mint=self._mint, nonce=self._nonce)

    def _filled(self, served: Served, call: Call) -> Entry:
        table = self._table(call.request.session_id, self.bindings[call.request.session_id])
        messages: list[Message] = call.request.messages
        try:
            if served.line.call is None:
                filled: Entry = fill(served.line.entry, table.resolve, messages)
                return filled
            restored: Entry = restore(served.line.entry, table.resolve)
            return restored
        except UnknownToken as error:
            text = f"the answer repeats {error.token}, a value that this run has not produced so far"
            raise self._violation(call, violations.UNKNOWN_TOKEN, text, served) from error
        except NoMatch as error:
            text = f"{{{{fromRequest:{error.pattern}}}}} finds nothing in the live request"
            raise self._violation(call, violations.NO_MATCH, text, served) from error

    # -- what is reported ----------------------------------------------------------------------------------

    def _changed(self, call: Call, asked: Asked, nearest: Served) -> Served:
        if nearest.asked is not None:
            live, asked = asked, self._identities.like(nearest.asked, asked)
            self._identities.learn(nearest.asked, live)
        if not self._lenient and nearest.asked is not None:
            text = (
                f"{_name(call)} asks what was not recorded; the nearest is call {nearest.number + 1} of "
                f"{self._file(nearest.index)}, which differs in {difference(nearest.asked, asked)}; "
                "its answer was served"
            )
            self._violation(call, CHANGED_REQUEST, text, nearest)
        return nearest

    def _extra(self, call: Call, asked: Asked, index: int) -> ModelFailure:
        equal = [
            s for calls in self.recorded for s in calls if s.asked is not None and self._equals(s, asked)
        ]
        recorded = self._session(index)
        if equal:
            times = len(equal)
            text = f"{_name(call)} asks what was recorded, once more: {times} recorded, call {times + 1}"
            return self._violation(call, violations.EXTRA_CALL, text, equal[-1])
        if recorded:
            text = f"{_name(call)} comes after all {len(recorded)} calls of {self._file(index)}"
            return self._violation(call, violations.EXTRA_CALL, text, recorded[-1])
        names = ", ".join(self._file(n) for n in range(len(self.recorded))) or "none"
        text = f"{_name(call)} begins a conversation that has no place in the recording, which holds {names}"
        return self._violation(call, violations.UNBOUND_SESSION, text, None)

    def _file(self, index: int) -> str:
        return f"session.{index}.jsonl" if index else "session.jsonl"

    def _violation(self, call: Call, kind: str, message: str, nearest: Served | None) -> ModelFailure:
        described = {
            "kind": kind,
            "session": call.request.session_id,
            "call": call.request.call,
            "message": message,
            "nearest": None if nearest is None else _described(nearest),
        }
        told: Failure = violations.report(self._violations_file, described)
        return ModelFailure(told)


def _name(call: Call) -> str:
    return f"call {call.request.call} of conversation {call.request.session_id}"


def _described(served: Served) -> dict[str, Any]:
    chunks = served.line.entry.get("chunks", ())
    said = "".join(str(chunk.get("text") or chunk.get("argumentsDelta") or "") for chunk in chunks)
    where = served.line.call.place() if served.line.call is not None else "an override"
    return {"call": served.number + 1, "place": where, "says": said[:80]}
