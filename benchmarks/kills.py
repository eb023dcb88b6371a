"""Kill writers of one shared session at random and check that each acknowledged entry exists once.

    uv run python -m benchmarks.kills                                  # 200 kills of 4 writers, SQLite
    uv run python -m benchmarks.kills postgresql://postgres@127.0.0.1/test

Each writer is a process with its own `MemoryManager` that adds, compresses, undoes and clears. It
writes the results of completed calls to a file outside the store, and is killed with SIGKILL. Its
replacement repeats the interrupted call with the same id. If another writer cleared the session in
between, the id is free again, and the entry is added a second time. The exit code is 1 if any check
fails.
"""

from __future__ import annotations

import argparse
import logging
import os
import random
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from itertools import accumulate, groupby
from pathlib import Path
from typing import Any

import msgspec

from benchmarks.processes import kill, started
from benchmarks.tables import table
from memman import EntryNotFound, MemoryConfig, MemoryManager, Refused, StoreConflict
from memman.log import History
from memman.plugins import shared_plugins
from memman.protocols import Snapshot
from memman.records import Added, Cleared, Compressed, Record, Undone
from memman.stores import open_store

SESSION = "s"
CONFIG = MemoryConfig(max_tokens=600, max_entries=None, min_entries_to_compress=2, recent_window=2)
_MID_OPENING = 0.1  # the share of kills that do not wait for the writer's first entry
_LONGEST_LIFE = 0.15  # seconds from its first entry to its death
_PATIENCE = 60.0  # seconds
_LOOK = os.WEXITED | os.WNOHANG | os.WNOWAIT


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """The results of a run of kills. All but the first four must be 0."""

    kills: int
    acknowledged: int
    records: int
    seconds: float
    lost: int
    doubled: int
    disordered: int
    gaps: int
    inconsistent: int

    @property
    def problems(self) -> int:
        """Count the failed checks."""
        return self.lost + self.doubled + self.disordered + self.gaps + self.inconsistent


def kill_writers(url: str, kills: int, *, writers: int = 4, seed: int = 1) -> Found:
    """Kills `writers` processes at random until `kills` are dead, and checks the store.

    Raises `RuntimeError` if a writer ends by itself.
    """
    rng = random.Random(seed)
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        notes = [Path(folder) / str(number) for number in range(writers)]
        for note in notes:
            note.touch()
        _hunt(url, notes, kills, rng)
        acknowledged = [_acknowledged(note) for note in notes]
    store: Any = open_store(url, shared_plugins)
    log, snapshot = list(_log(store)), store.load(SESSION)
    store.close()
    return _found(acknowledged, log, snapshot, kills, time.monotonic() - began)


def _hunt(url: str, notes: Sequence[Path], kills: int, rng: random.Random) -> None:
    living = {number: _started(url, number, notes[number], rng) for number in range(len(notes))}
    for _ in range(kills):
        number = rng.randrange(len(notes))
        if rng.random() > _MID_OPENING:
            _await_growth(living[number], notes[number])
        time.sleep(rng.random() * _LONGEST_LIFE)
        kill(living[number])
        living[number] = _started(url, number, notes[number], rng)
    for pid in living.values():
        kill(pid)


def _await_growth(pid: int, note: Path) -> None:
    deadline, size = time.monotonic() + _PATIENCE, note.stat().st_size
    while note.stat().st_size == size:
        if time.monotonic() > deadline or os.waitid(os.P_PID, pid, _LOOK) is not None:
            raise RuntimeError(f"writer {pid} writes nothing, or has ended")
        time.sleep(0.001)


# ---------------------------------------------------------------- a writer


def _started(url: str, number: int, note: Path, rng: random.Random) -> int:
    return started(lambda own: _write(url, number, note, own), rng)


def _write(url: str, number: int, note: Path, rng: random.Random) -> None:
    known = _acknowledged(note)["added"]
    # Unbuffered, so that the lines outlive the process however it ends.
    output = os.open(note, os.O_WRONLY | os.O_APPEND)
    memory = MemoryManager(url, counter="chars4", config=CONFIG)
    for at in range(len(known), sys.maxsize):
        name = f"{number}-{at}"
        memory.add_user_message(SESSION, f"{name} " + "word " * (at % 30), id=name)
        os.write(output, f"added {name}\n".encode())
        for kind, named in _something_else(memory, rng):
            os.write(output, f"{kind} {named}\n".encode())


