"""Lines are paired by event, and what only refers to something that moved is no difference."""

from __future__ import annotations

import json
from typing import Any
from unittest.mock import patch

from hypothesis import given
from hypothesis import strategies as st

from onetake import jsontext
from onetake.snapshot.diff import compare as comparing
from onetake.snapshot.diff import pairing
from onetake.snapshot.diff.compare import compare
from onetake.snapshot.diff.pairing import pair_events

HEADER = {"type": "session", "version": 0, "id": "{{sessionId}}"}


def lines(*values: Any) -> list[bytes]:
    """Lines of compact JSON."""
    return [json.dumps(value, separators=(",", ":")).encode() for value in values]


def jsonl(*values: Any) -> bytes:
    """The same as a file."""
    return b"".join(line + b"\n" for line in lines(*values))


def event(kind: str, data: Any = None, **more: Any) -> dict[str, Any]:
    """A projected event."""
    return {"type": kind, "data": data or {}, **more}


def row(*texts: str) -> dict[str, Any]:
    """A packed row."""
    return event(
        "text-chunks", {"turn": 1, "step": 1, "index": 0, "dt": [0] * (len(texts) - 1), "texts": list(texts)}
    )


def message(text: str, *seqs: int, id: str = "{{msg:1.1}}") -> dict[str, Any]:
    """An assistant message that refers to its chunks."""
    return event("assistant/message", {"text": text, "id": id}, sourceEventSeqs=list(seqs))


def test_an_inserted_event_moves_what_refers_past_it() -> None:
    """Rows count as many events as they stand for."""
    old = lines(
        HEADER,
        event("a"),
        row("x", "y", "z"),
        message("hi", 1, 2, 3),
        event("tool/result", sourceEventSeqs=[4]),
    )
    new = lines(
        HEADER,
        event("a"),
        event("new"),
        row("x", "y", "z"),
        message("hi", 2, 3, 4),
        event("tool/result", sourceEventSeqs=[5]),
    )
    found = pair_events(old, new)
    assert [(change.old, change.new) for change in found.changes] == [(None, 2)]
    assert found.moved == 2
    back = pair_events(new, old)
    assert [(change.old, change.new) for change in back.changes] == [(2, None)] and back.moved == 2


def test_a_reference_to_another_event_is_a_difference_though_something_moved() -> None:
    """Moving is what the alignment says, not whatever happened to change."""
    old = lines(HEADER, event("a"), event("b"), event("r", sourceEventSeqs=[0]))
    new = lines(HEADER, event("new"), event("a"), event("b"), event("r", sourceEventSeqs=[2]))
    found = pair_events(old, new)
    assert [(change.old, change.new) for change in found.changes] == [(None, 1), (3, 4)]
    assert found.moved == 0


def test_a_chunk_more_does_not_change_the_message_that_lists_it() -> None:
    """The chunk itself is the difference."""
    finish = event("assistant/chunk", {"chunk": {"type": "usage"}})
    old = lines(HEADER, row("x", "y", "z"), message("hi", 0, 1, 2))
    new = lines(HEADER, row("x", "y", "z"), finish, message("hi", 0, 1, 2, 3))
    assert [(c.old, c.new) for c in pair_events(old, new).changes] == [(None, 2)]
    assert [(c.old, c.new) for c in pair_events(new, old).changes] == [(2, None)]


def test_a_message_more_among_others_of_its_kind_is_the_only_difference() -> None:
    """Those behind it refer to other numbers than before, and are known by what they say all the same."""
    before = [message(f"text {n}", n, id=f"{{{{msg:{n}.1}}}}") for n in range(5)]
    after = [message(f"text {n}", n + 1, id=f"{{{{msg:{n}.1}}}}") for n in range(5)]
    new = message("another text", id="{{msg:9.1}}")
    found = pair_events(lines(HEADER, *before), lines(HEADER, new, *after))
    assert [(change.old, change.new) for change in found.changes] == [(None, 1)] and found.moved == 5


def test_ids_that_are_counted_on() -> None:
    """A message more renumbers the ids of its turn; two ids that changed places are a difference."""
    old = lines(
        HEADER,
        message("one", id="{{msg:1.1}}"),
        message("two", id="{{msg:1.2}}"),
        event("x", {"of": "{{msg:1.2}}"}),
    )
    new = lines(
        HEADER,
        message("one", id="{{msg:1.1}}"),
        event("new", {"id": "{{msg:1.2}}"}),
        message("two", id="{{msg:1.3}}"),
        event("x", {"of": "{{msg:1.3}}"}),
    )
    found = pair_events(old, new)
    assert [(c.old, c.new) for c in found.changes] == [(None, 2)] and found.moved == 2
    swapped = [*new[:-1], *lines(event("x", {"of": "{{msg:1.1}}"}))]
    assert [(c.old, c.new) for c in pair_events(old, swapped).changes] == [(None, 2), (3, 4)]


def request(call: int, kept: int, *messages: Any) -> dict[str, Any]:
    """A line of the requests surface."""
    return {
        "session": 0,
        "call": call,
        "purpose": "main",
        "config": {},
        "kept": kept,
        "messages": list(messages),
    }


