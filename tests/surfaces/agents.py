"""A real agent process with a scripted model beside its composition, and a client that sees every byte."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

Frame = dict[str, Any]

MODEL = '''\
"""A model that does what the last user text asks for."""
from __future__ import annotations
import asyncio, os, sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
import msgspec
from onetake.model.failures import ModelFailure
from onetake.model.registry import ModelInfo

class Options(msgspec.Struct, forbid_unknown_fields=True):
    ready: str = ""

def block(index, kind, *parts):
    yield {"type": "block-start", "index": index, "blockType": kind}
    for part in parts:
        yield {"type": f"{kind}-delta", "index": index, "text": part}
    yield {"type": "block-end", "index": index, "block": {"type": kind, "text": "".join(parts)}}

def call(index, id, arguments):
    yield {"type": "block-end", "index": index,
           "block": {"type": "tool-call", "id": id, "name": "bash", "arguments": arguments}}

def finish(kind):
    yield {"type": "finish", "reason": {"kind": kind}}

class Model:
    id = "fake"
    models = {"m": ModelInfo(id="m")}

    def __init__(self, ready):
        self.ready = ready

    async def stream(self, request):
        last = request.messages[-1]
        block_ = last["content"][0]
        text = block_["text"] if block_["type"] == "text" else "DONE"
        asked = [m for m in request.messages if m["source"]["kind"] == "user"][-1]["content"][0]["text"]
        text = "loop" if asked == "loop" else text
        if text == "print":
            print("stray text from a plugin")
            os.write(1, b"stray bytes from a plugin\\n")
            text = "say printed"
        if text == "fail":
            raise ModelFailure({"message": "no credit", "code": "QUOTA"})
        if text == "hang":
            for chunk in block(0, "text", "par", "tial"):
                if chunk["type"] == "block-end":
                    open(self.ready, "w").close()
                    await asyncio.Event().wait()
                yield chunk
        chunks = {
            "think": [*block(0, "reasoning", "hmm"), *block(1, "text", "a", "", "b"), *finish("stop")],
            "cut": [*block(0, "text", "cut"), *finish("max-tokens")],
            "tool": [*block(0, "text", "Looking."),
                     *call(1, "c1", '{"command": "echo hi", "description": "Say hi"}'),
                     *call(2, "c2", '{"command": "exit 3"}'), *call(3, "c3", "{"), *finish("tool-calls")],
            "sleep": [*call(0, "c1", '{"command": "touch ' + self.ready + '; sleep 60"}'),
                      *finish("tool-calls")],
            "loop": [*call(0, "c1", '{"command": "true"}'), *finish("tool-calls")],
        }.get(text)
        if chunks is None:
            chunks = [*block(0, "text", text.removeprefix("say ")), *finish("stop")]
        for chunk in chunks:
            yield chunk

@asynccontextmanager
async def model(ctx, config: Options) -> AsyncIterator[None]:
    unregister = ctx.providers.register(Model(config.ready))
    try:
        yield
    finally:
        unregister()
        print("plugin undone", file=sys.stderr)
'''

COMPOSITION = """\
- {id: sessions, use: session-store, config: {root: logs, compression: none}}
- {id: model, use: "scripted_model:model", config: {ready: "${READY}"}}
- {id: agent, use: agent, config: {provider: fake, model: m, max_steps: 3}}
- {id: shell, use: bash}
- {id: acp, use: acp, config: {stream: false}}
"""


def write_agent(folder: Path, *, stream: bool = False) -> Path:
    """Write model and composition; returns the composition's path."""
    (folder / "scripted_model.py").write_text(MODEL, encoding="utf-8")
    path = folder / "agent.yml"
    path.write_text(COMPOSITION.replace("stream: false", f"stream: {str(stream).lower()}"), encoding="utf-8")
    (folder / "work").mkdir(exist_ok=True)
    return path


def command(config: Path) -> list[str]:
    """How the agent is started."""
    return [sys.executable, "-m", "onetake", "acp", "--config", str(config)]


def environment(folder: Path) -> dict[str, str]:
    """Ours, with the ready file of the scripted model and no home of ours."""
    return {**os.environ, "READY": str(folder / "ready"), "HOME": str(folder), "XDG_STATE_HOME": ""}


