"""Ids of the agent's own in the settings of its requests keep their identity."""

from __future__ import annotations

from typing import Any

import pytest

from onetake.gateway.identity import Identities, has_identities


def request(key: str, **settings: Any) -> dict[str, Any]:
    return {"config": {"prompt_cache_key": key, **settings}, "messages": []}


RECORDED = request("{{sessionId:1}}", metadata={"user": "u_{{sessionId:1}}", "tags": ["{{sessionId:2}}"]})


def live(first: str, again: str, second: str) -> dict[str, Any]:
    return request(first, metadata={"user": f"u_{again}", "tags": [second]})


def test_the_first_value_stands_for_the_token() -> None:
    ids = Identities()
    assert ids.like(RECORDED, live("a-1", "a-1", "b-2")) == RECORDED
    ids.learn(RECORDED, live("a-1", "a-1", "b-2"))
    assert ids.like(RECORDED, live("a-1", "a-1", "b-2")) == RECORDED


@pytest.mark.parametrize(
    "other",
    [("a-1", "a-9", "b-2"), ("a-1", "a-1", "a-1"), ("a 1", "a-1", "b-2"), ("", "a-1", "b-2")],
    ids=["two values for a token", "one value for two tokens", "words", "nothing"],
)
def test_another_identity_is_a_difference(other: tuple[str, str, str]) -> None:
    assert Identities().like(RECORDED, live(*other)) != RECORDED


def test_what_was_learned_holds() -> None:
    ids = Identities()
    ids.learn(RECORDED, live("a-1", "a-1", "b-2"))
    assert ids.like(RECORDED, live("a-2", "a-2", "b-2")) != RECORDED
    assert ids.like(RECORDED, live("b-2", "b-2", "a-1")) != RECORDED, "swapped"


def test_looking_teaches_nothing() -> None:
    ids = Identities()
    ids.like(RECORDED, live("a-1", "a-1", "b-2"))
    assert ids.like(RECORDED, live("c-1", "c-1", "d-2")) == RECORDED


def test_only_settings_are_looked_at() -> None:
    told = {"config": {}, "messages": ["{{sessionId:1}}"]}
    assert not has_identities(told) and has_identities(RECORDED)
    assert Identities().like(told, {"config": {}, "messages": ["a-1"]})["messages"] == ["a-1"]
    assert Identities().like(request("fixed"), request("a-1")) == request("a-1")
