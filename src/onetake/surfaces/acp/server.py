"""An ACP agent on one connection: requests in, session updates and answers out.

Frames are handled one after the other in the order in which they came; only the wait for the end of a prompt
happens beside that, so a prompt can be cancelled and other sessions can go on. An answer is written after
everything that the turn showed, and after the log was flushed.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from onetake import __version__
from onetake.agent.agent import Agent
from onetake.agent.context import AppContext
from onetake.agent.loop import STEP_LIMIT
from onetake.app.plugins import AcpOptions
from onetake.errors import OnetakeError
from onetake.session.events import Event
from onetake.surfaces.acp import jsonrpc
from onetake.surfaces.acp.content import prompt_blocks
from onetake.surfaces.acp.jsonrpc import Incoming, RpcError, invalid_params, invalid_request
from onetake.surfaces.acp.updates import Updates
from onetake.surfaces.stdio import FrameWriter, LineReader, open_reader, open_writer

PROTOCOL_VERSION = 1
_CLOSING_SECONDS = 5.0
"""How long a client that has stopped reading can hold up the exit."""

_STOP_REASONS = {
    "completed": "end_turn",
    "max-tokens": "end_turn",
    "blocked": "end_turn",
    "aborted": "cancelled",
    "interrupted": "cancelled",
}


class AcpServer:
    """The protocol of one connection, between `handle` and `send`."""

    def __init__(
        self,
        ctx: AppContext,
        send: Callable[[dict[str, Any]], None],
        *,
        stream: bool = False,
        drain: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        self._ctx = ctx
        self._send = send
        self._stream = stream
        self._drain = drain
        self._sessions: dict[str, Agent] = {}
        self._prompts: dict[str, asyncio.Task[None]] = {}
        self._methods: dict[str, Callable[[dict[str, Any]], Awaitable[Any]]] = {
            "initialize": self._initialize,
            "authenticate": self._authenticate,
            "session/new": self._new_session,
        }

    async def handle(self, line: bytes) -> None:
        """Handle one line of input to its answer; a prompt's answer comes later."""
        request_id: jsonrpc.Id = None
        answers = True
        try:
            incoming = jsonrpc.parse(line)
            if incoming is None:
                return
            request_id, answers = incoming.id, incoming.is_request
            await self._dispatch(incoming)
        except RpcError as error:
            if answers:
                id_ = request_id if request_id is not None else error.id
                self._send(jsonrpc.error_frame(id_, error.code, str(error)))
        except Exception as error:
            if not isinstance(error, OnetakeError):
                import traceback

                traceback.print_exception(error)
            if answers:
                text = f"Internal error: {error}"
                self._send(jsonrpc.error_frame(request_id, jsonrpc.INTERNAL_ERROR, text))

    async def _dispatch(self, incoming: Incoming) -> None:
        if incoming.method == "session/cancel":
            if incoming.is_request:
                raise invalid_request("session/cancel is a notification and has no id")
            self._cancel(incoming.params)
        elif not incoming.is_request:
            return
        elif incoming.method == "session/prompt":
            self._prompt(incoming)
        elif incoming.method in self._methods:
            result = await self._methods[incoming.method](incoming.params)
            self._send(jsonrpc.result_frame(incoming.id, result))
        else:
            raise RpcError(jsonrpc.METHOD_NOT_FOUND, f"Method not found: {incoming.method}")

    # -- methods -------------------------------------------------------------------------------------------

    async def _initialize(self, params: dict[str, Any]) -> dict[str, Any]:
        version = params.get("protocolVersion")
        if not isinstance(version, int) or isinstance(version, bool):
            raise invalid_params("protocolVersion must be an integer")
        return {
            "protocolVersion": PROTOCOL_VERSION,
            "agentInfo": {"name": "onetake", "version": __version__},
            "agentCapabilities": {
                "promptCapabilities": {"image": False, "audio": False, "embeddedContext": False}
            },
            "authMethods": [],
        }

    async def _authenticate(self, params: dict[str, Any]) -> dict[str, Any]:
        return {}

    async def _new_session(self, params: dict[str, Any]) -> dict[str, Any]:
        if params.get("additionalDirectories"):
            raise invalid_params("additionalDirectories is not supported")
        if params.get("mcpServers"):
            raise invalid_params("mcpServers is not supported")
        cwd = params.get("cwd")
        if not isinstance(cwd, str) or not os.path.isabs(cwd):
            raise invalid_params("cwd must be an absolute path")
        if not os.path.isdir(cwd):
            raise invalid_params("cwd must be an existing directory")
        agent = await self._ctx.create_session(Path(cwd))
        agent.reader_ready = self._drain
        updates = Updates(stream=self._stream)

        def show(event: Event) -> None:
            for update in updates.of(event):
                params = {"sessionId": agent.id, "update": update}
                self._send(jsonrpc.notification_frame("session/update", params))

        agent.log.subscribe(show)
        self._sessions[agent.id] = agent
        return {"sessionId": agent.id}

    def _prompt(self, incoming: Incoming) -> None:
        agent = self._session(incoming.params)
        blocks = prompt_blocks(incoming.params.get("prompt"))
        if agent.id in self._prompts:
            raise invalid_request("this session has a prompt in flight; wait for its answer or cancel it")
        ending = agent.ask(blocks)
        self._prompts[agent.id] = asyncio.create_task(self._answer(incoming.id, agent, ending))

    async def _answer(
        self, request_id: jsonrpc.Id, agent: Agent, ending: asyncio.Future[dict[str, Any]]
    ) -> None:
        try:
            frame = _answer_frame(request_id, await ending)
        except Exception as error:
            text = f"Internal error: turn failed: {error}"
            frame = jsonrpc.error_frame(request_id, jsonrpc.INTERNAL_ERROR, text)
        del self._prompts[agent.id]
        self._send(frame)

    def _cancel(self, params: dict[str, Any]) -> None:
        agent = self._sessions.get(str(params.get("sessionId")))
        if agent is not None:
            agent.cancel()

    def _session(self, params: dict[str, Any]) -> Agent:
        session_id = params.get("sessionId")
        if not isinstance(session_id, str):
            raise invalid_params("sessionId must be a string")
        agent = self._sessions.get(session_id)
        if agent is None:
            raise invalid_params(f"unknown session {session_id!r}")
        return agent

    async def close(self) -> None:
        """Cancel what runs, close the sessions with their logs flushed, and answer the prompts in flight."""
        try:
            await self._ctx.close()
        finally:
            await asyncio.gather(*list(self._prompts.values()))


