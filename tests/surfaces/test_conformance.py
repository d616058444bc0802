"""The official ACP SDK as the oracle: its client drives our agent, its models accept every frame we send."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

import pytest

acp = pytest.importorskip("acp", reason="needs agent-client-protocol (a development dependency)")

from acp import schema  # noqa: E402

from tests.surfaces.agents import command, environment, write_agent  # noqa: E402

RESULTS = {
    "initialize": schema.InitializeResponse,
    "authenticate": schema.AuthenticateResponse,
    "session/new": schema.NewSessionResponse,
    "session/prompt": schema.PromptResponse,
}


class Oracle:
    """Checks every frame of the agent against the SDK's models; nothing may be added and nothing lost."""

    def __init__(self) -> None:
        self.methods: dict[Any, str] = {}
        self.checked: list[str] = []
        self.wrong: list[str] = []

    def __call__(self, event: Any) -> None:
        message = event.message
        if event.direction.value == "outgoing":
            self.methods[message.get("id")] = message["method"]
            return
        try:
            self.check(message)
        except Exception as error:  # an exception in an observer would only be logged
            self.wrong.append(f"{message}: {error}")

    def check(self, message: dict[str, Any]) -> None:
        assert message["jsonrpc"] == "2.0"
        if "method" in message:
            assert message["method"] == "session/update"
            model: Any = schema.SessionNotification
            payload = message["params"]
            self.checked.append(payload["update"]["sessionUpdate"])
        elif "error" in message:
            assert set(message["error"]) <= {"code", "message", "data"}
            self.checked.append(f"error {message['error']['code']}")
            return
        else:
            method = self.methods[message["id"]]
            model, payload = RESULTS[method], message["result"]
            self.checked.append(method)
        known = model.model_validate(payload, strict=False)
        dumped = known.model_dump(mode="json", by_alias=True, exclude_unset=True)
        assert dumped == payload, f"the SDK reads {dumped}"


class Editor:
    """The client side, as an editor would implement it."""

    def __init__(self) -> None:
        self.updates: list[Any] = []

    def on_connect(self, conn: Any) -> None:
        """Called by the SDK."""

    async def session_update(self, session_id: str, update: Any, **_: Any) -> None:
        self.updates.append(update)


@pytest.mark.parametrize("stream", [False, True])
def test_the_official_client_can_use_our_agent(tmp_path: Path, stream: bool) -> None:
    async def main() -> None:
        oracle, editor = Oracle(), Editor()
        program, *arguments = command(write_agent(tmp_path, stream=stream))
        assert program == sys.executable
        async with acp.spawn_agent_process(
            editor, program, *arguments, env=environment(tmp_path), cwd=tmp_path, observers=[oracle]
        ) as (connection, process):
            initialized = await connection.initialize(protocol_version=acp.PROTOCOL_VERSION)
            assert initialized.protocol_version == acp.PROTOCOL_VERSION
            await connection.authenticate(method_id="none")
            session = await connection.new_session(cwd=str(tmp_path / "work"), mcp_servers=[])

            async def prompt(text: str) -> Any:
                return await connection.prompt(session_id=session.session_id, prompt=[acp.text_block(text)])

            assert (await prompt("think")).stop_reason == "end_turn"
            assert (await prompt("tool")).stop_reason == "end_turn"
            assert (await prompt("loop")).stop_reason == "max_turn_requests"
            with pytest.raises(acp.RequestError) as failed:
                await prompt("fail")
            assert failed.value.code == -32603
            with pytest.raises(acp.RequestError) as refused:
                await connection.new_session(
                    cwd=str(tmp_path), mcp_servers=[], additional_directories=["/extra"]
                )
            assert refused.value.code == -32602
            hanging = asyncio.ensure_future(prompt("hang"))
            while not (tmp_path / "ready").exists():
                await asyncio.sleep(0.005)
            await connection.cancel(session_id=session.session_id)
            assert (await hanging).stop_reason == "cancelled"
            process.stdin.close()
            assert await asyncio.wait_for(process.wait(), 30) == 0
        assert oracle.wrong == []
        seen = set(oracle.checked)
        assert {"initialize", "authenticate", "session/new", "session/prompt"} <= seen
        assert {"error -32603", "error -32602", "agent_message_chunk"} <= seen
        assert ({"agent_thought_chunk", "tool_call", "tool_call_update"} <= seen) is stream
        assert editor.updates

    asyncio.run(main())


def test_the_oracle_notices_a_renamed_field() -> None:
    oracle = Oracle()
    update = {"sessionUpdate": "agent_message_chunk", "contents": {"type": "text", "text": "x"}}
    frame = {"jsonrpc": "2.0", "method": "session/update", "params": {"sessionId": "s", "update": update}}
    with pytest.raises(ValueError):
        oracle.check(frame)
    update["content"] = update["contents"]
    with pytest.raises(AssertionError, match="the SDK reads"):
        oracle.check(frame)
