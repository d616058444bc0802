"""docs/agent.md: every row that comes with onetake, all that its config may say, and an overlay."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from pkgutil import resolve_name

import msgspec

from onetake.app.builtin import BUILTIN
from onetake.app.plugins import ModelRow
from onetake.snapshot.guard.overlay import overlay_faults
from onetake.toolkit.delegation.config import Preset
from onetake.wire.chat_request import ChatDialect

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/agent.md").read_text()


def known_words() -> Iterator[str]:
    """Every built-in plugin, and every key of its config."""
    structs: list[type[msgspec.Struct]] = [ModelRow, Preset, ChatDialect]
    for use, target in BUILTIN.items():
        yield use
        start = inspect.unwrap(resolve_name(target))
        structs.append(eval(start.__annotations__["config"], start.__globals__))
    for struct in structs:
        yield from (field.encode_name for field in msgspec.structs.fields(struct))


def test_every_row_and_every_key_is_explained() -> None:
    """One that somebody adds is missed here until it is told of."""
    assert set(known_words()) - set(re.findall(r"`([\w-]+)(?:: \w+)?`", PAGE)) == set()


def test_the_overlay_of_the_page_is_one(tmp_path: Path) -> None:
    """For the agent that the page names as the smallest."""
    [overlay] = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
    (tmp_path / "agent.yml").write_text((ROOT / "examples/own-tool/agent.yml").read_text())
    (tmp_path / "agent.snapshot.yml").write_text(overlay)
    assert list(overlay_faults(tmp_path / "agent.yml", tmp_path / "agent.snapshot.yml")) == []
