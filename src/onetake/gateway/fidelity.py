"""What a recording cannot give back of what an endpoint sent: found by encoding it again.

The events of the answer as it came and as a replay would send it are compared as JSON, event by event and
leaf by leaf. Layout, comments and the cut into segments are free; a leaf that is missing or other is named by
its path, without its value, so that one sentence stands for all events that lose it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

from onetake import jsontext
from onetake.gateway.exchange import Exchange
from onetake.model.types import Chunk
from onetake.wire.chat_request import WireError
from onetake.wire.format import state_of
from onetake.wire.sse import SSEDecoder


def lost(exchange: Exchange, sent: bytes, chunks: Sequence[Chunk]) -> list[str]:
    """Say what encoding `chunks` again would not give back of the bytes that were sent; empty: nothing."""
    name = exchange.format.name
    try:
        if exchange.wire.stream:
            state = state_of(chunks)
            encoder = exchange.format.stream_encoder(exchange.wire, exchange.response_id, state)
            again = b"".join(encoder.push(chunk) for chunk in chunks)
            before, after = _events(sent), _events(again)
        else:
            body = exchange.format.encode_response(chunks, exchange.wire, exchange.response_id)[2]
            before, after = [jsontext.loads(sent)], [jsontext.loads(body)]
    except (WireError, ValueError) as error:
        return [f"{name}: the answer cannot be given back: {error}"]
    if len(before) != len(after):
        return [f"{name}: {len(before)} events came, and a replay sends {len(after)}"]
    pairs = zip(before, after, strict=True)
    found = (path for one, other in pairs for path in _differing(one, other))
    paths = dict.fromkeys(re.sub(r"\[\d+\]", "[]", path) for path in found)
    return [f"{name}: a replay does not give `{path}` back as it came" for path in paths]


def _events(data: bytes) -> list[Any]:
    decoder = SSEDecoder()
    events = decoder.feed(data)
    last = decoder.close()
    return [_value(event.data) for event in [*events, *([] if last is None else [last])]]


def _value(data: str) -> Any:
    try:
        return jsontext.loads(data)
    except ValueError:
        return data


def _differing(one: Any, other: Any, path: str = "") -> Iterator[str]:
    if isinstance(one, dict) and isinstance(other, dict):
        for name in {**one, **other}:
            place = f"{path}.{name}" if path else str(name)
            if name in one and name in other:
                yield from _differing(one[name], other[name], place)
            else:
                yield place
    elif isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        for number, (a, b) in enumerate(zip(one, other, strict=True)):
            yield from _differing(a, b, f"{path}[{number}]")
    elif one != other:
        yield path
