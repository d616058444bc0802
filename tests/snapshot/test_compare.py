"""Comparing files: bytes decide, and the explanation names the event and the value."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from onetake.snapshot.diff.compare import MAX_LINES, WIDTH, compare, missing, surplus


def jsonl(*values: Any) -> bytes:
    """Lines of compact JSON."""
    return b"".join(json.dumps(value, separators=(",", ":")).encode() + b"\n" for value in values)


def event(kind: str, data: Any = None, **more: Any) -> dict[str, Any]:
    """A projected event."""
    return {"type": kind, "data": data or {}, **more}


TURN = [
    event("turn/start", {"turn": 1}),
    event("step/start", {"turn": 1, "step": 1}),
    event("turn/end", {"turn": 1}),
]


def test_equal_files_are_equal() -> None:
    """Nothing to say."""
    assert compare(jsonl(*TURN), jsonl(*TURN), "session.jsonl") is None
    assert compare(b"", b"", "stdout.expected.jsonl") is None


def test_gaps_between_chunks_do_not_count() -> None:
    """But their rows do; and text that only looks like gaps is text."""
    row = {
        "type": "text-chunks",
        "data": {"turn": 1, "step": 1, "index": 0, "dt": [1, 2], "texts": ["a", "b", "c"]},
    }
    later = json.loads(json.dumps(row))
    later["data"]["dt"] = [0, 99]
    assert compare(jsonl(row), jsonl(later), "session.jsonl") is None
    assert compare(jsonl(row), jsonl(later), "stdout.expected.jsonl") is not None, "only a fixture has gaps"
    later["data"]["texts"][2] = ',"dt":[5]'
    found = compare(jsonl(row), jsonl(later), "session.jsonl")
    assert found is not None and "data.texts[2]" in found.message
    other = event("note", {"dt": [1]})
    assert compare(jsonl(other), jsonl(event("note", {"dt": [2]})), "session.jsonl") is not None


def test_the_first_difference_names_line_event_path_and_both_values() -> None:
    """With the lines around it."""
    changed = [TURN[0], event("step/start", {"turn": 1, "step": 2}), TURN[2]]
    found = compare(jsonl(*TURN), jsonl(*changed), "session.jsonl")
    assert found is not None
    assert found.message.split("\n") == [
        "line 2 (step/start) differs at data.step",
        '      {"type":"turn/start","data":{"turn":1}}',
        "    - 1",
        "    + 2",
        '      {"type":"turn/end","data":{"turn":1}}',
    ]
    assert '-{"type":"step/start","data":{"turn":1,"step":1}}' in found.diff
    assert '+{"type":"step/start","data":{"turn":1,"step":2}}' in found.diff


def test_values_that_only_look_equal_differ() -> None:
    """True is not 1, 1 is not 1.0, and the order of keys is part of the bytes."""
    for was, now in ((True, 1), (1, 1.0), ({"a": 1, "b": 2}, {"b": 2, "a": 1})):
        found = compare(jsonl(event("x", {"v": was})), jsonl(event("x", {"v": now})), "session.jsonl")
        assert found is not None and "data.v" in found.message


def test_a_field_that_came_or_went() -> None:
    """It is shown as absent on the other side."""
    found = compare(jsonl({"a": 1}), jsonl({"a": 1, "b": 2}), "stdout.expected.jsonl")
    assert found is not None
    assert "differs at b" in found.message and "- (absent)" in found.message and "+ 2" in found.message
    shorter = compare(jsonl({"a": [1, 2]}), jsonl({"a": [1]}), "stdout.expected.jsonl")
    assert shorter is not None and "a[1]" in shorter.message and "+ (absent)" in shorter.message


def test_an_event_that_was_lost_does_not_blame_those_that_refer_past_it() -> None:
    """Sequence references that only moved are counted, not shown."""
    head = [event("turn/start"), event("request/context", {"model": "m"})]
    tail = [event("tool/result", {"n": n}, sourceEventSeqs=[n]) for n in range(2, 6)]
    moved = [event("tool/result", {"n": n}, sourceEventSeqs=[n - 1]) for n in range(2, 6)]
    found = compare(jsonl(*head, *tail), jsonl(head[0], *moved), "session.jsonl")
    assert found is not None
    assert found.message.startswith("line 2 (request/context) is missing")
    assert "more difference" not in found.message
    assert "(4 lines only refer to events that moved)" in found.message


def test_one_line_that_moved() -> None:
    """Is told of in the singular."""
    old, new = event("tool/result", {}, sourceEventSeqs=[2]), event("tool/result", {}, sourceEventSeqs=[1])
    lost = event("request/context")
    found = compare(jsonl(TURN[0], lost, old), jsonl(TURN[0], new), "session.jsonl")
    assert found is not None and "(1 line only refers to events that moved)" in found.message


def test_json_that_is_only_written_otherwise() -> None:
    """Says so, and shows both spellings; it is never taken for reordered keys."""
    line = jsonl(event("x", {"v": "\u00e9"}))
    for other in (
        line.replace(b"\n", b"\r\n"),
        line.replace(b":{", b": {"),
        line.replace(b"\\u00e9", b"\xc3\xa9"),
    ):
        for was, now in ((other, line), (line, other)):
            found = compare(was, now, "session.jsonl")
            assert found is not None
            assert found.message.startswith("line 1 (x) differs in spacing, escapes or line ends only\n")
            before, after = found.message.split("\n")[1:]
            assert before[6:] != after[6:]
    crlf = compare(line.replace(b"\n", b"\r\n"), line, "session.jsonl")
    assert crlf is not None and "}}\\r\n" in crlf.message


def test_references_alone_are_a_difference() -> None:
    """When nothing came or went, a changed reference is what changed."""
    old, new = event("tool/result", {}, sourceEventSeqs=[1]), event("tool/result", {}, sourceEventSeqs=[2])
    found = compare(jsonl(old), jsonl(new), "session.jsonl")
    assert found is not None and "sourceEventSeqs[0]" in found.message


def test_a_new_event_is_shown_where_it_came() -> None:
    """And the difference of its neighbour is still paired with its like."""
    changed = [TURN[0], event("debug/env", {"x": 1}), event("step/start", {"turn": 1, "step": 9}), TURN[2]]
    found = compare(jsonl(*TURN), jsonl(*changed), "session.jsonl")
    assert found is not None
    assert found.message.startswith("line 2 (debug/env) is new") and "and 1 more difference" in found.message


def test_frames_are_named_by_what_they_are() -> None:
    """Updates by their kind, requests by their method, answers as such."""
    update = {
        "jsonrpc": "2.0",
        "method": "session/update",
        "params": {"update": {"sessionUpdate": "agent_message_chunk"}},
    }
    for frame, name in (
        (update, "agent_message_chunk"),
        ({"jsonrpc": "2.0", "id": 1, "method": "session/request_permission"}, "session/request_permission"),
        ({"jsonrpc": "2.0", "id": 1, "result": {}}, "response"),
        ({"jsonrpc": "2.0", "id": 1, "error": {}}, "error response"),
        ({"session": 0, "call": 2, "purpose": "main"}, "request 2 of session 0"),
        ({"x": 1}, "object"),
    ):
        found = compare(b"", jsonl(frame), "stdout.expected.jsonl")
        assert found is not None and found.message.startswith(f"line 1 ({name}) is new")


def test_long_texts_show_the_place_and_not_the_whole() -> None:
    """Both sides are cut around the first character that differs."""
    old, new = "x" * 5_000 + "old" + "y" * 5_000, "x" * 5_000 + "new" + "y" * 5_000
    found = compare(jsonl({"t": old}), jsonl({"t": new}), "stdout.expected.jsonl")
    assert found is not None
    assert "xxxold" in found.message and "xxxnew" in found.message
    assert all(len(line) < 2 * WIDTH for line in found.message.split("\n"))


def test_plain_text_is_compared_by_line() -> None:
    """A prompt is no JSON."""
    found = compare(b"one\ntwo\nthree\n", b"one\n2\nthree\nfour\n", "system-prompt.expected.md")
    assert found is not None
    assert found.message.split("\n")[0] == "line 2 differs" and "- two" in found.message
    assert "and 1 more difference" in found.message
    gone = compare(b"one\ntwo\n", b"one\n", "system-prompt.expected.md")
    assert gone is not None and gone.message.startswith("line 2 is missing")


def test_a_missing_newline_and_a_carriage_return_are_seen() -> None:
    """Both are invisible, so they are named."""
    for old, new, text in ((b"a\n", b"a", "the run's text"), (b"a", b"a\n", "the committed file")):
        found = compare(old, new, "system-prompt.expected.md")
        assert found is not None and found.message == f"{text} does not end with a newline"
    found = compare(b"a\r\n", b"a\n", "system-prompt.expected.md")
    assert found is not None and "a\\r" in found.message


def test_a_file_that_is_only_on_one_side() -> None:
    """Its content is the diff."""
    assert "not committed, and the run gave 1 line" in missing(b"a\n", "f").message
    assert "+a" in missing(b"a\n", "f").diff
    assert "no such file" in surplus(b"a\nb\n", "f").message and "-b" in surplus(b"a\nb\n", "f").diff


def test_equal_changes_have_equal_causes() -> None:
    """Whatever surrounds them."""
    one = compare(jsonl(event("x", {"v": 1}), *TURN), jsonl(event("x", {"v": 2}), *TURN), "session.jsonl")
    two = compare(jsonl(*TURN, event("x", {"v": 1})), jsonl(*TURN, event("x", {"v": 2})), "session.jsonl")
    three = compare(jsonl(event("x", {"v": 1})), jsonl(event("x", {"v": 3})), "session.jsonl")
    assert one is not None and two is not None and three is not None
    assert one.cause == two.cause != three.cause


def test_changes_that_only_begin_alike_have_causes_of_their_own() -> None:
    """The same values in another place, a second value that is shown nowhere, the end of a long text."""
    long = "x" * 1000
    pairs = [
        (event("x", {"a": True}), event("x", {"a": False})),
        (event("x", {"b": True}), event("x", {"b": False})),
        (event("y", {"a": True}), event("y", {"a": False})),
        (event("x", {"a": True, "b": 1}), event("x", {"a": False, "b": 2})),
        (event("x", {"a": True, "b": 1}), event("x", {"a": False, "b": 3})),
        (event("x", {"a": long}), event("x", {"a": "y" + long[1:]})),
        (event("x", {"a": long}), event("x", {"a": "y" + long[1:-1] + "y"})),
        (event("x", {"a": [1]}), event("x", {"a": [1, 2]})),
        (event("x", {"a": [1]}), event("x", {"a": [1, 2, 3]})),
        (event("x", {"a": 1, "b": 2}), event("x", {"b": 2, "a": 1})),
        (event("x", {"a": 1, "b": 2}), event("x", {"b": 2})),
        (event("x", {"t": long + "1"}), None),
        (event("x", {"t": long + "2"}), None),
    ]
    causes = [
        found.cause
        for old, new in pairs
        if (found := compare(jsonl(*TURN, old), jsonl(*TURN, *([new] if new else [])), "session.jsonl"))
    ]
    assert len(set(causes)) == len(pairs)


def test_a_long_diff_is_bounded() -> None:
    """The report stays readable."""
    found = compare(
        jsonl(*({"n": n} for n in range(9_000))), jsonl(*({"m": n} for n in range(9_000))), "x.jsonl"
    )
    assert found is not None
    assert len(found.diff.split("\n")) == MAX_LINES + 1
    assert found.diff.endswith("further lines)")
    assert "and 8999 more differences" in found.message


def test_far_apart_differences_are_hunks_of_their_own() -> None:
    """With the unchanged middle left out."""
    old = [{"n": n} for n in range(100)]
    new = [{"n": -n if n in (3, 5, 90) else n} for n in range(100)]
    found = compare(jsonl(*old), jsonl(*new), "x.jsonl")
    assert found is not None
    assert found.diff.count("@@ -") == 2


@given(st.lists(st.binary(max_size=12), max_size=12), st.lists(st.binary(max_size=12), max_size=12))
def test_any_bytes_can_be_explained(old: list[bytes], new: list[bytes]) -> None:
    """Broken JSON, invalid UTF-8: unequal bytes are always reported, equal ones never."""
    one, other = b"\n".join(old), b"\n".join(new)
    for name in ("session.jsonl", "system-prompt.expected.md"):
        found = compare(one, other, name)
        assert (found is None) == (one == other)
        assert found is None or found.message
