"""Cost and memory as data grows: many sessions in a file, and one long session.

    python -m benchmarks.scale [--quick] [--sessions N] [--entries N]

The default sizes are 100,000 sessions and a session of 1,000,000 entries in SQLite files, which takes some
minutes; `--quick` has sizes at which a slope would show. Figures are ratios of CPU time within one
process, of many over few. If SQLite itself is slower with many rows, that is measured, too.
Exit codes: 0 all goals met or within their noise, 1 a goal missed.
"""

from __future__ import annotations

import argparse
import gc
import logging
import resource
import sqlite3
import sys
import tempfile
import tracemalloc
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from pathlib import Path
from statistics import median
from time import perf_counter, process_time

import msgspec

from benchmarks.goals import Goal, any_failed, report
from benchmarks.long_sessions import grow
from benchmarks.tables import table
from memman import MemoryConfig, MemoryManager, events
from memman.protocols import Store
from memman.stores import MemoryStore, SQLiteStore

SESSION = "long"
_LIVE = 500  # sessions that a manager keeps
_WINDOW = 100  # entries
_SAMPLE, _OPENINGS, _COMPRESSIONS = 200, 20, 10  # each figure is a median of that many operations
_NOISE = 0.30  # of medians of short times, minutes apart, on a shared machine
_WORDS = "the quick brown fox jumps over the lazy dog and the log grows by one more entry "
_KIB, _MIB = 2**10, 2**20
_CONFIG = MemoryConfig(max_tokens=4_000, max_sessions=_LIVE)


class Sizes(msgspec.Struct, frozen=True):
    """The numbers of sessions and entries: the small number to compare with, and the large one."""

    few_sessions: int = 100
    sessions: int = 100_000
    few_entries: int = 1_000
    entries: int = 1_000_000
    entries_in_memory: int = 100_000  # of the store in memory, which holds them all


FULL = Sizes()
QUICK = Sizes(sessions=2_000, entries=20_000, entries_in_memory=20_000)


class Measurement(msgspec.Struct):
    """Tables to read and goals to hold."""

    tables: list[str] = []
    goals: list[Goal] = []

    def __str__(self) -> str:
        return "\n\n".join([*self.tables, report(self.goals)])


def measure(sizes: Sizes, folder: Path) -> Measurement:
    """Run all measurements, with their files in `folder`."""
    found = Measurement()
    measure_sessions(found, sizes, folder)
    _one_long_session(found, sizes, folder)
    return found


Act = Callable[[int], object]
Costs = dict[str, tuple[float, float]]


def _in_turns(few: Act, many: Act, numbers: Iterable[int]) -> tuple[float, float]:
    """Return the median milliseconds of each action, measured in turns."""
    times: tuple[list[float], list[float]] = ([], [])
    for number in numbers:
        for act, taken in zip((few, many), times, strict=True):
            began = process_time()
            act(number)
            taken.append(1e3 * (process_time() - began))
    return median(times[0]), median(times[1])


def _compare(
    found: Measurement, what: str, costs: Costs, few: str, many: str, growth: float
) -> None:
    rows = [[name, *pair, pair[1] / pair[0]] for name, pair in costs.items()]
    found.tables.append(table((f"ms, {what}", few, many, "ratio"), rows))
    for name, (first, second) in costs.items():
        goal = f"{name}, {what}, {many} over {few}"
        most = growth if name == "undo" else 1.1  # an undo reads the era, as deletion and export do
        found.goals.append(Goal(goal, second / first, most, _NOISE, "x"))


# ---------------------------------------------------------------- many sessions


def measure_sessions(found: Measurement, sizes: Sizes, folder: Path) -> None:
    """Compare many sessions in a file with few, and measure the memory that the process holds."""
    paths = folder / "few.db", folder / "many.db"
    few, many = (_manager(SQLiteStore(path)) for path in paths)
    evicted = 0

    def note(_sender: object, event: events.SessionEvicted) -> None:
        nonlocal evicted
        evicted += 1

    _fill_sessions(few, 0, sizes.few_sessions)
    began = perf_counter()
    with events.session_evicted.connected_to(note, sender=many):
        _fill_sessions(many, 0, 2 * _LIVE)
        resident = _resident()
        _fill_sessions(many, 2 * _LIVE, sizes.sessions)
        more = _resident() - resident
    seconds = perf_counter() - began
    for memory in (few, many):
        memory.close()
    numbers = sizes.few_sessions, sizes.sessions
    costs = _session_costs(paths, numbers)
    bare = _bare_costs(folder, numbers, _payload(paths[0]))
    _compare_sessions(found, costs, bare, (f"{numbers[0]} sessions", f"{numbers[1]:,}"))
    found.tables.append(
        f"{sizes.sessions:,} sessions in {seconds:.0f} s; {evicted:,} unloaded, each with an event; from"
        f" {2 * _LIVE:,} sessions on the process grew by {more / _MIB:.1f} MB;"
        f" {paths[1].stat().st_size / sizes.sessions:.0f} bytes a session on disk"
    )
    found.goals += [
        Goal("sessions kept beyond max_sessions", max(0, sizes.sessions - evicted - _LIVE), 0),
        Goal("memory held, grown with the sessions", _grown(sizes, folder) / _KIB, 64, unit="KB"),
    ]


