"""What it costs to know a model: its name read, its counter found, its limits.

    python -m benchmarks.resolution

A model that was asked for before is a look-up in a dictionary: at most 1 us. The first time it is read by
rules, plugins are asked, and the table of limits is loaded once in a process; that is shown beside,
without a goal.
Exit codes: 0 within the goal or its noise, 1 not.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from time import perf_counter, process_time

from benchmarks.goals import TIME_NOISE, Goal, any_failed, report
from benchmarks.tables import table
from memman import MemoryConfig, MemoryManager
from memman.counting import Models, known_limits, limits_of, model_ref
from memman.plugins import shared_plugins

GOAL_MICROSECONDS = 1.0
_CALLS = 20_000
_ROUNDS = 15
_MODELS = (
    "gpt-4o",
    "azure/eu/gpt-4o-2024-08-06",
    "bedrock/us.anthropic.claude-sonnet-4-5-20250929-v1:0",
    "projects/p/locations/us-east5/publishers/anthropic/models/claude-sonnet-4@20250514",
)


def measure() -> tuple[list[Goal], list[tuple[str, float]]]:
    """The goals, and what the first time of each step takes in microseconds."""
    began = perf_counter()
    names = [name for name, _ in known_limits()]
    loaded = perf_counter() - began
    models = Models(shared_plugins)
    memory = MemoryManager()
    configs = [MemoryConfig(model=model) for model in _MODELS]
    counter = memory._core.resolver.counter  # noqa: SLF001 - what a manager does for each session
    for config in configs:
        counter(config)
    known = {
        "model_ref": _each(model_ref, _MODELS),
        "Models.ref": _each(models.ref, _MODELS),
        "Models.info": _each(models.info, _MODELS),
        "a manager's counter": _each(counter, configs),
    }
    goals = [
        Goal(f"known model: {what}", cost, GOAL_MICROSECONDS, TIME_NOISE, "us")
        for what, cost in known.items()
    ]
    model_ref.cache_clear()
    read = _once(model_ref, names)
    refs = [model_ref(name) for name in names]
    first = [
        ("the table loaded", loaded * 1e6),
        ("a spelling read", read),
        ("limits found", _once(limits_of, refs)),
    ]
    return goals, first


def _each(call: Callable[..., object], arguments: Sequence[object]) -> float:
    """Microseconds of a call whose answer is known: the least of some rounds."""
    given = list(arguments) * (_CALLS // len(arguments))
    for argument in arguments:
        call(argument)
    rounds = []
    for _ in range(_ROUNDS):
        began = process_time()
        for argument in given:
            call(argument)
        rounds.append(process_time() - began)
    return min(rounds) / len(given) * 1e6


def _once(call: Callable[..., object], arguments: Sequence[object]) -> float:
    """Microseconds of a call on the average, each argument once."""
    began = process_time()
    for argument in arguments:
        call(argument)
    return (process_time() - began) / len(arguments) * 1e6


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; returns its exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.resolution", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.parse_args(arguments)
    goals, first = measure()
    print(report(goals))
    print()
    print(table(("the first time", "us"), first))
    return int(any_failed(goals))


if __name__ == "__main__":
    sys.exit(main())
