"""Cancelling a turn at exactly the places where it may be cancelled.

A turn has stretches that must not be torn (a result and its row) and stretches that may end at any moment (a
model stream, running tools). Only the latter run as tasks of their own, under `guard`; a cancellation ends
that task and nothing else, so the loop always gets to write down how things ended.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class Interrupted(Exception):
    """The guarded work was cancelled by `Interrupt.trigger`."""


class Interrupt:
    """The cancellation of one turn: not triggered, or triggered with a reason."""

    def __init__(self) -> None:
        self.reason: dict[str, Any] | None = None
        self._work: asyncio.Task[Any] | None = None

    def trigger(self, reason: dict[str, Any]) -> None:
        """Cancel the turn; the first reason counts."""
        if self.reason is None:
            self.reason = reason
            if self._work is not None:
                self._work.cancel()

    async def guard(self, work: Coroutine[Any, Any, T]) -> T:
        """Run interruptible work to its end and return its result, or raise what it raised.

        Raises Interrupted when the turn is cancelled before or while it runs. Work that finishes in spite of
        that keeps its result; the caller sees the cancellation in `reason`.
        """
        if self.reason is not None:
            work.close()
            raise Interrupted
        task: asyncio.Task[T] = asyncio.create_task(work)
        self._work = task
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError:
            task.cancel()
            await asyncio.wait({task})
            raise
        finally:
            self._work = None
        if not task.cancelled():
            return task.result()
        if self.reason is None:
            raise RuntimeError("the work cancelled itself although nobody asked for it")
        raise Interrupted
