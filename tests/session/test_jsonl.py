"""Logs as bytes: nothing is lost, and what is malformed is refused with its place."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from onetake import jsontext
from onetake.errors import UsageError
from onetake.session.frames import compress
from onetake.session.jsonl import encode_log, read_log, rewrite
from tests.session.make import delta, header

HEADER = b'{"type":"session","version":0,"id":"s-1","createdAt":0,"delegationDepth":0}\n'


def row(texts: str, extra: str = "") -> bytes:
    """Return the line of a projected row of three members."""
    data = f'{{"turn":1,"step":1,"index":0,"dt":[1,2],"texts":{texts}}}'
    return f'{{"type":"text-chunks",{extra}"data":{data}}}'.encode()


def chunk(text: str) -> bytes:
    """Return the line of a projected text delta whose text is spelled `text`."""
    data = f'{{"turn":1,"step":1,"chunk":{{"type":"text-delta","index":0,"text":{text}}}}}'
    return f'{{"type":"assistant/chunk","data":{data}}}'.encode()


def lines(*parts: bytes) -> bytes:
    """Return a log of the given lines behind the usual header."""
    return HEADER + b"".join(part + b"\n" for part in parts)


def corpus_logs(shared_dir: Path) -> list[Path]:
    """Return all logs that the corpus' index names."""
    index = json.loads((shared_dir / "dsh-corpus" / "index.json").read_text())
    return [
        shared_dir / "dsh-corpus" / scenario["id"] / log["file"]
        for scenario in index["scenarios"]
        for log in scenario["logs"]
    ]


def test_unpack_then_pack_gives_every_corpus_log_back(shared_dir: Path) -> None:
    """All logs of the corpus survive both directions byte for byte, also in compressed form."""
    paths = corpus_logs(shared_dir)
    assert len(paths) > 100
    for path in paths:
        raw = path.read_bytes()
        unpacked = rewrite(read_log(raw, str(path)), packed=False)
        assert rewrite(read_log(unpacked, str(path)), packed=True, project=True) == raw, path
        assert rewrite(read_log(compress(raw), str(path)), packed=True, project=True) == raw, path
        first, *rest = unpacked.splitlines()
        assert first == raw[: raw.index(b"\n")]
        assert all(list(json.loads(line))[:3] == ["type", "seq", "time"] for line in rest)


STRANGE = [
    b'{"type":"x/unknown","data":{"a":[1,{}]},"more":null}',
    '{"type":"x","data":"\u2028\u2029\u0085\x7f"}'.encode(),
    rb'{"type":"x","data":"\r\n\u0000\ud800 \udc00\u000b"}',
    b'{"type":"x","data":[9007199254740993,-0,1E400,1e-7,1.50,123456789012345678901234567890]}',
    b'{"type":"x","data":{"a":1,"a":2},"data":3}',
    b'{"type":"x" , "data" : {"a" : [ ] } }',
    b'{"data":1,"type":"x"}',
    b'{ "type":"x"}',
    rb'{"type":"\u0078\"y","data":1}',
    rb'{"\u0074ype":"x","data":1}',
    '{"type":"\u2028","ignorable":true}'.encode(),
    chunk('"\\ud83d"').replace(b'"turn":1', b'"turn":2'),
    b'{"type":"assistant/chunk","data":null}',
    b'{"type":"x","data":' + b"[" * 190 + b"]" * 190 + b"}",
]


@pytest.mark.parametrize("line", STRANGE, ids=lambda line: line[:40].decode())
def test_a_strange_record_survives_unpack_and_pack(line: bytes) -> None:
    """Unknown types and fields, odd numbers and odd spellings come back byte for byte."""
    raw = lines(b'{"type":"turn/start","data":{"turn":1}}', line, row('["a","b","c"]'), line)
    unpacked = rewrite(read_log(raw, "log"), packed=False)
    assert [event["seq"] for event in read_log(unpacked, "log").events] == [0, 1, 2, 3, 4, 5]
    assert unpacked.count(b'"seq":') == 6
    assert rewrite(read_log(unpacked, "log"), packed=True, project=True) == raw
    assert rewrite(read_log(unpacked, "log"), packed=False) == unpacked


ODD_CHUNKS = {
    "white space": b'{"type":"assistant/chunk","data":{"turn":1,"step":1,"chunk":'
    b'{"type":"text-delta", "index":0,"text":"a"}}}',
    "duplicate key": b'{"type":"assistant/chunk","data":{"turn":1,"step":1,"chunk":'
    b'{"type":"text-delta","index":0,"index":0,"text":"a"}}}',
    "needless escape": chunk(r'"\u0061"'),
    "other digits in an escape": chunk(r'"\u001F"'),
    "keys in another order": b'{"type":"assistant/chunk","data":{"step":1,"turn":1,"chunk":'
    b'{"type":"text-delta","index":0,"text":"a"}}}',
    "type at the end": chunk('"a"').replace(b'"type":"assistant/chunk",', b"")[:-1]
    + b',"type":"assistant/chunk"}',
    "minus zero": b'{"type":"assistant/chunk","data":{"turn":1,"step":1,"chunk":'
    b'{"type":"text-delta","index":-0,"text":"a"}}}',
    "float": b'{"type":"assistant/chunk","data":{"turn":1,"step":1,"chunk":'
    b'{"type":"text-delta","index":0.0,"text":"a"}}}',
}


