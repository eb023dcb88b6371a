"""The measure of what counting costs: it holds what it says it holds."""

from __future__ import annotations

import pytest

from benchmarks import counting_cost
from benchmarks.counting_cost import Sizes
from benchmarks.tokens import Count, o200k_counts

TINY = Sizes(chars=40_000, texts=20, hits=50, entries=400)


@pytest.mark.long
def test_every_goal_is_measured_and_no_backend_is_missing() -> None:
    found = counting_cost.measure(TINY)
    assert [goal.limit for goal in found.goals] == [1.0, 1.0, 1.0, 3.0, 3.0, 0.45]
    assert all(goal.measured > 0 for goal in found.goals)
    assert "note:" not in str(found)
    assert "memman, o200k by quicktok" in str(found)


def test_a_missing_backend_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    from memman_tiktoken import backends

    def missing(_encoding: str) -> Count:
        raise ModuleNotFoundError("no", name="quicktok")

    monkeypatch.setattr(backends, "_found", {})
    monkeypatch.setitem(backends._MAKERS, "quicktok", missing)
    counts, reasons = o200k_counts()
    assert set(counts) == {"tiktoken", "toktok"}
    assert "quicktok is not installed" in reasons[0]
