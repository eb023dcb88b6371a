"""Telemetry: what `memman-otel` adds to an append, off, on without an SDK, and on with one.

    python -m benchmarks.telemetry [--quick]

Blocks of appends with and without telemetry take turns, so that both meet the same machine. Exit codes:
0 goals met or within their noise, 1 a goal missed.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from time import thread_time
from timeit import repeat

from memman_otel import instrument
from opentelemetry.trace import TracerProvider

from benchmarks.goals import TIME_NOISE, Goal, any_failed, report
from benchmarks.tables import table
from memman import MemoryConfig, MemoryManager
from memman.runtime import SyncRuntime

CONFIG = MemoryConfig(auto_compress=False, max_entries=None)
_BLOCK = 200  # appends
_OFF, _ON = 0.05, 2.0  # microseconds an append


def added(blocks: int, tracers: TracerProvider | None = None, store: str | None = None) -> float:
    """Return the microseconds that telemetry adds to an append: the median of paired blocks."""
    with MemoryManager(store, counter="chars4", config=CONFIG) as memory:
        for number in range(_BLOCK):
            memory.add_user_message("warm", f"message {number}")
        differences = []
        for block in range(blocks):
            plain = _timed(memory, f"off-{block}")
            telemetry = instrument(memory, tracer_provider=tracers)
            observed = _timed(memory, f"on-{block}")
            telemetry.off()
            differences.append(observed - plain)
    return median(differences)


def _timed(memory: MemoryManager, session_id: str) -> float:
    """Return the microseconds of one append, of this thread alone: others may be busy."""
    memory.add_user_message(session_id, "the first")
    begun = thread_time()
    for number in range(_BLOCK):
        memory.add_user_message(session_id, f"message {number}")
    return (thread_time() - begun) / _BLOCK * 1e6


def off() -> float:
    """Return the microseconds that an append takes to find that there is no observer."""
    runtime = SyncRuntime()
    seen, empty = _loop(lambda: runtime.observer is None), _loop(lambda: None)
    return max(0.0, seen - empty)


def _loop(call: Callable[[], object]) -> float:
    return min(repeat(call, number=100_000, repeat=7)) * 10


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.telemetry", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--quick", action="store_true", help="fewer blocks")
    blocks = 10 if parser.parse_args(arguments).quick else 60
    with tempfile.TemporaryDirectory() as folder:
        rows = [
            ("off", "memory", off()),
            ("on, no SDK", "memory", added(blocks)),
            ("on, no SDK", "SQLite", added(blocks, store=str(Path(folder) / "a.db"))),
        ]
        sdk = _sdk()
        if sdk is not None:
            rows.append(("on, SDK without exporter", "memory", added(blocks, sdk)))
            rows.append(
                (
                    "on, SDK without exporter",
                    "SQLite",
                    added(blocks, sdk, str(Path(folder) / "b.db")),
                )
            )
    shown = [(state, store, f"{microseconds:.2f}") for state, store, microseconds in rows]
    print(table(("telemetry", "store", "added to an append, us"), shown))
    goals = [
        Goal("telemetry off", rows[0][2], _OFF, TIME_NOISE, "us/append"),
        Goal("telemetry on, no SDK", rows[1][2], _ON, TIME_NOISE, "us/append"),
    ]
    print(report(goals))
    return int(any_failed(goals))


def _sdk() -> TracerProvider | None:
    """Return a provider of the SDK; None if it is not installed."""
    try:
        from opentelemetry.sdk.trace import TracerProvider as Recording
    except ImportError:
        return None
    return Recording()


if __name__ == "__main__":
    sys.exit(main())
