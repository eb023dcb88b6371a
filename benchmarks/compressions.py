"""Compressing: the time of planning, and a compression's cost, which depends on its window alone.

    python -m benchmarks.compressions [--quick]

- planning: `plan_compression` for a window of 1,000 entries, when clearing tool results is enough and
  when a summary is needed, too. The public method returns a row for each entry; `compress` plans without.
- window: `compress` with a scripted summarizer, planning and commit, on windows of growing length. A
  commit that costs more than its window would show in the exponent.
- exchange: one message with a growing number of parallel calls and their results, which is one exchange:
  added, compressed, and the compression undone.
- outline: one compression of a window of 64,000 tokens to the configured target, without a model.
- its part of the compressions of a session of 8,000 tokens; and the cost of an append with an
  outline over without (`state_ratio=0`): one that does not compress, and all with their compressions.
- history: the same window in a session of 500 entries and in one of 50,000, compressed in turns.

Counted with chars/4, so that the times are memman's own. Exit codes: 0 all goals met or within their
noise, 1 a goal missed.
"""

from __future__ import annotations

import argparse
import logging
import math
import sys
from collections.abc import Callable, Sequence
from functools import partial
from time import process_time
from typing import Any
from unittest.mock import patch

import msgspec

from benchmarks.goals import RATIO_NOISE, TIME_NOISE, Goal, any_failed, report
from benchmarks.instruments import Instruments
from benchmarks.subjects import SESSION, Memman
from benchmarks.tables import table
from benchmarks.tokens import chars4, o200k
from benchmarks.walk import slope
from benchmarks.workload import Item, items
from memman import MemoryManager
from memman.compression.state import carry
from memman.session import state as session_state

# Allowed shares of the window's tokens. Results are most of the tokens, so 0.8 needs no summary.
_CLEARING, _SUMMARIZING = 0.8, 0.3
_HISTORY_BUDGET = 8_000
_STATE_RATIO = 0.1  # the default
_EXPONENT_HELD = 1.35  # a chosen value is looked for in all that were chosen before
_BLOCK_HELD = 20.0  # milliseconds
_OUTLINE_HELD = 150.0
_HISTORY_HELD = 1.17  # after a longer history the outline has more to choose from
_NEW = 100  # items between two compressions of the same session
_PLANNED = 1_000
_PLAN = 950.0  # milliseconds: a plan makes the outline
_RESULT = "    if session.epoch >= 17: return cache_index(self, query)\n" * 8
_AFTER = 20  # entries after the exchange, so that it is an old one
_encode = o200k()  # for appends, which cost as much as in use with a tokenizer
_SAME = (
    1_500  # tokens: windows of 30,000 that differ by less, as their outlines do, count as the same
)


class Sizes(msgspec.Struct, frozen=True):
    """Lengths of windows and histories in entries, of exchanges in calls, and the number of rounds."""

    # A compression by hand takes all old entries: from 500 entries on they fill the summarizer's prompt.
    windows: tuple[int, ...] = (500, 1_000, 2_000, 4_000, 8_000)
    exchanges: tuple[int, ...] = (500, 1_000, 2_000, 4_000)
    histories: tuple[int, int] = (500, 50_000)
    outlined: int = 64_000  # tokens of a window
    rounds: int = 60
    appended: int = 600  # entries of the sessions with and without an outline
    undone: int = 5  # rounds of longer operations, as an undo, which reads the whole log


FULL = Sizes()
QUICK = Sizes(
    windows=(500, 1_000, 2_000),
    exchanges=(500, 1_000, 2_000),
    histories=(500, 10_000),
    appended=300,
    rounds=30,
)


class Planned(msgspec.Struct, frozen=True):
    """A plan for a window: its time, and the number of entries for each action."""

    share: float
    milliseconds: float
    actions: dict[str, int]


def planning(entries: int, share: float, rounds: int) -> Planned:
    """Time `plan_compression` of a window down to half of a share of its tokens (minimum of the rounds)."""
    memory = _window(entries, share).memory
    target = int(share * memory.get_stats(SESSION).active_tokens) // 2
    plan = partial(memory.plan_compression, SESSION, target_tokens=target)
    seconds = min(_timed(plan) for _ in range(rounds))
    actions = [entry.action for entry in plan().entries]
    return Planned(share, 1e3 * seconds, {name: actions.count(name) for name in sorted({*actions})})


def compressing(entries: int, rounds: int) -> float:
    """Return microseconds of `compress` on a window of this length (minimum of the rounds)."""
    memory = _window(entries, _SUMMARIZING).memory
    seconds = []
    for _ in range(rounds):
        seconds.append(_timed(lambda: memory.compress(SESSION)))
        memory.undo_compression(SESSION)
    return 1e6 * min(seconds)


