"""Our own agent behind the gateway: what an adapter puts on the wire is compared, which replay leaves out."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path
from typing import Any

import pytest

from onetake.gateway.conversations import Conversations
from onetake.gateway.http import HttpServer
from onetake.gateway.matching import key, request_facts
from onetake.gateway.run import Run
from onetake.gateway.server import Gateway
from onetake.model.request import ModelRequest
from onetake.snapshot.run import run_all, select
from onetake.snapshot.suites.suite import load_suite
from onetake.wire.formats import FORMATS
from tests.conftest import ROOT
from tests.snapshot.lab import failures, red

ADAPTERS = {
    "chat": "onetake.providers.openai_chat:OpenAIChatProvider",
    "messages": "onetake.providers.anthropic_messages:AnthropicMessagesProvider",
    "responses": "onetake.providers.openai_responses:OpenAIResponsesProvider",
}
BREAK = """
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import msgspec

from onetake.jsontext import dumps, loads
from {module} import {name} as Provider


class Config(msgspec.Struct, forbid_unknown_fields=True):
    pass


@asynccontextmanager
async def adapter(ctx, config: Config) -> AsyncIterator[None]:
    encoded = Provider.encoded
    other = (b"Walden", b"Waldon")
    Provider.encoded = lambda self, request: loads(dumps(encoded(self, request)).replace(*other))
    yield
"""
TOOL = {"name": "look", "description": "Look it up.", "parameters": {"type": "object", "properties": {}}}


def asked(format_: str, body: Any) -> bytes:
    heard = Conversations().heard(format_, FORMATS[format_].decode_request(body))
    return key(request_facts(heard.header, heard.messages))


@pytest.mark.parametrize("format_", FORMATS)
def test_no_key_of_a_request_can_be_left_out_unseen(format_: str) -> None:
    user = {"role": "user", "content": [{"type": "text", "text": "Hi"}]}
    request = ModelRequest(
        session_id="s",
        call=1,
        config={"provider": "p", "model": "m"},
        system="Be brief.",
        tools=[TOOL],
        messages=[user],
    )
    body = FORMATS[format_].encode_request(request)
    assert len(body) >= 5
    for name in body:
        less = {other: value for other, value in body.items() if other != name}
        try:
            assert asked(format_, less) != asked(format_, body), name
        except ValueError:
            continue  # refused, and so reported


@pytest.mark.parametrize("scenario", ADAPTERS)
def test_an_adapter_that_sends_other_words_is_red(scenario: str, tmp_path: Path) -> None:
    """Our log does not show it, and the replay overlay would not run the adapter at all."""
    folder = tmp_path / "adapters"
    shutil.copytree(ROOT / "examples/adapters", folder)
    module, _, name = ADAPTERS[scenario].partition(":")
    (folder / "broken.py").write_text(BREAK.format(module=module, name=name))
    with (folder / "chat.yml").open("a") as composition:
        composition.write("\n- {id: broken, use: 'broken:adapter'}\n")
    suite = load_suite(folder / "tests/snapshots")
    chosen = select([suite], scenario)
    outcomes = asyncio.run(run_all(chosen, "replay", jobs=1, dry_run=False, on_outcome=lambda outcome: None))
    told = {outcome.name: outcome for outcome in outcomes}
    assert {"log", "violation"} <= set(red(told)[scenario]), failures(told)
    assert "Waldon" in failures(told)


def test_all_scenarios_share_one_server(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[HttpServer] = []
    opened: list[str] = []
    enter, open_ = HttpServer.__aenter__, Gateway.open

    async def counted(server: HttpServer) -> HttpServer:
        started.append(server)
        return await enter(server)

    def named(gateway: Gateway, run: Run) -> str:
        opened.append(open_(gateway, run))
        return opened[-1]

    monkeypatch.setattr(HttpServer, "__aenter__", counted)
    monkeypatch.setattr(Gateway, "open", named)
    chosen = select([load_suite(ROOT / "examples/adapters/tests/snapshots")], None)
    outcomes = asyncio.run(run_all(chosen, "replay", jobs=3, dry_run=False, on_outcome=lambda outcome: None))
    assert red({outcome.name: outcome for outcome in outcomes}) == {}
    assert len(started) == 1
    assert len(set(opened)) == len(outcomes), "a path tells them apart"
