"""Reading lines and writing frames where a well-behaved peer does not lead: bursts, stalls, early ends."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest

from onetake.agent.context import AppContext
from onetake.errors import UsageError
from onetake.surfaces.acp.server import AcpServer
from onetake.surfaces.acp.stdio import open_reader, open_writer


def test_a_burst_of_lines_pauses_the_input_and_loses_nothing() -> None:
    async def main() -> None:
        source, sink = os.pipe()
        reader = await open_reader(source)
        count = 50_000
        writing = asyncio.get_running_loop().run_in_executor(
            None, _write_all, sink, b"".join(b"%d\n" % i for i in range(count))
        )
        while not reader._paused:
            await asyncio.sleep(0)
        found = [await reader.line() for _ in range(count)]
        await writing
        os.close(sink)
        assert found == [b"%d" % i for i in range(count)]
        assert await reader.line() is None
        reader.close()

    asyncio.run(main())


def _write_all(file: int, data: bytes) -> None:
    while data:
        data = data[os.write(file, data) :]


def test_ending_the_input_from_outside_keeps_the_lines_that_came() -> None:
    async def main() -> None:
        source, sink = os.pipe()
        reader = await open_reader(source)
        os.write(sink, b"one\ntwo\nhalf")
        assert await reader.line() == b"one"
        reader.end()
        reader.end()
        assert [await reader.line() for _ in range(3)] == [b"two", b"half", None]
        reader.close()
        os.close(sink)

    asyncio.run(main())


def test_drain_waits_for_a_slow_reader_and_closing_hands_everything_over() -> None:
    async def main() -> None:
        source, sink = os.pipe()
        lost = asyncio.Event()
        writer = await open_writer(sink, on_lost=lost)
        data = b"x" * 1_000_000
        writer.write(data)
        draining = asyncio.create_task(writer.drain())
        await asyncio.sleep(0)
        assert not draining.done(), "the pipe is full and nobody reads"
        reading = asyncio.get_running_loop().run_in_executor(None, _read_all, source)
        await draining
        await writer.close(30)
        assert lost.is_set() and await reading == data
        writer.write(b"too late")

    asyncio.run(main())


def _read_all(file: int) -> bytes:
    with os.fdopen(file, "rb") as stream:
        return stream.read()


def test_a_reader_that_never_reads_cannot_hold_up_the_end() -> None:
    async def main() -> None:
        source, sink = os.pipe()
        lost = asyncio.Event()
        writer = await open_writer(sink, on_lost=lost)
        writer.write(b"x" * 1_000_000)
        await writer.close(0)
        await lost.wait()
        os.close(source)

    asyncio.run(main())


def test_a_reader_that_goes_away_frees_who_waits_for_it() -> None:
    async def main() -> None:
        source, sink = os.pipe()
        lost = asyncio.Event()
        writer = await open_writer(sink, on_lost=lost)
        writer.write(b"x" * 1_000_000)
        draining = asyncio.create_task(writer.drain())
        await asyncio.sleep(0)
        os.close(source)
        await draining
        await lost.wait()
        await writer.close(30)

    asyncio.run(main())


def test_a_plain_file_is_written_directly_and_closed_once(tmp_path: Path) -> None:
    async def main() -> None:
        file = os.open(tmp_path / "out", os.O_WRONLY | os.O_CREAT)
        writer = await open_writer(file, on_lost=asyncio.Event())
        writer.write(b"a\n")
        await writer.drain()
        await writer.close(0)
        await writer.close(0)
        writer.write(b"b\n")

    asyncio.run(main())
    assert (tmp_path / "out").read_bytes() == b"a\n"


@pytest.mark.parametrize(
    ("error", "traced"), [(UsageError("no agent row"), False), (ZeroDivisionError("oops"), True)]
)
def test_a_method_that_fails_is_an_internal_error(
    tmp_path: Path, error: Exception, traced: bool, capfd: pytest.CaptureFixture[str]
) -> None:
    class Failing(AppContext):
        async def create_session(self, *args: Any, **kwargs: Any) -> Any:
            raise error

    async def main() -> None:
        frames: list[dict[str, Any]] = []
        server = AcpServer(Failing(config_dir=tmp_path, environ={"HOME": "/"}), frames.append)
        await server.handle(b'{"jsonrpc":"2.0","id":1,"method":"session/new","params":{"cwd":"/"}}')
        assert frames == [
            {"jsonrpc": "2.0", "id": 1, "error": {"code": -32603, "message": f"Internal error: {error}"}}
        ]

    asyncio.run(main())
    assert ("Traceback" in capfd.readouterr().err) is traced
