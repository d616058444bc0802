"""From rows to a running agent: plugins resolved, typed, started in order and undone in reverse."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator, Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

from onetake.agent.context import AppContext
from onetake.app.boot import boot
from onetake.app.composition import load_composition
from onetake.app.resolve import resolve
from onetake.errors import AgentError, OnetakeError, UsageError
from onetake.runfile import RunFile
from tests.app.test_composition import write

LOCAL = """\
from __future__ import annotations
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
import msgspec
from onetake.errors import AgentError
from onetake.model.registry import ModelInfo

seen = []

class Options(msgspec.Struct, forbid_unknown_fields=True):
    name: str = "x"
    size: int = 1
    inner: list[dict[str, int]] = []

class Loose(msgspec.Struct):
    name: str = "x"

class Fake:
    models = {"m": ModelInfo(id="m", efforts=("low", "high"))}
    def __init__(self, id):
        self.id = id
    async def stream(self, request):
        yield {"type": "finish", "reason": {"kind": "error", "failure": {"message": "no", "code": "X"}}}

@asynccontextmanager
async def note(ctx, config: Options) -> AsyncIterator[None]:
    seen.append(f"enter {config.name} {config.size}")
    unregister = ctx.providers.register(Fake(config.name))
    try:
        yield
    finally:
        seen.append(f"leave {config.name} sessions={len(ctx.agents)}")
        unregister()

class Holder:
    nested = note

@asynccontextmanager
async def broken(ctx, config: Options):
    raise ZeroDivisionError("oops")
    yield

@asynccontextmanager
async def leaving(ctx, config: Options):
    raise SystemExit(0)
    yield

@asynccontextmanager
async def gone(ctx, config: Options):
    raise AgentError("the server of row x is gone")
    yield

@asynccontextmanager
async def untyped(ctx, config):
    yield

@asynccontextmanager
async def loose(ctx, config: Loose):
    yield

@asynccontextmanager
async def dangling(ctx, config: Nowhere):
    yield

@asynccontextmanager
async def one_parameter(ctx):
    yield

async def bare(ctx, config: Options):
    yield

def plain(ctx, config: Options):
    return None
"""

AGENT = "- {id: agent, use: agent, config: {provider: p1, model: m}}\n"


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """A folder with a local plugin module whose name no other test uses; sys.path is put back afterwards."""
    module = f"local_{abs(hash(tmp_path.name)) % 10**9}_{tmp_path.name.replace('-', '_')}"
    (tmp_path / f"{module}.py").write_text(LOCAL, encoding="utf-8")
    (tmp_path / "module").write_text(module, encoding="utf-8")
    before = list(sys.path)
    yield tmp_path
    sys.path[:] = before
    sys.modules.pop(module, None)


def composed(folder: Path, rows: str) -> Any:
    module = (folder / "module").read_text(encoding="utf-8")
    path = write(folder, agent=rows.replace("LOCAL", module))
    return load_composition(path, {"SIZE": "7"})


def seen(folder: Path) -> list[str]:
    found: list[str] = sys.modules[(folder / "module").read_text(encoding="utf-8")].seen
    return found


async def booted(
    composition: Any, environ: Mapping[str, str] | None = None, run: RunFile | None = None
) -> AppContext:
    async with boot(composition, environ=environ or {"HOME": "/nowhere"}, run=run) as ctx:
        return ctx


def refused(folder: Path, rows: str) -> str:
    with pytest.raises(OnetakeError) as caught:
        asyncio.run(booted(composed(folder, rows)))
    return str(caught.value).replace(str(folder), "F").replace((folder / "module").read_text(), "LOCAL")


def test_plugins_start_in_order_and_are_undone_in_reverse_after_the_sessions(folder: Path) -> None:
    rows = """\
