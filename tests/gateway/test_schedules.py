"""Conversations at the same time get their own answers, however their requests and reads interleave."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onetake import jsontext
from onetake.gateway.http import HttpRequest
from onetake.gateway.recorded import Recorded
from onetake.gateway.run import Run, recording
from onetake.gateway.script import parse_script
from onetake.gateway.scripted import Scripted
from onetake.runfile import RunFile
from onetake.session.store import SessionStore, read_file
from onetake.wire.chat import CHAT

NAMES = ("sky", "sea", "sun", "fog")
STEPS = ("ask", "read", "ask", "read")
"""What each conversation does: two calls, each answer read to its end before the next."""
IN_ORDER = [who for who in range(len(NAMES)) for _ in STEPS]


def reply(name: str, call: int) -> dict[str, Any]:
    if call == 0:
        return {"text": f"{name} looks.", "toolCalls": [{"id": f"c_{name}", "name": "look", "arguments": {}}]}
    return {"text": f"The {name} is here."}


SCRIPT = {
    "replies": [
        {"matchSystem": name, "match": match, "reply": reply(name, call)}
        for name in NAMES
        for call, match in ((1, "seen"), (0, None))
    ]
}


def request(name: str, call: int) -> HttpRequest:
    """All conversations are told the same by the user; only their system prompts differ."""
    messages: list[dict[str, Any]] = [
        {"role": "system", "content": f"You watch the {name}."},
        {"role": "user", "content": "Look."},
    ]
    if call:
        asked = {"id": f"c_{name}", "type": "function", "function": {"name": "look", "arguments": "{}"}}
        messages += [
            {"role": "assistant", "content": f"{name} looks.", "tool_calls": [asked]},
            {"role": "tool", "tool_call_id": f"c_{name}", "content": "seen"},
        ]
    body = jsontext.dumps({"model": "m", "stream": True, "messages": messages})
    return HttpRequest(method="POST", path="/v1/chat/completions", query="", headers={}, body=body)


async def drive(run: Run, schedule: Sequence[int]) -> dict[str, list[str]]:
    """Take the conversations' steps in the order of the schedule; what each was told, call by call."""
    done = [0] * len(NAMES)
    open_: dict[int, Any] = {}
    told: dict[str, list[str]] = {name: [] for name in NAMES}
    for who in schedule:
        step, done[who] = done[who], done[who] + 1
        if STEPS[step] == "ask":
            response = await run.answer(CHAT, request(NAMES[who], step // 2))
            assert response.status == 200, response.body
            open_[who] = response.body
        else:
            told[NAMES[who]].append(await text_of(open_.pop(who)))
    await run.close()
    return told


async def text_of(body: AsyncIterator[bytes]) -> str:
    decoder = CHAT.stream_decoder()
    chunks = [chunk for data in [piece async for piece in body] for chunk in decoder.feed(data)]
    return "".join(chunk["text"] for chunk in chunks if chunk["type"] == "text-delta")


def recorded(folder: Path) -> list[Path]:
    """One recording, made in order; the fixtures are the raw logs, oldest first."""
    run_file = RunFile(mode="record", sessions_root=str(folder / "sessions"))
    script = parse_script(SCRIPT, "script")
    asyncio.run(drive(Run(run_file, lambda live: Scripted(script)), IN_ORDER))
    logs = SessionStore(folder / "sessions", project="sessions").logs()
    found = sorted((read_file(path) for path in logs), key=lambda log: log.header["createdAt"])
    files = []
    for number, log in enumerate(found):
        files.append(folder / f"{number}.jsonl")
        lines = [jsontext.dumps(value) + b"\n" for value in (log.header, *log.events)]
        files[-1].write_bytes(b"".join(lines))
    return files


@pytest.fixture(scope="module")
def fixtures(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    return recorded(tmp_path_factory.mktemp("schedules"))


@given(schedule=st.permutations(IN_ORDER))
def test_every_interleaving_gives_each_conversation_its_own(
    fixtures: list[Path], schedule: list[int]
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        violations = Path(folder, "violations.jsonl")
        run_file = RunFile(
            mode="replay",
            fixtures=[str(path) for path in fixtures],
            violations=str(violations),
        )
        run = Run(run_file, recording(run_file))
        told = asyncio.run(drive(run, schedule))
        assert told == {name: [f"{name} looks.", f"The {name} is here."] for name in NAMES}
        assert not violations.exists()
    assert isinstance(run.source, Recorded)
    systems = {each.id: each.header["system"] for each in run.conversations.all}
    bound = {number: systems[session] for session, number in run.source.bindings.items()}
    assert bound == {number: f"You watch the {name}." for number, name in enumerate(NAMES)}
    assert all(call.used for calls in run.source.recorded for call in calls)