def exchanging(calls: int, rounds: int) -> float:
    """Return microseconds of an exchange of so many calls, from add to undo; the least of the rounds."""
    return 1e6 * min(_timed(partial(_exchange, _parallel(calls))) for _ in range(rounds))


def _exchange(messages: Sequence[dict[str, Any]]) -> None:
    memory = Memman(Instruments(chars4), 1, auto_compress=False, max_entries=None).memory
    memory.add_messages(SESSION, messages)
    for item in items(_AFTER):
        memory.add_user_message(SESSION, item.content)
    tokens = memory.get_stats(SESSION).active_tokens
    memory.update_config(max_tokens=int(_CLEARING * tokens))
    memory.compress(SESSION)
    memory.undo_compression(SESSION)


def _parallel(calls: int) -> list[dict[str, Any]]:
    """Return a user's message, an answer with so many calls at once, and their results."""
    ids = [f"call_{number:06d}" for number in range(calls)]
    function = {"name": "read_file", "arguments": '{"path":"src/cache/index.py"}'}
    made = [{"id": name, "type": "function", "function": function} for name in ids]
    results = [{"role": "tool", "tool_call_id": name, "content": _RESULT} for name in ids]
    question = {"role": "user", "content": "Read them all."}
    return [question, {"role": "assistant", "content": None, "tool_calls": made}, *results]


def outlining(texts: Sequence[str], sizes: Sizes) -> float:
    """Return milliseconds of one compression of a window of these texts, without a model (minimum)."""
    memory = Memman(
        Instruments(chars4), sizes.outlined, auto_compress=False, max_entries=None
    ).memory
    for text in texts:
        memory.add_user_message(SESSION, text)
    return _compressed(memory, sizes)


