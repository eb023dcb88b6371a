"""The fakes do what a test relies on."""

import logging
from datetime import UTC, datetime, timedelta

import pytest

from memman import MemoryManager, events
from memman.compression import summary_request
from memman.testing import FakeClock, ScriptedSummarizer, record_events, sequential_ids
from memman.testing.summarizers import conversation


def test_a_fake_clock_moves_by_its_tick_and_when_told():
    clock = FakeClock(datetime(2026, 1, 1, tzinfo=UTC), tick=timedelta(seconds=1))
    assert [clock().second, clock().second] == [1, 2]
    clock.advance(timedelta(minutes=-1))
    assert clock() == datetime(2025, 12, 31, 23, 59, 3, tzinfo=UTC)


def test_sequential_ids_begin_anew_for_each_maker():
    first, second = sequential_ids("a"), sequential_ids("b")
    assert [first(), first(), second()] == ["a-1", "a-2", "b-1"]


def test_a_scripted_summarizer_goes_through_its_replies_and_keeps_the_requests():
    request = summary_request(conversation()[:2], 50, None)
    scripted = ScriptedSummarizer("one", OSError("two"), lambda asked: str(asked.target_tokens))
    assert scripted.summarize(request).text == "one"
    with pytest.raises(OSError, match="two"):
        scripted.summarize(request)
    assert [scripted.summarize(request).text, scripted.summarize(request).text] == ["50", "50"]
    assert scripted.requests == [request] * 4


def test_recorded_events_are_those_of_one_manager_in_order():
    watched, other = MemoryManager(), MemoryManager()
    with record_events(watched) as told:
        watched.add_user_message("s", "one")
        other.add_user_message("s", "not this")
        watched.clear_session("s")
    watched.add_user_message("s", "too late")
    assert [type(event) for event in told] == [events.EntryAdded, events.SessionCleared]


def test_recorded_events_may_be_of_some_kinds_only(caplog):
    memory = MemoryManager()
    with caplog.at_level(logging.ERROR), record_events(memory, [events.SessionCleared]) as told:
        memory.add_user_message("s", "one")
        memory.clear_session("s")
    assert told == [events.SessionCleared(session_id="s")]
    assert not caplog.records
