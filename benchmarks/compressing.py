"""Compressing: what planning takes, and that a compression costs its window and not its history.

    python -m benchmarks.compressing [--quick]

- planning: `plan_compression` for a window of 1,000 entries, where clearing tool results is enough and
  where a summary is needed too. It is the verb, with a row for each entry; `compress` plans without them.
- window: `compress` with a scripted summarizer, planning and commit, on windows of growing length; a
  commit that cost more than its window would show in the exponent.
- history: the same window in a session of 500 entries and in one of 50,000, compressed in turns.

Counted with chars/4, so that what is measured is memman's own. Exit codes: 0 each goal met or within its
noise, 1 one was missed.
"""

from __future__ import annotations

import argparse
import logging
import math
import sys
from collections.abc import Callable, Sequence
from functools import partial
from time import process_time

import msgspec

from benchmarks.goals import RATIO_NOISE, TIME_NOISE, Goal, any_failed, report
from benchmarks.instruments import Instruments
from benchmarks.subjects import SESSION, Memman
from benchmarks.tables import table
from benchmarks.tokens import chars4
from benchmarks.walk import slope
from benchmarks.workload import Item, items

# Shares of the window's tokens that are allowed. Results are most of them, so 0.8 asks for no summary.
_CLEARING, _SUMMARIZING = 0.8, 0.3
_HISTORY_BUDGET = 8_000
_NEW = 100  # items between two compressions of the same session
_PLANNED = 1_000
_HELD = 4.0  # milliseconds of a plan on the slowest machine seen; the goal is missed there
_SAME = 300  # tokens: windows of 30,000 that differ by less are the same for what is measured


class Sizes(msgspec.Struct, frozen=True):
    """Lengths of windows and of histories in entries, and how often each is measured."""

    windows: tuple[int, ...] = (250, 500, 1_000, 2_000, 4_000, 8_000)
    histories: tuple[int, int] = (500, 50_000)
    rounds: int = 60
    undone: int = 5  # rounds of a compression on the same window: an undo reads the whole log


FULL = Sizes()
QUICK = Sizes(windows=(250, 500, 1_000, 2_000), histories=(500, 10_000), rounds=30)


class Planned(msgspec.Struct, frozen=True):
    """A plan for a window: its time, and what it would do with how many entries."""

    share: float
    milliseconds: float
    actions: dict[str, int]


def planning(entries: int, share: float, rounds: int) -> Planned:
    """`plan_compression` of a window that may keep a share of its tokens; the least of the rounds."""
    memory = _window(entries, share).memory
    seconds = min(_timed(lambda: memory.plan_compression(SESSION)) for _ in range(rounds))
    actions = [entry.action for entry in memory.plan_compression(SESSION).entries]
    return Planned(share, 1e3 * seconds, {name: actions.count(name) for name in sorted({*actions})})


def compressing(entries: int, rounds: int) -> float:
    """Microseconds of `compress` on a window of this length; the least of the rounds, each undone."""
    memory = _window(entries, _SUMMARIZING).memory
    seconds = []
    for _ in range(rounds):
        seconds.append(_timed(lambda: memory.compress(SESSION)))
        memory.undo_compression(SESSION)
    return 1e6 * min(seconds)


def growth(windows: Sequence[int], microseconds: Sequence[float]) -> float:
    """The exponent of cost over length: 1 is a cost per entry that is the same in every window."""
    points = zip(windows, microseconds, strict=True)
    return slope([(math.log(length), math.log(cost)) for length, cost in points])


