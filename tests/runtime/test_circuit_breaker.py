"""The pauses of the circuit breaker."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memman.runtime.circuit_breaker import CircuitBreaker, Pause

NOW = 1_000.0


@pytest.fixture
def breaker() -> CircuitBreaker:
    """Return a breaker like that of a remote counter's endpoint."""
    return CircuitBreaker(30, 300, tolerated=2)


def fail(breaker: CircuitBreaker, times: int = 1, now: float = NOW) -> None:
    for _ in range(times):
        call = breaker.admit(now)
        assert call is not None
        breaker.record_failure(now, "boom", call)


def seconds(breaker: CircuitBreaker, now: float = NOW) -> float:
    pause = breaker.pause(now)
    return 0 if pause is None else pause.until - now


def test_tolerated_failures_cause_no_pause(breaker: CircuitBreaker) -> None:
    fail(breaker, 2)
    assert breaker.admit(NOW) is not None
    assert breaker.pause(NOW) is None


def test_next_failure_pauses_calls(breaker: CircuitBreaker) -> None:
    fail(breaker, 3)
    assert breaker.pause(NOW) == Pause(3, "boom", NOW, NOW + 30)
    assert breaker.admit(NOW + 29.9) is None
    assert breaker.admit(NOW + 30) is not None


def test_success_starts_the_row_again(breaker: CircuitBreaker) -> None:
    fail(breaker, 2)
    breaker.record_success(breaker.admit(NOW))
    fail(breaker, 2)
    assert breaker.admit(NOW) is not None


def test_one_call_is_admitted_after_a_pause(breaker: CircuitBreaker) -> None:
    fail(breaker, 3)
    assert breaker.admit(NOW + 30) is not None
    assert breaker.admit(NOW + 30) is None


def test_success_of_the_admitted_call_closes_the_breaker(breaker: CircuitBreaker) -> None:
    fail(breaker, 3)
    breaker.record_success(breaker.admit(NOW + 30))
    fail(breaker, 2, NOW + 30)
    assert breaker.admit(NOW + 30) is not None
    fail(breaker, 1, NOW + 30)
    assert seconds(breaker, NOW + 30) == 30


def test_pauses_double_up_to_the_longest(breaker: CircuitBreaker) -> None:
    fail(breaker, 3)
    now, pauses = NOW, []
    for _ in range(6):
        pauses.append(seconds(breaker, now))
        now += pauses[-1]
        fail(breaker, 1, now)
    assert pauses == [30, 60, 120, 240, 300, 300]


def test_unreported_call_gives_way_after_another_pause(breaker: CircuitBreaker) -> None:
    fail(breaker, 3)
    assert breaker.admit(NOW + 30) is not None
    assert breaker.admit(NOW + 59) is None
    assert breaker.admit(NOW + 60) is not None


def test_call_without_outcome_gives_way_at_once(breaker: CircuitBreaker) -> None:
    fail(breaker, 3)
    breaker.record_no_outcome(NOW + 30, breaker.admit(NOW + 30))
    assert breaker.admit(NOW + 30) is not None


def test_calls_from_before_a_pause_change_nothing(breaker: CircuitBreaker) -> None:
    early = breaker.admit(NOW)
    assert early is not None
    fail(breaker, 3)
    breaker.record_failure(NOW, "late", early)
    breaker.record_success(early)
    breaker.record_no_outcome(NOW, early)
    assert breaker.pause(NOW) == Pause(3, "boom", NOW, NOW + 30)


def test_postponed_calls_count_no_failure() -> None:
    breaker = CircuitBreaker(15, 300)
    breaker.record_failure(NOW, "boom")
    assert breaker.postpone(NOW + 20, "busy") == Pause(1, "busy", NOW + 20, NOW + 35)
    assert breaker.record_failure(NOW + 40, "boom") == Pause(2, "boom", NOW + 40, NOW + 70)


def test_clock_that_went_back_ends_a_pause() -> None:
    breaker = CircuitBreaker(15, 300)
    breaker.record_failure(NOW, "boom")
    assert breaker.pause(NOW - 1) is None


@given(
    st.lists(
        st.tuples(st.sampled_from(["success", "failure", "nothing"]), st.floats(0, 400)),
        max_size=40,
    )
)
def test_pauses_are_bounded_and_follow_failures_only(steps: list[tuple[str, float]]) -> None:
    breaker, now, failures = CircuitBreaker(30, 300, tolerated=2), NOW, 0
    for outcome, wait in steps:
        now += wait
        call = breaker.admit(now)
        if call is None:
            assert failures >= 3
            assert 0 < seconds(breaker, now) <= 300
            continue
        if outcome == "failure":
            breaker.record_failure(now, "boom", call)
            failures += 1
        elif outcome == "success":
            breaker.record_success(call)
            failures = 0
        else:
            breaker.record_no_outcome(now, call)
