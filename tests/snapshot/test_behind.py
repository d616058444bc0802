"""An agent that is not ours: recorded, replayed, and red for each change of what it does."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from onetake.errors import UsageError
from onetake.gateway.mock import MockModel
from tests.snapshot.behind import MODEL, Foreign
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


def test_what_the_log_masks_is_no_changed_request(tmp_path: Path) -> None:
    """The tool prints the time, a mask covers it, and every other word of the result stays compared."""
    foreign = Foreign(tmp_path / "project")
    foreign.edit("agent.py", 'return "blue"', 'import time; return f"blue at {time.time_ns()}"')
    with (foreign.snapshots / "suite.toml").open("a") as suite:
        suite.write('\n[[normalize.log.mask]]\npattern = "at [0-9]+"\nwith = "at TIME"\n')
    for mode in ("record", "replay"):
        outcomes = foreign.run(mode)
        assert red(outcomes) == {}, failures(outcomes)
    foreign.edit("agent.py", "blue at", "grey at")
    outcomes = foreign.run("replay")
    assert "violation" in red(outcomes)["sky"]
    assert "'blue at TIME' -> 'grey at TIME'" in failures(outcomes)


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


def test_a_recording_from_a_real_endpoint(tmp_path: Path) -> None:
    """Over its base URL and with a key, neither of which gets into a file."""
    foreign = Foreign(tmp_path / "project")
    table = 'upstream = { openai = "${MODEL_URL}" }\nkey_env = { openai = "MODEL_KEY" }'
    foreign.edit("snapshots/suite.toml", 'script = "model.json"', table)
    key = "sk-test-" + "Zx9Yw8Vu7Ts6Rq5P"
    (foreign.snapshots / "model.json").unlink()
    (foreign.snapshots / ".env").write_text(f"MODEL_KEY={key}\n")

    async def record() -> Any:
        async with MockModel(MODEL) as model:
            return await asyncio.to_thread(foreign.run, "record", {"MODEL_URL": model.base_url})

    outcomes = asyncio.run(record())
    assert red(outcomes) == {}, failures(outcomes)
    assert outcomes["sky"].verdict.notes == ["openai-chat: a replay does not give `id` back as it came"]
    assert all(key.encode() not in path.read_bytes() for path in (foreign.snapshots / "sky").iterdir())
    outcomes = foreign.run("replay")
    assert red(outcomes) == {}, failures(outcomes)


def test_a_recording_is_refused_when_the_endpoint_cuts_its_answer(tmp_path: Path) -> None:
    foreign = Foreign(tmp_path / "project")
    foreign.edit("snapshots/suite.toml", 'script = "model.json"', 'upstream = { openai = "${MODEL_URL}" }')
    foreign.edit("agent.py", '"model": "m"', '"stream": True, "model": "m"')
    foreign.edit(
        "agent.py", "return json.load(answer)", 'answer.read(); return {"content": "x"}; json.load(answer)'
    )
    chunks = [{"type": "text-delta", "index": 0, "text": "It is"}]

    async def record() -> Any:
        async with MockModel({"replies": [{"reply": {"chunks": chunks}}]}) as model:
            return await asyncio.to_thread(foreign.run, "record", {"MODEL_URL": model.base_url})

    outcomes = asyncio.run(record())
    assert "drive" in red(outcomes)["sky"]
    assert "the endpoint broke off its answer" in failures(outcomes)
    assert not (foreign.snapshots / "sky/session.jsonl").exists()


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ('upstream = { openai = "${NOT_SET}" }', "the variable NOT_SET is not set"),
        (
            'upstream = { openai = "http://x" }\nkey_env = { openai = "NOT_SET" }',
            "the variable NOT_SET is not set",
        ),
        ('script = "none.json"', "[gateway] script: No such file"),
    ],
)
def test_a_gateway_that_cannot_record_says_why(tmp_path: Path, table: str, said: str) -> None:
    foreign = Foreign(tmp_path / "project")
    foreign.edit("snapshots/suite.toml", 'script = "model.json"', table)
    outcomes = foreign.run("record")
    assert said in failures(outcomes)


def test_files_of_the_home_are_filled_in(tmp_path: Path) -> None:
    foreign = Foreign(tmp_path / "project")
    foreign.edit("snapshots/suite.toml", 'env = { OPENAI_BASE_URL = "{{gateway.openai}}" }', 'home = "home"')
    (foreign.snapshots / "home").mkdir()
    (foreign.snapshots / "home/url.txt").write_text("{{gateway.openai}}")
    foreign.edit(
        "agent.py", 'os.environ["OPENAI_BASE_URL"]', "pathlib.Path.home().joinpath('url.txt').read_text()"
    )
    for mode in ("record", "replay"):
        outcomes = foreign.run(mode)
        assert red(outcomes) == {}, failures(outcomes)
    foreign.edit("snapshots/suite.toml", 'home = "home"', 'home = "nowhere"')
    assert "nowhere is no folder" in failures(foreign.run("replay"))


def test_steps_that_read_a_log_are_refused(foreign: Foreign) -> None:
    (foreign.snapshots / "sky/input.json").write_text('{"steps": [{"op": "waitForTurnEnd"}]}')
    with pytest.raises(UsageError):
        foreign.run("replay")


def test_runs_with_arguments_stdin_and_exit_codes(tmp_path: Path) -> None:
    foreign = Foreign(tmp_path / "project")
    code = "import sys\nprint(sys.argv[1:], sys.stdin.read())\nsys.exit(int(sys.argv[1]))\n"
    (foreign.folder / "agent.py").write_text(code)
    foreign.edit("snapshots/suite.toml", ', "{prompt}"]', "]")
    foreign.edit("snapshots/suite.toml", "pins_header = true", "model_turn = false")
    foreign.edit("snapshots/suite.toml", '"log", "files"]', '"log"]')
    foreign.edit("snapshots/suite.toml", 'files = ["~/*.jsonl"]', "")
    steps = '[{"op": "run", "args": ["0"], "stdin": "hi"}, {"op": "run", "args": ["3"], "exitCode": 3}]'
    (foreign.snapshots / "sky/input.json").write_text(f'{{"steps": {steps}}}')
    outcomes = foreign.run("refresh")
    assert red(outcomes) == {}, failures(outcomes)
    assert foreign.lines("sky/stdout.expected.jsonl") == [
        {"line": "['0'] hi"},
        {"exit": 0},
        {"line": "['3'] "},
        {"exit": 3},
    ]
    (foreign.snapshots / "sky/input.json").write_text('{"steps": [{"op": "run", "args": ["3"]}]}')
    assert "the program was to exit with code 0, but exited with code 3" in failures(foreign.run("replay"))
