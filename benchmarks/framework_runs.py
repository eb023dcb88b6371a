"""A long conversation in each framework, with memman's adapter and an offline model.

    ADAPTER_ENVS=FOLDER python -m benchmarks.framework_runs [NAME ...] [--turns N] [--budget TOKENS]

A turn is a question, two parallel tool calls and an answer. Each framework runs in its own environment,
which `ADAPTER_ENVS=FOLDER .ci/adapters NAME` makes; those without one are skipped.

Exit code 1: a request is over its budget or invalid, or the log lacks a question or a result.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from benchmarks.tables import table
from memman import MemoryManager
from memman.records import Compressed
from tests.adapters.processes import ENVS, FRAMEWORKS, Leg, Session

PACKAGES = {
    "adk": "google-adk",
    "agent-framework": "agent-framework-core",
    "llama-index": "llama-index-core",
    "pydantic-ai": "pydantic-ai-slim",
    "strands": "strands-agents",
}
HEADERS = (
    "framework", "requests", "largest", "over", "invalid", "entries", "lost", "compressions",
)  # fmt: skip


def play(name: str, turns: int, budget: int) -> tuple[object, ...]:
    """Run the conversation, and return its row."""
    leg = Leg(name)
    counts: Counter[str] = Counter()
    results: list[str] = []
    largest = 0
    with tempfile.TemporaryDirectory() as folder:
        session = Session(Path(folder), budget)
        for turn in range(turns):
            answer = leg.run(session, f"question {turn}")
            counts["requests"] += answer["requests"]
            counts["over"] += answer["tokens"] > budget
            counts["invalid"] += len(answer["violations"])
            largest = max(largest, answer["tokens"])
            results = answer["results"]
        leg.end()
        with closing(MemoryManager(session.store)) as memory:
            log = memory.export_session(session.session).log
            contents = Counter(str(e.content) for e in memory.get_entries(session.session))
    expected = Counter([*results, *(f"question {turn}" for turn in range(turns))])
    return (
        f"{PACKAGES.get(name, name)} {_version(leg.python, PACKAGES.get(name, name))}",
        counts["requests"],
        largest,
        counts["over"],
        counts["invalid"],
        contents.total(),
        sum(contents[text] != count for text, count in expected.items()),
        sum(isinstance(record, Compressed) for record in log),
    )


def _version(python: str, package: str) -> str:
    code = f"import importlib.metadata as m; print(m.version({package!r}))"
    return subprocess.run(
        [python, "-c", code], capture_output=True, text=True, check=True
    ).stdout.strip()


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.framework_runs", description=__doc__
    )
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(FRAMEWORKS))
    parser.add_argument("--turns", type=int, default=200, metavar="N")
    parser.add_argument("--budget", type=int, default=2_500, metavar="TOKENS")
    options = parser.parse_args(arguments)
    rows = []
    for name in options.names or FRAMEWORKS:
        if ENVS is None or not Path(ENVS, f"{name}-newest").is_dir():
            print(f"skipped: {name}: ADAPTER_ENVS has no environment of it", file=sys.stderr)
            continue
        rows.append(play(name, options.turns, options.budget))
    print(table(HEADERS, rows))
    return 1 if any(row[3] or row[4] or row[6] for row in rows) else 0


if __name__ == "__main__":
    raise SystemExit(main())
