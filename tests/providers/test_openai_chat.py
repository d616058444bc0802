"""The adapter against real sockets: what arrives, and how each way to fail is told."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from typing import Any

import pytest

from onetake import jsontext
from onetake.gateway.http import Disconnect, HttpRequest, HttpResponse, HttpServer, json_response
from onetake.gateway.mock import MockModel
from onetake.model.registry import ModelInfo, ProviderRegistry
from onetake.model.request import ModelRequest
from onetake.providers.openai_chat import OpenAIChatProvider
from onetake.wire.chat import ChatDialect

Chunk = dict[str, Any]
Handler = Callable[[HttpRequest], Awaitable[HttpResponse]]

HELLO = b'data: {"choices":[{"index":0,"delta":{"content":"Hello"}}]}\n\n'
END = b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'
STREAM = {"content-type": "text/event-stream"}
KEY = "hunter2-hunter2"


def request(**config: Any) -> ModelRequest:
    message = {"role": "user", "content": [{"type": "text", "text": "hi"}]}
    return ModelRequest(
        session_id="s", call=1, config={"provider": "p", "model": "m", **config}, messages=[message]
    )


def provider(base_url: str, **options: Any) -> OpenAIChatProvider:
    return OpenAIChatProvider("p", base_url=base_url, models={"m": ModelInfo(id="m")}, **options)


async def collect(adapter: OpenAIChatProvider, asked: ModelRequest | None = None) -> list[Chunk]:
    chunks = [chunk async for chunk in adapter.stream(asked or request())]
    await adapter.aclose()
    return chunks


def ask(handler: Handler, **options: Any) -> list[Chunk]:
    """Ask an endpoint that this handler serves, and return the chunks."""

    async def run() -> list[Chunk]:
        async with HttpServer(handler) as server:
            return await collect(provider(server.origin, **options))

    return asyncio.run(run())


def ask_for_body(*pieces: bytes | Exception) -> list[Chunk]:
    async def body() -> AsyncIterator[bytes]:
        for piece in pieces:
            if isinstance(piece, Exception):
                raise piece
            yield piece

    async def handler(_: HttpRequest) -> HttpResponse:
        return HttpResponse(headers=STREAM, body=body())

    return ask(handler)


def failure(chunks: list[Chunk]) -> dict[str, Any]:
    assert [chunk["type"] for chunk in chunks].count("finish") == 1
    reason = chunks[-1]["reason"]
    assert reason["kind"] == "error"
    found: dict[str, Any] = reason["failure"]
    return found


def types(chunks: list[Chunk]) -> list[str]:
    return [chunk["type"] for chunk in chunks]


GOOD = ["block-start", "text-delta", "block-end", "finish"]
BROKEN = ["block-start", "text-delta", "finish"]


def test_an_answer_arrives_chunk_by_chunk() -> None:
    chunks = ask_for_body(HELLO, END)
    assert types(chunks) == GOOD
    assert chunks[-2]["block"] == {"type": "text", "text": "Hello"}
    assert chunks[-1]["reason"] == {"kind": "stop"}


def test_an_answer_may_come_byte_by_byte() -> None:
    assert ask_for_body(*[bytes([byte]) for byte in HELLO + END]) == ask_for_body(HELLO + END)


def test_the_endpoint_is_asked_for_a_stream_with_key_and_headers() -> None:
    seen: list[HttpRequest] = []

    async def handler(asked: HttpRequest) -> HttpResponse:
        seen.append(asked)
        return HttpResponse(headers=STREAM, body=HELLO + END)

    options = {"api_key_env": "THE_KEY", "environ": {"THE_KEY": f" {KEY}\n"}}
    dialect = ChatDialect(extra={"seed": 1})

    async def run() -> None:
        async with HttpServer(handler) as server:
            adapter = provider(f"{server.origin}/v1/", headers={"X-Title": "t"}, dialect=dialect, **options)
            await collect(adapter, request(maxTokens=5))

    asyncio.run(run())
    (asked,) = seen
    assert (asked.method, asked.path) == ("POST", "/v1/chat/completions")
    assert asked.headers["authorization"] == f"Bearer {KEY}"
    assert asked.headers["x-title"] == "t"
    assert asked.headers["accept-encoding"] == "identity"
    assert jsontext.loads(asked.body) == {
        "model": "m",
        "messages": [{"role": "user", "content": "hi"}],
        "max_tokens": 5,
        "stream": True,
        "stream_options": {"include_usage": True},
        "seed": 1,
    }


def test_a_given_key_comes_before_the_variable() -> None:
    async def handler(asked: HttpRequest) -> HttpResponse:
        assert asked.headers["authorization"] == f"Bearer {KEY}"
        return HttpResponse(headers=STREAM, body=HELLO + END)

    assert types(ask(handler, api_key=KEY, api_key_env="THE_KEY", environ={"THE_KEY": "other"})) == GOOD


def test_without_a_key_to_send_none_is_sent() -> None:
    async def handler(asked: HttpRequest) -> HttpResponse:
        assert "authorization" not in asked.headers
        return HttpResponse(headers=STREAM, body=HELLO + END)

    assert types(ask(handler)) == GOOD


def test_lone_surrogates_reach_the_endpoint_escaped() -> None:
    async def run() -> list[Any]:
        async with MockModel({"replies": [{"reply": {"text": "x"}}]}) as mock:
            asked = request()
            asked.messages[0]["content"][0]["text"] = "\ud800"
            await collect(provider(mock.base_url), asked)
            return mock.requests

    assert asyncio.run(run())[0]["messages"][0]["content"] == "\ud800"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"api_key_env": "THE_KEY", "environ": {}}, "has no API key: set the environment variable THE_KEY"),
        ({"api_key_env": "THE_KEY", "environ": {"THE_KEY": " "}}, "set the environment variable THE_KEY"),
        ({"api_key": ""}, "provider 'p' has an empty API key"),
        ({"api_key": f"{KEY}\nx"}, "its API key holds characters that no API key has"),
        ({"api_key": f"{KEY} x"}, "its API key holds characters"),
        ({"api_key": f"{KEY}é"}, "its API key holds characters"),
        (
            {"api_key_env": "THE_KEY", "environ": {"THE_KEY": f"{KEY}\0"}},
            "the environment variable THE_KEY holds",
        ),
    ],
)
def test_a_missing_key_is_reported_by_its_name_when_it_is_needed(
    options: dict[str, Any], message: str
) -> None:
    adapter = provider("http://127.0.0.1:9", **options)
    found = failure(asyncio.run(collect(adapter)))
    assert found["code"] == "MISSING_CREDENTIAL"
    assert message in found["message"]
    assert KEY not in found["message"]


def test_the_key_is_looked_up_in_the_process_environment_at_the_call(monkeypatch: pytest.MonkeyPatch) -> None:
    adapter = provider("http://127.0.0.1:9", api_key_env="THE_KEY")
    monkeypatch.setenv("THE_KEY", "")
    assert failure(asyncio.run(collect(adapter)))["code"] == "MISSING_CREDENTIAL"


def test_a_request_that_the_format_cannot_carry_is_a_bad_request() -> None:
    asked = request()
    asked.messages[0]["content"] = [{"type": "image"}]
    found = failure(asyncio.run(collect(provider("http://127.0.0.1:9"), asked)))
    assert found["code"] == "BAD_REQUEST"
    assert "the request cannot be sent: a block of type 'image'" in found["message"]


@pytest.mark.parametrize(
    ("status", "code"),
    [
        (400, "BAD_REQUEST"),
        (401, "AUTH"),
        (404, "NOT_FOUND"),
        (429, "RATE_LIMIT"),
        (500, "SERVER_ERROR"),
        (503, "OVERLOADED"),
    ],
)
def test_an_http_error_is_a_failure_and_is_not_tried_again(status: int, code: str) -> None:
    asked = 0

    async def handler(_: HttpRequest) -> HttpResponse:
        nonlocal asked
        asked += 1
        answer = json_response({"error": {"message": "no"}}, status)
        answer.headers |= {"x-request-id": "r1", "retry-after": "2"}
        return answer

    assert failure(ask(handler)) == {
        "message": "no",
        "code": code,
        "status": status,
        "providerRetryAfterMs": 2000,
        "requestId": "r1",
    }
    assert asked == 1


def test_a_redirect_is_not_followed() -> None:
    async def handler(_: HttpRequest) -> HttpResponse:
        return HttpResponse(status=302, headers={"location": "/elsewhere"})

    assert failure(ask(handler))["code"] == "MALFORMED_STREAM"


def test_a_long_error_page_is_read_in_part_only() -> None:
    async def pages() -> AsyncIterator[bytes]:
        for _ in range(1000):
            yield b"page " * 200

    async def handler(_: HttpRequest) -> HttpResponse:
        return HttpResponse(status=500, body=pages())

    assert len(failure(ask(handler))["message"]) == 2000


def test_secrets_that_an_endpoint_repeats_are_not_passed_on() -> None:
    async def handler(asked: HttpRequest) -> HttpResponse:
        told = (
            f"{asked.headers['authorization']} {asked.headers['x-token']} is a wrong {asked.headers['x-how']}"
        )
        if asked.headers["x-how"] == "status":
            return json_response({"error": {"message": told}}, 401)
        return HttpResponse(headers=STREAM, body=b'data: {"error":{"message":"' + told.encode() + b'"}}\n\n')

    for how in ("status", "stream"):
        chunks = ask(handler, api_key=KEY, headers={"x-token": "tokentoken", "x-how": how})
        assert failure(chunks)["message"] == f"Bearer [redacted] [redacted] is a wrong {how}"


def test_silence_between_two_pieces_is_a_timeout() -> None:
    async def body() -> AsyncIterator[bytes]:
        yield HELLO
        await asyncio.get_running_loop().create_future()

    async def handler(_: HttpRequest) -> HttpResponse:
        return HttpResponse(headers=STREAM, body=body())

    # Long enough that a loaded machine surely gets the first piece across.
    chunks = ask(handler, idle_timeout_s=1.5)
    assert types(chunks) == BROKEN
    assert failure(chunks) == {"message": "the provider was silent for 1.5 s", "code": "TIMEOUT"}


def test_silence_before_the_answer_is_a_timeout() -> None:
    async def handler(_: HttpRequest) -> HttpResponse:
        return await asyncio.get_running_loop().create_future()

    assert failure(ask(handler, idle_timeout_s=0.2))["code"] == "TIMEOUT"


def test_a_connection_that_does_not_come_about_in_time_is_a_timeout() -> None:
    import httpx

    def refuse(_: httpx.Request) -> httpx.Response:
        raise httpx.ConnectTimeout("slow")

    adapter = provider("http://user:secret@127.0.0.1:9", connect_timeout_s=3)
    adapter._client = httpx.AsyncClient(transport=httpx.MockTransport(refuse))
    assert failure(asyncio.run(collect(adapter))) == {
        "message": "no connection to http://127.0.0.1:9/chat/completions within 3 s",
        "code": "TIMEOUT",
    }


def test_a_refused_connection_is_named_with_its_address() -> None:
    async def run() -> tuple[int, list[Chunk]]:
        async with HttpServer(_never) as server:
            port = server.port
        return port, await collect(provider(f"http://127.0.0.1:{port}"))

    port, chunks = asyncio.run(run())
    assert failure(chunks)["code"] == "NETWORK"
    assert f"http://127.0.0.1:{port}/chat/completions cannot be reached: " in failure(chunks)["message"]
    assert "ConnectError" not in failure(chunks)["message"]


@pytest.mark.parametrize("url", ["nonsense", "ftp://127.0.0.1", "http://127.0.0.1:x", "http://"])
def test_an_address_that_is_none_cannot_be_reached(url: str) -> None:
    assert failure(asyncio.run(collect(provider(url))))["code"] == "NETWORK"


@pytest.mark.parametrize("reset", [False, True])
def test_a_connection_that_breaks_before_the_answer_is_a_network_failure(reset: bool) -> None:
    async def handler(_: HttpRequest) -> HttpResponse:
        raise Disconnect(reset=reset)

    assert failure(ask(handler))["code"] == "NETWORK"


@pytest.mark.parametrize("reset", [False, True])
def test_a_connection_that_breaks_inside_an_event_is_a_closed_stream(reset: bool) -> None:
    async def run() -> list[Chunk]:
        arrived = asyncio.Event()

        async def body() -> AsyncIterator[bytes]:
            yield HELLO + END[:20]
            await arrived.wait()
            raise Disconnect(reset=reset)

        async def handler(_: HttpRequest) -> HttpResponse:
            return HttpResponse(headers=STREAM, body=body())

        chunks: list[Chunk] = []
        async with HttpServer(handler) as server:
            adapter = provider(server.origin)
            async for chunk in adapter.stream(request()):
                chunks.append(chunk)
                if chunk["type"] == "text-delta":
                    arrived.set()
            await adapter.aclose()
        return chunks

    chunks = asyncio.run(run())
    assert types(chunks) == BROKEN
    assert failure(chunks)["code"] == "STREAM_CLOSED"
    assert "broke before the answer ended" in failure(chunks)["message"]


def test_a_proper_end_without_the_marker_is_a_closed_stream() -> None:
    chunks = ask_for_body(HELLO, b'data: {"choices":[{"delta":{},"finish_reason":"stop"}]}\n\n')
    assert types(chunks) == BROKEN
    assert failure(chunks)["code"] == "STREAM_CLOSED"
    assert "before its end marker" in failure(chunks)["message"]


def test_text_that_is_no_json_ends_the_stream() -> None:
    chunks = ask_for_body(HELLO, b"data: {oops\n\n", HELLO, END)
    assert types(chunks) == BROKEN
    assert failure(chunks)["code"] == "MALFORMED_STREAM"


def test_what_follows_the_marker_is_not_waited_for() -> None:
    async def body() -> AsyncIterator[bytes]:
        yield HELLO + END
        await asyncio.get_running_loop().create_future()

    async def handler(_: HttpRequest) -> HttpResponse:
        return HttpResponse(headers=STREAM, body=body())

    assert types(ask(handler)) == GOOD


def test_an_answer_that_is_not_streamed_is_read_as_well() -> None:
    async def handler(_: HttpRequest) -> HttpResponse:
        return json_response({"choices": [{"message": {"content": "Hello"}, "finish_reason": "stop"}]})

    assert types(ask(handler)) == GOOD

    async def broken(_: HttpRequest) -> HttpResponse:
        return HttpResponse(headers={"content-type": "application/json; charset=utf-8"}, body=b"{")

    assert failure(ask(broken))["code"] == "MALFORMED_STREAM"


def test_a_cancelled_call_leaves_no_finish_and_closes_its_connection() -> None:
    async def run() -> list[Chunk]:
        chunks: list[Chunk] = []
        async with MockModel({"replies": [{"reply": {"text": "partial", "hang": True}}]}) as mock:
            adapter = provider(mock.base_url)
            begun = asyncio.Event()

            async def call() -> None:
                async with aclosing(adapter.stream(request())) as stream:
                    async for chunk in stream:
                        chunks.append(chunk)
                        if chunk["type"] == "text-delta":
                            begun.set()

            task = asyncio.create_task(call())
            await begun.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await asyncio.wait_for(mock.client_left.wait(), 10)
            await adapter.aclose()
        return chunks

    assert types(asyncio.run(run())) == ["block-start", "text-delta"]


def test_a_call_that_is_given_up_closes_its_connection() -> None:
    async def run() -> None:
        async with MockModel({"replies": [{"reply": {"text": "partial", "hang": True}}]}) as mock:
            adapter = provider(mock.base_url)
            async with aclosing(adapter.stream(request())) as stream:
                async for chunk in stream:
                    if chunk["type"] == "text-delta":
                        break
            await asyncio.wait_for(mock.client_left.wait(), 10)
            await adapter.aclose()

    asyncio.run(run())


def test_one_adapter_makes_many_calls_at_once_and_leaves_nothing_open() -> None:
    async def run() -> list[list[Chunk]]:
        async with MockModel({"replies": [{"repeat": True, "reply": {"text": "x" * 50}}]}) as mock:
            adapter = provider(mock.base_url)

            async def call() -> list[Chunk]:
                return [chunk async for chunk in adapter.stream(request())]

            answers = await asyncio.gather(*(call() for _ in range(12)))
            answers.append(await call())
            client = adapter._client
            assert client is not None
            await adapter.aclose()
            await adapter.aclose()
            assert client.is_closed
        return answers

    answers = asyncio.run(run())
    assert len(answers) == 13
    assert all(answer == answers[0] for answer in answers)
    gc.collect()


def test_a_loopback_endpoint_is_reached_past_any_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.delenv("no_proxy", raising=False)
    assert types(ask_for_body(HELLO, END)) == GOOD


def test_any_other_endpoint_is_reached_through_the_system_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []

    async def proxy(asked: HttpRequest) -> HttpResponse:
        seen.append(asked.path)
        return HttpResponse(headers=STREAM, body=HELLO + END)

    async def run() -> list[Chunk]:
        async with HttpServer(proxy) as server:
            monkeypatch.setenv("HTTP_PROXY", server.origin)
            monkeypatch.setenv("http_proxy", server.origin)
            monkeypatch.delenv("NO_PROXY", raising=False)
            monkeypatch.delenv("no_proxy", raising=False)
            return await collect(provider("http://model.invalid/v1"))

    assert types(asyncio.run(run())) == GOOD
    assert seen == ["http://model.invalid/v1/chat/completions"]


def test_the_registry_takes_the_adapter_as_it_is() -> None:
    async def run() -> list[Chunk]:
        async with MockModel({"replies": [{"reply": {"text": "Hello"}}]}) as mock:
            adapter = provider(mock.base_url)
            registry = ProviderRegistry()
            registry.register(adapter)
            chunks = [chunk async for chunk in registry.stream(request())]
            await adapter.aclose()
        return chunks

    assert asyncio.run(run())[-1]["reason"] == {"kind": "stop"}


def test_nothing_heavy_is_imported_before_the_first_call() -> None:
    import subprocess
    import sys

    code = (
        "import sys, onetake.providers.openai_chat as m\n"
        "m.OpenAIChatProvider('p', base_url='http://127.0.0.1', models={})\n"
        "print(sorted({'httpx', 'h11', 'ssl', 'email', 'argparse'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


async def _never(_: HttpRequest) -> HttpResponse:
    raise AssertionError("nobody asks")
