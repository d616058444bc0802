"""The real endpoint as a source: a recording is made while its answers pass through.

The client gets the very bytes that the endpoint sent, as they come; a decoder reads along and logs the
chunks. Of the request everything but the credentials and what belongs to the connection is passed on; the
key is the runner's, or else the client's own. No header is stored, of the request or of the answer.

A client may close early, such as at the end marker. The answer is read to its end all the same, because a
recording holds what the model said and not how fast the client was. An answer that the endpoint cut short is
logged as the failure that it is; the recording is refused for it, by its own name.

Every stream is also encoded again and compared with what came. What does not survive that is what a replay
could not give back: `losses` names it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from typing import TYPE_CHECKING, Any

from onetake import jsontext
from onetake.gateway.exchange import Exchange, Source
from onetake.gateway.fidelity import lost
from onetake.gateway.http import HttpResponse
from onetake.model.assembler import is_finish
from onetake.model.failures import STREAM_CLOSED, Failure, error_finish, failure
from onetake.model.types import Chunk
from onetake.wire.errors import NETWORK, failure_of_response, redacted

if TYPE_CHECKING:
    import httpx

_CONNECTION = "connection keep-alive proxy-connection te trailer transfer-encoding upgrade"
_OWN = "host content-length accept-encoding authorization x-api-key api-key cookie"
_KEPT_BACK = frozenset(f"{_CONNECTION} {_OWN}".split())
"""Headers of a request that are not passed on as they are."""
_ANSWERED = ("content-type", "retry-after", "retry-after-ms", "x-request-id", "request-id")
"""Headers of an answer that clients act on."""
_TIMEOUT_S = 600.0


class Endpoint:
    """Where a format's requests go, and the key to ask with."""

    def __init__(self, base_url: str, key: str | None = None) -> None:
        """`base_url` ends before the version, as `https://api.example.com`; one that ends in it is fine."""
        self.base_url = base_url.rstrip("/").removesuffix("/v1")
        self.key = key


