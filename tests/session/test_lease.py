"""Leases: workers of one store pay for one summary of a session; only the cost depends on them."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from memman import AsyncMemoryManager, CompressionFailed, MemoryConfig, StoreError
from memman.session import lease
from memman.stores import MemoryStore, SQLiteStore
from memman.testing import Delayed
from tests.apis import SESSION, AsyncUse, SyncUse, words
from tests.patience import PATIENCE

NOISE = "word " * 9


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "chat.db")


@pytest.fixture(params=[SyncUse, AsyncUse], ids=["sync", "async"])
def use(request: pytest.FixtureRequest) -> Iterator[Any]:
    made: list[Any] = []

    def make(*replies: Any, **settings: Any) -> Any:
        one = request.param(*replies, **{"auto_compress": False, **settings})
        made.append(one)
        return one

    yield make
    for one in made:
        one.close()
        one.end()


def fill(use: Any, count: int = 8, **keywords: Any) -> None:
    for number in range(count):
        use.do("add_user_message", f"{number} {NOISE}", **keywords)


def holder(path: str) -> Any:
    with closing(SQLiteStore(path)) as store:
        assert store._open is not None
        return store._open.execute("SELECT lease_holder FROM session").fetchone()[0]


def opened(one: Any, gate: Any) -> None:
    loop = getattr(one, "loop", None)
    gate.set() if loop is None else loop.call_soon(gate.set)


def test_two_managers_on_one_file_pay_for_one_summary(use: Any, path: str) -> None:
    first, second = use("a summary", store=path), use("another summary", store=path)
    fill(first)
    gate = first.gate()
    slow = first.script(Delayed("a summary", gate))
    first.swap(slow)
    answer = first.begin("compress")
    first.until(lambda: len(slow.requests) == 1)
    aside = second.do("compress")
    assert aside.compression_id is None
    assert "another worker is summarizing this session" in aside.reason
    opened(first, gate)
    assert answer().compression_id is not None
    assert (len(slow.requests), second.asked) == (1, 0)
    assert any("a summary" in entry.text for entry in second.do("get_active_entries"))
    assert holder(path) is None


def test_lease_of_a_cancelled_task_is_released(path: str) -> None:
    requested, go = threading.Event(), threading.Event()
    config = MemoryConfig(
        auto_compress=False, max_tokens=2_000, recent_window=2, min_entries_to_compress=2
    )

    class SlowToLend(SQLiteStore):
        def lease(self, session_id: str, holder: str, seconds: float) -> bool:
            if seconds:
                requested.set()
                go.wait(PATIENCE)
            return super().lease(session_id, holder, seconds)

    async def work() -> None:
        memory = AsyncMemoryManager(
            SlowToLend(path), config=config, summarizer=lambda _: "short", counter=words
        )
        for number in range(12):
            await memory.add_user_message(SESSION, f"{number} " + 4 * NOISE)
        task = asyncio.ensure_future(memory.compress(SESSION, target_tokens=300))
        assert await asyncio.to_thread(requested.wait, PATIENCE)
        task.cancel()
        await asyncio.sleep(0.05)
        go.set()
        with pytest.raises(asyncio.CancelledError):
            await task
        await memory.close()

    asyncio.run(work())
    assert holder(path) is None


def test_automatic_compression_yields_and_the_window_shrinks(use: Any, path: str) -> None:
    first, second = use("a summary", store=path), use("never", store=path, auto_compress=True)
    fill(first)
    gate = first.gate()
    slow = first.script(Delayed("a summary", gate))
    first.swap(slow)
    answer = first.begin("compress")
    first.until(lambda: len(slow.requests) == 1)
    fill(second, 3)
    assert second.asked == 0
    assert second.do("explain").summarizer is not None
    context = second.do("build_context")
    assert context.tokens.tokens <= context.budget, "it trims a copy meanwhile"
    opened(first, gate)
    assert answer().compression_id is not None
    assert second.asked == 0


@pytest.mark.parametrize("replies", [(ValueError("no"),), ("",)])
def test_a_lease_is_given_back_after_a_failure(use: Any, path: str, replies: Any) -> None:
    one = use(*replies, store=path, on_failure="raise")
    fill(one)
    with pytest.raises(CompressionFailed):
        one.do("compress")
    assert one.asked >= 1
    assert holder(path) is None


def test_a_lease_is_given_back_when_the_call_is_cancelled(path: str) -> None:
    one = AsyncUse("never", store=path, auto_compress=False)
    fill(one)
    waiting = AsyncUse.script(Delayed("late", one.gate()))
    one.swap(waiting)

    async def cancelled() -> None:
        task = asyncio.ensure_future(one.memory.compress(SESSION))
        while not waiting.requests:  # noqa: ASYNC110 - the script knows no event
            await asyncio.sleep(0.001)
        assert await asyncio.to_thread(holder, path) is not None
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    one._run(cancelled())
    assert holder(path) is None
    one.close()
    one.end()


def test_a_crashed_holder_is_waited_for_no_longer_than_its_lease(use: Any, path: str) -> None:
    one = use("a summary", store=path)
    fill(one)
    with closing(SQLiteStore(path)) as store:
        assert store.lease(SESSION, "a worker that died", 0.2)
        assert one.do("compress").compression_id is None
        one.until(lambda: not store.lease(SESSION, "", 0) and one.do("compress").compression_id)
    assert one.asked == 1


def test_lease_lasts_longer_than_its_call(
    use: Any, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken: list[float] = []

    class Noting(SQLiteStore):
        def lease(self, session_id: str, holder: str, seconds: float) -> bool:
            taken.append(seconds)
            return super().lease(session_id, holder, seconds)

    one = use("a summary", store=Noting(path), summarize_timeout=7)
    fill(one)
    one.do("compress")
    assert taken == [7 + lease._MARGIN, 0]
    fill(one)
    one.do("update_config", session=SESSION, summarize_timeout=None)
    one.do("compress")
    assert taken[2] >= 600


def test_no_lease_without_a_call_or_a_shared_store(use: Any, path: str) -> None:
    class Refusing(SQLiteStore):
        def lease(self, session_id: str, holder: str, seconds: float) -> bool:
            raise AssertionError("nobody should ask for a lease")

    alone = use("a summary", store=Refusing(path), exclusive=True)
    fill(alone)
    assert alone.do("compress").summary_id is not None
    without = use(store=Refusing(path + "2"))
    without.swap(None)
    fill(without)
    without.do("plan_compression")
    assert without.do("compress").compression_id is not None


class AlwaysTrue(SQLiteStore):
    """A store that grants every lease."""

    def lease(self, session_id: str, holder: str, seconds: float) -> bool:
        return True


def test_lease_held_by_all_costs_money_only(use: Any, path: str) -> None:
    first, second = use("one", store=AlwaysTrue(path)), use("two", store=AlwaysTrue(path))
    fill(first)
    gate = first.gate()
    slow = first.script(Delayed("one", gate))
    first.swap(slow)
    answer = first.begin("compress")
    first.until(lambda: len(slow.requests) == 1)
    assert second.do("compress").compression_id is not None
    opened(first, gate)
    late = answer()
    assert late.compression_id is None, "the window was compressed by the other"
    assert len(second.do("get_summaries")) == 1
    assert len(first.do("get_entries")) == 8
    assert first.do("get_active_entries") == second.do("get_active_entries")


def test_summary_made_elsewhere_is_not_paid_again(use: Any, path: str) -> None:
    """The lease is free again, and the planned window has changed."""
    other = use("the other's", store=path)

    class Late(SQLiteStore):
        def lease(self, session_id: str, holder: str, seconds: float) -> bool:
            if seconds and not other.asked and not late.busy:
                late.busy = True
                with closing(SQLiteStore(path)) as store:
                    state = store.state(session_id)
                    assert state is not None
                compress_elsewhere()
            return super().lease(session_id, holder, seconds)

    late = use("never", store=Late(path))
    late.busy = False
    fill(late)

    def compress_elsewhere() -> None:
        elsewhere = SyncUse("the other's", store=path, auto_compress=False)
        thread = threading.Thread(target=lambda: elsewhere.do("compress"))
        thread.start()
        thread.join()
        assert elsewhere.asked == 1
        elsewhere.close()

    result = late.do("compress")
    assert (late.asked, result.compression_id) == (0, None)
    assert "every entry is recent or protected" in result.reason


def test_lease_that_cannot_be_released_is_logged_and_expires(
    use: Any, path: str, caplog: pytest.LogCaptureFixture
) -> None:
    class Failing(SQLiteStore):
        def lease(self, session_id: str, holder: str, seconds: float) -> bool:
            if not seconds:
                raise StoreError("the file is away")
            return super().lease(session_id, holder, seconds)

    one = use("a summary", store=Failing(path))
    fill(one)
    with caplog.at_level(logging.WARNING, "memman"):
        assert one.do("compress").compression_id is not None
    assert "a lease of session s will expire by itself: the file is away" in caplog.text


def test_shared_memory_store_has_leases_too(use: Any) -> None:
    store = MemoryStore()
    one = use("a summary", store=store)
    fill(one)
    assert store.lease(SESSION, "somebody", 60)
    assert "another worker" in one.do("compress").reason
    assert one.asked == 0
