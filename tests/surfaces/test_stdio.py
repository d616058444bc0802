"""Reading lines and writing frames where a well-behaved peer does not lead: bursts, stalls, early ends."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest

from onetake.agent.agent import AgentConfig
from onetake.agent.context import AppContext
from onetake.errors import UsageError
from onetake.surfaces.acp.jsonrpc import encode
from onetake.surfaces.acp.server import AcpServer
from onetake.surfaces.stdio import open_reader, open_writer
from tests.agent.fakes import FakeProvider, Gate, says


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


def test_no_request_is_made_while_the_client_has_not_caught_up(tmp_path: Path) -> None:
    async def main() -> None:
        ctx = AppContext(config_dir=tmp_path, environ={"HOME": str(tmp_path)})
        provider = FakeProvider([says("x")])
        ctx.providers.register(provider)
        ctx.agent_config = AgentConfig(provider="fake", model="m")
        client, frames = Gate(), list[dict[str, Any]]()
        server = AcpServer(ctx, frames.append, drain=client.pass_through)
        params: dict[str, Any] = {"cwd": "/"}
        await server.handle(encode({"jsonrpc": "2.0", "id": 1, "method": "session/new", "params": params}))
        session = frames[0]["result"]["sessionId"]
        params = {"sessionId": session, "prompt": [{"type": "text", "text": "go"}]}
        await server.handle(encode({"jsonrpc": "2.0", "id": 2, "method": "session/prompt", "params": params}))
        await client.reached.wait()
        assert provider.requests == []
        client.opened.set()
        await ctx.agents[session].when_idle()
        assert len(provider.requests) == 1
        await server.close()
        assert frames[-1] == {"jsonrpc": "2.0", "id": 2, "result": {"stopReason": "end_turn"}}

    asyncio.run(main())


@pytest.mark.parametrize("begun", [True, False])
def test_closing_answers_the_prompts_in_flight(tmp_path: Path, begun: bool) -> None:
    async def main() -> None:
        ctx = AppContext(config_dir=tmp_path, environ={"HOME": str(tmp_path)})
        gate = Gate()
        ctx.providers.register(FakeProvider([[gate]]))
        ctx.agent_config = AgentConfig(provider="fake", model="m")
        frames: list[dict[str, Any]] = []
        server = AcpServer(ctx, frames.append)
        params: dict[str, Any] = {"cwd": "/"}
        await server.handle(encode({"jsonrpc": "2.0", "id": 1, "method": "session/new", "params": params}))
        params = {"sessionId": frames[0]["result"]["sessionId"], "prompt": [{"type": "text", "text": "go"}]}
        await server.handle(encode({"jsonrpc": "2.0", "id": 2, "method": "session/prompt", "params": params}))
        if begun:
            await gate.reached.wait()
        await server.close()
        assert frames[1:] == [{"jsonrpc": "2.0", "id": 2, "result": {"stopReason": "cancelled"}}]

    asyncio.run(main())
