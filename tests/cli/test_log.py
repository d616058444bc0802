"""`onetake log` on the corpus, on live logs, and on what is no log."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from onetake.cli import main
from onetake.session.jsonl import encode_log
from onetake.session.store import SessionStore
from tests.session.make import assistant, call_block, delta, header, started_turn

ACTIONS = ["show", "events", "messages", "script", "figures", "pack", "unpack"]


@pytest.fixture
def log(capfdbinary: pytest.CaptureFixture[bytes]) -> Any:
    """Return a function that runs `onetake log` and gives exit code, stdout and stderr."""

    def run(*arguments: Any) -> tuple[int, bytes, str]:
        code = main(["log", *map(str, arguments)])
        out, err = capfdbinary.readouterr()
        return code, out, err.decode()

    return run


def corpus(shared_dir: Path) -> list[tuple[Path, dict[str, Any]]]:
    """Return every log of the corpus with its figures in the index."""
    root = shared_dir / "dsh-corpus"
    index = json.loads((root / "index.json").read_text())
    found = [
        (root / scenario["id"] / entry["file"], entry)
        for scenario in index["scenarios"]
        for entry in scenario["logs"]
    ]
    assert len(found) > 100
    return found


def test_figures_agree_with_the_index_for_every_log(log: Any, shared_dir: Path) -> None:
    """Key by key; of `underivable` only the presence is compared, its text is each decoder's own."""
    entries = corpus(shared_dir)
    code, out, err = log("figures", *[path for path, _ in entries])
    assert (code, err) == (0, "")
    printed = [json.loads(line) for line in out.splitlines()]
    assert len(printed) == len(entries)
    for (path, expected), figures in zip(entries, printed, strict=True):
        assert ("underivable" in figures) == ("underivable" in expected), path
        figures.pop("underivable", None)
        assert figures == {key: value for key, value in expected.items() if key != "underivable"}, path


def test_unpack_then_pack_gives_every_log_back(log: Any, shared_dir: Path, tmp_path: Path) -> None:
    """Through the command line, byte for byte, by stdout and by --output."""
    unpacked, packed = tmp_path / "unpacked.jsonl", tmp_path / "packed.jsonl"
    for path, _ in corpus(shared_dir):
        code, out, _ = log("unpack", path)
        assert code == 0
        unpacked.write_bytes(out)
        assert log("pack", "--project", unpacked, "--output", packed) == (0, b"", "")
        assert packed.read_bytes() == path.read_bytes(), path
    assert sorted(tmp_path.iterdir()) == [packed, unpacked], "no temporary file stays"


def test_every_action_reads_every_log(log: Any, shared_dir: Path) -> None:
    """`show`, `events`, `script` on all; `messages` says why where an older layout holds none."""
    for path, figures in corpus(shared_dir):
        before = path.read_bytes()
        code, out, err = log("show", path)
        assert (code, err) == (0, "") and out.startswith(b"session ")
        code, out, err = log("events", path)
        assert (code, err) == (0, "") and out.count(b"\n") == figures["events"]
        code, out, err = log("script", path)
        assert (code, err) == (0, "")
        assert (b'"kind":"underivable"' in out) == ("underivable" in figures)
        if "underivable" not in figures:
            assert out.count(b"\n") == figures["replay_entries_own"]
        code, out, err = log("messages", path)
        assert (code, err) == (0, "") or (
            code == 2 and "cannot be part of the history" in err and str(path) in err
        )
        assert path.read_bytes() == before


def write(path: Path, *lines: str) -> Path:
    """Write a log of the given lines behind a header."""
    path.write_bytes(b"".join(line.encode() + b"\n" for line in (json.dumps(header()), *lines)))
    return path


def test_events_come_with_their_envelopes(log: Any, tmp_path: Path) -> None:
    """Rows are unpacked; strange lines keep their spelling."""
    row = '{"type":"text-chunks","data":{"turn":1,"step":1,"index":0,"dt":[4,4],"texts":["a","b","c"]}}'
    path = write(tmp_path / "log.jsonl", '{"type":"x","data":1.50}', row)
    code, out, _ = log("events", path)
    assert code == 0
    first, *members = out.splitlines()
    assert first == b'{"type":"x","seq":0,"time":0,"data":1.50}'
    assert [(event["seq"], event["time"]) for event in map(json.loads, members)] == [(1, 0), (2, 4), (3, 8)]


def test_messages_are_the_derived_history(log: Any, tmp_path: Path) -> None:
    """One message per line, as a model would be sent them."""
    path = tmp_path / "log.jsonl"
    path.write_bytes(encode_log(header(), started_turn().events))
    code, out, _ = log("messages", path)
    assert code == 0
    assert [json.loads(line)["content"][0]["text"] for line in out.splitlines()] == ["hello"]


