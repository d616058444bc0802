"""The endpoint of all formats: one server for many runs, told apart by the first part of the path.

    POST /TOKEN/v1/chat/completions    POST /TOKEN/v1/responses    POST /TOKEN/v1/messages
    POST /TOKEN/v1/messages/count_tokens    GET /TOKEN/v1/models

Whatever else is asked gets a 404 that says what there is. Keys that clients send are neither read nor kept.
"""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from contextvars import ContextVar
from types import TracebackType

from onetake.gateway.http import HttpRequest, HttpResponse, HttpServer, json_response
from onetake.gateway.run import Run
from onetake.wire.formats import FORMATS

_shared: ContextVar[Gateway | None] = ContextVar("the gateway that all runs within share", default=None)


class Gateway:
    """Serves runs on a loopback port while the context is entered."""

    def __init__(self, *, port: int = 0) -> None:
        self._server = HttpServer(self._handle, port=port)
        self._runs: dict[str, Run] = {}
        self._tokens = itertools.count(1)
        self._formats = {f"/v1{each.path}": each for each in FORMATS.values()}

    async def __aenter__(self) -> Gateway:
        await self._server.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._server.__aexit__(kind, error, trace)

    def open(self, run: Run) -> str:
        """Serve a run from now on; returns the base URL of its endpoints, without the version."""
        token = f"run-{next(self._tokens)}"
        self._runs[token] = run
        return f"{self._server.origin}/{token}"

    async def close(self, base_url: str) -> None:
        """End a run: nothing is served for it any more, and its files are complete. Raises StoreError."""
        run = self._runs.pop(base_url.rpartition("/")[2])
        await run.close()

    async def _handle(self, request: HttpRequest) -> HttpResponse:
        token, slash, rest = request.path.removeprefix("/").partition("/")
        run, path = self._runs.get(token), slash + rest
        if run is not None and request.method == "POST":
            if path in self._formats:
                return await run.answer(self._formats[path], request)
            if path == "/v1/messages/count_tokens":
                return run.count_tokens(request.body)
        if run is not None and request.method == "GET" and path == "/v1/models":
            return run.list_models()
        known = ", ".join(self._formats)
        text = f"the gateway has nothing at {request.method} {request.path}; its endpoints end in {known}"
        return json_response({"error": {"message": text, "type": "invalid_request_error"}}, 404)


@asynccontextmanager
async def one_gateway() -> AsyncIterator[None]:
    """Let all runs within, in whatever task, share one server."""
    async with Gateway() as gateway:
        before = _shared.set(gateway)
        try:
            yield
        finally:
            _shared.reset(before)


@asynccontextmanager
async def any_gateway() -> AsyncIterator[Gateway]:
    """The server that is shared; where none is, one of its own."""
    shared = _shared.get()
    if shared is not None:
        yield shared
        return
    async with Gateway() as gateway:
        yield gateway
