"""An event loop whose time passes as soon as nothing else is to do: hours of waiting take no time.

Timers fire in the order of their times, and everything that is ready runs before the clock moves. So a test
with delays is as fast as one without, and as repeatable: no timing of the machine gets into it. Sockets and
processes of the outside do not know of this clock; what waits for them waits in real time only while no timer
is due, so keep to code that waits by `asyncio` alone.
"""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """A loop with a clock of its own, in seconds, from 0 on."""

    def __init__(self) -> None:
        self._now = 0.0
        super().__init__(_Jumping(self))

    def time(self) -> float:
        """The virtual time."""
        return self._now

    def advance(self, seconds: float) -> None:
        """Let the clock move on; timers that are due then run in the next round of the loop."""
        self._now += seconds


class _Jumping(selectors.DefaultSelector):
    """A selector that takes a time-out for a leap of the clock."""

    def __init__(self, loop: VirtualTimeLoop) -> None:
        super().__init__()
        self._loop = loop

    def select(self, timeout: float | None = None) -> Any:
        """Report what is ready now; where nothing is, the time-out is over at once."""
        if timeout is None:
            return super().select(None)
        ready = super().select(0)
        if not ready and timeout > 0:
            self._loop.advance(timeout)
        return ready


def run(main: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end in virtual time, as `asyncio.run` does in real time."""
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        return runner.run(main)