def _compare_sessions(
    found: Measurement, costs: Costs, bare: Costs, columns: tuple[str, str]
) -> None:
    """Compare the costs with those of bare SQLite, whose pages of many sessions are deeper and full.

    Bare SQLite's own slowdown is subtracted, because the goals are about our overhead.
    """
    rows, without = [], {}
    for name, (few, many) in costs.items():
        rows.append([name, few, many, many / few])
        if name in bare:
            least, most = bare[name]
            rows.append([f"... of that bare SQLite: {name}", least, most, most / least])
            without[name] = few, many - max(0.0, most - least)
        else:
            without[name] = few, many
    found.tables.append(table(("ms, sessions in a file", *columns, "ratio"), rows))
    for name, (few, many) in without.items():
        adjusted = ", less the slowdown of bare SQLite" if name in bare else ""
        goal = f"{name}, {columns[1]} over {columns[0]}{adjusted}"
        found.goals.append(Goal(goal, many / few, 1.1, _NOISE, "x"))


def _payload(path: Path) -> bytes:
    """Return the payload of a record of these sessions."""
    with closing(sqlite3.connect(path)) as db:
        payload: bytes = db.execute("SELECT payload FROM record").fetchone()[0]
    return payload


class _Bare:
    """The minimum for SQLite: sessions by id, and the records of each session in one range."""

    def __init__(self, path: Path, sessions: int, payload: bytes) -> None:
        self._path, self._payload = path, payload
        self.sessions = sessions
        self._db = self._opened()
        self._db.execute("CREATE TABLE session (number INTEGER PRIMARY KEY, id TEXT UNIQUE)")
        self._db.execute("CREATE TABLE record (key INTEGER PRIMARY KEY, payload BLOB NOT NULL)")
        for number in range(sessions):  # one commit each, as sessions are created
            self._db.execute("INSERT INTO session VALUES (?, ?)", (number, f"session-{number}"))
            self.insert(number, 0)
        self._db.close()
        self._db = self._opened()

    def _opened(self) -> sqlite3.Connection:
        db = sqlite3.connect(self._path, isolation_level=None)
        db.execute("PRAGMA journal_mode = WAL")
        db.execute("PRAGMA synchronous = NORMAL")
        db.execute("PRAGMA secure_delete = ON")
        return db

    def read(self, number: int) -> bytes:
        """Read the record of a session, found by its id."""
        found = self._db.execute(
            "SELECT payload FROM session JOIN record ON key = number << 32 WHERE id = ?",
            (f"session-{number}",),
        )
        payload: bytes = found.fetchone()[0]
        return payload

    def insert(self, number: int, seq: int) -> None:
        """Inserts one more record of a session."""
        self._db.execute("BEGIN IMMEDIATE")
        self._db.execute("INSERT INTO record VALUES (?, ?)", ((number << 32) + seq, self._payload))
        self._db.execute("COMMIT")

    def close(self) -> None:
        """Closes the file."""
        self._db.close()


def _bare_costs(folder: Path, sessions: tuple[int, int], payload: bytes) -> Costs:
    """Return the costs of SQLite alone, which only finds and inserts rows."""
    few, many = (_Bare(folder / f"bare-{count}.db", count, payload) for count in sessions)

    def both(act: Callable[[_Bare, int], object]) -> tuple[float, float]:
        def on(bare: _Bare) -> Act:
            return lambda sample: act(bare, _spread(sample, bare.sessions))

        return _in_turns(on(few), on(many), range(few.sessions))

    costs = {
        "open": both(_Bare.read),
        "first append": both(lambda bare, number: bare.insert(number, 1)),
        "append": both(lambda bare, number: bare.insert(number, 2)),
    }
    for bare in (few, many):
        bare.close()
    return costs


def _spread(sample: int, sessions: int) -> int:
    """Return a session from all over the file, each only once: the second time it would be live."""
    return sample * 7919 % sessions


def _session_costs(paths: tuple[Path, Path], sessions: tuple[int, int]) -> Costs:
    """Return the costs of appending to and opening sessions from all over the files."""
    few, many = (_manager(SQLiteStore(path)) for path in paths)

    def on(memory: MemoryManager, number: int, act: Callable[[MemoryManager, str], object]) -> Act:
        return lambda sample: act(memory, f"session-{_spread(sample, number)}")

    def both(act: Callable[[MemoryManager, str], object]) -> tuple[float, float]:
        return _in_turns(on(few, sessions[0], act), on(many, sessions[1], act), range(sessions[0]))

    def append(memory: MemoryManager, name: str) -> None:
        memory.add_user_message(name, _WORDS)

    costs = {
        "open": both(lambda memory, name: memory.get_stats(name)),
        "first append": both(append),  # its page of the file is full, and is divided
        "append": both(append),
        "create": both(lambda memory, name: memory.add_user_message(f"new {name}", _WORDS)),
    }
    for memory in (few, many):
        memory.close()
    return costs


