"""`onetake init`: the first suite for an agent that is not ours."""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path

HELP = """\
Write a suite for your agent, with a first scenario, and record it when the key is there.

  onetake init --prompt "What is the sky?" -- python agent.py {prompt}
  onetake init --driver acp --prompt hello -- my-agent --acp

COMMAND is how your agent is started, from this folder. `{prompt}` stands for the prompt of a program that
takes it as an argument; without it the prompt goes to stdin. The agent is given the endpoint of its model in
OPENAI_BASE_URL and ANTHROPIC_BASE_URL; if it looks elsewhere, change [agent] env in the suite.toml that is
written, as docs/other-agents.md shows.
"""
ENDPOINTS = {
    "openai": ("https://api.openai.com", "OPENAI_API_KEY", "OPENAI_BASE_URL"),
    "anthropic": ("https://api.anthropic.com", "ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL"),
}
"""By name: where it is, the variable with its key, the variable with its base URL."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.usage = "onetake init [options] -- COMMAND [ARGUMENT ...]"
    parser.description = HELP
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    add = parser.add_argument
    add("--suite", type=Path, default=Path("tests/snapshots"), metavar="DIR", help="where (tests/snapshots)")
    add("--driver", choices=["command", "acp"], default="command", help="how it is talked to (command)")
    add("--name", default="first", metavar="NAME", help="the scenario (first)")
    add("--prompt", default="Hello.", metavar="TEXT", help="what the agent is told")
    add("--provider", choices=list(ENDPOINTS), default="openai", help="whose format it speaks (openai)")
    add("--upstream", metavar="URL", help="another endpoint of that format")
    add("--no-record", action="store_true", help="only write, do not record")
    add("program", nargs="+", metavar="COMMAND", help="the agent and its arguments")


def run(args: argparse.Namespace) -> int:
    """Write the suite, and record it when that can be done. Raises UsageError when there is one already."""
    from onetake.errors import UsageError

    suite = args.suite / "suite.toml"
    if suite.exists():
        raise UsageError(f"{suite} exists; `onetake new {args.suite} NAME` adds a scenario to it")
    url, key, variable = ENDPOINTS[args.provider]
    folder = args.suite / args.name
    folder.mkdir(parents=True, exist_ok=True)
    suite.write_text(_suite(args, url, key, variable), encoding="utf-8")
    script = {"steps": _steps(args.driver, args.prompt)}
    (folder / "input.json").write_text(json.dumps(script, ensure_ascii=False, indent=2) + "\n", "utf-8")
    print(f"wrote {suite} and {folder / 'input.json'}")
    record = f"onetake record {args.suite}"
    if args.no_record or os.environ.get("CI"):
        print(f"next: {record}")
        return 0
    if args.upstream is None and not os.environ.get(key):
        print(f"{key} is not set, so nothing was recorded; next: {key}=... {record}")
        return 0
    from onetake.cli import main

    sys.stdout.flush()
    return main(["record", str(args.suite)])


def _suite(args: argparse.Namespace, url: str, key: str, variable: str) -> str:
    command = [_in_suite(part, args.suite, first=n == 0) for n, part in enumerate(args.program)]
    asked = f'{{ {variable} = "{{{{gateway.{args.provider}}}}}", {key} = "unused" }}'
    keyed = [] if args.upstream is not None else [f"key_env = {{ {args.provider} = {json.dumps(key)} }}"]
    return "\n".join(
        [
            "# Written by `onetake init`. docs/other-agents.md explains every line.",
            "[suite]",
            f"driver = {json.dumps(args.driver)}",
            'surfaces = ["requests", "stdout", "log"]',
            "",
            "[gateway]",
            f"upstream = {{ {args.provider} = {json.dumps(args.upstream or url)} }}",
            *keyed,
            "",
            "[agent]",
            f"command = {json.dumps(command, ensure_ascii=False)}",
            f"env = {asked}",
            "",
            f"[scenarios.{args.name}]",
            "pins_header = true",
            "",
        ]
    )


def _in_suite(part: str, suite: Path, *, first: bool) -> str:
    """A part of the command as it is written: files of this folder are found from the suite's."""
    if not os.path.exists(part) or os.path.isabs(part) or (first and "/" not in part):
        return part
    there = os.path.relpath(part, suite)
    return there if first else "{suite}/" + there


def _steps(driver: str, prompt: str) -> list[dict[str, str]]:
    opening = [{"op": "initialize"}, {"op": "newSession"}] if driver == "acp" else []
    return [*opening, {"op": "prompt", "text": prompt}]
