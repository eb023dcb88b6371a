"""Compare memman with other libraries: three shapes of use, calls of the summarizer, durable appends.

    python -m benchmarks.peers [--quick]

A peer that is not installed is skipped with the reason.
"""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Callable, Sequence
from importlib.metadata import version
from typing import TypeVar

from benchmarks import shapes, stream
from benchmarks.peers import durable, langchain, langmem, llamaindex, openai_agents, strands
from benchmarks.shapes import Open
from benchmarks.tables import table
from benchmarks.workload import items

Load = Callable[[], Open]
T = TypeVar("T")
_DURABLE, _DURABLE_QUICK, _CAP = 5_000, 500, 10.0  # appends, and seconds for each of them
# (package, its part, how it is loaded)
PEERS: tuple[tuple[str, str, Load], ...] = (
    ("langchain-classic", "summary buffer", langchain.load),
    ("langmem", "summarize_messages", langmem.load),
    ("strands-agents", "summarizing manager", strands.load),
    ("llama-index-core", "summary buffer", llamaindex.load),
    ("openai-agents", "SQLite session", openai_agents.load),
    ("openai-agents", "its newest 40 items", openai_agents.load_newest),
)
# Those that call a summarizer; langchain's also by the method that takes a question and its answer.
ASKING: tuple[tuple[str, str, Load], ...] = (
    ("langchain-classic", "summary buffer, by turns", langchain.load_turns),
    *PEERS[:4],
)


def installed(peers: Sequence[tuple[str, str, Callable[[], T]]]) -> dict[str, T]:
    """Return the installed peers by a name with their version; the others are listed with the reason."""
    found: dict[str, T] = {}
    for package, part, load in peers:
        try:
            make = load()
        except ImportError as error:
            print(f"skipped: {package}, {part}: {error}", file=sys.stderr)
        else:
            found[f"{package} {version(package)}, {part}"] = make
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.peers", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--quick", action="store_true", help="small sizes")
    quick = parser.parse_args(arguments).quick
    sizes = shapes.QUICK if quick else shapes.FULL
    logging.disable(logging.CRITICAL)  # peers log on each append
    print(_shapes(sizes), flush=True)
    print(f"\n{_stream()}", flush=True)
    print(f"\n{_durable(_DURABLE_QUICK if quick else _DURABLE)}")
    return 0


def _durable(number: int) -> str:
    subjects = durable.OURS | installed(durable.PEERS)
    return table(durable.HEADERS, durable.measure(subjects, items(number), _CAP))


def _shapes(sizes: shapes.Sizes) -> str:
    rows = []
    for name, make in (shapes.SUBJECTS | installed(PEERS)).items():
        print(f"measuring {name}", file=sys.stderr, flush=True)
        rows.append([name, *shapes.measure(make, sizes).row()])
    return table(shapes.HEADERS, rows)


def _stream() -> str:
    rows = [stream.row(f"memman, {name}", stream.flow_of(way)) for name, way in stream.WAYS.items()]
    rows += [
        stream.row(name, stream.flow(make, stream.Reader()))
        for name, make in installed(ASKING).items()
    ]
    return table(stream.HEADERS, rows)


if __name__ == "__main__":
    sys.exit(main())
