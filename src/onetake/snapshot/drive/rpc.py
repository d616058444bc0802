"""The runner's end of JSON-RPC over lines: numbered requests out, every frame that comes back kept as bytes.

The raw lines are the transcript surface, so nothing is dropped: a line that is not a frame (a stray
`print`) is kept and remembered, and the run goes on, so that the report can show it where it stands.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from onetake import jsontext
from onetake.snapshot.render.transcript import frame_of

Frame = dict[str, Any]


class Peer:
    """The client side of one transcript; it outlives restarts of the agent, and so do its request ids."""

    def __init__(
        self,
        *,
        send: Callable[[bytes], None],
        on_request: Callable[[str, Any], Frame],
        on_notification: Callable[[str, Any], None],
    ) -> None:
        self.frames: list[bytes] = []
        self.stray: list[bytes] = []
        """Lines that are no JSON-RPC frame, in order."""
        self._send = send
        self._on_request = on_request
        self._on_notification = on_notification
        self._last_id = 0
        self._pending: dict[int, asyncio.Future[Frame]] = {}

    def request(self, method: str, params: Frame) -> asyncio.Future[Frame]:
        """Send a request; the future holds the whole answer frame, `result` or `error`."""
        self._last_id += 1
        future: asyncio.Future[Frame] = asyncio.get_running_loop().create_future()
        self._pending[self._last_id] = future
        self._write({"jsonrpc": "2.0", "id": self._last_id, "method": method, "params": params})
        return future

    def notify(self, method: str, params: Frame) -> None:
        """Send a notification."""
        self._write({"jsonrpc": "2.0", "method": method, "params": params})

    def feed(self, line: bytes) -> None:
        """Take one line of the agent's stdout."""
        self.frames.append(line)
        frame = frame_of(line)
        if frame is None:
            self.stray.append(line)
        elif "method" not in frame:
            future = self._pending.pop(frame["id"], None) if isinstance(frame.get("id"), int) else None
            if future is not None and not future.done():
                future.set_result(frame)
        elif "id" in frame:
            self._write(
                {
                    "jsonrpc": "2.0",
                    "id": frame["id"],
                    **self._on_request(frame["method"], frame.get("params")),
                }
            )
        else:
            self._on_notification(frame["method"], frame.get("params"))

    def forget(self) -> None:
        """The agent is gone: nothing that is still unanswered will be."""
        for future in self._pending.values():
            future.cancel()
        self._pending.clear()

    def _write(self, frame: Frame) -> None:
        self._send(jsontext.dumps(frame) + b"\n")
