"""A suite for an agent that is not ours: thirty lines, and its model behind the gateway."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from onetake.snapshot.attempt import Outcome
from onetake.snapshot.run import run_all, select
from onetake.snapshot.suites.suite import load_suite

AGENT = '''\
"""Answers one prompt; looks at the sky where the model wants it to."""
import json, os, pathlib, sys, urllib.request

SYSTEM = "You are brief."
TOOL = {"name": "look", "description": "Looks up.", "parameters": {"type": "object", "properties": {}}}


def look():
    return "blue"


def ask(messages):
    body = {"model": "m", "messages": messages, "tools": [{"type": "function", "function": TOOL}]}
    url = os.environ["OPENAI_BASE_URL"] + "/chat/completions"
    request = urllib.request.Request(url, json.dumps(body).encode(), {"content-type": "application/json"})
    with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request) as answer:
        return json.load(answer)["choices"][0]["message"]


def main():
    log = pathlib.Path(os.environ["HOME"], "log.jsonl")
    messages = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": sys.argv[1]}]
    while True:
        message = ask(messages)
        messages.append(message)
        with log.open("a") as file:
            print(json.dumps({"said": message.get("content")}), file=file)
        if message.get("content"):
            print(message["content"])
        if not message.get("tool_calls"):
            return
        for call in message["tool_calls"]:
            messages.append({"role": "tool", "tool_call_id": call["id"], "content": look()})


main()
'''
SUITE = """\
[suite]
driver = "command"
surfaces = ["requests", "stdout", "log", "files"]
files = ["~/*.jsonl"]

[gateway]
script = "model.json"

[agent]
command = ["python", "{{suite}}/../agent.py", "{{prompt}}"]
env = {{ OPENAI_BASE_URL = "{{{{gateway.openai}}}}" }}

[scenarios.sky]
pins_header = true
"""
MODEL = {
    "replies": [
        {"reply": {"text": "I look.", "toolCalls": [{"id": "call_1", "name": "look", "arguments": {}}]}},
        {"reply": {"text": "It is blue."}},
    ]
}


class Foreign:
    """The suite in a folder of its own; files are changed by `edit`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.snapshots = folder / "snapshots"
        (self.snapshots / "sky").mkdir(parents=True)
        (folder / "agent.py").write_text(AGENT)
        suite = SUITE.format()
        (self.snapshots / "suite.toml").write_text(suite)
        (self.snapshots / "model.json").write_text(json.dumps(MODEL))
        (self.snapshots / "sky/input.json").write_text('{"steps":[{"op":"prompt","text":"Look."}]}')

    def edit(self, file: str, old: str, new: str) -> None:
        path = self.folder / file
        text = path.read_text()
        assert old in text
        path.write_text(text.replace(old, new))

    def run(self, mode: str, environ: Mapping[str, str] | None = None) -> dict[str | None, Outcome]:
        before = {**os.environ}
        os.environ.pop("CI", None)
        os.environ.update(environ or {})
        try:
            chosen = select([load_suite(self.snapshots)], None)
            outcomes = asyncio.run(
                run_all(chosen, mode, jobs=2, dry_run=False, on_outcome=lambda outcome: None)
            )
        finally:
            os.environ.clear()
            os.environ.update(before)
        return {outcome.name: outcome for outcome in outcomes}

    def lines(self, file: str) -> list[Any]:
        return [json.loads(line) for line in (self.snapshots / file).read_text().splitlines()]
