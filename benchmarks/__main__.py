"""Run the benchmarks: imports, cost, agent loops, shapes of use, compressions, memory, stores, counting,
real conversations.

    python -m benchmarks [--full] [--data FOLDER]

By default, small sizes and the fixture of recorded conversations (under three minutes); full sizes
with --full. Without recorded conversations, the bundled demo replaces them.
Exit codes: 0 promises kept and goals met within their noise, 1 not.
"""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from time import perf_counter

from benchmarks import (
    accuracy,
    agent_loops,
    archives,
    bill,
    cache_server,
    calibration,
    compressions,
    cost,
    estimator,
    exactness,
    imports,
    logs,
    memory,
    real,
    recall,
    roundtrips,
    scale,
    shapes,
    stores,
    stream,
    targets,
    validity,
)
from benchmarks.goals import any_failed, report
from benchmarks.seeded import blind_spots
from benchmarks.trajectories import DATA, Trajectory, demo_trajectory, read_trajectories

Command = Callable[[Sequence[str] | None], int]
_NO_DATA = 2  # the exit code of a command without its data


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--full", action="store_true", help="all conversations, all sizes")
    parser.add_argument(
        "--data", type=Path, default=DATA, help="folder of the recorded conversations"
    )
    options = parser.parse_args(arguments)
    logging.getLogger("memman").addHandler(logging.NullHandler())
    began = perf_counter()

    # Times first, while no other process of this command runs.
    imported = imports.measure()
    print(f"== imports\n{imported}\n")
    cost_began = perf_counter()
    costs = cost.measure(cost.FULL if options.full else cost.QUICK)
    print(f"== cost\n{costs}\n{perf_counter() - cost_began:.0f} s\n")
    commands_failed = _commands(options.data, options.full)
    trajectories = _trajectories(options.data, options.full)
    print(f"== real conversations ({len(trajectories)})")
    budgets = real.BUDGETS if options.full else real.QUICK_BUDGETS
    outcomes = real.run(trajectories, budgets, jobs=real.JOBS)
    print(real.report(outcomes), "\n")

    missed = [goal for goal in (*imported.goals, *costs.goals) if not goal.met]
    print("== goals not met\n" + (report(missed) if missed else "none"))
    print(f"promises broken: {'yes' if real.broken(outcomes) else 'no'}")
    print(f"{perf_counter() - began:.0f} s in all")
    if commands_failed:
        print(f"failed above: {', '.join(commands_failed)}")
    failed = any_failed(missed) or commands_failed or real.broken(outcomes) or blind_spots()
    return int(bool(failed))


def _commands(folder: Path, full: bool) -> list[str]:
    """Run the other commands, each with its own report. Return the names of those that failed."""
    quick = [] if full else ["--quick"]
    recorded = folder / ("trajectories.jsonl.gz" if full else "fixture_trajectories.jsonl.gz")
    commands: tuple[tuple[str, Command, list[str]], ...] = (
        ("agent_loops", agent_loops.main, quick),
        ("shapes", shapes.main, quick),
        ("compressions", compressions.main, quick),
        ("stores", stores.main, [*quick, "--data", str(folder)]),
        ("scale", scale.main, ["--quick"]),  # in full only by itself: it takes a quarter of an hour
        ("archives", archives.main, quick),
        ("stream", stream.main, []),
        ("memory", memory.main, [*quick, "--folder", str(folder)]),
        ("cache_server", cache_server.main, ["--folder", str(folder)]),
        ("bill", bill.main, [*quick, "--folder", str(folder)]),
        ("recall", recall.main, [*quick, "--folder", str(folder)]),
        ("estimator", estimator.main, []),
        ("exactness", exactness.main, [*quick, "--data", str(folder)]),
        ("accuracy", accuracy.main, quick),
        ("roundtrips", roundtrips.main, [*quick, "--data", str(folder)]),
        ("logs", logs.main, [*quick, "--data", str(folder)]),
        ("targets", targets.main, [*quick, "--data", str(folder)]),
        ("validity", validity.main, ["--requests", "5000" if full else "300"]),
        ("calibration", calibration.main, [str(recorded)]),
    )
    failed = []
    for name, command, given in commands:
        print(f"== {name}", flush=True)
        began = perf_counter()
        code = command(given)
        if code == _NO_DATA:
            print("note: skipped, its data, server or package is missing")
        elif code:
            failed.append(name)
        print(f"{perf_counter() - began:.0f} s\n")
    return failed


def _trajectories(folder: Path, full: bool) -> list[Trajectory]:
    path = folder / ("trajectories.jsonl.gz" if full else "fixture_trajectories.jsonl.gz")
    if path.is_file():
        return read_trajectories(path)
    print(f"note: {path} does not exist; the bundled demo replaces it")
    return [demo_trajectory()]


if __name__ == "__main__":
    sys.exit(main())
