"""The answer of OpenAI's Responses format, read into chunks: streamed or whole.

One output item is one block (see `responses_items`): it starts with `output_item.added`, ends with
`output_item.done`. `response.completed` and `response.incomplete` are the end; `response.failed` and `error`
are failures. The finish carries `replayState`: `blocks`, the state of each item, and `response`: `id`,
`created` and `final` (the response object of the first and the last event without `output`) and `added` (the
items as they were announced). Events that only repeat what others say, and unknown ones, are passed over.
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
from onetake.wire.responses_items import ARGUMENTS, block_of_item, kind_of, state_of_item, text_of
from onetake.wire.sse import SSEDecoder
from onetake.wire.usage import details, disjoint

_DELTAS = {
    "response.output_text.delta": "text",
    "response.refusal.delta": "text",
    "response.reasoning_summary_text.delta": "reasoning",
    "response.function_call_arguments.delta": "tool-call",
    "response.custom_tool_call_input.delta": "tool-call",
}
_ENDS = ("response.completed", "response.incomplete", "response.failed")


class _OpenItem:
    """An output item that deltas arrive for."""

    __slots__ = ("block", "index", "item", "pieces")

    def __init__(self, index: int, item: dict[str, Any]) -> None:
        self.index = index
        self.item = item
        self.pieces: list[str] = []
        key = ARGUMENTS.get(str(item.get("type")))
        known = item if key is None or isinstance(item.get(key), str) else {**item, key: ""}
        self.block: Block = block_of_item(known, f"output[{index}]")

    def delta(self, piece: str) -> Chunk:
        self.pieces.append(piece)
        kind = self.block["type"]
        if kind != "tool-call":
            return {"type": f"{kind}-delta", "index": self.index, "text": piece}
        named = {"id": self.block["id"], "name": self.block["name"], "argumentsDelta": piece}
        return {"type": "tool-call-delta", "index": self.index, **named}

    def end(self) -> list[Chunk]:
        before, whole = join_text(self.pieces), text_of(self.item)
        rest = whole[len(before) :] if whole.startswith(before) else ""
        chunks = [self.delta(rest)] if rest else []
        key = "arguments" if self.block["type"] == "tool-call" else "text"
        block = {**self.block, key: join_text(self.pieces)}
        return [*chunks, {"type": "block-end", "index": self.index, "block": block}]


class ResponsesStreamDecoder:
    """Turns the bytes of a streamed answer into chunks; feed it pieces of any size."""

    def __init__(self, *, secrets: Iterable[str] = ()) -> None:
        """Keep `secrets` out of failure messages."""
        self.finished = False
        """Whether the `finish` chunk was given out: nothing comes after it."""
        self._events = SSEDecoder()
        self._secrets = tuple(secrets)
        self._open: dict[Any, _OpenItem] = {}
        self._items: list[_OpenItem] = []
        self._response: dict[str, Any] = {}
        self._added: list[dict[str, Any]] = []

    def feed(self, data: bytes) -> list[Chunk]:
        """Take the next bytes and return the chunks that they complete."""
        return [chunk for event in self._events.feed(data) for chunk in self._read(event.data)]

    def close(self) -> list[Chunk]:
        """End the stream: without its last event it becomes the failure `STREAM_CLOSED`."""
        rest = self._events.close()
        where = "between events" if rest is None else "inside an event"
        text = f"the provider's stream ended {where}, before its last event"
        return self.fail(failure(text, STREAM_CLOSED))

    def fail(self, described: Failure) -> list[Chunk]:
        """End the stream as a failure; blocks stay open."""
        if self.finished:
            return []
        self.finished = True
        return [error_finish(described)]

    def push(self, value: Any) -> list[Chunk]:
        """Take the next event and return its chunks; a malformed one ends the stream as a failure."""
        chunks: list[Chunk] = []
        if not self.finished:
            try:
                self._take(value, chunks)
            except WireError as error:
                chunks += self.fail(failure(f"the provider's stream is malformed: {error}", MALFORMED_STREAM))
        return chunks

    def _read(self, data: str) -> list[Chunk]:
        try:
            value = jsontext.loads(data)
        except ValueError as error:
            text = f"the provider's stream holds what is not JSON: {error}"
            return self.fail(failure(text, MALFORMED_STREAM))
        return self.push(value)

    def _take(self, value: Any, chunks: list[Chunk]) -> None:
        if not isinstance(value, dict) or not isinstance(value.get("type"), str):
            raise WireError("an event is not an object with a type")
        kind = value["type"]
        if kind == "error":
            chunks += self.fail(failure_of_error(value.get("error") or value, secrets=self._secrets))
        elif kind == "response.created":
            self._response["created"] = _without_output(value.get("response"))
        elif kind == "response.output_item.added":
            item = _item(value)
            self._begin(_number(value), item, chunks)
            self._added.append(item)
        elif kind == "response.output_item.done":
            self._done(_number(value), _item(value), chunks)
        elif kind in _DELTAS:
            self._delta(_DELTAS[kind], value, chunks)
        elif kind in _ENDS:
            self._end(kind, value.get("response"), chunks)

    def _begin(self, number: int, item: dict[str, Any], chunks: list[Chunk]) -> _OpenItem:
        if number in self._open:
            raise WireError(f"output_index {number} is taken")
        found = _OpenItem(len(self._items), item)
        self._open[number] = found
        self._items.append(found)
        chunks.append({"type": "block-start", "index": found.index, "blockType": kind_of(item)})
        return found

    def _delta(self, kind: str, value: dict[str, Any], chunks: list[Chunk]) -> None:
        found, piece = self._open.get(_number(value)), value.get("delta")
        if found is None or found.block["type"] != kind or not isinstance(piece, str):
            raise WireError(f"a delta of {kind} belongs to no such item, or is not a string")
        chunks.append(found.delta(piece))

    def _done(self, number: int, item: dict[str, Any], chunks: list[Chunk]) -> None:
        found = self._open.get(number) or self._begin(number, item, chunks)
        if kind_of(item) != found.block["type"]:
            raise WireError(f"output[{number}] ends as another item than it began")
        found.item = item
        chunks += found.end()
        self._open[number] = _OpenItem(found.index, found.item)  # takes the place: no delta may follow
        self._open[number].block = {"type": "ended"}

    def _end(self, kind: str, response: Any, chunks: list[Chunk]) -> None:
        if not isinstance(response, dict):
            raise WireError("response is not an object")
        usage = response.get("usage")
        told: list[Chunk] = []
        if isinstance(usage, dict):
            told = [{"type": "usage", "usage": decode_usage(usage)}]
        if kind == "response.failed":
            chunks += [*told, *self.fail(failure_of_error(response.get("error"), secrets=self._secrets))]
            return
        output = response.get("output")
        if not self._items and isinstance(output, list):
            for number, item in enumerate(output):
                self._done(number, _item({"item": item}), chunks)
        for found in self._open.values():
            if found.block["type"] != "ended":
                chunks += found.end()
        reason = _reason(kind, response, any(kind_of(found.item) == "tool-call" for found in self._items))
        chunks += told
        if "failure" in reason:
            chunks += self.fail(reason["failure"])
            return
        self.finished = True
        about = {**self._response, "added": self._added, "final": _without_output(response)}
        if isinstance(response.get("id"), str):
            about["id"] = response["id"]
        state = {"response": about, "blocks": [state_of_item(found.item) for found in self._items]}
        chunks.append({"type": "finish", "reason": reason, "replayState": state})


def decode_response(value: Any, *, secrets: Iterable[str] = ()) -> list[Chunk]:
    """Read a whole (not streamed) answer as the chunks of a stream: each block is one delta."""
    decoder = ResponsesStreamDecoder(secrets=secrets)
    if not isinstance(value, dict):
        return decoder.fail(failure("the provider's answer is not an object", MALFORMED_STREAM))
    if value.get("error") is not None:
        return decoder.fail(failure_of_error(value["error"], secrets=secrets))
    chunks = decoder.push({"type": f"response.{value.get('status', 'completed')}", "response": value})
    return chunks + decoder.fail(failure("the provider's answer has an unknown status", MALFORMED_STREAM))


def decode_usage(usage: dict[str, Any]) -> Usage:
    """Return disjoint token counts."""
    cached = details(usage, "input_tokens_details").get("cached_tokens")
    reasoning = details(usage, "output_tokens_details").get("reasoning_tokens")
    return disjoint(usage.get("input_tokens"), usage.get("output_tokens"), cached, reasoning)


def _reason(kind: str, response: dict[str, Any], has_calls: bool) -> Reason:
    if kind == "response.completed":
        return {"kind": "tool-calls" if has_calls else "stop"}
    why = details(response, "incomplete_details").get("reason")
    if why == "max_output_tokens":
        return {"kind": "max-tokens"}
    if why == "content_filter":
        text = "the provider's content filter stopped the answer"
        return {"kind": "error", "failure": failure(text, CONTENT_FILTER)}
    text = f"the provider left the answer incomplete for an unknown reason, {why!r}"
    return {"kind": "error", "failure": failure(text, MALFORMED_STREAM)}


def _item(value: dict[str, Any]) -> dict[str, Any]:
    item = value.get("item")
    if not isinstance(item, dict) or not isinstance(item.get("type"), str):
        raise WireError("an output item is not an object with a type")
    return item


def _number(value: dict[str, Any]) -> int:
    number = value.get("output_index")
    if type(number) is not int:
        raise WireError("output_index is not a number")
    return number


def _without_output(response: Any) -> dict[str, Any]:
    if not isinstance(response, dict):
        raise WireError("response is not an object")
    return {key: value for key, value in response.items() if key != "output"}
