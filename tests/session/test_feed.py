"""Reading the log as it grows: page by page, and by iterators that wait for more."""

from __future__ import annotations

import asyncio
import gc
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from memman import AsyncMemoryManager, InvalidInput, MemoryManager, SessionNotFound, events
from memman.records import Added, Cleared
from tests.patience import PATIENCE

QUICK = (0.002, 0.01)


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "chat.db")


@pytest.fixture(params=["in memory", "in a file"])
def memory(request: pytest.FixtureRequest, path: str) -> Iterator[MemoryManager]:
    with MemoryManager(None if request.param == "in memory" else path) as manager:
        yield manager


def texts(items: Any) -> list[str]:
    return [item.record.entry.text for item in items if isinstance(item.record, Added)]


# ---------------------------------------------------------------- feed


def test_the_feed_of_a_session_goes_on_behind_a_seq_or_a_cursor(memory: MemoryManager) -> None:
    for number in range(5):
        memory.add_user_message("s", f"m{number}")
    memory.add_user_message("t", "other")
    items = memory.feed("s", limit=2)
    assert [(item.session_id, item.seq, item.cursor) for item in items] == [
        ("s", 1, "1"), ("s", 2, "2"),
    ]  # fmt: skip
    assert texts(memory.feed("s", after=3)) == ["m2", "m3", "m4"]
    assert memory.feed("s", after=items[-1].cursor) == memory.feed("s", after=2)
    assert memory.feed("s", after=6) == []


def test_feed_has_every_session_and_continues_at_a_cursor(
    memory: MemoryManager,
) -> None:
    memory.add_user_message("s", "one")
    memory.add_user_message("t", "two")
    first = memory.feed()
    assert sorted(texts(first)) == ["one", "two"]
    memory.clear_session("s")
    [cleared] = memory.feed(after=first[-1].cursor)
    assert (cleared.session_id, cleared.seq, type(cleared.record)) == ("s", 3, Cleared)
    assert memory.feed(limit=1) == first[:1]
    assert memory.feed(limit=10**30) == [*first, cleared]


def test_feed_of_a_missing_session_creates_nothing(
    memory: MemoryManager,
) -> None:
    with pytest.raises(SessionNotFound):
        memory.feed("s")
    assert memory.feed() == []
    assert memory.list_sessions() == []


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"session_id": "s", "after": 7}, "has 2 records and never had one behind 7"),
        ({"session_id": "s", "after": -1}, "after must be the seq"),
        ({"session_id": "s", "after": "1:1"}, "after must be the seq"),
        ({"session_id": "s", "after": True}, "after must be the seq"),
        ({"session_id": "s", "after": None}, "after must be the seq"),
        ({"session_id": "\ud800"}, "session_id"),
        ({"after": 1}, "pass its session_id too"),
        ({"after": "x"}, "not a cursor of the feed"),
        ({"after": "9:9:9"}, "not a cursor of the feed"),
        ({"after": "9" * 5_000}, "not a cursor of the feed"),
        ({"after": "9" * 400 + ":1"}, "not a cursor of the feed"),
        ({"session_id": "s", "after": "9" * 5_000}, "after must be the seq"),
        ({"session_id": "s", "after": 10**30}, "has 2 records"),
        ({"limit": 0}, "limit must be"),
        ({"limit": True}, "limit must be"),
        ({"limit": "5"}, "limit must be"),
    ],
)
def test_bad_cursor_or_limit_error_has_the_remedy(
    memory: MemoryManager, given: Any, message: str
) -> None:
    memory.add_user_message("s", "one")
    with pytest.raises(InvalidInput, match=message):
        memory.feed(**given)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"poll": 1}, "poll must be"),
        ({"poll": (0, 1)}, "poll must be"),
        ({"poll": (2, 1)}, "poll must be"),
        ({"poll": (0.1, "1")}, "poll must be"),
        ({"poll": (0.1, float("nan"))}, "poll must be"),
        ({"timeout": -1}, "timeout must be"),
        ({"timeout": "soon"}, "timeout must be"),
        ({"after": 1}, "pass its session_id too"),
        ({"session_id": "s", "after": "x"}, "after must be the seq"),
    ],
)
def test_follow_checks_its_arguments_at_once(
    memory: MemoryManager, given: Any, message: str
) -> None:
    with pytest.raises(InvalidInput, match=message):
        memory.follow(**given)


