"""The adapter to any endpoint of Anthropic's Messages format."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from onetake.providers.http import HttpProvider
from onetake.wire.messages_decode import MessagesStreamDecoder, decode_response
from onetake.wire.messages_request import MessagesDialect, encode_request

if TYPE_CHECKING:
    from onetake.model.request import ModelRequest
    from onetake.model.types import Chunk

_VERSION = "2023-06-01"


class AnthropicMessagesProvider(HttpProvider):
    """Answers model calls by asking a Messages endpoint; see `onetake.providers.http`."""

    path = "/messages"

    def __init__(self, id: str, *, dialect: MessagesDialect | None = None, **settings: Any) -> None:
        """Describe an endpoint: `settings` are those of `HttpProvider`."""
        settings["headers"] = {"anthropic-version": _VERSION, **(settings.get("headers") or {})}
        super().__init__(id, **settings)
        self._dialect = dialect

    def encoded(self, request: ModelRequest) -> dict[str, Any]:
        """The body of a call. Raises WireError."""
        return encode_request(request, self._dialect)

    def decoder(self, secrets: Sequence[str]) -> MessagesStreamDecoder:
        """A decoder for one streamed answer."""
        return MessagesStreamDecoder(secrets=secrets)

    def decoded(self, value: Any, secrets: Sequence[str]) -> list[Chunk]:
        """The chunks of an answer that was not streamed."""
        return decode_response(value, secrets=secrets)

    def key_headers(self, key: str) -> dict[str, str]:
        """The header that carries the key."""
        return {"x-api-key": key}
