"""The pauses of a summarizer, as documented."""

from datetime import timedelta

import pytest

from memman.config import Budget, MemoryConfig, resolve_budget
from memman.session.backoff import (
    FAILURES_TO_OPEN,
    FIRST_PAUSE,
    LEAST_GAIN,
    LONGEST_PAUSE,
    Backoff,
)
from memman.testing import FakeClock

SECOND = timedelta(seconds=1)


def budget(**settings: object) -> Budget:
    return resolve_budget(
        MemoryConfig(**{"max_tokens": 1_000, "max_entries": None} | settings), None
    )


def fail(backoff: Backoff, clock: FakeClock, times: int = 1) -> None:
    for _ in range(times):
        backoff.begin(None, (100, 1))
        backoff.record_failure(clock(), "429")


def test_the_pauses_double_from_15_seconds_to_5_minutes():
    clock, backoff, pauses = FakeClock(), Backoff(), []
    for _ in range(7):
        fail(backoff, clock)
        rest = backoff.rest(clock())
        pauses.append((rest.until - rest.since).total_seconds())
    assert pauses == [15, 30, 60, 120, 240, 300, 300]
    assert (FIRST_PAUSE, LONGEST_PAUSE) == (15 * SECOND, 300 * SECOND)


def test_a_thousand_failures_are_no_overflow():
    clock, backoff = FakeClock(), Backoff()
    fail(backoff, clock, 2_000)
    assert backoff.rest(clock()).until - clock() == LONGEST_PAUSE


def test_a_rest_ends_when_its_time_has_come():
    clock, backoff = FakeClock(), Backoff()
    fail(backoff, clock)
    clock.advance(15 * SECOND - timedelta(microseconds=1))
    assert backoff.rest(clock()) is not None
    clock.advance(timedelta(microseconds=1))
    assert backoff.rest(clock()) is None


def test_pause_ends_if_the_clock_goes_back():
    clock, backoff = FakeClock(), Backoff()
    fail(backoff, clock)
    clock.advance(timedelta(hours=-1))
    assert backoff.rest(clock()) is None


def test_the_third_failure_in_a_row_opens_the_breaker():
    clock, backoff = FakeClock(), Backoff()
    states = []
    for _ in range(4):
        fail(backoff, clock)
        states.append(backoff.rest(clock()).open)
    assert states == [False, False, True, True]
    assert FAILURES_TO_OPEN == 3


def test_many_problems_of_one_plan_are_one_failure():
    clock, backoff = FakeClock(), Backoff()
    backoff.begin(None, (100, 1))
    for _ in range(5):
        backoff.record_failure(clock(), "429")
    assert backoff.rest(clock()).failures == 1
    assert backoff.record_summary(0.5, clock()) is None
    assert backoff.rest(clock()).failures == 1, (
        "another part of the plan that went well changes nothing"
    )


def test_call_that_was_not_made_only_postpones_the_next():
    clock, backoff = FakeClock(), Backoff()
    for failed in (0, 1, 2):
        backoff.begin(None, (100, 1))
        pause = backoff.postpone(clock(), "others hang")
        assert (pause.failures, pause.until - clock()) == (failed, FIRST_PAUSE)
        assert not pause.open
        assert backoff.failed_recently((100, 1), budget())
        assert backoff.record_summary(0.01, clock()) is None, (
            "the outline in its place is not its answer"
        )
        fail(backoff, clock)
    assert str(pause).endswith("or until enough was added, after 2 failures in a row (others hang)")
    backoff = Backoff()
    assert str(backoff.postpone(clock(), "others hang")).endswith(
        "or until enough was added (others hang)"
    )


def test_good_answer_resets_the_failures():
    clock, backoff = FakeClock(), Backoff()
    fail(backoff, clock, 5)
    backoff.begin(None, (100, 1))
    assert backoff.record_summary(0.5, clock()) is None
    assert backoff.rest(clock()) is None
    fail(backoff, clock)
    assert backoff.rest(clock()).failures == 1


@pytest.mark.parametrize(
    ("gain", "pays"), [(0.0, False), (0.0999, False), (0.1, True), (0.6, True)]
)
def test_an_answer_that_gains_less_than_a_tenth_is_a_failure(gain, pays):
    clock, backoff = FakeClock(), Backoff()
    backoff.begin(None, (100, 1))
    assert (backoff.record_summary(gain, clock()) is None) is pays
    assert (backoff.rest(clock()) is None) is pays
    assert LEAST_GAIN == 0.1


def test_compressions_that_never_pay_open_the_breaker():
    clock, backoff = FakeClock(), Backoff()
    for _ in range(3):
        backoff.begin(None, (100, 1))
        backoff.record_summary(0.01, clock())
    assert backoff.rest(clock()).open
    assert "gained 1%, less than 10%" in str(backoff.rest(clock()))


def test_pause_text_has_failures_reason_and_end():
    clock, backoff = FakeClock(), Backoff()
    fail(backoff, clock, 3)
    assert str(backoff.rest(clock())) == (
        "the summarizer is paused until 2026-01-01T00:01:00+00:00, after 3 failures in a row (429)"
    )


def test_another_summarizer_is_called_at_once():
    clock, backoff = FakeClock(), Backoff()
    fail(backoff, clock, 3)
    backoff.begin("another", (100, 1))
    assert backoff.rest(clock()) is None


def test_summarizer_is_called_again_at_four_fifths_of_the_room():
    clock, backoff = FakeClock(), Backoff()
    assert not backoff.answered_recently((0, 0), budget())
    backoff.begin(None, (1_000, 10))
    backoff.record_summary(0.5, clock())
    assert backoff.answered_recently((1_399, 99), budget())
    assert not backoff.answered_recently((1_400, 11), budget())
    by_entries = budget(max_entries=20)
    assert backoff.answered_recently((1_001, 17), by_entries)
    assert not backoff.answered_recently((1_001, 18), by_entries)


def test_failure_is_over_at_four_fifths_of_the_room():
    clock, backoff = FakeClock(), Backoff()
    backoff.begin(None, (1_000, 10))
    backoff.record_failure(clock(), "429")
    assert backoff.failed_recently((1_399, 11), budget())
    assert not backoff.failed_recently((1_400, 11), budget())


def test_background_compression_begins_at_four_fifths():
    prepared = budget(max_entries=20).prepared()
    assert (prepared.max_tokens, prepared.max_entries) == (900, 18)
    assert (prepared.target_tokens, prepared.target_entries) == (500, 10)
    assert budget().prepared().max_entries is None