def _answer_frame(request_id: jsonrpc.Id, reason: dict[str, Any]) -> dict[str, Any]:
    if reason["kind"] != "error":
        return jsonrpc.result_frame(request_id, {"stopReason": _STOP_REASONS[reason["kind"]]})
    failure = reason["error"]
    if failure.get("code") == STEP_LIMIT:
        return jsonrpc.result_frame(request_id, {"stopReason": "max_turn_requests"})
    text = f"Internal error: turn failed: {failure['message']}"
    return jsonrpc.error_frame(request_id, jsonrpc.INTERNAL_ERROR, text)


async def serve_acp(
    ctx: AppContext, stdin: int, stdout: int, options: AcpOptions, *, stop: asyncio.Event | None = None
) -> None:
    """Serve one connection on two file descriptors until stdin ends, stdout is closed or `stop` is set.

    Running turns are then cancelled, logs flushed and prompts answered before this returns.
    """
    gone = asyncio.Event()
    reader = await open_reader(stdin)
    writer = await open_writer(stdout, on_lost=gone)
    server = AcpServer(
        ctx, lambda frame: writer.write(jsonrpc.encode(frame)), stream=options.stream, drain=writer.drain
    )
    watchers = [asyncio.create_task(_end_when(event, reader)) for event in (gone, stop) if event is not None]
    try:
        await _serve(server, reader, writer)
    finally:
        for watcher in watchers:
            watcher.cancel()
        reader.close()
        await server.close()
        await writer.close(_CLOSING_SECONDS)


async def _serve(server: AcpServer, reader: LineReader, writer: FrameWriter) -> None:
    while (line := await reader.line()) is not None:
        await server.handle(line)


async def _end_when(event: asyncio.Event, reader: LineReader) -> None:
    await event.wait()
    reader.end()
