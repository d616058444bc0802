"""The answer of the chat-completions format, read into chunks: streamed or whole.

The rules:

- A block is a run of one kind. `reasoning_content` (or `reasoning`) and `content` (or `refusal`) continue the
  block that is open; when another kind came between, the next delta opens a new block. Empty strings are
  nothing: providers send them beside the other kind.
- A tool call is known by its `index` and may be continued at any time, interleaved with others. Its id and
  name stand in its first delta only; the chunks repeat them in each. A first delta without an id gets a fresh
  one. A new id together with a name, on an index that is taken, is another call: some endpoints number all
  calls 0, or none.
- Blocks start with their first delta and all end together, in order, when the stream does: then `usage`, then
  `finish`.
- `[DONE]` is the end. Bytes after it are ignored; an end before it is `STREAM_CLOSED`. What has arrived by
  then stays in blocks that never end.
- `finish_reason`: `stop`, `tool_calls` and the older `function_call` all mean `tool-calls` when there are any
  and `stop` when there are none, because endpoints differ in which they say; `length` means `max-tokens`;
  `content_filter` and everything else is no answer and becomes an error.
- An `error` object ends the stream as that failure; text that is not JSON, or of another shape, as
  `MALFORMED_STREAM`.
- Usage is made disjoint: `inputTokens` leaves out what the cache served (`cacheReadTokens`, from
  `prompt_tokens_details.cached_tokens` or DeepSeek's `prompt_cache_hit_tokens`). `reasoningTokens` tells how
  many of the `outputTokens` were reasoning. The last usage that a stream reports counts.
- Only the choice with index 0 is read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from onetake import jsontext
from onetake.model.failures import MALFORMED_STREAM, STREAM_CLOSED, Failure, error_finish, failure
from onetake.model.types import Block, Chunk, Reason, Usage, new_id
from onetake.wire.chat_request import WireError
from onetake.wire.errors import CONTENT_FILTER, OVERLOADED, failure_of_error
from onetake.wire.sse import SSEDecoder
from onetake.wire.usage import count, details, disjoint

DONE = "[DONE]"
"""The data of the event that ends a stream."""

_COMPLETE = ("stop", "tool_calls", "function_call")
_REFUSALS = {
    "content_filter": (CONTENT_FILTER, "the provider's content filter stopped the answer"),
    "insufficient_system_resource": (OVERLOADED, "the provider ran out of resources during the answer"),
}


class _OpenBlock:
    """A block that deltas arrive for."""

    __slots__ = ("call_id", "index", "kind", "name", "pieces")

    def __init__(self, index: int, kind: str) -> None:
        self.index = index
        self.kind = kind
        self.pieces: list[str] = []
        self.call_id = ""
        self.name = ""

    def end(self) -> Chunk:
        text = join_text(self.pieces)
        block: Block = {"type": self.kind, "text": text}
        if self.kind == "tool-call":
            block = {"type": "tool-call", "id": self.call_id, "name": self.name, "arguments": text}
        return {"type": "block-end", "index": self.index, "block": block}


class ChunkDecoder:
    """Turns the JSON values of a stream, one after the other, into chunks."""

    def __init__(self, *, secrets: Iterable[str] = (), new_call_id: Callable[[], str] = new_id) -> None:
        """Keep `secrets` out of failure messages; `new_call_id` names tool calls that come without an id."""
        self.finished = False
        """Whether the `finish` chunk was given out: nothing comes after it."""
        self._secrets = tuple(secrets)
        self._new_call_id = new_call_id
        self._blocks: list[_OpenBlock] = []
        self._calls: dict[int, _OpenBlock] = {}
        self._usage: Usage | None = None
        self._finish: str | None = None

    def push(self, value: Any) -> list[Chunk]:
        """Take the next value and return its chunks; a malformed one ends the stream as a failure."""
        if self.finished:
            return []
        chunks: list[Chunk] = []
        try:
            self._take(value, chunks)
        except WireError as error:
            chunks += self.fail(failure(f"the provider's stream is malformed: {error}", MALFORMED_STREAM))
        return chunks

    def end(self) -> list[Chunk]:
        """Take the end marker: return the ends of all blocks, the usage and the finish."""
        if self.finished:
            return []
        reason = _reason(self._finish, bool(self._calls))
        if reason["kind"] == "error":
            return self.fail(reason["failure"])
        self.finished = True
        ends = [block.end() for block in self._blocks]
        return [*ends, *self._usage_chunks(), {"type": "finish", "reason": reason}]

    def fail(self, described: Failure) -> list[Chunk]:
        """End the stream as a failure; blocks stay open, a usage that was reported counts."""
        if self.finished:
            return []
        self.finished = True
        return [*self._usage_chunks(), error_finish(described)]

    def _usage_chunks(self) -> list[Chunk]:
        return [] if self._usage is None else [{"type": "usage", "usage": self._usage}]

    def _take(self, value: Any, chunks: list[Chunk]) -> None:
        if not isinstance(value, dict):
            raise WireError("an event is not an object")
        if value.get("error") is not None:
            chunks += self.fail(failure_of_error(value["error"], secrets=self._secrets))
            return
        if isinstance(value.get("usage"), dict):
            self._usage = decode_usage(value["usage"])
        choices = value.get("choices")
        if choices is not None and not isinstance(choices, list):
            raise WireError("choices is not a list")
        for choice in choices or ():
            if not isinstance(choice, dict):
                raise WireError("a choice is not an object")
            if choice.get("index", 0) == 0:
                self._take_choice(choice, chunks)

    def _take_choice(self, choice: dict[str, Any], chunks: list[Chunk]) -> None:
        delta = choice.get("delta")
        if delta is not None and not isinstance(delta, dict):
            raise WireError("a delta is not an object")
        if delta:
            reasoning = _text_of(delta, "reasoning_content") or _text_of(delta, "reasoning")
            if reasoning:
                self._take_text("reasoning", reasoning, chunks)
            text = _text_of(delta, "content") or _text_of(delta, "refusal")
            if text:
                self._take_text("text", text, chunks)
            calls = delta.get("tool_calls")
            if calls is not None and not isinstance(calls, list):
                raise WireError("tool_calls is not a list")
            for call in calls or ():
                self._take_call(call, chunks)
        finish = choice.get("finish_reason")
        if finish is not None:
            self._finish = str(finish)

    def _take_text(self, kind: str, text: str, chunks: list[Chunk]) -> None:
        block = self._blocks[-1] if self._blocks else None
        if block is None or block.kind != kind:
            block = self._open(kind, chunks)
        block.pieces.append(text)
        chunks.append({"type": f"{kind}-delta", "index": block.index, "text": text})

    def _take_call(self, call: Any, chunks: list[Chunk]) -> None:
        function = (call.get("function") or {}) if isinstance(call, dict) else None
        if not isinstance(function, dict):
            raise WireError("a tool call is not an object with a function")
        call_id, name, piece = (
            _text_of(call, "id"),
            _text_of(function, "name"),
            _text_of(function, "arguments"),
        )
        number = call.get("index")
        if number is None:
            number = 0
        if not isinstance(number, int):
            raise WireError("a tool call's index is not a number")
        block = self._calls.get(number)
        if block is None or (name and call_id and call_id != block.call_id):
            block = self._calls[number] = self._open("tool-call", chunks)
            block.call_id = call_id or self._new_call_id()
        block.name = block.name or name
        block.pieces.append(piece)
        delta: Chunk = {"type": "tool-call-delta", "index": block.index, "id": block.call_id}
        if block.name:
            delta["name"] = block.name
        delta["argumentsDelta"] = piece
        chunks.append(delta)

    def _open(self, kind: str, chunks: list[Chunk]) -> _OpenBlock:
        block = _OpenBlock(len(self._blocks), kind)
        self._blocks.append(block)
        chunks.append({"type": "block-start", "index": block.index, "blockType": kind})
        return block


class ChatStreamDecoder:
    """Turns the bytes of a streamed answer into chunks; feed it pieces of any size."""

    def __init__(self, *, secrets: Iterable[str] = (), new_call_id: Callable[[], str] = new_id) -> None:
        """See `ChunkDecoder`."""
        self._events = SSEDecoder()
        self._chunks = ChunkDecoder(secrets=secrets, new_call_id=new_call_id)

    @property
    def finished(self) -> bool:
        """Whether the `finish` chunk was given out; the rest of the connection does not matter."""
        return self._chunks.finished

    def feed(self, data: bytes) -> list[Chunk]:
        """Take the next bytes and return the chunks that they complete."""
        chunks: list[Chunk] = []
        for event in self._events.feed(data):
            chunks += self._take(event.data)
        return chunks

    def close(self) -> list[Chunk]:
        """End the stream: without its end marker it becomes the failure `STREAM_CLOSED`.

        A marker that only lacks its blank line counts, because everything before it was complete.
        """
        rest = self._events.close()
        if rest is not None and rest.data == DONE:
            return self._chunks.end()
        where = "between events" if rest is None else "inside an event"
        return self.fail(
            failure(f"the provider's stream ended {where}, before its end marker", STREAM_CLOSED)
        )

    def fail(self, described: Failure) -> list[Chunk]:
        """End the stream as a failure that the transport found."""
        return self._chunks.fail(described)

    def _take(self, data: str) -> list[Chunk]:
        if data == DONE:
            return self._chunks.end()
        try:
            value = jsontext.loads(data)
        except ValueError as error:
            return self.fail(
                failure(f"the provider's stream holds what is not JSON: {error}", MALFORMED_STREAM)
            )
        return self._chunks.push(value)


def decode_response(
    body: Any, *, secrets: Iterable[str] = (), new_call_id: Callable[[], str] = new_id
) -> list[Chunk]:
    """Read a whole (not streamed) answer as the chunks of a stream: each block is one delta."""
    chunks = ChunkDecoder(secrets=secrets, new_call_id=new_call_id)
    value = body
    if isinstance(body, dict) and isinstance(body.get("choices"), list):
        value = {**body, "choices": [_as_delta(choice) for choice in body["choices"]]}
    return chunks.push(value) + chunks.end()


def decode_usage(usage: dict[str, Any]) -> Usage:
    """Return disjoint token counts: input and output always, the others where the provider reports them."""
    cached = details(usage, "prompt_tokens_details").get("cached_tokens")
    if count(cached) is None:
        cached = usage.get("prompt_cache_hit_tokens")
    reasoning = details(usage, "completion_tokens_details").get("reasoning_tokens")
    return disjoint(usage.get("prompt_tokens"), usage.get("completion_tokens"), cached, reasoning)


def join_text(pieces: list[str]) -> str:
    """Join the pieces of a text; a surrogate pair that was cut in two becomes its character again."""
    text = "".join(pieces)
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")
    return text


def _as_delta(choice: Any) -> Any:
    """Show the choice of a whole answer as the one of a stream: its message is one large delta."""
    if not isinstance(choice, dict) or not isinstance(choice.get("message"), dict):
        return choice
    delta = choice["message"]
    calls = delta.get("tool_calls")
    if isinstance(calls, list):
        numbered = [{**call, "index": n} if isinstance(call, dict) else call for n, call in enumerate(calls)]
        delta = {**delta, "tool_calls": numbered}
    return {**choice, "delta": delta}


def _reason(finish: str | None, has_calls: bool) -> Reason:
    if finish is None:
        text = "the provider's stream ended without a finish_reason"
        return {"kind": "error", "failure": failure(text, MALFORMED_STREAM)}
    if finish in _REFUSALS:
        code, text = _REFUSALS[finish]
        return {"kind": "error", "failure": failure(text, code)}
    if finish == "length":
        return {"kind": "max-tokens"}
    if finish in _COMPLETE:
        return {"kind": "tool-calls" if has_calls else "stop"}
    text = f"the provider ended the answer with an unknown finish_reason, {finish!r}"
    return {"kind": "error", "failure": failure(text, MALFORMED_STREAM)}


def _text_of(holder: dict[str, Any], key: str) -> str:
    value = holder.get(key)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise WireError(f"{key} is not a string")
    return value