- {id: one, use: "LOCAL:note", config: {name: p1, size: 3}}
- {id: two, use: "LOCAL:Holder.nested", config: {name: p2}}
- {id: off, use: "LOCAL:broken", disabled: true}
"""

    async def main() -> None:
        async with boot(composed(folder, rows + AGENT), environ={"HOME": "/nowhere"}) as ctx:
            assert seen(folder) == ["enter p1 3", "enter p2 1"]
            agent = await ctx.create_session(folder)
            assert ctx.agents == {agent.id: agent}
            assert agent.log.header["cwd"] == str(folder) and agent.log.header["delegationDepth"] == 0
        assert seen(folder)[2:] == ["leave p2 sessions=0", "leave p1 sessions=0"]
        assert agent.status == "disposed"
        assert ctx.agent_config is None

    asyncio.run(main())


def test_a_plugin_that_fails_to_start_undoes_those_before_it(folder: Path) -> None:
    rows = '- {id: one, use: "LOCAL:note", config: {name: p1}}\n- {id: two, use: "LOCAL:broken"}\n'
    assert refused(folder, rows) == (
        "F/agent.yml: row 'two': LOCAL:broken failed to start: ZeroDivisionError: oops"
    )
    assert seen(folder)[-1] == "leave p1 sessions=0"
    with pytest.raises(AgentError):
        asyncio.run(booted(composed(folder, rows)))


def test_a_plugin_that_exits_is_no_success(folder: Path) -> None:
    """Whatever code it exits with, at its start or when it is imported."""
    rows = '- {id: two, use: "LOCAL:leaving"}\n'
    assert refused(folder, rows) == "F/agent.yml: row 'two': LOCAL:leaving failed to start: SystemExit: 0"
    (folder / "script_without_guard.py").write_text("raise SystemExit(0)\n")
    rows = '- {id: two, use: "script_without_guard:plugin"}\n'
    assert "cannot import 'script_without_guard' (SystemExit: 0)" in refused(folder, rows)


def test_a_module_that_is_there_and_broken_is_not_to_be_installed(folder: Path) -> None:
    (folder / "half_written.py").write_text("def\n")
    message = refused(folder, '- {id: two, use: "half_written:plugin"}\n')
    assert "cannot import 'half_written' (SyntaxError: " in message
    assert message.endswith("; mend what it runs on import")
    assert refused(folder, '- {id: two, use: "not_there:plugin"}\n').endswith("put it beside agent.yml")


def test_an_error_that_a_plugin_reports_itself_keeps_its_kind(folder: Path) -> None:
    with pytest.raises(AgentError, match="the server of row x is gone"):
        asyncio.run(booted(composed(folder, '- {id: x, use: "LOCAL:gone"}\n')))


def test_nothing_starts_when_a_later_row_is_wrong(folder: Path) -> None:
    rows = "- {id: one, use: 'LOCAL:note'}\n- {id: two, use: 'LOCAL:note', config: {nme: 1}}\n"
    assert refused(folder, rows) == "F/agent.yml: row 'two': config: unknown key 'nme'; did you mean 'name'?"
    assert seen(folder) == []


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("{id: x, use: bashh}", "use: there is no plugin 'bashh'; did you mean 'bash'?"),
        (
            "{id: x, use: 'no_such_module:plugin'}",
            "use: cannot import 'no_such_module' (ModuleNotFoundError:",
        ),
        ("{id: x, use: 'LOCAL:nott'}", "use: 'LOCAL:nott': no attribute 'nott'; did you mean 'note'?"),
        ("{id: x, use: 'LOCAL:Holder.neste'}", "no attribute 'neste'; did you mean 'nested'?"),
        (
            "{id: x, use: 'LOCAL:seen'}",
            "use: 'LOCAL:seen' is the wrong kind of object; a plugin is a function",
        ),
        ("{id: x, use: 'LOCAL:Options'}", "use: 'LOCAL:Options' is the wrong kind of object"),
        ("{id: x, use: 'LOCAL:bare'}", "use: 'LOCAL:bare' is the wrong kind of object"),
        ("{id: x, use: 'LOCAL:plain'}", "use: 'LOCAL:plain' is the wrong kind of object"),
        ("{id: x, use: 'LOCAL:untyped'}", "use: 'LOCAL:untyped' does not say what config it takes"),
        (
            "{id: x, use: 'LOCAL:one_parameter'}",
            "use: 'LOCAL:one_parameter' does not say what config it takes",
        ),
        ("{id: x, use: 'LOCAL:loose'}", "use: 'LOCAL:loose': Loose would swallow misspelt keys"),
        ("{id: x, use: 'LOCAL:dangling'}", "its config type cannot be found at run time (name 'Nowhere'"),
        (
            "{id: x, use: 'LOCAL:note', config: {size: many}}",
            "config: Expected `int`, got `str` - at `$.size`",
        ),
        (
            "{id: x, use: 'LOCAL:note', config: {size: '5'}}",
            "config: Expected `int`, got `str` - at `$.size`",
        ),
        (
            "{id: x, use: 'LOCAL:note', config: {inner: [{a: b}]}}",
            "config: Expected `int`, got `str` - at `$.inner[0][...]`",
        ),
        (
            "{id: x, use: agent, config: {provider: p, model: m, max_steps: 0}}",
            "`max_steps` must be at least 1",
        ),
        (
            "{id: x, use: openai-chat, config: {id: p, base_url: ftp://x, models: [m]}}",
            "must begin with http://",
        ),
        ("{id: x, use: openai-chat, config: {id: p, base_url: http://x, models: []}}", "at least one model"),
        (
            "{id: x, use: openai-chat, config: {id: p, base_url: http://x, models: [m], dialect: {a: 1}}}",
            "config: dialect: unknown key 'a'; there is 'extra', 'max_tokens_field', 'pass_reasoning'",
        ),
        (
            "{id: x, use: openai-chat, config: "
            "{id: p, base_url: http://x, models: [m], dialect: {extra: 1}}}",
            "config: dialect: Expected `object`, got `int` - at `$.extra`",
        ),
        ("{id: x, use: prompt, config: {sections: [{name: a, text: b, txt: c}]}}", "unknown field `txt`"),
    ],
)
def test_a_wrong_row_is_refused_with_file_row_and_key(folder: Path, row: str, message: str) -> None:
    refusal = refused(folder, f"- {row}\n")
    assert refusal.startswith("F/agent.yml: row 'x': ")
    assert message in refusal


def test_a_value_from_a_variable_may_stand_for_a_number(folder: Path) -> None:
    rows = "- {id: one, use: 'LOCAL:note', config: {name: p1, size: '${SIZE}'}}\n" + AGENT
    asyncio.run(booted(composed(folder, rows)))
    assert seen(folder)[0] == "enter p1 7"


def test_the_agent_row_is_checked_against_the_providers(folder: Path) -> None:
    provider = "- {id: one, use: 'LOCAL:note', config: {name: p1}}\n"
    agent = "- {id: a, use: agent, config: {provider: %s, model: %s, effort: %s}}\n"
    assert refused(folder, provider) == (
        "F/agent.yml: no row uses `agent`; add one that names provider and model"
    )
    assert refused(folder, provider + agent % ("p2", "m", "low")).startswith(
        "F/agent.yml: row 'a': no provider 'p2'; there is 'p1'"
    )
    assert refused(folder, provider + agent % ("p1", "n", "low")).startswith(
        "F/agent.yml: row 'a': provider 'p1' has no model 'n'; there is 'm'"
    )
    assert refused(folder, provider + agent % ("p1", "m", "max")) == (
        "F/agent.yml: row 'a': config: effort: 'm' has no effort 'max'; there is 'low', 'high'"
    )


def test_singletons_and_names_cannot_be_registered_twice(folder: Path) -> None:
    provider = "- {id: one, use: 'LOCAL:note', config: {name: p1}}\n"
    store = "- {id: s1, use: session-store}\n- {id: s2, use: session-store}\n"
    assert (
        refused(folder, store)
        == "F/agent.yml: row 's2': there is a session store already; remove one of the rows"
    )
    twice = AGENT.replace("id: agent", "id: a1") + AGENT.replace("id: agent", "id: a2")
    assert (
        refused(folder, twice) == "F/agent.yml: row 'a2': there is an agent already; remove one of the rows"
    )
    section = "- {id: p%d, use: prompt, config: {sections: [{name: role, text: x}]}}\n"
    assert refused(folder, provider + section % 1 + section % 2) == (
        "F/agent.yml: row 'p2': prompt section 'role' exists already: give the second one another name"
    )


def test_entry_points_are_looked_up_for_names_that_are_not_built_in(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = (folder / "module").read_text()
    asked: list[str] = []

    def entry_points(*, group: str) -> list[metadata.EntryPoint]:
        asked.append(group)
        return [metadata.EntryPoint("noter", f"{module}:note", group)]

    monkeypatch.setattr(metadata, "entry_points", entry_points)
    rows = "- {id: x, use: noter, config: {name: p1}}\n" + AGENT
    (noter, _) = resolve(composed(folder, rows))
    assert noter.target == f"{module}:note" and asked == ["onetake.plugins"]
    resolve(composed(folder, "- {id: x, use: bash}\n"))
    assert asked == ["onetake.plugins"], "a built-in name needs no look-up"


def test_the_prompt_knows_the_working_directory_and_nothing_else(folder: Path) -> None:
    rows = """\
