"""Cost: an append and a context against the floor, calls of counter and summarizer, and bytes.

    python -m benchmarks.cost [--quick] [--json]

Exit codes: 0 all goals met or within their noise, 1 a goal missed.
"""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Callable, Sequence
from statistics import median
from typing import Any

import msgspec

from benchmarks.goals import RATIO_NOISE, Goal, any_failed, report
from benchmarks.instruments import Instruments
from benchmarks.memory_use import (
    bytes_per_cleared_session,
    bytes_per_entry,
    bytes_per_live_session,
)
from benchmarks.sampling import Sampler
from benchmarks.subjects import Memman, MemmanRead, Reference, Subject
from benchmarks.tables import table
from benchmarks.tokens import Count, chars4, o200k
from benchmarks.walk import Walk, walk
from benchmarks.workload import Item, items
from memman import MemoryConfig, events

Make = Callable[..., Subject]
SUBJECTS: dict[str, Make] = {
    "reference design": Reference,
    "memman": Memman,
    "memman, messages read": MemmanRead,
}
BUDGET = 8_000
HUGE_BUDGET = 200_000
# (budget, settings): the last has no limit of entries, so that the window really is that long.
WINDOWS: tuple[tuple[int, dict[str, Any]], ...] = (
    (8_000, {}),
    (24_000, {}),
    (64_000, {}),
    (64_000, {"max_entries": None}),
)
_ROUNDS = 3
_LONG = 5_000  # a walk of this length or more averages enough to be done once
_WARM_UP = 200
# A growth exponent is a fitted slope of one walk: a busy machine has given 0.12 where quiet ones give 0.00.
# An append that scans the history has 1.
_GROWTH_NOISE = 3.0
_HELD_FLOOR = 19.0  # a compression builds the outline, in about 12 ms
_HELD_CALLS = 1.75


class Sizes(msgspec.Struct, frozen=True):
    """How many entries, reads and sessions are measured."""

    marks: tuple[int, ...] = (1_000, 10_000, 50_000)
    window_entries: int = 20_000
    thrash_entries: int = 10_000
    entries_in_memory: int = 5_000
    sessions: int = 10_000


FULL = Sizes()
QUICK = Sizes(
    marks=(1_000, 5_000),
    window_entries=2_000,
    thrash_entries=4_000,
    entries_in_memory=1_000,
    sessions=1_000,
)


class Measurement(msgspec.Struct):
    """Tables to read and goals to hold."""

    tables: list[str] = []
    goals: list[Goal] = []

    def __str__(self) -> str:
        return "\n\n".join([*self.tables, report(self.goals)])


def measure(sizes: Sizes) -> Measurement:
    """Run all measurements, in one process and one run."""
    workload = items(max(*sizes.marks, sizes.window_entries))
    found = Measurement()
    _warm_up(workload)
    _against_the_floor(found, sizes, workload)
    _without_a_tokenizer(found, sizes, workload)
    _huge_budget(found, workload[: sizes.thrash_entries])
    _bytes(found, sizes, workload)
    return found


def _warm_up(workload: Sequence[Item]) -> None:
    """Load the vocabulary, imports and first calls, which a process pays for once."""
    for make in SUBJECTS.values():
        walk(make(Instruments(_tokens), BUDGET), workload[:_WARM_UP], o200k())


def _tokens(text: str) -> int:
    return len(_encode(text))


_encode = o200k()


# ---------------------------------------------------------------- with o200k, against the floor


class _Run(msgspec.Struct):
    """One subject on one workload."""

    walk: Walk
    instruments: Instruments
    faults: dict[str, int]
    sampled: int


def _against_the_floor(found: Measurement, sizes: Sizes, workload: Sequence[Item]) -> None:
    rows = []
    for mark in sizes.marks:
        runs: dict[str, list[_Run]] = {name: [] for name in SUBJECTS}
        for _ in range(1 if mark >= _LONG else _ROUNDS):
            for name in SUBJECTS:
                runs[name].append(_run(name, workload[:mark], _tokens, o200k()))
        rows += [_floor_row(name, mark, done, workload[:mark]) for name, done in runs.items()]
        found.goals += _floor_goals(mark, runs["memman"], workload[:mark])
    headers = (
        "o200k, budget 8,000", "entries", "us", "x floor", "growth", "counts/entry", "chars x",
        "summaries", "of allowed",
    )  # fmt: skip
    found.tables.append(table(headers, rows))


def _run(name: str, part: Sequence[Item], count: Count, floor: Any) -> _Run:
    instruments = Instruments(count)
    sampler = Sampler(count, BUDGET) if name == "memman" else None
    done = walk(SUBJECTS[name](instruments, BUDGET), part, floor, sampler)
    faults, sampled = (sampler.faults, sampler.contexts) if sampler else ({}, 0)
    return _Run(done, instruments, faults, sampled)


