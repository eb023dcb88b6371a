"""Memory that memman holds, by `tracemalloc`: exact, and the same on every run."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Callable, Sequence

from benchmarks.instruments import Instruments
from benchmarks.subjects import Memman
from benchmarks.tokens import chars4
from benchmarks.workload import Item
from memman import MemoryConfig, MemoryManager
from memman.stores import MemoryStore

_ALL_LIVE = MemoryConfig(max_sessions=None)


def bytes_per_entry(items: Sequence[Item], budget: int) -> float:
    """Measure the bytes of an entry in a session without its caller's own text, contexts included."""
    subject = Memman(Instruments(chars4), budget)
    subject.append(items[0])

    def fill() -> None:
        for item in items[1:]:
            subject.append(item)
            subject.context()

    return _grown(fill) / (len(items) - 1)


def bytes_per_cleared_session(sessions: int) -> float:
    """Measure the bytes of a session that an add created and a clear emptied, with its two records."""
    memory = MemoryManager(config=_ALL_LIVE)

    def make(number: int) -> None:
        memory.add_user_message(f"session-{number}", "Hello.")
        memory.clear_session(f"session-{number}")

    return _per_session(make, sessions)


def bytes_per_live_session(sessions: int) -> float:
    """Measure the bytes of a live session with an empty window, without its log, from another manager."""
    store = MemoryStore()
    writer = MemoryManager(store)
    for number in range(sessions + 1):
        writer.add_user_message(f"session-{number}", "Hello.")
        writer.clear_session(f"session-{number}")
    reader = MemoryManager(store, config=_ALL_LIVE, exclusive=True)

    def make(number: int) -> None:
        reader.get_stats(f"session-{number}")

    return _per_session(make, sessions)


def _per_session(make: Callable[[int], None], sessions: int) -> float:
    make(sessions)  # the costs of first use do not belong to a session

    def fill() -> None:
        for number in range(sessions):
            make(number)

    return _grown(fill) / sessions


def _grown(fill: Callable[[], None]) -> int:
    """Measure the bytes allocated by `fill` and still held after it."""
    gc.collect()
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        fill()
        gc.collect()
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    return after - before
