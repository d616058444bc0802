"""A script as a source: the replies of a `mock-model` script, in every format.

What a script matches is the text of the request (see `onetake.gateway.script`), whatever its format: so the
same script serves an agent that speaks chat completions and one that speaks Messages.
"""

from __future__ import annotations

from typing import Any

from onetake.gateway.answer import Answer, give
from onetake.gateway.exchange import Exchange, Source
from onetake.gateway.http import HttpResponse
from onetake.gateway.script import MockScript, NoReply, Replies, Reply, ScriptedError, chunks_of
from onetake.model.failures import Failure, failure
from onetake.wire.errors import BAD_REQUEST, failure_of_error


class Scripted(Source):
    """Answers calls by a script."""

    def __init__(self, script: MockScript) -> None:
        super().__init__()
        self._replies = Replies(script)

    async def respond(self, exchange: Exchange) -> HttpResponse:
        """Answer one call by the first reply that fits."""
        wire = exchange.wire
        told: list[Any] = [] if wire.system is None else [{"role": "system", "content": wire.system}]
        try:
            reply = self._replies.take([*told, *wire.messages])
        except NoReply as error:
            return await give(Answer([], failure=failure(str(error), BAD_REQUEST)), exchange)
        return await give(answer_of(reply, len(exchange.request.body)), exchange)


def answer_of(reply: Reply, request_chars: int) -> Answer:
    """What a reply of a script answers."""
    chunks = chunks_of(reply, request_chars)
    waits = [round(reply.delay_ms)] * len(chunks) if reply.delay_ms else []
    failed = None if reply.error is None else _failure(reply.error)
    return Answer(chunks, waits=waits, hang=reply.hang, failure=failed)


def _failure(error: ScriptedError) -> Failure:
    described = {"message": error.message, "code": error.code}
    if error.retry_after_ms is not None:
        described["retry_after_ms"] = str(error.retry_after_ms)
    found = failure_of_error(described, status=error.status)
    if error.retry_after_ms is not None:
        found["providerRetryAfterMs"] = error.retry_after_ms
    return found
