"""The adapter to any endpoint of OpenAI's Responses format."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from onetake.providers.http import HttpProvider
from onetake.wire.responses_decode import ResponsesStreamDecoder, decode_response
from onetake.wire.responses_request import encode_request

if TYPE_CHECKING:
    from onetake.model.request import ModelRequest
    from onetake.model.types import Chunk


class OpenAIResponsesProvider(HttpProvider):
    """Answers model calls by asking a Responses endpoint; see `onetake.providers.http`.

    The history is sent whole with every call and nothing is stored at the endpoint, so reasoning comes and
    goes back encrypted.
    """

    path = "/responses"

    def __init__(self, id: str, *, extra: Mapping[str, Any] | None = None, **settings: Any) -> None:
        """Describe an endpoint: `settings` as for `HttpProvider`; `extra` goes along with every call."""
        super().__init__(id, **settings)
        self._extra = dict(extra or {})

    def encoded(self, request: ModelRequest) -> dict[str, Any]:
        """The body of a call. Raises WireError."""
        return encode_request(request) | self._extra

    def decoder(self, secrets: Sequence[str]) -> ResponsesStreamDecoder:
        """A decoder for one streamed answer."""
        return ResponsesStreamDecoder(secrets=secrets)

    def decoded(self, value: Any, secrets: Sequence[str]) -> list[Chunk]:
        """The chunks of an answer that was not streamed."""
        return decode_response(value, secrets=secrets)
