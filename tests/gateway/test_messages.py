"""An agent that speaks Anthropic's Messages behind the gateway: recorded, replayed, caught when changed."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any

import httpx

from onetake import jsontext
from onetake.gateway.http import HttpRequest, HttpResponse, HttpServer
from onetake.gateway.run import Run, recording
from onetake.gateway.server import Gateway
from onetake.gateway.upstream import Endpoint, Upstream
from onetake.runfile import RunFile
from onetake.session.store import SessionStore, read_file
from onetake.wire.sse import SSEDecoder, encode_event

USAGE = {"input_tokens": 5, "output_tokens": 1}


def events(number: int, *blocks: list[dict[str, Any]], stop: str) -> list[dict[str, Any]]:
    message = {
        "id": f"msg_{number}",
        "type": "message",
        "role": "assistant",
        "model": "claude",
        "content": [],
    }
    found: list[dict[str, Any]] = [{"type": "message_start", "message": {**message, "usage": USAGE}}]
    for index, (part, *deltas) in enumerate(blocks):
        found.append({"type": "content_block_start", "index": index, "content_block": part})
        found += [{"type": "ping"}] * (index == 0)
        found += [{"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas]
        found.append({"type": "content_block_stop", "index": index})
    delta = {"stop_reason": stop, "stop_sequence": None}
    found.append({"type": "message_delta", "delta": delta, "usage": {"output_tokens": 9}})
    return [*found, {"type": "message_stop"}]


FIRST = events(
    1,
    [
        {"type": "thinking", "thinking": "", "signature": ""},
        {"type": "thinking_delta", "thinking": "Hm."},
        {"type": "signature_delta", "signature": "c2ln"},
    ],
    [{"type": "redacted_thinking", "data": "eHg="}],
    [
        {"type": "tool_use", "id": "toolu_1", "name": "look", "input": {}},
        {"type": "input_json_delta", "partial_json": '{"at": '},
        {"type": "input_json_delta", "partial_json": '"sky"}'},
    ],
    stop="tool_use",
)
SECOND = events(
    2, [{"type": "text", "text": ""}, {"type": "text_delta", "text": "It is blue."}], stop="end_turn"
)


async def upstream(request: HttpRequest) -> HttpResponse:
    """An endpoint that calls a tool, and then says what it is told."""
    asked = jsontext.loads(request.body)
    told = SECOND if len(asked["messages"]) > 1 else FIRST

    async def body() -> AsyncIterator[bytes]:
        for event in told:
            yield encode_event(jsontext.dumps(event), event=event["type"])

    return HttpResponse(headers={"content-type": "text/event-stream"}, body=body())


def content_of(stream: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """What a client's SDK makes of a stream."""
    blocks: list[dict[str, Any]] = []
    texts: dict[int, str] = {}
    for event in stream:
        if event["type"] == "content_block_start":
            blocks.append(dict(event["content_block"]))
        elif event["type"] == "content_block_delta":
            delta, block = event["delta"], blocks[event["index"]]
            if delta["type"] == "input_json_delta":
                texts[event["index"]] = texts.get(event["index"], "") + delta["partial_json"]
                continue
            key = delta["type"].removesuffix("_delta")
            block[key] += delta[key]
    for index, text in texts.items():
        blocks[index]["input"] = json.loads(text)
    return blocks


async def agent(url: str, *, system: str = "Be brief.", result: str = "blue") -> list[Any]:
    """Asks, runs the tool, asks again; returns the events of each answer, or the error."""
    tool = {"name": "look", "description": "Looks.", "input_schema": {"type": "object"}}
    messages: list[dict[str, Any]] = [{"role": "user", "content": "Look."}]
    seen: list[Any] = []
    async with httpx.AsyncClient(trust_env=False) as client:
        while True:
            body = {"model": "claude", "max_tokens": 9, "stream": True, "system": system, "tools": [tool]}
            answer = await client.post(f"{url}/v1/messages", json={**body, "messages": messages})
            if answer.status_code != 200:
                return [*seen, answer.json()]
            seen.append([json.loads(event.data) for event in SSEDecoder().feed(answer.content)])
            content = content_of(seen[-1])
            messages.append({"role": "assistant", "content": content})
            calls = [block for block in content if block["type"] == "tool_use"]
            if not calls:
                return seen
            results = [{"type": "tool_result", "tool_use_id": c["id"], "content": result} for c in calls]
            messages.append({"role": "user", "content": results})


