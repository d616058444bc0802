"""Chunks into the answer of OpenAI's Responses format, streamed or whole: the side that a server needs.

Each block is one output item, written with the events that announce, repeat and end it, one delta event for
each delta. Ids and all else that a client needs back come from the answer's `replayState` where it is known;
without one they are made from the response's id.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from onetake import jsontext
from onetake.model.types import Chunk, Usage
from onetake.wire.chat_decode import join_text
from onetake.wire.errors import error_of_failure, response_of_failure
from onetake.wire.format import Answer, assembled, state_of
from onetake.wire.responses_items import ARGUMENTS, item_of_block, states_for
from onetake.wire.sse import encode_event
from onetake.wire.usage import reported

_PARTS = {"message": ("content", "content_part", "output_text", "content_index")}
_PARTS["reasoning"] = ("summary", "reasoning_summary_part", "reasoning_summary_text", "summary_index")
_CALLS = {"function_call": "function_call_arguments", "custom_tool_call": "custom_tool_call_input"}
_TYPES = {"text": "message", "reasoning": "reasoning", "tool-call": "function_call"}


class _Sent:
    """What of an item went out already."""

    def __init__(self, number: int, block_type: str, state: Any) -> None:
        self.number = number
        self.block_type = block_type
        self.state = state if isinstance(state, dict) else None
        self.type = _TYPES.get(block_type, "") if self.state is None else str(self.state.get("type"))
        self.pieces: list[str] = []
        self.announced = False
        self.part = False


class ResponsesStreamEncoder:
    """Turns the chunks of one model call into the bytes of a streamed answer; see the module docstring."""

    def __init__(self, model: str, *, response_id: str, state: Any = None) -> None:
        """Name the answer; `state` is the `replayState` that it will end with, if that is known."""
        state = state if isinstance(state, dict) else {}
        self._model, self._id = model, response_id
        self._about: dict[str, Any] = state.get("response") or {}
        self._states: list[Any] = state.get("blocks") or []
        self._sent: dict[int, _Sent] = {}
        self._output: dict[int, dict[str, Any]] = {}
        self._usage: Usage | None = None
        self._number = 0
        self._finished = False

    def push(self, chunk: Chunk) -> bytes:
        """Return the bytes for one chunk. Raises WireError for a block that the format cannot carry."""
        if self._finished:
            return b""
        kind = chunk["type"]
        head = b"" if self._number else self._begin()
        if kind == "block-start":
            return head + self._start(chunk["index"], chunk["blockType"])
        if kind in ("text-delta", "reasoning-delta"):
            return head + self._delta(self._sent[chunk["index"]], chunk["text"])
        if kind == "tool-call-delta":
            sent = self._sent[chunk["index"]]
            return head + self._announce_call(sent, chunk) + self._delta(sent, chunk["argumentsDelta"])
        if kind == "block-end":
            return head + self._end_item(self._sent[chunk["index"]], chunk["block"])
        if kind == "usage":
            self._usage = chunk["usage"]
        elif kind == "finish":
            return head + self._end(chunk["reason"])
        return head

    def _event(self, kind: str, **fields: Any) -> bytes:
        value = {"type": kind, "sequence_number": self._number, **fields}
        self._number += 1
        return encode_event(jsontext.dumps(value), event=kind)

    def _begin(self) -> bytes:
        created = self._about.get("created") or whole_response(self._model, self._id, "in_progress")
        response = {**created, "output": []}
        return self._event("response.created", response=response) + self._event(
            "response.in_progress", response=response
        )

    def _start(self, index: int, block_type: str) -> bytes:
        number = len(self._sent)
        state = self._states[number] if number < len(self._states) else None
        sent = self._sent[index] = _Sent(number, block_type, state)
        return b"" if block_type == "tool-call" else self._announce(sent, {})

    def _announce_call(self, sent: _Sent, chunk: Chunk) -> bytes:
        if sent.announced:
            return b""
        empty = {ARGUMENTS.get(sent.type, "arguments"): ""}
        return self._announce(sent, {"call_id": chunk["id"], "name": chunk.get("name", ""), **empty})

    def _announce(self, sent: _Sent, fields: dict[str, Any]) -> bytes:
        sent.announced = True
        added = self._about.get("added") or []
        item = added[sent.number] if sent.number < len(added) else None
        if item is None:
            item = {"type": sent.type, "id": self._item_id(sent), "status": "in_progress", **fields}
            if sent.type == "message":
                item["role"] = "assistant"
            if sent.type in _PARTS:
                item[_PARTS[sent.type][0]] = []
        return self._event("response.output_item.added", output_index=sent.number, item=item)

    def _item_id(self, sent: _Sent) -> str:
        return str((sent.state or {}).get("id") or f"{self._id}-{sent.number}")

    def _place(self, sent: _Sent) -> dict[str, Any]:
        place: dict[str, Any] = {"item_id": self._item_id(sent), "output_index": sent.number}
        return {**place, _PARTS[sent.type][3]: 0} if sent.type in _PARTS else place

    def _delta(self, sent: _Sent, piece: str) -> bytes:
        sent.pieces.append(piece)
        if sent.type not in _PARTS:
            call = _CALLS.get(sent.type, "function_call_arguments")
            return self._event(f"response.{call}.delta", **self._place(sent), delta=piece)
        _, part, text, _ = _PARTS[sent.type]
        head = b""
        if not sent.part:
            sent.part = True
            empty = _part(sent.type, "")
            head = self._event(f"response.{part}.added", **self._place(sent), part=empty)
        more: dict[str, Any] = {"logprobs": []} if sent.type == "message" else {}
        return head + self._event(f"response.{text}.delta", **self._place(sent), delta=piece, **more)

    def _end_item(self, sent: _Sent, block: dict[str, Any]) -> bytes:
        item = item_of_block(block, sent.state, self._item_id(sent))
        head = b""
        if block["type"] == "tool-call":
            head = self._announce_call(sent, block)
        whole = block["arguments" if block["type"] == "tool-call" else "text"]
        before = join_text(sent.pieces)
        if whole.startswith(before) and whole != before:
            head += self._delta(sent, whole[len(before) :])
        if sent.type in _CALLS:
            done = {ARGUMENTS[sent.type]: whole}
            head += self._event(f"response.{_CALLS[sent.type]}.done", **self._place(sent), **done)
        elif sent.part:
            key, part, text, _ = _PARTS[sent.type]
            more: dict[str, Any] = {"logprobs": []} if sent.type == "message" else {}
            head += self._event(f"response.{text}.done", **self._place(sent), text=whole, **more)
            parts = item.get(key) or [_part(sent.type, whole)]
            head += self._event(f"response.{part}.done", **self._place(sent), part=parts[0])
        self._output[sent.number] = item
        return head + self._event("response.output_item.done", output_index=sent.number, item=item)

    def _end(self, reason: dict[str, Any]) -> bytes:
        self._finished = True
        if "failure" in reason:
            response = whole_response(self._model, self._id, "failed", self._usage)
            response["error"] = error_of_failure(reason["failure"])
            return self._event("response.failed", response=response)
        output = [self._output[number] for number in sorted(self._output)]
        response = final_response(self._about, self._model, self._id, reason, self._usage)
        return self._event(f"response.{response['status']}", response={**response, "output": output})


def final_response(
    about: dict[str, Any], model: str, response_id: str, reason: dict[str, Any], usage: Usage | None
) -> dict[str, Any]:
    """The response object of an answer that ended well, without its output."""
    if about.get("final"):
        return {"status": "completed", **about["final"]}
    if reason["kind"] != "max-tokens":
        return whole_response(model, response_id, "completed", usage)
    response = whole_response(model, response_id, "incomplete", usage)
    return {**response, "incomplete_details": {"reason": "max_output_tokens"}}


def whole_response(model: str, response_id: str, status: str, usage: Usage | None = None) -> dict[str, Any]:
    """A response object without output, as servers make it that know nothing more."""
    response: dict[str, Any] = {"id": response_id, "object": "response", "created_at": 0, "status": status}
    response |= {"error": None, "incomplete_details": None, "model": model, "output": []}
    return {**response, "usage": None if usage is None else encode_usage(usage)}


def encode_response(chunks: Sequence[Chunk], model: str, *, response_id: str) -> Answer:
    """Return status, headers and JSON body of a whole answer; a failed call becomes an HTTP error."""
    assembler, reason = assembled(chunks)
    if "failure" in reason:
        return response_of_failure(reason["failure"])
    state = state_of(chunks) or {}
    blocks, about = assembler.blocks(), state.get("response") or {}
    pairs = zip(blocks, states_for(blocks, state.get("blocks")), strict=True)
    output = [item_of_block(block, each, f"{response_id}-{n}") for n, (block, each) in enumerate(pairs)]
    response = final_response(about, model, response_id, reason, assembler.usage)
    body = jsontext.dumps({**response, "output": output})
    return 200, {"content-type": "application/json"}, body


def encode_usage(usage: Usage) -> dict[str, Any]:
    """Return token counts as the format reports them: the prompt's with cache reads, and the sum of all."""
    return reported(usage, "input", "output")


def _part(item_type: str, text: str) -> dict[str, Any]:
    if item_type == "message":
        return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}
    return {"type": "summary_text", "text": text}
