"""What every wire format offers, whichever it is: the one shape that adapters, gateway and fault server use.

A format is a set of pure functions between bytes or JSON of a provider and our own requests and chunks. The
client side (an adapter) encodes requests and decodes answers, the server side (gateway, mock model) decodes
requests and encodes answers; both are here, so that each can test the other.

Nothing that a client needs back may get lost. Signatures, encrypted reasoning, ids and fields that we do not
know travel as `replayState` (`{response, blocks?}`) on the `finish` chunk, and so on the source of the
message: reading a request gives an assistant message with equal content and equal `replayState` when the
client sends back what the model said.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from onetake.model.assembler import BlockAssembler
from onetake.model.failures import STREAM_CLOSED, Failure, failure
from onetake.model.types import Chunk, Message, Reason

if TYPE_CHECKING:
    from onetake.model.request import ModelRequest


def state_of(chunks: Iterable[Chunk]) -> Any:
    """The `replayState` that the chunks of an answer end with, or None."""
    return next((chunk["replayState"] for chunk in chunks if "replayState" in chunk), None)


def assembled(chunks: Iterable[Chunk]) -> tuple[BlockAssembler, Reason]:
    """A whole answer, and how it ended: without a finish it was cut short."""
    assembler = BlockAssembler()
    for chunk in chunks:
        assembler.push(chunk)
    if assembler.finished:
        return assembler, assembler.finish
    return assembler, {"failure": failure("the answer ended before it finished", STREAM_CLOSED)}


Answer = tuple[int, dict[str, str], bytes]
"""Status, headers and body of an answer that is not streamed."""


class WireRequest(msgspec.Struct, kw_only=True):
    """A request as a server reads it. Its messages have no ids: no format carries them."""

    model: str
    """The model that is asked for."""
    system: str | None = None
    """The system prompt."""
    tools: list[dict[str, Any]] | None = None
    """Tools with `name`, `description`, `parameters` and what else came with them; a provider's own tools
    (such as a web search) as they came."""
    messages: list[Message] = []
    """The history in our own shape; unknown fields of a message under `extra`, of a part on its block."""
    config: dict[str, Any] = {}
    """The settings that were recognised, by our names (`maxTokens`, `reasoningEffort`, ...)."""
    settings: dict[str, Any] = {}
    """Every top-level field but those of model, system, tools and messages, as it came."""
    stream: bool = False
    """Whether the answer is to be streamed."""
    include_usage: bool = False
    """Whether a streamed answer is to report its usage, where the format leaves that to the client."""
    previous: str | None = None
    """The id of the answer that this request goes on from, where the history stays with the server."""


class StreamDecoder(Protocol):
    """Bytes of one answer in, chunks out; never raises, whatever comes."""

    @property
    def finished(self) -> bool:
        """Whether the answer has ended, with whatever reason."""
        ...

    def feed(self, data: bytes) -> list[Chunk]:
        """Take the next bytes, cut anywhere."""
        ...

    def close(self) -> list[Chunk]:
        """The connection has ended: before the end marker that is `STREAM_CLOSED`."""
        ...

    def fail(self, described: Failure) -> list[Chunk]:
        """The transport has failed."""
        ...


class StreamEncoder(Protocol):
    """Chunks of one answer in, bytes out."""

    def push(self, chunk: Chunk) -> bytes:
        """The bytes for one chunk, which may be none. Raises WireError for what the format cannot say."""
        ...


class WireFormat(Protocol):
    """One format, in both directions."""

    name: str
    """`openai-chat`, `openai-responses` or `anthropic-messages`."""
    path: str
    """Where its endpoint is, below the version: `/chat/completions`, `/responses`, `/messages`."""

    def encode_request(self, request: ModelRequest, *, stream: bool = True) -> dict[str, Any]:
        """The body of a model call. Raises WireError for content that the format cannot carry."""
        ...

    def decode_request(self, body: Any) -> WireRequest:
        """Read a request body. Raises WireError, naming the field, when it is not of the format."""
        ...

    def stream_decoder(self, *, secrets: Sequence[str] = ()) -> StreamDecoder:
        """A decoder for one streamed answer; no failure shows any of the `secrets`."""
        ...

    def decode_response(self, value: Any, *, secrets: Sequence[str] = ()) -> list[Chunk]:
        """The chunks of an answer that was not streamed."""
        ...

    def stream_encoder(self, request: WireRequest, response_id: str, state: Any = None) -> StreamEncoder:
        """An encoder for one streamed answer.

        `state` is the `replayState` that the answer will end with, where it is known before (`state_of`): ids
        and the like come first on the wire. `response_id` is used where it has none.
        """
        ...

    def encode_response(self, chunks: Sequence[Chunk], request: WireRequest, response_id: str) -> Answer:
        """An answer that is not streamed, or the error that the chunks end with."""
        ...

    def error_response(self, described: Failure) -> Answer:
        """The answer that stands for a failure before anything was said."""
        ...
