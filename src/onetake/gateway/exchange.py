"""One model call on its way through the gateway, and what gives the answer."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from onetake.gateway.conversation import Call
from onetake.gateway.http import HttpRequest, HttpResponse
from onetake.wire.format import WireFormat, WireRequest

if TYPE_CHECKING:
    from onetake.gateway.matching import Served


class Exchange:
    """One call: what was asked, and in which format."""

    def __init__(
        self,
        call: Call,
        wire: WireRequest,
        format_: WireFormat,
        request: HttpRequest,
        response_id: str,
        over: Callable[[Call], None],
    ) -> None:
        self.call = call
        self.wire = wire
        self.format = format_
        self.request = request
        self.response_id = response_id
        """An id for an answer that brings none: the same for the same place of a run."""
        self._over = over

    def over(self) -> None:
        """The answer is logged to its end; calling this twice is fine."""
        self._over(self.call)


class Source(ABC):
    """Where answers come from: a recording, the real endpoint, or a script."""

    def __init__(self) -> None:
        self.recorded: Sequence[Sequence[Served]] = ()
        """The recorded calls of each session; empty where there is no recording."""
        self.bindings: dict[str, int] = {}
        """The recorded session of each live one, by id; beyond the recording: numbers that follow it."""
        self.losses: dict[str, None] = {}
        """What a recording cannot keep of what an endpoint sent, each once."""
        self.cut: list[str] = []
        """Answers that an endpoint did not bring to their end: no recording may hold one for a whole one."""

    @abstractmethod
    async def respond(self, exchange: Exchange) -> HttpResponse:
        """Answer one call, and log the answer. Raises Disconnect for an answer that breaks off."""

    async def aclose(self) -> None:
        """Bring to its end what is under way: no call comes any more. Nothing is, of answers that are known
        before they are sent."""
        return None
