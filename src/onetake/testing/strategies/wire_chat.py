"""Answers of the chat-completions format as servers really write them: the same chunks, many spellings.

Our own encoder writes one spelling. A decoder that has only met that one fails at the first foreign server:
ids repeated in every delta, every tool call numbered 0, an empty `content` beside the reasoning, the usage
beside the finish, two things in one event. So the spelling is drawn too, and stands in the failing example
as a `ChatSpelling`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st

from onetake.model.types import Chunk
from onetake.testing.strategies.text import texts
from onetake.wire.errors import KNOWN_CODES, error_of_failure

DONE = "[DONE]"
_NOTHING_OPEN = 9

CHAT_WORDS = (
    "choices", "delta", "index", "content", "reasoning_content", "refusal", "tool_calls", "function", "name",
    "id", "arguments", "finish_reason", "usage", "prompt_tokens", "prompt_tokens_details", "error", "message",
    "code", "type", "status",
)  # fmt: skip
"""The keys of the format's objects."""


def as_read(text: str) -> str:
    """Return a text as JSON gives it back: two surrogates that make a pair are one character."""
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")


def usages() -> st.SearchStrategy[dict[str, int]]:
    """Draw token counts that a format carries."""
    counts = st.integers(0, 10**9)
    return st.fixed_dictionaries(
        {"inputTokens": counts, "outputTokens": counts},
        optional={"cacheReadTokens": counts, "reasoningTokens": counts},
    )


def failures() -> st.SearchStrategy[dict[str, Any]]:
    """Draw failures that an answer carries: with a code of the table, and a message that is not empty."""
    return st.fixed_dictionaries(
        {
            "message": texts().map(lambda text: f"m{as_read(text)[:500]}"),
            "code": st.sampled_from(KNOWN_CODES),
        },
        optional={"status": st.integers(400, 599), "providerRetryAfterMs": st.integers(0, 10**9)},
    )


@dataclass(frozen=True)
class ChatSpelling:
    """How a server of the chat-completions format writes its answers; the defaults are the plainest."""

    envelope: bool = False
    """Every event has the id, the model and the other fields around it."""
    role_everywhere: bool = False
    """Every delta names the role, not only the first."""
    empty_strings: bool = False
    """The kinds of text that a delta does not bring are there as empty strings or null."""
    reasoning_field: str = "reasoning_content"
    """The field for reasoning."""
    names_everywhere: bool = False
    """Every delta of a tool call repeats its id and its name, not only the first."""
    numbering: str = "counted"
    """`counted`: tool calls have indices; `zero`: all have 0; `none`: there is no index. The last two only
    work for calls that are not interleaved, and are `counted` elsewhere."""
    finish: str = ""
    """What the end of a complete answer is called; empty: what the format says."""
    usage_place: str = "after"
    """`after`: an event of its own, and null in all others; `beside`: with the finish."""
    cache_field: str = "details"
    """Where cache reads are told: `details` or DeepSeek's `hit`."""
    together: bool = False
    """What fits into one event stands in one event."""
    other_choice: bool = False
    """A second choice says something else; it is none of our business."""


def chat_spellings() -> st.SearchStrategy[ChatSpelling]:
    """Draw how a server writes; shrinks to the plainest."""
    return st.builds(
        ChatSpelling,
        envelope=st.booleans(),
        role_everywhere=st.booleans(),
        empty_strings=st.booleans(),
        reasoning_field=st.sampled_from(["reasoning_content", "reasoning"]),
        names_everywhere=st.booleans(),
        numbering=st.sampled_from(["counted", "zero", "none"]),
        finish=st.sampled_from(["", "stop", "tool_calls", "function_call"]),
        usage_place=st.sampled_from(["after", "beside"]),
        cache_field=st.sampled_from(["details", "hit"]),
        together=st.booleans(),
        other_choice=st.booleans(),
    )


def chat_events(chunks: list[Chunk]) -> st.SearchStrategy[list[tuple[str | None, Any]]]:
    """Draw the events in which some server sends these chunks; the format gives them no type."""
    return chat_spellings().map(lambda spelling: [(None, value) for value in spell_chat(chunks, spelling)])


@st.composite
def chat_chunks(draw: st.DrawFn) -> list[Chunk]:
    """Draw the chunks of one model call that the chat-completions format carries without loss.

    Blocks of text and reasoning alternate with tool calls, whose deltas interleave; all blocks end together;
    then there is usage or none, and a finish or a failure.
    """
    chunks: list[Chunk] = []
    blocks: list[dict[str, Any]] = []
    calls: list[int] = []

    def open_block(block: dict[str, Any]) -> int:
        chunks.append({"type": "block-start", "index": len(blocks), "blockType": block["type"]})
        blocks.append(block)
        return len(blocks) - 1

    some_text = texts().map(as_read).filter(bool)
    for kind in draw(st.lists(st.sampled_from(["text", "reasoning", "new call", "call"]), max_size=10)):
        if kind in ("text", "reasoning"):
            if not blocks or blocks[-1]["type"] != kind:
                open_block({"type": kind, "text": ""})
            piece = draw(some_text)
            blocks[-1]["text"] += piece
            chunks.append({"type": f"{kind}-delta", "index": len(blocks) - 1, "text": piece})
            continue
        if kind == "new call" or not calls:
            call = {"type": "tool-call", "id": f"id{len(calls)}", "name": draw(some_text), "arguments": ""}
            calls.append(open_block(call))
        index = calls[-1] if kind == "new call" else draw(st.sampled_from(calls))
        block, piece = blocks[index], draw(texts().map(as_read))
        block["arguments"] += piece
        named = {"id": block["id"], "name": block["name"]}
        chunks.append({"type": "tool-call-delta", "index": index, **named, "argumentsDelta": piece})
    usage = draw(st.none() | usages())
    tail: list[Chunk] = [] if usage is None else [{"type": "usage", "usage": usage}]
    ending = draw(st.sampled_from(["complete", "max-tokens", "error"]))
    if ending == "error":
        return [*chunks, *tail, {"type": "finish", "reason": {"kind": "error", "failure": draw(failures())}}]
    for index, block in enumerate(blocks):
        key = "arguments" if block["type"] == "tool-call" else "text"
        chunks.append({"type": "block-end", "index": index, "block": {**block, key: as_read(block[key])}})
    kind = ("tool-calls" if calls else "stop") if ending == "complete" else ending
    return [*chunks, *tail, {"type": "finish", "reason": {"kind": kind}}]


