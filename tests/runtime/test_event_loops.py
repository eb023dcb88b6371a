"""An async manager belongs to one event loop at a time, and raises instead of hanging."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest

from memman import AsyncMemoryManager, MemoryConfig, WrongEventLoop
from tests.patience import PATIENCE


@pytest.fixture(params=["memory", "file"])
def memory(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncMemoryManager:
    return AsyncMemoryManager(
        None if request.param == "memory" else tmp_path / "chat.db",
        config=MemoryConfig(max_tokens=2_000),
        counter="chars4",
    )


def test_second_loop_gets_a_typed_error_at_once(memory: AsyncMemoryManager) -> None:
    outcomes: list[Any] = []

    async def use() -> None:
        for verb in (
            memory.add_user_message("s", "x"),
            memory.build_context("s"),
            memory.compress("s"),
            memory.list_sessions(),
            memory.close(),
        ):
            try:
                outcomes.append(await verb)
            except WrongEventLoop as error:
                outcomes.append(str(error))

    async def main() -> None:
        await memory.add_user_message("s", "first")
        await asyncio.to_thread(asyncio.run, use())
        assert len(outcomes) == 5
        assert all("use MemoryManager" in outcome for outcome in outcomes)
        await memory.add_user_message("s", "second")
        assert [entry.text for entry in await memory.get_entries("s")] == ["first", "second"]
        await memory.close()

    asyncio.run(asyncio.wait_for(main(), PATIENCE))


def test_three_loops_at_once_never_hang(memory: AsyncMemoryManager) -> None:
    added, refused = [], []
    begun = threading.Barrier(3)

    async def work() -> None:
        for number in range(50):
            try:
                added.append(await memory.add_user_message("s", f"word {number} " * 40))
            except WrongEventLoop as error:
                refused.append(error)
            if not number:
                await asyncio.to_thread(begun.wait, PATIENCE)

    threads = [threading.Thread(target=lambda: asyncio.run(work()), daemon=True) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    assert not any(thread.is_alive() for thread in threads)
    assert len(added) + len(refused) == 150
    assert len(added) >= 50

    async def check() -> list[str]:
        return [entry.id for entry in await memory.get_entries("s")]

    assert asyncio.run(check()) == [entry.id for entry in added]


def test_one_loop_after_another_works(memory: AsyncMemoryManager) -> None:
    async def work() -> None:
        await asyncio.gather(
            *(memory.add_user_message("s", f"word {n} " * 40) for n in range(20)),
            memory.compress("s") if memory_has_entries else asyncio.sleep(0),
        )

    memory_has_entries = False
    for _ in range(10):
        asyncio.run(work())
        memory_has_entries = True

    async def check() -> int:
        entries = await memory.get_entries("s")
        await memory.close()
        return len(entries)

    assert asyncio.run(check()) == 200


def test_loop_that_ends_inside_an_add_leaves_no_lock(memory: AsyncMemoryManager) -> None:
    async def leave() -> None:
        tasks.extend(
            asyncio.ensure_future(memory.add_user_message("s", f"left {n}")) for n in range(20)
        )
        await asyncio.sleep(0)

    async def go_on() -> None:
        await asyncio.gather(*(memory.add_user_message("s", f"later {n}") for n in range(20)))
        texts = [entry.text for entry in await memory.get_entries("s")]
        assert sum(text.startswith("later") for text in texts) == 20
        await memory.close()

    tasks: list[Any] = []
    asyncio.run(leave())
    asyncio.run(asyncio.wait_for(go_on(), PATIENCE))


def test_without_asyncio_the_error_names_the_way_out(memory: AsyncMemoryManager) -> None:
    adding = memory.add_user_message("s", "x")
    with pytest.raises(WrongEventLoop, match=r"trio.*MemoryManager"):
        adding.send(None)  # as under trio: asyncio has no running event loop
