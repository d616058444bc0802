"""The adapter to Messages endpoints: what it sends, and what it makes of answers."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from onetake import jsontext
from onetake.agent.context import AppContext
from onetake.app.plugins import ExtendedEndpointConfig, anthropic_messages
from onetake.gateway.http import HttpRequest, HttpResponse, HttpServer
from onetake.model.request import ModelRequest
from onetake.providers.anthropic_messages import AnthropicMessagesProvider
from onetake.wire.sse import encode_event

ANSWER = {
    "id": "msg_1",
    "type": "message",
    "role": "assistant",
    "model": "claude",
    "content": [{"type": "text", "text": "Hello"}],
    "stop_reason": "end_turn",
    "stop_sequence": None,
    "usage": {"input_tokens": 1, "output_tokens": 2},
}
EVENTS: list[dict[str, Any]] = [
    {"type": "message_start", "message": {**ANSWER, "content": [], "stop_reason": None}},
    {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
    {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "Hello"}},
    {"type": "content_block_stop", "index": 0},
    {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 2}},
    {"type": "message_stop"},
]
STREAMED = b"".join(encode_event(jsontext.dumps(event), event=event["type"]) for event in EVENTS)


def asked(answer: HttpResponse) -> tuple[HttpRequest, list[dict[str, Any]]]:
    """One call against an endpoint that answers so: the request that came, and the chunks."""
    came: list[HttpRequest] = []

    async def endpoint(request: HttpRequest) -> HttpResponse:
        came.append(request)
        return answer

    async def call() -> list[dict[str, Any]]:
        async with HttpServer(endpoint) as server:
            provider = AnthropicMessagesProvider(
                "claude", base_url=f"{server.origin}/v1", models={}, api_key="sk-secret-1234"
            )
            user = {"role": "user", "content": [{"type": "text", "text": "Hi"}]}
            config = {"provider": "claude", "model": "claude"}
            request = ModelRequest(session_id="s", call=1, config=config, messages=[user])
            chunks = [chunk async for chunk in provider.stream(request)]
            await provider.aclose()
            return chunks

    chunks = asyncio.run(call())
    return came[0], chunks


def test_the_endpoint_gets_the_key_and_the_version_in_its_own_headers() -> None:
    request, _ = asked(HttpResponse(headers={"content-type": "text/event-stream"}, body=STREAMED))
    assert request.path == "/v1/messages"
    assert request.headers["x-api-key"] == "sk-secret-1234"
    assert request.headers["anthropic-version"] == "2023-06-01"
    assert "authorization" not in request.headers
    assert jsontext.loads(request.body)["max_tokens"] > 0


def test_a_streamed_and_a_whole_answer_say_the_same() -> None:
    _, streamed = asked(HttpResponse(headers={"content-type": "text/event-stream"}, body=STREAMED))
    body = jsontext.dumps(ANSWER)
    _, whole = asked(HttpResponse(headers={"content-type": "application/json"}, body=body))
    assert streamed[:-1] == whole[:-1]
    assert whole[-1]["reason"] == {"kind": "stop"}


def test_an_http_error_is_a_finish_with_its_failure() -> None:
    error = {"type": "error", "error": {"type": "authentication_error", "message": "invalid x-api-key"}}
    _, [finish] = asked(HttpResponse(status=401, body=jsontext.dumps(error)))
    assert finish["reason"]["failure"]["code"] == "AUTH"


def test_a_row_of_a_composition_registers_the_provider(tmp_path: Path) -> None:
    async def composed() -> str:
        ctx = AppContext(config_dir=tmp_path, environ={})
        config = ExtendedEndpointConfig(id="claude", base_url="http://x/v1", models=["opus"])
        async with anthropic_messages(ctx, config):
            return ctx.providers.get("claude", "opus")[0].id

    assert asyncio.run(composed()) == "claude"
