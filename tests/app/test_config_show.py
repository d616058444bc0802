"""`onetake config show`: what really boots, and nothing that should stay secret."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from onetake.cli import main
from onetake.cli.config import describe
from onetake.errors import UsageError
from tests.app.test_composition import write

LIVE = """\
- id: sessions
  use: session-store
- id: model
  use: openai-chat
  config:
    id: p
    base_url: https://${MODEL_HOST}/v1
    api_key_env: SOME_API_KEY
    headers: {authorization: "Bearer ${SOME_API_KEY}"}
    models: [m]
- id: shell
  use: bash
  disabled: true
"""
ENVIRON = {"MODEL_HOST": "models.example", "SOME_API_KEY": "very-secret"}


def test_the_tree_names_objects_files_and_switched_off_rows(tmp_path: Path) -> None:
    write(tmp_path, agent=LIVE)
    top = write(tmp_path, top="base: agent.yml\npatches:\n  - {id: sessions, config: {compression: none}}\n")
    text = describe(top, ENVIRON)
    assert yaml.safe_load(text) == [
        {
            "id": "sessions",
            "use": "session-store",
            "plugin": "onetake.app.plugins:session_store",
            "file": str(tmp_path / "agent.yml"),
            "config": {"compression": "none"},
        },
        {
            "id": "model",
            "use": "openai-chat",
            "plugin": "onetake.app.plugins:openai_chat",
            "file": str(tmp_path / "agent.yml"),
            "config": {
                "id": "p",
                "base_url": "https://models.example/v1",
                "api_key_env": "SOME_API_KEY",
                "headers": {"authorization": "Bearer (hidden)"},
                "models": ["m"],
            },
        },
        {"id": "shell", "use": "bash", "disabled": True, "file": str(tmp_path / "agent.yml")},
    ]
    assert "very-secret" not in text


@pytest.mark.parametrize("name", ["MY_KEY", "token", "ClientSecret", "DB_PASSWORD", "AUTH_HEADER"])
def test_values_of_key_like_variables_are_masked(tmp_path: Path, name: str) -> None:
    rows = f"- {{id: a, use: prompt, config: {{sections: [{{name: n, text: 'x ${{{name}}} y'}}]}}}}\n"
    text = describe(write(tmp_path, agent=rows), {name: "very-secret"})
    assert "very-secret" not in text and "x (hidden) y" in text


def test_it_fails_where_a_boot_would(tmp_path: Path) -> None:
    path = write(tmp_path, agent=LIVE.replace("models: [m]", "models: []"))
    with pytest.raises(UsageError, match="row 'model': config: `models` must name at least one model"):
        describe(path, ENVIRON)


def test_the_command_prints_the_tree(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path, agent="- {id: s, use: session-store}\n")
    assert main(["config", "show", str(path)]) == 0
    assert yaml.safe_load(capsys.readouterr().out)[0]["id"] == "s"
    assert main(["config", "show", str(tmp_path / "none.yml")]) == 2
    assert "cannot read the composition" in capsys.readouterr().err


def test_the_example_agent_differs_from_its_snapshot_only_in_the_model() -> None:
    example = Path(__file__).resolve().parents[2] / "examples" / "acp-agent"
    live = yaml.safe_load(describe(example / "agent.yml", {}))
    snapshot = yaml.safe_load(describe(example / "agent.snapshot.yml", {}))
    assert [row["id"] for row in live if row not in snapshot] == ["deepseek"]
    assert [row["use"] for row in snapshot if row not in live] == ["openai-chat", "replay"]
