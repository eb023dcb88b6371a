"""The cost of sessions in a SQLite file: appends, opening, following another process, disk.

    python -m benchmarks.stores [--quick] [--data FOLDER]

Every ratio compares two operations measured in turns in one process, so that a disturbance meets
both. The counter is tiktoken with its offline vocabulary. The share of disk needs recorded
conversations; without them it is skipped with a note.
Exit codes: 0 all goals met or within their noise, 1 a goal missed.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import sqlite3
import sys
import tempfile
from collections.abc import Callable, Sequence
from itertools import count
from pathlib import Path
from statistics import median
from time import perf_counter, process_time
from typing import Any

import msgspec
from memman_tiktoken import counter_in

from benchmarks.goals import RATIO_NOISE, TIME_NOISE, Goal, any_failed, report
from benchmarks.long_sessions import grow
from benchmarks.tables import table
from benchmarks.trajectories import DATA, Trajectory, read_trajectories
from benchmarks.workload import Item, items
from memman import AsyncMemoryManager, Entry, MemoryConfig, MemoryManager
from memman.records import encode
from memman.stores import SQLiteStore
from memman.stores.sqlite_file import Durability

SESSION = "measured"
# Nothing is compressed: the measurement is about the store.
CONFIG = MemoryConfig(max_tokens=10**9, max_entries=None, auto_compress=False)
_CHUNK = 50  # appends in a turn: short, so that a disturbance meets both sides
_WINDOW = 200  # entries
_RELOADED = 5_000  # entries
_MIB = 2**20
_DISK = {
    "nothing compressed": CONFIG,
    "compressed at 16,000 tokens": MemoryConfig(max_tokens=16_000, max_entries=None),
}
Clock = Callable[[], float]


class Sizes(msgspec.Struct, frozen=True):
    """The numbers of entries to append, open and read."""

    appends: int = 5_000
    full_appends: int = 2_000
    long_session: int = 1_000_000
    openings: int = 40
    alternations: tuple[int, int] = (20, 2_000)
    every: int = 1  # which of the recorded conversations are stored


FULL = Sizes()
QUICK = Sizes(
    appends=1_000,
    full_appends=600,  # a dozen turns: single waits for the disk are long
    long_session=20_000,
    openings=10,
    every=20,
)


class Measurement(msgspec.Struct):
    """Tables to read and goals to hold."""

    tables: list[str] = []
    goals: list[Goal] = []

    def __str__(self) -> str:
        return "\n\n".join([*self.tables, report(self.goals)])


def measure(sizes: Sizes, folder: Path, data: Path) -> Measurement:
    """Run all measurements, with their files in `folder`."""
    found = Measurement()
    _appends(found, sizes, folder)
    _async(found, sizes, folder)
    _openings(found, sizes, folder)
    _following(found, sizes, folder)
    _disk(found, sizes, folder, data)
    return found


_encode = counter_in("o200k_base", "tiktoken")


def manager(store: SQLiteStore) -> MemoryManager:
    """A manager that counts with tiktoken and compresses nothing."""
    return MemoryManager(store, counter=_encode, config=CONFIG)


def add(memory: MemoryManager, item: Item, session: str = SESSION) -> Entry:
    """Adds the item by its `add_*` method."""
    if item.kind == "tool_call":
        return memory.add_tool_call(session, item.name, item.arguments, call_id=item.call_id)
    if item.kind == "tool_result":
        return memory.add_tool_result(session, item.name, item.content, call_id=item.call_id)
    if item.role == "user":
        return memory.add_user_message(session, item.content)
    return memory.add_assistant_message(session, item.content)


# ---------------------------------------------------------------- an append and its bare twin


class _Bare:
    """The minimum of a durable append: counting, and one row of the same bytes in the same mode."""

    def __init__(self, path: Path, synchronous: str) -> None:
        self._db = sqlite3.connect(path, isolation_level=None)
        self._db.execute("PRAGMA journal_mode = WAL")
        self._db.execute(f"PRAGMA synchronous = {synchronous}")
        self._db.execute("CREATE TABLE record (key INTEGER PRIMARY KEY, payload BLOB NOT NULL)")
        self._keys = count(1)

    def append(self, text: str, payload: bytes) -> None:
        """Counts a text and stores a record."""
        _encode.count_texts((text,))
        self._db.execute("BEGIN IMMEDIATE")
        self._db.execute("INSERT INTO record VALUES (?, ?)", (next(self._keys), payload))
        self._db.execute("COMMIT")

    def close(self) -> None:
        """Closes the file."""
        self._db.close()


def _appends(found: Measurement, sizes: Sizes, folder: Path) -> None:
    modes: tuple[tuple[Durability, str, int, Clock, float, float], ...] = (
        ("fast", "NORMAL", sizes.appends, process_time, 2.5, 2.8),
        ("full", "FULL", sizes.full_appends, perf_counter, 1.15, 1.6),
    )
    rows = []
    for durability, synchronous, number, clock, limit, held in modes:
        workload = items(number)
        payloads = _payloads(workload, folder / f"payloads-{durability}.db")
        memory = manager(SQLiteStore(folder / f"{durability}.db", durability=durability))
        bare = _Bare(folder / f"bare-{durability}.db", synchronous)
        ours, theirs = [], []
        for at in range(0, number, _CHUNK):
            began = clock()
            for item in workload[at : at + _CHUNK]:
                add(memory, item)
            half = clock()
            for item, payload in zip(workload[at : at + _CHUNK], payloads[at:], strict=False):
                bare.append(item.content, payload)
            theirs.append(clock() - half)
            ours.append(half - began)
        memory.close()
        bare.close()
        ratio = sum(ours) / sum(theirs)
        if clock is perf_counter:  # includes waits for the disk; a few are long, on either side
            ratio = median(ours) / median(theirs)
        rows.append(
            [f"{durability}, {synchronous}", number, _us(ours, number), _us(theirs, number), ratio]
        )
        goal = f"durable append, {synchronous}"
        found.goals.append(Goal(goal, ratio, limit, RATIO_NOISE, "x bare", held=held))
    headers = ("durable append", "entries", "us", "count + bare INSERT, us", "ratio")
    found.tables.append(table(headers, rows))


def _payloads(workload: Sequence[Item], path: Path) -> list[bytes]:
    """Return the stored bytes of the entries."""
    store = SQLiteStore(path)
    memory = manager(store)
    for item in workload:
        add(memory, item)
    payloads = [encode(record) for _, record in store.read(SESSION, 0, len(workload))]
    memory.close()
    return payloads


def _us(seconds: Sequence[float], number: int) -> float:
    return 1e6 * sum(seconds) / number


def _async(found: Measurement, sizes: Sizes, folder: Path) -> None:
    workload = items(sizes.appends)
    sync = manager(SQLiteStore(folder / "sync.db"))
    ours, theirs = [], []

    async def in_turns() -> None:
        store = SQLiteStore(folder / "async.db")
        async with AsyncMemoryManager(store, counter=_encode, config=CONFIG) as memory:
            for at in range(0, len(workload), _CHUNK):
                began = perf_counter()
                for item in workload[at : at + _CHUNK]:
                    await memory.add_user_message(SESSION, item.content)
                half = perf_counter()
                for item in workload[at : at + _CHUNK]:
                    sync.add_user_message(SESSION, item.content)
                theirs.append(perf_counter() - half)
                ours.append(half - began)

    asyncio.run(in_turns())
    sync.close()
    ratio = median(ours) / median(theirs)
    rows = [["add", len(workload), _us(ours, len(workload)), _us(theirs, len(workload)), ratio]]
    headers = ("both managers, wall clock", "entries", "async, us", "sync, us", "ratio")
    found.tables.append(table(headers, rows))
    # An add goes to the writing thread and back. On a busy machine both ways wait for a processor.
    found.goals.append(Goal("async SQLite", ratio, 3.0, RATIO_NOISE, "x sync", held=4.5))


# ---------------------------------------------------------------- opening a session


def _openings(found: Measurement, sizes: Sizes, folder: Path) -> None:
    store = SQLiteStore(folder / "openings.db")
    began = perf_counter()
    grow(store, "long", sizes.long_session, _WINDOW)
    made = perf_counter() - began
    grow(store, "short", _WINDOW, _WINDOW)
    grow(store, "wide", _RELOADED, _RELOADED)
    taken: dict[str, list[float]] = {"short": [], "long": [], "wide": []}
    for _ in range(sizes.openings):
        for name, times in taken.items():
            memory = manager(store)
            began = process_time()
            memory.get_stats(name)
            times.append(1e3 * (process_time() - began))
    store.close()
    ms = {name: median(times) for name, times in taken.items()}
    length = f"{sizes.long_session:,} entries, {_WINDOW} in the window"
    rows = [
        [f"{_WINDOW} entries, all in the window", ms["short"]],
        [length, ms["long"]],
        [f"{_RELOADED:,} entries, all in the window", ms["wide"]],
    ]
    found.tables.append(table(("opening a session", "ms, CPU"), rows))
    found.tables.append(f"({sizes.long_session:,} entries were made in {made:.0f} s)")
    more = max(0.0, ms["long"] - ms["short"])
    found.goals += [
        Goal(f"opening {length}: more than of {_WINDOW}", more, 3.0, unit="ms"),
        Goal(f"reloading {_RELOADED:,} entries", ms["wide"], 50.0, TIME_NOISE, "ms"),
    ]


# ---------------------------------------------------------------- two managers on one file


def _following(found: Measurement, sizes: Sizes, folder: Path) -> None:
    """Two managers append in turns to one session. Each reads the other's new records, not the window."""
    rows, costs = [], []
    for window in sizes.alternations:
        path = folder / f"turns-{window}.db"
        store = SQLiteStore(path)
        grow(store, SESSION, window + 1_000, window)
        both = [manager(store), manager(SQLiteStore(path))]
        for memory in both:
            memory.get_stats(SESSION)
        times = []
        for turn in range(200):
            began = process_time()
            both[turn % 2].add_user_message(SESSION, f"turn {turn}")
            times.append(process_time() - began)
        for memory in both:
            memory.close()
        costs.append(1e6 * median(times))
        rows.append([f"{window:,} entries in the window", costs[-1]])
    found.tables.append(table(("two managers append in turns", "us an append"), rows))
    few, many = sizes.alternations
    goal = f"appends in turns, {many:,} entries in the window over {few}"
    found.goals.append(Goal(goal, costs[1] / costs[0], 1.2, TIME_NOISE, "x"))