def _floor_row(name: str, mark: int, runs: Sequence[_Run], part: Sequence[Item]) -> list[object]:
    last = runs[-1]
    chars = sum(len(item.content) for item in part)
    return [
        name,
        mark,
        median(run.walk.microseconds for run in runs),
        median(run.walk.x_floor for run in runs),
        f"{median(run.walk.growth for run in runs):.3f}",
        last.instruments.counted / mark,
        last.instruments.counted_chars / chars,
        last.instruments.summarized,
        last.instruments.summarized / _summaries_allowed(part, BUDGET),
    ]


def _floor_goals(mark: int, runs: Sequence[_Run], part: Sequence[Item]) -> list[Goal]:
    last = runs[-1]
    goals = [
        Goal(
            f"append + context, {mark:,} entries, o200k",
            median(run.walk.x_floor for run in runs),
            2.4,
            RATIO_NOISE,
            "x floor",
            held=_HELD_FLOOR,
        ),
        Goal(
            f"counter calls per entry, {mark:,} entries",
            last.instruments.counted / mark,
            1.5,
            held=_HELD_CALLS,
        ),
        Goal(
            f"summarizer calls of allowed, {mark:,} entries",
            last.instruments.summarized / _summaries_allowed(part, BUDGET),
            1.1,
        ),
        *(
            Goal(f"{fault}, of {last.sampled:,} contexts sampled", times, 0)
            for fault, times in last.faults.items()
        ),
    ]
    if mark >= _LONG:
        growth = median(run.walk.growth for run in runs)
        goals.insert(1, Goal(f"growth exponent, {mark:,} entries", growth, 0.05, _GROWTH_NOISE))
    return goals


def _summaries_allowed(part: Sequence[Item], budget: int) -> float:
    """Count how often these items filled the room between low and high water."""
    room = budget * (1 - MemoryConfig().target_ratio)
    return sum(_tokens(item.content) for item in part) / room


# ---------------------------------------------------------------- memman's own cost


def _without_a_tokenizer(found: Measurement, sizes: Sizes, workload: Sequence[Item]) -> None:
    """Measure memman's own cost with a counter of 0.1 us: the minimum of the rounds."""
    part = workload[: sizes.window_entries]
    rows = []
    for budget, settings in WINDOWS:
        label = f"{budget:,}{', any number of entries' if settings else ''}"
        walks: dict[str, list[Walk]] = {name: [] for name in SUBJECTS}
        for _ in range(_ROUNDS):
            for name, make in SUBJECTS.items():
                given = {} if make is Reference else settings
                walks[name].append(walk(make(Instruments(chars4), budget, **given), part))
        least = {name: min(one.microseconds for one in done) for name, done in walks.items()}
        rows += [
            [name, label, least[name], f"{median(one.growth for one in done):.3f}"]
            for name, done in walks.items()
        ]
    found.tables.append(table(("chars/4", "budget", "us", "growth"), rows))


def _huge_budget(found: Measurement, part: Sequence[Item]) -> None:
    """Check that a budget far above 100 entries, where their number decides, causes no thrashing."""
    instruments = Instruments(chars4)
    subject = Memman(instruments, HUGE_BUDGET)
    compressions: list[events.CompressionResult] = []

    def note(_sender: object, event: events.CompressionResult) -> None:
        compressions.append(event)

    with events.compressed.connected_to(note, sender=subject.memory):
        for item in part:
            subject.append(item)
    room = 100 * (1 - MemoryConfig().target_ratio)
    allowed = len(part) / room
    happened = {"compressions": len(compressions), "summaries": instruments.summarized}
    rows = [
        [what, times, times / len(part), allowed / len(part)] for what, times in happened.items()
    ]
    headers = (f"budget {HUGE_BUDGET:,}, {len(part):,} entries", "number", "per entry", "allowed")
    found.tables.append(table(headers, rows))
    for what, times in happened.items():
        found.goals.append(Goal(f"{what} of allowed, budget {HUGE_BUDGET:,}", times / allowed, 1.1))


def _bytes(found: Measurement, sizes: Sizes, workload: Sequence[Item]) -> None:
    cleared = bytes_per_cleared_session(sizes.sessions)
    live = bytes_per_live_session(sizes.sessions)
    rows = [
        ["entry, without its text", bytes_per_entry(workload[: sizes.entries_in_memory], BUDGET)],
        ["session, added to and cleared", cleared],
        ["session, live and empty, without its log", live],
    ]
    found.tables.append(table(("in memory", "bytes"), rows))
    found.goals += [
        # Its log keeps the two acknowledged records.
        Goal("session, added to and cleared", cleared, 8_192, unit="bytes"),
        Goal("session, live and empty, without its log", live, 8_192, unit="bytes"),
    ]


# ---------------------------------------------------------------- the command


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code."""
    # Some scripted summaries are too long, which would be logged some hundred times.
    logging.getLogger("memman").addHandler(logging.NullHandler())
    parser = argparse.ArgumentParser(prog="python -m benchmarks.cost", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--quick", action="store_true", help="small sizes")
    parser.add_argument("--json", action="store_true", help="the goals as JSON")
    options = parser.parse_args(arguments)
    sizes = QUICK if options.quick else FULL
    found = measure(sizes)
    print(msgspec.json.encode(found.goals).decode() if options.json else found)
    return int(any_failed(found.goals))


if __name__ == "__main__":
    sys.exit(main())
