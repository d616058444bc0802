"""Model history: derived from surface events, replaced in place, never aliasing the log."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from onetake.session.events import make_event
from onetake.session.history import History, HistoryError, derive_messages
from onetake.session.jsonl import read_log
from tests.session.make import assistant, user


def surface(seq: int, op: Any = "append", text: str = "") -> dict[str, Any]:
    """Return a user message event that does `op`."""
    return make_event("user/message", seq, 0, user(text or f"m{seq}"), surface_op=op)


def replace(start: int, end: int) -> dict[str, Any]:
    """Return a replacing surfaceOp."""
    return {"op": "replace", "start": start, "end": end}


def texts(events: list[dict[str, Any]]) -> list[str]:
    """Return the first text of each message of the history."""
    return [message["content"][0]["text"] for message in derive_messages(events)]


def test_only_surface_events_with_an_operation_are_seen() -> None:
    """Chunks, calls and surface events without surfaceOp stay out."""
    result = {"turn": 1, "step": 1, "message": {"role": "user", "content": [{"type": "text", "text": "r"}]}}
    events = [
        make_event("turn/start", 0, 0, {"turn": 1}),
        surface(1),
        make_event("user/message", 2, 0, user("unseen")),
        make_event("assistant/message", 3, 0, assistant({"type": "text", "text": "a"}), surface_op="append"),
        make_event("tool/result", 4, 0, result, surface_op="append"),
        make_event("x/message", 5, 0, user("unknown type"), surface_op="append"),
    ]
    assert texts(events) == ["m1", "a", "r"]


def test_a_replacement_takes_the_place_of_a_range() -> None:
    """Also of a range that earlier replacements are part of."""
    events = [surface(seq) for seq in range(5)]
    assert texts([*events, surface(5, replace(1, 2))]) == ["m0", "m5", "m3", "m4"]
    again = [*events, surface(5, replace(1, 2)), surface(6, replace(5, 3))]
    assert texts(again) == ["m0", "m6", "m4"]
    assert History(again).seqs() == [0, 6, 4]
    assert texts([*events, surface(5, replace(0, 4))]) == ["m5"]


@pytest.mark.parametrize(
    ("event", "message"),
    [
        (surface(2, replace(0, 9)), "it replaces event 9, which is not part of the history"),
        (surface(2, replace(1, 0)), "it replaces 1 to 0, which is backwards"),
        (surface(2, {"op": "drop"}), "neither an append nor a replace"),
        (surface(2, "prepend"), "neither an append nor a replace"),
        (
            make_event("user/message", 2, 0, "text", surface_op="append"),
            "its data is not, or does not hold, a message",
        ),
        (
            make_event("tool/result", 2, 0, None, surface_op="append"),
            "its data is not, or does not hold, a message",
        ),
        (
            make_event("assistant/message", 2, 0, {"message": 1}, surface_op="append"),
            "its data is not, or does not hold, a message",
        ),
    ],
)
def test_a_misfit_is_an_error_that_names_the_event(event: dict[str, Any], message: str) -> None:
    """What does not fit is never skipped: the model would see another history."""
    with pytest.raises(HistoryError, match=message) as caught:
        derive_messages([surface(0), surface(1), event])
    assert str(caught.value).startswith(f"event 2 ({event['type']}) cannot be part of the history")


def test_messages_are_copies() -> None:
    """Changing a derived message changes neither the log nor a later derivation."""
    events = [surface(0)]
    derive_messages(events)[0]["content"][0]["text"] = "changed"
    assert texts(events) == ["m0"]


def test_feeding_one_by_one_is_deriving_at_once(shared_dir: Path) -> None:
    """For every log of the corpus, at its end."""
    paths = sorted((shared_dir / "dsh-corpus").rglob("session*.jsonl"))
    assert paths
    replaced = 0
    for path in paths:
        events = read_log(path.read_bytes(), str(path)).events
        if any("content" in event["data"] for event in events if event["type"] == "assistant/message"):
            continue  # an older layout, without messages
        history = History()
        for event in events:
            history.feed(event)
            replaced += isinstance(event.get("surfaceOp"), dict)
        assert history.messages() == derive_messages(events)
        assert len(history.seqs()) == len(history.messages())
    assert replaced
