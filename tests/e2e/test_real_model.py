"""The real agent, over its real protocol, with a real model behind it: what no recording can show.

`make e2e` runs this. It needs DEEPSEEK_API_KEY, or ONETAKE_E2E_BASE_URL and ONETAKE_E2E_MODEL (and
ONETAKE_E2E_API_KEY where the endpoint wants one) for any other compatible endpoint. The client is the
official ACP SDK, which shares no code with the agent. A model may word things as it likes: each test asserts
on the world (a file, the log, a stop reason) and asks for something that a competent model gets right.
"""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import sys
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from onetake.app.composition import Row, load_composition
from onetake.session.events import Event
from onetake.session.store import SessionStore, read_live

acp = pytest.importorskip("acp", reason="the ACP SDK is not installed; `make e2e` installs it")

pytestmark = pytest.mark.e2e

AGENT = Path(__file__).resolve().parents[2] / "examples" / "acp-agent" / "agent.yml"
TURN_TIMEOUT_S = 300
KEY_VARIABLE = "ONETAKE_E2E_KEY_OF_THIS_RUN"


class Endpoint(msgspec.Struct):
    """Where the model is."""

    api_key: str
    base_url: str | None = None
    """None: where `agent.yml` says."""
    model: str | None = None
    """None: the one that `agent.yml` names."""


def endpoint_of(environ: Mapping[str, str]) -> Endpoint | str:
    """The endpoint that the environment names, or the reason why there is none to ask."""
    base_url, model = environ.get("ONETAKE_E2E_BASE_URL"), environ.get("ONETAKE_E2E_MODEL")
    if base_url and model:
        return Endpoint(environ.get("ONETAKE_E2E_API_KEY") or "none", base_url, model)
    if base_url or model:
        return "ONETAKE_E2E_BASE_URL and ONETAKE_E2E_MODEL are needed together, and only one is set"
    key = environ.get("DEEPSEEK_API_KEY")
    if not key:
        return "no key: set DEEPSEEK_API_KEY, or ONETAKE_E2E_BASE_URL and ONETAKE_E2E_MODEL"
    return Endpoint(key, environ.get("DEEPSEEK_BASE_URL") or None)


def overlay(endpoint: Endpoint, sessions: Path) -> dict[str, Any]:
    """The example agent as an overlay: this endpoint, logs kept in `sessions`, deltas as they come."""
    composed = load_composition(AGENT, {**os.environ, "DEEPSEEK_API_KEY": endpoint.api_key})
    changed: dict[str, dict[str, Any]] = {
        "session-store": {"root": str(sessions), "compression": "zstd"},
        "acp": {"stream": True},
    }
    by_use: dict[str, Row] = {row.use: row for row in composed.rows}
    adapter = {**by_use["openai-chat"].config, "api_key_env": KEY_VARIABLE}
    if endpoint.base_url:
        adapter["base_url"] = endpoint.base_url
    if endpoint.model:
        adapter["models"] = [endpoint.model]
        changed["agent"] = {**by_use["agent"].config, "model": endpoint.model}
    changed["openai-chat"] = adapter
    patches: list[dict[str, Any]] = []
    for use, config in changed.items():
        if use in by_use:
            patches.append({"id": by_use[use].id, "config": config})
        else:
            patches.append({"insert": [{"id": f"e2e-{use}", "use": use, "config": config}]})
    return {"base": str(AGENT), "patches": patches}


class Editor:
    """A client that keeps what the agent said and tells when it begins to speak."""

    def __init__(self) -> None:
        self.text = ""
        self.speaking = asyncio.Event()

    async def session_update(self, session_id: str, update: Any, **_: Any) -> None:
        """Collect the text of message chunks; everything else is the log's to tell."""
        if update.session_update == "agent_message_chunk" and update.content.type == "text":
            self.text += update.content.text
            self.speaking.set()


class Talk:
    """One session with a running agent."""

    def __init__(self, agent: Any, session_id: str, editor: Editor, sessions: Path) -> None:
        self.agent = agent
        self.session_id = session_id
        self.editor = editor
        self._sessions = sessions

    async def say(self, text: str) -> tuple[str, str]:
        """Prompt and wait for the end of the turn; returns the stop reason and what the agent said."""
        self.editor.text = ""
        self.editor.speaking.clear()
        blocks = [acp.text_block(text)]
        prompting = self.agent.prompt(session_id=self.session_id, prompt=blocks)
        answer = await asyncio.wait_for(prompting, TURN_TIMEOUT_S)
        return answer.stop_reason, self.editor.text

    def events(self) -> list[Event]:
        """What the session log holds, read from the disk while the agent runs."""
        store = SessionStore(self._sessions, project="sessions")
        path = store.find(self.session_id)
        assert path is not None, "the agent wrote no log"
        return read_live(path)[1]


