"""The fuzzer's end of JSON-RPC: requests out, answers in, and an answer to whatever the agent asks."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Sequence
from typing import Any

from onetake import jsontext
from onetake.testing.fuzz.judge import Frame, Judge

_HALF = re.compile(rb"\\ud[89a-f]")
"""Half a surrogate pair, as JSON is written here."""


class Peer:
    """The client side of one agent process after the other; every line goes to the judge first.

    Permission questions are answered as `permissions` say, one by one, and with `allow_once` after the last;
    those of a session that `is_over` (its prompt is cancelled, or it has none) with `cancelled`. All else
    that the agent asks is refused.
    """

    def __init__(
        self,
        judge: Judge,
        send: Callable[[bytes], None],
        permissions: Sequence[str],
        is_over: Callable[[str], bool],
    ) -> None:
        self._judge = judge
        self._write = send
        self._permissions = list(permissions)
        self._is_over = is_over
        self._last_id = 0
        self._answers: dict[int, asyncio.Future[Frame]] = {}
        self._held: list[tuple[str, Any]] = []

    def request(self, method: str, params: Frame) -> asyncio.Future[Frame]:
        """Send a request; the future holds the whole answer frame, `result` or `error`."""
        self._last_id += 1
        future: asyncio.Future[Frame] = asyncio.get_running_loop().create_future()
        self._answers[self._last_id] = future
        frame = {"id": self._last_id, "method": method, "params": params}
        self._judge.sent(self._last_id, method, readable=_HALF.search(jsontext.dumps(frame)) is None)
        self._send(frame)
        return future

    def notify(self, method: str, params: Frame) -> None:
        """Send a notification."""
        self._send({"method": method, "params": params})

    def feed(self, line: bytes) -> None:
        """Take one line of the agent's stdout."""
        frame = self._judge.received(line)
        if frame is None:
            return
        if "method" not in frame:
            self._answers.pop(frame["id"]).set_result(frame)
        elif "id" in frame:
            self._question(frame)

    def holds(self, session: str) -> bool:
        """Whether a question of that session is left unanswered."""
        return any(asker == session for asker, _ in self._held)

    def release(self, session: str) -> None:
        """The session's prompt is cancelled: answer what was left unanswered, as the protocol asks."""
        for asker, question in self._held:
            if asker == session:
                self._decide(question, {"outcome": "cancelled"})
        self._held = [held for held in self._held if held[0] != session]

    def forget(self) -> None:
        """The process is gone, and with it all that was open."""
        self._answers.clear()
        self._held.clear()

    def _question(self, frame: Frame) -> None:
        if frame["method"] != "session/request_permission":
            error = {"code": -32601, "message": f"Method not found: {frame['method']}"}
            self._send({"id": frame["id"], "error": error})
            return
        session = frame["params"]["sessionId"]
        wanted = self._permissions.pop(0) if self._permissions else "allow_once"
        if wanted == "held" and not self._is_over(session):
            self._held.append((session, frame["id"]))
            return
        options = frame["params"].get("options")
        offered = [each for each in options if isinstance(each, dict)] if isinstance(options, list) else []
        fitting = [each for each in offered if each.get("kind") == wanted and not self._is_over(session)]
        if fitting:
            self._decide(frame["id"], {"outcome": "selected", "optionId": fitting[0].get("optionId")})
        else:
            self._decide(frame["id"], {"outcome": "cancelled"})

    def _decide(self, question: Any, outcome: Frame) -> None:
        self._send({"id": question, "result": {"outcome": outcome}})

    def _send(self, frame: Frame) -> None:
        self._write(jsontext.dumps({"jsonrpc": "2.0", **frame}) + b"\n")
