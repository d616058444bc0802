"""An answer that is known before it is sent, and how it goes over the wire.

Recorded and scripted answers are such. Knowing them whole removes every race: the call is written to the log
and over before the client has seen a byte, so whatever the client does while it reads (acting on the first
tool call, closing at `[DONE]`, closing in the middle) cannot change what is logged.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import msgspec

from onetake.gateway.exchange import Exchange
from onetake.gateway.http import Disconnect, HttpResponse
from onetake.model.assembler import is_finish
from onetake.model.failures import STREAM_CLOSED, Failure, error_finish, failure
from onetake.model.types import Chunk
from onetake.replay.violations import REPLAY_VIOLATION
from onetake.wire.format import StreamEncoder, state_of

PARTIAL: list[Chunk] = [
    {"type": "block-start", "index": 0, "blockType": "text"},
    {"type": "text-delta", "index": 0, "text": "partial"},
]
"""What a hanging call says before it falls silent."""
_NOT_REPEATED = 400
"""The status of a violation: clients repeat no request that was refused with it."""


class Answer(msgspec.Struct):
    """What is answered to one call."""

    chunks: list[Chunk]
    waits: list[int] = []
    """Milliseconds to wait before each chunk; empty: none."""
    hang: bool = False
    """After the chunks say nothing more until the client goes away."""
    ready: Path | None = None
    """A file to touch once a hanging answer has said what it says."""
    failure: Failure | None = None
    """How the call fails after the chunks."""

    def logged(self) -> list[Chunk]:
        """The chunks as the log holds them: a failure is a last one."""
        return self.chunks if self.failure is None else [*self.chunks, error_finish(self.failure)]


async def give(answer: Answer, exchange: Exchange) -> HttpResponse:
    """Log an answer and send it. Raises Disconnect for one that breaks off before its first byte."""
    chunks = answer.logged()
    for chunk in chunks:
        exchange.call.chunk(chunk)
    if not answer.hang:
        exchange.over()
    format_, wire = exchange.format, exchange.wire
    failed = _failure_of(chunks[0]) if chunks else None
    if failed is not None:
        if failed["code"] == STREAM_CLOSED and "status" not in failed:
            raise Disconnect
        status, headers, body = format_.error_response(failed)
        status = _NOT_REPEATED if failed["code"] == REPLAY_VIOLATION else status
        return HttpResponse(status=status, headers=headers, body=body)
    if wire.stream:
        encoder = format_.stream_encoder(wire, exchange.response_id, state_of(chunks))
        headers = {"content-type": "text/event-stream; charset=utf-8", "cache-control": "no-cache"}
        return HttpResponse(headers=headers, body=_streamed(answer, chunks, encoder, exchange.over))
    if answer.hang:
        await _hang(answer, exchange.over)
    status, headers, body = format_.encode_response(chunks, wire, exchange.response_id)
    return HttpResponse(status=status, headers=headers, body=body)


async def _streamed(
    answer: Answer, chunks: list[Chunk], encoder: StreamEncoder, gone: Callable[[], None]
) -> AsyncIterator[bytes]:
    for number, chunk in enumerate(chunks):
        if number < len(answer.waits) and answer.waits[number]:
            await asyncio.sleep(answer.waits[number] / 1000)
        failed = _failure_of(chunk)
        if failed is not None and failed["code"] == STREAM_CLOSED:
            raise Disconnect
        if data := encoder.push(chunk):
            yield data
    if answer.hang:
        await _hang(answer, gone)
    if not any(is_finish(chunk) for chunk in chunks):
        raise Disconnect


async def _hang(answer: Answer, gone: Callable[[], None]) -> None:
    """Wait for ever: the server cancels this when the client goes away."""
    try:
        if answer.ready is not None:
            answer.ready.parent.mkdir(parents=True, exist_ok=True)
            answer.ready.touch()
        await asyncio.get_running_loop().create_future()
    finally:
        gone()


def _failure_of(chunk: Chunk) -> Failure | None:
    reason = chunk.get("reason") if chunk.get("type") == "finish" else None
    if not isinstance(reason, dict) or reason.get("kind") not in ("error", "aborted"):
        return None
    found: Failure = reason.get("failure") or failure("the call failed", "INTERNAL")
    return found
