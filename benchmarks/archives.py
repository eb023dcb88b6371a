"""Archives: MB/s both ways, and the memory that a long session needs.

    python -m benchmarks.archives [--quick] [--entries N] [--packing none|gzip|zstd]

Each step runs in its own process; the figure is the process's peak resident memory over its memory
before the step. Exit codes: 0 the memory is bounded, 1 it grew with the session.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from time import perf_counter, process_time
from typing import Any, overload

import msgspec

from benchmarks.processes import highest
from benchmarks.tables import table
from memman import ArchiveLimits, MemoryManager
from memman.archive.importer import verify
from memman.entries import Entry, TokenCount
from memman.records import Added, Record
from memman.stores import SQLiteStore

_QUICK, _FULL = (2_000, 20_000), (10_000, 100_000)
_WORDS = [
    "the",
    "build",
    "fails",
    "in",
    "step",
    "seven",
    "because",
    "a",
    "lock",
    "file",
    "of",
    "the",
    "earlier",
    "run",
    "was",
    "never",
    "removed",
]
_AT = datetime(2026, 1, 1, tzinfo=UTC)
_MOST_GROWTH = 128.0  # MiB, whatever the length
_LIMITS = ArchiveLimits(file_bytes=2**40, unpacked_bytes=2**40, entries=2**40)
_STEPS = ("export", "verify", "import")


class Step(msgspec.Struct, frozen=True):
    """The cost of a step: MB of unpacked lines, seconds, CPU seconds, and growth of memory in MiB."""

    megabytes: float
    seconds: float
    cpu: float
    grown: float


class _Log(Sequence[Record]):
    """A session of many entries of about a kilobyte, each made on access."""

    def __init__(self, entries: int) -> None:
        self._entries = entries

    def __len__(self) -> int:
        return self._entries

    @overload
    def __getitem__(self, place: int) -> Record: ...
    @overload
    def __getitem__(self, place: slice) -> Sequence[Record]: ...
    def __getitem__(self, place: int | slice) -> Record | Sequence[Record]:
        if isinstance(place, slice):
            return [self[number] for number in range(*place.indices(len(self)))]
        if place >= self._entries:
            raise IndexError(place)
        words = [f"{word}{place * (n + 7) % 9973}" for n, word in enumerate(_WORDS * 6)]
        text = " ".join(words)
        count = TokenCount(len(text) // 4, counter="benchmark")
        return Added(
            Entry(
                id=f"entry-{place:09}",
                type="message",
                role="user" if place % 2 == 0 else "assistant",
                content=text,
                timestamp=_AT + timedelta(seconds=place),
                token_count=count,
            )
        )


def measure(entries: int, packing: str) -> dict[str, Step]:
    """Measure each step for a session of so many entries."""
    with tempfile.TemporaryDirectory() as folder:
        store = SQLiteStore(Path(folder) / "from.db")
        store.commit("s", 0, _Log(entries), [], 0)
        store.close()
        return {step: _apart(step, folder, packing) for step in _STEPS}


def _apart(step: str, folder: str, packing: str) -> Step:
    command = [sys.executable, "-m", "benchmarks.archives", "--step", step, folder, packing]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return msgspec.json.decode(done.stdout, type=Step)


def _step(step: str, folder: Path, packing: str) -> Step:
    """Run one step in this process."""
    path = folder / "s.jsonl"
    memory = MemoryManager(folder / ("to.db" if step == "import" else "from.db"), counter="chars4")

    def import_it() -> Any:
        memory.import_archive(path, limits=_LIMITS)
        return verify_size

    verify_size = 0 if step == "export" else _unpacked(folder)
    works: dict[str, Callable[[], Any]] = {
        "export": lambda: memory.export_archive("s", path, packing=packing).bytes,  # type: ignore[arg-type]  # one of the words of `Packing`
        "verify": lambda: verify(path, limits=_LIMITS).bytes,
        "import": import_it,
    }
    before = highest()
    began, cpu = perf_counter(), process_time()
    size = works[step]()
    took = Step(
        size / 1e6,
        perf_counter() - began,
        process_time() - cpu,
        highest() - before,
    )
    (folder / "size").write_text(str(size))
    return took


def _unpacked(folder: Path) -> int:
    return int((folder / "size").read_text())


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.archives", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--quick", action="store_true", help="small sizes")
    parser.add_argument("--entries", type=int, action="append", help="entries of the session")
    parser.add_argument("--packing", default="none", choices=["none", "gzip", "zstd"])
    parser.add_argument("--step", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.step:
        step, folder, packing = options.step
        print(msgspec.json.encode(_step(step, Path(folder), packing)).decode())
        return 0
    sizes = options.entries or (_QUICK if options.quick else _FULL)
    found = {size: measure(size, options.packing) for size in sizes}
    rows = [
        (f"{step} {size:,}", took.megabytes, took.megabytes / took.seconds, took.cpu, took.grown)
        for size, steps in found.items()
        for step, took in steps.items()
    ]
    print(table(("step and entries", "MB", "MB/s", "CPU s", "MiB grown"), rows))
    most = max(took.grown for steps in found.values() for took in steps.values())
    print(f"at most {most:.0f} MiB more, held to {_MOST_GROWTH:.0f}")
    return int(most > _MOST_GROWTH)


if __name__ == "__main__":
    sys.exit(main())