def histories(lengths: Sequence[int], rounds: int) -> list[float]:
    """Microseconds of `compress` on the same window behind histories of these lengths, in turns.

    The least of the rounds. Raises `AssertionError` when the windows differ by more than the numbers in
    their stubs.
    """
    subjects = [_with_history(length) for length in lengths]
    new = items(_NEW)
    seconds: list[list[float]] = [[] for _ in subjects]
    for at in range(rounds):
        entries, tokens = set(), []
        for subject, times in zip(subjects, seconds, strict=True):
            _append(subject, new)
            stats = subject.memory.get_stats(SESSION)
            entries.add(stats.active_entries)
            tokens.append(stats.active_tokens)
            times.append(_timed(partial(subject.memory.compress, SESSION)))
        if at and (len(entries) > 1 or max(tokens) - min(tokens) > _SAME):
            raise AssertionError(f"the windows differ: {entries} entries, {tokens} tokens")
    return [1e6 * min(each[1:]) for each in seconds]


def _with_history(length: int) -> Memman:
    """A session that was used as sessions are, and compresses from now on only when it is told to."""
    subject = Memman(Instruments(chars4), _HISTORY_BUDGET)
    _append(subject, items(length))
    subject.memory.update_config(auto_compress=False)
    return subject


def _window(entries: int, share: float) -> Memman:
    """A session with all its entries in the window, and allowed this share of their tokens."""
    subject = Memman(Instruments(chars4), 1, auto_compress=False, max_entries=None)
    _append(subject, items(entries))
    tokens = subject.memory.get_stats(SESSION).active_tokens
    subject.memory.update_config(max_tokens=int(share * tokens))
    return subject


def _append(subject: Memman, new: Sequence[Item]) -> None:
    for item in new:
        subject.append(item)


def _timed(work: Callable[[], object]) -> float:
    began = process_time()
    work()
    return process_time() - began


class Measurement(msgspec.Struct, frozen=True):
    """Tables to read and goals to hold."""

    tables: tuple[str, ...]
    goals: tuple[Goal, ...]

    def __str__(self) -> str:
        return "\n\n".join([*self.tables, report(self.goals)])


def _plans(rounds: int) -> list[Planned]:
    return [planning(_PLANNED, share, rounds) for share in (_CLEARING, _SUMMARIZING)]


def _time_of(plan: Planned) -> float:
    return plan.milliseconds


def measure(sizes: Sizes) -> Measurement:
    """Everything, in one process and one run."""
    early = _plans(sizes.rounds)
    costs = [compressing(length, sizes.undone) for length in sizes.windows]
    short, long = histories(sizes.histories, sizes.rounds)
    # A neighbour on the other core may slow down all rounds of one second, less likely of two apart.
    plans = [min(both, key=_time_of) for both in zip(early, _plans(sizes.rounds), strict=True)]
    allowed = f"planning, {_PLANNED:,} entries, {{:.0%}} allowed"
    first, last = sizes.histories
    exponent, ratio = growth(sizes.windows, costs), long / short
    goals = [
        *(Goal(allowed.format(p.share), p.milliseconds, 1, TIME_NOISE, "ms", _HELD) for p in plans),
        Goal("exponent of a compression over its window", exponent, 1.05, RATIO_NOISE),
        Goal(f"after {last:,} entries, over after {first:,}", ratio, 1.05, RATIO_NOISE),
    ]
    return Measurement(
        (
            table(
                (f"planning, {_PLANNED:,} entries", "ms", "actions"),
                [(f"{plan.share:.0%} allowed", plan.milliseconds, plan.actions) for plan in plans],
            ),
            table(
                ("compressing, entries in the window", "us", "us per entry"),
                [(f"{n:,}", cost, cost / n) for n, cost in zip(sizes.windows, costs, strict=True)],
            ),
            table(
                ("compressing, entries in the history", "us"),
                [(f"{first:,}", short), (f"{last:,}", long)],
            ),
        ),
        tuple(goals),
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; returns its exit code."""
    logging.getLogger("memman").addHandler(logging.NullHandler())
    parser = argparse.ArgumentParser(prog="python -m benchmarks.compressing", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--quick", action="store_true", help="small sizes")
    found = measure(QUICK if parser.parse_args(arguments).quick else FULL)
    print(found)
    return int(any_failed(found.goals))


if __name__ == "__main__":
    sys.exit(main())
