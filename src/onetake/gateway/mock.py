"""A model endpoint that follows a script, and remembers what it was asked.

It stands in for a real endpoint in recordings and tests: `MockModel` inside a process, `onetake mock-model`
as a program. Both speak through the codec that the adapter uses, over real sockets. See
`onetake.gateway.script` for the script. A request that the script has no reply to is answered with HTTP 400,
which clients do not repeat.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from types import TracebackType
from typing import BinaryIO

from onetake import jsontext
from onetake.gateway.http import HttpRequest, HttpResponse, HttpServer, json_response
from onetake.gateway.script import MockScript, NoReply, Replies, Reply, ScriptedError, chunks_of, parse_script
from onetake.model.types import Chunk, Json
from onetake.wire.chat import ChatRequest, ChatStreamEncoder, decode_request, encode_response
from onetake.wire.sse import encode_event


class MockModel:
    """A scripted endpoint, up while the context is entered."""

    def __init__(
        self,
        script: MockScript | Json,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        capture: Path | None = None,
        models: tuple[str, ...] = ("mock",),
    ) -> None:
        """Prepare an endpoint.

        `script` is a script, or the JSON value of one. `capture` is a file to which every request body is
        appended as one line of JSON; headers, and so keys, are not kept. `models` is what `/v1/models` lists.
        Raises UsageError for a script that is not well-formed.
        """
        parsed = script if isinstance(script, MockScript) else parse_script(script, "the script")
        self._replies = Replies(parsed)
        self._models = models
        self._capture_path = capture
        self._capture: BinaryIO | None = None
        self._server = HttpServer(self._handle, host=host, port=port)
        self.requests: list[Json] = []
        """The bodies of all requests so far."""
        self.client_left = asyncio.Event()
        """Set as soon as a client goes away before its streamed answer has ended."""
        self.hanging = 0
        """How many answers hang now."""

    @property
    def base_url(self) -> str:
        """What an adapter takes as its base URL."""
        return f"{self._server.origin}/v1"

    @property
    def port(self) -> int:
        """The port that it listens on."""
        return self._server.port

    def follow(self, script: MockScript) -> None:
        """Answer from another script from now on; what is left of the one before is given up."""
        self._replies = Replies(script)

    async def __aenter__(self) -> MockModel:
        if self._capture_path is not None:
            self._capture = self._capture_path.open("ab")
        await self._server.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._server.__aexit__(kind, error, trace)
        if self._capture is not None:
            self._capture.close()

    async def _handle(self, request: HttpRequest) -> HttpResponse:
        if request.path.endswith("/models") and request.method == "GET":
            facts = {"object": "model", "created": 0, "owned_by": "onetake"}
            return json_response({"object": "list", "data": [{"id": name} | facts for name in self._models]})
        if not request.path.endswith("/chat/completions") or request.method != "POST":
            return _refusal(404, "not_found", f"there is nothing at {request.method} {request.path}")
        try:
            body = jsontext.loads(request.body)
            self._keep(body)
            asked = decode_request(body)
            reply = self._replies.take(body["messages"])
        except (ValueError, NoReply) as error:
            code = "no_scripted_reply" if isinstance(error, NoReply) else "bad_request"
            return _refusal(400, code, f"mock-model: {error}")
        return await self._answer(asked, reply, len(request.body))

    async def _answer(self, asked: ChatRequest, reply: Reply, request_chars: int) -> HttpResponse:
        chunks = chunks_of(reply, request_chars)
        name = f"chatcmpl-{len(self.requests)}"
        if reply.error is not None and not (chunks and asked.stream):
            return _error_response(reply.error)
        if asked.stream:
            return HttpResponse(
                headers={"content-type": "text/event-stream", "cache-control": "no-cache"},
                body=self._streamed(asked, reply, chunks, name),
            )
        if reply.hang:
            await self._hang()
        status, headers, whole = encode_response(chunks, asked.model, response_id=name)
        return HttpResponse(status=status, headers=headers, body=whole)

    async def _streamed(
        self, asked: ChatRequest, reply: Reply, chunks: list[Chunk], name: str
    ) -> AsyncIterator[bytes]:
        encoder = ChatStreamEncoder(asked.model, response_id=name, include_usage=asked.include_usage)
        try:
            for chunk in chunks:
                data = encoder.push(chunk)
                if data and reply.delay_ms:
                    await asyncio.sleep(reply.delay_ms / 1000)
                if data:
                    yield data
            if reply.hang:
                await self._hang()
            if reply.error is not None:
                yield encode_event(jsontext.dumps({"error": _error_object(reply.error)}))
        except (asyncio.CancelledError, GeneratorExit):
            self.client_left.set()
            raise

    async def _hang(self) -> None:
        """Wait for ever: the server cancels this when the client goes away."""
        self.hanging += 1
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            self.hanging -= 1

    def _keep(self, body: Json) -> None:
        self.requests.append(body)
        if self._capture is not None:
            self._capture.write(jsontext.dumps(body) + b"\n")
            self._capture.flush()


def _refusal(status: int, code: str, message: str) -> HttpResponse:
    error = {"message": message, "type": "invalid_request_error", "code": code}
    return json_response({"error": error}, status)


def _error_response(error: ScriptedError) -> HttpResponse:
    response = json_response({"error": _error_object(error)}, error.status)
    if error.retry_after_ms is not None:
        response.headers["retry-after-ms"] = str(error.retry_after_ms)
    return response


def _error_object(error: ScriptedError) -> dict[str, Json]:
    kind = "invalid_request_error" if error.status < 500 else "server_error"
    written: dict[str, Json] = {"message": error.message, "type": kind, "code": error.code}
    return written | {"status": error.status}