- {id: one, use: "LOCAL:note", config: {name: p1}}
- id: p
  use: prompt
  config:
    sections:
      - {name: a, text: "In {cwd}. Keep {braces} and {cwd}.\\n"}
      - {name: empty, text: "\\n"}
      - {name: b, text: "Second."}
"""

    async def main() -> None:
        async with boot(composed(folder, rows + AGENT), environ={"HOME": "/nowhere"}) as ctx:
            agent = await ctx.create_session(Path("/anywhere/{cwd}"))
            assert agent.request_header()["system"] == (
                "In /anywhere/{cwd}. Keep {braces} and /anywhere/{cwd}.\n\nSecond."
            )

    asyncio.run(main())


def test_a_run_file_decides_where_a_run_writes(folder: Path) -> None:
    rows = "- {id: one, use: 'LOCAL:note', config: {name: p1}}\n- {id: s, use: session-store}\n" + AGENT
    run = RunFile(
        mode="replay",
        roots={"spill": str(folder / "spill")},
        sessions_root=str(folder / "logs"),
        requests=str(folder / "requests.jsonl"),
    )

    async def main() -> None:
        async with boot(composed(folder, rows), environ={"HOME": "/nowhere"}, run=run) as ctx:
            agent = await ctx.create_session(folder)
            await agent.ask("hello")
            assert agent.spill_dir == folder / "spill" / agent.id
            assert len(list((folder / "logs").glob(f"*/{agent.id}/session.jsonl.zstd"))) == 1

    asyncio.run(main())
    assert (folder / "requests.jsonl").read_bytes().count(b"\n") == 1


@pytest.mark.parametrize(
    ("config", "environ", "expected"),
    [
        ("{}", {"HOME": "/h"}, "/h/.local/state/onetake/sessions"),
        ("{}", {"HOME": "/h", "XDG_STATE_HOME": "/s"}, "/s/onetake/sessions"),
        ("{}", {"HOME": "/h", "XDG_STATE_HOME": "relative"}, "/h/.local/state/onetake/sessions"),
        ("{root: logs}", {"HOME": "/h"}, "FOLDER/logs"),
        ("{root: /abs, compression: none}", {"HOME": "/h"}, "/abs"),
    ],
)
def test_where_session_logs_go_by_default(
    folder: Path, config: str, environ: dict[str, str], expected: str
) -> None:
    rows = "- {id: one, use: 'LOCAL:note', config: {name: p1}}\n"
    rows += f"- {{id: s, use: session-store, config: {config}}}\n"

    async def main() -> None:
        async with boot(composed(folder, rows + AGENT), environ=environ) as ctx:
            assert ctx.store is not None
            assert str(ctx.store.root) == expected.replace("FOLDER", str(folder))
            assert ctx.store.compression == ("none" if "none" in config else "zstd")
        assert ctx.store is None

    asyncio.run(main())


def test_a_chat_provider_is_registered_with_its_catalogue(folder: Path) -> None:
    rows = """\
- id: x
  use: openai-chat
  config:
    id: p1
    base_url: http://127.0.0.1:1/v1
    models: [plain, {id: m, context_window: 1000, efforts: [low], modalities: [text, image]}]
    dialect: {thinking_switch: true}
- {id: o, use: acp, config: {stream: true}}
"""

    async def main() -> None:
        async with boot(composed(folder, rows + AGENT), environ={"HOME": "/nowhere"}) as ctx:
            _, info = ctx.providers.get("p1", "m")
            assert (
                info.context_window == 1000
                and info.efforts == ("low",)
                and info.modalities == ("text", "image")
            )
            assert ctx.providers.get("p1", "plain")[1].context_window is None
            assert ctx.surface_options["acp"].stream is True
        with pytest.raises(UsageError):
            ctx.providers.get("p1", "m")
        assert ctx.surface_options == {}

    asyncio.run(main())


def test_a_session_without_an_agent_row_is_refused(tmp_path: Path) -> None:
    ctx = AppContext(config_dir=tmp_path, environ={"HOME": "/nowhere"})
    with pytest.raises(UsageError, match="no `agent` row"):
        asyncio.run(ctx.create_session(tmp_path))
