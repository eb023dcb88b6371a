"""Three shapes of use: one long session (W1), a thousand in turns (W3), a long one that is read (W4).

    python -m benchmarks.shapes [--quick]

W1 alternates an append and a context. W3 does the same in turns through many sessions of one system.
W4 reads the context of a session with a long history. Contexts of W1 and W3 are sampled outside the
measured time and checked by their items (`validity.Checker`).

Exit codes: 0 all goals met or within their noise, 1 a goal missed.
"""

from __future__ import annotations

import argparse
import logging
import sys
import threading
from collections.abc import Callable, Sequence
from time import process_time
from typing import Any

import msgspec

from benchmarks.goals import RATIO_NOISE, Goal, any_failed, report
from benchmarks.instruments import Instruments
from benchmarks.sampling import Checker
from benchmarks.subjects import Memman, MemmanRead, Reference, Showing, Shown
from benchmarks.tables import table
from benchmarks.tokens import FAST, Count, o200k, o200k_counts
from benchmarks.walk import walk
from benchmarks.workload import Item, items, transcripts

Open = Callable[[Instruments, int, str], Showing]
SUBJECTS: dict[str, Open] = {
    "reference design": Reference,
    "memman": Memman,
    "memman, messages read": MemmanRead,
}
HEADERS = (
    "o200k, budget 8,000", "W1 us", "x floor", "counts/entry", "summaries", "invalid", "of",
    "W3 us", "x floor", "open us", "threads", "invalid", "of", "W4 first ms", "us/read", "items",
)  # fmt: skip
_BUDGET = 8_000
_WARM_UP = 200
_READS_AT_ONCE = 10
_HELD = 13.5
_HELD_FAST = {"W1": 15.0, "W3": 10.5}


class Sizes(msgspec.Struct, frozen=True):
    """Entries of W1, sessions of W3 and entries of each, history and reads of W4.

    Reading stops after `read_seconds`, for systems that take a second for each read.
    """

    entries: int = 1_000
    sessions: int = 1_000
    each: int = 50
    history: int = 10_000
    reads: int = 1_000
    read_seconds: float = 5.0


FULL = Sizes()
QUICK = Sizes(sessions=100, history=1_000, reads=500)


class Walked(msgspec.Struct, frozen=True):
    """W1 or W3: the cost of an append and a context, and the checked contexts."""

    microseconds: float
    x_floor: float
    counts: float
    summaries: int
    checked: int
    invalid: int
    faults: dict[str, int]
    open_microseconds: float = 0.0
    threads: int = 0


class Reading(msgspec.Struct, frozen=True):
    """W4: the cost of a context without a change since the last append."""

    first_milliseconds: float
    microseconds: float
    items: int


_encode = o200k()


def _tokens(text: str) -> int:
    return len(_encode(text))


class InTurns:
    """Many sessions as one subject: each append goes to the next of them."""

    def __init__(self, sessions: Sequence[Showing]) -> None:
        self._sessions = sessions
        self._at = -1

    def append(self, item: Item) -> None:
        """Appends to the session whose turn it is."""
        self._at = (self._at + 1) % len(self._sessions)
        self._sessions[self._at].append(item)

    def context(self) -> Any:
        """Return the context of the session of the last append."""
        return self._sessions[self._at].context()

    def shown(self, context: Any) -> Sequence[Shown]:
        """Return the items of that session's context."""
        return self._sessions[self._at].shown(context)


def one_session(make: Open, workload: Sequence[Item], count: Count = _tokens) -> Walked:
    """Run W1."""
    instruments = Instruments(count)
    return _walked(make(instruments, _BUDGET, "s0"), workload, instruments)


def in_turns(make: Open, sessions: int, each: int, count: Count = _tokens) -> Walked:
    """Run W3: `each` entries for every session, in turns; each session has its own transcript."""
    instruments = Instruments(count)
    threads = threading.active_count()
    began = process_time()
    opened = [make(instruments, _BUDGET, f"s{number}") for number in range(sessions)]
    opening = 1e6 * (process_time() - began) / sessions
    workload = [item for turn in zip(*transcripts(sessions, each), strict=True) for item in turn]
    walked = _walked(InTurns(opened), workload, instruments)
    return msgspec.structs.replace(
        walked, open_microseconds=opening, threads=threading.active_count() - threads
    )