def _manager(store: Store) -> MemoryManager:
    return MemoryManager(store, counter="chars4", config=_CONFIG)


def _fill_sessions(memory: MemoryManager, first: int, last: int) -> None:
    for number in range(first, last):
        memory.add_user_message(f"session-{number}", f"{number} {_WORDS}")


def _resident() -> int:
    """Return the peak resident memory of this process in bytes."""
    unit = 1 if sys.platform == "darwin" else _KIB
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def _grown(sizes: Sizes, folder: Path) -> int:
    """Return the growth in bytes of a manager that already keeps as many sessions as it may."""
    tracemalloc.start()
    try:
        memory = _manager(SQLiteStore(folder / "held.db"))
        _fill_sessions(memory, 0, 2 * _LIVE)
        gc.collect()
        before, _ = tracemalloc.get_traced_memory()
        _fill_sessions(memory, 2 * _LIVE, min(sizes.sessions, 10_000))
        gc.collect()
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    memory.close()
    return after - before


# ---------------------------------------------------------------- one long session


def _one_long_session(found: Measurement, sizes: Sizes, folder: Path) -> None:
    stores: tuple[tuple[str, Callable[[int], Store], int], ...] = (
        ("SQLite", lambda entries: SQLiteStore(folder / f"{entries}.db"), sizes.entries),
        ("memory", lambda _: MemoryStore(), sizes.entries_in_memory),
    )
    for name, make, entries in stores:
        few, many = (_long(make(number), number) for number in (sizes.few_entries, entries))
        costs = _entry_costs(few, many)
        few_named, growth = f"{sizes.few_entries:,} entries", entries / sizes.few_entries
        _compare(found, name, costs, few_named, f"{entries:,}", growth)
        for store in (few, many):
            store.close()


def _long(store: Store, entries: int) -> Store:
    grow(store, SESSION, entries, _WINDOW)
    return store


def _entry_costs(few: Store, many: Store) -> Costs:
    """Return the costs of each operation on a session; they add little to the log."""
    managers = _manager(few), _manager(many)

    def both(
        act: Callable[[MemoryManager, int], object], times: int = _SAMPLE
    ) -> tuple[float, float]:
        acts = [lambda number, memory=memory: act(memory, number) for memory in managers]
        return _in_turns(acts[0], acts[1], range(times))

    def append(memory: MemoryManager, number: int) -> None:
        memory.add_user_message(SESSION, f"{number} {_WORDS}")

    def context(memory: MemoryManager, number: int) -> None:
        append(memory, number)
        memory.build_context(SESSION)

    def refill(memory: MemoryManager) -> None:
        for number in range(_WINDOW):
            memory.add_user_message(SESSION, f"{number} {_WORDS}", compress=False)

    def compress(memory: MemoryManager, _: int) -> None:
        memory.compress(SESSION)

    def undo(memory: MemoryManager, _: int) -> None:
        memory.undo_compression(SESSION)

    def hidden(memory: MemoryManager, number: int) -> None:
        memory.get_entry(SESSION, gone[id(memory)][number])

    gone: dict[int, list[str]] = {}
    compressed, undone = [], []
    for last in range(_COMPRESSIONS - 1, -1, -1):
        for memory in managers:
            refill(memory)
            gone[id(memory)] = [entry.id for entry in memory.get_active_entries(SESSION)[-_WINDOW:]]
        compressed.append(both(compress, 1))
        if last:
            undone.append(both(undo, 1))
            both(compress, 1)
    return {
        "get_entry, hidden": both(hidden, 20),
        "undo": (median(one[0] for one in undone), median(one[1] for one in undone)),
        "open": _in_turns(lambda _: _open(few), lambda _: _open(many), range(_OPENINGS)),
        "compress": (median(one[0] for one in compressed), median(one[1] for one in compressed)),
        "append": both(append),
        "append and context": both(context),
        "stats": both(lambda memory, _: memory.get_stats(SESSION)),
    }


def _open(store: Store) -> None:
    _manager(store).get_stats(SESSION)


# ---------------------------------------------------------------- the command


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.scale", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--quick", action="store_true", help="small sizes: some ten seconds")
    parser.add_argument("--sessions", type=int, help="how many sessions in a file")
    parser.add_argument("--entries", type=int, help="how many entries in a session")
    options = parser.parse_args(arguments)
    sizes = QUICK if options.quick else FULL
    sizes = msgspec.structs.replace(
        sizes,
        sessions=options.sessions or sizes.sessions,
        entries=options.entries or sizes.entries,
    )
    least = 2 * _LIVE, FULL.few_entries
    if sizes.sessions < least[0] or sizes.entries < least[1]:
        parser.error(f"at least {least[0]:,} sessions and {least[1]:,} entries, to see a slope")
    logging.getLogger("memman").addHandler(logging.NullHandler())
    with tempfile.TemporaryDirectory() as folder:
        found = measure(sizes, Path(folder))
    print(found)
    return int(any_failed(found.goals))


if __name__ == "__main__":
    sys.exit(main())
