"""The event loop of a sync manager's async ports."""

from __future__ import annotations

import asyncio
import threading

import pytest

from memman import StoreError
from memman.runtime.base import SummarizerTimeout
from memman.runtime.port_loop import PortLoop
from tests.patience import PATIENCE


async def name() -> str:
    await asyncio.sleep(0)
    return threading.current_thread().name


def test_one_thread_awaits_all() -> None:
    loop = PortLoop()
    assert {loop.wait(name()) for _ in range(3)} == {"memman-ports"}
    loop.end()


def test_late_awaitable_is_cancelled() -> None:
    loop, ended = PortLoop(), threading.Event()

    async def hang() -> None:
        try:
            await asyncio.sleep(10 * PATIENCE)
        finally:
            ended.set()

    with pytest.raises(SummarizerTimeout, match=r"longer than 0\.02 s"):
        loop.wait(hang(), 0.02)
    assert ended.wait(PATIENCE)
    loop.end()


def test_own_timeout_error_of_an_awaitable_is_raised() -> None:
    loop = PortLoop()

    async def fail() -> None:
        raise TimeoutError("the server's")

    with pytest.raises(TimeoutError, match="the server's"):
        loop.wait(fail(), PATIENCE)
    loop.end()


def test_ended_loop_refuses_and_closes_an_awaitable() -> None:
    loop = PortLoop()
    loop.wait(name())
    loop.end()
    loop.end()
    with pytest.raises(StoreError, match="was closed"):
        loop.wait(name())  # unawaited, it would warn


@pytest.mark.parametrize("attempt", range(20))
def test_end_never_leaves_a_caller_waiting(attempt: int) -> None:
    loop, outcomes = PortLoop(), []
    begun = threading.Barrier(5)

    async def hang() -> None:
        await asyncio.sleep(10 * PATIENCE)

    def call() -> None:
        begun.wait(PATIENCE)
        try:
            loop.wait(hang())
        except (StoreError, asyncio.CancelledError) as error:
            outcomes.append(error)

    threads = [threading.Thread(target=call, daemon=True) for _ in range(4)]
    for thread in threads:
        thread.start()
    begun.wait(PATIENCE)
    loop.end()
    for thread in threads:
        thread.join(PATIENCE)
    assert len(outcomes) == 4
