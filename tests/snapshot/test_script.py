"""input.json: every op is understood exactly, and anything else is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from onetake.errors import UsageError
from onetake.snapshot.suites import ops as script
from onetake.snapshot.suites.ops import load_script

EVERY_OP = [
    ({"op": "initialize"}, script.Initialize()),
    ({"op": "initialize", "terminalOutput": True}, script.Initialize(terminal_output=True)),
    ({"op": "newSession"}, script.NewSession()),
    ({"op": "newSessionExpectError"}, script.NewSessionExpectError()),
    (
        {"op": "newSessionExpectError", "additionalDirectories": ["/x"]},
        script.NewSessionExpectError(additional_directories=["/x"]),
    ),
    ({"op": "prompt", "text": "hi"}, script.Prompt("hi")),
    ({"op": "promptContent", "content": [{"type": "text"}]}, script.PromptContent([{"type": "text"}])),
    ({"op": "promptExpectError", "text": "hi"}, script.PromptExpectError("hi")),
    ({"op": "promptAndCancel", "text": "hi"}, script.PromptAndCancel("hi")),
    (
        {"op": "promptAndCancel", "text": "hi", "waitForFile": {"path": "f", "timeoutMs": 5}},
        script.PromptAndCancel("hi", script.WaitedFile("f", 5)),
    ),
    (
        {"op": "promptAndWaitForAgentMessage", "text": "hi", "waitForText": "ho"},
        script.PromptAndWaitForAgentMessage("hi", "ho"),
    ),
    ({"op": "cancel"}, script.Cancel()),
    ({"op": "cancel", "waitForFile": {"path": "f"}}, script.Cancel(script.WaitedFile("f"))),
    ({"op": "waitForFile", "path": "f", "timeoutMs": 5}, script.WaitForFile("f", 5)),
    ({"op": "waitForTurnStart"}, script.WaitForTurnStart(1)),
    ({"op": "waitForTurnStart", "minimumTurn": 2}, script.WaitForTurnStart(2)),
    ({"op": "waitForTurnEnd"}, script.WaitForTurnEnd()),
    ({"op": "waitForIdle"}, script.WaitForIdle()),
    ({"op": "waitForEventAfterTurnEnd", "type": "x"}, script.WaitForEventAfterTurnEnd("x")),
    ({"op": "waitForInboxMessage", "text": "x"}, script.WaitForInboxMessage("x")),
    ({"op": "waitForSubagentTurnEnd"}, script.WaitForSubagentTurnEnd()),
    ({"op": "waitForSubagentTurnEnd", "child": 2, "minimumTurn": 3}, script.WaitForSubagentTurnEnd(2, 3)),
    ({"op": "kill", "signal": "SIGTERM"}, script.Kill("SIGTERM")),
    ({"op": "restart"}, script.Restart()),
    ({"op": "resumeSession"}, script.ResumeSession()),
]


def test_every_op_is_read(tmp_path: Path) -> None:
    path = tmp_path / "input.json"
    answers = [{"kind": "allow_once"}]
    path.write_text(json.dumps({"steps": [op for op, _ in EVERY_OP], "permissionAnswers": answers}))
    loaded = load_script(path)
    assert loaded.steps == [step for _, step in EVERY_OP]
    assert [answer.kind for answer in loaded.permission_answers] == ["allow_once"]


def test_every_op_of_the_corpus_is_read(shared_dir: Path) -> None:
    paths = sorted((shared_dir / "dsh-corpus" / "acp-agent").glob("*/input.json"))
    assert len(paths) > 40
    assert all(load_script(path).steps for path in paths)


@pytest.mark.parametrize(
    ("document", "message"),
    [
        (
            '{"steps": [{"op": "promt", "text": "x"}]}',
            "Invalid value 'promt' - at `$.steps[0].op`; did you mean `prompt`? (known ops: ",
        ),
        ('{"steps": [{"op": "prompt", "txt": "x"}]}', "unknown field `txt` - at `$.steps[0]`"),
        ('{"steps": [{"op": "prompt"}]}', "missing required field `text`"),
        ('{"steps": [{"text": "x"}]}', "missing required field `op`"),
        ('{"steps": [{"op": "initialize"}], "answers": []}', "unknown field `answers`"),
        ('{"steps": [{"op": "initialize"}], "permissionAnswers": ["yes"]}', "at `$.permissionAnswers[0]`"),
        ('{"steps": [{"op": "waitForFile", "path": "x", "timeout": 3}]}', "unknown field `timeout`"),
        (
            '{"steps": [{"op": "waitForFile", "path": "x", "timeoutMs": 0}]}',
            "Expected `int` >= 1 - at `$.steps[0].timeoutMs`",
        ),
        ('{"steps": [{"op": "waitForSubagentTurnEnd", "child": 0}]}', "Expected `int` >= 1"),
        ('{"steps": []}', "`steps` is empty, so the scenario would test nothing"),
        ('{"steps": [', "line 1, column 12: expecting value"),
    ],
)
def test_what_is_not_understood_is_refused(tmp_path: Path, document: str, message: str) -> None:
    path = tmp_path / "input.json"
    path.write_text(document)
    with pytest.raises(UsageError) as caught:
        load_script(path)
    assert str(caught.value).startswith(f"{path}: ")
    assert message in str(caught.value)


def test_a_missing_script_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"input\.json: cannot read the script of the scenario"):
        load_script(tmp_path / "input.json")