# ---------------------------------------------------------------- follow


def test_follow_yields_old_and_new_records_until_its_timeout(
    memory: MemoryManager,
) -> None:
    memory.add_user_message("s", "one")
    seen = []
    for item in memory.follow(poll=QUICK, timeout=0.05):
        seen.append(item)
        if 2 <= len(seen) < 5:
            memory.add_user_message("s", f"after {len(seen) - 1}")
    assert texts(seen) == ["one", "after 1", "after 2", "after 3"]
    assert [item.seq for item in seen] == [1, 2, 3, 4, 5]
    assert texts(memory.follow(after=seen[2].cursor, timeout=0)) == ["after 2", "after 3"]
    assert texts(memory.follow("s", after=4, timeout=0)) == ["after 3"]


def test_a_page_does_not_end_a_long_log(memory: MemoryManager) -> None:
    memory.update_config(auto_compress=False)
    memory.add_messages("s", [{"role": "user", "content": f"m{n}"} for n in range(1_203)])
    assert [item.seq for item in memory.follow(timeout=0)] == list(range(1, 1_205))
    assert [item.seq for item in memory.follow("s", timeout=0)] == list(range(1, 1_205))


def test_follow_yields_records_of_another_manager(path: str) -> None:
    with MemoryManager(path) as writer, MemoryManager(path) as reader:
        items = reader.follow(poll=QUICK, timeout=PATIENCE)
        writer.add_user_message("s", "first")
        assert texts([next(items), next(items)]) == ["first"]
        for number in range(5):
            writer.add_user_message("s", f"m{number}")
            assert texts([next(items)]) == [f"m{number}"]
        items.close()


def test_a_session_that_is_not_there_yet_is_waited_for(path: str) -> None:
    with MemoryManager(path) as writer, MemoryManager(path) as reader:
        items = reader.follow("s", poll=QUICK, timeout=PATIENCE)
        timer = threading.Timer(0.05, lambda: writer.add_user_message("s", "hello"))
        timer.start()
        assert texts([next(items), next(items)]) == ["hello"]
        timer.join()
        writer.delete_session("s")
        with pytest.raises(SessionNotFound):
            next(items)


def test_follow_of_a_recreated_session_raises(path: str) -> None:
    with MemoryManager(path) as memory:
        memory.add_messages("s", [{"role": "user", "content": "x"}] * 3)
        items = memory.follow("s", poll=QUICK, timeout=PATIENCE)
        assert [next(items).seq for _ in range(4)] == [1, 2, 3, 4]
        memory.delete_session("s")
        memory.add_user_message("s", "anew")
        with pytest.raises(InvalidInput, match="created again"):
            next(items)


def test_record_of_this_manager_ends_a_pause(memory: MemoryManager) -> None:
    memory.add_user_message("s", "one")
    items = memory.follow(poll=(600.0, 600.0))
    assert texts([next(items), next(items)]) == ["one"]
    threading.Timer(0.05, lambda: memory.add_user_message("s", "two")).start()
    began = time.monotonic()
    assert texts([next(items)]) == ["two"]
    assert time.monotonic() - began < PATIENCE
    items.close()


