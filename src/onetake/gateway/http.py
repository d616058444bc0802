"""A small HTTP/1.1 server for loopback: one handler, streamed answers, endings as abrupt as tests want them.

A handler is an async function from a request to a response. It runs until the answer is sent or the client
goes away: then it is cancelled, which is how a server sees that a stream was given up. A body iterator ends
the answer properly by ending; it breaks the connection by raising `Disconnect`.

h11 speaks the protocol, asyncio moves the bytes; nothing else is needed for a server that only machines near
by talk to.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import suppress
from types import TracebackType

import h11
import msgspec

from onetake import jsontext

_READ_SIZE = 65536
_LINGER_NONE = struct.pack("ii", 1, 0)


class HttpRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A request, complete with its body."""

    method: str
    """`GET`, `POST`, ..."""
    path: str
    """The path without the query."""
    query: str
    """What follows the question mark."""
    headers: Mapping[str, str]
    """By lower-case name; of a repeated header the last one."""
    body: bytes
    """The whole body."""


class HttpResponse(msgspec.Struct, kw_only=True):
    """An answer: bytes are sent with their length, an iterator as chunks, each as soon as it comes."""

    status: int = 200
    """The HTTP status."""
    headers: dict[str, str] = {}
    """Headers to send; the length or the transfer encoding is added."""
    body: bytes | AsyncIterator[bytes] = b""
    """The body, or what produces it."""


class Disconnect(Exception):
    """Raised by a handler or a body iterator to break the connection where the answer stands.

    With `reset` the client sees a connection reset, otherwise an end of the connection without an end of the
    body.
    """

    def __init__(self, *, reset: bool = False) -> None:
        super().__init__("the connection is to be broken")
        self.reset = reset


Handler = Callable[[HttpRequest], Awaitable[HttpResponse]]


def json_response(value: object, status: int = 200) -> HttpResponse:
    """Return an answer that holds a JSON value."""
    return HttpResponse(
        status=status, headers={"content-type": "application/json"}, body=jsontext.dumps(value)
    )


class HttpServer:
    """Serves a handler on a loopback port while the context is entered."""

    def __init__(self, handler: Handler, *, host: str = "127.0.0.1", port: int = 0) -> None:
        """Prepare a server; port 0 takes a free one."""
        self._handler = handler
        self._host = host
        self.port = port
        """The port; the real one after entering."""
        self._server: asyncio.Server | None = None
        self._connections: dict[asyncio.Task[None], None] = {}

    @property
    def origin(self) -> str:
        """`http://HOST:PORT`."""
        return f"http://{self._host}:{self.port}"

    async def __aenter__(self) -> HttpServer:
        self._server = await asyncio.start_server(self._connected, self._host, self.port)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._server is not None
        self._server.close()
        tasks = list(self._connections)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._server.wait_closed()
        await asyncio.sleep(0)  # a transport that was closed is gone in the next round of the loop only

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections[task] = None
        try:
            await _Connection(self._handler, reader, writer).serve()
        except (ConnectionError, asyncio.CancelledError):
            # A client that went away, or the server's end: the streams machinery would log either as an
            # error.
            pass
        finally:
            self._connections.pop(task, None)
            writer.close()


