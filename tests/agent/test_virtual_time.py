"""Virtual time: waiting takes none, order and clock are right, and what can never end is an error."""

from __future__ import annotations

import asyncio
import threading

import pytest

from onetake.testing.virtual_time import Standstill, VirtualTimeLoop, run


def test_timers_fire_in_order_and_the_clock_says_when() -> None:
    async def main() -> list[tuple[str, float]]:
        loop = asyncio.get_running_loop()
        seen: list[tuple[str, float]] = []

        async def late(name: str, seconds: float) -> None:
            await asyncio.sleep(seconds)
            seen.append((name, loop.time()))

        await asyncio.gather(late("week", 7 * 86400), late("day", 86400), late("now", 0))
        return seen

    assert run(main()) == [("now", 0.0), ("day", 86400.0), ("week", 604800.0)]


def test_a_time_out_is_over_at_once() -> None:
    async def main() -> float:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(asyncio.Event().wait(), 3600)
        return asyncio.get_running_loop().time()

    assert run(main()) == 3600.0


def test_waiting_for_what_never_comes_is_an_error_and_no_hang() -> None:
    async def main() -> None:
        await asyncio.sleep(5)
        await asyncio.Event().wait()

    with pytest.raises(Standstill, match="no timer is set, at second 5 of virtual time"):
        run(main())


def test_a_thread_is_waited_for() -> None:
    async def main() -> bool:
        begun = threading.Event()
        asyncio.get_running_loop().call_later(5, begun.set)
        return await asyncio.to_thread(begun.wait)

    assert run(main())


def test_a_loop_may_be_run_piece_by_piece() -> None:
    loop = VirtualTimeLoop()
    fired: list[float] = []
    loop.call_later(2, lambda: fired.append(loop.time()))
    loop.run_until_complete(asyncio.sleep(1))
    assert fired == []
    loop.run_until_complete(asyncio.sleep(1))
    loop.close()
    assert fired == [2.0]