# ---------------------------------------------------------------- disk


def _disk(found: Measurement, sizes: Sizes, folder: Path, data: Path) -> None:
    """Store recorded conversations by `add_messages`, and measure every table and the write-ahead log."""
    recorded = data / "trajectories.jsonl.gz"
    if not recorded.is_file():
        found.tables.append(f"note: {recorded} does not exist; the share of disk was not measured")
        return
    conversations = read_trajectories(recorded)[:: sizes.every]
    rows: list[list[Any]] = []
    for label, config in _DISK.items():
        path = folder / f"disk-{len(rows)}.db"
        text, entries = _stored(conversations, path, config)
        size = sum(file.stat().st_size for file in folder.glob(f"{path.name}*"))
        share = size / (1.8 * text + 4 * _MIB)
        rows.append([label, entries, text / _MIB, size / _MIB, size / text, share])
    # A compression's own texts take space too but belong to no entry, so that row has no goal.
    found.goals.append(Goal("disk of 1.8 x text + 4 MB", rows[0][-1], 1.0))
    headers = ("recorded conversations", "entries", "text, MB", "disk, MB", "ratio", "of allowed")
    found.tables.append(table(headers, rows))


def _stored(
    conversations: Sequence[Trajectory], path: Path, config: MemoryConfig
) -> tuple[int, int]:
    """Store conversations, a message at a time. Return the bytes of their text, and their entries."""
    memory = MemoryManager(SQLiteStore(path), counter="chars4", config=config)
    text = entries = 0
    for conversation in conversations:
        for message in conversation.messages:
            for entry in memory.add_messages(conversation.id, [message]):
                text += len(entry.text.encode()) + len((entry.name or "").encode())
                entries += 1
    # Before the store is closed: closing moves the write-ahead log into the file.
    return text, entries


# ---------------------------------------------------------------- the command


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.stores", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--quick", action="store_true", help="small sizes: some ten seconds")
    parser.add_argument(
        "--data", type=Path, default=DATA, help="folder of the recorded conversations"
    )
    options = parser.parse_args(arguments)
    logging.getLogger("memman").addHandler(logging.NullHandler())
    with tempfile.TemporaryDirectory() as folder:
        found = measure(QUICK if options.quick else FULL, Path(folder), options.data)
    print(found)
    return int(any_failed(found.goals))


if __name__ == "__main__":
    sys.exit(main())
