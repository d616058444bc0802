"""Suites as they are committed: a suite.toml, scripts and recorded fixtures, for whatever reads such folders.

`suites` draws them in the form in which a recording writes them. `aged` draws what becomes of a fixture that
an older version wrote, an editor saved or a checkout changed: other bytes that say the same, though gaps
between chunks may be lost.
"""

from __future__ import annotations

import codecs
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from hypothesis import strategies as st

from onetake import jsontext
from onetake.fixture.grammar import token
from onetake.fixture.projection import project
from onetake.fixture.tokens import LogView, TokenTable
from onetake.session.events import Event, Header
from onetake.session.jsonl import encode_log, read_log
from onetake.testing.strategies.logs import conversations

FIXTURE = "session.jsonl"
_HEAD = """\
[suite]
surfaces = ["log"]

[agent]
command = ["agent", "{config}"]
config = "agent.yml"
"""


class Recorded(NamedTuple):
    """A scenario: what the user says, and the log of the session in which it was said."""

    header: Header
    events: list[Event]

    @property
    def prompts(self) -> list[str]:
        """What the script says, in order."""
        said = (event["data"] for event in self.events if event["type"] == "user/message")
        return [message["content"][0]["text"] for message in said]

    def fixture(self) -> bytes:
        """The log as a recording writes it."""
        table = TokenTable.build({"cwd": self.header["cwd"]}, [LogView(0, self.header, self.events)])
        return project(self.header, self.events, table, lambda kind, text: token(kind))

    def write(self, folder: Path) -> None:
        """Write script and fixture into the folder of the scenario, which is made."""
        folder.mkdir(parents=True)
        opening: list[dict[str, Any]] = [{"op": "initialize"}, {"op": "newSession"}]
        steps = [*opening, *({"op": "prompt", "text": text} for text in self.prompts)]
        (folder / "input.json").write_bytes(jsontext.dumps({"steps": steps}) + b"\n")
        (folder / FIXTURE).write_bytes(self.fixture())


class DrawnSuite(NamedTuple):
    """A suite: its scenarios by name."""

    scenarios: dict[str, Recorded]

    def write(self, folder: Path) -> Path:
        """Write the suite into a folder that is made for it; returns its suite.toml."""
        folder.mkdir(parents=True)
        for name, scenario in self.scenarios.items():
            scenario.write(folder / name)
        tables = "".join(f"\n[scenarios.{json.dumps(name)}]\n" for name in self.scenarios)
        (folder / "suite.toml").write_text(_HEAD + tables, encoding="utf-8")
        return folder / "suite.toml"


def suites() -> st.SearchStrategy[DrawnSuite]:
    """Draw a suite of a few scenarios, whose logs are `conversations`."""
    names = st.sampled_from(["a", "0", "two.words", "A-b_c"])
    scenarios = st.builds(lambda drawn: Recorded(*drawn), conversations())
    return st.builds(DrawnSuite, st.dictionaries(names, scenarios, min_size=1, max_size=2))


@st.composite
def aged(draw: st.DrawFn, raw: bytes) -> bytes:
    """Draw a fixture in another layout: it says the same, and is not what a recording would write."""
    log = read_log(raw, FIXTURE)
    edges = sorted(draw(st.sets(st.integers(1, len(log.events)), max_size=3)))
    header = jsontext.clone(log.header)
    if draw(st.booleans()):
        header["createdAt"] = 17
    lines = [_line(header, draw(st.booleans()))]
    for start, stop in zip([0, *edges], [*edges, len(log.events)], strict=True):
        part = encode_log(header, log.events[start:stop], packed=draw(st.booleans()), project=True)
        lines += part.split(b"\n")[1:-1]
    changed = _joined(lines, draw(st.sampled_from([b"\n", b"\r\n"])), draw(st.booleans()))
    changed = codecs.BOM_UTF8 * draw(st.booleans()) + changed
    return changed if changed != raw else raw[:-1]


def _line(value: Any, spaced: bool) -> bytes:
    """A record, with spaces in it as other writers put them."""
    return json.dumps(value).encode() if spaced else jsontext.dumps(value)


def _joined(lines: Sequence[bytes], end: bytes, ended: bool) -> bytes:
    return end.join(lines) + (end if ended else b"")
