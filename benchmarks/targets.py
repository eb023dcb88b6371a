"""Every target's rules over every recorded conversation, at several budgets, after random compressions.

    python -m benchmarks.targets [--quick] [--data FOLDER]

Each conversation is added in pieces; between them a seeded choice compresses it to a random size, undoes or
leaves it. After each piece a context is built for every target and checked by its rules, which know nothing
of the renderers. Exit codes: 0 no rule is broken, 1 some are, 2 no recordings.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path
from random import Random

from benchmarks.tables import table
from benchmarks.trajectories import Trajectory, read_trajectories
from benchmarks.usage import SHARED
from memman import BudgetExceeded, MemoryConfig, MemoryManager, Refused
from memman.formats.rules import RULES, check

BUDGETS = (2_000, 8_000, 32_000)
_PIECES = 4
_SESSION = "s"


class Checks:
    """Contexts, refusals and broken rules by (budget, target)."""

    def __init__(self) -> None:
        self.counts: dict[tuple[int, str], Counter[str]] = defaultdict(Counter)
        self.findings: list[str] = []

    def run(self, talk: Trajectory, budget: int) -> None:
        """One conversation at one budget, with its own seed."""
        random = Random(f"{talk.id} {budget}")
        config = MemoryConfig(max_tokens=budget, max_entries=None)
        memory = MemoryManager(counter="chars4", config=config)
        size = max(1, len(talk.messages) // _PIECES)
        for start in range(0, len(talk.messages), size):
            memory.add_messages(_SESSION, talk.messages[start : start + size], "openai-chat")
            _disturb(memory, random, budget)
            for target in RULES:
                self._check(memory, talk.id, budget, target)

    def _check(self, memory: MemoryManager, talk: str, budget: int, target: str) -> None:
        counts = self.counts[budget, target]
        try:
            context = memory.build_context(_SESSION, format=target)
        except BudgetExceeded:
            counts["refused"] += 1  # what must stay is more than the budget
            return
        counts["contexts"] += 1
        counts["trimmed"] += bool(context.trimmed)
        if not context.messages:
            return
        for broken in check(context.messages, target, system=context.system):
            counts["violations"] += 1
            self.findings.append(f"{talk} at {budget:,}, {target}: {broken.rule}: {broken.message}")


def _disturb(memory: MemoryManager, random: Random, budget: int) -> None:
    """Compresses to a random size, takes the last compression back, or does nothing."""
    choice = random.random()
    if choice < 0.6:
        memory.compress(_SESSION, target_tokens=random.randint(budget // 8, budget))
    elif choice < 0.75 and any(entry.compressed for entry in memory.get_entries(_SESSION)):
        try:
            memory.undo_compression(_SESSION)
        except Refused:
            return  # a later one stands on it, or nothing is left to take back


_COLUMNS = ("contexts", "trimmed", "refused", "violations")


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; returns its exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.targets", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--quick", action="store_true", help="some of the fixture file")
    parser.add_argument("--data", type=Path, default=SHARED, help="where the recordings are")
    options = parser.parse_args(arguments)
    name = "fixture_trajectories" if options.quick else "trajectories"
    path = options.data / f"{name}.jsonl.gz"
    if not path.is_file():
        print(f"no recordings in {options.data}", file=sys.stderr)
        return 2
    talks = read_trajectories(path, 12 if options.quick else None)
    checks = Checks()
    for talk in talks:
        for budget in BUDGETS:
            checks.run(talk, budget)
    rows = [
        [f"{budget:,}", target, *(f"{counts[name]:,}" for name in _COLUMNS)]
        for (budget, target), counts in sorted(checks.counts.items())
    ]
    print(f"{len(talks)} conversations")
    print(table(("budget", "target", *_COLUMNS), rows))
    print("\n".join(checks.findings[:20]))
    return int(bool(checks.findings))


if __name__ == "__main__":
    sys.exit(main())
