"""A recorded model for code within this process."""

from __future__ import annotations

import json
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from onetake.errors import UsageError
from onetake.snapshot import recorded_model
from tests.gateway.endpoint import Endpoint

SCRIPT = {"replies": [{"reply": {"text": "Blue."}}, {"reply": {"text": "Grey."}}]}


@pytest.fixture(autouse=True)
def no_ci(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CI", raising=False)
    monkeypatch.delenv("ONETAKE_SNAPSHOT", raising=False)


def ask(base_url: str, text: str, *, system: str = "Be brief.") -> str:
    """What a program with a blocking client does."""
    messages = [{"role": "system", "content": system}, {"role": "user", "content": text}]
    body = json.dumps({"model": "m", "messages": messages}).encode()
    request = urllib.request.Request(
        f"{base_url}/chat/completions", body, {"content-type": "application/json"}
    )
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(request) as answer:
        value: Any = json.load(answer)
    return str(value["choices"][0]["message"]["content"])


def recorded(folder: Path) -> None:
    with recorded_model(folder, script=SCRIPT, mode="record") as model:
        assert [ask(model.openai, "Sky?"), ask(model.openai, "Sea?")] == ["Blue.", "Grey."]


def test_what_was_recorded_is_answered_in_any_order(tmp_path: Path) -> None:
    recorded(tmp_path / "sky")
    assert sorted(path.name for path in (tmp_path / "sky").iterdir()) == ["session.1.jsonl", "session.jsonl"]
    with recorded_model(tmp_path / "sky") as model:
        assert [ask(model.openai, "Sea?"), ask(model.openai, "Sky?")] == ["Grey.", "Blue."]


def test_a_changed_request_is_red_at_the_end_though_it_was_answered(tmp_path: Path) -> None:
    recorded(tmp_path)
    with (
        pytest.raises(AssertionError, match=r"differs in system: 'Be brief\.' -> 'Be long\.'"),
        recorded_model(tmp_path) as model,
    ):
        assert ask(model.openai, "Sky?", system="Be long.") == "Blue."
        ask(model.openai, "Sea?")


def test_a_call_that_was_not_made_is_red(tmp_path: Path) -> None:
    recorded(tmp_path)
    with (
        pytest.raises(AssertionError, match=r"session\.1\.jsonl: 1 model calls are recorded, 0 were made"),
        recorded_model(tmp_path) as model,
    ):
        ask(model.openai, "Sky?")


def test_a_refresh_accepts_a_change_and_keeps_the_answer(tmp_path: Path) -> None:
    recorded(tmp_path)
    with recorded_model(tmp_path, mode="refresh") as model:
        assert ask(model.openai, "Sky?", system="Be long.") == "Blue."
        ask(model.openai, "Sea?")
    with recorded_model(tmp_path) as model:
        assert ask(model.openai, "Sky?", system="Be long.") == "Blue."
        ask(model.openai, "Sea?")


def test_what_raises_in_the_block_passes_through(tmp_path: Path) -> None:
    recorded(tmp_path)
    with pytest.raises(KeyError), recorded_model(tmp_path):
        raise KeyError


def test_wrong_input_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with (
        pytest.raises(UsageError, match="holds no recording; make one with ONETAKE_SNAPSHOT=record"),
        recorded_model(tmp_path / "none"),
    ):
        pass
    with (
        pytest.raises(UsageError, match="to record, name the endpoint"),
        recorded_model(tmp_path, mode="record"),
    ):
        pass
    with (
        pytest.raises(UsageError, match="'opnai' is none of openai, anthropic"),
        recorded_model(tmp_path, mode="record", upstream={"opnai": "x"}),
    ):
        pass
    monkeypatch.setenv("CI", "true")
    with pytest.raises(UsageError, match="CI"), recorded_model(tmp_path, mode="record", script=SCRIPT):
        pass


def test_a_secret_is_not_written(tmp_path: Path) -> None:
    key = "sk-proj-" + "Ab3dEf6hIj9kLm2nOp5q"
    with (
        pytest.raises(AssertionError, match="a secret would be written; nothing was"),
        recorded_model(tmp_path, script=SCRIPT, mode="record") as model,
    ):
        ask(model.openai, f"My key is {key}.")
    assert list(tmp_path.iterdir()) == []


def record(folder: Path, url: str) -> None:
    with recorded_model(folder, upstream={"openai": url}, mode="record") as model:
        ask(model.openai, "Sky?")


def test_what_a_recording_cannot_keep_is_warned_of(tmp_path: Path) -> None:
    told = "openai-chat: a replay does not give `id` back as it came"
    with Endpoint(SCRIPT) as url, pytest.warns(UserWarning, match=told):
        record(tmp_path, url)
    with recorded_model(tmp_path) as model:
        assert ask(model.openai, "Sky?") == "Blue."
