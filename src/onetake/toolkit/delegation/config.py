"""What a composition may say about sub-agents: how deep they may go, and the kinds that there are."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta


class Preset(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A kind of sub-agent, which the model asks for by its name."""

    description: str
    """What it is good for, for the model that chooses."""
    system: str | None = None
    """Its whole system prompt, in which `{cwd}` stands for the working directory; default: the parent's."""
    tools: list[str] | None = None
    """The names of the tools that it has; default: those of the parent."""


class DelegationConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The config of the `delegation` row."""

    max_depth: Annotated[int, Meta(ge=0)] = 1
    """Levels of sub-agents: with 1, a sub-agent has none of its own. All sessions see the same tools, so that
    their headers are alike; a call that would go deeper is refused."""
    presets: dict[str, Preset] = {}
    """The kinds of sub-agents by name. Without any, a sub-agent is like its parent."""
