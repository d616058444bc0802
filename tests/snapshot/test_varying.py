"""What changes in a text: found, told by its shape, and covered narrowly."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onetake.snapshot.volatile.varying import find_varying, quote, same_lines

UUIDS = ("3e25dc34-48e0-4738-8401-1a8d181d37e5", "3e25dc34-48e0-4738-8401-1a8d181d37e6")
CASES = {
    "random id": (["job f4af queued\n", "job 9c1e queued\n"], r"job [0-9a-f]{4}\b", "text"),
    "id of three runs, one longer": (
        ["job f4af queued", "job 9c1e queued", "job 10a4f queued"],
        r"job [0-9a-f]+\b",
        "text",
    ),
    "id in a name": (["wrote out-f4af1.txt", "wrote out-09c1e.txt"], r"wrote out-[0-9a-f]{5}\b", "text"),
    "capitals": (["job F4AF", "job 9C1E"], r"job [0-9A-F]{4}\b", "text"),
    "letters and figures": (["key q9zX", "key 0aZb"], r"key [0-9A-Za-z]{4}\b", "text"),
    "URL-safe": (['{"id": "aB3-x_9Q"}', '{"id": "Zk2P0-q1"}'], r'\{"id": "[0-9A-Za-z_-]{8}\b', "text"),
    "nothing around": (["f4af\n", "9c1e\n"], "(?m)^[0-9a-f]{4}$", "text"),
    "uuid": ([f"id {UUIDS[0]}.", f"id {UUIDS[1]}."], r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b", "id"),
    "address": (["at 0xdeadbeef", "at 0xfeedbeef"], r"at 0x[0-9a-f]+\b", "id"),
    "timestamp": (
        ["now 2024-05-01T12:00:01.5Z", "now 2024-05-01T12:00:03.123Z"],
        r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}\.[0-9]+Z\b",
        "time",
    ),
    "date(1)": (
        ["Wed May  1 12:00:01 UTC 2024\n", "Wed May  1 12:00:02 UTC 2024\n"],
        r"[A-Z][a-z]{2} +[A-Z][a-z]{2} +[0-9]+ [0-9]{2}:[0-9]{2}:[0-9]{2} UTC [0-9]{4}\b",
        "time",
    ),
    "ls -l": (
        ["5 May  1 12:00 notes.txt", "5 May  1 12:01 notes.txt"],
        r"(?m)[A-Z][a-z]{2} +[0-9]+ [0-9]{2}:[0-9]{2} notes.txt$".replace(".txt", r"\.txt"),
        "time",
    ),
    "clock": (
        ["started at 12:00:01", "started at 12:00:02"],
        r"started at [0-9]{2}:[0-9]{2}:[0-9]{2}\b",
        "time",
    ),
    "day": (
        ["backup of 2024-05-01", "backup of 2024-05-02"],
        r"backup of [0-9]{4}-[0-9]{2}-[0-9]{2}\b",
        "time",
    ),
    "epoch": (["mtime=1714564801", "mtime=1714564803"], r"mtime=[0-9]{10}\b", "time"),
    "duration": (
        ["3 passed in 0.01s\n", "3 passed in 0.12s\n"],
        r"passed in [0-9]+(?:\.[0-9]+)?s\b",
        "duration",
    ),
    "duration in words": (["took 12 ms", "took 7 ms"], r"took [0-9]+ ms\b", "duration"),
    "duration in two units": (["took 12 ms", "took 1.5 s"], None, "duration"),
    "time(1)": (["real\t0m0.012s", "real\t0m0.015s"], None, "duration"),
    "epoch in a name": (["backup-1714564801.tar", "backup-1714564803.tar"], r"backup-[0-9]{10}\b", "time"),
    "pid": (["pid 42\n", "pid 4711\n"], r"pid [0-9]+\b", "number"),
    "pid in one word": (["pid42", "pid47"], r"pid[0-9]+\b", "number"),
    "job control": (["[1] 123\n", "[1] 4567\n"], r"(?m)\] [0-9]+$", "number"),
    "port": (["http://127.0.0.1:4321/", "http://127.0.0.1:80/"], r"(?m):[0-9]+/$", "number"),
    "figure before a unit of its own": (["size 12px wide", "size 7px wide"], "size [0-9]+px", "number"),
    "share": (["load 0.52 now", "load 0.25 now"], r"load [0-9]+\.[0-9]+\b", "number"),
    "first word of a line": (["a\n12 files", "a\n7 files"], "(?m)^[0-9]+ files$", "number"),
    "mktemp": (["/tmp/tmp.Xa12bC", "/tmp/tmp.Zz90dd"], r"/tmp/tmp\.[0-9A-Za-z]{6}\b", "text"),
    "tempfile": (["/tmp/tmpab3_x9k2", "/tmp/tmpq8d0_zz1"], r"/tmp/tmp[0-9a-z_]{8}\b", "text"),
    "words with figures": (["x12345\n", "x987\n"], "(?m)^(?=[a-z]*[0-9])[0-9a-z]+$", "text"),
    "behind a token": (["{{cwd}}/out-12.txt", "{{cwd}}/out-999.txt"], r"/out-[0-9]+\b", "number"),
    "figures in what stands before it": (["run 7 of f4af", "run 7 of 9c1e"], r"of [0-9a-f]{4}\b", "text"),
}


@pytest.mark.parametrize("name", CASES)
def test_a_value_and_its_pattern(name: str) -> None:
    """The pattern finds the value in every run, and the masked texts are one text."""
    texts, pattern, kind = CASES[name]
    found = find_varying(texts)
    assert found is not None
    assert found.kind == kind
    if pattern is not None:
        assert found.mask == pattern
    minted = [re.search(found.mint, text) for text in texts]
    assert {match[1] for match in minted if match} == set(found.values)
    assert len({re.sub(found.mask, found.replacement, text) for text in texts}) == 1
    assert len({re.sub(found.mask, found.replacement, text) for text in [*texts, f"{texts[0]} more"]}) == 2


@pytest.mark.parametrize(
    "texts",
    [
        ["passed", "failed"],
        ["3 tests passed\n", "3 tests failed\n"],
        ["a b c", "a x y c"],
        ["one", ""],
        ["exit code: 0 and out", "killed"],
        ["total 3 of 5 a\nb", "total"],
        ["x", "x"],
    ],
)
def test_another_text_is_no_value(texts: list[str]) -> None:
    """To offer a pattern for it would be to hide a real difference."""
    assert find_varying(texts) is None


def test_the_first_of_several_values_comes_first() -> None:
    """The others are found when it is covered."""
    found = find_varying(["job f4af pid 12", "job 9c1e pid 34"])
    assert found is not None and found.values == ("f4af", "9c1e")
    rest = [re.sub(found.mask, found.replacement, text) for text in ("job f4af pid 12", "job 9c1e pid 34")]
    again = find_varying(rest)
    assert again is not None and again.mask == r"pid [0-9]+\b"


def test_the_name_of_a_value() -> None:
    """The word before it, unless that has a meaning of its own."""
    names = {
        find.name
        for texts in (
            ["job f4af", "job 9c1e"],
            ["cwd f4af", "cwd 9c1e"],
            ["msg f4af", "msg 9c1e"],
            ["f4af", "9c1e"],
        )
        if (find := find_varying(texts)) is not None
    }
    assert names == {"job", "value"}


def test_a_replacement_may_hold_backslashes() -> None:
    """It is a template of `re.sub`, and the text around the value is literal."""
    texts = [r"C:\tmp\job f4af", r"C:\tmp\job 9c1e"]
    found = find_varying(texts)
    assert found is not None
    assert {re.sub(found.mask, found.replacement, text) for text in texts} == {r"C:\tmp\job VALUE"}


def test_the_same_lines_in_another_order() -> None:
    """Unsorted output is a cause of its own."""
    assert same_lines("b\na\n", "a\nb\n")
    assert not same_lines("a\n", "a\n") and not same_lines("a\nb\n", "a\nc\n")


@given(st.text(max_size=30))
def test_quoted_text_matches_itself_only(text: str) -> None:
    """Whatever stands around a value."""
    assert re.fullmatch(quote(text), text)
    assert not re.fullmatch(quote(text), f"{text}x")


@given(st.text("ab1 .:-{}\n\\", max_size=20), st.text("ab1 .:-{}\n\\", max_size=20))
def test_any_two_texts(one: str, other: str) -> None:
    """A pattern that is offered compiles, and matches on both sides."""
    found = find_varying([one, other])
    if one == other:
        assert found is None
    if found is not None:
        for text in (one, other):
            assert re.search(found.mask, text), (found.mask, text)
            assert re.search(found.mint, text)


def test_a_form_that_says_enough_can_be_told_by_what_is_around_it() -> None:
    """Where others of its form hold still."""
    found = find_varying([f"id {UUIDS[0]}.", f"id {UUIDS[1]}."], alone=False)
    assert found is not None and found.mask.startswith("id [0-9a-f]{8}")
