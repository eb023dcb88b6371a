"""memman beside what people use today, on the workload of `benchmarks.cost`.

    python -m benchmarks.peers [--entries 1000]

A peer that is not installed is skipped with the reason.
"""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Callable, Sequence

from benchmarks.cost import SUBJECTS, Make
from benchmarks.instruments import Instruments
from benchmarks.peers import langchain, langmem, strands
from benchmarks.tables import table
from benchmarks.tokens import o200k
from benchmarks.walk import walk
from benchmarks.workload import Item, items

_PEERS: dict[str, Callable[[], Make]] = {
    "langchain-classic summary buffer": langchain.load,
    "langmem summarize_messages": langmem.load,
    "strands summarizing manager": strands.load,
}
_BUDGET = 8_000


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; returns its exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.peers", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--entries", type=int, default=1_000)
    options = parser.parse_args(arguments)
    logging.disable(logging.CRITICAL)  # peers log on each append
    workload = items(options.entries)
    subjects = dict(SUBJECTS)
    for name, load in _PEERS.items():
        try:
            subjects[name] = load()
        except ImportError as error:
            print(f"skipped: {name}: {error}", file=sys.stderr)
    rows = [_row(name, make, workload) for name, make in subjects.items()]
    print(table(("o200k, budget 8,000", "us", "x floor", "counts/entry", "summaries"), rows))
    return 0


def _row(name: str, make: Make, workload: Sequence[Item]) -> list[object]:
    encode = o200k()
    instruments = Instruments(lambda text: len(encode(text)))
    done = walk(make(instruments, _BUDGET), workload, encode)
    return [
        name,
        done.microseconds,
        done.x_floor,
        instruments.counted / len(workload),
        instruments.summarized,
    ]


if __name__ == "__main__":
    sys.exit(main())
