"""Our own time per operation, compared with another checkout of memman in the same run.

    python -m benchmarks.versus PATH [--adds 4000] [--rounds 15]

Both checkouts run in processes of this interpreter, block by block in turn, so that a busy machine slows
both alike. A counter of four characters per token keeps tokenization out of the figures. The figures are
medians of CPU time per operation, and the ratio is ours to theirs.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.tables import table

_OPERATIONS = ("add", "add + context", "add, in a file", "compress")
_WORKER = """
import logging, sys, tempfile
from time import process_time
from memman import MemoryConfig, MemoryManager
import memman
logging.disable(logging.CRITICAL)

TEXT = "The gateway answered 503 after 4 retries; see src/gateway/client.py line 118. " * 2
folder = tempfile.TemporaryDirectory()

def manager(store=None, **settings):
    config = MemoryConfig(max_tokens=100_000_000, max_entries=None, **settings)
    return MemoryManager(store, config=config, counter=lambda text: len(text) // 4, exclusive=True)

def add(n):
    memory = manager()
    began = process_time()
    for i in range(n):
        memory.add_user_message("s", TEXT)
    return process_time() - began

def add_and_context(n):
    memory = manager()
    began = process_time()
    for i in range(n):
        memory.add_user_message("s", TEXT)
        memory.build_context("s")
    return process_time() - began

def add_in_a_file(n, counted=[0]):
    counted[0] += 1
    with manager(f"{folder.name}/{counted[0]}.db") as memory:
        began = process_time()
        for i in range(n):
            memory.add_user_message("s", TEXT)
        return process_time() - began

def compress(n):
    memory = manager(auto_compress=False)
    for i in range(n):
        memory.add_user_message("s", TEXT)
    began = process_time()
    memory.compress("s", target_tokens=n * 4)
    return process_time() - began

WORK = {"add": add, "add + context": add_and_context, "add, in a file": add_in_a_file, "compress": compress}
print(memman.__file__, flush=True)
for line in sys.stdin:
    name, _, number = line.rstrip().rpartition("|")
    print(WORK[name](int(number)), flush=True)
"""


class Checkout:
    """A process that imports memman from one checkout. Raises `SystemExit` if there is none."""

    def __init__(self, path: Path) -> None:
        environment = {**os.environ, "PYTHONPATH": str(path)}
        self._process = subprocess.Popen(
            [sys.executable, "-c", _WORKER],
            cwd="/",
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        origin = self._process.stdout.readline().rstrip() if self._process.stdout else ""
        if not Path(origin).is_relative_to(path):
            self.close()
            raise SystemExit(f"{path} has no memman package: {origin!r} was imported instead")

    def seconds(self, operation: str, number: int) -> float:
        """Return CPU seconds of `number` operations. Raises `SystemExit` if the process ended."""
        assert self._process.stdin is not None  # noqa: S101 - Popen was given a pipe
        self._process.stdin.write(f"{operation}|{number}\n")
        self._process.stdin.flush()
        return float(self._line())

    def close(self) -> None:
        """End the process."""
        self._process.communicate()

    def _line(self) -> str:
        assert self._process.stdout is not None  # noqa: S101 - as above
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit("a measuring process ended early; its error is above")
        return line.rstrip()


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table; return the exit code 0."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.versus", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("path", type=Path, help="the other checkout")
    parser.add_argument("--adds", type=int, default=4_000, help="operations per block")
    parser.add_argument("--rounds", type=int, default=15, help="blocks of each operation")
    options = parser.parse_args(arguments)
    ours, theirs = (
        Checkout(path.resolve()) for path in (Path(__file__).parent.parent, options.path)
    )
    rows = []
    for operation in _OPERATIONS:
        measured: dict[Checkout, list[float]] = {ours: [], theirs: []}
        for _ in range(options.rounds):
            for checkout, seconds in measured.items():
                seconds.append(checkout.seconds(operation, options.adds))
        one, other = (statistics.median(found) / options.adds for found in measured.values())
        rows.append([operation, f"{one * 1e6:.1f}", f"{other * 1e6:.1f}", f"{one / other:.2f}"])
    ours.close()
    theirs.close()
    print(table(["operation, us per entry", "here", str(options.path), "ratio"], rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
