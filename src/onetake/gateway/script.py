"""The script of `mock-model`: what a scripted endpoint answers to which request.

    {"replies": [
      {"match": "REGEX",      the text of the request must contain it; without it every request fits
       "matchSystem": "REGEX", so must the system prompt: tells agents apart that are told the same
       "repeat": true,        the reply is not used up
       "reply": {
         "reasoning": "...", "text": "...",
         "toolCalls": [{"id": "...", "name": "...", "arguments": {...} or "raw string"}],
         "finish": "stop",    or "tool-calls", "max-tokens"; by default what the content calls for
         "usage": {"inputTokens": 1, "outputTokens": 2, "cacheReadTokens": 0, "reasoningTokens": 0},
         "deltaChars": 12,    characters per delta
         "pieces": ["..."],   the deltas of the text, instead of "text"
         "chunks": [...],     provider-neutral chunks, instead of all of the above; without a finish the
                              stream ends without its end marker
         "delayMs": 5,        wait before every delta
         "error": {"status": 429, "message": "...", "code": "...", "retryAfterMs": 100},
                              fail: with this status, or inside the stream after the content, if there is any
         "hang": true         after the content say nothing more until the client goes away
    }}]}

The first reply that fits and is not used up is taken. The text of a request is made of all string leaves of
its messages, the system prompt left out, joined by line feeds. `{{fromRequest:REGEX}}` in any string of a
reply is replaced from that text, by group 1 (or everything) of the last match: exactly as in
replay.override.json.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from onetake import jsontext
from onetake.errors import PATTERN_ERRORS, UsageError
from onetake.model.types import Chunk, Json, Usage
from onetake.replay.override import NoMatch, fill, string_leaves
from onetake.wire.chat import ChatStreamEncoder, WireError

_DEFAULT_DELTA_CHARS = 12
_CHARS_PER_TOKEN = 4


class _Strict(msgspec.Struct, forbid_unknown_fields=True, rename="camel", kw_only=True):
    """A part of the script: an unknown key is an error, not a wish that is ignored."""


class ScriptedCall(_Strict):
    """A tool call of a reply."""

    name: str
    """The tool."""
    arguments: dict[str, Any] | str
    """The arguments: an object, or the raw string of a model that writes bad JSON."""
    id: str | None = None
    """The call's id; by default `call_1`, `call_2`, ... over the endpoint's life."""


class ScriptedError(_Strict):
    """A failure of a reply."""

    status: int = 500
    """The HTTP status."""
    message: str = "a scripted failure"
    """What the error object says."""
    code: str | None = None
    """The error object's code, as providers write them."""
    retry_after_ms: int | None = None
    """How long to ask the client to wait, in milliseconds."""


class Reply(_Strict):
    """What is answered; see the module docstring."""

    reasoning: str = ""
    text: str = ""
    tool_calls: list[ScriptedCall] = []
    finish: str | None = None
    usage: Usage | None = None
    delta_chars: int = _DEFAULT_DELTA_CHARS
    pieces: list[str] | None = None
    chunks: list[Chunk] | None = None
    delay_ms: float = 0
    error: ScriptedError | None = None
    hang: bool = False


class ScriptedReply(_Strict):
    """A reply and the requests that it is for."""

    reply: Reply
    match: str | None = None
    match_system: str | None = None
    repeat: bool = False


class MockScript(_Strict):
    """A whole script."""

    replies: list[ScriptedReply]


class NoReply(Exception):
    """No reply of the script fits the request, or a reply cannot be filled from it; the text says which."""


def parse_script(value: Json, name: str) -> MockScript:
    """Read a script. Raises UsageError naming `name`, the place and what is wrong there."""
    try:
        script = msgspec.convert(value, MockScript)
    except msgspec.ValidationError as error:
        raise UsageError(f"{name}: {error}; see `onetake mock-model --help` for the format") from error
    for number, scripted in enumerate(script.replies):
        problem = _problem(scripted)
        if problem is not None:
            raise UsageError(f"{name}: replies[{number}]: {problem}")
    return script


def load_script(raw: bytes, name: str) -> MockScript:
    """Read a script from the bytes of its file. Raises UsageError naming `name` and the place."""
    try:
        value = jsontext.loads_strict(raw)
    except ValueError as error:
        raise UsageError(f"{name}: {error}") from error
    return parse_script(value, name)


class Replies:
    """The replies of a script, used up one by one."""

    def __init__(self, script: MockScript) -> None:
        self._left = list(script.replies)
        self._calls = 0

    def take(self, messages: list[Json]) -> Reply:
        """Return the reply to a request with these messages, its strings filled. Raises NoReply."""
        told = _told(messages)
        text = "\n".join(string_leaves(told))
        system = "\n".join(string_leaves([message for message in messages if _is_system(message)]))
        for scripted in self._left:
            if _fits(scripted.match, text) and _fits(scripted.match_system, system):
                reply = _filled(scripted.reply, told)
                if not scripted.repeat:
                    self._left.remove(scripted)
                return self._identified(reply)
        waiting = [_wanted(scripted) for scripted in self._left]
        raise NoReply(
            f"no scripted reply fits the request; it ends with {_tail(messages)!r}; "
            f"replies left: {', '.join(waiting) or 'none'}"
        )

    def _identified(self, reply: Reply) -> Reply:
        """Give the tool calls without an id the next ones."""
        calls = []
        for call in reply.tool_calls:
            self._calls += 1
            calls.append(
                call if call.id is not None else msgspec.structs.replace(call, id=f"call_{self._calls}")
            )
        return msgspec.structs.replace(reply, tool_calls=calls)


