"""Chunks into the answer of Anthropic's Messages format, streamed or whole: the side that a server needs.

With the `replayState` that `messages_decode` left on the finish, a stream is given back event by event: each
delta is one event, and the events that no chunk tells stand where they stood. Without it (scripted answers)
the events are the plainest ones of the format, and everything else is made up.

What a `block-end` holds beyond its deltas is sent as one delta more, so blocks always arrive whole. The
start of a tool call is sent with its first delta, because only that knows its id.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from onetake import jsontext
from onetake.model.failures import Failure
from onetake.model.types import Block, Chunk, Usage
from onetake.wire.chat_decode import join_text
from onetake.wire.errors import error_of_failure, response_of_failure
from onetake.wire.format import Answer, assembled
from onetake.wire.messages_blocks import write_said
from onetake.wire.messages_decode import CUT_SHORT, plain_start
from onetake.wire.sse import encode_event

_STOPS = {"stop": "end_turn", "tool-calls": "tool_use", "max-tokens": "max_tokens"}
_ERRORS = {
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
    504: "timeout_error",
    529: "overloaded_error",
}


class _SentBlock:
    """What of a block went out already."""

    __slots__ = ("kind", "pieces", "started", "state")

    def __init__(self, kind: str, state: dict[str, Any]) -> None:
        self.kind = kind
        self.state = state
        self.pieces: list[str] = []
        self.started: dict[str, Any] | None = None


class MessagesStreamEncoder:
    """Turns the chunks of one model call into the bytes of a streamed answer; see the module docstring."""

    def __init__(self, model: str, *, response_id: str = "msg_0", state: Any = None) -> None:
        """Name the answer; `state` is the `replayState` that it ends with."""
        self._response, states = _parts_of(state)
        self._states = iter(states)
        self._message = self._response.get("message") or _message(model, response_id)
        self._told = self._response.get("delta") or {}
        self._drops = (self._told.get("delta") or {}).get("stop_reason") in CUT_SHORT
        self._kept = list(self._response.get("events") or ())
        self._place = 0
        self._blocks: dict[int, _SentBlock] = {}
        self._numbers: dict[int, int] = {}
        self._usage: Usage | None = None
        self._finished = False

    def push(self, chunk: Chunk) -> bytes:
        """Take the next chunk and return the bytes to send for it, perhaps none; after `finish` none."""
        if self._finished:
            return b""
        kind = chunk["type"]
        if kind == "block-start":
            return self._open(chunk["index"], chunk["blockType"])
        if kind in ("text-delta", "reasoning-delta"):
            kind = kind.removesuffix("-delta")
            return self._open(chunk["index"], kind) + self._delta(chunk["index"], chunk["text"])
        if kind == "tool-call-delta":
            called = {"type": "tool-call", "id": chunk["id"], "name": chunk.get("name") or ""}
            opened = self._open(chunk["index"], "tool-call") + self._start(chunk["index"], called)
            return opened + self._delta(chunk["index"], chunk["argumentsDelta"])
        if kind == "block-end":
            return self._close(chunk["index"], chunk["block"])
        if kind == "usage":
            self._usage = chunk["usage"]
        elif kind == "finish":
            return self._end(chunk["reason"])
        return b""

    def _open(self, index: int, kind: str) -> bytes:
        if index in self._blocks:
            return b""
        state = {} if kind == "tool-call" and self._drops else next(self._states, {})
        self._blocks[index] = _SentBlock(kind, state)
        self._numbers[index] = len(self._numbers)
        if kind == "text" or (kind == "reasoning" and state.get("type") != "redacted_thinking"):
            return self._start(index, {"type": kind, "text": ""})
        return self._begin()

    def _start(self, index: int, block: Block) -> bytes:
        sent = self._blocks[index]
        if sent.started is not None:
            return b""
        begun = self._begin()
        if sent.kind in ("text", "reasoning", "tool-call") and sent.state.get("type") != "redacted_thinking":
            wire = {"text": "text", "reasoning": "thinking", "tool-call": "tool_use"}[sent.kind]
            part = plain_start(wire, block.get("id", ""), block.get("name", ""))
            if "events" not in self._response:
                part |= {key: item for key, item in sent.state.items() if key != "signature"}
        else:
            part = write_said(block, sent.state or {"type": sent.kind})
        event = {"type": "content_block_start", "index": self._numbers[index], "content_block": part}
        sent.started, data = self._send(event)
        return begun + data

    def _delta(self, index: int, piece: str) -> bytes:
        sent = self._blocks[index]
        sent.pieces.append(piece)
        kind, key = {
            "text": ("text_delta", "text"),
            "reasoning": ("thinking_delta", "thinking"),
            "tool-call": ("input_json_delta", "partial_json"),
        }[sent.kind]
        return self._piece(index, {"type": kind, key: piece})

    def _piece(self, index: int, delta: dict[str, Any]) -> bytes:
        return self._send({"type": "content_block_delta", "index": self._numbers[index], "delta": delta})[1]

    def _close(self, index: int, block: Block) -> bytes:
        data = self._open(index, block["type"]) + self._start(index, block)
        sent = self._blocks[index]
        whole = block.get("arguments" if sent.kind == "tool-call" else "text")
        before = join_text(sent.pieces)
        deltas = sent.kind in ("text", "reasoning", "tool-call")
        if deltas and isinstance(whole, str) and whole.startswith(before) and whole != before:
            data += self._delta(index, whole[len(before) :])
        part = (sent.started or {}).get("content_block", {})
        signature = sent.state.get("signature")
        if sent.kind == "reasoning" and signature and not part.get("signature"):
            data += self._piece(index, {"type": "signature_delta", "signature": signature})
        return data + self._send({"type": "content_block_stop", "index": self._numbers[index]})[1]

    def _begin(self) -> bytes:
        if self._message is None:
            return b""
        message, self._message = {**self._message, "content": []}, None
        return self._send({"type": "message_start", "message": message})[1]

    def _end(self, reason: dict[str, Any]) -> bytes:
        self._finished = True
        if "failure" in reason and not self._told:
            data = b""
            if self._usage is not None:
                told = {"delta": {"stop_reason": None}, "usage": encode_usage(self._usage)}
                data = self._begin() + self._send({"type": "message_delta", **told})[1]
            return data + self._send({"type": "error", "error": error_object(reason["failure"])})[1]
        told = self._told or {
            "delta": {"stop_reason": _STOPS.get(reason["kind"]), "stop_sequence": None},
            "usage": encode_usage(self._usage or {}),
        }
        data = self._begin() + self._send({"type": "message_delta", **told})[1]
        return data + self._send({"type": "message_stop"})[1]

    def _send(self, event: dict[str, Any]) -> tuple[dict[str, Any], bytes]:
        """The bytes of an event, behind the kept ones that stand before it; and the event that was sent."""
        data = b""
        while self._kept and self._kept[0]["at"] <= self._place:
            kept = self._kept.pop(0)
            if kept.get("instead"):
                event = kept["event"]
                break
            data += _written(kept["event"])
            self._place += 1
        self._place += 1
        return event, data + _written(event)


def encode_response(
    chunks: Iterable[Chunk], model: str, *, response_id: str = "msg_0"
) -> tuple[int, dict[str, str], bytes]:
    """Return status, headers and JSON body of a whole answer; a failed call becomes an HTTP error."""
    assembler, reason = assembled(chunks)
    response, states = _parts_of(assembler.replay_state)
    delta = response.get("delta") or {}
    if "failure" in reason and not delta:
        return error_response(reason["failure"])
    blocks = assembler.blocks()
    states += [{}] * (len(blocks) - len(states))
    body = dict(response.get("message") or _message(model, response_id))
    body["content"] = [
        write_said(block, state or _bare(block)) for block, state in zip(blocks, states, strict=False)
    ]
    body |= delta.get("delta") or {"stop_reason": _STOPS.get(reason["kind"], "refusal")}
    usage = _object(delta.get("usage")) or encode_usage(assembler.usage or {})
    body["usage"] = _object(body.get("usage")) | usage
    return 200, {"content-type": "application/json"}, jsontext.dumps(body)


def encode_usage(usage: Usage) -> dict[str, Any]:
    """Return token counts as the format reports them."""
    encoded = {
        "input_tokens": usage.get("inputTokens", 0),
        "output_tokens": usage.get("outputTokens", 0),
    }
    if "cacheReadTokens" in usage:
        encoded["cache_read_input_tokens"] = usage["cacheReadTokens"]
    if "cacheWriteTokens" in usage:
        encoded["cache_creation_input_tokens"] = usage["cacheWriteTokens"]
    return encoded


def error_object(described: Failure) -> dict[str, Any]:
    """Return the error object for a failure, with the type that Anthropic gives it."""
    status = described.get("status") or response_of_failure(described)[0]
    kind = _ERRORS.get(status, "invalid_request_error" if status < 500 else "api_error")
    return {**error_of_failure(described), "type": kind}


def error_response(described: Failure) -> Answer:
    """Return the answer that stands for a failure."""
    status, headers, _ = response_of_failure(described)
    return status, headers, jsontext.dumps({"type": "error", "error": error_object(described)})


def _parts_of(state: Any) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    found = _object(state)
    blocks = found.get("blocks")
    return _object(found.get("response")), list(blocks) if isinstance(blocks, list) else []


def _object(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _bare(block: Block) -> dict[str, Any]:
    return {} if block["type"] in ("text", "reasoning", "tool-call") else {"type": block["type"]}


def _message(model: str, response_id: str) -> dict[str, Any]:
    named = {"id": response_id, "type": "message", "role": "assistant", "model": model}
    return {**named, "stop_reason": None, "stop_sequence": None, "usage": encode_usage({})}


def _written(event: dict[str, Any]) -> bytes:
    kind = event.get("type")
    named = kind if isinstance(kind, str) and kind.isascii() and kind.isprintable() else None
    return encode_event(jsontext.dumps(event), event=named)
