"""What is asked of a model: one value that the loop builds, the capture writes down, a provider encodes."""

from __future__ import annotations

from typing import Any

import msgspec

from onetake.model.types import Message


class ModelRequest(msgspec.Struct, kw_only=True):
    """One model call, complete: nothing that the model sees may reach a provider by another way."""

    session_id: str
    """The session that asks."""
    call: int
    """Number of the call within its session, from 1 on, over the session's whole life (restarts included)."""
    purpose: str = "main"
    """Why the call is made: `main`, `compaction` or `title`."""
    config: dict[str, Any]
    """`provider`, `model` and the other call settings, as the request header logs them."""
    system: str | None = None
    """The system prompt."""
    tools: list[dict[str, Any]] | None = None
    """Tool specifications: `name`, `description`, `parameters` (a JSON Schema)."""
    messages: list[Message] = []
    """The history, oldest first."""
