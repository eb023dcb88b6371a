"""The fakes behave as tests expect."""

import asyncio
import logging
import threading
import time
from datetime import UTC, datetime, timedelta

import pytest

from memman import MemoryManager, events
from memman.compression.prompt import summary_request
from memman.testing import (
    AsyncScriptedSummarizer,
    Delayed,
    FakeClock,
    ScriptedSummarizer,
    record_events,
    sequential_ids,
)
from memman.testing.summarizers import conversation


def test_fake_clock_moves_by_its_tick_and_by_hand():
    clock = FakeClock(datetime(2026, 1, 1, tzinfo=UTC), tick=timedelta(seconds=1))
    assert [clock().second, clock().second] == [1, 2]
    clock.advance(timedelta(minutes=-1))
    assert clock() == datetime(2025, 12, 31, 23, 59, 3, tzinfo=UTC)


def test_sequential_ids_restart_for_each_factory():
    first, second = sequential_ids("a"), sequential_ids("b")
    assert [first(), first(), second()] == ["a-1", "a-2", "b-1"]


def test_scripted_summarizer_replies_in_order_and_keeps_requests():
    request = summary_request(conversation()[:2], 50, None)
    scripted = ScriptedSummarizer("one", OSError("two"), lambda asked: str(asked.target_tokens))
    assert scripted.summarize(request).text == "one"
    with pytest.raises(OSError, match="two"):
        scripted.summarize(request)
    assert [scripted.summarize(request).text, scripted.summarize(request).text] == ["50", "50"]
    assert scripted.requests == [request] * 4


REQUEST = summary_request(conversation()[:2], 50, None)


def test_the_async_one_goes_through_the_same_replies():
    async def ask() -> list[object]:
        scripted = AsyncScriptedSummarizer("one", OSError("two"), lambda asked: asked.prompt)
        answers = await asyncio.gather(
            *(scripted.summarize(REQUEST) for _ in range(3)), return_exceptions=True
        )
        assert scripted.requests == [REQUEST] * 3
        return answers

    one, two, three = asyncio.run(ask())
    assert (one.text, str(two), three.text) == ("one", "two", REQUEST.prompt)


def test_a_delayed_reply_waits_for_its_seconds():
    began = time.monotonic()
    assert ScriptedSummarizer(Delayed("late", 0.03)).summarize(REQUEST).text == "late"
    scripted = AsyncScriptedSummarizer(Delayed(lambda asked: "later", 0.03))
    assert asyncio.run(scripted.summarize(REQUEST)).text == "later"
    assert time.monotonic() - began > 0.05


def test_a_delayed_reply_waits_for_its_event():
    gate = threading.Event()
    scripted = ScriptedSummarizer(Delayed(OSError("after all"), gate))
    threading.Timer(0.02, gate.set).start()
    with pytest.raises(OSError, match="after all"):
        scripted.summarize(REQUEST)

    async def ask() -> str:
        gate = asyncio.Event()
        scripted = AsyncScriptedSummarizer(Delayed("late", gate))
        asyncio.get_running_loop().call_later(0.02, gate.set)
        return (await scripted.summarize(REQUEST)).text

    assert asyncio.run(ask()) == "late"


def test_the_async_one_counts_the_waits_that_were_called_off():
    async def ask() -> int:
        scripted = AsyncScriptedSummarizer(Delayed("never", asyncio.Event()))
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(scripted.summarize(REQUEST), 0.02)
        return scripted.cancelled

    assert asyncio.run(ask()) == 1


def test_an_event_of_the_other_manager_is_refused():
    with pytest.raises(TypeError, match=r"threading\.Event"):
        ScriptedSummarizer(Delayed("x", asyncio.Event())).summarize(REQUEST)
    scripted = AsyncScriptedSummarizer(Delayed("x", threading.Event()))
    with pytest.raises(TypeError, match=r"asyncio\.Event"):
        asyncio.run(scripted.summarize(REQUEST))


def test_event_that_is_never_set_ends_the_wait(monkeypatch):
    monkeypatch.setattr("memman.testing.fakes._PATIENCE", 0.01)
    with pytest.raises(TimeoutError, match="was not set"):
        ScriptedSummarizer(Delayed("x", threading.Event())).summarize(REQUEST)


def test_recorded_events_are_those_of_one_manager_in_order():
    watched, other = MemoryManager(), MemoryManager()
    with record_events(watched) as emitted:
        watched.add_user_message("s", "one")
        other.add_user_message("s", "not this")
        watched.clear_session("s")
    watched.add_user_message("s", "too late")
    assert [type(event) for event in emitted] == [
        events.SessionOpened, events.EntryAdded, events.SessionCleared,
    ]  # fmt: skip


def test_recorded_events_may_be_of_some_kinds_only(caplog):
    memory = MemoryManager()
    with caplog.at_level(logging.ERROR), record_events(memory, [events.SessionCleared]) as emitted:
        memory.add_user_message("s", "one")
        memory.clear_session("s")
    assert emitted == [events.SessionCleared(session_id="s")]
    assert not caplog.records
