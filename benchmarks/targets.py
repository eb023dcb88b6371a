"""Every target's rules over every recorded conversation, at several budgets, after random compressions.

    python -m benchmarks.targets [--quick] [--data FOLDER]

Each conversation is added in pieces. After each piece a seeded choice compresses the session to a random
size, undoes the last compression, or does nothing. Then a context is built for every target and checked
by the target's rules, which share no code with the renderers. The same logs go through `trim_messages` of
langchain-core if it is installed (the group bench-peers).
Exit codes: 0 memman breaks no rule, 1 it breaks some, 2 no recordings.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter, defaultdict
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from random import Random

from benchmarks.peers import trimming
from benchmarks.peers.trimming import Trim
from benchmarks.tables import table
from benchmarks.trajectories import Message, Trajectory, read_trajectories
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
        """Runs one conversation at one budget, with its own seed."""
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
            counts["refused"] += 1  # the protected entries exceed the budget
            return
        counts["contexts"] += 1
        counts["trimmed"] += bool(context.trimmed)
        if not context.messages:
            return
        for broken in check(context.messages, target, system=context.system):
            counts["violations"] += 1
            self.findings.append(f"{talk} at {budget:,}, {target}: {broken.rule}: {broken.message}")


def _disturb(memory: MemoryManager, random: Random, budget: int) -> None:
    """Compress to a random size, undo the last compression, or do nothing."""
    choice = random.random()
    if choice < 0.6:
        memory.compress(_SESSION, target_tokens=random.randint(budget // 8, budget))
    elif choice < 0.75 and any(entry.compressed for entry in memory.get_entries(_SESSION)):
        try:
            memory.undo_compression(_SESSION)
        except Refused:
            return  # a later compression depends on it, or there is nothing to undo


class Trimmed:
    """The results of a function that trims OpenAI chat messages, on the same pieces of the logs.

    Only pieces over the budget count. A piece that breaks a rule before trimming is left out.
    """

    def __init__(self) -> None:
        self.counts: dict[tuple[int, str], Counter[str]] = defaultdict(Counter)
        self.rules: Counter[str] = Counter()

    def run(self, talk: Trajectory, budget: int, ways: dict[str, Trim]) -> None:
        """Runs one conversation at one budget, cut after the same messages."""
        size = max(1, len(talk.messages) // _PIECES)
        for end in range(size, len(talk.messages) + size, size):
            given = talk.messages[:end]
            memory = MemoryManager(counter="chars4", config=MemoryConfig(max_tokens=budget))
            memory.add_messages(_SESSION, given, _TRIMMED)
            if check(given, _TRIMMED) or memory.get_stats(_SESSION).total_tokens <= budget:
                continue
            for name, trim in ways.items():
                self._check(self.counts[budget, name], trim(given, budget))
            counts = self.counts[budget, "memman"]
            try:
                self._check(counts, memory.build_context(_SESSION).messages)
            except BudgetExceeded:
                counts["refused"] += 1

    def _check(self, counts: Counter[str], kept: list[Message]) -> None:
        counts["over budget before"] += 1
        if not any(message["role"] not in ("system", "developer") for message in kept):
            counts["nothing left"] += 1
            return
        broken = check(kept, _TRIMMED)
        counts["invalid"] += bool(broken)
        self.rules.update(fault.rule for fault in broken)

    def rows(self) -> list[list[str]]:
        """Return the counts, and the share of contexts that break a rule or are empty."""
        found = []
        for (budget, name), counts in sorted(self.counts.items()):
            bad = counts["invalid"] + counts["nothing left"]
            share = f"{bad / (counts['over budget before'] or 1):.1%}"
            cells = (f"{counts[column]:,}" for column in _TRIM_COLUMNS)
            found.append([f"{budget:,}", name, *cells, share])
        return found


def _beside(talks: Sequence[Trajectory]) -> str:
    """Format the report of `trim_messages` on the same logs, or a note that it is not installed."""
    try:
        ways = trimming.load()
    except ImportError as error:
        return f"skipped: trim_messages of langchain-core: {error}"
    trimmed = Trimmed()
    for talk in talks:
        for budget in BUDGETS:
            trimmed.run(talk, budget, ways)
    headers = ("budget", "who", *_TRIM_COLUMNS, "invalid or nothing")
    rules = ", ".join(f"{rule} {count:,}" for rule, count in trimmed.rules.most_common())
    return f"{table(headers, trimmed.rows())}\nbroken: {rules or 'none'}"


_TRIMMED = "openai-chat"
_TRIM_COLUMNS = ("over budget before", "refused", "nothing left", "invalid")
_COLUMNS = ("contexts", "trimmed", "refused", "violations")


def _version() -> str:
    try:
        return version("langchain-core")
    except PackageNotFoundError:
        return "(not installed)"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.targets", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--quick", action="store_true", help="some of the fixture file")
    parser.add_argument("--data", type=Path, default=SHARED, help="folder of the recordings")
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
    print(f"\ntrim_messages of langchain-core {_version()}, {_TRIMMED}\n{_beside(talks)}")
    return int(bool(checks.findings))


if __name__ == "__main__":
    sys.exit(main())