def _walked(subject: Showing, workload: Sequence[Item], instruments: Instruments) -> Walked:
    checker = Checker(_tokens, _BUDGET)
    done = walk(subject, workload, _encode, checker, sample_every=1)
    return Walked(
        done.microseconds,
        done.x_floor,
        instruments.counted / len(workload),
        instruments.summarized,
        checker.contexts,
        checker.invalid,
        checker.faults,
    )


def reading(
    make: Open, history: Sequence[Item], reads: int, most_seconds: float, count: Count = _tokens
) -> Reading:
    """Run W4 in groups of reads, because single reads would measure the clock."""
    subject = make(Instruments(count), _BUDGET, "s0")
    for item in history:
        subject.append(item)
    began = process_time()
    subject.context()
    first = process_time() - began
    done, seconds = 0, 0.0
    while done < reads and seconds < most_seconds:
        began = process_time()
        for _ in range(_READS_AT_ONCE):
            subject.context()
        seconds += process_time() - began
        done += _READS_AT_ONCE
    return Reading(1e3 * first, 1e6 * seconds / done, len(subject.shown(subject.context())))


# ---------------------------------------------------------------- the command


class Figures(msgspec.Struct, frozen=True):
    """A system in all three shapes."""

    one: Walked
    turns: Walked
    read: Reading

    def row(self) -> list[object]:
        """Return the figures below `HEADERS`."""
        one, turns, read = self.one, self.turns, self.read
        return [
            *(one.microseconds, one.x_floor, one.counts, one.summaries, one.invalid, one.checked),
            *(turns.microseconds, turns.x_floor, turns.open_microseconds, turns.threads),
            *(turns.invalid, turns.checked),
            *(read.first_milliseconds, read.microseconds, read.items),
        ]


def measure(make: Open, sizes: Sizes, count: Count = _tokens) -> Figures:
    """Measure one system after a warm-up, which pays for vocabulary, imports and first calls."""
    one_session(make, items(_WARM_UP), count)
    return Figures(
        one_session(make, items(sizes.entries), count),
        in_turns(make, sizes.sessions, sizes.each, count),
        reading(make, items(sizes.history), sizes.reads, sizes.read_seconds, count),
    )


def goals_of(figures: Figures) -> list[Goal]:
    """Return memman's goals; W1's cost has its own in `benchmarks.cost`."""
    one, turns = figures.one, figures.turns
    return [
        Goal("W1: invalid contexts", one.invalid, 0),
        Goal("W3: append + context", turns.x_floor, 2.4, RATIO_NOISE, "x floor", held=_HELD),
        Goal("W3: invalid contexts", turns.invalid, 0),
        # One thread for the manager, because of `summarize_timeout`; none for a session.
        Goal("W3: threads for all sessions", turns.threads, 1),
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code."""
    logging.getLogger("memman").addHandler(logging.NullHandler())
    parser = argparse.ArgumentParser(prog="python -m benchmarks.shapes", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--quick", action="store_true", help="small sizes")
    sizes = QUICK if parser.parse_args(arguments).quick else FULL
    found = {name: measure(make, sizes) for name, make in SUBJECTS.items()}
    goals = goals_of(found["memman"])
    counts, missing = o200k_counts()
    fast = next((backend for backend in FAST if backend in counts), None)
    if fast is not None:
        found[f"memman, counted by {fast}"] = faster = measure(Memman, sizes, counts[fast])
        goals += [
            Goal(
                f"{shape}: append + context, {fast}",
                x_floor,
                1.5,
                RATIO_NOISE,
                "x floor",
                held=_HELD_FAST[shape],
            )
            for shape, x_floor in (("W1", faster.one.x_floor), ("W3", faster.turns.x_floor))
        ]
    print("".join(f"note: {reason}\n" for reason in missing), end="")
    print(table(HEADERS, [[name, *figures.row()] for name, figures in found.items()]))
    print(f"\n{report(goals)}")
    return int(any_failed(goals))


if __name__ == "__main__":
    sys.exit(main())
