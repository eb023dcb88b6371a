"""The benchmark of compression, on sizes that take no time."""

from __future__ import annotations

import pytest

from benchmarks import compressions
from benchmarks.compressions import Sizes
from benchmarks.instruments import Instruments
from benchmarks.subjects import Memman
from benchmarks.tokens import chars4
from benchmarks.workload import items
from memman.compression.state import carry
from memman.session import state as session_state

TINY = Sizes(
    windows=(40, 80),
    exchanges=(20, 40),
    histories=(50, 300),
    outlined=4_000,
    appended=100,
    rounds=3,
    undone=2,
)


def test_planning_is_measured_with_and_without_a_summary() -> None:
    cleared = compressions.planning(300, 0.8, 1)
    summarized = compressions.planning(300, 0.3, 1)
    assert {"keep", "stub"} <= set(cleared.actions) <= {"keep", "stub", "clip"}
    assert {"keep", "stub", "summary"} <= set(summarized.actions)
    assert sum(cleared.actions.values()) == sum(summarized.actions.values()) == 300


def test_growth_is_the_exponent_of_cost_over_length() -> None:
    lengths = (100, 200, 400)
    assert compressions.growth(lengths, [7 * n for n in lengths]) == pytest.approx(1)
    assert compressions.growth(lengths, [0.1 * n * n for n in lengths]) == pytest.approx(2)


def test_windows_that_differ_are_not_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compressions, "_SAME", -1)
    with pytest.raises(AssertionError, match="the windows differ"):
        compressions.histories((50, 300), 3)


def test_every_goal_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compressions, "_PLANNED", 200)
    found = compressions.measure(TINY)
    assert [goal.limit for goal in found.goals] == [950, 950, 1.05, 1.05, 1.05, 25, 3, 1.05]
    # An exponent over sizes that take no time is noise, and may be below 0.
    assert all(goal.measured > 0 for goal in found.goals if goal.limit != 1.05)
    assert "300" in str(found)


def test_each_outline_is_timed_and_carry_is_restored() -> None:
    built, compressed = compressions.blocks(200, 1)
    assert vars(session_state)["carry"] is carry
    subject = Memman(Instruments(chars4), 8_000)
    done = []
    subject.memory.on("compressed", done.append)
    for item in items(200):
        subject.append(item)
    assert len(built) >= compressed == len(done) > 2
    assert min(built) > 0
