"""The requests surface: what the model was asked, call by call, short where the log says it already.

One line per call, ordered by session and call, so that it does not depend on how concurrent sessions
interleave. A message that the log holds as it was sent is only named by its token; whatever differs from the
log is written in full. A healthy line is short, and an injected, reformatted or dropped message is glaring.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from onetake import jsontext
from onetake.fixture.grammar import tokens_in
from onetake.fixture.normalize import Rules
from onetake.session.events import SURFACE_TYPES, USER_MESSAGE

FILE = "requests.expected.jsonl"


class Logged:
    """The messages that a session logged as surface events, by id."""

    def __init__(self, events: Iterable[Mapping[str, Any]]) -> None:
        self._facts: dict[str, set[bytes]] = {}
        for event in events:
            message = surface_message(event)
            if message is not None and isinstance(message.get("id"), str):
                self._facts.setdefault(message["id"], set()).add(_facts(message))

    def holds(self, message: Any) -> bool:
        """Whether a message of a request equals the logged one of its id in role, content and replayState."""
        if not isinstance(message, dict) or not isinstance(message.get("id"), str):
            return False
        return _facts(message) in self._facts.get(message["id"], ())


def surface_message(event: Mapping[str, Any]) -> dict[str, Any] | None:
    """The message of a surface event; None for any other event."""
    if event.get("type") not in SURFACE_TYPES:
        return None
    data = event.get("data")
    message = (
        data if event.get("type") == USER_MESSAGE else data.get("message") if isinstance(data, dict) else None
    )
    return message if isinstance(message, dict) else None


def render_requests(
    requests: Sequence[Mapping[str, Any]],
    bindings: Mapping[str, int],
    logged: Mapping[int, Logged],
    tokenize: Callable[[Any], Any],
    header_token: Callable[[str, Any], str | None],
    rules: Rules,
) -> bytes:
    """Render captured calls.

    `bindings` gives each live session its fixture index, `logged` each index its messages; `tokenize`
    replaces the run's values in a JSON value, `header_token` names a tokenized prompt or schema list that a
    header has.
    """
    last: dict[tuple[Any, Any], list[bytes]] = {}
    lines = []
    for request in sorted(requests, key=lambda request: _order(request, bindings)):
        session = bindings.get(str(request.get("session")))
        messages = request.get("messages") or []
        texts = [jsontext.dumps(message) for message in messages]
        key = (request.get("session"), request.get("purpose"))
        kept = _common(last.get(key, []), texts)
        last[key] = texts
        known = logged.get(session) if session is not None else None
        lines.append(
            jsontext.dumps(_line(request, session, kept, known, tokenize, header_token, rules)) + b"\n"
        )
    return b"".join(lines)


def _line(
    request: Mapping[str, Any],
    session: int | None,
    kept: int,
    logged: Logged | None,
    tokenize: Callable[[Any], Any],
    header_token: Callable[[str, Any], str | None],
    rules: Rules,
) -> dict[str, Any]:
    names: dict[str, str] = {}

    def named(token: str) -> str:
        # Rules and tokens work on live values, and what is finished must not go through them again.
        names[placeholder := f"\0{len(names)}\0"] = token
        return placeholder

    line = {
        "session": session,
        "call": request.get("call"),
        "purpose": request.get("purpose"),
        "config": request.get("config"),
    }
    for kind in ("system", "tools"):
        value = request.get(kind)
        token = None if value is None else header_token(kind, tokenize(value))
        line[kind] = value if token is None else named(token)
    line["kept"] = kept
    messages = []
    for message in (request.get("messages") or [])[kept:]:
        token = _token(message, logged, tokenize)
        messages.append(message if token is None else named(token))
    line["messages"] = messages
    result: dict[str, Any] = tokenize(rules.apply(line))
    for kind in ("system", "tools"):
        if kind in result and isinstance(result[kind], str):
            result[kind] = names.get(result[kind], result[kind])
    if isinstance(result.get("messages"), list):
        result["messages"] = [names.get(m, m) if isinstance(m, str) else m for m in result["messages"]]
    return result


def _order(request: Mapping[str, Any], bindings: Mapping[str, int]) -> tuple[Any, ...]:
    session = str(request.get("session"))
    call = request.get("call")
    # Sessions that nothing binds come last; a violation names them.
    return (session not in bindings, bindings.get(session, 0), session, call if isinstance(call, int) else 0)


def _common(before: Sequence[bytes], now: Sequence[bytes]) -> int:
    count = 0
    for a, b in zip(before, now, strict=False):
        if a != b:
            break
        count += 1
    return count


def _token(message: Any, logged: Logged | None, tokenize: Callable[[Any], Any]) -> str | None:
    """The token of a message that the log holds as it was sent; None when it must speak for itself."""
    if logged is None or not logged.holds(message):
        return None
    token: str = tokenize(message["id"])
    return token if tokens_in(token) == [token[2:-2]] else None


def _facts(message: Mapping[str, Any]) -> bytes:
    source = message.get("source")
    state = source.get("replayState") if isinstance(source, dict) else None
    return jsontext.dumps([message.get("role"), message.get("content"), state])