@pytest.mark.parametrize("odd", ODD_CHUNKS.values(), ids=ODD_CHUNKS)
def test_an_oddly_spelled_delta_is_not_packed(odd: bytes) -> None:
    """A row could not give the spelling back, so the line stays, however many there are."""
    plain = chunk('"a"')
    raw = lines(plain, plain, plain, odd, odd, odd, plain, plain, plain)
    packed = rewrite(read_log(raw, "log"), packed=True, project=True)
    row_line = b'{"type":"text-chunks","data":{"turn":1,"step":1,"index":0,"dt":[0,0],"texts":["a","a","a"]}}'
    assert packed == lines(row_line, odd, odd, odd, row_line)


@pytest.mark.parametrize("packed", [True, False])
def test_deep_nesting_is_rewritten_or_refused(packed: bool) -> None:
    """At no depth does a record that can be read crash the rewriting."""
    depths = []
    for depth in range(100, 1100, 7):
        deep = b"[" * depth + b"]" * depth
        line = b'{ "seq":0,"type":"assistant/chunk","data":%s}' % deep
        try:
            log = read_log(lines(line), "log")
        except UsageError as error:
            assert "nested too deeply to read" in str(error)
            continue
        assert deep in called_from(150, lambda log=log: rewrite(log, packed=packed, project=packed))
        depths.append(depth)
    assert max(depths) > jsontext.MAX_DEPTH - 10


def called_from(depth: int, function: Callable[[], bytes]) -> bytes:
    """Call `function` so many calls deeper, where less of the limit is left."""
    return called_from(depth - 1, function) if depth else function()


def test_a_row_that_a_flush_split_is_joined_by_pack() -> None:
    """Packing works over the whole log, not line by line."""
    raw = lines(row('["a","b","c"]', '"seq0":0,"time0":5,'), row('["d","e","f"]', '"seq0":3,"time0":9,'))
    packed = rewrite(read_log(raw, "log"), packed=True)
    assert packed.count(b"\n") == 2
    assert b'"dt":[1,2,1,1,2],"texts":["a","b","c","d","e","f"]' in packed


def test_projecting_a_row_in_unpacked_form_leaves_no_envelope() -> None:
    """`packed=False, project=True` is the form of a fixture without rows."""
    raw = lines(row('["a","b","c"]'))
    projected = rewrite(read_log(raw, "log"), packed=False, project=True)
    assert projected == lines(*[chunk(f'"{letter}"') for letter in "abc"])


@pytest.mark.parametrize(
    ("line", "projected"),
    [
        (b'{"type":"x","seq":0,"time":5,"data":1}', b'{"type":"x","data":1}'),
        (b'{"type":"x","seq":0,"time":5}', b'{"type":"x"}'),
        (b'{"seq":0,"type":"x","time":5,"data":1}', b'{"type":"x","data":1}'),
        (b'{"seq":0,"time":5,"type":"x"}', b'{"type":"x"}'),
        (
            b'{"type":"x","data":{"seq":1,"time":2},"time":0.5,"seq":0}',
            b'{"type":"x","data":{"seq":1,"time":2}}',
        ),
        (b'{"type":"x","seq":0,"time":1,"seq":0}', b'{"type":"x"}'),
        (b'{"type":"x","seq":0,"time":1,"time":2,"data":1}', b'{"type":"x","data":1}'),
        (b'{"type":"x","seq":5,"seq":0,"time":1}', b'{"type":"x"}'),
        (b'{"type":"x","seq":0,"time":1,"time" :2}', b'{"type":"x"}'),
        (
            b'{ "time": 1 , "type":"x" , "seq" : 0 , "data":"\xc3\xa4" }',
            b'{ "type":"x" , "data":"\xc3\xa4" }',
        ),
        (b'{"type":"x","seq":0}', b'{"type":"x"}'),
        (b'{"type":"x","time":-3,"data":1}', b'{"type":"x","data":1}'),
    ],
)
def test_an_envelope_is_taken_out_wherever_it_stands(line: bytes, projected: bytes) -> None:
    """And every other byte stays, white space included."""
    log = read_log(lines(line), "log")
    assert rewrite(log, packed=True, project=True) == lines(projected)
    assert rewrite(log, packed=False, project=True) == lines(projected)


def test_decoded_numbers_keep_their_text() -> None:
    """Also where a value is written again from what was decoded, not from its line."""
    data = b'[-0,1.50,1E400,9007199254740993,{"a":-0}]'
    for spoiler in (b"1", b'"\\ud800"'):
        log = read_log(lines(b'{"type":"x","data":%s}' % data, b'{"type":"x","data":%s}' % spoiler), "log")
        assert jsontext.dumps(log.events[0]["data"]) == data


