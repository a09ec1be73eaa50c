"""Futures completed by threads and awaited in an event loop."""

from __future__ import annotations

import asyncio
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from eos.client._event_loop import LoopWakeup
from eos.errors import ConnectionLost


def test_futures_that_end_together_wake_the_loop_once():
    async def run() -> tuple[list[int], int]:
        woken, loop, calls = LoopWakeup(), asyncio.get_running_loop(), 0
        threadsafe = loop.call_soon_threadsafe

        def counted(*args):
            nonlocal calls
            calls += 1
            return threadsafe(*args)

        loop.call_soon_threadsafe = counted
        working = [Future() for _ in range(100)]
        awaited = [woken.wrap(one) for one in working]
        for number, one in enumerate(working):
            one.set_result(number)
        found = await asyncio.gather(*awaited)
        late: Future[int] = Future()
        later = woken.wrap(late)
        late.set_result(100)
        return [*found, await later], calls

    assert asyncio.run(run()) == (list(range(101)), 2)


def test_an_error_goes_to_its_own_waiter_and_a_cancelled_one_disturbs_nobody():
    async def run() -> str:
        woken = LoopWakeup()
        failing, unwanted, good = Future(), Future(), Future()
        waits = [woken.wrap(one) for one in (failing, unwanted, good)]
        waits[1].cancel()
        with ThreadPoolExecutor(1) as pool:
            pool.submit(failing.set_exception, ConnectionLost("gone"))
            pool.submit(unwanted.set_result, "unwanted")
            pool.submit(good.set_result, "good")
        with pytest.raises(ConnectionLost, match="gone"):
            await waits[0]
        assert not unwanted.cancelled()
        return await waits[2]

    assert asyncio.run(run()) == "good"


def test_what_ends_when_the_loop_is_closed_is_ended_quietly():
    working: Future[str] = Future()

    async def run() -> None:
        LoopWakeup().wrap(working)

    asyncio.run(run())
    working.set_result("late")
    assert working.result() == "late"