def request_text(messages: Iterable[Json]) -> str:
    """Return the text of a request: the strings in its messages, the system prompt left out, by line."""
    return "\n".join(string_leaves(_told(messages)))


def chunks_of(reply: Reply, request_chars: int) -> list[Chunk]:
    """Return the chunks of a reply, without a finish where it ends in an error or hangs.

    Without a scripted usage the tokens are estimated, the request's from `request_chars`: constant for equal
    input.
    """
    if reply.chunks is not None:
        return reply.chunks
    chunks: list[Chunk] = []
    ends: list[Chunk] = []
    for block, pieces in _blocks(reply):
        index = len(ends)
        chunks.append({"type": "block-start", "index": index, "blockType": block["type"]})
        chunks += [_delta(block, index, piece) for piece in pieces]
        ends.append({"type": "block-end", "index": index, "block": block})
    if reply.error is not None or reply.hang:
        return chunks
    usage = reply.usage if reply.usage is not None else _estimated(reply, request_chars)
    finish = reply.finish or ("tool-calls" if reply.tool_calls else "stop")
    return [*chunks, *ends, {"type": "usage", "usage": usage}, {"type": "finish", "reason": {"kind": finish}}]


def _problem(scripted: ScriptedReply) -> str | None:
    reply = scripted.reply
    for key, pattern in (("match", scripted.match), ("matchSystem", scripted.match_system)):
        try:
            re.compile(pattern or "")
        except PATTERN_ERRORS as error:
            return f"{key} is no regular expression: {error}"
    if reply.finish not in (None, "stop", "tool-calls", "max-tokens"):
        return f"finish must be stop, tool-calls or max-tokens, not {reply.finish!r}"
    if reply.delta_chars < 1:
        return "deltaChars must be at least 1"
    if reply.pieces is not None and reply.text:
        return "text and pieces exclude each other: the text is what the pieces make together"
    if reply.chunks is not None and (reply.text or reply.pieces or reply.reasoning or reply.tool_calls):
        return "chunks exclude reasoning, text, pieces and toolCalls"
    return _unsendable(reply.chunks or [])


def _unsendable(chunks: list[Chunk]) -> str | None:
    """Try raw chunks out, so that a malformed one is found when the script is read."""
    encoder = ChatStreamEncoder("")
    for number, chunk in enumerate(chunks):
        try:
            encoder.push(chunk)
        except (WireError, KeyError, TypeError) as error:
            return f"chunks[{number}] cannot be sent: {error!r}"
    return None


def _blocks(reply: Reply) -> Iterator[tuple[dict[str, Any], list[str]]]:
    """Yield each block of a reply with the pieces in which it is sent."""
    if reply.reasoning:
        yield {"type": "reasoning", "text": reply.reasoning}, _cut(reply.reasoning, reply.delta_chars)
    pieces = reply.pieces if reply.pieces is not None else _cut(reply.text, reply.delta_chars)
    if text := "".join(pieces):
        yield {"type": "text", "text": text}, pieces
    for call in reply.tool_calls:
        raw = call.arguments
        arguments = raw if isinstance(raw, str) else jsontext.dumps(raw).decode()
        block = {"type": "tool-call", "id": call.id, "name": call.name, "arguments": arguments}
        yield block, ["", *_cut(arguments, reply.delta_chars)]


def _delta(block: dict[str, Any], index: int, piece: str) -> Chunk:
    if block["type"] == "tool-call":
        named = {"id": block["id"], "name": block["name"]}
        return {"type": "tool-call-delta", "index": index, **named, "argumentsDelta": piece}
    return {"type": f"{block['type']}-delta", "index": index, "text": piece}


def _cut(text: str, size: int) -> list[str]:
    return [text[start : start + size] for start in range(0, len(text), size)]


def _estimated(reply: Reply, request_chars: int) -> Usage:
    reasoning = _tokens(len(reply.reasoning))
    said = sum(len("".join(pieces)) for _, pieces in _blocks(reply))
    usage: Usage = {"inputTokens": _tokens(request_chars), "outputTokens": _tokens(said)}
    return usage | {"reasoningTokens": reasoning} if reasoning else usage


def _tokens(chars: int) -> int:
    return -(-chars // _CHARS_PER_TOKEN)


def _filled(reply: Reply, told: list[Json]) -> Reply:
    """Return the reply with every `{{fromRequest:REGEX}}` in it replaced; other tokens mean nothing here."""
    try:
        value = fill(msgspec.to_builtins(reply), lambda token: f"{{{{{token}}}}}", told)
    except NoMatch as error:
        raise NoReply(f"nothing in the request matches {{{{fromRequest:{error.pattern}}}}}") from error
    except PATTERN_ERRORS as error:
        raise NoReply(f"a fromRequest of the reply is no regular expression: {error}") from error
    return msgspec.convert(value, Reply)


def _told(messages: Iterable[Json]) -> list[Json]:
    """Leave the system prompt out: a pattern is meant for what was said."""
    return [message for message in messages if not _is_system(message)]


def _is_system(message: Json) -> bool:
    return isinstance(message, dict) and message.get("role") in ("system", "developer")


def _fits(pattern: str | None, text: str) -> bool:
    return pattern is None or re.search(pattern, text) is not None


def _wanted(scripted: ScriptedReply) -> str:
    """Which requests a reply is for, for messages."""
    text = "(any request)" if scripted.match is None else repr(scripted.match)
    return text if scripted.match_system is None else f"{text} with system {scripted.match_system!r}"


def _tail(messages: list[Json]) -> str:
    """Return the end of what was said last, enough to recognise the request."""
    return request_text(messages[-1:])[-200:]
