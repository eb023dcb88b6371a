"""W2: durable appends in turns with memman, the bytes on disk, and the items that a new process reads."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Protocol

import msgspec

from benchmarks.peers import langgraph, llamaindex, openai_agents, strands
from benchmarks.stores import SESSION, add, manager
from benchmarks.workload import Item
from memman.stores import SQLiteStore

_CHUNK = 10  # appends in a turn


class Kept(Protocol):
    """One session in one folder. Another object on the same folder finds the appended items; `found`
    returns their number.
    """

    def append(self, item: Item) -> None: ...
    def found(self) -> int: ...
    def close(self) -> None: ...


Keep = Callable[[Path], Kept]


class Memman:
    """memman in a SQLite file, counting with tiktoken; `durability` is "fast"."""

    def __init__(self, folder: Path) -> None:
        self._memory = manager(SQLiteStore(folder / "chat.db"))

    def append(self, item: Item) -> None:
        """Adds the item by its `add_*` method."""
        add(self._memory, item)

    def found(self) -> int:
        """Count the active entries, which are all of them."""
        return len(self._memory.get_active_entries(SESSION))

    def close(self) -> None:
        """Closes the file."""
        self._memory.close()


class MemmanFull(Memman):
    """The same with `durability="full"`: each append waits for the disk."""

    def __init__(self, folder: Path) -> None:
        self._memory = manager(SQLiteStore(folder / "chat.db", durability="full"))


OURS: dict[str, Keep] = {
    "memman, fast (no wait for the disk)": Memman,
    "memman, full": MemmanFull,
}
PEERS: tuple[tuple[str, str, Callable[[], Keep]], ...] = (
    ("openai-agents", "SQLiteSession", openai_agents.load_kept),
    ("strands-agents", "FileSessionManager", strands.load_kept),
    ("llama-index-core", "Memory", llamaindex.load_kept),
    ("langgraph-checkpoint-sqlite", "SqliteSaver", langgraph.load_kept),
)
HEADERS = (
    "W2, durable appends", "entries", "us", "first 100", "last 100", "x memman", "disk / text",
    "reload, ms", "found",
)  # fmt: skip


class _Course(msgspec.Struct):
    """The result of one session: the seconds of each append."""

    name: str
    keep: Keep
    folder: Path
    kept: Kept
    times: list[float] = []
    spent: float = 0.0


def measure(
    subjects: Mapping[str, Keep], workload: Sequence[Item], cap: float
) -> list[list[object]]:
    """Return a row for each: all append in turns, and each stops after `cap` seconds."""
    with tempfile.TemporaryDirectory() as root:
        courses = []
        for number, (name, keep) in enumerate(subjects.items()):
            folder = Path(root) / str(number)
            folder.mkdir()
            print(f"opening {name}", file=sys.stderr, flush=True)
            courses.append(_Course(name, keep, folder, keep(folder)))
        for at in range(0, len(workload), _CHUNK):
            for course in courses:
                if course.spent <= cap:
                    _append(course, workload[at : at + _CHUNK])
        base = median(courses[0].times)
        return [_row(course, workload, base) for course in courses]


def _append(course: _Course, part: Sequence[Item]) -> None:
    for item in part:
        began = perf_counter()
        course.kept.append(item)
        course.times.append(perf_counter() - began)
    course.spent = sum(course.times)


def _row(course: _Course, workload: Sequence[Item], base: float) -> list[object]:
    number = len(course.times)
    course.kept.close()
    text = sum(len(item.content.encode()) for item in workload[:number])
    size = sum(file.stat().st_size for file in course.folder.rglob("*") if file.is_file())
    began = perf_counter()
    again = course.keep(course.folder)
    found = again.found()
    reload = perf_counter() - began
    again.close()
    least = median(course.times)
    first, last = median(course.times[:100]), median(course.times[-100:])
    return [
        course.name, number, 1e6 * least, 1e6 * first, 1e6 * last, least / base, size / text, 1e3 * reload,
        found,
    ]  # fmt: skip
