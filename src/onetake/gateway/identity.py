"""Ids of the agent's own that it puts into the settings of its requests, such as `prompt_cache_key`.

The runner meets such an id on the agent's stdout, where it names the agent's session, so the recording has a
`{{sessionId:N}}` in its place; the gateway, which sees requests only, cannot tell what that is in this run.
So the first value that stands where the recording has the token is that token's from then on. Identity is
kept: another value in its place, or the same value for another token, is a difference.
"""

from __future__ import annotations

import re
from typing import Any

from onetake.fixture.grammar import lexemes, token, tokens_in

_KIND = "sessionId"
_PLACE = "config"
"""Only there: what the model reads is never guessed at."""


class Identities:
    """What the tokens of an agent's own ids stand for in this run, as far as it was seen."""

    def __init__(self) -> None:
        self._values: dict[str, str] = {}

    def like(self, recorded: dict[str, Any], live: dict[str, Any]) -> dict[str, Any]:
        """A live request with the recorded tokens where its own ids may stand for them."""
        return {**live, _PLACE: _like(recorded.get(_PLACE), live.get(_PLACE), dict(self._values))}

    def learn(self, recorded: dict[str, Any], live: dict[str, Any]) -> None:
        """From now on the ids of a live request stand for the tokens of the recorded one."""
        _like(recorded.get(_PLACE), live.get(_PLACE), self._values)


def has_identities(recorded: dict[str, Any]) -> bool:
    """Whether a recorded request holds an id of the agent's own."""
    return any(_bodies(text) for text in _strings(recorded.get(_PLACE)))


def _like(recorded: Any, live: Any, values: dict[str, str]) -> Any:
    if isinstance(recorded, dict) and isinstance(live, dict):
        return {name: _like(recorded.get(name), value, values) for name, value in live.items()}
    if isinstance(recorded, list) and isinstance(live, list) and len(recorded) == len(live):
        return [_like(one, other, values) for one, other in zip(recorded, live, strict=True)]
    if isinstance(recorded, str) and isinstance(live, str) and _stands_for(recorded, live, values):
        return recorded
    return live


def _stands_for(recorded: str, live: str, values: dict[str, str]) -> bool:
    """Whether a text is the recorded one with values for its ids; keeps those that are new."""
    bodies = _bodies(recorded)
    match = re.fullmatch(_pattern(recorded), live, re.DOTALL) if bodies else None
    if match is None:
        return False
    found = dict(values)
    for body, value in zip(bodies, match.groups(), strict=True):
        if found.setdefault(body, value) != value:
            return False
    if len(set(found.values())) < len(found):
        return False
    values.update(found)
    return True


def _pattern(recorded: str) -> str:
    """The recorded text as a regular expression with a group for each id."""
    pattern, at = "", 0
    for start, end, body in lexemes(recorded):
        if body.startswith(_KIND):
            pattern += re.escape(recorded[at:start]) + "([A-Za-z0-9_-]+)"
            at = end
    return pattern + re.escape(recorded[at:])


def _bodies(recorded: str) -> list[str]:
    return [token(body) for body in tokens_in(recorded) if body.startswith(_KIND)]


def _strings(value: Any) -> list[str]:
    if isinstance(value, dict):
        return [text for item in value.values() for text in _strings(item)]
    if isinstance(value, list):
        return [text for item in value for text in _strings(item)]
    return [value] if isinstance(value, str) else []
