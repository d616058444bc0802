"""Scripts: what is drawn can be run and kept, and what fails is made small."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given

from onetake import jsontext
from onetake.errors import UsageError
from onetake.testing.fuzz.campaign import Found
from onetake.testing.fuzz.draw import Known, _arguments, _sendable, cases, known_from
from onetake.testing.fuzz.saved import load, save
from onetake.testing.fuzz.shrink import HELLO, shrink
from onetake.testing.fuzz.steps import (
    Cancel,
    Case,
    NewSession,
    Pause,
    Prompt,
    Restart,
    Settle,
    Stray,
    read_case,
)

FIELDS = {
    "command": {"type": "string"},
    "mode": {"enum": ["a", "b"]},
    "times": {"type": "integer"},
    "words": {"type": "array", "items": {"type": "string"}},
    "options": {"type": "object", "properties": {"deep": {"type": "boolean"}}, "required": ["deep"]},
    "nothing": {"type": "null"},
    "share": {"type": "number"},
    "any": True,
}
TOOL = {"name": "bash", "parameters": {"type": "object", "properties": FIELDS, "required": ["command"]}}
OFFER = {"promptCapabilities": {"image": True, "audio": True, "embeddedContext": True}}


@given(cases(Known([TOOL], OFFER)))
def test_what_is_drawn_can_be_run_and_kept(case: Case) -> None:
    """The mock model takes every script, and both files together are the case."""
    assert len(case.model.replies) == len(case.replies) + 1
    script = {key: value for key, value in msgspec.to_builtins(case).items() if key != "replies"}
    written = [jsontext.loads(jsontext.dumps(value)) for value in (script, case.model_script)]
    assert jsontext.dumps(msgspec.to_builtins(read_case(*written, "x"))) == jsontext.dumps(
        msgspec.to_builtins(case)
    )


@given(_arguments(TOOL["parameters"]))
def test_arguments_fit_the_parameters(arguments: dict[str, Any]) -> None:
    """A tool that refuses every call would not be tested."""
    import jsonschema

    jsonschema.validate(arguments, TOOL["parameters"])
    assert "command" in arguments


def test_tools_are_found_in_what_the_model_was_asked() -> None:
    """Functions only; no request at all has none."""
    tool = {"type": "function", "function": TOOL}
    assert known_from([{"tools": [tool, {"type": "web_search"}]}, {}], OFFER) == Known([TOOL], OFFER)
    assert known_from([{"tools": None}], {}) == Known()
    assert known_from([], {}) == Known()


def test_what_no_server_could_write_is_left_out_of_a_stream() -> None:
    """The rest goes out as it is, malformed or not."""
    late = {"type": "text-delta", "index": 3, "text": "late"}
    end = {"type": "finish", "reason": {"kind": "stop"}}
    junk = [None, {}, {"type": "block-end", "index": 0, "block": {"type": "image"}}, {"type": "finish"}]
    assert _sendable([late, *junk, end, 1]) == [late, end]


def test_shrinking_drops_what_is_not_needed_and_makes_the_rest_plain() -> None:
    """It takes few runs, and none twice."""
    tried: list[Case] = []

    def breaks(case: Case) -> bool:
        assert case not in tried
        tried.append(case)
        prompted = any(isinstance(step, Prompt) and len(step.content) == 1 for step in case.steps)
        fails = any("error" in reply for reply in case.replies)
        return prompted and fails and NewSession() in case.steps

    block = {"type": "text", "text": "x" * 1000}
    noise: list[Any] = [Pause(5), Settle(1), Cancel(3), Restart("eof")] * 5
    steps = [*noise, Prompt(3, [block]), *noise, NewSession(), *noise, Prompt(1, [block, block])]
    slow = {"text": "slow", "delayMs": 5, "deltaChars": 1}
    failing = {"text": "partial", "error": {"status": 500}}
    first = Case(steps=steps, permission_answers=["held"] * 6, replies=[slow, slow, failing, slow])
    assert shrink(first, breaks) == Case(
        steps=[Prompt(0, HELLO), NewSession()], replies=[{"error": {"status": 500}}]
    )
    assert len(tried) < 60


def test_shrinking_reaches_into_prompts_and_answers() -> None:
    """One block of several, one chunk of many, one call of two."""
    image = {"type": "image", "mimeType": "image/png", "data": ""}
    end = {"type": "finish", "reason": {"kind": "stop"}}
    chunks = [{"type": "usage", "usage": {}}, end]
    calls = [{"name": "a", "arguments": ""}, {"name": "b", "arguments": ""}]

    def breaks(case: Case) -> bool:
        return (
            any(isinstance(step, Prompt) and image in step.content for step in case.steps)
            and any(end in reply.get("chunks", ()) for reply in case.replies)
            and any(calls[1] in reply.get("toolCalls", ()) for reply in case.replies)
        )

    first = Case(steps=[Prompt(2, [*HELLO, image])], replies=[{"chunks": chunks}, {"toolCalls": calls}])
    assert shrink(first, breaks) == Case(
        steps=[Prompt(0, [image])], replies=[{"chunks": [end]}, {"toolCalls": [calls[1]]}]
    )


def test_a_finding_is_saved_beside_those_that_are_there(tmp_path: Path) -> None:
    """Nothing is overwritten, and what is read again is the case."""
    case = Case(
        steps=[Prompt(0, HELLO), Stray("cancel")], replies=[{"hang": True}], permission_answers=["held"]
    )
    found = Found(case, "alive", "alive: in step 1: it died\nits stderr: \ud800")
    folders = [save(found, 7, tmp_path / "found") for _ in range(2)]
    assert [folder.name for folder in folders] == ["alive", "alive-2"]
    for folder in folders:
        assert load(folder) == case
        readme = (folder / "README.md").read_text(encoding="utf-8")
        assert f"onetake fuzz --again {folder.name} " in readme and "seed 7" in readme
        assert "    alive: in step 1: it died\n    its stderr: \\ud800\n" in readme


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ("", "expecting value"),
        ("[]", "not what `onetake fuzz` saved"),
        ('{"steps": [{"op": "sleep"}]}', "not what `onetake fuzz` saved"),
        (
            '{"steps": [{"op": "settle", "session": 0}, {"op": "stray", "what": "x"}]}',
            "step 2: 'x' is none of",
        ),
        ('{"steps": [{"op": "restart", "how": "x"}]}', "step 1: 'x' is none of"),
        ('{"permissionAnswers": ["maybe"]}', "'maybe' is none of"),
        ('{"steps": [], "steps": []}', "twice"),
    ],
)
def test_a_script_that_is_no_script_is_refused(tmp_path: Path, script: str, message: str) -> None:
    """The file is named, and the place in it."""
    (tmp_path / "input.json").write_text(script)
    (tmp_path / "mock-model.json").write_text('{"replies": []}')
    with pytest.raises(UsageError, match=message) as error:
        load(tmp_path)
    assert "input.json: " in str(error.value)


def test_a_folder_without_the_two_files_is_refused(tmp_path: Path) -> None:
    """The message says what --again takes."""
    with pytest.raises(UsageError, match="--again takes a folder that `onetake fuzz` saved"):
        load(tmp_path)
    (tmp_path / "input.json").write_text("{}")
    (tmp_path / "mock-model.json").write_text('{"replies": 1}')
    with pytest.raises(UsageError, match=r"mock-model\.json: "):
        load(tmp_path)
