"""What an ACP client may expect of every line that an agent writes, whatever the agent is: pure, without I/O.

The judge is told each request that the client sends and each line that comes back. The first line that breaks
a rule is the finding; how long things may take is for the client to say (`onetake.testing.fuzz.client`).
"""

from __future__ import annotations

from typing import Any

import msgspec

from onetake import jsontext
from onetake.testing.errors import InvariantViolation

Frame = dict[str, Any]

STOP_REASONS = ("end_turn", "max_tokens", "max_turn_requests", "refusal", "cancelled")
CHECKS = {
    "starts": "the agent starts and answers `initialize`",
    "answers-once": "every request is answered, exactly once",
    "live-sessions": "updates and questions are only for sessions that are open",
    "stop-reason": "every prompt that is answered without an error has a stop reason",
    "cancel-settles": "a cancelled prompt is answered soon",
    "pure-stdout": "every line of stdout is JSON-RPC",
    "alive": "the agent stays alive",
    "recovers": "when all is over, every open session answers a plain prompt",
    "exits": "the agent exits with 0 at the end of its input",
    "no-orphans": "the agent leaves no process behind",
}
"""What is checked, by the name that findings and their folders have."""
_SHOWN = 200


class Finding(InvariantViolation):
    """An agent broke a rule: `check` is one of `CHECKS`."""

    def __init__(self, check: str, text: str) -> None:
        super().__init__(f"{check}: {text}")
        self.check = check


class _Request(msgspec.Struct):
    method: str
    readable: bool


class Judge:
    """Judges the lines of one agent process after the other."""

    def __init__(self) -> None:
        self.finding: Finding | None = None
        """The first rule that was broken."""
        self.sessions: list[str] = []
        """The sessions that are open, in order."""
        self._open: dict[int, _Request] = {}
        self._early: list[str] = []

    def sent(self, id: int, method: str, *, readable: bool = True) -> None:
        """The client sends a request.

        One that is not `readable` holds half a surrogate pair: a parser may refuse it, and then the agent
        cannot know its id.
        """
        self._open[id] = _Request(method, readable)

    def restarted(self) -> None:
        """The process is another: nothing is open any more, and no answer to an old request may come."""
        self._open.clear()
        self._early.clear()
        self.sessions.clear()

    def received(self, line: bytes) -> Frame | None:
        """Judge a line of the agent's stdout.

        Returns the frame if it is one that the client has to see: the answer to one of its requests (with the
        id of that request), or something with a method. After a finding nothing is looked at any more.
        """
        if self.finding is not None:
            return None
        try:
            return self._judged(line)
        except Finding as finding:
            self.finding = finding
            return None

    def _judged(self, line: bytes) -> Frame | None:
        frame = _frame(line)
        if "method" not in frame:
            return self._answer(frame)
        params = frame.get("params")
        session = params.get("sessionId") if isinstance(params, dict) else None
        if frame["method"] in ("session/update", "session/request_permission"):
            self._of_session(frame["method"], session)
        return frame

    def _answer(self, frame: Frame) -> Frame | None:
        id_ = frame["id"]
        if id_ is None and "error" in frame:
            unread = [key for key, request in self._open.items() if not request.readable]
            id_ = unread[0] if unread else None
        request = self._open.pop(id_, None) if type(id_) is int else None
        if request is None:
            raise Finding("answers-once", f"an answer to no open request came: {_short(frame)}")
        if "error" not in frame:
            self._result(request, frame["result"])
        if request.method == "session/new" and not self._opening():
            for session in self._early:
                self._of_session("session/update", session)
        return {**frame, "id": id_}

    def _result(self, request: _Request, result: Any) -> None:
        fields = result if isinstance(result, dict) else {}
        if request.method == "session/new":
            session = fields.get("sessionId")
            if not isinstance(session, str):
                raise Finding("live-sessions", f"session/new gave no `sessionId`: {_short(result)}")
            if session in self.sessions:
                raise Finding("live-sessions", f"session/new gave {session!r}, which is open already")
            self.sessions.append(session)
        elif request.method == "session/prompt" and fields.get("stopReason") not in STOP_REASONS:
            known = ", ".join(STOP_REASONS)
            raise Finding(
                "stop-reason", f"session/prompt was answered with {_short(result)}; a stop reason is {known}"
            )

    def _of_session(self, method: str, session: Any) -> None:
        if session in self.sessions:
            return
        if isinstance(session, str) and self._opening():
            self._early.append(session)  # perhaps of the session whose id is just about to be told
            return
        raise Finding("live-sessions", f"{method} came for session {session!r}, which is not open")

    def _opening(self) -> bool:
        return any(request.method == "session/new" for request in self._open.values())


def _frame(line: bytes) -> Frame:
    """The JSON-RPC frame that a line is. Raises Finding."""
    try:
        frame = jsontext.loads(line)
    except ValueError as error:
        raise Finding("pure-stdout", f"a line is not JSON ({error}): {_quoted(line)}") from error
    if isinstance(frame, dict) and frame.get("jsonrpc") == "2.0":
        if isinstance(frame.get("method"), str):
            return frame
        if "method" not in frame and "id" in frame and ("result" in frame) != ("error" in frame):
            return frame
    raise Finding("pure-stdout", f"a line is not JSON-RPC 2.0: {_quoted(line)}")


def _quoted(line: bytes) -> str:
    return repr(line[:_SHOWN].decode("utf-8", "replace")) + ("..." if len(line) > _SHOWN else "")


def _short(value: Any) -> str:
    return jsontext.dumps(value).decode()[:_SHOWN]
