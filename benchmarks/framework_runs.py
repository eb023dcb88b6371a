"""A long conversation in each framework, with memman's adapter and an offline model.

    ADAPTER_ENVS=FOLDER python -m benchmarks.framework_runs [NAME ...] [--turns N] [--budget N] [--small N]

A turn is a question, two parallel tool calls and an answer. With `--small`, a second model with this window
answers every other turn: *refused* are its refusals, and *misplaced* are answers without a report of usage
under the name of their model, and reports under another name. Each framework runs in its own environment,
which `ADAPTER_ENVS=FOLDER .ci/adapters NAME` makes; those without one are skipped.

Exit code 1: a request is over its budget or invalid, the log lacks a question or a result, or usage is
under another model's name.
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
from memman.records import Compressed, UsageReported
from tests.adapters.processes import ENVS, FRAMEWORKS, Leg, Session

PACKAGES = {
    "adk": "google-adk",
    "agent-framework": "agent-framework-core",
    "llama-index": "llama-index-core",
    "pydantic-ai": "pydantic-ai-slim",
    "strands": "strands-agents",
}
HEADERS = (
    "framework", "requests", "largest", "over", "invalid", "entries", "lost", "compressions", "refused",
    "misplaced",
)  # fmt: skip


def play(name: str, turns: int, budget: int, small: int = 0) -> tuple[object, ...]:
    """Run the conversation, and return its row."""
    leg = Leg(name)
    counts: Counter[str] = Counter()
    results: list[str] = []
    asked: Counter[str] = Counter()  # how often each question was given
    answered: Counter[str] = Counter()  # requests by model
    largest = 0
    with tempfile.TemporaryDirectory() as folder:
        session = Session(Path(folder), budget, small=small)
        for turn in range(turns):
            answer = leg.run(session, f"question {turn}")
            asked[f"question {turn}"] = answer["asked"]
            counts["requests"] += answer["requests"]
            counts["refused"] += answer["refused"]
            answered[answer["model"]] += answer["requests"] - answer["refused"]
            counts["over"] += answer["tokens"] > budget
            counts["invalid"] += len(answer["violations"])
            largest = max(largest, answer["tokens"])
            results = answer["results"]
        leg.end()
        with closing(MemoryManager(session.store)) as memory:
            log = memory.export_session(session.session).log
            contents = Counter(str(e.content) for e in memory.get_entries(session.session))
    expected = Counter([*results, *(f"question {turn}" for turn in range(turns))])
    most = expected | asked  # OpenAI's session keeps the question of a run that failed
    return (
        f"{PACKAGES.get(name, name)} {_version(leg.python, PACKAGES.get(name, name))}",
        counts["requests"],
        largest,
        counts["over"],
        counts["invalid"],
        contents.total(),
        sum(not count <= contents[text] <= most[text] for text, count in expected.items()),
        sum(isinstance(record, Compressed) for record in log),
        counts["refused"],
        _misplaced([each.model or "" for each in log if isinstance(each, UsageReported)], answered),
    )


def _misplaced(models: Sequence[str], answered: Counter[str]) -> int:
    """Return the number of reports under another model's name, and of answers without a report."""
    reported = Counter(models)
    return (reported - answered).total() + (answered - reported).total()


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
    parser.add_argument("--small", type=int, default=0, metavar="TOKENS")
    options = parser.parse_args(arguments)
    rows = []
    for name in options.names or (*FRAMEWORKS, "litellm"):
        if ENVS is None or not Path(ENVS, f"{name}-newest").is_dir():
            print(f"skipped: {name}: ADAPTER_ENVS has no environment of it", file=sys.stderr)
            continue
        rows.append(play(name, options.turns, options.budget, options.small))
    print(table(HEADERS, rows))
    return 1 if any(row[3] or row[4] or row[6] or row[9] for row in rows) else 0


if __name__ == "__main__":
    raise SystemExit(main())
