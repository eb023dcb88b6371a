"""Waiting for work in the background."""

from __future__ import annotations

import asyncio
import threading

from memman import AsyncMemoryManager, MemoryManager


def test_wait_ends_with_the_work():
    go, done = threading.Event(), []

    async def work() -> None:
        go.wait(10)
        done.append(1)

    with MemoryManager() as memory:
        assert memory.wait_for_background()
        memory._runtime.start_background(work)
        assert not memory.wait_for_background(0.01)
        go.set()
        assert memory.wait_for_background(10)
        assert done == [1]


def test_wait_has_work_that_other_work_starts():
    done = []
    with MemoryManager() as memory:

        async def first() -> None:
            memory._runtime.start_background(second)

        async def second() -> None:
            done.append(2)

        memory._runtime.start_background(first)
        assert memory.wait_for_background(10)
        assert done == [2]


def test_wait_of_an_async_manager_ends_with_the_work():
    async def main() -> list[bool]:
        go = asyncio.Event()
        async with AsyncMemoryManager() as memory:
            found = [await memory.wait_for_background()]
            memory._core.runtime.start_background(go.wait)
            found.append(await memory.wait_for_background(0.01))
            go.set()
            return [*found, await memory.wait_for_background(10)]

    assert asyncio.run(main()) == [True, False, True]
