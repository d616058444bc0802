"""What a model stream must look like, in one place: the shape of each chunk, and what chunks say together.

Assembling is tolerant: a chunk that cannot be used is ignored, and the first `block-end` is the truth. So a
recording in which somebody changed one letter of a delta would replay without anybody noticing. A recorded
call is therefore held to what the tolerance forgives: known chunks with usable fields, and deltas that
together say what the end of their block says. Stragglers behind that end, blocks without deltas or without a
start, and further fields are all part of the contract.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from onetake.model.types import Chunk

FINISH_KINDS = ("stop", "tool-calls", "max-tokens", "error", "aborted")
"""Why a call can end."""
CHUNK_FIELDS: Mapping[str, Mapping[str, type]] = {
    "block-start": {"index": int, "blockType": str},
    "text-delta": {"index": int, "text": str},
    "reasoning-delta": {"index": int, "text": str},
    "tool-call-delta": {"index": int, "id": str, "argumentsDelta": str},
    "block-end": {"index": int, "block": dict},
    "usage": {"usage": dict},
    "finish": {"reason": dict},
}
"""By chunk type: the fields that it must have."""
OPTIONAL_FIELDS: Mapping[str, Mapping[str, type]] = {
    "tool-call-delta": {"name": str},
    "finish": {"replayState": object},
}
_BLOCK_TEXTS = {"text": ("text",), "reasoning": ("text",), "tool-call": ("id", "name", "arguments")}
_DELTAS = {"text-delta": "text", "reasoning-delta": "reasoning", "tool-call-delta": "tool-call"}
_TYPE_NAMES = {int: "an integer", str: "a string", dict: "an object", object: "a value"}

Fault = tuple[str, str]
"""The field of a chunk that is wrong (`reason.kind`), and what is wrong with it."""


def chunk_fault(chunk: Chunk) -> Fault | None:
    """The first thing that is wrong with the shape of a chunk; None: nothing."""
    kind = chunk.get("type")
    if type(kind) is not str or kind not in CHUNK_FIELDS:
        return "type", f"is {kind!r}; it must be one of {', '.join(CHUNK_FIELDS)}"
    fault = _field_fault(chunk, CHUNK_FIELDS[kind], OPTIONAL_FIELDS.get(kind, {}))
    if fault is not None:
        return fault
    if kind == "finish":
        return finish_fault(chunk["reason"])
    if kind == "usage":
        counts: dict[str, Any] = chunk["usage"]
        return _inside("usage", _field_fault(counts, dict.fromkeys(counts, int)))
    if kind == "block-end":
        block: dict[str, Any] = chunk["block"]
        return _inside("block", _field_fault(block, {"type": str})) or block_fault(block)
    return None


def block_fault(block: Mapping[str, Any]) -> Fault | None:
    """What a finished block of a known type lacks; None: nothing."""
    kind = block.get("type")
    texts = _BLOCK_TEXTS.get(kind, ()) if type(kind) is str else ()
    return _inside("block", _field_fault(block, dict.fromkeys(texts, str)))


def finish_fault(reason: Mapping[str, Any]) -> Fault | None:
    """What is wrong with the reason of a finish; None: nothing."""
    kind = reason.get("kind")
    if kind not in FINISH_KINDS:
        return "reason.kind", f"is {kind!r}; it must be one of {', '.join(FINISH_KINDS)}"
    if kind in ("error", "aborted"):
        fault = _field_fault(reason, {"failure": dict})
        if fault is None:
            fault = _inside("failure", _field_fault(reason["failure"], {"message": str, "code": str}))
        return _inside("reason", fault)
    return None


def contradictions(chunks: Iterable[Chunk]) -> Iterator[str]:
    """Where the chunks of one call are not usable, or say together something else than their blocks do."""
    open_blocks: dict[int, _Said] = {}
    for number, chunk in enumerate(chunks, 1):
        fault = chunk_fault(chunk)
        if fault is not None:
            yield f"chunk {number}: {fault[0]}: {fault[1]}"
        elif "index" in chunk:
            said = open_blocks.setdefault(chunk["index"], _Said())
            yield from (f"chunk {number}, block {chunk['index']}: {text}" for text in said.take(chunk))
        elif chunk["type"] == "finish" and chunk["reason"]["kind"] in ("stop", "tool-calls"):
            void = [index for index, said in open_blocks.items() if said.is_void()]
            yield from (f"block {index}: it begins, and nothing comes of it" for index in void)


class _Said:
    """What the chunks of one block said so far."""

    def __init__(self) -> None:
        self.type: str | None = None
        self.pieces: list[str] = []
        self.names: dict[str, str] = {}
        self.closed = False

    def take(self, chunk: Chunk) -> Iterator[str]:
        if self.closed:
            return
        kind = chunk["type"]
        block = chunk.get("block")
        of_type = block["type"] if block is not None else chunk.get("blockType") or _DELTAS[kind]
        if self.type is None:
            self.type = of_type
        elif self.type != of_type:
            yield f"a {kind} of type {of_type!r} where the block is {self.type!r}"
        if block is not None:
            self.closed = True
            yield from self._end(block)
        elif kind != "block-start":
            self.pieces.append(chunk["argumentsDelta"] if kind == "tool-call-delta" else chunk["text"])
            for key in ("id", "name"):
                if chunk.get(key):
                    yield from self._name(key, chunk[key])

    def is_void(self) -> bool:
        """Whether the block was announced, and no more."""
        return not self.closed and not self.pieces

    def _end(self, block: Mapping[str, Any]) -> Iterator[str]:
        for key in ("id", "name"):
            if key in self.names:
                yield from self._name(key, block.get(key))
        whole = block.get("arguments" if self.type == "tool-call" else "text")
        joined = _paired("".join(self.pieces))
        if self.pieces and joined != whole:
            yield f"its deltas say {_shown(joined, whole)}, and its end says {_shown(whole, joined)}"

    def _name(self, key: str, value: Any) -> Iterator[str]:
        if self.names.setdefault(key, value) != value:
            yield f"its {key} is {value!r}, and was {self.names[key]!r}"


def _field_fault(
    value: Mapping[str, Any], needed: Mapping[str, type], optional: Mapping[str, type] | None = None
) -> Fault | None:
    for key, wanted in {**needed, **(optional or {})}.items():
        if key not in value:
            if key in needed:
                return key, "is missing"
        elif not isinstance(value[key], wanted) or (isinstance(value[key], bool) and wanted is not object):
            return key, f"must be {_TYPE_NAMES[wanted]}"
    return None


def _inside(place: str, fault: Fault | None) -> Fault | None:
    return fault and (f"{place}.{fault[0]}", fault[1])


def _paired(text: str) -> str:
    """A text in which halves of one character that came in two deltas meet again."""
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")


def _shown(text: Any, other: Any) -> str:
    """A text from a little before the place where it differs from the other one."""
    if not isinstance(text, str) or not isinstance(other, str):
        return repr(text)
    at = next(
        (i for i, (a, b) in enumerate(zip(text, other, strict=False)) if a != b), min(len(text), len(other))
    )
    start = max(0, at - 20)
    return f"{'...' if start else ''}{text[start : at + 20]!r}{'...' if at + 20 < len(text) else ''}"
