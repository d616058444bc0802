"""What holds for every reader of a model endpoint's answer, whatever the answer and however it is cut.

A subject is a factory: each check makes a fresh decoder, feeds it the bytes in pieces and closes it. Bytes
come from the network, so nothing that they say may be an exception, a second end, or another answer for
another cut.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol

from onetake.model.contract import chunk_fault, contradictions
from onetake.model.failures import STREAM_CLOSED
from onetake.model.types import Chunk
from onetake.testing.errors import InvariantViolation
from onetake.wire.sse import ServerEvent

Cut = Callable[[bytes], list[bytes]]
"""Cuts bytes into segments (see `onetake.testing.strategies.segmentations`)."""


class EventReader(Protocol):
    """A reader of server-sent events, such as `onetake.wire.sse.SSEDecoder`."""

    def feed(self, data: bytes) -> Iterable[ServerEvent]:
        """Take the next bytes and return the events that they complete."""
        ...


class StreamDecoder(Protocol):
    """A decoder of a streamed answer, such as `onetake.wire.chat.ChatStreamDecoder`."""

    def feed(self, data: bytes) -> Iterable[Chunk]:
        """Take the next bytes and return the chunks that they complete."""
        ...

    def close(self) -> Iterable[Chunk]:
        """End the stream and return the chunks that are left; the last chunk of all is the finish."""
        ...


def check_events(
    new_reader: Callable[[], EventReader], events: Sequence[ServerEvent], segments: Iterable[bytes]
) -> None:
    """Reading server-sent events gives exactly these events, however the bytes are cut."""
    reader = new_reader()
    read = [event for segment in segments for event in reader.feed(segment)]
    if read != list(events):
        raise InvariantViolation(f"the events of the stream: expected {list(events)!r}, came {read!r}")


def check_decodes(
    new_decoder: Callable[[], StreamDecoder], chunks: Sequence[Chunk], segments: Iterable[bytes]
) -> None:
    """Decoding an answer gives exactly these chunks, however the bytes are cut."""
    read = _decoded(new_decoder, segments)
    if read != list(chunks):
        at = next(
            (n for n, (a, b) in enumerate(zip(read, chunks, strict=False)) if a != b),
            min(len(read), len(chunks)),
        )
        raise InvariantViolation(
            f"decoding gives what the answer says: chunk {at + 1} of {len(chunks)}, expected"
            f" {_at(chunks, at)}, came {_at(read, at)}"
        )


def check_round_trip(
    encode: Callable[[Sequence[Chunk]], bytes],
    new_decoder: Callable[[], StreamDecoder],
    chunks: Sequence[Chunk],
    cut: Cut,
) -> None:
    """`decode(encode(s)) == s` for every answer that the format carries, however the bytes are cut."""
    check_decodes(new_decoder, chunks, cut(encode(chunks)))


def check_broken_off(
    new_decoder: Callable[[], StreamDecoder], chunks: Sequence[Chunk], data: bytes, needed: int, cut: Cut
) -> None:
    """An answer that breaks off never looks complete, and tells nothing that was not said.

    `data` is what arrived; it is complete only if it has the first `needed` bytes of the stream of `chunks`.
    """
    read = _decoded(new_decoder, cut(data))
    if read == list(chunks) and len(data) >= needed:
        return
    reason = read[-1]["reason"] if read else {}
    if reason.get("failure", {}).get("code") != STREAM_CLOSED:
        raise InvariantViolation(
            f"an answer that broke off ends as the failure {STREAM_CLOSED}: came {read[-1:]!r} after {data!r}"
        )
    told = [chunk for chunk in read[:-1] if chunk["type"] != "usage"]
    if told != list(chunks[: len(told)]):
        raise InvariantViolation(
            f"what is told of a broken answer was said: expected a start of {chunks!r}, came {told!r}"
        )


def check_survives(new_decoder: Callable[[], StreamDecoder], data: bytes, cut: Cut) -> None:
    """Whatever bytes come, the chunks are usable, bounded and end once; and the cut changes none of them.

    A decoder may make up ids for tool calls that come without one, so ids only have to differ alike.
    """
    read = _decoded(new_decoder, [data])
    _check_usable(read, data)
    for segments in (cut(data), [data[at : at + 1] for at in range(len(data))]):
        again = _decoded(new_decoder, segments)
        if _with_numbered_calls(again) != _with_numbered_calls(read):
            raise InvariantViolation(
                f"the cut changes nothing: in one piece {data!r} is {read!r},"
                f" cut into {segments!r} it is {again!r}"
            )


def check_survives_whole(decode: Callable[[Any], Iterable[Chunk]], value: Any) -> None:
    """Whatever JSON comes as a whole answer, the chunks are usable and end once."""
    try:
        chunks = list(decode(value))
    except Exception as error:
        raise InvariantViolation(
            f"no answer makes a decoder raise: {type(error).__name__}: {error}, for {value!r}"
        ) from error
    _check_usable(chunks, json.dumps(value).encode())


def check_reads_or_refuses(read: Callable[[Any], object], value: Any, refusal: type[Exception]) -> None:
    """Whatever JSON comes as a request, it is read or refused in the documented way."""
    try:
        read(value)
    except refusal:
        return
    except Exception as error:
        raise InvariantViolation(
            f"a request is read, or refused with {refusal.__name__}: {type(error).__name__}: {error} came,"
            f" for {value!r}"
        ) from error


def _with_numbered_calls(chunks: list[Chunk]) -> list[Chunk]:
    """The chunks with the id of each tool call replaced by a number, in order of appearance."""
    numbers: dict[str, int] = {}

    def numbered(part: dict[str, Any]) -> dict[str, Any]:
        return {**part, "id": numbers.setdefault(part["id"], len(numbers))} if "id" in part else part

    return [
        {**chunk, "block": numbered(chunk["block"])} if chunk["type"] == "block-end" else numbered(chunk)
        for chunk in chunks
    ]


def _check_usable(chunks: list[Chunk], data: bytes) -> None:
    if len(chunks) > len(data) + 2:
        raise InvariantViolation(
            f"no more chunks than bytes: {len(chunks)} came of {len(data)} bytes, {data!r}"
        )
    finishes = [at for at, chunk in enumerate(chunks, 1) if chunk.get("type") == "finish"]
    if finishes != [len(chunks)]:
        raise InvariantViolation(
            f"one finish, at the end: of {len(chunks)} chunks {finishes} are it, for {data!r}"
        )
    fault = next((fault for chunk in chunks if (fault := chunk_fault(chunk))), None) or next(
        contradictions(chunks), None
    )
    if fault is not None:
        raise InvariantViolation(
            f"the chunks are usable and agree with each other: {fault} in {chunks!r}, for {data!r}"
        )


def _decoded(new_decoder: Callable[[], StreamDecoder], segments: Iterable[bytes]) -> list[Chunk]:
    """Decode; an exception is a violation, because no decoder documents one: failures are chunks."""
    fed: list[bytes] = []
    try:
        decoder = new_decoder()
        chunks: list[Chunk] = []
        for segment in segments:
            fed.append(segment)
            chunks += decoder.feed(segment)
        return [*chunks, *decoder.close()]
    except Exception as error:
        raise InvariantViolation(
            f"no bytes make a decoder raise: {type(error).__name__}: {error}, after {b''.join(fed)!r}"
        ) from error


def _at(chunks: Sequence[Chunk], at: int) -> str:
    return repr(chunks[at]) if at < len(chunks) else "nothing"