def test_pause_grows_without_new_records(
    memory: MemoryManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses: list[float] = []

    class Enough(Exception):
        pass

    async def wait(flag: Any, seconds: float) -> bool:
        pauses.append(seconds)
        if len(pauses) == 6:
            raise Enough
        return False

    monkeypatch.setattr(memory._core.shared.runtime, "wait", wait)
    with pytest.raises(Enough):
        next(memory.follow(poll=(0.01, 0.08)))
    assert pauses == [0.01, 0.02, 0.04, 0.08, 0.08, 0.08]


def test_close_ends_followers(memory: MemoryManager) -> None:
    memory.add_user_message("s", "one")
    seen: list[str] = []
    thread = threading.Thread(
        target=lambda: seen.extend(texts(memory.follow(poll=(600.0, 600.0)))), daemon=True
    )
    thread.start()
    deadline = time.monotonic() + PATIENCE
    while not memory._core.shared.flags:
        assert time.monotonic() < deadline
        time.sleep(0.001)
    time.sleep(0.02)
    memory.close()
    thread.join(PATIENCE)
    assert not thread.is_alive()
    assert seen == ["one"]


def test_closed_or_dropped_iterator_leaves_nothing(
    memory: MemoryManager,
) -> None:
    memory.add_user_message("s", "one")
    before = len(events.entry_added.receivers)
    closed, forgotten = memory.follow(), memory.follow()
    next(closed), next(forgotten)
    assert len(events.entry_added.receivers) == before + 2
    closed.close()
    del forgotten
    gc.collect()
    assert len(events.entry_added.receivers) == before
    assert memory._core.shared.flags == set()


def test_several_threads_follow_one_manager_that_others_write_to(memory: MemoryManager) -> None:
    """A wait holds no lock: writers of the same manager continue."""
    seen: list[list[Any]] = [[], []]

    def follow(own: list[Any]) -> None:
        for item in memory.follow(poll=QUICK, timeout=PATIENCE):
            own.append((item.session_id, item.seq))
            if len(own) == 93:
                return

    def write(name: str) -> None:
        for number in range(30):
            memory.add_user_message(name, f"m{number}")

    threads = [threading.Thread(target=follow, args=(own,)) for own in seen]
    threads += [threading.Thread(target=write, args=(name,)) for name in "abc"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE * 2)
        assert not thread.is_alive()
    for own in seen:
        for name in "abc":
            assert [seq for session, seq in own if session == name] == list(range(1, 32))


# ---------------------------------------------------------------- the async manager


def test_async_follow_does_not_block_the_loop(path: str) -> None:
    async def talk() -> tuple[list[str], int]:
        ticks = 0

        async def tick() -> None:
            nonlocal ticks
            while True:
                await asyncio.sleep(0.005)
                ticks += 1

        async with AsyncMemoryManager(path) as memory:
            ticking = asyncio.ensure_future(tick())
            seen = []
            await memory.add_user_message("s", "m0")
            async for item in memory.follow(poll=(0.05, 0.05), timeout=PATIENCE):
                seen.append(item)
                if len(seen) == 6:
                    break
                if len(seen) == 1:
                    continue
                asyncio.get_running_loop().call_later(
                    0.03, asyncio.ensure_future, memory.add_user_message("s", f"m{len(seen) - 1}")
                )
            ticking.cancel()
            return texts(seen), ticks

    seen, ticks = asyncio.run(talk())
    assert seen == [f"m{number}" for number in range(5)]
    assert ticks >= 8


def test_async_follow_ends_by_close_timeout_or_cancellation(path: str) -> None:
    async def talk() -> list[list[str]]:
        memory = AsyncMemoryManager(path)
        await memory.add_user_message("s", "one")

        async def followed(**given: Any) -> list[str]:
            return texts([item async for item in memory.follow("s", **given)])

        until_timeout = await followed(poll=QUICK, timeout=0.02)
        cancelled = asyncio.ensure_future(followed(poll=(600.0, 600.0)))
        await asyncio.sleep(0.05)
        cancelled.cancel()
        with pytest.raises(asyncio.CancelledError):
            await cancelled
        assert memory._core.shared.flags == set()
        until_close = asyncio.ensure_future(followed(poll=(600.0, 600.0)))
        await asyncio.sleep(0.05)
        await memory.close()
        return [until_timeout, await asyncio.wait_for(until_close, PATIENCE)]

    assert asyncio.run(talk()) == [["one"], ["one"]]


def test_both_managers_read_the_same_feed(path: str) -> None:
    with MemoryManager(path) as memory:
        for number in range(4):
            memory.add_user_message(f"s{number % 2}", f"m{number}")
        whole, one = memory.feed(), memory.feed("s1")

    async def read() -> Any:
        async with AsyncMemoryManager(path) as memory:
            with pytest.raises(InvalidInput):
                await memory.feed(after="x")
            return await memory.feed(), await memory.feed("s1")

    assert asyncio.run(read()) == (whole, one)
