"""The number of sessions in memory is bounded, and unloading loses nothing."""

from __future__ import annotations

import asyncio
import gc
import threading
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memman import AsyncMemoryManager, InvalidInput, MemoryConfig, MemoryManager, events
from memman.testing import FakeClock, record_events, sequential_ids
from tests.examples import examples


def live_in(memory: Any) -> list[str]:
    return sorted(session.id for session in memory._core.sessions)


def manager(**given: Any) -> MemoryManager:
    return MemoryManager(counter="chars4", config=MemoryConfig(**given))


def test_least_recently_used_session_is_evicted_losslessly() -> None:
    memory = manager(max_sessions=2)
    memory.add_user_message("a", "first of a")
    memory.add_user_message("b", "first of b")
    memory.add_user_message("a", "second of a")
    memory.add_user_message("c", "first of c")
    assert live_in(memory) == ["a", "c"]
    assert [entry.text for entry in memory.get_entries("b")] == ["first of b"]
    assert sorted(info.session_id for info in memory.list_sessions()) == ["a", "b", "c"]


def test_eviction_emits_an_event() -> None:
    memory = manager(max_sessions=1)
    with record_events(memory, [events.SessionEvicted]) as emitted:
        memory.add_user_message("a", "x")
        memory.add_user_message("b", "x")
    assert emitted == [events.SessionEvicted(session_id="a")]


def test_evicted_session_in_use_stays_unique() -> None:
    begun: list[str] = []

    def count(text: str) -> int:
        if text == "second" and not begun:  # counted before the session is in use
            begun.append(text)
            other = threading.Thread(target=between)
            other.start()
            other.join()
        return 1

    def between() -> None:
        memory.add_user_message("b", "x")
        assert live_in(memory) == ["b"]
        assert len(memory.get_active_entries("a")) == 1

    memory = MemoryManager(counter=count, config=MemoryConfig(max_sessions=1))
    memory.add_user_message("a", "first")
    memory.add_user_message("a", "second")
    assert [entry.text for entry in memory.get_active_entries("a")] == ["first", "second"]


def test_evicted_session_is_freed() -> None:
    memory = manager(max_sessions=1)
    gc.collect()
    gc.disable()
    try:
        for name in "abc":
            memory.add_user_message(name, "x")
            memory.build_context(name)
        assert [session.id for session in memory._core.sessions] == ["c"]
        assert not memory._core.sessions._evicted
    finally:
        gc.enable()


def test_max_live_bytes_evicts_the_least_recently_used() -> None:
    memory = manager(max_live_bytes=400_000, max_tokens=10**9, max_entries=None)
    for number in range(64):
        memory.add_user_message(f"s{number:02}", "x" * 40_000)
    live = live_in(memory)
    assert 1 <= len(live) <= 20, "looked at every 32 openings"
    assert live[-1] == "s63"
    assert memory.get_stats("s00").total_tokens == 10_000


def test_expired_session_is_evicted_at_the_next_open() -> None:
    clock = FakeClock()
    memory = MemoryManager(config=MemoryConfig(session_ttl=60, max_sessions=40), clock=clock)
    memory.add_user_message("old", "x")
    memory.add_user_message("used", "x")
    clock.advance(timedelta(seconds=90))
    memory.add_user_message("used", "y")
    for number in range(32):  # the bound is checked every so many openings
        memory.add_user_message(f"s{number}", "x")
    live = live_in(memory)
    assert "old" not in live
    assert "used" in live


def test_a_session_in_the_middle_of_a_summary_stays() -> None:
    seen: list[list[str]] = []

    def summarizer(_prompt: str) -> str:
        for number in range(5):
            memory.add_user_message(f"other{number}", "x")
        seen.append(live_in(memory))
        return "a summary"

    memory = MemoryManager(
        counter="chars4",
        summarizer=summarizer,
        config=MemoryConfig(max_sessions=2, max_tokens=300, recent_window=2, max_entries=None),
    )
    for number in range(40):
        memory.add_user_message("long", f"message {number} " + "word " * 10)
    assert seen
    assert all("long" in live for live in seen)
    assert len(memory.get_entries("long")) == 40


def test_sessions_of_a_file_are_evicted_and_reloaded(tmp_path: Path) -> None:
    config = MemoryConfig(max_sessions=3)
    with MemoryManager(tmp_path / "chat.db", counter="chars4", config=config) as memory:
        for turn in range(3):
            for number in range(10):
                memory.add_user_message(f"s{number}", f"turn {turn}")
        assert len(live_in(memory)) <= 3
        for number in range(10):
            texts = [entry.text for entry in memory.get_active_entries(f"s{number}")]
            assert texts == ["turn 0", "turn 1", "turn 2"]


