"""A replay needs no key and no network, and gets none: watched from inside the processes, with audit hooks.

A `sitecustomize` module, put on the module path of the runner and of the agent, writes down the environment,
every `.env` that is opened and every address that is connected to. Each test that finds nothing stands beside
one in which the same watch finds something.
"""

from __future__ import annotations

import ipaddress
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import ROOT
from tests.snapshot.lab import FAULTS, REPLIES, Lab, failures, red

ONETAKE = [sys.executable, "-m", "onetake"]
WATCH = '''\
"""Write down what this process sees and reaches for."""

import json
import os
import sys

_place = os.path.join(os.path.dirname(__file__), "seen.jsonl")


def _note(kind, value):
    line = json.dumps({"kind": kind, "who": os.path.basename(sys.argv[0]), "value": value})
    with open(_place, "a") as file:
        file.write(line + "\\n")


def _watch(event, arguments):
    if event in ("socket.connect", "socket.sendto", "socket.sendmsg"):
        if isinstance(arguments[1], tuple):
            _note("address", list(arguments[1]))
    elif event in ("socket.getaddrinfo", "socket.gethostbyname"):
        _note("address", [str(arguments[0])])
    elif event == "open" and str(arguments[0]).endswith(".env"):
        _note("dotenv", str(arguments[0]))


sys.addaudithook(_watch)
_note("environ", [sys.argv, dict(os.environ)])
'''
KEY = "kept-from-every-replay"
STORED = "kept-in-a-file-beside-the-config"


@pytest.fixture
def watched(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> Lab:
    """The lab with the watch in its agent, one key in the environment and another in `.env`."""
    folder = lab.folder / "watch"
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(WATCH)
    lab.edit(
        "snapshots/suite.toml",
        '"LAB_BASE_URL"]',
        f'"LAB_BASE_URL", "LAB_API_KEY", "LAB_TOKEN"]\n[agent.env]\nPYTHONPATH = "{folder}"',
    )
    (lab.folder / ".env").write_text(f"LAB_TOKEN={STORED}\n")
    monkeypatch.setenv("LAB_API_KEY", KEY)
    return lab


def seen(lab: Lab, kind: str) -> list[Any]:
    """What the watch wrote down, and forgets; there is something, or it was not there."""
    file = lab.folder / "watch" / "seen.jsonl"
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    assert any(line["kind"] == "environ" for line in lines)
    return [line["value"] for line in lines if line["kind"] == kind]


def outside(addresses: list[Any]) -> list[Any]:
    """The addresses beyond loopback; whatever is no IP address of loopback counts."""

    def is_loopback(address: Any) -> bool:
        try:
            return ipaddress.ip_address(address[0]).is_loopback
        except ValueError:
            return bool(address[0] == "localhost")

    return [address for address in addresses if not is_loopback(address)]


@pytest.mark.parametrize("mode", ["replay", "refresh"])
def test_a_replayed_agent_sees_no_key(watched: Lab, mode: str) -> None:
    """Neither the variable nor `.env`, which nobody opens: not the agent, not its tools, not the runner."""
    environment = {**os.environ, "PYTHONPATH": str(watched.folder / "watch")}
    done = subprocess.run(
        [*ONETAKE, mode, str(watched.snapshots), "-k", "tools"],
        env=environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    runner, *agents = seen(watched, "environ")
    assert runner[1]["LAB_API_KEY"] == KEY, "the runner itself has the key"
    assert len(agents) == 1
    assert KEY not in json.dumps(agents) and STORED not in json.dumps(agents)
    assert seen(watched, "dotenv") == []
    assert outside(seen(watched, "address")) == []


def test_the_watch_sees_a_recorded_agent_use_them(watched: Lab) -> None:
    """In record mode both are handed over, and the endpoint is reached: so the watch can see."""
    outcomes = watched.record("tools")
    assert red(outcomes) == {}, failures(outcomes)
    live, *replays = seen(watched, "environ")
    assert (live[1]["LAB_API_KEY"], live[1]["LAB_TOKEN"]) == (KEY, STORED)
    assert len(replays) == 2
    assert KEY not in json.dumps(replays) and STORED not in json.dumps(replays)
    addresses = seen(watched, "address")
    assert addresses and outside(addresses) == []


def test_the_watch_sees_an_agent_that_phones_home(watched: Lab) -> None:
    """An agent that connects while it is replayed, whatever becomes of it, does not go unseen."""
    fault = (
        "\n\ndef phones_home(ctx):\n    import socket\n"
        "    with socket.socket() as line:\n        line.setblocking(False)\n"
        "        line.connect_ex(('192.0.2.1', 9))\n"
    )
    (watched.folder / "faults.py").write_text(FAULTS + fault)
    watched.break_agent("phones_home")
    watched.replay("tools")
    assert outside(seen(watched, "address")) == [["192.0.2.1", 9]]


def test_examples_replay_without_a_network(tmp_path: Path) -> None:
    """In a network namespace of its own, in which even loopback is down."""
    unshare = shutil.which("unshare")
    if unshare is None or subprocess.run([unshare, "-rn", "true"], capture_output=True).returncode != 0:
        pytest.skip("no network namespace for unprivileged users here")
    done = subprocess.run(
        [unshare, "-rn", *ONETAKE, "replay", str(ROOT / "examples" / "acp-agent"), "-k", "text-turn or bash"],
        capture_output=True,
        text=True,
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 passed" in done.stdout


def test_a_value_from_dotenv_is_refused_in_a_recording(watched: Lab) -> None:
    """Record, which has read the file, knows the value and does not write it."""
    before = watched.files()
    replies = json.loads(json.dumps(REPLIES).replace("Both ran.", f"The token is {STORED}."))
    outcomes = watched.record("tools", replies=replies)
    assert red(outcomes) == {"tools": {"secret"}}, failures(outcomes)
    assert STORED not in failures(outcomes)
    assert watched.changed_since(before) == set()
