"""The breaker: when an endpoint may be asked."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memman.counting import Breaker


class Clock:
    """A timer that goes when it is told to."""

    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def breaker(clock: Clock) -> Breaker:
    return Breaker(clock)


def fail(breaker: Breaker, times: int = 1) -> None:
    for _ in range(times):
        era = breaker.admit()
        assert era is not None
        breaker.failed(era, "boom")


def test_two_failures_do_not_open_it(breaker: Breaker) -> None:
    fail(breaker, 2)
    assert breaker.admit() is not None
    assert breaker.rests() == 0


def test_three_failures_in_a_row_open_it_for_30_seconds(breaker: Breaker, clock: Clock) -> None:
    fail(breaker, 3)
    assert breaker.rests() == 30
    assert breaker.reason == "boom"
    clock.now += 29.9
    assert breaker.admit() is None
    clock.now += 0.2
    assert breaker.admit() is not None


def test_a_success_between_begins_the_row_anew(breaker: Breaker) -> None:
    fail(breaker, 2)
    era = breaker.admit()
    assert era is not None
    breaker.passed(era)
    fail(breaker, 2)
    assert breaker.admit() is not None


def test_one_call_is_let_through_when_the_pause_is_over(breaker: Breaker, clock: Clock) -> None:
    fail(breaker, 3)
    clock.now += 30
    assert breaker.admit() is not None
    assert breaker.admit() is None


def test_that_call_closes_it_when_it_passes(breaker: Breaker, clock: Clock) -> None:
    fail(breaker, 3)
    clock.now += 30
    era = breaker.admit()
    assert era is not None
    breaker.passed(era)
    fail(breaker, 2)
    assert breaker.admit() is not None
    fail(breaker)
    assert breaker.rests() == 30


def test_each_further_failure_doubles_the_pause_up_to_five_minutes(
    breaker: Breaker, clock: Clock
) -> None:
    fail(breaker, 3)
    pauses = []
    for _ in range(6):
        pauses.append(breaker.rests())
        clock.now += breaker.rests()
        fail(breaker)
    assert pauses == [30, 60, 120, 240, 300, 300]


def test_a_call_that_says_nothing_gives_way_after_another_pause(
    breaker: Breaker, clock: Clock
) -> None:
    fail(breaker, 3)
    clock.now += 30
    assert breaker.admit() is not None
    clock.now += 29
    assert breaker.admit() is None
    clock.now += 1
    assert breaker.admit() is not None


def test_a_call_that_is_withdrawn_gives_way_at_once(breaker: Breaker, clock: Clock) -> None:
    fail(breaker, 3)
    clock.now += 30
    era = breaker.admit()
    assert era is not None
    breaker.withdrawn(era)
    assert breaker.admit() is not None


def test_calls_from_before_it_opened_change_nothing(breaker: Breaker) -> None:
    early = breaker.admit()
    assert early is not None
    fail(breaker, 3)
    breaker.failed(early, "late")
    breaker.passed(early)
    breaker.withdrawn(early)
    assert breaker.rests() == 30
    assert breaker.reason == "boom"


@given(
    st.lists(
        st.tuples(st.sampled_from(["passed", "failed", "withdrawn"]), st.floats(0, 400)),
        max_size=40,
    )
)
def test_it_never_rests_longer_than_five_minutes_and_only_after_three_failures(
    steps: list[tuple[str, float]],
) -> None:
    clock = Clock()
    breaker = Breaker(clock)
    failures = 0
    for verdict, wait in steps:
        clock.now += wait
        era = breaker.admit()
        if era is None:
            assert failures >= 3
            assert 0 < breaker.rests() <= 300
            continue
        if verdict == "failed":
            breaker.failed(era, "boom")
        else:
            getattr(breaker, verdict)(era)
        failures = {"passed": 0, "failed": failures + 1, "withdrawn": failures}[verdict]