def test_kept_messages_are_counted_through_the_alignment() -> None:
    """An injected message is one difference, in the call that it came with."""
    psst = {"role": "user", "content": "psst"}
    old = lines(request(1, 0, "{{msg:0.1}}"), request(2, 1, "{{msg:1.1}}"), request(3, 2, "{{msg:2.1}}"))
    new = lines(
        request(1, 0, "{{msg:0.1}}", psst), request(2, 2, "{{msg:1.1}}"), request(3, 3, "{{msg:2.1}}")
    )
    found = pair_events(old, new)
    assert [(c.old, c.new) for c in found.changes] == [(0, 0)] and found.moved == 2
    lost = lines(
        request(1, 0, "{{msg:0.1}}", psst), request(2, 0, "{{msg:1.1}}"), request(3, 1, "{{msg:2.1}}")
    )
    assert [(c.old, c.new) for c in pair_events(old, lost).changes] == [(0, 0), (1, 1)]


def test_calls_that_only_add_to_a_history_do_not_align_all_of_it_again() -> None:
    """Ten thousand calls would take a minute otherwise; and what was kept of it is still compared."""
    psst = {"role": "user", "content": "psst"}
    old = [request(n, n, f"{{{{msg:{n}.1}}}}") for n in range(300)]
    new = [request(n, n + (n > 2), f"{{{{msg:{n}.1}}}}", *([psst] if n == 2 else [])) for n in range(300)]
    with patch.object(pairing, "blocks", wraps=pairing.blocks) as aligned:
        found = pair_events(lines(*old), lines(*new))
    assert [(c.old, c.new) for c in found.changes] == [(2, 2)] and found.moved == 297
    assert sum(len(call.args[0]) for call in aligned.call_args_list) < 300
    for kept in (200, 202, 0):
        new[-1]["kept"] = kept  # of the 300 messages before
        assert [(c.old, c.new) for c in pair_events(lines(*old), lines(*new)).changes] == [(2, 2), (299, 299)]


def test_text_that_looks_like_a_reference_is_text() -> None:
    """Inside a string its quotes are escaped."""
    text = '{"sourceEventSeqs":[1],"kept":3}'
    changed = text.replace("1", "2").replace("3", "4")
    found = pair_events(
        lines(HEADER, event("x", {"t": text})), lines(HEADER, event("n"), event("x", {"t": changed}))
    )
    assert [(c.old, c.new) for c in found.changes] == [(None, 1), (1, 2)]


def test_the_diff_shows_what_came_and_not_what_moved() -> None:
    """With a note on the rest."""
    many = [message(f"m{n}", n) for n in range(200)]
    moved = [message(f"m{n}", n + 1) for n in range(200)]
    found = compare(jsonl(HEADER, *many), jsonl(HEADER, event("new"), *moved), "session.jsonl")
    assert found is not None
    changed = [line for line in found.diff.split("\n")[2:] if line.startswith(("+", "-"))]
    assert changed == ['+{"type":"new","data":{}}']
    assert found.diff.endswith("(199 lines only refer to events that moved)") or "(200 lines" in found.diff
    assert found.message.startswith("line 2 (new) is new")


def test_one_kind_more_among_hundreds_is_found() -> None:
    """Kinds repeat, so no line anchors them; a shortest script does."""
    kinds = ["tool/call", "tool/result", "step/end", "step/start"]
    old = [event(kinds[n % 4], {"v": n}) for n in range(600)]
    new = [event(kinds[n % 4], {"v": -n}) for n in range(600)]
    new.insert(300, event("step/end", {"v": "extra"}))
    found = pair_events(lines(*old), lines(*new))
    assert [(c.old, c.new) for c in found.changes if c.old is None or c.new is None] == [(None, 300)]
    assert len(found.changes) == 600


def test_ten_thousand_lines_are_parsed_a_few_times_each() -> None:
    """The work is counted, not timed: it grows with the lines, whatever differs."""
    old = [message(f"text {n}", n, id=f"{{{{msg:{n}.1}}}}") for n in range(10_000)]
    new = [message(f"text! {n}", n + 1, id=f"{{{{msg:{n}.1}}}}") for n in range(10_000)]
    calls = 0
    loads = jsontext.loads

    def counted(raw: bytes | str) -> Any:
        nonlocal calls
        calls += 1
        return loads(raw)

    with patch.object(pairing.jsontext, "loads", counted):
        found = compare(jsonl(HEADER, *old), jsonl(HEADER, event("new"), *new), "session.jsonl")
    assert found is not None and "and 10000 more differences" in found.message
    assert calls < 4 * 10_000, "kinds of both sides, spans, and a bounded number of explanations"
    assert comparing.MAX_CAUSES < 1_000


EVENTS = st.lists(
    st.builds(
        lambda kind, text, seqs, token: event(
            kind, {"t": text, "id": f"{{{{msg:1.{token}}}}}"}, sourceEventSeqs=seqs
        ),
        st.sampled_from("abc"),
        st.sampled_from("xy"),
        st.lists(st.integers(0, 9), max_size=3),
        st.integers(1, 3),
    ),
    max_size=10,
)


@given(EVENTS, EVENTS)
def test_whatever_differs_is_reported(old: list[Any], new: list[Any]) -> None:
    """No difference of bytes is explained away; gaps cover exactly the changes."""
    before, after = lines(*old), lines(*new)
    found = pair_events(before, after)
    assert bool(found.changes) == (before != after)
    covered = sum(gap.a1 - gap.a0 + gap.b1 - gap.b0 for gap in found.gaps())
    assert covered == sum((c.old is not None) + (c.new is not None) for c in found.changes)
    a = b = 0
    for gap in found.gaps():
        assert gap.a0 - a == gap.b0 - b >= 0
        a, b = gap.a1, gap.b1
    assert len(before) - a == len(after) - b
