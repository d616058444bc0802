"""The adapter to Responses endpoints: what it sends, and what it makes of answers."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from onetake import jsontext
from onetake.agent.context import AppContext
from onetake.app.plugins import ExtendedEndpointConfig, openai_responses
from onetake.gateway.http import HttpRequest, HttpResponse, HttpServer
from onetake.model.request import ModelRequest
from onetake.providers.openai_responses import OpenAIResponsesProvider
from onetake.wire.sse import encode_event

SAID = {"type": "message", "id": "m1", "role": "assistant", "status": "completed"}
TEXT = {"type": "output_text", "text": "Hello", "annotations": []}
THOUGHT = {"type": "reasoning", "id": "r1", "summary": [], "encrypted_content": "gAAA"}
ANSWER = {
    "id": "resp_1",
    "object": "response",
    "status": "completed",
    "model": "gpt",
    "output": [THOUGHT, {**SAID, "content": [TEXT]}],
    "usage": {"input_tokens": 1, "output_tokens": 2, "total_tokens": 3},
}
EVENTS: list[dict[str, Any]] = [
    {"type": "response.created", "response": {**ANSWER, "status": "in_progress", "output": []}},
    {"type": "response.output_item.added", "output_index": 0, "item": THOUGHT},
    {"type": "response.output_item.done", "output_index": 0, "item": THOUGHT},
    {"type": "response.output_item.added", "output_index": 1, "item": {**SAID, "content": []}},
    {"type": "response.output_text.delta", "output_index": 1, "content_index": 0, "delta": "Hello"},
    {"type": "response.output_item.done", "output_index": 1, "item": {**SAID, "content": [TEXT]}},
    {"type": "response.completed", "response": ANSWER},
]
STREAMED = b"".join(encode_event(jsontext.dumps(event), event=event["type"]) for event in EVENTS)
USER = {"role": "user", "content": [{"type": "text", "text": "Hi"}]}


def asked(
    answer: HttpResponse, *said: dict[str, Any], **settings: Any
) -> tuple[HttpRequest, list[dict[str, Any]]]:
    """One call against an endpoint that answers so: the request that came, and the chunks."""
    came: list[HttpRequest] = []

    async def endpoint(request: HttpRequest) -> HttpResponse:
        came.append(request)
        return answer

    async def call() -> list[dict[str, Any]]:
        async with HttpServer(endpoint) as server:
            provider = OpenAIResponsesProvider(
                "gpt", base_url=f"{server.origin}/v1", models={}, api_key="sk-secret-1234", **settings
            )
            config = {"provider": "gpt", "model": "gpt"}
            request = ModelRequest(session_id="s", call=1, config=config, messages=[USER, *said])
            chunks = [chunk async for chunk in provider.stream(request)]
            await provider.aclose()
            return chunks

    chunks = asyncio.run(call())
    return came[0], chunks


def streamed() -> HttpResponse:
    return HttpResponse(headers={"content-type": "text/event-stream"}, body=STREAMED)


def test_the_endpoint_gets_the_key_and_stores_nothing() -> None:
    request, _ = asked(streamed(), extra={"service_tier": "flex"})
    assert request.path == "/v1/responses"
    assert request.headers["authorization"] == "Bearer sk-secret-1234"
    body = jsontext.loads(request.body)
    assert (body["store"], body["include"]) == (False, ["reasoning.encrypted_content"])
    assert body["service_tier"] == "flex"


def test_a_streamed_and_a_whole_answer_say_the_same() -> None:
    _, stream = asked(streamed())
    body = jsontext.dumps(ANSWER)
    _, whole = asked(HttpResponse(headers={"content-type": "application/json"}, body=body))
    assert stream[:-1] == whole[:-1]
    assert stream[-1]["reason"] == whole[-1]["reason"] == {"kind": "stop"}


def test_encrypted_reasoning_goes_back_as_it_came() -> None:
    _, chunks = asked(streamed())
    blocks = [chunk["block"] for chunk in chunks if chunk["type"] == "block-end"]
    source = {"kind": "model", "replayState": chunks[-1]["replayState"]}
    request, _ = asked(streamed(), {"role": "assistant", "content": blocks, "source": source}, USER)
    assert jsontext.loads(request.body)["input"][1:3] == ANSWER["output"]


@pytest.mark.parametrize(("status", "code"), [(401, "AUTH"), (429, "RATE_LIMIT"), (500, "SERVER_ERROR")])
def test_an_http_error_is_a_finish_with_its_failure(status: int, code: str) -> None:
    error = jsontext.dumps({"error": {"message": "no", "type": "x", "code": None}})
    _, [finish] = asked(HttpResponse(status=status, headers={"retry-after": "2"}, body=error))
    assert finish["reason"]["failure"]["code"] == code
    assert finish["reason"]["failure"].get("providerRetryAfterMs", 2000) == 2000


def test_a_row_of_a_composition_registers_the_provider(tmp_path: Path) -> None:
    async def composed() -> str:
        ctx = AppContext(config_dir=tmp_path, environ={})
        config = ExtendedEndpointConfig(id="gpt", base_url="http://x/v1", models=["gpt-5"])
        async with openai_responses(ctx, config):
            return ctx.providers.get("gpt", "gpt-5")[0].id

    assert asyncio.run(composed()) == "gpt"
