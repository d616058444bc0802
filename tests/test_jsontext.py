"""JSON text: what is read is written again, as JavaScript would write it."""

from __future__ import annotations

import copy
import json
import pickle
import shutil
import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onetake.jsontext import (
    MAX_DEPTH,
    ExactFloat,
    ExactInt,
    JsonError,
    clone,
    dumps,
    dumps_lines,
    dumps_pretty,
    loads,
    loads_lines,
)

KEPT = [
    b"-0",
    b"[-0,1]",
    b'{"a":-0}',
    b"-0.0",
    b"1.50",
    b"1.0",
    b"1e-7",
    b"1E400",
    b"-1E400",
    b"1e+21",
    b"0.000001",
    b"9007199254740993",
    b"-18446744073709551617",
    b"1" * 5000,
    b'"\\ud800"',
    b'"x\\udc00\\ud800y"',
    b'{"\\udfff":"\\u0000\\u001f"}',
    '"\u2028\u2029\u0085\u007f\\r\\n"'.encode(),
    b'"\\"\\\\\\b\\f\\n\\r\\t/"',
    '"\N{GRINNING FACE}"'.encode(),
    b"[]",
    b"{}",
    b'{"b":[{}],"a":[null,true,false]}',
    b'""',
    b'{"":0}',
]


@pytest.mark.parametrize("raw", KEPT, ids=lambda raw: raw[:24].decode("utf-8"))
def test_compact_text_comes_back_byte_for_byte(raw: bytes) -> None:
    """Every spelling that JSON.stringify could have written, and odd numbers, survive."""
    assert dumps(loads(raw)) == raw


def test_text_input_is_read_like_bytes() -> None:
    """A str is accepted, lone surrogates included."""
    assert loads('"\\ud800"') == "\ud800"
    assert loads('"\ud800"') == "\ud800"
    assert dumps(loads("[-0, 1.50]")) == b"[-0,1.50]"
    assert loads('"dash-0"') == "dash-0"


def test_halves_of_one_character_meet_again() -> None:
    """Two surrogates that belong together are one character, as in JavaScript's strings."""
    assert dumps("\ud83d" + "\ude00") == '"\N{GRINNING FACE}"'.encode()
    assert loads(b'"\\ud83d\\ude00"') == "\N{GRINNING FACE}"


def test_exact_numbers_are_numbers() -> None:
    """What remembers its text still compares, computes, copies and pickles as a number."""
    half, zero = loads(b"[1.50,-0]")
    assert half == 1.5 and type(half) is ExactFloat
    assert zero == 0 and type(zero) is ExactInt
    for number in (half, zero):
        assert dumps(copy.deepcopy(number)) == dumps(number)
        assert dumps(pickle.loads(pickle.dumps(number))) == dumps(number)


@pytest.mark.parametrize(
    ("raw", "message", "offset"),
    [
        (b"", "expecting value", 0),
        (b"[1,", "expecting value", 3),
        (b"[1 2]", "expecting ',' delimiter", 3),
        (b"1 2", "extra data", 2),
        (b'{"a":NaN}', "JSON has no NaN", 5),
        (b"-Infinity", "JSON has no -Infinity", 0),
        (b'"\xff"', "not UTF-8", 1),
        (b'"\xed\xa0\x80"', "not UTF-8", 1),
        (b'"\x01"', "invalid control character", 1),
        (b'["a', "unterminated string", 1),
        (b"01", "extra data", 1),
        ('["\N{GRINNING FACE}",x]'.encode(), "expecting value", 8),
        (b"\xef\xbb\xbf1", "begins with a byte order mark, which is no JSON", 0),
        (b"[" * 100_000, "nested too deeply to read", 0),
        (b"[" * 100_000 + b"]" * 100_000, "nested too deeply to read", 0),
        (b'{"a":' * 100_000, "nested too deeply to read", 0),
    ],
    ids=lambda value: repr(value)[:20],
)
def test_malformed_text_is_refused_with_its_place(raw: bytes, message: str, offset: int) -> None:
    """The error says what is wrong and at which byte."""
    with pytest.raises(JsonError) as caught:
        loads(raw)
    assert caught.value.reason.startswith(message) and not caught.value.reason.endswith(" at")
    assert caught.value.offset == offset
    assert f"(byte {offset})" in str(caught.value)


