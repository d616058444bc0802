"""How the messages that a client sends compare with those that a conversation holds.

Two questions, two answers. *Same* decides what the log says: a message that differs in anything is written
down. *Alike* decides whom a request continues: clients drop reasoning, trim text and move cache marks about
when they send a model's words back, and it is the same conversation all the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from onetake.model.types import Block, Message
from onetake.wire.messages_blocks import OBJECTS, read_input

JOINED = "joined"
"""In `extra` of a message: it was sent as a part of the message before it."""
_MARKS = frozenset({"cache_control"})
"""Fields that clients put on another message with every request."""


def separate(messages: Iterable[Message]) -> list[Message]:
    """Give each tool result a message of its own, as the log has it; what was one message stays marked so."""
    found: list[Message] = []
    for message in messages:
        parts = list(_parts(message["content"])) if message["role"] == "user" else [message["content"]]
        for place, content in enumerate(parts):
            part = {**message, "content": content}
            if place:
                part["extra"] = {JOINED: True}
            found.append(part)
    return found


def _parts(content: Sequence[Block]) -> Iterable[list[Block]]:
    """Cut content so that each tool result stands alone; what is between them stays together."""
    run: list[Block] = []
    for block in content:
        if block.get("type") == "tool-result":
            if run:
                yield run
            yield [block]
            run = []
        else:
            run.append(block)
    if run or not content:
        yield run


def result_of(message: Message) -> Block | None:
    """The tool result that a message (of `separate`) is; None for any other message."""
    content: list[Block] = message["content"]
    alone = message["role"] == "user" and len(content) == 1 and content[0].get("type") == "tool-result"
    return content[0] if alone else None


def same(sent: Message, held: Message) -> bool:
    """Whether a message was sent exactly as the conversation holds it."""
    return _said(sent) == _said(held)


def _said(message: Message) -> tuple[Any, ...]:
    """What clients send: of an answer's state what belongs to its blocks, not what belongs to the answer."""
    source = message.get("source")
    state = source.get("replayState") if isinstance(source, dict) else None
    blocks = state.get("blocks") if isinstance(state, dict) else None
    content = message["content"]
    if isinstance(blocks, list) and any(isinstance(s, dict) and s.get("type") == OBJECTS for s in blocks):
        content = [_without_spelling(block) for block in content]
    return message["role"], content, message.get("extra"), blocks


def _without_spelling(block: Block) -> Block:
    """A tool call whose arguments are sent as an object: how their text was spelled, no client sends back."""
    if block.get("type") != "tool-call":
        return block
    return {**block, "arguments": read_input(block["arguments"])}


def alike(sent: Message, held: Message) -> bool:
    """Whether a message that was sent is the one that the conversation holds, in the client's spelling."""
    if sent["role"] != held["role"]:
        return False
    if sent["role"] != "assistant":
        return _equal(sent["content"], held["content"])
    calls, other_calls = _calls(sent), _calls(held)
    if calls or other_calls:
        return calls == other_calls
    return _text(sent) == _text(held)


def common(sent: Sequence[Message], held: Sequence[Message]) -> int:
    """How many messages from the first on are alike."""
    count = 0
    for one, other in zip(sent, held, strict=False):
        if not alike(one, other):
            break
        count += 1
    return count


def _calls(message: Message) -> list[Any]:
    return [block.get("id") for block in message["content"] if block.get("type") == "tool-call"]


def _text(message: Message) -> str:
    return "".join(block["text"] for block in message["content"] if block.get("type") == "text").strip()


def _equal(one: Any, other: Any) -> bool:
    """Whether two JSON values are equal but for marks."""
    if isinstance(one, dict) and isinstance(other, dict):
        mine, theirs = one.keys() - _MARKS, other.keys() - _MARKS
        return mine == theirs and all(_equal(one[key], other[key]) for key in mine)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_equal, one, other))
    return bool(one == other)
