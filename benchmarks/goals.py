"""Measured figures with their goals and the allowed noise."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from time import process_time

import msgspec

from benchmarks.tables import table

# Two processes on two cores disturb each other's caches and clocks. Ratios are paired within one
# process and move by a few percent; single microseconds move by a third.
RATIO_NOISE = 0.10
TIME_NOISE = 0.50
_TIMES = ("s", "ms", "us", "us/append")  # units of figures that a slow machine makes larger
_STEPS = 20_000
_REFERENCE = 0.004  # seconds for the steps on the machine that the goals were set on


@cache
def slowness() -> float:
    """Return how many times longer this machine takes than the one the goals were set on, at least 1."""
    return max(1.0, min(_stepping() for _ in range(20)) / _REFERENCE)


def _stepping() -> float:
    """Return the CPU seconds of some ordinary work: formatting, dictionaries and sorting."""
    start = process_time()
    counts: dict[str, int] = {}
    for step in range(_STEPS):
        word = f"{step * 7919 % 4093:x}"
        counts[word] = counts.get(word, 0) + len(word)
    sorted(counts.items(), key=lambda pair: (pair[1], pair[0]))
    return process_time() - start


class Goal(msgspec.Struct, frozen=True):
    """`measured` is at most `limit`. `noise` is the share above it that a timing may have, 0 for a count.

    A time passes up to `slowness()` times its limit on a slower machine; it is reported as missed there.

    A goal that is not reached yet has `held`: the worst figure that passes until then, so that progress
    is not lost again. The goal is still reported as missed.
    """

    name: str
    measured: float
    limit: float
    noise: float = 0.0
    unit: str = ""
    held: float | None = None

    @property
    def met(self) -> bool:
        """Whether the figure is within its limit."""
        return self.measured <= self.limit

    @property
    def failed(self) -> bool:
        """Whether the figure exceeds the passing one by more than noise."""
        slower = slowness() if self.unit in _TIMES else 1.0
        return self.measured > (self.held or self.limit) * (1 + self.noise) * slower

    @property
    def verdict(self) -> str:
        """Return the verdict as text: met, within noise, or missed and by how much."""
        if self.met:
            return "met"
        over = f"{self.measured / self.limit - 1:+.0%}" if self.limit else f"+{self.measured:g}"
        if self.failed:
            return f"FAILED {over}"
        if self.measured <= self.limit * (1 + self.noise):
            return f"within noise {over}"
        return (
            f"missed {over}, held below {self.held:g}"
            if self.held
            else f"missed {over}, slow machine"
        )


def report(goals: Sequence[Goal]) -> str:
    """Format the goals as a table."""
    rows = [
        (goal.name, goal.measured, goal.limit, goal.unit, f"{goal.noise:.0%}", goal.verdict)
        for goal in goals
    ]
    return table(("goal", "measured", "at most", "unit", "noise", "verdict"), rows)


def any_failed(goals: Sequence[Goal]) -> bool:
    """Whether one of the goals is missed by more than noise."""
    return any(goal.failed for goal in goals)
