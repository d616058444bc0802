"""The replay plugin: from the run file and the composition to providers that answer."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest

from onetake.agent.context import AppContext
from onetake.errors import UsageError
from onetake.model.request import ModelRequest
from onetake.replay.plugin import Catalogue, ReplayConfig, replay, switched_off
from onetake.replay.recordings import load_recordings
from onetake.runfile import MintRule, RunFile
from onetake.session.jsonl import encode_log
from tests.fixture.logs import log, result, said, turn_start

ROWS: list[tuple[str, dict[str, Any]]] = [
    ("agent.yml: row 'shell'", {"timeout_s": 5}),
    (
        "agent.yml: row 'deepseek'",
        {"id": "deepseek", "base_url": "x", "models": ["m1", {"id": "m2", "max_output": 9}]},
    ),
]


def fixture(path: Path, *texts: str, id: str = "{{sessionId}}") -> str:
    events = log(*(event for step, text in enumerate(texts, 1) for event in said(1, step, text)))
    head = {"type": "session", "version": 0, "id": id, "createdAt": 0, "delegationDepth": 0}
    path.write_bytes(encode_log(head, events, packed=True, project=True))
    return str(path)


def run_file(tmp_path: Path, **fields: Any) -> RunFile:
    return RunFile(mode="replay", roots={"cwd": str(tmp_path)}, **fields)


class OpenAgent:
    """An agent, as far as replay looks at it."""

    class log:
        id, header, events = "S", {"id": "S"}, ()


def start(run: RunFile | None, config: ReplayConfig, rows: list[Any], use: Any) -> Any:
    async def boot() -> Any:
        ctx = AppContext(config_dir=Path(), environ={}, run=run)
        ctx.disabled_rows = rows
        async with replay(ctx, config):
            found = await use(ctx)
        with pytest.raises(UsageError, match="no provider"):
            ctx.providers.get("deepseek", "m1")
        return found

    return asyncio.run(boot())


async def catalogue(ctx: AppContext) -> Any:
    return {name: ctx.providers.get("deepseek", name)[1].max_output for name in ("m1", "m2")}


def test_it_answers_for_the_rows_that_the_overlay_switched_off(tmp_path: Path) -> None:
    run = run_file(tmp_path, fixtures=[fixture(tmp_path / "session.jsonl", "hi")])
    assert start(run, ReplayConfig(), ROWS, catalogue) == {"m1": None, "m2": 9}


def test_a_config_of_its_own_wins(tmp_path: Path) -> None:
    config = msgspec.convert({"providers": [{"id": "other", "models": ["m"]}]}, ReplayConfig)

    async def use(ctx: AppContext) -> Any:
        with pytest.raises(UsageError):
            ctx.providers.get("deepseek", "m1")
        return ctx.providers.get("other", "m")[1].id

    assert start(run_file(tmp_path), config, ROWS, use) == "m"


def test_sessions_are_those_that_are_open_and_restarts_continue(tmp_path: Path) -> None:
    requests = tmp_path / "requests.jsonl"
    requests.write_bytes(b'{"session":"S"}\n')
    run = run_file(
        tmp_path,
        fixtures=[fixture(tmp_path / "session.jsonl", "one", "two")],
        requests=str(requests),
        mint=[MintRule(pattern="(x)", name="x")],
    )

    async def use(ctx: AppContext) -> Any:
        ctx.agents["S"] = OpenAgent()
        request = ModelRequest(session_id="S", call=2, config={"provider": "deepseek", "model": "m1"})
        return "".join([chunk.get("text", "") async for chunk in ctx.providers.stream(request)])

    assert start(run, ReplayConfig(), ROWS, use) == "two"


def test_sessions_of_former_processes_give_their_values(tmp_path: Path) -> None:
    """In the order of their creation, whatever their folders are called; a broken log is the runner's."""
    for name, created, text in (("a", 2, "second"), ("b", 1, "first")):
        (tmp_path / "sessions" / "p" / name).mkdir(parents=True)
        head = {"type": "session", "version": 0, "id": name, "createdAt": created, "delegationDepth": 0}
        raw = encode_log(head, log(turn_start(1), result(1, 1, "c", f"commit {text}", created)))
        (tmp_path / "sessions" / "p" / name / "session.jsonl").write_bytes(raw)
    (tmp_path / "sessions" / "p" / "c").mkdir()
    (tmp_path / "sessions" / "p" / "c" / "session.jsonl").write_bytes(b"no log")
    run = run_file(
        tmp_path,
        fixtures=[
            fixture(tmp_path / "session.jsonl"),
            fixture(tmp_path / "session.1.jsonl", id="{{sessionId:1}}"),
            fixture(tmp_path / "session.2.jsonl", "{{commit:1}} {{commit:1/1}}", id="{{sessionId:2}}"),
        ],
        sessions_root=str(tmp_path / "sessions"),
        mint=[MintRule(pattern="commit (.+)", name="commit")],
    )

    async def use(ctx: AppContext) -> Any:
        request = ModelRequest(session_id="S", call=1, config={"provider": "deepseek", "model": "m1"})
        ctx.agents["S"] = OpenAgent()
        return "".join([chunk.get("text", "") async for chunk in ctx.providers.stream(request)])

    assert start(run, ReplayConfig(), ROWS, use) == "first second"


