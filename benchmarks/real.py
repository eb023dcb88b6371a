"""Real conversations: every promise checked after each exchange, at several budgets.

    python -m benchmarks.real PATH.jsonl.gz [--budgets 2000,64000] [--limit N] [--json]

Exit codes: 0 all promises kept, 1 one was broken, 2 no such file.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from itertools import groupby
from pathlib import Path
from time import perf_counter

import msgspec

from benchmarks.replay import FAULTS, Outcome, Refusal, replay
from benchmarks.seeded import blind_spots
from benchmarks.tables import table
from benchmarks.trajectories import Trajectory, read_trajectories

BUDGETS = (2_000, 4_000, 8_000, 16_000, 32_000, 64_000, 128_000)
QUICK_BUDGETS = (4_000, 16_000, 64_000)
# At this budget and above, a refusal is a fault: every recorded system prompt is far smaller.
ROOMY = 16_000
JOBS = min(2, os.cpu_count() or 1)
_SHOWN_FINDINGS = 20


def run(
    trajectories: Sequence[Trajectory],
    budgets: Sequence[int] = BUDGETS,
    *,
    max_entries: int | None = None,
    jobs: int = 1,
) -> list[Outcome]:
    """Replay every trajectory at every budget, the longest first so that no process ends alone."""
    tasks = sorted(
        ((one, budget, max_entries) for budget in budgets for one in trajectories),
        key=lambda task: -len(task[0].messages),
    )
    if jobs == 1:
        outcomes = [replay(*task) for task in tasks]
    else:
        with ProcessPoolExecutor(jobs) as pool:
            outcomes = list(pool.map(replay, *zip(*tasks, strict=True), chunksize=2))
    return sorted(outcomes, key=lambda outcome: (outcome.budget, outcome.trajectory))


def broken(outcomes: Sequence[Outcome]) -> bool:
    """Whether any promise was broken, or a context refused although it had room."""
    return any(
        any(getattr(outcome, fault) for fault in FAULTS)
        or (outcome.refusals and outcome.budget >= ROOMY)
        for outcome in outcomes
    )


_COLUMNS = (
    "budget", "trajectories", "contexts", "trimmed", "refusals", *FAULTS, "compared",
    "largest", "tokens before", "after", "compressions", "short", "add s", "build s",
)  # fmt: skip


def report(outcomes: Sequence[Outcome]) -> str:
    """Format the table, the refusals with their reasons, the messages set apart, and the faults."""
    rows = [_row(budget, list(group)) for budget, group in groupby(outcomes, lambda o: o.budget)]
    apart: Counter[str] = Counter()
    for outcome in outcomes:
        if outcome.budget == outcomes[0].budget:  # the same at each budget
            apart += outcome.apart
    lines = [table(_COLUMNS, rows), ""]
    lines += [f"set apart, not compared: {times:,} x {reason}" for reason, times in apart.items()]
    lines += list(_explained(outcomes))
    findings = [finding for outcome in outcomes for finding in outcome.findings]
    lines += findings[:_SHOWN_FINDINGS]
    if len(findings) > _SHOWN_FINDINGS:
        lines.append(f"... and {len(findings) - _SHOWN_FINDINGS:,} more findings")
    return "\n".join(lines)


def _row(budget: int, outcomes: Sequence[Outcome]) -> list[object]:
    def total(name: str) -> int:
        return sum(getattr(outcome, name) for outcome in outcomes)

    return [
        f"{budget:,}",
        len(outcomes),
        total("contexts"),
        total("trimmed"),
        sum(len(outcome.refusals) for outcome in outcomes),
        *(total(fault) for fault in FAULTS),
        total("compared"),
        max(outcome.largest for outcome in outcomes),
        total("tokens_added"),
        total("tokens_left"),
        total("compressions"),
        total("short"),
        round(sum(outcome.seconds_adding for outcome in outcomes), 2),
        round(sum(outcome.seconds_building for outcome in outcomes), 2),
    ]


def _explained(outcomes: Sequence[Outcome]) -> Iterator[str]:
    """Yield the refusals by budget, format and largest protected entry."""
    groups: dict[tuple[int, str, str], list[Refusal]] = defaultdict(list)
    for outcome in outcomes:
        for refusal in outcome.refusals:
            groups[outcome.budget, refusal.format, refusal.culprits[0][0]].append(refusal)
    for (budget, form, culprit), refusals in sorted(groups.items()):
        worst = max(refusals, key=lambda refusal: refusal.required)
        what = ", ".join(f"{name} {tokens:,}" for name, tokens in worst.culprits[:4])
        yield (
            f"refused at {budget:,}, {form}, mostly {culprit}: {len(refusals):,} contexts of "
            f"{len({refusal.trajectory for refusal in refusals})} trajectories, needing "
            f"{min(refusal.required for refusal in refusals):,} to {worst.required:,} tokens; "
            f"the worst ({worst.trajectory}, message {worst.message}): {what}"
        )


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code."""
    options = _parser().parse_args(arguments)
    if not options.path.is_file():
        problem = f"no such file: {options.path} (recorded conversations as .jsonl.gz)"
        print(problem, file=sys.stderr)
        return 2
    if blind := blind_spots():
        print(f"the rule checker misses its seeded bad request: {blind}", file=sys.stderr)
        return 1
    began = perf_counter()
    trajectories = read_trajectories(options.path, options.limit)
    outcomes = run(
        trajectories, options.budgets, max_entries=options.max_entries, jobs=options.jobs
    )
    if options.json:
        print(msgspec.json.encode(outcomes).decode())
    else:
        print(report(outcomes))
        print(f"{perf_counter() - began:.0f} s in all, checks included, {options.jobs} processes")
    return int(broken(outcomes))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.real", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("path", type=Path)
    parser.add_argument("--budgets", type=_numbers, default=BUDGETS, help="tokens, comma-separated")
    parser.add_argument("--limit", type=int, help="only the first N trajectories")
    parser.add_argument(
        "--max-entries", type=int, help="also compress above N entries; else tokens decide alone"
    )
    parser.add_argument("--jobs", type=int, default=JOBS)
    parser.add_argument("--json", action="store_true", help="every replay's counts")
    return parser


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(number) for number in text.split(","))


if __name__ == "__main__":
    sys.exit(main())