def _something_else(memory: MemoryManager, rng: random.Random) -> Iterator[tuple[str, str]]:
    """Now and then changes the window's shape; yields (kind, name) of each change."""
    chance = rng.random()
    try:
        if chance < 0.04:
            done = memory.compress(SESSION, target_tokens=100).compression_id
            if done is not None:
                yield "compressed", done
        elif chance < 0.07:
            yield "undone", memory.undo_compression(SESSION)
        elif chance < 0.08:
            memory.clear_session(SESSION)
            yield "cleared", "all"
    except (EntryNotFound, Refused, StoreConflict):
        return  # another writer was faster, or there is nothing to undo


# ---------------------------------------------------------------- checks


def _acknowledged(note: Path) -> dict[str, list[str]]:
    """Read a writer's notes by kind. A line that a kill cut short was never acknowledged."""
    acknowledged: dict[str, list[str]] = {
        "added": [],
        "compressed": [],
        "undone": [],
        "cleared": [],
    }
    for line in note.read_text().split("\n")[:-1]:
        kind, _, name = line.partition(" ")
        acknowledged[kind].append(name)
    return acknowledged


def _log(store: Any) -> Iterator[tuple[int, Record]]:
    after = 0
    while page := store.read(SESSION, after, 1_000):
        yield from page
        after = page[-1][0]


def _found(
    acknowledged: Sequence[dict[str, list[str]]],
    log: Sequence[tuple[int, Record]],
    snapshot: Snapshot,
    kills: int,
    seconds: float,
) -> Found:
    added = [record.id for _, record in log if isinstance(record, Added)]
    return Found(
        kills=kills,
        acknowledged=sum(len(names) for each in acknowledged for names in each.values()),
        records=len(log),
        seconds=seconds,
        lost=_lost(acknowledged, log),
        doubled=_doubled([record for _, record in log]),
        disordered=sum(not _in_order(added, number) for number in range(len(acknowledged))),
        gaps=sum(seq != number for number, (seq, _) in enumerate(log, 1)),
        inconsistent=_inconsistent(log, snapshot),
    )


def _lost(acknowledged: Sequence[dict[str, list[str]]], log: Sequence[tuple[int, Record]]) -> int:
    """Count the acknowledged items that are not in the log."""
    records = [record for _, record in log]
    there = {
        "added": {record.id for record in records if isinstance(record, Added)},
        "compressed": {record.id for record in records if isinstance(record, Compressed)},
        "undone": {record.compression_id for record in records if isinstance(record, Undone)},
    }
    lost = sum(
        name not in there[kind] for each in acknowledged for kind in there for name in each[kind]
    )
    clears = sum(isinstance(record, Cleared) for record in records)
    return lost + max(0, sum(len(each["cleared"]) for each in acknowledged) - clears)


def _doubled(records: Sequence[Record]) -> int:
    """Count repeated ids: of an entry within one era, of other records within the log."""
    eras = accumulate([isinstance(record, Cleared) for record in records])
    there = {
        (record.id, era if isinstance(record, Added) else None)
        for record, era in zip(records, eras, strict=True)
    }
    return len(records) - len(there)


def _in_order(added: Sequence[str], number: int) -> bool:
    """Whether a writer's entries are in the log in the order in which it added them.

    An entry may be repeated directly after itself: after a clear (see `_doubled`).
    """
    own = [int(name.partition("-")[2]) for name in added if name.startswith(f"{number}-")]
    return [name for name, _ in groupby(own)] == list(range(len(set(own))))


def _inconsistent(log: Sequence[tuple[int, Record]], snapshot: Snapshot) -> int:
    """Count the differences between the stored window and the fold of the log."""
    history = History.of(log)
    folded = [item.place() for item in history.state.window.stored_items]
    kept = [place for place, _ in snapshot.window]
    return (folded != kept) + (snapshot.totals != history.totals) + (snapshot.head != history.head)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("url", nargs="?", help="a path or URL (default: a new SQLite file)")
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--writers", type=int, default=4)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    logging.getLogger("memman").addHandler(logging.NullHandler())
    with tempfile.TemporaryDirectory() as folder:
        url = given.url or f"{folder}/chat.db"
        found = kill_writers(url, given.kills, writers=given.writers, seed=given.seed)
    names = found.__struct_fields__
    print(table(("what", "number"), [(name, f"{getattr(found, name):,.0f}") for name in names]))
    return 1 if found.problems else 0


if __name__ == "__main__":
    sys.exit(main())
