"""The wire formats by name."""

from __future__ import annotations

from onetake.wire.chat import CHAT
from onetake.wire.format import WireFormat
from onetake.wire.messages import MESSAGES
from onetake.wire.responses import RESPONSES

FORMATS: dict[str, WireFormat] = {each.name: each for each in (CHAT, MESSAGES, RESPONSES)}