class Upstream(Source):
    """Passes calls on to the endpoints, by the name of the format."""

    def __init__(self, endpoints: Mapping[str, Endpoint]) -> None:
        super().__init__()
        self._endpoints = endpoints
        self._client: httpx.AsyncClient | None = None
        self._reading: dict[asyncio.Task[None], None] = {}

    async def respond(self, exchange: Exchange) -> HttpResponse:
        """Pass one call on."""
        import httpx

        endpoint = self._endpoints.get(exchange.format.name)
        if endpoint is None:
            known = ", ".join(self._endpoints) or "none"
            text = f"there is no upstream for {exchange.format.name}; [gateway] upstream names: {known}"
            return self._failed(exchange, failure(text, NETWORK))
        secrets = [] if endpoint.key is None else [endpoint.key]
        request = self._opened().build_request(
            "POST",
            endpoint.base_url + "/v1" + exchange.format.path,
            content=exchange.request.body,
            headers=_passed_on(exchange.request.headers, endpoint.key),
        )
        try:
            answer = await self._opened().send(request, stream=True)
            if not answer.is_success:
                return await self._refused(exchange, answer, secrets)
            if not exchange.wire.stream:
                return self._whole(exchange, await answer.aread(), answer.headers, secrets)
        except httpx.HTTPError as error:
            text = f"{endpoint.base_url} cannot be reached: {redacted(str(error), secrets)}"
            return self._failed(exchange, failure(text, NETWORK))
        headers = {name: answer.headers[name] for name in _ANSWERED if name in answer.headers}
        return HttpResponse(headers=headers, body=self._teed(exchange, answer, secrets))

    async def aclose(self) -> None:
        """Read what is still under way to its end, and close the connections."""
        while self._reading:
            await asyncio.wait(list(self._reading))
        client, self._client = self._client, None
        if client is not None:
            await client.aclose()

    async def _teed(
        self, exchange: Exchange, answer: httpx.Response, secrets: list[str]
    ) -> AsyncIterator[bytes]:
        pieces: asyncio.Queue[bytes | None] = asyncio.Queue()
        task = asyncio.create_task(self._read(exchange, answer, secrets, pieces))
        self._reading[task] = None
        task.add_done_callback(lambda done: self._reading.pop(done, None))
        while (piece := await pieces.get()) is not None:
            yield piece

    async def _read(
        self,
        exchange: Exchange,
        answer: httpx.Response,
        secrets: list[str],
        pieces: asyncio.Queue[bytes | None],
    ) -> None:
        """Read an answer to its end, log it, and hand its bytes over."""
        import httpx

        decoder = exchange.format.stream_decoder(secrets=secrets)
        raw: list[bytes] = []
        chunks: list[Chunk] = []

        def take(new: list[Chunk]) -> None:
            for chunk in new:
                chunks.append(chunk)
                exchange.call.chunk(chunk)
            if any(is_finish(chunk) for chunk in new):
                exchange.over()  # before the client sees the end, and may ask again

        try:
            async for data in answer.aiter_bytes():
                raw.append(data)
                take(decoder.feed(data))
                pieces.put_nowait(data)
            take(decoder.close())
        except httpx.HTTPError as error:
            take(decoder.fail(failure(f"the stream broke: {redacted(str(error), secrets)}", STREAM_CLOSED)))
        finally:
            exchange.over()
            pieces.put_nowait(None)
            await answer.aclose()
        if not self._was_cut(exchange, chunks):
            self._compare(exchange, b"".join(raw), chunks)

    def _was_cut(self, exchange: Exchange, chunks: list[Chunk]) -> bool:
        """Whether an answer broke off before its end marker; says so once."""
        reason = chunks[-1].get("reason") if chunks and is_finish(chunks[-1]) else {}
        failed = reason.get("failure", {}) if isinstance(reason, dict) else {}
        if chunks and failed.get("code") != STREAM_CLOSED:
            return False
        asked = exchange.call.request
        self.cut.append(
            f"the endpoint broke off its answer to call {asked.call} of conversation {asked.session_id}: "
            f"{failed.get('message', 'it sent nothing')}; record again"
        )
        return True

    def _whole(
        self, exchange: Exchange, body: bytes, headers: Mapping[str, str], secrets: list[str]
    ) -> HttpResponse:
        try:
            value: Any = jsontext.loads(body)
        except ValueError as error:
            return self._failed(exchange, failure(f"the answer is not JSON: {error}", "MALFORMED_STREAM"))
        chunks = exchange.format.decode_response(value, secrets=secrets)
        for chunk in chunks:
            exchange.call.chunk(chunk)
        exchange.over()
        self._compare(exchange, body, chunks)
        return HttpResponse(headers={n: headers[n] for n in _ANSWERED if n in headers}, body=body)

    async def _refused(self, exchange: Exchange, answer: httpx.Response, secrets: list[str]) -> HttpResponse:
        body = await answer.aread()
        described = failure_of_response(answer.status_code, answer.headers, body, secrets=secrets)
        self._log(exchange, described)
        headers = {name: answer.headers[name] for name in _ANSWERED if name in answer.headers}
        return HttpResponse(status=answer.status_code, headers=headers, body=body)

    def _failed(self, exchange: Exchange, described: Failure) -> HttpResponse:
        self._log(exchange, described)
        status, headers, body = exchange.format.error_response(described)
        return HttpResponse(status=status, headers=headers, body=body)

    def _log(self, exchange: Exchange, described: Failure) -> None:
        exchange.call.chunk(error_finish(described))
        exchange.over()

    def _compare(self, exchange: Exchange, sent: bytes, chunks: list[Chunk]) -> None:
        self.losses |= dict.fromkeys(lost(exchange, sent, chunks))

    def _opened(self) -> httpx.AsyncClient:
        if self._client is None:
            import httpx

            self._client = httpx.AsyncClient(timeout=httpx.Timeout(_TIMEOUT_S), trust_env=True)
        return self._client


def _passed_on(headers: Mapping[str, str], key: str | None) -> dict[str, str]:
    """The headers of a request to the endpoint: those of the client, with the runner's key."""
    passed = {name: value for name, value in headers.items() if name not in _KEPT_BACK}
    passed["accept-encoding"] = "identity"  # a compressor would hold deltas back
    for name in ("authorization", "x-api-key", "api-key"):
        if name in headers:
            prefix = "Bearer " if name == "authorization" else ""
            passed[name] = headers[name] if key is None else prefix + key
    return passed
