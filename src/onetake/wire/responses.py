"""OpenAI's Responses format, which its newer SDKs and agents speak: all of it from one place.

`responses_request` holds requests in both directions, `responses_decode` answers into chunks,
`responses_encode` chunks into answers, and `responses_items` the items that requests and answers share.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from onetake.model.failures import Failure
from onetake.model.types import Chunk
from onetake.wire.errors import response_of_failure
from onetake.wire.format import Answer, WireRequest
from onetake.wire.responses_decode import ResponsesStreamDecoder, decode_response
from onetake.wire.responses_encode import ResponsesStreamEncoder, encode_response
from onetake.wire.responses_request import decode_request, encode_request

if TYPE_CHECKING:
    from onetake.model.request import ModelRequest


class ResponsesFormat:
    """Responses, as `onetake.wire.format` wants a format."""

    name = "openai-responses"
    path = "/responses"

    def encode_request(self, request: ModelRequest, *, stream: bool = True) -> dict[str, Any]:
        """The body of a model call. Raises WireError."""
        return encode_request(request, stream=stream)

    def decode_request(self, body: Any) -> WireRequest:
        """Read a request body. Raises WireError."""
        return decode_request(body)

    def stream_decoder(self, *, secrets: Sequence[str] = ()) -> ResponsesStreamDecoder:
        """A decoder for one streamed answer."""
        return ResponsesStreamDecoder(secrets=secrets)

    def decode_response(self, value: Any, *, secrets: Sequence[str] = ()) -> list[Chunk]:
        """The chunks of an answer that was not streamed."""
        return decode_response(value, secrets=secrets)

    def stream_encoder(
        self, request: WireRequest, response_id: str, state: Any = None
    ) -> ResponsesStreamEncoder:
        """An encoder for one streamed answer."""
        return ResponsesStreamEncoder(request.model, response_id=response_id, state=state)

    def encode_response(self, chunks: Sequence[Chunk], request: WireRequest, response_id: str) -> Answer:
        """An answer that is not streamed."""
        return encode_response(chunks, request.model, response_id=response_id)

    def error_response(self, described: Failure) -> Answer:
        """The answer that stands for a failure."""
        return response_of_failure(described)


RESPONSES = ResponsesFormat()
