"""What must hold for every answer of an endpoint: the adapter yields what was meant, over real sockets."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from onetake.gateway.http import Disconnect, HttpRequest, HttpResponse, HttpServer
from onetake.model.request import ModelRequest
from onetake.providers.openai_chat import OpenAIChatProvider
from onetake.testing.strategies.wire import FORMATS, Segmentation, segmentations
from onetake.wire.chat import ChatStreamEncoder

# Sockets are slow: fewer examples, the codec itself has its full share in tests/wire.
few = settings(max_examples=settings().max_examples // 10)


def serve(pieces: list[bytes], ending: Disconnect | None = None) -> list[dict[str, Any]]:
    """Serve these pieces of a stream, ended properly or not, and return what the adapter makes of them."""

    async def body() -> AsyncIterator[bytes]:
        for piece in pieces:
            yield piece
        if ending is not None:
            raise ending

    async def handler(_: HttpRequest) -> HttpResponse:
        return HttpResponse(headers={"content-type": "text/event-stream"}, body=body())

    async def run() -> list[dict[str, Any]]:
        async with HttpServer(handler) as server:
            adapter = OpenAIChatProvider("p", base_url=server.origin, models={})
            message = {"role": "user", "content": [{"type": "text", "text": "hi"}]}
            asked = ModelRequest(session_id="s", call=1, config={"model": "m"}, messages=[message])
            chunks = [chunk async for chunk in adapter.stream(asked)]
            await adapter.aclose()
            return chunks

    return asyncio.run(run())


def encode(chunks: list[dict[str, Any]]) -> bytes:
    encoder = ChatStreamEncoder("m")
    return b"".join(encoder.push(chunk) for chunk in chunks)


@few
@given(FORMATS["openai-chat"].chunks(), segmentations())
def test_an_answer_is_the_same_however_it_is_segmented(
    chunks: list[dict[str, Any]], cut: Segmentation
) -> None:
    assert serve(cut(encode(chunks))) == chunks


@few
@given(FORMATS["openai-chat"].chunks(), st.data())
def test_an_answer_that_breaks_off_is_a_failure_after_what_was_said(
    chunks: list[dict[str, Any]], data: st.DataObject
) -> None:
    sent = encode(chunks)
    marker = b"data: [DONE]\n\n"
    end = len(sent) - (len(marker) if sent.endswith(marker) else len(b"\n"))
    read = serve(
        [sent[: data.draw(st.integers(0, end - 1))]], data.draw(st.sampled_from([None, Disconnect()]))
    )
    assert read[-1]["reason"]["failure"]["code"] == "STREAM_CLOSED"
    told = [chunk for chunk in read[:-1] if chunk["type"] != "usage"]
    assert told == chunks[: len(told)]
