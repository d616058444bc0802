"""What every adapter to a model endpoint over HTTP does alike: ask once, and report what happened.

Whether to ask again is the harness's decision, so there are no retries here. Every call ends with a `finish`:
a failure to connect, an HTTP error, a stall and a broken stream are finishes with a failure (see
`onetake.wire.errors` for the codes). Where a connection breaks decides its name: `NETWORK` before the answer
began, `STREAM_CLOSED` after. Only cancellation leaves no finish; it closes the connection at once.

The key is looked up when the first call needs it, so an agent without a key starts, and never appears in a
message. The system's proxy settings (`HTTPS_PROXY`, `NO_PROXY`, ...) apply, except that a loopback address is
always reached directly. httpx takes long to import and is only imported by the first call.
"""

from __future__ import annotations

import os
import re
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from onetake import jsontext
from onetake.model.failures import MALFORMED_STREAM, STREAM_CLOSED, TIMEOUT, Failure, error_finish, failure
from onetake.wire.chat_request import WireError
from onetake.wire.errors import BAD_REQUEST, MISSING_CREDENTIAL, NETWORK, failure_of_response, redacted

if TYPE_CHECKING:
    import httpx

    from onetake.model.registry import ModelInfo
    from onetake.model.request import ModelRequest
    from onetake.model.types import Chunk
    from onetake.wire.format import StreamDecoder

_CREDENTIALS = re.compile(r"//[^/@]*@")
_MOST_ERROR_BYTES = 65536
"""How much of an error's body is read."""