def test_script_leaves_out_what_a_child_inherited(log: Any, tmp_path: Path) -> None:
    """Entries are those that replay would serve; a call without an end is marked."""
    finish = {"type": "finish", "reason": {"kind": "stop"}}
    first = {"type": "assistant/chunk", "data": {"turn": 1, "step": 1, "chunk": finish}}
    second = {"type": "assistant/chunk", "data": {"turn": 2, "step": 1, "chunk": finish}}
    third = {
        "type": "assistant/chunk",
        "data": {"turn": 3, "step": 1, "chunk": {"type": "usage", "usage": {}}},
    }
    lines = [json.dumps(line) for line in ({**header(), "seedLength": 1}, first, second, third)]
    path = tmp_path / "log.jsonl"
    path.write_text("".join(f"{line}\n" for line in lines))
    code, out, _ = log("script", path)
    assert code == 0
    entries = [json.loads(line) for line in out.splitlines()]
    assert entries[0] == {"kind": "chunks", "chunks": [finish]}
    assert [entry["kind"] for entry in entries] == ["chunks", "underivable"]


@pytest.mark.parametrize(
    ("lines", "layout", "canonical"),
    [
        ([], "empty", True),
        (['{"type":"x","data":1}'], "projected", True),
        (['{"type":"x","seq":0,"time":1,"data":1}'], "enveloped", True),
        (['{"type":"x","seq":0,"time":1,"data":1}', '{"type":"x","data":1}'], "mixed", False),
        (['{"type":"x","seq":0,"data":1}'], "mixed", False),
        (['{"type":"x", "data":1}'], "projected", False),
        (
            ['{"type":"assistant/chunk","data":1}', '{"type":"assistant/chunk","data":{"chunk":2}}'],
            "projected",
            True,
        ),
    ],
)
def test_figures_tell_layout_and_canonical_form(
    lines: list[str], layout: str, canonical: bool, log: Any, tmp_path: Path
) -> None:
    """Every layout has its name; white space and mixed envelopes are not canonical."""
    code, out, _ = log("figures", write(tmp_path / "log.jsonl", *lines))
    figures = json.loads(out)
    assert (code, figures["layout"], figures["canonical"]) == (0, layout, canonical)
    assert figures["chunk_kinds"] == {}


def test_unpacked_deltas_are_not_canonical(log: Any, tmp_path: Path) -> None:
    """Three deltas that stand alone should have been a row."""
    path = tmp_path / "log.jsonl"
    path.write_bytes(encode_log(header(), [delta(0), delta(1), delta(2)], packed=False))
    figures = json.loads(log("figures", path)[1])
    assert (figures["canonical"], figures["verbatim_deltas"]) == (False, 3)
    path.write_bytes(encode_log(header(), [delta(0), delta(1, time=-1), delta(2)]))
    figures = json.loads(log("figures", path)[1])
    assert (figures["canonical"], figures["verbatim_deltas"], figures["negative_gaps"]) == (True, 0, 1)


@pytest.fixture
def live(tmp_path: Path) -> Path:
    """Return the stored log of a session that was killed while a tool ran and a batch was written."""
    session = started_turn()
    session.append(
        "request/header", {"header": {"config": {"provider": "p", "model": "m"}}, "reason": "initial"}
    )
    text, thought = (
        {"type": "text", "text": "Let me look. " * 20},
        {"type": "reasoning", "text": "a\tb\x1b[0m\nc"},
    )
    session.append("assistant/message", assistant(thought, text, call_block("c1")), surface_op="append")
    session.append("tool/call", {"turn": 1, "step": 1, "callId": "c1", "name": "bash", "arguments": "{}"})
    session.append("x/unheard-of", None)
    for kind in ("block-start", "finish"):
        chunk = {"type": kind, "reason": {"kind": "error", "failure": {"code": "TIMEOUT", "message": "slow"}}}
        session.append("assistant/chunk", {"turn": 1, "step": 2, "chunk": chunk})
    writer = SessionStore(tmp_path, project="p").open(session)
    asyncio.run(writer.close())
    raw = writer.path.read_bytes()
    writer.path.write_bytes(raw + raw[:20])
    return writer.path


def test_show_reads_a_torn_log_and_changes_nothing(log: Any, live: Path) -> None:
    """The overview has one line per thing that happened, without control characters, and names the tail."""
    before = live.read_bytes()
    code, out, err = log("show", live)
    assert (code, err) == (0, "")
    text = out.decode()
    assert text.splitlines() == [
        "session s-1",
        "9 events in 9 records",
        "",
        "turn 1",
        "  step 1",
        "    user       hello",
        "    model      p/m",
        "    reasoning  a b\N{REPLACEMENT CHARACTER}[0m c",
        f"    text       {('Let me look. ' * 20)[:100]} ... (+159)",
        "    call       bash {}",
        "    (x/unheard-of)",
        "    failed     TIMEOUT: slow",
        "    failed     TIMEOUT: slow",
        "    stream     1 chunk without a committed message",
        f"torn tail: 20 bytes of an unfinished write from byte {len(before) - 20} on; it was never "
        "acknowledged, and resuming the session cuts it off",
    ]
    assert live.read_bytes() == before