def spell_chat(chunks: list[Chunk], spelling: ChatSpelling) -> list[Any]:
    """Return the values of the events in which a server of that spelling sends these chunks.

    The end marker is the text `[DONE]`; all others are JSON values. Takes what `chat_chunks` draws.
    """
    server = _Server(spelling, interleaved=_is_interleaved(chunks))
    for chunk in chunks:
        server.take(chunk)
    return server.values


class _Server:
    """Writes the chunks of one answer down, in the given spelling."""

    def __init__(self, spelling: ChatSpelling, interleaved: bool) -> None:
        self.values: list[Any] = []
        self._spelling = spelling
        self._numbering = "counted" if interleaved else spelling.numbering
        self._numbers: dict[int, int] = {}
        self._usage: dict[str, Any] | None = None
        self._open_delta: dict[str, Any] = {}
        self._last_rank = _NOTHING_OPEN

    def take(self, chunk: Chunk) -> None:
        kind = chunk["type"]
        if kind == "reasoning-delta":
            self._delta({self._spelling.reasoning_field: chunk["text"]}, rank=0)
        elif kind == "text-delta":
            self._delta({"content": chunk["text"]}, rank=1)
        elif kind == "tool-call-delta":
            self._delta({"tool_calls": [self._call(chunk)]}, rank=2)
        elif kind == "usage":
            self._usage = self._counts(chunk["usage"])
        elif kind == "finish":
            self._finish(chunk["reason"])

    def _call(self, chunk: Chunk) -> dict[str, Any]:
        is_first = chunk["index"] not in self._numbers
        number = self._numbers.setdefault(chunk["index"], len(self._numbers))
        call: dict[str, Any] = {"function": {"arguments": chunk["argumentsDelta"]}}
        if is_first or self._spelling.names_everywhere:
            call |= {"id": chunk["id"], "type": "function"}
            call["function"]["name"] = chunk["name"]
        if self._numbering != "none":
            call["index"] = number if self._numbering == "counted" else 0
        return call

    def _delta(self, delta: dict[str, Any], rank: int) -> None:
        """Send a delta; readers take reasoning before content before tool calls, hence the rank."""
        if self._spelling.together and (self._last_rank < rank or self._last_rank == rank == 2):
            calls = self._open_delta.get("tool_calls") or []
            self._open_delta.update(delta)
            if rank == 2:
                self._open_delta["tool_calls"] = [*calls, *delta["tool_calls"]]
        else:
            whole: dict[str, Any] = {}
            if self._spelling.role_everywhere or not self.values:
                whole["role"] = "assistant"
            if self._spelling.empty_strings:
                whole |= {"content": "", self._spelling.reasoning_field: None, "tool_calls": None}
            self._open_delta = whole | delta
            self._send([{"index": 0, "delta": self._open_delta, "finish_reason": None}])
        self._last_rank = rank

    def _finish(self, reason: dict[str, Any]) -> None:
        beside = self._usage if self._spelling.usage_place == "beside" else None
        if "failure" in reason:
            if self._usage is not None:
                self._send([], self._usage)
            self.values.append({"error": error_of_failure(reason["failure"])})
            return
        plain = {"stop": "stop", "tool-calls": "tool_calls", "max-tokens": "length"}[reason["kind"]]
        word = self._spelling.finish if plain != "length" and self._spelling.finish else plain
        self._send([{"index": 0, "delta": {}, "finish_reason": word}], beside)
        if self._usage is not None and beside is None:
            self._send([], self._usage)
        self.values.append(DONE)

    def _send(self, choices: list[dict[str, Any]], usage: dict[str, Any] | None = None) -> None:
        value: dict[str, Any] = {"choices": choices}
        if self._spelling.other_choice and choices:
            noise = {"index": 1, "delta": {"content": "another answer"}, "finish_reason": "stop"}
            value["choices"] = [noise, *choices] if len(self.values) % 2 else [*choices, noise]
        if self._spelling.envelope:
            value = {"id": "a", "object": "chat.completion.chunk", "created": 1, "model": "m", **value}
        if usage is not None or self._spelling.usage_place == "after":
            value["usage"] = usage
        self.values.append(value)

    def _counts(self, usage: dict[str, int]) -> dict[str, Any]:
        cached = usage.get("cacheReadTokens")
        counts: dict[str, Any] = {
            "prompt_tokens": usage["inputTokens"] + (cached or 0),
            "completion_tokens": usage["outputTokens"],
        }
        if cached is not None and self._spelling.cache_field == "hit":
            counts["prompt_cache_hit_tokens"] = cached
        elif cached is not None:
            counts["prompt_tokens_details"] = {"cached_tokens": cached}
        if "reasoningTokens" in usage:
            counts["completion_tokens_details"] = {"reasoning_tokens": usage["reasoningTokens"]}
        return counts


def _is_interleaved(chunks: list[Chunk]) -> bool:
    """Whether a tool call goes on after another one has begun."""
    indices = [chunk["index"] for chunk in chunks if chunk["type"] == "tool-call-delta"]
    return indices != sorted(indices)
