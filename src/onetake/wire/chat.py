"""The chat-completions format, which DeepSeek and nearly every local server speak: all of it from one place.

`chat_request` holds requests in both directions, `chat_decode` answers into chunks, `chat_encode` chunks into
answers.
"""

from __future__ import annotations

from onetake.wire.chat_decode import DONE, ChatStreamDecoder, ChunkDecoder, decode_response, decode_usage
from onetake.wire.chat_encode import ChatStreamEncoder, encode_response, encode_usage
from onetake.wire.chat_request import ChatDialect, ChatRequest, WireError, decode_request, encode_request

__all__ = [
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
