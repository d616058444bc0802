"""Log events into session updates, where a real run cannot reach every corner."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onetake.surfaces.acp.updates import Updates
from onetake.surfaces.stdio import LineSplitter


def chunk(**fields: Any) -> dict[str, Any]:
    return {"type": "assistant/chunk", "data": {"turn": 1, "step": 1, "chunk": fields}}


def texts(updates: Updates, *events: dict[str, Any]) -> list[str]:
    return [update["content"]["text"] for event in events for update in updates.of(event)]


def test_a_block_without_deltas_is_shown_when_it_ends() -> None:
    updates = Updates(stream=True)
    assert texts(
        updates,
        chunk(type="text-delta", index=0, text="a"),
        chunk(type="block-end", index=0, block={"type": "text", "text": "a"}),
        chunk(type="block-end", index=1, block={"type": "text", "text": "b"}),
        chunk(type="block-end", index=2, block={"type": "tool-call"}),
    ) == ["a", "b"]


@pytest.mark.parametrize("between", [chunk(type="finish"), {"type": "step/start", "data": {}}])
def test_each_call_counts_its_own_blocks(between: dict[str, Any]) -> None:
    updates = Updates(stream=True)
    assert texts(
        updates,
        chunk(type="text-delta", index=0, text="a"),
        between,
        chunk(type="block-end", index=0, block={"type": "text", "text": "b"}),
    ) == ["a", "b"]


def test_malformed_chunks_show_nothing() -> None:
    updates = Updates(stream=True)
    assert (
        texts(
            updates,
            chunk(),
            chunk(type="text-delta"),
            chunk(type="text-delta", index=0, text=5),
            chunk(type="block-end", index=7, block="x"),
            chunk(type="block-end", index=8, block={"type": ["text"], "text": "x"}),
        )
        == []
    )


def test_other_events_are_no_updates() -> None:
    for stream in (True, False):
        assert Updates(stream=stream).of({"type": "turn/end", "data": {}}) == []


def test_a_tool_call_with_arguments_that_are_no_object_has_no_input() -> None:
    data = {"callId": "c", "name": "other", "arguments": "[1]"}
    (update,) = Updates(stream=True).of({"type": "tool/call", "data": data})
    assert update == {
        "sessionUpdate": "tool_call",
        "toolCallId": "c",
        "title": "other",
        "kind": "other",
        "status": "in_progress",
    }


@given(lines=st.lists(st.binary(max_size=20).filter(lambda line: b"\n" not in line)), cuts=st.data())
def test_lines_do_not_depend_on_how_they_arrive(lines: list[bytes], cuts: st.DataObject) -> None:
    data = b"".join(line + b"\n" for line in lines) + b"rest"
    splitter = LineSplitter()
    found: list[bytes] = []
    while data:
        size = cuts.draw(st.integers(1, len(data)))
        found += splitter.feed(data[:size])
        data = data[size:]
    assert found == lines and splitter.close() == b"rest" and splitter.close() == b""
