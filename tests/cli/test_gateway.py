"""`onetake gateway` and `onetake init`: any program, with its model recorded."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from onetake import cli
from tests.gateway.endpoint import Endpoint
from tests.snapshot.behind import AGENT, MODEL


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name in ("CI", "ONETAKE_SNAPSHOT", "OPENAI_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "agent.py").write_text(AGENT)
    (tmp_path / "model.json").write_text(json.dumps(MODEL))
    return tmp_path


@pytest.fixture
def endpoint() -> Iterator[str]:
    """A scripted endpoint in a thread."""
    with Endpoint(MODEL) as url:
        yield url


AGENT_COMMAND = ["--", sys.executable, "agent.py", "Look."]


def test_a_program_is_recorded_and_replayed(place: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["gateway", "record", "--script", "model.json", *AGENT_COMMAND]) == 0
    assert (place / "recording/session.jsonl").is_file()
    assert cli.main(["gateway", "replay", *AGENT_COMMAND]) == 0
    out, err = capfd.readouterr()
    assert out == "I look.\nIt is blue.\n" * 2
    assert err == "onetake: recorded in recording\n"


def test_a_program_that_asks_something_else_is_red(place: Path, capfd: pytest.CaptureFixture[str]) -> None:
    cli.main(["gateway", "record", "--script", "model.json", *AGENT_COMMAND])
    (place / "agent.py").write_text(AGENT.replace("You are brief.", "You are long."))
    assert cli.main(["gateway", "replay", *AGENT_COMMAND]) == 1
    assert "system: 'You are brief.' -> 'You are long.'" in capfd.readouterr().err
    assert cli.main(["gateway", "refresh", *AGENT_COMMAND]) == 0
    assert cli.main(["gateway", "replay", *AGENT_COMMAND]) == 0


def test_the_exit_code_of_the_program_counts(place: Path) -> None:
    cli.main(["gateway", "record", "--script", "model.json", *AGENT_COMMAND])
    (place / "agent.py").write_text(AGENT + "\nsys.exit(5)\n")
    assert cli.main(["gateway", "replay", *AGENT_COMMAND]) == 5


def test_wrong_usage_of_the_gateway(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["gateway", "replay", "--env", "X", "--", "true"]) == 2
    assert "--env X: write NAME=VALUE" in capsys.readouterr().err
    assert cli.main(["gateway", "record", "--script", "none.json", "--", "true"]) == 2
    assert cli.main(["gateway", "record", "--script", "agent.py", "--", "true"]) == 2
    assert cli.main(["gateway", "record", "--script", "model.json", "--", "./no-such-program"]) == 3
    assert "cannot be started" in capsys.readouterr().err


def test_init_writes_records_and_replays(
    place: Path, endpoint: str, capfd: pytest.CaptureFixture[str]
) -> None:
    command = ["--prompt", "Look.", "--upstream", endpoint, "--", "python", "agent.py", "{prompt}"]
    assert cli.main(["init", *command]) == 0, capfd.readouterr()
    assert '"{suite}/../../agent.py"' in (place / "tests/snapshots/suite.toml").read_text()
    assert cli.main(["replay", "tests/snapshots"]) == 0
    assert cli.main(["init", *command]) == 2
    assert "`onetake new tests/snapshots NAME` adds a scenario" in capfd.readouterr().err


def test_init_without_a_key_says_what_comes_next(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["init", "--driver", "acp", "--", "./agent.py"]) == 0
    assert "OPENAI_API_KEY is not set" in capsys.readouterr().out
    text = (place / "tests/snapshots/suite.toml").read_text()
    assert 'command = ["../../agent.py"]' in text and 'driver = "acp"' in text
    script = json.loads((place / "tests/snapshots/first/input.json").read_text())
    assert [step["op"] for step in script["steps"]] == ["initialize", "newSession", "prompt"]
    assert cli.main(["init", "--suite", "other", "--no-record", "--", "true"]) == 0
    assert "next: onetake record other" in capsys.readouterr().out


def test_the_help_teaches(capsys: pytest.CaptureFixture[str]) -> None:
    for command in ("gateway", "init"):
        done = subprocess.run(
            [sys.executable, "-m", "onetake", command, "--help"],
            capture_output=True,
            text=True,
            env=os.environ,
        )
        assert done.returncode == 0 and "-- COMMAND" in done.stdout