def test_what_is_read_can_be_walked() -> None:
    """The limit is the same for every way to read, and brackets in strings do not count."""
    for opening, leaf, closing in ((b"[", b"1", b"]"), (b'{"a":', b"1", b"}"), (b"[", b"-0", b"]")):
        kept = opening * MAX_DEPTH + leaf + closing * MAX_DEPTH
        assert dumps(loads(kept)) == kept
        refused = opening + kept + closing
        assert loads_lines(refused, [refused]) is None
        with pytest.raises(JsonError, match="nested too deeply to read"):
            loads(refused)
    flat = dumps(["[{" * 1000, [[]] * 1000])
    assert dumps(loads(flat)) == flat
    assert loads_lines(flat, [flat]) == [loads(flat)]


def test_nesting_too_deep_to_write_is_an_error() -> None:
    """Neither encoder crashes, in any of its ways."""
    deep: list[object] = []
    for _ in range(100_000):
        deep = [deep]
    surrogate_first = ["\ud800", deep]
    for write in (dumps, dumps_pretty, lambda value: dumps_lines([value])):
        for value in (deep, surrogate_first):
            with pytest.raises(JsonError, match="nested too deeply to write"):
                write(value)


def test_values_that_json_cannot_say_are_refused() -> None:
    """A foreign object is a TypeError that names its type, with and without surrogates around."""
    with pytest.raises(TypeError, match="object"):
        dumps(object())
    with pytest.raises(TypeError, match="object"):
        dumps(["\ud800", object()])


def test_lines_are_written_like_single_values() -> None:
    """The bulk encoder differs from the single one in the newlines only."""
    values = [{"a": 1}, loads(b"-0"), "x"]
    assert dumps_lines(values) == b'{"a":1}\n-0\n"x"\n'
    assert dumps_lines([*values, "\ud800"]) == b'{"a":1}\n-0\n"x"\n"\\ud800"\n'
    assert dumps_lines([]) == b""


def test_pretty_text_has_two_spaces_and_the_same_escapes() -> None:
    """Empty containers stay on their line; numbers keep their text."""
    value = loads(b'{"a":[],"b":{},"c":[1.50,{"d":"\\ud800"}]}')
    assert dumps_pretty(value) == (
        '{\n  "a": [],\n  "b": {},\n  "c": [\n    1.50,\n    {\n      "d": "\\ud800"\n    }\n  ]\n}'
    )


def test_clone_shares_nothing() -> None:
    """Changing any depth of the copy leaves the original alone."""
    original = {"a": [{"b": 1}], "n": loads(b"1.50")}
    copied = clone(original)
    assert copied == original and dumps(copied) == dumps(original)
    copied["a"][0]["b"] = 2
    copied["a"].append(3)
    assert original["a"] == [{"b": 1}]


strings = st.text(st.characters(codec=None, exclude_categories=()), max_size=8)
numbers = st.integers() | st.floats(allow_nan=False, allow_infinity=False)
values = st.recursive(
    st.none() | st.booleans() | numbers | strings,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(strings, inner, max_size=4),
    max_leaves=12,
)


@given(values)
def test_what_is_written_is_read_and_written_alike(value: object) -> None:
    """Writing is a fixed point after one reading; compact and pretty agree; stdlib reads the same."""
    text = dumps(value)
    again = loads(text)
    assert dumps(again) == text
    assert dumps(loads(dumps_pretty(value))) == text
    assert again == json.loads(text)


def test_node_writes_the_same(tmp_path_factory: pytest.TempPathFactory) -> None:
    """JSON.stringify(JSON.parse(x)) is what `dumps(loads(x))` is, for everything that JavaScript can hold."""
    node = shutil.which("node")
    if node is None:
        pytest.skip("node is not installed")
    samples = [
        *(bytes([34]) + f"\\u{code:04x}".encode() + bytes([34]) for code in range(0, 0xFFFF, 7)),
        *(f'"{chr(code)}"'.encode() for code in range(0x20, 0xD800, 5) if chr(code) not in '"\\'),
        b'"\\ud83d\\ude00"',
        b'"\\ude00\\ud83d"',
        b'{"b":1,"a":[true,false,null,{}],"\\ud800":"\\"\\\\"}',
        b"[0,1,-1,1e-7,1.5,123456789.125,1e+21,0.000001,5e-324,9007199254740991]",
    ]
    program = (
        "const lines = require('fs').readFileSync(0, 'utf8').split('\\n');"
        "process.stdout.write(lines.map(line => JSON.stringify(JSON.parse(line))).join('\\n'))"
    )
    done = subprocess.run([node, "-e", program], input=b"\n".join(samples), capture_output=True, check=True)
    assert done.stdout.split(b"\n") == [dumps(loads(sample)) for sample in samples]