class _Connection:
    """One connection: requests one after the other, each answered before the next is read."""

    def __init__(self, handler: Handler, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._handler = handler
        self._reader = reader
        self._writer = writer
        self._protocol = h11.Connection(h11.SERVER)

    async def serve(self) -> None:
        while True:
            try:
                request = await self._read_request()
            except h11.RemoteProtocolError as error:
                await self._refuse(error.error_status_hint, str(error))
                return
            if request is None or not await self._answer_unless_gone(request):
                return
            if self._protocol.our_state is not h11.DONE or self._protocol.their_state is not h11.DONE:
                return
            self._protocol.start_next_cycle()

    async def _next_event(self) -> h11.Event | None:
        """Return the next part of the request; None where the protocol has none to give."""
        while True:
            event = self._protocol.next_event()
            if event is not h11.NEED_DATA:
                return event if isinstance(event, h11.Event) else None
            if self._protocol.they_are_waiting_for_100_continue:
                await self._send(h11.InformationalResponse(status_code=100, headers=[]))
            self._protocol.receive_data(await self._reader.read(_READ_SIZE))

    async def _read_request(self) -> HttpRequest | None:
        head = await self._next_event()
        if not isinstance(head, h11.Request):
            return None
        body: list[bytes] = []
        while isinstance(event := await self._next_event(), h11.Data):
            body.append(bytes(event.data))
        path, _, query = head.target.decode("ascii").partition("?")
        headers = {name.decode("ascii"): value.decode("latin-1") for name, value in head.headers}
        return HttpRequest(
            method=head.method.decode("ascii"), path=path, query=query, headers=headers, body=b"".join(body)
        )

    async def _answer_unless_gone(self, request: HttpRequest) -> bool:
        """Answer, and watch meanwhile whether the client stays; return whether the connection may go on."""
        answer = asyncio.ensure_future(self._answer(request))
        watch = asyncio.ensure_future(self._watch())
        try:
            await asyncio.wait((answer, watch), return_when=asyncio.FIRST_COMPLETED)
            if not answer.done():
                answer.cancel()
                await asyncio.wait((answer,))
                return False
            return await answer
        finally:
            for task in (answer, watch):
                task.cancel()
            await asyncio.gather(answer, watch, return_exceptions=True)

    async def _watch(self) -> None:
        """Read ahead until the client closes its side; what it sends early waits in the protocol's buffer."""
        with suppress(ConnectionError):
            while data := await self._reader.read(_READ_SIZE):
                self._protocol.receive_data(data)

    async def _answer(self, request: HttpRequest) -> bool:
        try:
            response = await self._handler(request)
            await self._send_response(response)
        except Disconnect as ending:
            self._break(ending.reset)
            return False
        except ConnectionError:
            return False
        except Exception as error:
            # A defect of the handler: told to the client while that is possible, and to whoever runs the
            # loop.
            if self._protocol.our_state is h11.SEND_RESPONSE:
                text = f"the endpoint failed: {type(error).__name__}: {error}"
                await self._send_response(json_response({"error": {"message": text}}, 500))
            context = {"message": "a handler failed", "exception": error}
            asyncio.get_running_loop().call_exception_handler(context)
            return False
        return True

    async def _send_response(self, response: HttpResponse) -> None:
        body = response.body
        framing = ("transfer-encoding", "chunked")
        if isinstance(body, bytes):
            framing = ("content-length", str(len(body)))
        head = h11.Response(status_code=response.status, headers=[*response.headers.items(), framing])
        if isinstance(body, bytes):
            await self._send(head, h11.Data(data=body), h11.EndOfMessage())
            return
        try:
            await self._send(head)
            async for piece in body:
                await self._send(h11.Data(data=piece))
        finally:
            # A generator that is not run to its end would wait for the garbage collector to release what it
            # holds.
            aclose = getattr(body, "aclose", None)
            if aclose is not None:
                await aclose()
        await self._send(h11.EndOfMessage())

    async def _send(self, *events: h11.Event) -> None:
        self._writer.write(b"".join(self._protocol.send(event) or b"" for event in events))
        await self._writer.drain()

    async def _refuse(self, status: int, reason: str) -> None:
        response = json_response({"error": {"message": reason, "type": "invalid_request_error"}}, status)
        response.headers["connection"] = "close"
        await self._send_response(response)

    def _break(self, reset: bool) -> None:
        if reset:
            # Closing with a linger time of zero is what makes the kernel send a reset instead of an end.
            sock = self._writer.get_extra_info("socket")
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _LINGER_NONE)
            self._writer.transport.abort()
        self._writer.close()
