"""An event loop whose time passes as soon as nothing else is to do: hours of waiting take no time.

Timers fire in the order of their times, and everything that is ready runs before the clock moves. So a test
with delays is as fast as one without, and as repeatable: no timing of the machine gets into it. Code that can
never go on is an error at once (`Standstill`) and not a test that hangs.

It is for code that waits by `asyncio` alone. Sockets, processes and threads do not know of this clock: while
they are at work it leaps over every timer, time-outs included.
"""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable, Coroutine
from concurrent.futures import Executor
from typing import Any, TypeVar, TypeVarTuple

from onetake.testing.errors import InvariantViolation

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


class Standstill(InvariantViolation):
    """Everything waits, and nothing is left that could wake anyone."""


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """A loop with a clock of its own, in seconds, from 0 on."""

    def __init__(self) -> None:
        self._now = 0.0
        self._threads = False
        super().__init__(_Jumping(self))

    def time(self) -> float:
        """The virtual time."""
        return self._now

    def advance(self, seconds: float) -> None:
        """Let the clock move on; timers that are due then run in the next round of the loop."""
        self._now += seconds

    def run_in_executor(
        self, executor: Executor | None, func: Callable[[*Ts], T], *args: *Ts
    ) -> asyncio.Future[T]:
        """Run a function in a thread, which from now on may wake the loop at any time."""
        self._threads = True
        return super().run_in_executor(executor, func, *args)


class _Jumping(selectors.DefaultSelector):
    """A selector that takes a time-out for a leap of the clock."""

    def __init__(self, loop: VirtualTimeLoop) -> None:
        super().__init__()
        self._loop = loop

    def select(self, timeout: float | None = None) -> Any:
        """Report what is ready now; where nothing is, the time-out is over at once."""
        ready = super().select(0)
        if ready:
            return ready
        if timeout is None:
            if len(self.get_map()) == 1 and not self._loop._threads:  # the one is how threads wake the loop
                raise Standstill(
                    f"everything waits, and no timer is set, at second {self._loop.time():g} of virtual time"
                )
            return super().select(None)
        if timeout > 0:
            self._loop.advance(timeout)
        return ready


def run(main: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end in virtual time, as `asyncio.run` does in real time.

    Raises Standstill when it can never end.
    """
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        return runner.run(main)
