"""The answer of Anthropic's Messages format, read into chunks: streamed or whole.

The rules:

- A content block begins, gets deltas and stops by its `index`; blocks may overlap. `text` is a block of text,
  `thinking` and `redacted_thinking` are reasoning, `tool_use` is a tool call. Other types (a provider's own
  tools) become blocks of that type, whole at their end.
- `message_stop` is the end; a connection that ends before it is `STREAM_CLOSED`.
- `end_turn`, `stop_sequence`, `pause_turn` and `tool_use` mean `tool-calls` when there are any and `stop`
  when there are none; `max_tokens` and `model_context_window_exceeded` mean `max-tokens`; `refusal` and
  everything else is no answer and becomes an error.
- Usage counts are cumulative, so the last one given counts. The format's `input_tokens` leave the cache out,
  as ours do: `cacheReadTokens` and `cacheWriteTokens` stand beside them. A message that begins with zeros
  everywhere has not reported any.
- The finish carries `replayState`. `blocks` holds one state for each block (see `messages_blocks`).
  `response` holds `message` (what `message_start` said), `delta` (the last `message_delta`) and `events`:
  every event that cannot be told from chunks and states, such as a `ping`, with its place (`at`) among all
  events; with `instead` it stands for the event that would be there. A whole answer has no `events`.
- An `error` event ends the stream as that failure; what is not of the format as `MALFORMED_STREAM`.

Source: Anthropic's documentation of the Messages API and of streaming.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from onetake import jsontext
from onetake.model.failures import MALFORMED_STREAM, STREAM_CLOSED, Failure, error_finish, failure
from onetake.model.types import Block, Chunk, Reason, Usage
from onetake.wire.chat_decode import join_text
from onetake.wire.chat_request import WireError
from onetake.wire.errors import CONTENT_FILTER, failure_of_error
from onetake.wire.messages_blocks import OURS, read_input, state_of_part, written_input
from onetake.wire.sse import SSEDecoder

CUT_SHORT = ("max_tokens", "model_context_window_exceeded")
_COMPLETE = ("end_turn", "stop_sequence", "pause_turn", "tool_use")
KINDS = {"text": "text", "thinking": "reasoning", "redacted_thinking": "reasoning", "tool_use": "tool-call"}
_DELTAS = {
    "text": ("text_delta", "text"),
    "thinking": ("thinking_delta", "thinking"),
    "tool_use": ("input_json_delta", "partial_json"),
}
_COUNTS = (
    ("inputTokens", "input_tokens"),
    ("outputTokens", "output_tokens"),
    ("cacheReadTokens", "cache_read_input_tokens"),
    ("cacheWriteTokens", "cache_creation_input_tokens"),
)


def plain_start(kind: str, call_id: str = "", name: str = "") -> dict[str, Any]:
    """How a content block of a type begins when there is nothing special about it."""
    if kind == "text":
        return {"type": "text", "text": ""}
    if kind == "thinking":
        return {"type": "thinking", "thinking": "", "signature": ""}
    return {"type": "tool_use", "id": call_id, "name": name, "input": {}}


class _OpenBlock:
    """A block that deltas arrive for."""

    __slots__ = ("index", "kind", "part", "pieces", "signed", "state")

    def __init__(self, index: int, part: dict[str, Any]) -> None:
        self.index = index
        self.kind: str = part["type"]
        self.part = part
        self.pieces: list[str] = []
        self.signed: dict[str, Any] = {}
        self.state = state_of_part(part) if self.kind in KINDS else {"type": self.kind}

    def end(self) -> Chunk:
        return {"type": "block-end", "index": self.index, "block": self._block()}

    def _block(self) -> Block:
        text = join_text(self.pieces)
        if self.kind == "tool_use":
            return {
                "type": "tool-call",
                "id": self.part["id"],
                "name": self.part["name"],
                "arguments": text,
            }
        if self.kind in KINDS:
            return {"type": KINDS[self.kind], "text": text}
        return {**self.part, "input": read_input(text)} if text else dict(self.part)


class EventDecoder:
    """Turns the JSON values of a stream, one after the other, into chunks."""

    def __init__(self, *, secrets: Iterable[str] = (), whole: bool = False) -> None:
        """Keep `secrets` out of failure messages. A `whole` answer has no events worth keeping."""
        self.finished = False
        self._secrets = tuple(secrets)
        self._whole = whole
        self._place = -1
        self._kept: list[dict[str, Any]] = []
        self._message: dict[str, Any] | None = None
        self._delta: dict[str, Any] | None = None
        self._delta_place = 0
        self._counts: dict[str, int] = {}
        self._told_usage = False
        self._blocks: list[_OpenBlock] = []
        self._open: dict[int, _OpenBlock] = {}

    def push(self, value: Any) -> list[Chunk]:
        """Take the next value and return its chunks; a malformed one ends the stream as a failure."""
        if self.finished:
            return []
        chunks: list[Chunk] = []
        self._place += 1
        try:
            self._take(value, chunks)
        except WireError as error:
            chunks += self.fail(failure(f"the provider's stream is malformed: {error}", MALFORMED_STREAM))
        return chunks

    def fail(self, described: Failure) -> list[Chunk]:
        """End the stream as a failure; blocks stay open, a usage that was reported counts."""
        if self.finished:
            return []
        self.finished = True
        return [*self._usage_chunks(), error_finish(described)]

    def _take(self, value: Any, chunks: list[Chunk]) -> None:
        if not isinstance(value, dict):
            raise WireError("an event is not an object")
        kind = value.get("type")
        if kind == "error" or value.get("error") is not None:
            chunks += self.fail(failure_of_error(value.get("error"), secrets=self._secrets))
        elif kind == "message_start":
            self._begin(value)
        elif kind == "content_block_start":
            self._start(value, chunks)
        elif kind == "content_block_delta":
            self._piece(value, chunks)
        elif kind == "content_block_stop":
            chunks.append(self._block_of(value).end())
            del self._open[value["index"]]
        elif kind == "message_delta":
            self._change(value)
        elif kind == "message_stop":
            if len(value) > 1:
                self._keep(value, instead=True)
            chunks += self._end()
        else:
            self._keep(value)

    def _keep(self, event: dict[str, Any], *, instead: bool = False) -> None:
        kept: dict[str, Any] = {"at": self._place, "event": event}
        self._kept.append(kept | {"instead": True} if instead else kept)

    def _begin(self, value: dict[str, Any]) -> None:
        message = value.get("message")
        if not isinstance(message, dict):
            raise WireError("message_start has no message")
        if self._message is not None:
            return self._keep(value)
        if set(value) != {"type", "message"} or message.get("content") != []:
            self._keep(value, instead=True)
        self._message = {key: item for key, item in message.items() if key != "content"}
        self._count(message.get("usage"))

    def _start(self, value: dict[str, Any], chunks: list[Chunk]) -> None:
        number, part = value.get("index"), value.get("content_block")
        if type(number) is not int or not isinstance(part, dict):
            raise WireError("content_block_start needs an index and a content_block")
        kind = part.get("type")
        if number in self._open or not isinstance(kind, str) or kind in OURS:
            raise WireError(f"the content block {number} cannot begin")
        first = self._first(part)
        block = _OpenBlock(len(self._blocks), part)
        self._blocks.append(block)
        self._open[number] = block
        usual = {**part, "input": {}} if kind == "tool_use" else part
        if kind in _DELTAS:
            key = _DELTAS[kind][1]
            usual = usual if key not in part else {**usual, key: ""}
            plain = usual == plain_start(kind, part.get("id", ""), part.get("name", ""))
        else:
            plain = part.get("input") != {}  # deltas may bring the input, and the end alone would tell it
        if not plain or set(value) != {"type", "index", "content_block"}:
            self._keep({**value, "content_block": usual}, instead=True)
        chunks.append({"type": "block-start", "index": block.index, "blockType": KINDS.get(kind, kind)})
        if first:
            self._said(block, first, chunks)

    def _first(self, part: dict[str, Any]) -> str:
        """What a block says with its beginning; streams say nothing there."""
        kind = part["type"]
        if kind == "tool_use":
            for key in ("id", "name"):
                if not isinstance(part.get(key), str):
                    raise WireError(f"{key} of a tool_use is not a string")
            return written_input(part.get("input")) if part.get("input") or self._whole else ""
        text = part.get(kind) if kind in ("text", "thinking") else ""
        if text is not None and not isinstance(text, str):
            raise WireError(f"{kind} is not a string")
        return text or ""

    def _piece(self, value: dict[str, Any], chunks: list[Chunk]) -> None:
        block, delta = self._block_of(value), value.get("delta")
        if not isinstance(delta, dict):
            raise WireError("a delta is not an object")
        kind = delta.get("type")
        usual = set(value) == {"type", "index", "delta"} and len(delta) == 2
        told, key = _DELTAS.get(block.kind, ("", ""))
        if kind == told:
            self._said(block, _text_of(delta, key), chunks)
            if not usual:
                self._keep(value, instead=True)
            return
        if kind == "signature_delta" and block.kind == "thinking":
            return self._sign(block, value, usual=usual)
        if kind == "citations_delta" and block.kind == "text":
            cited = block.state.get("citations")
            block.state["citations"] = [*(cited if isinstance(cited, list) else []), delta.get("citation")]
        elif kind == "input_json_delta" and block.kind not in KINDS:
            block.pieces.append(_text_of(delta, "partial_json"))
        self._keep(value)

    def _said(self, block: _OpenBlock, piece: str, chunks: list[Chunk]) -> None:
        block.pieces.append(piece)
        if block.kind == "tool_use":
            delta: Chunk = {"type": "tool-call-delta", "index": block.index, "id": block.part["id"]}
            chunks.append({**delta, "name": block.part["name"], "argumentsDelta": piece})
        else:
            chunks.append({"type": f"{KINDS[block.kind]}-delta", "index": block.index, "text": piece})

    def _sign(self, block: _OpenBlock, value: dict[str, Any], *, usual: bool) -> None:
        """Add to a signature. The encoder sends a whole one as one event of its own; others are kept."""
        before = _text_of(block.state, "signature") if block.state.get("signature") else ""
        piece = _text_of(value["delta"], "signature")
        block.state["signature"] = join_text([before, piece])
        if before or not piece:
            if block.signed:
                self._kept.append({**block.signed, "instead": True})
            block.signed = {}
            return self._keep(value)
        block.signed = {"at": self._place, "event": value}
        if not usual:
            self._keep(value, instead=True)
            block.signed = {}

    def _block_of(self, value: dict[str, Any]) -> _OpenBlock:
        number = value.get("index")
        block = self._open.get(number) if type(number) is int else None
        if block is None:
            raise WireError(f"there is no open content block {number!r}")
        if value["type"] == "content_block_stop" and len(value) > 2:
            self._keep(value, instead=True)
        return block

    def _change(self, value: dict[str, Any]) -> None:
        delta = value.get("delta")
        if delta is not None and not isinstance(delta, dict):
            raise WireError("the delta of a message is not an object")
        if self._delta is not None:
            self._kept.append({"at": self._delta_place, "event": {"type": "message_delta", **self._delta}})
        self._delta = {key: item for key, item in value.items() if key != "type"}
        self._delta_place = self._place
        if isinstance(value.get("usage"), dict):
            self._told_usage = True
        self._count(value.get("usage"))

    def _count(self, usage: Any) -> None:
        for ours, theirs in _COUNTS:
            count = usage.get(theirs) if isinstance(usage, dict) else None
            if type(count) is int and count >= 0:
                self._counts[ours] = count

    def _usage_chunks(self) -> list[Chunk]:
        if not self._told_usage and not any(self._counts.values()):
            return []
        usage: Usage = {"inputTokens": 0, "outputTokens": 0}
        return [{"type": "usage", "usage": usage | self._counts}]

    def _end(self) -> list[Chunk]:
        ends = [block.end() for block in self._open.values()]
        told = (self._delta or {}).get("delta") or self._message or {}
        reason = _reason(
            told.get("stop_reason"),
            told.get("stop_details"),
            any(block.kind == "tool_use" for block in self._blocks),
        )
        cut = reason["kind"] == "max-tokens"
        response: dict[str, Any] = {"message": self._message, "delta": self._delta}
        if not self._whole:
            response["events"] = sorted(self._kept, key=lambda kept: int(kept["at"]))
        states = [
            {key: item for key, item in block.state.items() if item not in (None, "")}
            for block in self._blocks
            if not (cut and block.kind == "tool_use")
        ]
        self.finished = True
        finish = {"type": "finish", "reason": reason, "replayState": {"response": response, "blocks": states}}
        return [*ends, *self._usage_chunks(), finish]


class MessagesStreamDecoder:
    """Turns the bytes of a streamed answer into chunks; feed it pieces of any size."""

    def __init__(self, *, secrets: Iterable[str] = ()) -> None:
        self._events = SSEDecoder()
        self._chunks = EventDecoder(secrets=secrets)

    @property
    def finished(self) -> bool:
        """Whether the `finish` chunk was given out; the rest of the connection does not matter."""
        return self._chunks.finished

    def feed(self, data: bytes) -> list[Chunk]:
        """Take the next bytes and return the chunks that they complete."""
        return [chunk for event in self._events.feed(data) for chunk in self._take(event.data)]

    def close(self) -> list[Chunk]:
        """End the stream: without its end marker, which may lack its blank line, it is `STREAM_CLOSED`."""
        rest = self._events.close()
        if rest is not None and _is_stop(rest.data):
            return self._take(rest.data)
        where = "between events" if rest is None else "inside an event"
        return self.fail(
            failure(f"the provider's stream ended {where}, before its end marker", STREAM_CLOSED)
        )

    def fail(self, described: Failure) -> list[Chunk]:
        """End the stream as a failure that the transport found."""
        return self._chunks.fail(described)

    def _take(self, data: str) -> list[Chunk]:
        try:
            value = jsontext.loads(data)
        except ValueError as error:
            return self.fail(
                failure(f"the provider's stream holds what is not JSON: {error}", MALFORMED_STREAM)
            )
        return self._chunks.push(value)


def decode_response(body: Any, *, secrets: Iterable[str] = ()) -> list[Chunk]:
    """Read a whole (not streamed) answer as the chunks of a stream: each block is one delta."""
    chunks = EventDecoder(secrets=secrets, whole=True)
    if not isinstance(body, dict) or body.get("type") == "error" or body.get("error") is not None:
        return chunks.push(body if isinstance(body, dict) else None)
    content = body.get("content")
    if not isinstance(content, list):
        return chunks.fail(failure("the provider's answer is malformed: it has no content", MALFORMED_STREAM))
    ending = {key: body[key] for key in ("stop_reason", "stop_sequence", "stop_details") if key in body}
    message = {**body, "content": []} | dict.fromkeys(ending)
    found = chunks.push({"type": "message_start", "message": message})
    for number, part in enumerate(content):
        found += chunks.push({"type": "content_block_start", "index": number, "content_block": part})
        found += chunks.push({"type": "content_block_stop", "index": number})
    usage = {"usage": body["usage"]} if "usage" in body else {}
    found += chunks.push({"type": "message_delta", "delta": ending, **usage})
    return found + chunks.push({"type": "message_stop"})


def _is_stop(data: str) -> bool:
    try:
        value = jsontext.loads(data)
    except ValueError:
        return False
    return isinstance(value, dict) and value.get("type") in ("message_stop", "error")


def _reason(stop: Any, details: Any, has_calls: bool) -> Reason:
    if stop in CUT_SHORT:
        return {"kind": "max-tokens"}
    if stop in _COMPLETE:
        return {"kind": "tool-calls" if has_calls else "stop"}
    if stop == "refusal":
        why = details.get("explanation") if isinstance(details, dict) else None
        text = (
            f"the model refused to answer: {why}" if isinstance(why, str) else "the model refused to answer"
        )
        return {"kind": "error", "failure": failure(text, CONTENT_FILTER)}
    text = "the provider's stream ended without a stop_reason"
    if stop is not None:
        text = f"the provider ended the answer with an unknown stop_reason, {stop!r}"
    return {"kind": "error", "failure": failure(text, MALFORMED_STREAM)}


def _text_of(holder: dict[str, Any], key: str) -> str:
    value = holder.get(key)
    if not isinstance(value, str):
        raise WireError(f"{key} is not a string")
    return value
