"""The opt-in lane itself: it skips with its reason, a key alone starts nothing, and it can be green and red.

A scripted endpoint stands in for a model that does what it is asked, and for one that does not.
"""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from onetake.gateway.mock import MockModel
from onetake.gateway.script import parse_script

ROOT = Path(__file__).resolve().parent.parent

WRITE = {"command": "printf '%s' {{fromRequest:the word (\\S+) to}} > note.txt"}
OBEDIENT: list[dict[str, Any]] = [
    {"match": "write the word", "reply": {"toolCalls": [{"id": "c1", "name": "bash", "arguments": WRITE}]}},
    {"match": "write the word", "reply": {"text": "Written."}},
    {"match": "Remember this code", "reply": {"text": "noted."}},
    {"match": "Which code was it", "reply": {"text": "{{fromRequest:code: (\\S+)\\.}}"}},
    {"match": "Tell a story", "reply": {"text": "Once upon a time", "hang": True}},
    {"match": "Forget the story", "reply": {"text": "ready."}},
]


async def run_lane(*options: str, **variables: str) -> tuple[int, str]:
    """Run pytest on the lane with these variables and none of the caller's that it looks at."""
    hidden = ("ONETAKE_E2E", "DEEPSEEK_", "PYTEST_")
    env = {name: value for name, value in os.environ.items() if not name.startswith(hidden)}
    command = ["-m", "pytest", "tests/e2e", "-rsf", "-p", "no:cacheprovider", "--color=no", *options]
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *command,
        cwd=ROOT,
        env={**env, **variables},
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    said, _ = await process.communicate()
    return process.returncode or 0, said.decode()


async def against(replies: list[dict[str, Any]], *options: str) -> tuple[int, str]:
    """Run the lane against a scripted endpoint."""
    async with MockModel(parse_script({"replies": replies}, "replies")) as endpoint:
        return await run_lane(
            *options, ONETAKE_E2E="1", ONETAKE_E2E_BASE_URL=endpoint.base_url, ONETAKE_E2E_MODEL="scripted"
        )


@pytest.mark.parametrize(
    ("variables", "reason"),
    [
        ({"DEEPSEEK_API_KEY": "k"}, "opt-in: run `make e2e`"),
        ({"ONETAKE_E2E": "1"}, "no key: set DEEPSEEK_API_KEY"),
        ({"ONETAKE_E2E": "1", "ONETAKE_E2E_MODEL": "m", "DEEPSEEK_API_KEY": "k"}, "only one is set"),
    ],
)
def test_each_test_skips_with_its_reason(variables: dict[str, str], reason: str) -> None:
    code, said = asyncio.run(run_lane(**variables))
    assert code == 0
    assert reason in said
    assert "3 skipped" in said
    assert "passed" not in said


def test_a_model_that_does_what_it_is_asked_passes() -> None:
    code, said = asyncio.run(against(OBEDIENT))
    assert "3 passed" in said, said
    assert code == 0


def test_a_model_that_does_not_is_red() -> None:
    wrong = {
        0: {"text": "Written, trust me."},
        3: {"text": "Which code?"},
        4: {"error": {"status": 400, "message": "no stories"}},
    }
    replies = [{**reply, "reply": wrong.get(at, reply["reply"])} for at, reply in enumerate(OBEDIENT)]
    code, said = asyncio.run(against(replies))
    assert "3 failed" in said, said
    for difference in ("note.txt", "in 'Which code?'", "no stories"):
        assert difference in said
    assert code == 1