@pytest.mark.parametrize(
    ("run", "rows", "message"),
    [
        (None, ROWS, "replay needs a recording"),
        (RunFile(mode="record"), ROWS, "boot the live composition"),
        (RunFile(mode="replay"), ROWS[:1], "list `providers`"),
        (
            RunFile(mode="replay", fixtures=["/nowhere/session.jsonl"]),
            ROWS,
            "/nowhere/session.jsonl: cannot be read",
        ),
        (RunFile(mode="replay"), [("a.yml: row 'r'", {"id": 1, "models": []})], "a.yml: row 'r': config:"),
        (
            RunFile(mode="replay"),
            [("r", {"id": "x", "models": [{"max_output": 1}]})],
            "the catalogue of provider 'x'",
        ),
    ],
)
def test_what_cannot_start_says_why(run: RunFile | None, rows: list[Any], message: str) -> None:
    with pytest.raises(UsageError) as refused:
        start(run, ReplayConfig(), rows, catalogue)
    assert message in str(refused.value)


def test_the_override_belongs_to_the_primary_session(tmp_path: Path) -> None:
    document = tmp_path / "replay.override.json"
    document.write_text('[{"kind": "hang"}]')
    names = [fixture(tmp_path / name, "a", "b") for name in ("session.jsonl", "session.1.jsonl")]
    both = load_recordings(run_file(tmp_path, fixtures=names, override=str(document)))
    assert [[line.entry["kind"] for line in recording.lines] for recording in both] == [
        ["hang"],
        ["chunks"] * 2,
    ]
    [alone] = load_recordings(run_file(tmp_path, override=str(document)))
    assert [line.entry["kind"] for line in alone.lines] == ["hang"]
    assert load_recordings(run_file(tmp_path)) == []


def test_a_cut_call_of_a_child_is_not_said_to_be_a_matter_of_the_override(tmp_path: Path) -> None:
    names = [fixture(tmp_path / name, "a") for name in ("session.jsonl", "session.1.jsonl")]
    cut = [line for line in Path(names[1]).read_text().splitlines(True) if '"finish"' not in line]
    Path(names[1]).write_text("".join(cut))
    with pytest.raises(UsageError, match=r"session\.1\.jsonl: call 1 .* can script session\.jsonl only"):
        load_recordings(run_file(tmp_path, fixtures=names))


def test_rows_without_a_catalogue_are_passed_over() -> None:
    assert switched_off([("r", {"id": "x"}), ("s", {"models": []})]) == []
    assert switched_off(ROWS) == [Catalogue("deepseek", ROWS[1][1]["models"])]
