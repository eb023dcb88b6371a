"""After a fork during work in threads, the child's managers work and never hang."""

from __future__ import annotations

import asyncio
import faulthandler
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from memman import AsyncMemoryManager, MemoryConfig, MemoryManager
from memman.stores import MemoryStore
from tests.patience import PATIENCE

pytestmark = [
    pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork"),
    pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning"),
]
FORKS = 8


def forked(work: Callable[[], Any]) -> None:
    """Run `work` in a forked child; fail if it raises or hangs."""
    child = os.fork()
    if not child:
        status = 1
        faulthandler.dump_traceback_later(0.8 * PATIENCE)  # of a child that hangs, into the report
        try:
            work()
            status = 0
        finally:
            os._exit(status)
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            assert os.waitstatus_to_exitcode(status) == 0
            return
        time.sleep(0.002)
    os.kill(child, 9)
    os.waitpid(child, 0)
    pytest.fail("the child hangs")


@contextmanager
def busy(work: Callable[[], Any]) -> Iterator[None]:
    """Repeat `work` in a thread."""
    ended = threading.Event()

    def repeat() -> None:
        while not ended.is_set():
            work()

    thread = threading.Thread(target=repeat, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join(PATIENCE)


@pytest.fixture(params=["memory", "file"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Path | None:
    return None if request.param == "memory" else tmp_path / "chat.db"


def made(store: Path | None) -> MemoryManager:
    return MemoryManager(store, config=MemoryConfig(max_tokens=2_000), counter="chars4")


def test_child_works_with_the_managers_of_its_parent(store: Path | None) -> None:
    memory = made(store)
    memory.add_user_message("s", "first")

    def in_child() -> None:
        added = memory.add_user_message("s", "from the child")
        assert memory.get_entry("s", added.id).text == "from the child"
        assert memory.count_tokens("some text", system="a prompt").tokens
        memory.build_context("s", tools=[{"name": "a"}])
        memory.compress("s")
        memory.update_config(recent_window=3)
        memory.close()

    def work() -> None:
        memory.add_user_message("s", "beside " * 20)
        memory.count_tokens("a text", system="a prompt")

    with busy(work):
        for _ in range(FORKS):
            time.sleep(0.005)
            forked(in_child)
    memory.close()


def test_child_works_with_a_manager_of_its_own(store: Path | None) -> None:
    parents = made(None)

    def in_child() -> None:
        with made(store) as memory:
            memory.add_user_message("child", "from the child")

    with busy(lambda: parents.add_user_message("s", "beside")):
        for _ in range(FORKS):
            time.sleep(0.002)
            forked(in_child)
    if store is not None:
        with made(store) as memory:
            ids = [entry.id for entry in memory.get_entries("child")]
        assert len(set(ids)) == FORKS


def test_child_needs_no_lock_that_a_thread_of_the_parent_held() -> None:
    class Slow(MemoryStore):
        def append(self, *args: Any, **keywords: Any) -> Any:
            if threading.current_thread() is not threading.main_thread():
                inside.set()
                going.wait(PATIENCE)
            return super().append(*args, **keywords)

    inside, going = threading.Event(), threading.Event()
    memory = MemoryManager(Slow())
    memory.add_user_message("s", "first")
    thread = threading.Thread(target=lambda: memory.add_user_message("s", "slow"), daemon=True)
    thread.start()
    assert inside.wait(PATIENCE)
    forked(lambda: memory.add_user_message("s", "from the child"))
    going.set()
    thread.join(PATIENCE)
    assert [entry.text for entry in memory.get_entries("s")] == ["first", "slow"]


def test_child_emits_only_its_own_events() -> None:
    def receive(event: Any) -> None:
        heard.append(event.entry.text)
        if event.entry.text == "one":
            inside.set()
            going.wait(PATIENCE)

    heard: list[str] = []
    inside, going = threading.Event(), threading.Event()
    memory = MemoryManager()
    memory.on("entry_added", receive)
    thread = threading.Thread(target=lambda: memory.add_user_message("s", "one"), daemon=True)
    thread.start()
    assert inside.wait(PATIENCE)

    def in_child() -> None:
        heard.clear()
        memory.add_user_message("s", "of the child")
        assert heard == ["of the child"]

    forked(in_child)
    going.set()
    thread.join(PATIENCE)
    assert heard == ["one"]


def test_forked_child_uses_the_async_manager_in_its_loop(tmp_path: Path) -> None:
    async def main() -> None:
        memory = AsyncMemoryManager(tmp_path / "chat.db")
        await memory.add_user_message("s", "one")
        await asyncio.to_thread(
            forked, lambda: asyncio.run(memory.add_user_message("s", "of the child"))
        )
        assert [entry.text for entry in await memory.get_entries("s")] == ["one", "of the child"]
        await memory.close()

    asyncio.run(main())
