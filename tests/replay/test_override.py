"""Override documents: strict reading, replacing and patching, filling from the request."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from onetake.errors import UsageError
from onetake.fixture.grammar import UnknownToken
from onetake.replay.override import NoMatch, fill, parse_override, string_leaves

FINISH = {"type": "finish", "reason": {"kind": "stop"}}
CHUNKS = {"kind": "chunks", "chunks": [{"type": "text-delta", "index": 0, "text": "hi"}, FINISH]}
THROW = {"kind": "throw", "chunks": [], "message": "m", "code": "AUTH"}
HANG = {"kind": "hang", "readyFile": "a/ready"}


def parse(document: Any) -> Any:
    return parse_override(json.dumps(document).encode(), "o.json")


def with_chunk(chunk: Any) -> list[dict[str, Any]]:
    return [{"kind": "chunks", "chunks": [chunk, FINISH]}]


def test_a_list_replaces_the_script() -> None:
    override = parse([CHUNKS, THROW, HANG, {"kind": "hang"}])
    assert override.apply([{"kind": "underivable", "message": "x"}]) == [
        CHUNKS,
        THROW,
        HANG,
        {"kind": "hang"},
    ]
    assert override.own_entries() == override.apply([])


def test_patches_replace_and_append() -> None:
    override = parse(
        {"patches": [{"at": 1, "entry": HANG}, {"at": 2, "entry": THROW}, {"at": 3, "entry": HANG}]}
    )
    script = [CHUNKS, {"kind": "underivable", "message": "x"}]
    assert override.apply(script) == [CHUNKS, HANG, THROW, HANG]
    assert len(script) == 2, "the script itself is not touched"
    assert override.own_entries() == [HANG, THROW, HANG]
    with pytest.raises(UsageError, match=r"o\.json: patches\[0\]\.at: is 1, but the script has 0 entries"):
        override.apply([])


@pytest.mark.parametrize(
    ("document", "message"),
    [
        (7, "o.json: an override is a list of entries or an object with `patches`"),
        ({}, "o.json: patches: is missing"),
        ({"patches": 1}, "o.json: patches: must be a list"),
        ({"patches": [], "x": 1}, "o.json: x: unknown key; there is patches"),
        ({"patches": [1]}, "o.json: patches[0]: must be an object"),
        ({"patches": [{"at": 0}]}, "o.json: patches[0].entry: is missing"),
        ({"patches": [{"at": 0, "entry": HANG, "b": 1}]}, "o.json: patches[0].b: unknown key"),
        ({"patches": [{"at": True, "entry": HANG}]}, "o.json: patches[0].at: must be an index"),
        ({"patches": [{"at": -1, "entry": HANG}]}, "o.json: patches[0].at: must be an index"),
        ({"patches": [{"at": 0, "entry": HANG}] * 2}, "o.json: patches[1].at: another patch is at 0"),
        ({"patches": [{"at": 0, "entry": {"kind": "x"}}]}, "o.json: patches[0].entry.kind: is 'x'"),
        ([1], "o.json: [0]: an entry is an object"),
        ([{"kind": []}], "o.json: [0].kind: is []"),
        ([HANG, {"kind": "hang", "chunks": []}], "o.json: [1].chunks: unknown key"),
        ([{"kind": "hang", "readyFile": 1}], "o.json: [0].readyFile: must be a string"),
        ([{"kind": "hang", "readyFile": "/x"}], "[0].readyFile: '/x' is not a file inside the workspace"),
        ([{"kind": "hang", "readyFile": "a/../../x"}], "is not a file inside the workspace"),
        ([{"kind": "hang", "readyFile": "."}], "is not a file inside the workspace"),
        ([{"kind": "hang", "readyFile": "a\0b"}], "is not a file inside the workspace"),
        ([{"kind": "hang", "readyFile": "\ud800"}], "is not a file inside the workspace"),
        (
            [THROW | {"message": "{{fromRequest:a{99999999999}}}"}],
            "99999999999}}} holds no regular expression",
        ),
        ([{"kind": "hang", "readyFile": ""}], "is not a file inside the workspace"),
        ([{"kind": "throw", "chunks": [], "message": "m"}], "[0].code: is missing"),
        ([THROW | {"code": 5}], "[0].code: must be a string"),
        ([THROW | {"chunks": 5}], "[0].chunks: must be a list of chunks"),
        ([THROW | {"chunks": [FINISH]}], "[0].chunks[0]: nothing may follow a finish"),
        ([{"kind": "chunks", "chunks": []}], "[0].chunks: must end with a finish chunk"),
        ([{"kind": "chunks", "chunks": [FINISH, FINISH]}], "[0].chunks[0]: nothing may follow a finish"),
        (with_chunk(1), "[0].chunks[0]: a chunk is an object"),
        (with_chunk({"type": "x"}), "[0].chunks[0].type: is 'x'"),
        (with_chunk({"type": ["x"]}), "[0].chunks[0].type: is ['x']"),
        (with_chunk({"type": "text-delta", "index": 0}), "[0].chunks[0].text: is missing"),
        (
            with_chunk({"type": "text-delta", "index": True, "text": ""}),
            "[0].chunks[0].index: must be an integer",
        ),
        (with_chunk({"type": "usage", "usage": 1}), "[0].chunks[0].usage: must be an object"),
        (
            with_chunk({"type": "block-end", "index": 0, "block": {}}),
            "[0].chunks[0].block.type: is missing",
        ),
        (
            [{"kind": "chunks", "chunks": [{"type": "finish", "reason": {}}]}],
            "[0].chunks[0].reason.kind: is None; it must be one of stop",
        ),
        (
            with_chunk({"type": "text-delta", "index": 0, "text": "{{fromRequest:(}}"}),
            "[0]: {{fromRequest:(}} holds no regular expression",
        ),
        (
            with_chunk({"type": "text-delta", "index": 0, "text": "{{fromRequest:}}"}),
            "[0]: {{fromRequest:REGEX}} is",
        ),
        (with_chunk({"type": "text-delta", "index": 0, "text": "{{fromRequest:a"}), "is empty or not closed"),
    ],
)
def test_each_fault_is_named_with_its_place(document: Any, message: str) -> None:
    with pytest.raises(UsageError) as refused:
        parse(document)
    assert message in str(refused.value)


def test_text_that_is_no_json_is_refused() -> None:
    with pytest.raises(UsageError, match=r"o\.json: not JSON"):
        parse_override(b"[", "o.json")


def test_the_corpus_overrides_are_read(shared_dir: Path) -> None:
    paths = sorted((shared_dir / "dsh-corpus").rglob("*.override.json"))
    assert len(paths) > 5
    for path in paths:
        assert parse_override(path.read_bytes(), str(path)).own_entries(), path


# -- filling -------------------------------------------------------------------------------------------------

MESSAGES = [
    {"role": "user", "content": [{"type": "text", "text": "job bash-1 and /w/a [x]"}], "id": "m1"},
    {"role": "user", "content": [{"type": "text", "text": "job bash-2"}], "id": "m2"},
]
VALUES = {"cwd": "/w", "commit:1": "a.c"}


def resolve(body: str) -> str:
    if body not in VALUES:
        raise UnknownToken(body)
    return VALUES[body]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("plain", "plain"),
        ("{{cwd}}/x {{\\cwd}}", "/w/x {{cwd}}"),
        ("<{{fromRequest:bash-[0-9]+}}>", "<bash-2>"),
        ("{{fromRequest:job (bash-[0-9]{1})}}", "bash-2"),
        ("{{fromRequest:bash-[0-9]{1}}}!", "bash-2!"),
        ("{{fromRequest:({{cwd}}/[a-z])}}", "/w/a"),
        ("{{fromRequest:(zz)?job}}", ""),
        ("{{\\fromRequest:x}} {{\\\\fromRequest:x}}", "{{fromRequest:x}} {{\\fromRequest:x}}"),
        ("{{fromRequest:a}}{{cwd}}{{fromRequest:j}}", "a/wj"),
        ("{{fromRequest:bash-2(?s:.)*}}", "bash-2\nm2"),
        ("{{fromRequest:m[12]$}}", "m2"),
    ],
)
def test_strings_are_filled_from_run_and_request(text: str, expected: str) -> None:
    assert fill({"a": [text, 1]}, resolve, MESSAGES) == {"a": [expected, 1]}


def test_a_token_in_a_pattern_is_matched_literally() -> None:
    messages = [{"content": "abc a.c1 abc2"}]
    assert fill("{{fromRequest:{{commit:1}}[0-9]}}", resolve, messages) == "a.c1"


def test_no_match_names_the_pattern() -> None:
    with pytest.raises(NoMatch) as missed:
        fill("{{fromRequest:zzz}}", resolve, MESSAGES)
    assert missed.value.pattern == "zzz"


def test_an_unknown_token_is_passed_on() -> None:
    with pytest.raises(UnknownToken):
        fill("{{msg:1.1}}", resolve, MESSAGES)


def test_string_leaves_are_values_in_order() -> None:
    assert string_leaves({"k": ["a", {"x": "b"}], "n": 1, "z": "c"}) == ["a", "b", "c"]