def outlining_work(sizes: Sizes) -> float:
    """Return the same of a typical agent's window, with its calls and results."""
    subject = Memman(Instruments(chars4), sizes.outlined, auto_compress=False, max_entries=None)
    many = sizes.outlined
    for item in items(sizes.outlined // 10):
        if many <= 0:
            break
        subject.append(item)
        many -= chars4(item.content)
    return _compressed(subject.memory, sizes)


def _compressed(memory: MemoryManager, sizes: Sizes) -> float:
    target = sizes.outlined // 2
    seconds = []
    for _ in range(sizes.undone):
        work = partial(memory.compress, SESSION, target_tokens=target, summarize=False)
        seconds.append(_timed(work))
        memory.undo_compression(SESSION)
    return 1e3 * min(seconds)


def blocks(entries: int, rounds: int) -> tuple[list[float], int]:
    """Return milliseconds of each outline that a session of so many entries builds, and its compressions.

    An outline may be built more than once in a compression. The least of the rounds.
    """
    done: list[object] = []
    calls: list[Callable[[], object]] = []

    def recorded(*given: Any) -> Any:
        calls.append(partial(carry, *given))
        return carry(*given)

    with patch.object(session_state, "carry", recorded):
        subject = Memman(Instruments(chars4), _HISTORY_BUDGET)
        subject.memory.on("compressed", done.append)
        _append(subject, items(entries))
    times = [1e3 * min(_timed(call) for _ in range(rounds)) for call in calls]
    return times, len(done)


def appending(entries: int, rounds: int, compress: bool) -> tuple[float, float]:
    """Return microseconds of an append to a session without and with an outline, in turns (minimum).

    Both sessions have compressed before; with `compress` they go on doing so.
    """
    past, new = items(2 * entries)[:entries], items(2 * entries)[entries:]
    seconds: dict[float, list[float]] = {0.0: [], _STATE_RATIO: []}
    for _ in range(rounds):
        for ratio, times in seconds.items():
            subject = Memman(Instruments(_encoded), _HISTORY_BUDGET, state_ratio=ratio)
            _append(subject, past)
            subject.memory.update_config(auto_compress=compress)
            times.append(_timed(partial(_append, subject, new)))
    without, with_outline = (1e6 * min(times) / entries for times in seconds.values())
    return without, with_outline


def _encoded(text: str) -> int:
    return len(_encode(text))


def _runs(tokens: int) -> dict[str, list[str]]:
    """Return texts of so many tokens: a typical agent's, and one with much repetition."""
    transcript, many = list[str](), tokens
    for item in items(tokens // 100):
        if many <= 0:
            break
        transcript.append(item.content)
        many -= chars4(item.content)
    steps = [
        f"Step {n} of plan-{n % 97}: module {n % 41} failed with code E{n}. " * 16
        for n in range(tokens // 200)
    ]
    return {"a transcript": transcript, "steps that are alike": steps}


def growth(lengths: Sequence[int], microseconds: Sequence[float]) -> float:
    """Return the exponent of cost over length: 1 means the same cost per entry at every length."""
    points = zip(lengths, microseconds, strict=True)
    return slope([(math.log(length), math.log(cost)) for length, cost in points])


def histories(lengths: Sequence[int], rounds: int) -> list[float]:
    """Return microseconds of `compress` on the same window behind histories of these lengths, in turns.

    The least of the rounds. Raises `AssertionError` when the windows differ by more than the numbers in
    their stubs and by what their outlines have of the histories.
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
    """Return a session with a typical past, which from now on compresses only by an explicit call."""
    subject = Memman(Instruments(chars4), _HISTORY_BUDGET)
    _append(subject, items(length))
    subject.memory.update_config(auto_compress=False)
    return subject


def _window(entries: int, share: float) -> Memman:
    """Return a session with all its entries in the window, and this share of their tokens as its budget."""
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
    """Run all measurements, in one process and one run."""
    early = _plans(sizes.undone)
    costs = [compressing(length, sizes.undone) for length in sizes.windows]
    exchanges = [exchanging(calls, sizes.undone) for calls in sizes.exchanges]
    short, long = histories(sizes.histories, sizes.rounds)
    # A neighbour on the other core may slow down all rounds of one second, but hardly of two apart.
    plans = [min(both, key=_time_of) for both in zip(early, _plans(sizes.undone), strict=True)]
    allowed = f"planning, {_PLANNED:,} entries, {{:.0%}} allowed"
    first, last = sizes.histories
    exponent, ratio = growth(sizes.windows, costs), long / short
    parallel = growth(sizes.exchanges, exchanges)
    outlines = {"an agent's work": outlining_work(sizes)}
    outlines |= {name: outlining(texts, sizes) for name, texts in _runs(sizes.outlined).items()}
    built, compressed = blocks(sizes.appended, sizes.undone)
    mean, worst = sum(built) / compressed, max(built)
    appends = {
        # The ratio of these has a goal of a few percent, so their least is of many rounds.
        "without a compression": appending(sizes.appended, 4 * sizes.undone, compress=False),
        "with compressions": appending(sizes.appended, sizes.undone, compress=True),
    }
    plain, outlined = appends["without a compression"]
    goals = [
        *(Goal(allowed.format(p.share), p.milliseconds, _PLAN, TIME_NOISE, "ms") for p in plans),
        Goal(
            "exponent of a compression over its window",
            exponent,
            1.05,
            RATIO_NOISE,
            held=_EXPONENT_HELD,
        ),
        Goal("exponent of an exchange over its calls", parallel, 1.05, RATIO_NOISE),
        Goal(
            f"after {last:,} entries, over after {first:,}",
            ratio,
            1.05,
            RATIO_NOISE,
            held=_HISTORY_HELD,
        ),
        Goal(
            f"a compression of a window of {sizes.outlined:,} tokens",
            outlines["an agent's work"],
            25,
            TIME_NOISE,
            "ms",
            _OUTLINE_HELD,
        ),
        Goal("outline of a compression, 8,000 tokens", mean, 3, TIME_NOISE, "ms", _BLOCK_HELD),
        Goal("append with an outline, over without", outlined / plain, 1.05, RATIO_NOISE),
    ]
    tables = (
        table(
            (f"planning, {_PLANNED:,} entries", "ms", "actions"),
            [(f"{plan.share:.0%} allowed", plan.milliseconds, plan.actions) for plan in plans],
        ),
        _table_of("compressing, entries in the window", "entry", sizes.windows, costs),
        _table_of("one exchange, calls in it", "call", sizes.exchanges, exchanges),
        table(
            ("compressing, entries in the history", "us"),
            [(f"{first:,}", short), (f"{last:,}", long)],
        ),
        table((f"window of {sizes.outlined:,} tokens", "ms"), list(outlines.items())),
        table(
            ("outlines, 8,000 tokens", "built", "in compressions", "ms a compression", "worst"),
            [("the part of a compression", len(built), compressed, mean, worst)],
        ),
        table(
            ("an append", "us without an outline", "us with it", "ratio"),
            [(name, *both, both[1] / both[0]) for name, both in appends.items()],
        ),
    )
    return Measurement(tables, tuple(goals))


def _table_of(title: str, unit: str, sizes: Sequence[int], costs: Sequence[float]) -> str:
    """Return a table of the costs, in microseconds, of these sizes."""
    rows = [(f"{size:,}", cost, cost / size) for size, cost in zip(sizes, costs, strict=True)]
    return table((title, "us", f"us per {unit}"), rows)


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; returns its exit code."""
    logging.getLogger("memman").addHandler(logging.NullHandler())
    parser = argparse.ArgumentParser(prog="python -m benchmarks.compressions", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--quick", action="store_true", help="small sizes")
    found = measure(QUICK if parser.parse_args(arguments).quick else FULL)
    print(found)
    return int(any_failed(found.goals))


if __name__ == "__main__":
    sys.exit(main())
