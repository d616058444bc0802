"""Chunks into the answer of the chat-completions format, streamed or whole: the side that a server needs.

Which chunk streams the format carries, so that reading gives them back chunk for chunk:

- Blocks of text, reasoning and tool calls, numbered from 0 in order of appearance, each with a `block-start`,
  at least one delta, and a `block-end`; all ends together after the last delta. Text and reasoning deltas are
  not empty.
- Two neighbouring blocks of text, or of reasoning, become one; a block of text cannot be continued after
  another.
- `usage` and `finish` end the stream. `tool-calls` needs a tool call and `stop` has none. `aborted` reads
  back as an error.
- A failure's code must be one of `onetake.wire.errors.KNOWN_CODES`.

Other streams are carried as well as they can be: what a `block-end` holds beyond its deltas is sent as one
delta more, so the blocks arrive whole. A block of another type (an image) raises WireError.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from onetake import jsontext
from onetake.model.types import Chunk, Usage
from onetake.wire.chat_decode import DONE, join_text
from onetake.wire.chat_request import ChatDialect, WireError, encode_assistant
from onetake.wire.errors import error_of_failure, response_of_failure
from onetake.wire.format import assembled
from onetake.wire.sse import encode_event
from onetake.wire.usage import reported

_FINISHES = {"stop": "stop", "tool-calls": "tool_calls", "max-tokens": "length"}
_FIELDS = {"text": "content", "reasoning": "reasoning_content"}


class _SentBlock:
    """What of a block went out already."""

    __slots__ = ("number", "pieces", "told_name")

    def __init__(self, number: int) -> None:
        self.number = number
        self.pieces: list[str] = []
        self.told_name = False


class ChatStreamEncoder:
    """Turns the chunks of one model call into the bytes of a streamed answer; see the module docstring."""

    def __init__(
        self, model: str, *, response_id: str = "chatcmpl-0", created: int = 0, include_usage: bool = True
    ) -> None:
        """Name the answer. `created` is in seconds since the epoch; the request tells `include_usage`."""
        self._envelope = {
            "id": response_id,
            "object": "chat.completion.chunk",
            "created": created,
            "model": model,
        }
        self._include_usage = include_usage
        self._blocks: dict[int, _SentBlock] = {}
        self._calls = 0
        self._usage: Usage | None = None
        self._told_role = False
        self._finished = False

    def push(self, chunk: Chunk) -> bytes:
        """Take the next chunk and return the bytes to send for it, often none; after `finish` always none."""
        if self._finished:
            return b""
        kind = chunk["type"]
        if kind in ("text-delta", "reasoning-delta"):
            return self._text(chunk["index"], kind.removesuffix("-delta"), chunk["text"])
        if kind == "tool-call-delta":
            return self._call(chunk["index"], chunk["id"], chunk.get("name"), chunk["argumentsDelta"])
        if kind == "block-end":
            return self._rest(chunk["index"], chunk["block"])
        if kind == "usage":
            self._usage = chunk["usage"]
        elif kind == "finish":
            return self._end(chunk["reason"])
        return b""

    def _text(self, index: int, kind: str, text: str) -> bytes:
        self._blocks.setdefault(index, _SentBlock(0)).pieces.append(text)
        return self._delta({_FIELDS[kind]: text})

    def _call(self, index: int, call_id: str, name: str | None, piece: str) -> bytes:
        block = self._blocks.get(index)
        call: dict[str, Any] = {}
        if block is None:
            block = self._blocks[index] = _SentBlock(self._calls)
            self._calls += 1
            call = {"id": call_id, "type": "function"}
        block.pieces.append(piece)
        function = {"arguments": piece}
        if name and not block.told_name:
            block.told_name = True
            function = {"name": name, "arguments": piece}
        return self._delta({"tool_calls": [{"index": block.number, **call, "function": function}]})

    def _rest(self, index: int, block: dict[str, Any]) -> bytes:
        kind = block["type"]
        if kind not in ("text", "reasoning", "tool-call"):
            raise WireError(f"an answer cannot carry a block of type {kind!r}")
        sent = self._blocks.get(index)
        whole = block["arguments" if kind == "tool-call" else "text"]
        before = join_text(sent.pieces) if sent is not None else ""
        rest = whole[len(before) :] if whole.startswith(before) else ""
        if kind == "tool-call":
            return self._call(index, block["id"], block["name"], rest) if rest or sent is None else b""
        return self._text(index, kind, rest) if rest else b""

    def _delta(self, delta: dict[str, Any]) -> bytes:
        if not self._told_role:
            self._told_role = True
            delta = {"role": "assistant", **delta}
        return self._event([{"index": 0, "delta": delta, "finish_reason": None}])

    def _event(self, choices: list[dict[str, Any]], **more: Any) -> bytes:
        return encode_event(jsontext.dumps({**self._envelope, "choices": choices, **more}))

    def _usage_event(self) -> bytes:
        if self._usage is None or not self._include_usage:
            return b""
        return self._event([], usage=encode_usage(self._usage))

    def _end(self, reason: dict[str, Any]) -> bytes:
        self._finished = True
        if "failure" in reason:
            error = {"error": error_of_failure(reason["failure"])}
            return self._usage_event() + encode_event(jsontext.dumps(error))
        last = {"index": 0, "delta": {}, "finish_reason": _FINISHES[reason["kind"]]}
        return self._event([last]) + self._usage_event() + encode_event(DONE)


def encode_response(
    chunks: Iterable[Chunk], model: str, *, response_id: str = "chatcmpl-0", created: int = 0
) -> tuple[int, dict[str, str], bytes]:
    """Return status, headers and JSON body of a whole answer; a failed call becomes an HTTP error."""
    assembler, reason = assembled(chunks)
    if "failure" in reason:
        return response_of_failure(reason["failure"])
    message = encode_assistant(assembler.blocks(), ChatDialect())
    body: dict[str, Any] = {
        "id": response_id,
        "object": "chat.completion",
        "created": created,
        "model": model,
        "choices": [{"index": 0, "message": message, "finish_reason": _FINISHES[reason["kind"]]}],
    }
    if assembler.usage is not None:
        body["usage"] = encode_usage(assembler.usage)
    return 200, {"content-type": "application/json"}, jsontext.dumps(body)


def encode_usage(usage: Usage) -> dict[str, Any]:
    """Return token counts as the format reports them: the prompt's with cache reads, and the sum of all."""
    return reported(usage, "prompt", "completion")
