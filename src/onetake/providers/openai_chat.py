"""The adapter to any chat-completions endpoint: DeepSeek, OpenAI-compatible services, local servers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from onetake.providers.http import HttpProvider
from onetake.wire.chat_decode import ChatStreamDecoder, decode_response
from onetake.wire.chat_request import ChatDialect, encode_request

if TYPE_CHECKING:
    from onetake.model.request import ModelRequest
    from onetake.model.types import Chunk


class OpenAIChatProvider(HttpProvider):
    """Answers model calls by asking a chat-completions endpoint; see `onetake.providers.http`."""

    path = "/chat/completions"

    def __init__(self, id: str, *, dialect: ChatDialect | None = None, **settings: Any) -> None:
        """Describe an endpoint: `settings` are those of `HttpProvider`."""
        super().__init__(id, **settings)
        self._dialect = dialect

    def encoded(self, request: ModelRequest) -> dict[str, Any]:
        """The body of a call. Raises WireError."""
        return encode_request(request, self._dialect)

    def decoder(self, secrets: Sequence[str]) -> ChatStreamDecoder:
        """A decoder for one streamed answer."""
        return ChatStreamDecoder(secrets=secrets)

    def decoded(self, value: Any, secrets: Sequence[str]) -> list[Chunk]:
        """The chunks of an answer that was not streamed."""
        return decode_response(value, secrets=secrets)
