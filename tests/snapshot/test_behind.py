"""An agent that is not ours: recorded, replayed, and red for each change of what it does."""

from __future__ import annotations

from pathlib import Path

import pytest

from onetake.errors import UsageError
from tests.snapshot.behind import Foreign
from tests.snapshot.lab import failures, red


@pytest.fixture
def foreign(tmp_path: Path) -> Foreign:
    made = Foreign(tmp_path / "project")
    outcomes = made.run("record")
    assert red(outcomes) == {}, failures(outcomes)
    return made


def test_a_recorded_agent_is_green_and_stays_so(foreign: Foreign) -> None:
    for mode in ("replay", "refresh", "replay"):
        outcomes = foreign.run(mode)
        assert red(outcomes) == {}, failures(outcomes)
        assert not any(outcome.verdict.written for outcome in outcomes.values())
    assert foreign.lines("sky/stdout.expected.jsonl") == [
        {"line": "I look."},
        {"line": "It is blue."},
        {"exit": 0},
    ]
    assert (foreign.snapshots / "sky/system-prompt.expected.md").read_text() == "You are brief.\n"


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("You are brief.", "You are very brief.", "system: 'You are brief.' -> 'You are very brief.'"),
        ("Looks up.", "Looks at it.", "tools[0].description"),
        ('return "blue"', 'return "grey"', "messages[2].content[0].content[0].text: 'blue' -> 'grey'"),
    ],
)
def test_a_changed_request_is_red_and_a_refresh_accepts_it(
    foreign: Foreign, old: str, new: str, said: str
) -> None:
    foreign.edit("agent.py", old, new)
    outcomes = foreign.run("replay")
    assert "violation" in red(outcomes)["sky"]
    assert said in failures(outcomes)
    outcomes = foreign.run("refresh")
    assert red(outcomes) == {}, failures(outcomes)
    outcomes = foreign.run("replay")
    assert red(outcomes) == {}, failures(outcomes)


def test_stopping_one_call_early_is_red(foreign: Foreign) -> None:
    foreign.edit("agent.py", 'if not message.get("tool_calls")', "if True")
    assert "leftover" in red(foreign.run("replay"))["sky"]


def test_one_call_more_is_red_new_or_the_same(foreign: Foreign) -> None:
    foreign.edit("agent.py", "message = ask(messages)", "message = ask(messages); ask(messages)")
    outcomes = foreign.run("replay")
    assert red(outcomes)["sky"] & {"extra-call", "unbound-session"}, failures(outcomes)


def test_a_changed_transcript_is_red(foreign: Foreign) -> None:
    foreign.edit("agent.py", 'print(message["content"])', 'print(message["content"].upper())')
    assert red(foreign.run("replay")) == {"sky": {"stdout"}}


def test_a_line_lost_from_the_log_of_the_agent_is_red(foreign: Foreign) -> None:
    assert foreign.lines("sky/files.expected.jsonl") == [
        {"path": "~/log.jsonl", "mode": "0644"},
        {"path": "~/log.jsonl", "value": {"said": "I look."}},
        {"path": "~/log.jsonl", "value": {"said": "It is blue."}},
    ]
    foreign.edit("agent.py", 'with log.open("a")', 'with log.open("w")')
    assert red(foreign.run("replay")) == {"sky": {"files"}}


def test_a_file_that_nobody_wrote_is_a_row(foreign: Foreign) -> None:
    foreign.edit("agent.py", 'log.open("a")', 'open(os.devnull, "a")')
    outcomes = foreign.run("replay")
    assert red(outcomes) == {"sky": {"files"}}
    assert '"path":"~/*.jsonl","kind":"missing"' in failures(outcomes)


def test_the_surface_and_its_patterns_go_together(foreign: Foreign) -> None:
    foreign.edit("snapshots/suite.toml", 'files = ["~/*.jsonl"]', "")
    with pytest.raises(UsageError, match="the patterns of the files, go together"):
        foreign.run("replay")


def test_nothing_of_the_suite_names_a_machine(foreign: Foreign) -> None:
    for path in (foreign.snapshots / "sky").iterdir():
        assert b"127.0.0.1" not in path.read_bytes() and b"/tmp" not in path.read_bytes()
