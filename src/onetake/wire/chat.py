"""The chat-completions format, which DeepSeek and nearly every local server speak: all of it from one place.

`chat_request` holds requests in both directions, `chat_decode` answers into chunks, `chat_encode` chunks into
answers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from onetake.model.failures import Failure
from onetake.model.types import Chunk
from onetake.wire.chat_decode import DONE, ChatStreamDecoder, ChunkDecoder, decode_response, decode_usage
from onetake.wire.chat_encode import ChatStreamEncoder, encode_response, encode_usage
from onetake.wire.chat_request import ChatDialect, ChatRequest, WireError, decode_request, encode_request
from onetake.wire.errors import response_of_failure
from onetake.wire.format import Answer, WireRequest

if TYPE_CHECKING:
    from onetake.model.request import ModelRequest

__all__ = [
    "CHAT",
    "DONE",
    "ChatDialect",
    "ChatRequest",
    "ChatStreamDecoder",
    "ChatStreamEncoder",
    "ChunkDecoder",
    "WireError",
    "decode_request",
    "decode_response",
    "decode_usage",
    "encode_request",
    "encode_response",
    "encode_usage",
]

_READ = frozenset({"model", "messages", "tools"})


class ChatFormat:
    """Chat completions, as `onetake.wire.format` wants a format."""

    name = "openai-chat"
    path = "/chat/completions"

    def encode_request(self, request: ModelRequest, *, stream: bool = True) -> dict[str, Any]:
        """The body of a model call. Raises WireError."""
        return encode_request(request, stream=stream)

    def decode_request(self, body: Any) -> WireRequest:
        """Read a request body. Raises WireError."""
        read = msgspec.structs.asdict(decode_request(body))
        return WireRequest(**read, settings={key: body[key] for key in body if key not in _READ})

    def stream_decoder(self, *, secrets: Sequence[str] = ()) -> ChatStreamDecoder:
        """A decoder for one streamed answer."""
        return ChatStreamDecoder(secrets=secrets)

    def decode_response(self, value: Any, *, secrets: Sequence[str] = ()) -> list[Chunk]:
        """The chunks of an answer that was not streamed."""
        return decode_response(value, secrets=secrets)

    def stream_encoder(self, request: WireRequest, response_id: str, state: Any = None) -> ChatStreamEncoder:
        """An encoder for one streamed answer; this format leaves no state."""
        return ChatStreamEncoder(request.model, response_id=response_id, include_usage=request.include_usage)

    def encode_response(self, chunks: Sequence[Chunk], request: WireRequest, response_id: str) -> Answer:
        """An answer that is not streamed."""
        return encode_response(chunks, request.model, response_id=response_id)

    def error_response(self, described: Failure) -> Answer:
        """The answer that stands for a failure."""
        return response_of_failure(described)


CHAT = ChatFormat()
