"""Twelve changes of an agent, right by default: what must be red is red, and what must be stable is stable.

The transcript and the agent's own files are surfaces of a suite; they are in tests/snapshot/test_behind.py.
"""

from __future__ import annotations

import asyncio
import secrets
import threading
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from onetake.session.jsonl import read_log
from onetake.snapshot import recorded_model
from tests.regressions.twist import Twist

CALL = {"id": "call_1", "name": "look", "arguments": {}}
SCRIPT = {
    "replies": [
        {"reply": {"toolCalls": [CALL]}},
        {"reply": {"pieces": ["It ", "is ", "blue."]}},
    ]
}
Run = Callable[..., str]


@pytest.fixture(autouse=True)
def at_a_desk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where one records: no CI, and no proxy for loopback."""
    for name in ("CI", "ONETAKE_SNAPSHOT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")


@pytest.fixture(params=["openai_agent", "responses_agent", "anthropic_agent", "pydantic_agent"])
def run(request: pytest.FixtureRequest) -> Run:
    found: Run = import_module(f"tests.regressions.{request.param}").run
    return found


def recorded(folder: Path, run: Run, script: Any = SCRIPT, **more: Any) -> Path:
    with recorded_model(folder, script=script, mode="record", **more) as model:
        run(model.openai)
    return folder


def red(folder: Path, run: Run, twist: Twist, **more: Any) -> str:
    """What is said of an agent that does something otherwise; nothing when nobody noticed."""
    try:
        with recorded_model(folder, **more) as model:
            try:
                run(model.openai, twist)
            except Exception as error:
                print(f"the agent failed: {error}")  # red by itself, but a failure may be swallowed
    except AssertionError as error:
        return str(error)
    return ""


def test_the_same_again_is_green(tmp_path: Path, run: Run) -> None:
    folder = recorded(tmp_path, run)
    for _ in range(2):
        with recorded_model(folder) as model:
            assert run(model.openai) == "It is blue."


@pytest.mark.parametrize(
    ("twist", "said"),
    [
        (Twist(system="You are very brief."), "system: 'You are brief.' -> 'You are very brief.'"),
        (Twist(tool="Looks down."), "tools[0].description: 'Looks up.' -> 'Looks down.'"),
        (Twist(look=lambda: "grey"), "'blue' -> 'grey'"),
        (Twist(asks_more=True), "no place in the recording"),
        (Twist(repeats=1), "once more"),
    ],
    ids=["system", "tool", "result", "more-new", "more-same"],
)
def test_a_change_is_red(tmp_path: Path, run: Run, twist: Twist, said: str) -> None:
    assert said in red(recorded(tmp_path, run), run, twist)


def test_stopping_early_is_red(tmp_path: Path) -> None:
    run = import_module("tests.regressions.openai_agent").run
    told = red(recorded(tmp_path, run), run, Twist(stops_early=True))
    assert "session.jsonl: 2 model calls are recorded, 1 were made" in told


def test_equal_requests_get_their_own_answers(tmp_path: Path, run: Run) -> None:
    def twice(base_url: str) -> str:
        return f"{run(base_url)} {run(base_url)}"

    script = {"replies": [{"reply": {"text": "Four."}}, {"reply": {"text": "Seven."}}]}
    folder = recorded(tmp_path, twice, script)
    with recorded_model(folder) as model:
        assert twice(model.openai) == "Four. Seven."


NAMES = ["north", "south", "east", "west"]
MANY = {
    "replies": [
        reply
        for name in NAMES
        for reply in (
            {"matchSystem": name, "reply": {"toolCalls": [{**CALL, "id": f"call_{name}"}]}},
            {"matchSystem": name, "reply": {"text": f"The {name} is blue."}},
        )
    ]
}


def in_threads(run: Run, base_url: str, names: list[str]) -> list[str]:
    said: dict[str, str] = {}
    threads = [
        threading.Thread(target=lambda name=name: said.update({name: run(base_url, Twist(system=name))}))
        for name in names
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return [said[name] for name in NAMES]


def test_conversations_in_threads_get_their_own_answers(tmp_path: Path, run: Run) -> None:
    with recorded_model(tmp_path, script=MANY, mode="record") as model:
        in_threads(run, model.openai, NAMES)
    with recorded_model(tmp_path) as model:
        said = in_threads(run, model.openai, NAMES[::-1])
    assert said == [f"The {name} is blue." for name in NAMES]


def test_conversations_in_tasks_get_their_own_answers(tmp_path: Path, run: Run) -> None:
    answer = import_module("tests.regressions.pydantic_agent").answer

    async def together(base_url: str, names: list[str]) -> dict[str, str]:
        said = await asyncio.gather(*(answer(base_url, Twist(system=name)) for name in names))
        return dict(zip(names, said, strict=True))

    with recorded_model(tmp_path, script=MANY, mode="record") as model:
        asyncio.run(together(model.openai, NAMES))
    with recorded_model(tmp_path) as model:
        said = asyncio.run(together(model.openai, NAMES[::-1]))
    assert said == {name: f"The {name} is blue." for name in NAMES}


def test_a_random_id_needs_one_rule_and_hides_nothing_else(tmp_path: Path, run: Run) -> None:
    def job(state: str = "started") -> Twist:
        return Twist(look=lambda: f"{state} job {secrets.token_hex(3)}")

    def first(base_url: str, twist: Twist | None = None) -> str:
        return run(base_url, twist or job())

    plain = recorded(tmp_path / "plain", first)
    assert "differs in messages" in red(plain, first, job())
    rule = [("job ([0-9a-f]{6})", "job")]
    ruled = recorded(tmp_path / "ruled", first, mint=rule)
    assert red(ruled, first, job(), mint=rule) == ""
    assert "'started job" in red(ruled, first, job("stopped"), mint=rule)


def test_chunks_keep_their_boundaries(tmp_path: Path) -> None:
    run = import_module("tests.regressions.openai_agent").run
    folder = recorded(tmp_path, run)
    events = read_log((folder / "session.jsonl").read_bytes(), "log").events
    chunks = [event["data"]["chunk"] for event in events if event["type"] == "assistant/chunk"]
    texts = [chunk["text"] for chunk in chunks if chunk["type"] == "text-delta"]
    assert texts == ["It ", "is ", "blue."]
    with recorded_model(folder) as model:
        heard: list[str] = []
        assert run(model.openai, Twist(pieces=heard)) == "It is blue."
    assert heard == texts


def test_no_secret_reaches_the_disk(tmp_path: Path, run: Run) -> None:
    folder = recorded(tmp_path, run)
    assert all(b"secret" not in path.read_bytes() for path in folder.rglob("*") if path.is_file())