def test_async_manager_keeps_the_bound_too() -> None:
    async def talk() -> list[str]:
        memory = AsyncMemoryManager(counter="chars4", config=MemoryConfig(max_sessions=2))
        await asyncio.gather(*[memory.add_user_message(f"s{n}", "x") for n in range(20)])
        await memory.add_user_message("last", "x")
        assert len(await memory.list_sessions()) == 21
        return live_in(memory)

    live = asyncio.run(talk())
    assert len(live) <= 2
    assert "last" in live


@settings(max_examples=examples(30))
@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 4)), max_size=60))
def test_cache_size_does_not_change_results(
    steps: list[tuple[str, int]],
) -> None:
    few, all_of_them = (
        MemoryManager(
            counter="chars4",
            config=MemoryConfig(max_sessions=most, max_tokens=120, recent_window=2),
            clock=FakeClock(),
            new_id=sequential_ids(),
        )
        for most in (1, None)
    )
    for name, what in steps:
        for memory in (few, all_of_them):
            if what == 4 and name in [info.session_id for info in memory.list_sessions()]:
                memory.clear_session(name)
            elif what == 3:
                memory.add_system_message(name, "rule " * 3)
            else:
                memory.add_user_message(name, "word " * (4 + 9 * what))
    for name in {name for name, _ in steps}:
        if name in [info.session_id for info in few.list_sessions()]:
            kept, expected = few.export_session(name), all_of_them.export_session(name)
            assert kept.totals == expected.totals
            assert [e.id for e in kept.entries] == [e.id for e in expected.entries]
            assert few.get_context_for_llm(name) == all_of_them.get_context_for_llm(name)


@pytest.mark.parametrize("name", ["max_sessions", "max_live_bytes", "session_ttl"])
def test_a_session_cannot_settle_it_for_itself(name: str) -> None:
    memory = manager()
    memory.add_user_message("s", "x")
    with pytest.raises(InvalidInput, match=f"{name} is a setting of the manager"):
        memory.update_config("s", **{name: 5})
    memory.update_config(**{name: 5})


def test_backoff_of_a_summarizer_survives_eviction() -> None:
    summarized: list[str] = []

    def failing(prompt: str) -> str:
        summarized.append(prompt)
        raise OSError("429")

    clock = FakeClock()
    config = MemoryConfig(max_sessions=1, max_tokens=400, max_entries=None, auto_compress=False)
    memory = MemoryManager(summarizer=failing, counter="chars4", config=config, clock=clock)

    def fill_and_compress() -> None:
        for number in range(20):
            memory.add_user_message("a", f"{number} " + "word " * 30)
        memory.compress("a")
        memory.add_user_message("b", "in its place")
        assert live_in(memory) == ["b"]

    for _ in range(3):
        fill_and_compress()
    calls = len(summarized)
    fill_and_compress()
    assert len(summarized) == calls, "the breaker is open, in the session that was loaded again too"
    clock.advance(timedelta(minutes=1))
    fill_and_compress()
    assert len(summarized) > calls


@pytest.mark.parametrize("on_failure", ["keep", "fallback"])
def test_eviction_does_not_add_summarizer_calls(on_failure: Any) -> None:
    def calls(max_sessions: int) -> int:
        summarized: list[str] = []

        def failing(prompt: str) -> str:
            summarized.append(prompt)
            raise OSError("429")

        config = MemoryConfig(
            max_sessions=max_sessions, max_tokens=400, max_entries=None, on_failure=on_failure
        )
        memory = MemoryManager(
            summarizer=failing, counter="chars4", config=config, clock=FakeClock()
        )
        for number in range(60):
            memory.add_user_message("a", f"{number} " + "word " * 30)
            memory.add_user_message("b", "in its place")
        return len(summarized)

    assert calls(1) == calls(10) > 1


def test_kept_backoffs_of_evicted_sessions_are_bounded() -> None:
    memory = manager(max_sessions=1, max_tokens=100, max_entries=None, min_entries_to_compress=1)
    for number in range(1_100):
        for part in range(4):
            memory.add_user_message(f"s{number}", f"{part} " + "word " * 30)
    assert len(memory._core.sessions._backoffs) == 1_000
