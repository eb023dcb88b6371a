"""Calibration: predict each report of a provider from the reports before it.

    python -m benchmarks.calibration [FILE] [--json]

Recorded conversations with a provider's report for each call are played through a
`MemoryManager`. Before each call a context is built and its price is the prediction; then the report is
recorded. Real compactions clear the session. No tokenizer of that provider is used.
Exit codes: 0 goals met, 1 a goal missed, 2 no data.
"""

from __future__ import annotations

import argparse
import gzip
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import msgspec

from benchmarks.goals import Goal, any_failed, report
from benchmarks.tables import table
from benchmarks.tokens import chars4, o200k
from memman import MemoryConfig, MemoryManager

_DATA = Path(__file__).resolve().parents[2] / "shared" / "data" / "trajectories.jsonl.gz"
_S = "played"
_ROOM = 100_000_000


def conversations(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the conversations of a file that carry reports."""
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        for line in lines:
            conversation = json.loads(line)
            if "reported_context" in conversation:
                yield conversation


def errors_of(conversation: dict[str, Any], count: Callable[[str], int] | str) -> list[float]:
    """Return the relative error of the prediction before each report but the first."""
    memory = MemoryManager(
        counter=count,
        config=MemoryConfig(max_tokens=_ROOM, max_entries=None, auto_compress=False),
    )
    messages = conversation["messages"]
    compacted = sorted(item["summary_at"] for item in conversation["compactions"])
    errors: list[float] = []
    added, reports = 0, 0
    for at, reported, _output, _thinking in conversation["reported_context"]:
        if reported <= 0:
            continue  # a call that failed
        while compacted and compacted[0] <= at:
            start = compacted.pop(0)
            if added:
                memory.clear_session(_S)
            added = max(added, start)
        memory.add_messages(_S, messages[added:at], format="openai-chat")
        added = max(added, at)
        if added == 0 or not memory.list_sessions():
            continue
        predicted = memory.build_context(_S).tokens.tokens
        if reports:
            errors.append(abs(predicted - reported) / reported)
        memory.record_usage(_S, reported)
        reports += 1
    return errors


class Row(msgspec.Struct, frozen=True):
    """The errors of one counter's predictions after calibration."""

    counter: str
    predictions: int
    median: float
    p95: float
    above_5: int


def measure(path: Path) -> list[Row]:
    """Return a row for each counter."""
    encode = o200k()
    counters: dict[str, Callable[[str], int] | str] = {
        "chars4": chars4,
        "bytes4": "bytes4",
        "estimate": "estimate",
        "o200k": lambda text: len(encode(text)),
    }
    rows = []
    for name, count in counters.items():
        errors = sorted(
            error
            for conversation in conversations(path)
            for error in errors_of(conversation, count)
        )
        p95 = errors[int(0.95 * len(errors))]
        above = sum(error > 0.05 for error in errors)
        rows.append(Row(name, len(errors), median(errors), p95, above))
    return rows


def goals_of(rows: Sequence[Row]) -> list[Goal]:
    """Return the goals of every row."""
    return [
        goal
        for row in rows
        for goal in (
            Goal(f"median error, {row.counter}", 100 * row.median, 1, unit="%"),
            Goal(f"95th percentile of errors, {row.counter}", 100 * row.p95, 5, unit="%"),
        )
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.calibration", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("file", nargs="?", type=Path, default=_DATA, help="JSON lines, gzipped")
    parser.add_argument("--json", action="store_true", help="the goals as JSON")
    options = parser.parse_args(arguments)
    if not options.file.is_file():
        print(f"{options.file} does not exist: recorded conversations are not part of the project")
        return 2
    rows = measure(options.file)
    goals = goals_of(rows)
    if options.json:
        print(msgspec.json.encode(goals).decode())
    else:
        cells = [
            (row.counter, row.predictions, f"{row.median:.2%}", f"{row.p95:.2%}", row.above_5)
            for row in rows
        ]
        print(table(("counter", "predictions", "median", "p95", "off by over 5 %"), cells))
        print(report(goals))
    return int(any_failed(goals))


if __name__ == "__main__":
    sys.exit(main())
