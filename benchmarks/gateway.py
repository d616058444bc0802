"""What a replayed answer costs on the wire, beside a server that does nothing but send the same bytes.

The client is a raw socket, so that no SDK hides the difference. The bare server reads the request to its end
and writes the pieces one by one, as the gateway does.
"""

from __future__ import annotations

import asyncio
import socket
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from benchmarks.measure import interleaved, report
from onetake import jsontext
from onetake.snapshot import recorded_model

CHUNKS = 200
ROUNDS = 15
STREAMS = 5
"""Streams in a round: one is over in milliseconds."""
CALLS = 1000


def main() -> None:
    """Measure and print."""
    with tempfile.TemporaryDirectory() as directory:
        _stream(Path(directory, "stream"))
        _calls(Path(directory, "calls"))


def _stream(folder: Path) -> None:
    reply = {"pieces": [f"word{number} " for number in range(CHUNKS)]}
    script = {"replies": [{"reply": reply, "repeat": True}]}
    streams = (ROUNDS + 1) * STREAMS
    with recorded_model(folder, script=script, mode="record") as model:
        sent, *_ = [_ask(model.openai, "Tell me.") for _ in range(streams)]
    pieces = _pieces(sent)
    assert len(pieces) >= CHUNKS, "each chunk is an event"
    with recorded_model(folder, mode="replay") as model, _bare(pieces) as bare:
        for _ in range(STREAMS):  # the first call imports what the others find
            _ask(bare, "Tell me.")
            assert b"word199 " in _ask(model.openai, "Tell me.")
        costs = interleaved(
            {
                "bare": lambda: [_ask(bare, "Tell me.") for _ in range(STREAMS)],
                "gateway": lambda: [_ask(model.openai, "Tell me.") for _ in range(STREAMS)],
            },
            ROUNDS,
        )
    print(f"gateway, a replayed stream of {CHUNKS} chunks, raw socket client; medians of {ROUNDS} rounds")
    wall = costs["gateway"].wall
    each = f"{wall / STREAMS * 1000:.2f} ms"
    report("one stream", each, wall / costs["bare"].wall, 1.5, "a bare asyncio server")


def _calls(folder: Path) -> None:
    script = {"replies": [{"reply": {"text": "Noted."}, "repeat": True}]}
    with recorded_model(folder, script=script, mode="record") as model:
        first, *_ = [_ask(model.openai, f"Note {number}.") for number in range(CALLS)]
    pieces = _pieces(first)

    def load_and_match() -> None:
        with recorded_model(folder, mode="replay") as model:
            for number in reversed(range(CALLS)):
                _ask(model.openai, f"Note {number}.")

    with _bare(pieces) as bare:
        costs = interleaved(
            {
                "bare": lambda: [_ask(bare, f"Note {number}.") for number in range(CALLS)],
                "gateway": load_and_match,
            },
            3,
        )
    wall = costs["gateway"].wall
    name = f"{CALLS} recorded calls loaded, matched, judged"
    report(name, f"{wall:.2f} s", wall / costs["bare"].wall, None, f"{CALLS} calls of a bare server")


def _ask(base_url: str, text: str) -> bytes:
    """One streamed call over a connection of its own; returns everything that came."""
    place = urlsplit(base_url)
    asked = {"model": "m", "stream": True, "messages": [{"role": "user", "content": text}]}
    body = jsontext.dumps(asked)
    head = (
        f"POST {place.path}/chat/completions HTTP/1.1\r\nhost: {place.netloc}\r\nconnection: close\r\n"
        f"content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
    )
    came = bytearray()
    with socket.create_connection((place.hostname or "", place.port or 0)) as connection:
        connection.sendall(head.encode() + body)
        while data := connection.recv(65536):
            came += data
    return bytes(came)


def _pieces(sent: bytes) -> list[bytes]:
    """The chunks of a body, as a server has to write them."""
    head, _, body = sent.partition(b"\r\n\r\n")
    pieces = [head + b"\r\n\r\n"]
    while body:
        size = int(body[: body.index(b"\r\n")], 16)
        end = body.index(b"\r\n") + 2 + size + 2
        pieces.append(body[:end])
        body = body[end:]
    return pieces


@contextmanager
def _bare(pieces: list[bytes]) -> Iterator[str]:
    """A server that answers whatever is asked with these pieces; yields its base URL."""

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        size = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
        await reader.readexactly(size)
        for piece in pieces:
            writer.write(piece)
            await writer.drain()
        writer.close()

    with _in_thread(connected) as port:
        yield f"http://127.0.0.1:{port}/v1"


@contextmanager
def _in_thread(connected: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Any]) -> Iterator[int]:
    """Serve on a loop of its own, as the gateway does; yields the port."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        starting = asyncio.start_server(connected, "127.0.0.1", 0)
        server = asyncio.run_coroutine_threadsafe(starting, loop).result()
        yield server.sockets[0].getsockname()[1]
        loop.call_soon_threadsafe(server.close)
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
