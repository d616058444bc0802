"""The system prompt as an ordered list of named sections.

Plugins contribute sections; a section is a text, or a function of the facts of one session. The prompt is
put together anew for every request, and must come out the same unless something really changed: so a
section may use what is in `SessionFacts` and nothing else (no date, no host, no version).
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec

from onetake.errors import UsageError


class SessionFacts(msgspec.Struct, frozen=True):
    """What a prompt section may depend on."""

    session_id: str
    cwd: Path


Section = str | Callable[[SessionFacts], str]


class PromptRegistry:
    """Named sections in the order in which they were registered."""

    def __init__(self) -> None:
        self._sections: dict[str, Section] = {}

    def register(self, name: str, section: Section) -> Callable[[], None]:
        """Add a section at the end; calling what is returned removes it again.

        Raises UsageError when the name is taken.
        """
        if name in self._sections:
            raise UsageError(f"prompt section {name!r} exists already: give the second one another name")
        self._sections[name] = section

        def unregister() -> None:
            self._sections.pop(name, None)

        return unregister

    def assemble(self, facts: SessionFacts) -> str | None:
        """The system prompt of a session: its non-empty sections with a blank line between, or None."""
        texts = [part if isinstance(part, str) else part(facts) for part in self._sections.values()]
        filled = [text.strip("\n") for text in texts if text.strip()]
        return "\n\n".join(filled) if filled else None
