"""An agent behind the gateway: recorded from an endpoint, replayed by what it asks."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any

import httpx

from onetake.fixture.gaps import same_fixture
from onetake.fixture.projection import project
from onetake.fixture.tokens import LogView, TokenTable
from onetake.gateway.mock import MockModel
from onetake.gateway.run import Run, recording
from onetake.gateway.server import Gateway
from onetake.gateway.upstream import Endpoint, Upstream
from onetake.runfile import MintRule, RunFile
from onetake.session.store import SessionStore, read_file

CALL = {"id": "call_1", "name": "look", "arguments": {"at": "sky"}}
MODEL = {"model": "mock", "stream": True}


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


async def ask(url: str, messages: list[dict[str, Any]], **body: Any) -> dict[str, Any]:
    """What a client makes of a streamed answer: text, calls, or the error."""
    async with httpx.AsyncClient(trust_env=False) as client:
        asked = {**MODEL, "messages": messages, **body}
        response = await client.post(
            f"{url}/v1/chat/completions", json=asked, headers={"authorization": "Bearer sk-secret-1234567"}
        )
        if response.status_code != 200:
            return {"status": response.status_code, **response.json()["error"]}
    text, calls = "", dict[int, dict[str, Any]]()
    for line in response.text.split("\n"):
        data = line.removeprefix("data: ")
        if not line.startswith("data: {") or not json.loads(data)["choices"]:
            continue
        delta = json.loads(data)["choices"][0]["delta"]
        text += delta.get("content") or ""
        for piece in delta.get("tool_calls") or ():
            call = calls.setdefault(piece["index"], {"id": piece.get("id"), "name": "", "arguments": ""})
            call["name"] += piece["function"].get("name") or ""
            call["arguments"] += piece["function"].get("arguments") or ""
    return {"text": text, "calls": list(calls.values())}


async def agent(
    url: str, *, system: str = "Be brief.", say: str = "Look.", result: str = "blue", tool: str = "Looks."
) -> list[str]:
    """The smallest agent there is: asks, runs the tool, asks again, until nothing is called."""
    messages = [{"role": "system", "content": system}, user(say)]
    function = {"name": "look", "description": tool, "parameters": {"type": "object"}}
    said = []
    while True:
        answer = await ask(url, messages, tools=[{"type": "function", "function": function}])
        if "status" in answer:
            return [*said, f"{answer['status']}: {answer['message']}"]
        said.append(answer["text"])
        calls = [
            {"id": c["id"], "type": "function", "function": {"name": c["name"], "arguments": c["arguments"]}}
            for c in answer["calls"]
        ]
        messages.append({"role": "assistant", "content": answer["text"] or None, "tool_calls": calls})
        if not calls:
            return said
        for call in calls:
            messages.append({"role": "tool", "tool_call_id": call["id"], "content": result})


SCRIPT: dict[str, Any] = {
    "replies": [
        {"reply": {"text": "I look.", "toolCalls": [CALL]}},
        {"reply": {"text": "It is blue."}},
    ]
}
Behaviour = Callable[[str], Awaitable[Any]]


def run_file(tmp_path: Path, mode: str, name: str, fixtures: list[Path], **more: Any) -> RunFile:
    folder = tmp_path / name
    folder.mkdir()
    return RunFile(
        mode=mode,
        fixtures=[str(path) for path in fixtures],
        roots={"cwd": str(folder)},
        sessions_root=str(folder / "sessions"),
        requests=str(folder / "requests.jsonl"),
        violations=str(folder / "violations.jsonl"),
        **more,
    )


async def serve(run: RunFile, behaviour: Behaviour, script: Any = None) -> Any:
    """Run a behaviour against the gateway: recording with a script, else replaying."""
    async with Gateway() as gateway:
        if script is None:
            return await _against(gateway, Run(run, recording(run)), behaviour)
        async with MockModel(script) as model:
            upstream = Upstream({"openai-chat": Endpoint(model.base_url)})
            return await _against(gateway, Run(run, lambda live: upstream), behaviour)


async def _against(gateway: Gateway, run: Run, behaviour: Behaviour) -> Any:
    url = gateway.open(run)
    made = await behaviour(url)
    await gateway.close(url)
    return made


async def through(tmp_path: Path, script: Any, behaviour: Behaviour) -> tuple[Upstream, RunFile]:
    """Record a behaviour from a script; what the source noticed, and the run."""
    run = run_file(tmp_path, "record", "recording", [])
    async with Gateway() as gateway, MockModel(script) as model:
        upstream = Upstream({"openai-chat": Endpoint(model.base_url)})
        await _against(gateway, Run(run, lambda live: upstream), behaviour)
    return upstream, run


def logs(run: RunFile, mint: list[tuple[str, str]] | None = None) -> list[bytes]:
    """The fixtures that the logs of a run stand for, oldest first."""
    paths = SessionStore(Path(run.sessions_root), project="sessions").logs()
    read = sorted((read_file(path) for path in paths), key=lambda log: log.header["createdAt"])
    views = [LogView(index, log.header, log.events) for index, log in enumerate(read)]
    table = TokenTable.build(run.roots, views, mint=mint or [])
    return [project(log.header, log.events, table, lambda kind, value: value) for log in read]


def keep(run: RunFile, tmp_path: Path, mint: list[tuple[str, str]] | None = None) -> list[Path]:
    kept = []
    for index, data in enumerate(logs(run, mint)):
        kept.append(tmp_path / (f"session.{index}.jsonl" if index else "session.jsonl"))
        kept[-1].write_bytes(data)
    return kept


def told(run: RunFile) -> list[dict[str, Any]]:
    path = Path(run.violations)
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def recorded(tmp_path: Path, behaviour: Behaviour = agent, script: Any = SCRIPT) -> list[Path]:
    run = run_file(tmp_path, "record", "recording", [])
    asyncio.run(serve(run, behaviour, script))
    assert told(run) == []
    return keep(run, tmp_path)


def replay(
    tmp_path: Path, fixtures: list[Path], behaviour: Behaviour, mode: str = "replay", **more: Any
) -> tuple[Any, RunFile]:
    run = run_file(tmp_path, mode, f"{mode}-{len(list(tmp_path.iterdir()))}", fixtures, **more)
    return asyncio.run(serve(run, behaviour)), run


def test_a_recorded_agent_replays_and_leaves_the_same_log(tmp_path: Path) -> None:
    fixtures = recorded(tmp_path)
    said, run = replay(tmp_path, fixtures, agent)
    assert said == ["I look.", "It is blue."]
    assert told(run) == []
    assert len(fixtures) == 1
    assert same_fixture(logs(run)[0], fixtures[0].read_bytes())


def test_the_recovered_log_has_one_turn_of_two_steps(tmp_path: Path) -> None:
    (fixture,) = recorded(tmp_path)
    types = [json.loads(line)["type"] for line in fixture.read_text().splitlines()]
    assert [name for name in types if not name.endswith(("chunk", "chunks"))] == [
        "session",
        "turn/start",
        "step/start",
        "user/message",
        "request/header",
        "request/context",
        "assistant/message",
        "tool/call",
        "tool/result",
        "step/end",
        "step/start",
        "assistant/message",
        "step/end",
        "turn/end",
    ]


def test_no_credential_reaches_a_file(tmp_path: Path) -> None:
    recorded(tmp_path)
    for path in tmp_path.rglob("*"):
        assert not path.is_file() or b"sk-secret" not in path.read_bytes()


def test_a_changed_request_is_a_violation_that_names_the_leaf_and_is_served_the_nearest_answer(
    tmp_path: Path,
) -> None:
    fixtures = recorded(tmp_path)
    said, run = replay(tmp_path, fixtures, partial(agent, system="Be brief, please."))
    assert said == ["I look.", "It is blue."]
    assert [violation["kind"] for violation in told(run)] == ["changed-request"] * 2
    assert "differs in system: 'Be brief.' -> 'Be brief, please.'" in told(run)[0]["message"]
    assert "the nearest is call 1 of session.jsonl" in told(run)[0]["message"]


def test_a_changed_tool_description_and_a_changed_result_are_violations(tmp_path: Path) -> None:
    fixtures = recorded(tmp_path)
    _, run = replay(tmp_path, fixtures, partial(agent, tool="Looks up."))
    assert "tools[0].description: 'Looks.' -> 'Looks up.'" in told(run)[0]["message"]
    _, run = replay(tmp_path, fixtures, partial(agent, result="grey"))
    (violation,) = told(run)
    assert "messages[2].content[0].content[0].text: 'blue' -> 'grey'" in violation["message"]
    assert violation["nearest"]["says"] == "It is blue."


def test_a_refresh_serves_a_changed_request_without_a_violation(tmp_path: Path) -> None:
    fixtures = recorded(tmp_path)
    said, run = replay(tmp_path, fixtures, partial(agent, result="grey"), "refresh")
    assert said == ["I look.", "It is blue."]
    assert told(run) == []
    assert b"grey" in logs(run)[0]


def test_equal_requests_get_their_answers_in_order_and_one_more_fails_without_a_retry(tmp_path: Path) -> None:
    async def twice(url: str) -> list[str]:
        return [(await ask(url, [user("A number?")]))["text"] for _ in range(2)]

    async def thrice(url: str) -> list[Any]:
        return [await ask(url, [user("A number?")]) for _ in range(3)]

    script = {"replies": [{"reply": {"text": "4"}}, {"reply": {"text": "7"}}]}
    fixtures = recorded(tmp_path, twice, script)
    assert len(fixtures) == 2
    said, run = replay(tmp_path, fixtures, thrice)
    assert [answer.get("text") for answer in said] == ["4", "7", None]
    assert said[2]["status"] == 400
    (violation,) = told(run)
    assert violation["kind"] == "extra-call"
    assert "2 recorded, call 3" in violation["message"]


def test_conversations_with_equal_words_and_different_systems_get_their_own_answers(tmp_path: Path) -> None:
    names = ["north", "south", "east", "west"]

    async def all_at_once(url: str) -> list[list[str]]:
        return list(await asyncio.gather(*(agent(url, system=f"You are {name}.") for name in names)))

    async def backwards(url: str) -> list[list[str]]:
        tasks = [agent(url, system=f"You are {name}.") for name in reversed(names)]
        return list(reversed(await asyncio.gather(*tasks)))

    replies: list[dict[str, Any]] = []
    for name in names:
        replies.append({"matchSystem": name, "reply": {"toolCalls": [{**CALL, "id": f"call_{name}"}]}})
        replies.append({"matchSystem": name, "reply": {"text": f"The {name} is blue."}})
    fixtures = recorded(tmp_path, all_at_once, {"replies": replies})
    assert len(fixtures) == 4
    for behaviour in (all_at_once, backwards):
        said, run = replay(tmp_path, fixtures, behaviour)
        assert said == [["", f"The {name} is blue."] for name in names]
        assert told(run) == []


def test_side_calls_that_share_the_words_of_the_user_are_conversations_of_their_own(tmp_path: Path) -> None:
    async def with_title(url: str) -> list[str]:
        words = [user("Look.")]
        title = {"role": "system", "content": "Give a title."}
        hint = {"role": "system", "content": "Suggest what comes next."}
        one, two = [title, *words], [hint, *words]
        main = await agent(url)
        return [*main, *[(await ask(url, messages))["text"] for messages in (one, two)]]

    replies = [
        {"matchSystem": "title", "reply": {"text": "Sky"}},
        {"matchSystem": "Suggest", "reply": {"text": "Look down."}},
        *SCRIPT["replies"],
    ]
    fixtures = recorded(tmp_path, with_title, {"replies": replies})
    assert len(fixtures) == 3
    said, run = replay(tmp_path, fixtures, with_title)
    assert said == ["I look.", "It is blue.", "Sky", "Look down."]
    assert told(run) == []


def test_values_that_rules_mint_are_matched_and_given_back(tmp_path: Path) -> None:
    rules = [("job ([0-9a-f]+)", "job")]

    async def numbered(url: str, number: str) -> list[str]:
        return await agent(url, result=f"started job {number}")

    script = {
        "replies": [
            {"reply": {"toolCalls": [CALL]}},
            {"reply": {"text": "Job {{fromRequest:job ([0-9a-f]+)}} runs."}},
        ]
    }
    mint = [MintRule(pattern, name) for pattern, name in rules]
    run = run_file(tmp_path, "record", "recording", [], mint=mint)
    asyncio.run(serve(run, partial(numbered, number="f4af"), script))
    fixtures = keep(run, tmp_path, rules)
    said, run = replay(tmp_path, fixtures, partial(numbered, number="9c1e"), mint=mint)
    assert said == ["", "Job 9c1e runs."]
    assert told(run) == []


def test_a_history_that_was_rewritten_is_replaced_in_the_log(tmp_path: Path) -> None:
    async def compacting(url: str) -> str:
        first = [user("Look."), {"role": "assistant", "content": "It is blue."}]
        await ask(url, first[:1])
        await ask(url, [*first, user("And now?")])
        return str((await ask(url, [*first, user("In short: blue, then grey. And now?")]))["text"])

    script = {"replies": [{"reply": {"text": text}} for text in ("It is blue.", "It is grey.", "Dark.")]}
    fixtures = recorded(tmp_path, compacting, script)
    assert len(fixtures) == 1
    events = [json.loads(line) for line in fixtures[0].read_text().splitlines()]
    (rewritten,) = [event for event in events if isinstance(event.get("surfaceOp"), dict)]
    assert rewritten["data"]["content"][0]["text"].startswith("In short")
    said, run = replay(tmp_path, fixtures, compacting)
    assert (said, told(run)) == ("Dark.", [])


def test_an_answer_that_the_endpoint_cut_is_named(tmp_path: Path) -> None:
    chunks = [{"type": "text-delta", "index": 0, "text": "It is"}]

    async def once(url: str) -> None:
        await ask(url, [user("Look.")])

    upstream, run = asyncio.run(through(tmp_path, {"replies": [{"reply": {"chunks": chunks}}]}, once))
    (text,) = upstream.cut
    assert "broke off its answer to call 1" in text and "before its end marker" in text
    assert b'"STREAM_CLOSED"' in logs(run)[0]


def test_a_client_that_leaves_at_the_first_byte_leaves_a_whole_recording(tmp_path: Path) -> None:
    async def impatient(url: str) -> None:
        async with httpx.AsyncClient(trust_env=False) as client:
            body = {**MODEL, "messages": [user("Look.")]}
            async with client.stream("POST", f"{url}/v1/chat/completions", json=body) as response:
                async for _ in response.aiter_bytes():
                    return

    script = {"replies": [{"reply": {"text": "It is blue, " * 20, "delayMs": 2}}]}
    upstream, run = asyncio.run(through(tmp_path, script, impatient))
    assert upstream.cut == []
    (fixture,) = keep(run, tmp_path)
    _, replayed = replay(tmp_path, [fixture], impatient)
    assert told(replayed) == []
    assert same_fixture(logs(replayed)[0], fixture.read_bytes())


def test_an_error_of_the_endpoint_is_recorded_and_given_back(tmp_path: Path) -> None:
    async def twice(url: str) -> list[Any]:
        return [await ask(url, [user("Look.")]) for _ in range(2)]

    error = {"status": 429, "message": "slow down", "code": "rate_limit_exceeded", "retryAfterMs": 10}
    script = {"replies": [{"reply": {"error": error}}, {"reply": {"text": "Blue."}}]}
    fixtures = recorded(tmp_path, twice, script)
    assert len(fixtures) == 1
    said, run = replay(tmp_path, fixtures, twice)
    assert (said[0]["status"], said[0]["message"], said[1]["text"]) == (429, "slow down", "Blue.")
    assert told(run) == []


def test_what_is_not_of_the_format_is_refused_and_reported(tmp_path: Path) -> None:
    fixtures = recorded(tmp_path)

    async def nonsense(url: str) -> tuple[int, int]:
        async with httpx.AsyncClient(trust_env=False) as client:
            bad = await client.post(f"{url}/v1/chat/completions", content=b"{}")
            other = await client.get(f"{url}/v1/else")
            return bad.status_code, other.status_code

    said, run = replay(tmp_path, fixtures, nonsense)
    assert said == (400, 404)
    assert [violation["kind"] for violation in told(run)] == ["unreadable-request"]


def test_models_and_token_counts_are_the_same_in_every_mode(tmp_path: Path) -> None:
    fixtures = recorded(tmp_path)

    async def asks(url: str) -> tuple[Any, Any]:
        async with httpx.AsyncClient(trust_env=False) as client:
            models = (await client.get(f"{url}/v1/models")).json()
            count = (await client.post(f"{url}/v1/messages/count_tokens", content=b"x" * 9)).json()
            return models["data"], count

    said, run = replay(tmp_path, fixtures, asks)
    assert said == ([], {"input_tokens": 3})
    assert told(run) == []
