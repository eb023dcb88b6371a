"""Round trips: messages that are parsed and rendered again, unedited, must equal the original.

    python -m benchmarks.roundtrips [--quick] [--data FOLDER]

The input is recorded request bodies of every provider, and recorded conversations through each format that
renders. A body that breaks a rule of its provider comes back mended and is counted apart; a second table
lists the broken rules. The output must break none.
Exit codes: 0 all equal and valid, 1 a difference or an invalid body, 2 no recordings.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from benchmarks.replay import absent
from benchmarks.tables import table
from benchmarks.trajectories import read_trajectories
from benchmarks.usage import SHARED, read_records
from memman import FormatError, MemoryConfig, MemoryManager
from memman.formats import builtin_formats, plain_messages
from memman.formats.rules import RULES, check

Message = dict[str, Any]
_ENDPOINTS = {
    "chat.completions": ("openai-chat", "messages"),
    "responses": ("openai-responses", "input"),
    "messages": ("anthropic", "messages"),
    "generateContent": ("gemini", "contents"),
    "streamGenerateContent": ("gemini", "contents"),
    "converse": ("bedrock", "messages"),
    "converse-stream": ("bedrock", "messages"),
}
_SHOWN = 5


class Trips:
    """The results of each group of messages, and the first message that changed."""

    def __init__(self) -> None:
        self.counts: dict[tuple[str, str], Counter[str]] = defaultdict(Counter)
        self.rules: Counter[tuple[str, str]] = Counter()
        self.findings: list[str] = []

    def take(self, group: tuple[str, str], messages: list[Any]) -> None:
        """Parses one conversation and renders it again."""
        form, counts = group[1], self.counts[group]
        counts["conversations"] += 1
        try:
            plain = plain_messages(messages)
            again = _again(plain, form)
        except FormatError as error:
            counts["not read"] += 1
            self._note(group, f"not read: {error}")
            return
        counts["messages"] += len(plain)
        if broken := check(again, form):
            counts["invalid"] += 1
            self._note(group, f"invalid: {broken[0].rule}: {broken[0].message}")
        if again == plain:
            counts["equal"] += 1
        elif broken := check(plain, form):
            counts["mended"] += 1
            counts["mended messages"] += len(absent(plain, again))
            self.rules.update({(form, fault.rule) for fault in broken})
        else:
            counts["unequal"] += 1
            self._note(group, f"{absent(plain, again)!r:.300}")

    def _note(self, group: tuple[str, str], what: str) -> None:
        if sum(line.startswith(str(group)) for line in self.findings) < _SHOWN:
            self.findings.append(f"{group}: {what}")


def _again(messages: list[Any], form: str) -> list[Message]:
    """Render unedited messages."""
    config = MemoryConfig(max_tokens=10**8, auto_compress=False)
    memory = MemoryManager(counter="chars4", config=config)
    memory.add_messages("s", messages, format=form)
    return memory.build_context("s", format=form).messages


def bodies(path: Path) -> Iterator[tuple[str, str, list[Any]]]:
    """Yield (provider, format, messages) of each recorded request that has a list of messages."""
    for record in read_records(path):
        form, key = _ENDPOINTS.get(record["endpoint"], ("", ""))
        messages = record["request"].get(key) if form else None
        if isinstance(messages, list) and messages:
            provider = record["provider"]
            yield provider, "mistral" if provider == "mistral" else form, messages


def run(bodies_file: Path, talks_file: Path) -> Trips:
    """Run every body in its own format, every conversation through each format that has rules."""
    trips = Trips()
    for provider, form, messages in bodies(bodies_file):
        trips.take((provider, form), messages)
    roomy = MemoryConfig(max_tokens=10**8, auto_compress=False)
    for talk in read_trajectories(talks_file):
        memory = MemoryManager(counter="chars4", config=roomy)
        memory.add_messages("s", talk.messages, "openai-chat")
        trips.take(("trajectories", "openai-chat"), talk.messages)
        for form in (form.name for form in builtin_formats() if form.name in RULES):
            if form != "openai-chat":
                rendered = memory.build_context("s", format=form).messages
                trips.take(("trajectories, rendered", form), rendered)
    return trips


_COLUMNS = (
    "conversations",
    "messages",
    "equal",
    "mended",
    "mended messages",
    "unequal",
    "invalid",
    "not read",
)


def mended(rules: Counter[tuple[str, str]]) -> str:
    """Format the rules that mended conversations broke, each with its source."""
    sources = {(target, rule.id): rule.source for target in RULES for rule in RULES[target]}
    rows = [[*key, f"{count:,}", sources[key]] for key, count in sorted(rules.items())]
    return table(("format", "rule", "conversations", "known from"), rows)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.roundtrips", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--quick", action="store_true", help="the fixture files")
    parser.add_argument("--data", type=Path, default=SHARED, help="folder of the recordings")
    options = parser.parse_args(arguments)
    names = ("usage.public", "trajectories")
    if options.quick:
        names = ("fixture_usage", "fixture_trajectories")
    files = [options.data / f"{name}.jsonl.gz" for name in names]
    if not all(file.is_file() for file in files):
        print(f"no recordings in {options.data}", file=sys.stderr)
        return 2
    trips = run(*files)
    rows = [
        [*group, *(f"{counts[name]:,}" for name in _COLUMNS)]
        for group, counts in sorted(trips.counts.items())
    ]
    total = sum(trips.counts.values(), Counter())
    rows.append(["all", "", *(f"{total[name]:,}" for name in _COLUMNS)])
    print(table(("from", "format", *_COLUMNS), rows))
    print("\n".join(trips.findings))
    print(f"\nmended, by the rules that they broke\n{mended(trips.rules)}")
    return int(bool(total["unequal"] or total["invalid"] or total["not read"]))


if __name__ == "__main__":
    sys.exit(main())
