"""The loopback server on raw sockets: framing, reuse, abrupt endings, leaving clients, failing handlers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from onetake.gateway.http import Disconnect, HttpRequest, HttpResponse, HttpServer, json_response

Exchange = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[Any]]
GET = b"GET /a?b=c HTTP/1.1\r\nHost: x\r\n\r\n"
WAIT = 10


async def echo(request: HttpRequest) -> HttpResponse:
    facts = [
        request.method,
        request.path,
        request.query,
        request.headers.get("x-a", ""),
        request.body.decode(),
    ]
    return HttpResponse(body=" ".join(facts).encode())


def talk(handler: Callable[[HttpRequest], Awaitable[HttpResponse]], exchange: Exchange) -> Any:
    """Run one conversation with a server of this handler over a raw socket."""

    async def run() -> Any:
        async with HttpServer(handler) as server:
            reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
            try:
                return await asyncio.wait_for(exchange(reader, writer), WAIT)
            finally:
                writer.close()

    return asyncio.run(run())


def answer_to(sent: bytes, handler: Callable[[HttpRequest], Awaitable[HttpResponse]] = echo) -> bytes:
    """Return everything that a server says to these bytes, until it closes the connection."""

    async def exchange(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes:
        writer.write(sent)
        return await reader.read()

    answer: bytes = talk(handler, exchange)
    return answer


CLOSING = (
    b"POST /z HTTP/1.1\r\nHost: x\r\nX-A: one\r\nX-A: two\r\n"
    b"Connection: close\r\nContent-Length: 3\r\n\r\nabc"
)


def test_a_request_arrives_whole_and_its_answer_has_its_length() -> None:
    answer = answer_to(CLOSING)
    assert answer.startswith(b"HTTP/1.1 200 \r\n")
    assert b"content-length: 16\r\n" in answer.lower()
    assert answer.endswith(b"\r\n\r\nPOST /z  two abc")


def test_a_connection_serves_one_request_after_the_other_even_if_they_come_at_once() -> None:
    answer = answer_to(GET + GET + CLOSING)
    assert answer.count(b"HTTP/1.1 200") == 3
    assert answer.count(b"GET /a b=c") == 2
    assert answer.endswith(b"POST /z  two abc")


def test_a_request_that_comes_while_another_is_answered_waits() -> None:
    begun, go_on = asyncio.Event(), asyncio.Event()

    async def handler(request: HttpRequest) -> HttpResponse:
        if request.method == "GET":
            begun.set()
            await go_on.wait()
        return await echo(request)

    async def exchange(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes:
        writer.write(GET)
        await begun.wait()
        writer.write(CLOSING)
        await asyncio.sleep(0.05)  # for the server to read ahead; that it did must not show
        go_on.set()
        return await reader.read()

    answer = talk(handler, exchange)
    assert answer.count(b"HTTP/1.1 200") == 2
    assert answer.endswith(b"POST /z  two abc")


def test_a_request_may_come_byte_by_byte() -> None:
    async def exchange(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes:
        for byte in CLOSING:
            writer.write(bytes([byte]))
            await writer.drain()
            await asyncio.sleep(0)
        return await reader.read()

    assert talk(echo, exchange).endswith(b"POST /z  two abc")


def test_a_client_that_asks_before_it_sends_its_body_is_told_to() -> None:
    head = CLOSING.removesuffix(b"\r\nabc") + b"Expect: 100-continue\r\n\r\n"

    async def exchange(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes:
        writer.write(head)
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 100 ")
        writer.write(b"abc")
        return await reader.read()

    assert talk(echo, exchange).endswith(b"abc")


@pytest.mark.parametrize(
    "sent", [b"HELLO\r\n\r\n", b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\x02\x00\r\n\r\n"]
)
def test_what_is_no_request_is_refused(sent: bytes) -> None:
    answer = answer_to(sent)
    assert answer.startswith(b"HTTP/1.1 400")
    assert b'"invalid_request_error"' in answer


@pytest.mark.parametrize(
    "sent", [b"", b"GET / HT", b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\nabc"]
)
def test_a_client_that_leaves_before_it_has_asked_is_no_error(sent: bytes) -> None:
    async def exchange(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes:
        writer.write(sent)
        writer.write_eof()
        return await reader.read()

    assert not talk(echo, exchange).startswith(b"HTTP/1.1 200")


def streaming(*pieces: bytes | BaseException) -> Callable[[HttpRequest], Awaitable[HttpResponse]]:
    async def body() -> AsyncIterator[bytes]:
        for piece in pieces:
            if isinstance(piece, BaseException):
                raise piece
            yield piece

    async def handler(_: HttpRequest) -> HttpResponse:
        return HttpResponse(headers={"x-b": "c"}, body=body())

    return handler


def test_a_streamed_answer_is_sent_in_chunks() -> None:
    answer = answer_to(CLOSING, streaming(b"one", b"", b"three"))
    assert b"x-b: c\r\n" in answer
    assert answer.endswith(b"\r\n\r\n3\r\none\r\n5\r\nthree\r\n0\r\n\r\n")


def test_a_body_may_be_any_iterator() -> None:
    class Once:
        def __init__(self) -> None:
            self.left = [b"a", b"b"]

        def __aiter__(self) -> Once:
            return self

        async def __anext__(self) -> bytes:
            if not self.left:
                raise StopAsyncIteration
            return self.left.pop(0)

    async def handler(_: HttpRequest) -> HttpResponse:
        return HttpResponse(body=Once())

    assert answer_to(CLOSING, handler).endswith(b"1\r\na\r\n1\r\nb\r\n0\r\n\r\n")


def test_a_streamed_piece_is_sent_at_once() -> None:
    go_on = asyncio.Event()

    async def body() -> AsyncIterator[bytes]:
        yield b"one"
        await go_on.wait()
        yield b"two"

    async def handler(_: HttpRequest) -> HttpResponse:
        return HttpResponse(body=body())

    async def exchange(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(CLOSING)
        await reader.readuntil(b"one\r\n")
        go_on.set()
        await reader.readuntil(b"two\r\n")

    talk(handler, exchange)


def test_an_answer_may_break_off_without_its_end() -> None:
    answer = answer_to(CLOSING, streaming(b"one", Disconnect()))
    assert answer.endswith(b"3\r\none\r\n")


def test_an_answer_ends_with_its_connection() -> None:
    assert answer_to(CLOSING, streaming(b"one", ConnectionResetError())).endswith(b"3\r\none\r\n")


def test_an_answer_may_not_even_begin() -> None:
    async def handler(_: HttpRequest) -> HttpResponse:
        raise Disconnect

    assert answer_to(CLOSING, handler) == b""


def test_an_answer_may_end_in_a_reset() -> None:
    with pytest.raises(ConnectionResetError):
        answer_to(CLOSING, streaming(Disconnect(reset=True)))


def test_a_handler_is_cancelled_when_its_client_leaves() -> None:
    left = asyncio.Event()

    async def body() -> AsyncIterator[bytes]:
        try:
            yield b"one"
            await asyncio.get_running_loop().create_future()
        except asyncio.CancelledError:
            left.set()
            raise

    async def handler(_: HttpRequest) -> HttpResponse:
        return HttpResponse(body=body())

    async def exchange(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(GET)
        await reader.readuntil(b"one\r\n")
        writer.close()
        await left.wait()

    talk(handler, exchange)


def test_a_body_is_closed_when_its_client_leaves_while_it_is_sent() -> None:
    closed = asyncio.Event()

    async def body() -> AsyncIterator[bytes]:
        try:
            while True:
                yield b"x" * 65536
        finally:
            closed.set()

    async def handler(_: HttpRequest) -> HttpResponse:
        return HttpResponse(body=body())

    async def exchange(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(GET)
        await reader.readuntil(b"\r\n\r\n")
        writer.transport.abort()
        await closed.wait()

    talk(handler, exchange)


def test_a_server_that_ends_does_not_wait_for_its_answers() -> None:
    async def run() -> bytes:
        async with HttpServer(streaming_for_ever) as server:
            reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
            writer.write(GET)
            await reader.readuntil(b"one\r\n")
        rest = await reader.read()
        writer.close()
        return rest

    assert asyncio.run(asyncio.wait_for(run(), WAIT)) == b""


async def streaming_for_ever(_: HttpRequest) -> HttpResponse:
    async def body() -> AsyncIterator[bytes]:
        yield b"one"
        await asyncio.get_running_loop().create_future()

    return HttpResponse(body=body())


def test_a_failing_handler_is_told_to_the_client_and_to_the_loop() -> None:
    told: list[dict[str, Any]] = []

    async def handler(_: HttpRequest) -> HttpResponse:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context))
        raise RuntimeError("oops")

    answer = answer_to(GET, handler)
    assert answer.startswith(b"HTTP/1.1 500")
    assert b"the endpoint failed: RuntimeError: oops" in answer
    assert [context["message"] for context in told] == ["a handler failed"]


def test_a_body_that_fails_breaks_the_connection() -> None:
    told: list[dict[str, Any]] = []
    fail = streaming(b"one", RuntimeError("oops"))

    async def handler(request: HttpRequest) -> HttpResponse:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context))
        return await fail(request)

    assert answer_to(GET, handler).endswith(b"3\r\none\r\n")
    assert len(told) == 1


def test_a_json_answer_says_what_it_is() -> None:
    answer = json_response({"a": "\ud800"}, 404)
    assert (answer.status, answer.body) == (404, b'{"a":"\\ud800"}')
    assert answer.headers == {"content-type": "application/json"}


def test_a_port_that_is_taken_is_an_error() -> None:
    async def run() -> None:
        async with HttpServer(echo) as first:
            with pytest.raises(OSError, match=str(first.port)):
                async with HttpServer(echo, port=first.port):
                    pass

    asyncio.run(run())
