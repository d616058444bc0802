"""What a step of the script waits for in the logs: in words, and as a question to ask again and again."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from onetake.snapshot.drive.livelog import LiveLog, LiveLogs
from onetake.snapshot.suites import ops

Condition = tuple[Callable[[], str], Callable[[], bool]]
"""The words, which may say how far it has come, and the question."""


def idle(logs: LiveLogs) -> Condition:
    """That nothing more happens in any session by itself."""
    return lambda: "all sessions to be idle: " + "; ".join(logs.unfinished()), lambda: not logs.unfinished()


def log_condition(step: ops.LogStep, logs: LiveLogs, session: str, opened: Sequence[str]) -> Condition:
    """What the step waits for; `session` is the current one, `opened` are those that the script opened."""

    def current(what: str, holds: Callable[[LiveLog], bool]) -> Condition:
        def holds_now() -> bool:
            log = logs.of(session)
            return log is not None and holds(log)

        return lambda: f"{what} in the session log", holds_now

    match step:
        case ops.WaitForTurnStart(minimum_turn=turn):
            return current(f"the start of turn {turn}", lambda log: log.last_turn("turn/start") >= turn)
        case ops.WaitForTurnEnd():
            return current("the end of the turn", lambda log: log.last_turn("turn/start") > 0 and log.closed)
        case ops.WaitForEventAfterTurnEnd(type=kind):
            return current(
                f"an event of type {kind} after the end of the turn", lambda log: kind in log.after_turn_end()
            )
        case ops.WaitForInboxMessage(text=text):
            return current(
                f"a message with {text!r} in the inbox",
                lambda log: any(text in message for message in log.inbox_texts()),
            )
        case ops.WaitForSubagentTurnEnd(child=child, minimum_turn=turn):
            return _child_ended(logs, child, turn, opened)
        case ops.WaitForIdle():
            return idle(logs)


def _child_ended(logs: LiveLogs, number: int | None, turn: int, opened: Sequence[str]) -> Condition:
    def ended() -> bool:
        if number is None:
            return any(log.last_turn("turn/end") >= turn for log in logs.children())
        log, certain = logs.child(number, opened)
        return certain and log is not None and log.last_turn("turn/end") >= turn

    def what() -> str:
        words = f"the end of turn {turn} of child {number or '(any)'} in the session log"
        log, certain = logs.child(number, opened) if number is not None else (None, True)
        if log is None or certain:
            return words
        return (
            f"{words}; session {log.id} may be that child, but one that is counted before it may still come: "
            "wait for those before it first, or for any child"
        )

    return what, ended
