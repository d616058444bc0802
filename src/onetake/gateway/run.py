"""One run of an agent behind the gateway: what our own agent would write for the runner is written here.

The runner names the places (see `onetake.runfile`): the logs of the conversations go to the store, each
request to the requests file before it is answered, and what leaves the recording to the violations file. So
whatever reads a run of our own agent reads this one.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from onetake import jsontext
from onetake.gateway.conversation import Call, Conversation
from onetake.gateway.conversations import Conversations
from onetake.gateway.exchange import Exchange, Source
from onetake.gateway.http import HttpRequest, HttpResponse, json_response
from onetake.gateway.matching import Pins, calls_of
from onetake.gateway.recorded import Recorded
from onetake.model.capture import RequestCapture
from onetake.model.failures import failure
from onetake.replay import violations
from onetake.replay.recordings import load_recordings
from onetake.runfile import RunFile
from onetake.session.jsonl import read_log
from onetake.session.log import SessionLog
from onetake.session.store import SessionStore
from onetake.session.writer import SessionWriter
from onetake.wire.errors import BAD_REQUEST
from onetake.wire.format import WireFormat

PROJECT = "sessions"
UNREADABLE = "unreadable-request"
"""A request that is not of the format whose endpoint it asked."""
_CHARS_PER_TOKEN = 4


class Run:
    """The conversations of one run and their files. Close it when the agent has ended."""

    def __init__(
        self, run: RunFile, source: Callable[[Conversations], Source], *, models: tuple[str, ...] = ()
    ) -> None:
        """Prepare a run. `source` makes the source of its answers; `models` is what the model list holds."""
        self.conversations = Conversations(self._opened, cwd=run.roots.get("cwd", ""))
        self.source = source(self.conversations)
        """Where its answers come from."""
        self._models = models
        self._violations = run.violations
        self._store: SessionStore | None = None
        if run.sessions_root:
            # The runner that reads it is this process, or the one that waits for it.
            self._store = SessionStore(Path(run.sessions_root), project=PROJECT, synced=False)
        self._capture = RequestCapture(Path(run.requests)) if run.requests else None
        self._writers: dict[str, SessionWriter] = {}

    async def answer(self, format_: WireFormat, request: HttpRequest) -> HttpResponse:
        """Answer a model call."""
        try:
            wire = format_.decode_request(jsontext.loads(request.body))
        except ValueError as error:
            return self._refused(format_, f"{format_.name}: the request cannot be read: {error}")
        heard = self.conversations.heard(format_.name, wire)
        conversation = self.conversations.find(heard) or self.conversations.open()
        call = conversation.begin(heard)
        self.flush(conversation)
        if self._capture is not None:
            self._capture(call.request)
        place = f"{self.conversations.all.index(conversation)}-{call.request.call}"
        exchange = Exchange(call, wire, format_, request, f"onetake-{place}", self._over)
        return await self.source.respond(exchange)

    def _over(self, call: Call) -> None:
        self.conversations.answered(call)
        self.flush(call.conversation)

    def count_tokens(self, body: bytes) -> HttpResponse:
        """Answer a request for a count of tokens, in every mode by the same estimate."""
        return json_response({"input_tokens": -(-len(body) // _CHARS_PER_TOKEN)})

    def list_models(self) -> HttpResponse:
        """Answer a request for the list of models, in every mode alike."""
        facts = {"object": "model", "type": "model", "created": 0, "owned_by": "onetake"}
        rows = [{"id": name, "display_name": name} | facts for name in self._models]
        return json_response({"object": "list", "data": rows, "has_more": False})

    def flush(self, conversation: Conversation) -> None:
        """Have a log on disk as far as it is written. Raises StoreError."""
        writer = self._writers.get(conversation.id)
        if writer is not None:
            writer.flush_now()

    async def close(self) -> None:
        """Close what is open: the agent has ended, so no request comes any more. Raises StoreError."""
        await self.source.aclose()
        self.conversations.close()
        for writer in self._writers.values():
            await writer.close()
        if self._capture is not None:
            self._capture.close()

    def _opened(self, log: SessionLog) -> None:
        if self._store is not None:
            self._writers[log.id] = self._store.open(log)

    def _refused(self, format_: WireFormat, text: str) -> HttpResponse:
        described: dict[str, Any] = {
            "kind": UNREADABLE,
            "session": "",
            "call": 0,
            "message": text,
            "nearest": None,
        }
        violations.report(self._violations, described)
        status, headers, body = format_.error_response(failure(text, BAD_REQUEST))
        return HttpResponse(status=status, headers=headers, body=body)


def recording(run: RunFile, pins: Pins = lambda kind, value: value) -> Callable[[Conversations], Recorded]:
    """The recording that a run file names, as a source. Raises UsageError naming file and place."""
    recordings = load_recordings(run)
    events = [read_log(Path(name).read_bytes(), name).events for name in run.fixtures]
    calls = [
        calls_of(index, recorded, events[index] if index < len(events) else [], pins)
        for index, recorded in enumerate(recordings)
    ]

    def source(live: Conversations) -> Recorded:
        return Recorded(
            calls,
            lambda: live.all,
            roots=run.roots,
            workspace=Path(run.roots.get("cwd") or "."),
            violations_file=run.violations,
            mint=[(rule.pattern, rule.name) for rule in run.mint],
            mask=run.mask,
            nonce=run.nonce,
            lenient=run.mode == "refresh",
            pace=run.pace,
        )

    return source
