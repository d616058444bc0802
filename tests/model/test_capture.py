"""The requests file: complete lines, continued after a restart."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from onetake.errors import UsageError
from onetake.model.capture import RequestCapture, counts
from onetake.model.request import ModelRequest


def request(session: str, call: int) -> ModelRequest:
    return ModelRequest(
        session_id=session,
        call=call,
        config={"provider": "p", "model": "m"},
        system="be brief",
        messages=[{"role": "user", "content": [{"type": "text", "text": "half \ud800\n"}]}],
    )


def test_a_request_is_one_complete_line(tmp_path: Path) -> None:
    path = tmp_path / "requests.jsonl"
    capture = RequestCapture(path)
    capture(request("a", 1))
    (line,) = path.read_bytes().splitlines()
    assert json.loads(line) == {
        "session": "a",
        "call": 1,
        "purpose": "main",
        "config": {"provider": "p", "model": "m"},
        "system": "be brief",
        "tools": None,
        "messages": [{"role": "user", "content": [{"type": "text", "text": "half \ud800\n"}]}],
    }
    assert list(json.loads(line)) == ["session", "call", "purpose", "config", "system", "tools", "messages"]
    capture.close()


def test_earlier_lines_are_counted_by_session(tmp_path: Path) -> None:
    path = tmp_path / "requests.jsonl"
    assert counts(path) == {}
    for session, call in (("a", 1), ("b", 1), ("a", 2)):
        capture = RequestCapture(path)
        capture(request(session, call))
        capture.close()
    assert counts(path) == {"a": 2, "b": 1}


def test_a_torn_line_is_cut_off(tmp_path: Path) -> None:
    path = tmp_path / "requests.jsonl"
    path.write_bytes(b'{"session":"a"}\n{"session":"a","ca')
    assert counts(path) == {"a": 1}
    capture = RequestCapture(path)
    capture(request("a", 2))
    capture.close()
    assert counts(path) == {"a": 2}


@pytest.mark.parametrize("line", [b"no json", b"[]", b"{}", b"7", b'{"session":[]}'])
def test_a_foreign_line_is_an_error_with_its_place(tmp_path: Path, line: bytes) -> None:
    path = tmp_path / "requests.jsonl"
    path.write_bytes(b'{"session":"a"}\n' + line + b"\n")
    with pytest.raises(UsageError, match=r"requests\.jsonl:2: not a captured model request"):
        counts(path)


def test_a_closed_capture_refuses(tmp_path: Path) -> None:
    capture = RequestCapture(tmp_path / "requests.jsonl")
    capture.close()
    capture.close()
    with pytest.raises(RuntimeError, match="closed"):
        capture(request("a", 1))


def test_a_short_write_is_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write = os.write
    monkeypatch.setattr(os, "write", lambda fd, data: write(fd, bytes(data)[:7]))
    path = tmp_path / "requests.jsonl"
    capture = RequestCapture(path)
    capture(request("a", 1))
    capture.close()
    monkeypatch.undo()
    assert json.loads(path.read_bytes())["call"] == 1
