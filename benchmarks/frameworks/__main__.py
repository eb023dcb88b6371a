"""Compare the cost of an agent's turn with memman and with the framework's own memory.

    python -m benchmarks.frameworks [NAME ...] [--turns N ...] [--rounds N]

Runs in an environment of an adapter (`ADAPTER_ENVS=FOLDER .ci/adapters NAME` makes one). Frameworks
that are not installed are skipped. Figures are CPU time; memories take turns in one process.
"""

from __future__ import annotations

import argparse
import gc
import logging
import sys
import warnings
from collections.abc import Callable, Sequence
from importlib.metadata import version
from statistics import median
from time import process_time

from benchmarks.frameworks import (
    Play,
    adk,
    agent_framework,
    langchain,
    llama_index,
    openai_agents,
    pydantic_ai,
    strands,
)
from benchmarks.tables import table

FRAMEWORKS: dict[str, tuple[str, Callable[[], dict[str, Play]]]] = {
    "adk": ("google-adk", adk.load),
    "agent-framework": ("agent-framework-core", agent_framework.load),
    "langchain": ("langchain", langchain.load),
    "llama-index": ("llama-index-core", llama_index.load),
    "openai-agents": ("openai-agents", openai_agents.load),
    "pydantic-ai": ("pydantic-ai-slim", pydantic_ai.load),
    "strands": ("strands-agents", strands.load),
}
HEADERS = ("framework, memory", "turns", "ms CPU per turn", "x own")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.frameworks", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(FRAMEWORKS))
    parser.add_argument("--turns", type=int, nargs="+", default=[60, 240], metavar="N")
    parser.add_argument("--rounds", type=int, default=3, metavar="N")
    options = parser.parse_args(arguments)
    logging.disable(logging.CRITICAL)
    warnings.simplefilter("ignore")  # of the frameworks, about themselves
    rows: list[tuple[object, ...]] = []
    for name in options.names or FRAMEWORKS:
        package, load = FRAMEWORKS[name]
        try:
            memories = load()
        except ImportError as error:
            print(f"skipped: {name}: {error}", file=sys.stderr)
            continue
        for turns in options.turns:
            for memory, (per_turn, ratio) in measure(memories, turns, options.rounds).items():
                rows.append((f"{package} {version(package)}, {memory}", turns, per_turn, ratio))
    print(table(HEADERS, rows))
    return 0


def measure(memories: dict[str, Play], turns: int, rounds: int) -> dict[str, tuple[float, float]]:
    """Return milliseconds per turn and the median ratio to the first memory, for each memory."""
    spent: dict[str, list[float]] = {name: [] for name in memories}
    for play in memories.values():
        play(3)  # imports, caches
    for _ in range(rounds):
        for name, play in memories.items():
            gc.collect()
            began = process_time()
            play(turns)
            spent[name].append(process_time() - began)
    own = next(iter(spent.values()))
    return {
        name: (
            1_000 * median(times) / turns,
            median(time / base for time, base in zip(times, own, strict=True)),
        )
        for name, times in spent.items()
    }


if __name__ == "__main__":
    raise SystemExit(main())
