"""A small suite of a real agent, recorded from a scripted endpoint, and ways to break the agent.

The agent's composition has a `fault` row, which does nothing until a test gives it a kind: then it patches
the agent from inside its own process, as a programming error would.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from onetake.gateway.mock import MockModel
from onetake.snapshot.attempt import Outcome
from onetake.snapshot.run import run_all, select
from onetake.snapshot.suites.suite import Suite, load_suite

OPENING = [{"op": "initialize"}, {"op": "newSession"}]
USAGE = {"inputTokens": 10, "outputTokens": 5, "cacheReadTokens": 0, "reasoningTokens": 1}

AGENT = """\
- {id: sessions, use: session-store}
- id: model
  use: openai-chat
  config:
    id: lab
    base_url: ${LAB_BASE_URL:-http://127.0.0.1:9}
    models: [{id: lab-1}]
- id: agent
  use: agent
  config: {provider: lab, model: lab-1}
- id: prompt
  use: prompt
  config:
    sections:
      - name: role
        text: You are a careful engineer.
      - name: workspace
        text: "Your workspace is {cwd}."
- {id: shell, use: bash}
- {id: acp, use: acp}
- id: fault
  use: faults:fault
  config: {kind: none}
"""
OVERLAY = """\
base: agent.yml
patches:
  - {id: model, disabled: true}
  - insert: [{id: replay, use: replay}]
"""
SUITE = """\
[suite]
surfaces = ["requests", "stdout", "log"]

[agent]
command = ["onetake", "acp", "--config", "{config}"]
config = "../agent.yml"
record_env = ["LAB_BASE_URL"]

[scenarios.hello]
pins_header = true

[scenarios.tools]

[scenarios.echo]

[scenarios.fails]
overridden = true

[scenarios.opened]
model_turn = false
"""
SCRIPTS: Mapping[str, list[dict[str, Any]]] = {
    "hello": [*OPENING, {"op": "prompt", "text": "Say hello."}, {"op": "prompt", "text": "And again."}],
    "tools": [*OPENING, {"op": "prompt", "text": "Run both commands."}],
    "echo": [*OPENING, {"op": "prompt", "text": "Where am I?"}],
    "fails": [*OPENING, {"op": "promptExpectError", "text": "This will fail."}],
    "opened": OPENING,
}
OVERRIDE = [{"kind": "throw", "chunks": [], "message": "the provider is down", "code": "SERVER"}]


def command(call: str, text: str) -> dict[str, Any]:
    """A bash call of the scripted model."""
    return {"id": call, "name": "bash", "arguments": {"command": text, "description": "Run it"}}


REPLIES: list[dict[str, Any]] = [
    {"match": "And again", "reply": {"reasoning": "Again.", "text": "Hello again!", "usage": USAGE}},
    {
        "match": "Say hello",
        "reply": {"reasoning": "A greeting.", "text": "Hello!", "deltaChars": 2, "usage": USAGE},
    },
    {
        "match": "Run both",
        "reply": {
            "toolCalls": [command("call_a", "echo one"), command("call_b", "echo two")],
            "usage": USAGE,
        },
    },
    {"match": "Run both", "reply": {"text": "Both ran.", "usage": USAGE}},
    {"match": "Where am I", "reply": {"toolCalls": [command("call_c", "pwd")], "usage": USAGE}},
    {
        "match": "Where am I",
        "reply": {
            "reasoning": "It printed {{fromRequest:(/[a-z0-9/-]+/work)}} as the folder.",
            "text": "You are in {{fromRequest:(/[a-z0-9/-]+/work)}} right now.",
            "deltaChars": 3,
            "usage": USAGE,
        },
    },
]

FAULTS = '''\
"""Programming errors of an agent, by name."""

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import msgspec

from onetake.agent.context import AppContext


class FaultConfig(msgspec.Struct, forbid_unknown_fields=True):
    kind: str


def none(ctx):
    pass


def renamed_field(ctx):
    from onetake.surfaces.acp import jsonrpc

    encode = jsonrpc.encode

    def renamed(frame):
        return encode(frame).replace(b'"content":{', b'"contents":{')

    jsonrpc.encode = renamed


def dropped_reasoning(ctx):
    from onetake.session import history

    message_of = history._message

    def without_reasoning(event):
        message = message_of(event)
        message["content"] = [block for block in message["content"] if block["type"] != "reasoning"]
        return message

    history._message = without_reasoning


def reordered_results(ctx):
    from onetake.agent.tooling import ToolRun

    commit = ToolRun._commit

    def last_first(self, result):
        if not hasattr(self, "late"):
            self.late = []
        self.late.append(result)
        if len(self.late) == len(self.calls):
            order = list(range(len(self.calls)))[::-1]
            self.calls = [self.calls[i] for i in order]
            self.rows = [self.rows[i] for i in order]
            for i in order:
                commit(self, self.late[i])

    async def all_at_once(self):
        import asyncio

        await self.agent.flush()
        slots = asyncio.Semaphore(8)
        for number, call in enumerate(list(self.calls), 1):
            last_first(self, await self._execute(call, number, slots))

    ToolRun._execute_all = all_at_once


def lost_event(ctx):
    from onetake.session.log import SessionLog

    append = SessionLog.append

    def lossy(self, type_, data, **more):
        if type_ == "request/context":
            return None
        return append(self, type_, data, **more)

    SessionLog.append = lossy


def stray_print(ctx):
    from onetake.surfaces.acp import jsonrpc

    encode = jsonrpc.encode

    def chatty(frame):
        return b"debug: a frame follows\\n" + encode(frame)

    jsonrpc.encode = chatty


def plain_print(ctx):
    from onetake.agent.loop import Turn

    run = Turn.run

    async def chatty(self):
        print("debug: a turn begins")
        return await run(self)

    Turn.run = chatty


def injected(ctx):
    from onetake.agent.loop import Turn

    request = Turn._request

    def with_more(self):
        made = request(self)
        made.messages = [*made.messages, {"role": "user", "content": [{"type": "text", "text": "psst"}]}]
        return made

    Turn._request = with_more
    import onetake.agent.loop as loop

    loop.check_model_input = lambda messages, log: None


def lost_tool(ctx):
    ctx.tools.get("bash")
    get = ctx.tools.get
    ctx.tools.get = lambda name: None if name == "bash" else get(name)


def random_text(ctx):
    from onetake.surfaces.acp import jsonrpc

    encode = jsonrpc.encode

    def stamped(frame):
        import time

        if "method" in frame:
            frame["params"]["at"] = time.time_ns()
        return encode(frame)

    jsonrpc.encode = stamped


def second_replay(ctx):
    from pathlib import Path

    # The run file names the fixtures: a replay of a recording that is being verified reads them from
    # elsewhere.
    seen = Path(ctx.run.fixtures[0]).parent / "seen" if ctx.run.mode == "replay" else None
    if seen is not None and seen.exists():
        random_text(ctx)
    elif seen is not None:
        seen.touch()


def different_live(ctx):
    if ctx.run is not None and ctx.run.mode == "record":
        renamed_field(ctx)


def stamped_results(ctx):
    from onetake.session.log import SessionLog

    append = SessionLog.append

    def stamped(self, type_, data, **more):
        if type_ == "tool/result":
            import os

            data["message"]["content"][0]["content"][0]["text"] += f" (job 7a7{os.urandom(6).hex()}7)"
        return append(self, type_, data, **more)

    SessionLog.append = stamped


def contradicting(ctx):
    from onetake.providers.openai_chat import OpenAIChatProvider

    stream = OpenAIChatProvider.stream

    async def wrong(self, request):
        async for chunk in stream(self, request):
            if chunk["type"] == "block-end" and chunk["block"]["type"] == "text":
                chunk = {**chunk, "block": {"type": "text", "text": "Something else."}}
            yield chunk

    OpenAIChatProvider.stream = wrong


def changed_chunks(ctx):
    from onetake.session.log import SessionLog

    append = SessionLog.append

    def louder(self, type_, data, **more):
        if type_ == "assistant/chunk" and data["chunk"]["type"] == "text-delta":
            data = {**data, "chunk": {**data["chunk"], "text": data["chunk"]["text"].upper()}}
        return append(self, type_, data, **more)

    SessionLog.append = louder


def nonce_on_stdout(ctx):
    from onetake.surfaces.acp import jsonrpc

    encode = jsonrpc.encode

    def telling(frame):
        return encode({**frame, "run": ctx.run.nonce})

    jsonrpc.encode = telling


def crash(ctx):
    sys.exit("the agent fell over")


def leaked_key(ctx):
    from onetake.agent.loop import Turn

    run = Turn.run

    async def leaking(self):
        self.log.append("debug/env", {"authorization": "Bearer abcdefghij0123456789abcdef"})
        return await run(self)

    Turn.run = leaking


@asynccontextmanager
async def fault(ctx: AppContext, config: FaultConfig) -> AsyncIterator[None]:
    globals()[config.kind](ctx)
    yield
'''


class Lab:
    """A copy of the suite, with the commands that a user has."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.snapshots = folder / "snapshots"

    @property
    def suite(self) -> Suite:
        """The suite as it stands."""
        return load_suite(self.snapshots)

    def replay(self, expression: str | None = None) -> dict[str | None, Outcome]:
        """Replay; the outcomes by scenario (None: the suite as a whole)."""
        return self._run("replay", expression)

    def refresh(self, expression: str | None = None, *, dry_run: bool = False) -> dict[str | None, Outcome]:
        """Refresh."""
        return self._run("refresh", expression, dry_run=dry_run)

    def record(
        self,
        expression: str | None = None,
        *,
        dry_run: bool = False,
        replies: list[dict[str, Any]] | None = None,
    ) -> dict[str | None, Outcome]:
        """Record from a scripted endpoint."""
        return self._run(
            "record", expression, dry_run=dry_run, replies=REPLIES if replies is None else replies
        )

    def break_agent(self, kind: str) -> None:
        """Give the agent a fault."""
        self.edit("agent.yml", "{kind: none}", f"{{kind: {kind}}}")

    def edit(self, file: str, old: str, new: str) -> None:
        """Replace text that occurs in a file of the lab."""
        path = self.folder / file
        text = path.read_text(encoding="utf-8")
        assert old in text, f"{file} does not hold {old!r}"
        path.write_text(text.replace(old, new), encoding="utf-8")

    def files(self) -> dict[str, bytes]:
        """Every file of the suite and its bytes, artifacts aside."""
        return {
            str(path.relative_to(self.snapshots)): path.read_bytes()
            for path in sorted(self.snapshots.rglob("*"))
            if path.is_file() and ".onetake" not in path.parts
        }

    def changed_since(self, before: Mapping[str, bytes]) -> set[str]:
        """The files that differ from an earlier `files()`."""
        after = self.files()
        return {name for name in {*before, *after} if before.get(name) != after.get(name)}

    def _run(
        self,
        mode: str,
        expression: str | None,
        *,
        dry_run: bool = False,
        replies: list[dict[str, Any]] | None = None,
    ) -> dict[str | None, Outcome]:
        async def run() -> dict[str | None, Outcome]:
            chosen = select([self.suite], expression)
            if replies is None:
                outcomes = await run_all(
                    chosen, mode, jobs=2, dry_run=dry_run, on_outcome=lambda outcome: None
                )
            else:
                async with MockModel({"replies": json.loads(json.dumps(replies))}) as model:
                    with _variable("LAB_BASE_URL", model.base_url):
                        outcomes = await run_all(
                            chosen, mode, jobs=1, dry_run=dry_run, on_outcome=lambda outcome: None
                        )
            return {outcome.name: outcome for outcome in outcomes}

        return asyncio.run(run())


def build_lab(folder: Path) -> None:
    """Write the suite and record it."""
    snapshots = folder / "snapshots"
    snapshots.mkdir(parents=True)
    (folder / "agent.yml").write_text(AGENT)
    (folder / "agent.snapshot.yml").write_text(OVERLAY)
    (folder / "faults.py").write_text(FAULTS)
    (snapshots / "suite.toml").write_text(SUITE)
    for name, steps in SCRIPTS.items():
        (snapshots / name).mkdir()
        (snapshots / name / "input.json").write_text(json.dumps({"steps": steps}))
    (snapshots / "fails" / "replay.override.json").write_text(json.dumps(OVERRIDE))
    lab = Lab(folder)
    for outcomes in (lab.record(), lab.refresh("fails or opened")):
        assert all(outcome.verdict.ok for outcome in outcomes.values()), failures(outcomes)


def failures(outcomes: Mapping[str | None, Outcome]) -> str:
    """Everything that is red, for an assertion's message."""
    lines = []
    for name, outcome in outcomes.items():
        lines += [f"{name}: {problem.text()}" for problem in outcome.verdict.problems]
        lines += [f"{name}: {d.surface} {d.file}\n{d.message}\n{d.diff}" for d in outcome.verdict.differences]
    return "\n".join(lines)


def red(outcomes: Mapping[str | None, Outcome]) -> dict[str | None, set[str]]:
    """The surfaces that differ and the guards that were broken, by scenario; what is green is not in it."""
    return {
        name: {d.surface for d in outcome.verdict.differences} | {p.guard for p in outcome.verdict.problems}
        for name, outcome in outcomes.items()
        if not outcome.verdict.ok
    }


@contextmanager
def _variable(name: str, value: str) -> Iterator[None]:
    before = os.environ.get(name)
    os.environ[name] = value
    try:
        yield
    finally:
        if before is None:
            del os.environ[name]
        else:
            os.environ[name] = before