def test_strict_actions_refuse_a_torn_log(log: Any, live: Path) -> None:
    """And point to `show`."""
    for action in ("events", "messages", "script", "figures", "pack", "unpack"):
        code, out, err = log(action, live)
        assert (code, out) == (2, b"")
        assert (
            f"onetake: {live}: ends with 20 bytes of an unfinished write" in err and "onetake log show" in err
        )


def test_all_actions_read_a_stored_log(log: Any, live: Path) -> None:
    """Compressed and plain give the same."""
    live.write_bytes(live.read_bytes()[:-20])
    plain = live.with_name("plain.jsonl")
    assert log("pack", live, "--output", plain)[0] == 0
    for action in ("show", "events", "messages", "script", "pack", "unpack"):
        code, out, err = log(action, live)
        assert (code, err) == (0, "") and out
        assert log(action, plain) == (code, out, err)


def test_show_says_where_a_log_is_damaged(log: Any, tmp_path: Path) -> None:
    """What is before the damage is shown; the exit code says that something is wrong."""
    path = write(
        tmp_path / "log.jsonl", '{"type":"turn/start","data":{"turn":1}}', "{", '{"type":"turn/end"}'
    )
    code, out, _ = log("show", path)
    assert code == 2
    lines = out.decode().splitlines()
    assert "turn 1" in lines
    assert lines[-1].startswith("damaged: line 3: ") and lines[-1].endswith("; nothing after it is shown")


def test_show_takes_payloads_as_they_come(log: Any, tmp_path: Path) -> None:
    """No type is trusted; a session may hold anything."""
    odd: list[Any] = [None, 1, "text", [], {}, {"content": 1}, {"content": [1, {"type": "image"}]}]
    odd += [
        {"message": {"content": [{"type": "tool-result", "isError": True, "content": [{"type": "text"}]}]}}
    ]
    odd += [{"message": 1, "interrupted": True, "reason": {"kind": "error", "error": {"message": "m"}}}]
    odd += [{"chunk": 1}, {"source": {"kind": "user"}, "content": [{"type": "text", "text": "\ud800"}]}]
    types = ["turn/start", "step/start", "user/message", "assistant/message", "tool/result", "turn/end"]
    types += ["request/header", "assistant/chunk", "step/end", "agent/inbox/spliced"]
    lines = [json.dumps({"type": kind, "data": data}) for kind in types for data in odd]
    path = tmp_path / "log.jsonl"
    head = {**header(), "cwd": "/w", "parentSession": "p", "origin": "o", "createdAt": 1_700_000_000_000}
    path.write_text("".join(f"{line}\n" for line in [json.dumps(head), *lines]))
    code, out, err = log("show", path)
    assert (code, err) == (0, "")
    text = out.decode()
    for expected in ("folder  /w", "parent  p", "origin  o", "created 2023-11-14 22:13:20 UTC", "error: m"):
        assert expected in text
    assert "    failed     None" in text and "    interrupted" in text and "(image)" in text
    assert "stream     11 chunks without a committed message" in text


def test_show_takes_several_files(log: Any, tmp_path: Path) -> None:
    """And gives the worst exit code of them."""
    good, bad = write(tmp_path / "a.jsonl"), write(tmp_path / "b.jsonl", "{")
    code, out, _ = log("show", bad, good)
    assert code == 2 and out.count(b"session s-1") == 2


@pytest.mark.parametrize("action", ACTIONS)
def test_what_is_no_log_is_refused_with_its_name(action: str, log: Any, tmp_path: Path) -> None:
    """Missing files, folders and foreign files are exit code 2 and one line."""
    foreign = tmp_path / "notes.txt"
    foreign.write_text("hello\n")
    for path, reason in (
        (tmp_path / "none", "No such file"),
        (tmp_path, "Is a directory"),
        (foreign, "line 1: "),
    ):
        code, out, err = log(action, path)
        assert (code, out) == (2, b"")
        assert err.startswith(f"onetake: {path}") and reason in err and err.count("\n") == 1


def test_an_output_that_cannot_be_written_is_reported(log: Any, tmp_path: Path) -> None:
    """And leaves nothing behind."""
    path = write(tmp_path / "log.jsonl")
    code, _, err = log("pack", path, "--output", tmp_path / "missing" / "out.jsonl")
    assert code == 2 and "out.jsonl: cannot be written: No such file" in err
    assert log("unpack", path, "--output", path)[0] == 0, "the input itself may be the output"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
    "arguments", [[], ["draw"], ["pack"], ["events", "a", "b"], ["show", "--project", "a"]]
)
def test_wrong_usage_is_exit_2(arguments: list[str], log: Any) -> None:
    """With argparse's usage line."""
    code, _, err = log(*arguments)
    assert code == 2 and "usage: onetake log" in err


@pytest.mark.parametrize("action", ACTIONS)
def test_every_action_explains_itself(action: str, log: Any) -> None:
    """Its help has more than its usage."""
    code, out, _ = log(action, "--help")
    assert code == 0
    assert f"usage: onetake log {action}".encode() in out and len(out.splitlines()) > 4