class Client:
    """A client of one agent process that keeps every line and never waits without a bound."""

    def __init__(self, folder: Path, *, stream: bool = False) -> None:
        self.folder = folder
        self.workspace = folder / "work"
        self._stderr = (folder / "stderr.txt").open("wb")
        self.process = subprocess.Popen(
            command(write_agent(folder, stream=stream)),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._stderr,
            env=environment(folder),
            cwd=folder,
        )
        self._next_id = 0
        self._pending = b""
        self.frames: list[Frame] = []

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        # Gently first: a killed agent cannot report its coverage.
        if self.process.stdin is not None:
            with suppress(BrokenPipeError):
                self.process.stdin.close()
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(10)
        self.process.kill()
        self.process.wait()
        for stream in (self.process.stdin, self.process.stdout, self._stderr):
            if stream is not None and not stream.closed:
                with suppress(BrokenPipeError):
                    stream.close()

    def write(self, data: bytes) -> None:
        """Send raw bytes."""
        assert self.process.stdin is not None
        self.process.stdin.write(data)
        self.process.stdin.flush()

    def send(self, method: str, params: Frame, *, notify: bool = False) -> int:
        """Send a request (or a notification) and return its id."""
        frame: Frame = {"jsonrpc": "2.0", "method": method, "params": params}
        if not notify:
            self._next_id += 1
            frame = {"jsonrpc": "2.0", "id": self._next_id, "method": method, "params": params}
        self.write(json.dumps(frame).encode() + b"\n")
        return self._next_id

    def line(self, timeout_s: float = 30.0) -> bytes:
        """The next line of stdout."""
        assert self.process.stdout is not None
        end = time.monotonic() + timeout_s
        while b"\n" not in self._pending:
            ready, _, _ = select.select([self.process.stdout], [], [], max(0.0, end - time.monotonic()))
            data = os.read(self.process.stdout.fileno(), 1 << 16) if ready else b""
            if not data:
                raise AssertionError(f"no further line; got {self.frames}\n{self.stderr()}")
            self._pending += data
        line, _, self._pending = self._pending.partition(b"\n")
        return line

    def frame(self) -> Frame:
        """The next frame."""
        frame: Frame = json.loads(self.line())
        self.frames.append(frame)
        return frame

    def answer(self, request_id: int) -> Frame:
        """The answer to a request; what comes before it is kept in `frames`."""
        while True:
            frame = self.frame()
            if frame.get("id") == request_id and "method" not in frame:
                return frame

    def call(self, method: str, **params: Any) -> Frame:
        """Send a request and return its answer."""
        return self.answer(self.send(method, params))

    def new_session(self) -> str:
        """Initialize and open a session; returns its id."""
        self.call("initialize", protocolVersion=1)
        session: str = self.call("session/new", cwd=str(self.workspace), mcpServers=[])["result"]["sessionId"]
        return session

    def prompt(self, session: str, text: str) -> int:
        """Send a prompt without waiting for its answer."""
        return self.send("session/prompt", {"sessionId": session, "prompt": [{"type": "text", "text": text}]})

    def updates(self, session: str) -> list[Frame]:
        """The updates of a session so far."""
        return [
            frame["params"]["update"]
            for frame in self.frames
            if frame.get("method") == "session/update" and frame["params"]["sessionId"] == session
        ]

    def wait_for(self, path: Path, timeout_s: float = 30.0) -> None:
        """Wait until a file exists."""
        end = time.monotonic() + timeout_s
        while not path.exists():
            assert time.monotonic() < end, f"{path} did not appear\n{self.stderr()}"
            time.sleep(0.005)

    def close(self) -> int:
        """End stdin, take the remaining frames and return the exit code."""
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.close()
        code = self.process.wait(30)
        rest = self._pending + self.process.stdout.read()
        self.frames += [json.loads(line) for line in rest.split(b"\n") if line]
        return code

    def stderr(self) -> str:
        """What the agent has written to stderr."""
        return (self.folder / "stderr.txt").read_text(encoding="utf-8")

    def stored(self, session: str) -> list[Frame]:
        """The events that are on disk at this moment; none while there is no log yet."""
        from onetake.session.store import read_live

        paths = list((self.folder / "logs").glob(f"*/{session}/session.jsonl"))
        return read_live(paths[0])[1] if paths else []

    def log(self, session: str) -> list[Frame]:
        """The stored events of a session, unpacked, without the header."""
        from onetake.session.store import read_file

        (path,) = (self.folder / "logs").glob(f"*/{session}/session.jsonl")
        return read_file(path).events