class HttpProvider:
    """Answers model calls by asking an endpoint; a format says what is sent and how answers are read."""

    path = ""
    """What is appended to the base URL."""

    def __init__(
        self,
        id: str,
        *,
        base_url: str,
        models: Mapping[str, ModelInfo],
        api_key: str | None = None,
        api_key_env: str | None = None,
        environ: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        idle_timeout_s: float = 300.0,
        connect_timeout_s: float = 15.0,
    ) -> None:
        """Describe an endpoint; nothing is opened before the first call.

        `base_url` is what the format's path is appended to. The key is `api_key`, or the value of the
        variable `api_key_env` in `environ` (the process environment by default); with neither, none is sent.
        `headers` are sent along. `idle_timeout_s` limits the silence between two arrivals of bytes, the first
        included; comments that keep a stream alive count. Times are in seconds.
        """
        self.id = id
        self.models = models
        self._url = base_url.rstrip("/") + self.path
        self._shown_url = _CREDENTIALS.sub("//", self._url)
        self._api_key = api_key
        self._api_key_env = api_key_env
        self._environ = os.environ if environ is None else environ
        self._headers = dict(headers or {})
        self._idle_timeout_s = idle_timeout_s
        self._connect_timeout_s = connect_timeout_s
        self._client: httpx.AsyncClient | None = None

    def encoded(self, request: ModelRequest) -> dict[str, Any]:
        """The body of a call. Raises WireError."""
        raise NotImplementedError

    def decoder(self, secrets: Sequence[str]) -> StreamDecoder:
        """A decoder for one streamed answer."""
        raise NotImplementedError

    def decoded(self, value: Any, secrets: Sequence[str]) -> list[Chunk]:
        """The chunks of an answer that was not streamed."""
        raise NotImplementedError

    def key_headers(self, key: str) -> dict[str, str]:
        """The headers that carry the key."""
        return {"authorization": f"Bearer {key}"}

    async def stream(self, request: ModelRequest) -> AsyncIterator[Chunk]:
        """Make one call and yield its chunks, the last one a `finish`; close the iterator to give it up."""
        try:
            key = self._key()
            body = jsontext.dumps(self.encoded(request))
        except _NotAsked as refusal:
            yield error_finish(refusal.failure)
            return
        except WireError as error:
            yield error_finish(failure(f"the request cannot be sent: {error}", BAD_REQUEST))
            return
        secrets = self._secrets(key)
        decoder = self.decoder(secrets)
        import httpx

        begun = False
        try:
            asked = self._opened().stream("POST", self._url, content=body, headers=self._sent_headers(key))
            async with asked as response:
                begun = True
                if not response.is_success:
                    error_body = await _beginning(response)
                    status, headers = response.status_code, response.headers
                    yield error_finish(failure_of_response(status, headers, error_body, secrets=secrets))
                    return
                if response.headers.get("content-type", "").startswith("application/json"):
                    for chunk in self._whole_answer(await response.aread(), secrets):
                        yield chunk
                    return
                async for data in response.aiter_bytes():
                    for chunk in decoder.feed(data):
                        yield chunk
                    if decoder.finished:
                        return
            for chunk in decoder.close():
                yield chunk
        except (httpx.HTTPError, httpx.InvalidURL, httpx.StreamError) as error:
            for chunk in decoder.fail(self._transport_failure(error, begun, secrets)):
                yield chunk

    async def aclose(self) -> None:
        """Close the connections that are kept for later calls."""
        client, self._client = self._client, None
        if client is not None:
            await client.aclose()

    def _key(self) -> str | None:
        name = self._api_key_env
        key = self._api_key if self._api_key is not None or name is None else self._environ.get(name)
        if key is None and name is None:
            return None
        key = (key or "").strip()
        if not key:
            text = f"provider {self.id!r} has no API key: set the environment variable {name}"
            if name is None:
                text = f"provider {self.id!r} has an empty API key"
            raise _NotAsked(failure(text, MISSING_CREDENTIAL))
        if not (key.isascii() and key.isprintable()) or " " in key:
            where = "its API key" if self._api_key is not None else f"the environment variable {name}"
            text = f"provider {self.id!r}: {where} holds characters that no API key has"
            raise _NotAsked(failure(text, MISSING_CREDENTIAL))
        return key

    def _secrets(self, key: str | None) -> list[str]:
        """What no message may show: the key, and configured headers, which may hold another."""
        return [value for value in (key, *self._headers.values()) if value is not None and len(value) >= 8]

    def _sent_headers(self, key: str | None) -> dict[str, str]:
        headers = {"content-type": "application/json", "accept": "text/event-stream"}
        headers["accept-encoding"] = "identity"  # a compressor would hold deltas back
        headers |= {name.lower(): value for name, value in self._headers.items()}
        if key is not None:
            headers |= self.key_headers(key)
        return headers

    def _opened(self) -> httpx.AsyncClient:
        if self._client is None:
            import httpx

            local = httpx.URL(self._url).host in ("127.0.0.1", "localhost", "::1")
            self._client = httpx.AsyncClient(
                timeout=httpx.Timeout(self._idle_timeout_s, connect=self._connect_timeout_s),
                limits=httpx.Limits(max_connections=None, max_keepalive_connections=8),
                trust_env=not local,
            )
        return self._client

    def _whole_answer(self, body: bytes, secrets: list[str]) -> list[Chunk]:
        """Read an answer that was not streamed although a stream was asked for: some cannot stream."""
        try:
            value: Any = jsontext.loads(body)
        except ValueError as error:
            return [error_finish(failure(f"the provider's answer is not JSON: {error}", MALFORMED_STREAM))]
        return self.decoded(value, secrets)

    def _transport_failure(self, error: Exception, begun: bool, secrets: list[str]) -> Failure:
        import httpx

        if isinstance(error, httpx.ConnectTimeout):
            return failure(
                f"no connection to {self._shown_url} within {self._connect_timeout_s:g} s", TIMEOUT
            )
        if isinstance(error, httpx.TimeoutException):
            return failure(f"the provider was silent for {self._idle_timeout_s:g} s", TIMEOUT)
        detail = redacted(str(error) or type(error).__name__, secrets)
        if begun:
            return failure(
                f"the connection to the provider broke before the answer ended: {detail}", STREAM_CLOSED
            )
        return failure(f"the provider at {self._shown_url} cannot be reached: {detail}", NETWORK)


class _NotAsked(Exception):
    """The call cannot be made at all; `failure` says why."""

    def __init__(self, described: Failure) -> None:
        super().__init__(described["message"])
        self.failure = described


async def _beginning(response: httpx.Response) -> bytes:
    body = b""
    async for data in response.aiter_bytes():
        body += data
        if len(body) >= _MOST_ERROR_BYTES:
            break
    return body[:_MOST_ERROR_BYTES]