def test_encode_log_writes_what_read_log_reads() -> None:
    """Header and events round-trip in all four forms."""
    events = [delta(0), delta(1), delta(2, time=9), {"type": "x", "seq": 3, "time": 1, "data": None}]
    for packed in (True, False):
        raw = encode_log(header(), events, packed=packed)
        log = read_log(raw, "log")
        assert (log.header, log.events) == (header(), events) and log.events is log.events
        assert log.id == "s-1"
        assert [record.count for record in log.records] == ([3, 1] if packed else [1, 1, 1, 1])
        assert [record.seq for record in log.records] == ([0, 3] if packed else [0, 1, 2, 3])
        projected = encode_log(header(), events, packed=packed, project=True)
        assert b"seq" not in projected and b"time" not in projected
        assert [event["seq"] for event in read_log(projected, "log").events] == [0, 1, 2, 3]


DEEP = b"[" * 100_000

MALFORMED = {
    "empty": (b"", "log: is empty"),
    "only a torn tail": (HEADER[:30], "log: ends with 30 bytes of an unfinished write from byte 0 on"),
    "no newline": (HEADER + b'{"type":"x"}', "log: ends with 12 bytes of an unfinished write"),
    "not a header": (b'{"type":"turn/start"}\n', "log, line 1: is not a session header"),
    "header without id": (b'{"type":"session"}\n', "log, line 1: is not a session header"),
    "header not JSON": (b"hello\n", "log, line 1: expecting value"),
    "other version": (b'{"type":"session","id":"a","version":1}\n', "log, line 1: has format version 1"),
    "blank line": (lines(b"", b'{"type":"x"}'), "log, line 2: expecting value"),
    "not JSON": (lines(b'{"type":"x"}', b"{"), "log, line 3: expecting property name"),
    "not an object": (lines(b"[]"), "log, line 2: is not an object with a type"),
    "type not text": (lines(b'{"type":["text-chunks"]}'), "log, line 2: is not an object with a type"),
    "no type": (lines(b'{"data":1}'), "log, line 2: is not an object with a type"),
    "seq hole": (lines(b'{"type":"x","seq":1}'), "log, line 2: has seq 1 where 0 comes next"),
    "seq not an integer": (lines(b'{"type":"x","seq":0.0}'), "log, line 2: has seq 0.0 where 0"),
    "seq true": (lines(b'{"type":"x","seq":0}', b'{"type":"x","seq":true}'), "log, line 3: has seq True"),
    "row at the wrong place": (
        lines(b'{"type":"x"}', row('["a","b","c"]', '"seq0":0,"time0":0,')),
        "log, line 3: has seq 0 where 1 comes next",
    ),
    "row with white space": (lines(row(' ["a","b","c"]')), "log, line 2: text-chunks: is spelled with"),
    "row with a needless escape": (lines(row(r'["\u0061","b","c"]')), "log, line 2: text-chunks: is"),
    "row with a key twice": (lines(row('["a","b","c"]', '"data":1,')), "log, line 2: the key 'data' is"),
    "bad row": (lines(row('["a"]')), "log, line 2: text-chunks: 1 fragments need 0 gaps in dt, not 2"),
    "carriage return": (lines(b"\r"), "log, line 2: expecting value"),
    "deep": (lines(b'{"type":"x","data":' + DEEP), "log, line 2: nested too deeply to read"),
    "not UTF-8": (lines(b'{"type":"\xff"}'), "log, line 2: not UTF-8"),
}


@pytest.mark.parametrize("case", MALFORMED)
def test_malformed_input_is_refused_with_file_and_line(case: str) -> None:
    """The message names the file, the line and what is wrong."""
    raw, message = MALFORMED[case]
    with pytest.raises(UsageError) as caught:
        read_log(raw, "log")
    assert str(caught.value).startswith(message)


def test_live_reading_stops_where_reading_ends() -> None:
    """A torn tail and a damaged line are noted, not raised; a bad header is raised all the same."""
    log = read_log(lines(b'{"type":"x"}', b"{", b'{"type":"y"}') + b'{"ty', "log", live=True)
    assert [event["type"] for event in log.events] == ["x"]
    assert log.flaw is not None and log.flaw.startswith("line 3: expecting property name")
    assert log.torn is not None and log.torn.size == 4
    with pytest.raises(UsageError, match="log, line 1: "):
        read_log(b"{\n", "log", live=True)
    with pytest.raises(UsageError, match="log: holds only 30 bytes of an unfinished write from byte 0 on"):
        read_log(HEADER[:30], "log", live=True)
    with pytest.raises(UsageError, match=r"log: frame 0 \(byte 0\) is damaged\. A session log begins"):
        read_log(compress(HEADER)[:-1] + b"?", "log", live=True)


def test_lines_end_at_newlines_only() -> None:
    """What `str.splitlines` would take for a line end is text."""
    line = '{"type":"x","data":"\u2028\u2029\u0085"}'.encode()
    assert len(read_log(lines(line, line), "log").events) == 2