@asynccontextmanager
async def talk(endpoint: Endpoint, folder: Path) -> AsyncIterator[Talk]:
    """The example agent as a subprocess, with one session in `folder/workspace`."""
    workspace, sessions, home = folder / "workspace", folder / "sessions", folder / "home"
    for path in (workspace, sessions, home):
        path.mkdir()
    config = folder / "agent.yml"
    config.write_text(json.dumps(overlay(endpoint, sessions)))  # JSON is YAML
    editor = Editor()
    env = {**os.environ, "HOME": str(home), KEY_VARIABLE: endpoint.api_key}
    command = [sys.executable, "-m", "onetake", "acp", "--config", str(config)]
    spawning = acp.spawn_agent_process(
        editor, *command, env=env, cwd=folder, transport_kwargs={"stderr": None, "limit": 1 << 26}
    )
    async with spawning as (agent, _process):
        await agent.initialize(protocol_version=acp.PROTOCOL_VERSION)
        session = await agent.new_session(cwd=str(workspace), mcp_servers=[])
        yield Talk(agent, session.session_id, editor, sessions)


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    """The endpoint to ask; skips with the reason when the environment names none."""
    found = endpoint_of(os.environ)
    if isinstance(found, str):
        pytest.skip(found)
    yield found


def of_type(events: list[Event], name: str) -> list[dict[str, Any]]:
    """The data of all events of a type."""
    return [event["data"] for event in events if event["type"] == name]


def test_it_writes_a_file_with_its_tool(endpoint: Endpoint, tmp_path: Path) -> None:
    word = secrets.token_hex(6)

    async def run() -> None:
        async with talk(endpoint, tmp_path) as session:
            stop, _ = await session.say(
                f"Use the bash tool to write the word {word} to the file note.txt in the current directory."
            )
            assert stop == "end_turn"
            assert (tmp_path / "workspace" / "note.txt").read_text().strip() == word
            calls, results = (of_type(session.events(), name) for name in ("tool/call", "tool/result"))
            assert calls and {call["name"] for call in calls} == {"bash"}
            assert [call["callId"] for call in calls] == [
                result["message"]["source"]["callId"] for result in results
            ]

    asyncio.run(run())


def test_a_second_turn_knows_the_first(endpoint: Endpoint, tmp_path: Path) -> None:
    word = f"zebra-{secrets.randbelow(10_000)}"

    async def run() -> None:
        async with talk(endpoint, tmp_path) as session:
            stop, _ = await session.say(f"Remember this code: {word}. Use no tools and answer only: noted.")
            assert stop == "end_turn"
            stop, said = await session.say("Which code was it? Use no tools and answer with the code alone.")
            assert stop == "end_turn"
            assert word in said
            assert [end["reason"]["kind"] for end in of_type(session.events(), "turn/end")] == [
                "completed"
            ] * 2

    asyncio.run(run())


def test_a_cancelled_stream_ends_the_turn_and_nothing_else(endpoint: Endpoint, tmp_path: Path) -> None:
    async def run() -> None:
        async with talk(endpoint, tmp_path) as session:
            telling = asyncio.create_task(
                session.say("Tell a story of at least three thousand words, in one go. Use no tools.")
            )
            speaking = asyncio.create_task(session.editor.speaking.wait())
            await asyncio.wait([telling, speaking], return_when=asyncio.FIRST_COMPLETED)
            speaking.cancel()
            await session.agent.cancel(session_id=session.session_id)
            stop, said = await telling
            assert stop == "cancelled"
            assert said

            events = session.events()
            assert [end["reason"]["kind"] for end in of_type(events, "turn/end")] == ["aborted"]
            [message] = of_type(events, "assistant/message")
            assert message["interrupted"] is True

            stop, said = await session.say("Forget the story. Use no tools and answer with one word: ready.")
            assert stop == "end_turn"
            assert said

    asyncio.run(run())