def run_file(tmp_path: Path, mode: str, fixtures: list[Path]) -> RunFile:
    folder = tmp_path / f"{mode}-{len(list(tmp_path.iterdir()))}"
    folder.mkdir()
    return RunFile(
        mode=mode,
        fixtures=[str(path) for path in fixtures],
        roots={"cwd": str(folder)},
        sessions_root=str(folder / "sessions"),
        requests=str(folder / "requests.jsonl"),
        violations=str(folder / "violations.jsonl"),
    )


async def record(run: RunFile) -> tuple[list[Any], Upstream]:
    async with Gateway() as gateway, HttpServer(upstream) as server:
        source = Upstream({"anthropic-messages": Endpoint(server.origin, "sk-real")})
        url = gateway.open(Run(run, lambda live: source))
        seen = await agent(url)
        await gateway.close(url)
        await source.aclose()
    return seen, source


async def replay(run: RunFile, *, times: int = 1, **changed: str) -> list[Any]:
    async with Gateway() as gateway:
        url = gateway.open(Run(run, recording(run)))
        seen = [answer for _ in range(times) for answer in await agent(url, **changed)]
        await gateway.close(url)
    return seen


def recorded(tmp_path: Path) -> tuple[RunFile, list[Path]]:
    run = run_file(tmp_path, "record", [])
    seen, source = asyncio.run(record(run))
    assert seen == [FIRST, SECOND]
    assert source.losses == {}
    return run, list(SessionStore(Path(run.sessions_root), project="sessions").logs())


def told(run: RunFile) -> list[str]:
    path = Path(run.violations)
    return [json.loads(line)["message"] for line in path.read_text().splitlines()] if path.exists() else []


def test_a_recording_gives_every_event_back_as_it_came(tmp_path: Path) -> None:
    _, logs = recorded(tmp_path)
    run = run_file(tmp_path, "replay", logs)
    assert asyncio.run(replay(run)) == [FIRST, SECOND]
    assert told(run) == []


def test_what_the_client_sends_back_is_what_the_log_holds(tmp_path: Path) -> None:
    _, [log] = recorded(tmp_path)
    said = [event for event in read_file(log).events if event["type"] == "assistant/message"]
    assert len(said) == 2  # a third would say that the client had sent the first in other words
    states = said[0]["data"]["message"]["source"]["replayState"]["blocks"]
    assert states[:2] == [
        {"type": "thinking", "signature": "c2ln"},
        {"type": "redacted_thinking", "data": "eHg="},
    ]


def test_a_changed_request_is_a_violation_that_names_the_leaf(tmp_path: Path) -> None:
    _, logs = recorded(tmp_path)
    for changed, leaf in (({"system": "Be long."}, "system"), ({"result": "red"}, "content")):
        run = run_file(tmp_path, "replay", logs)
        assert asyncio.run(partial(replay, run, **changed)())[0] == FIRST
        assert leaf in told(run)[0]


def test_a_call_too_many_is_refused_in_the_shape_of_anthropic(tmp_path: Path) -> None:
    _, logs = recorded(tmp_path)
    run = run_file(tmp_path, "replay", logs)
    [refused] = asyncio.run(replay(run, times=2))[2:]
    assert (refused["type"], refused["error"]["message"]) == ("error", told(run)[0])
    assert len(told(run)) == 1
