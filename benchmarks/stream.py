"""A stream of equal messages: how often the summarizer is called, and how many tokens it reads.

    python -m benchmarks.stream

400 messages of 100 tokens each, a limit of 2,000 tokens, summaries of 200, counted as `len(text) // 4`.
The tokens read are those of messages and earlier summaries in the summarizer's prompts, without the
prompt's own instructions. A message that the outline keeps, and shows to the summarizer on purpose, is read
but not sent twice. No time is measured: the figures are the same on every machine and in every run.

Exit codes: 0 all goals met, 1 a goal missed.
"""

from __future__ import annotations

import argparse
import logging
import random
import re
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from benchmarks.goals import Goal, any_failed, report
from benchmarks.instruments import Instruments
from benchmarks.subjects import SESSION, Memman, Showing
from benchmarks.tables import table
from benchmarks.workload import SEED, Item, sentence

LIMIT = 2_000
SUMMARY_TOKENS = 200
HEADERS = (
    "limit 2,000, 400 messages of 100", "calls", "tokens read", "texts sent twice", "calls without new",
    "largest context",
)  # fmt: skip
_MESSAGES = 400
_MESSAGE_TOKENS = 100
_ASKED = re.compile(r"at most about (\d+) words")
_CARRIED = re.compile(
    r"^\[memman kept\]$.*?^\[end of memman kept\]$"
    r"|^\[memman summary so far.*?^\[end of memman summary\]$",
    re.MULTILINE | re.DOTALL,
)
_CHARS = 4  # per token, by the counter of this benchmark


def count(text: str) -> int:
    """Count tokens as this benchmark does."""
    return len(text) // _CHARS


def messages() -> list[Item]:
    """The stream: a question, an answer, a question ... each of 100 tokens and unlike every other."""
    draw = random.Random(SEED)
    made = []
    for number in range(_MESSAGES):
        text = f"{number:04d} {sentence(draw, _MESSAGE_TOKENS * _CHARS - 5)}"
        content = text.ljust(_MESSAGE_TOKENS * _CHARS, ".")
        made.append(Item("message", "assistant" if number % 2 else "user", content))
    return made


class Reader(Instruments):
    """A summarizer that records the texts that it reads, and answers at one length.

    With `keeps` it answers with as many words as the prompt asks for, if these are fewer.
    """

    def __init__(self, summary_tokens: int = SUMMARY_TOKENS, keeps: bool = False) -> None:
        self._said = ("What was said so far. " * summary_tokens)[: summary_tokens * _CHARS]
        super().__init__(count, self._said)
        self._keeps = keeps
        self._last = ""
        self._texts = [item.content for item in messages()]
        self.times_read: Counter[str] = Counter()
        self.tokens_read = 0
        self.nothing_new = 0

    def summarize(self, prompt: str) -> str:
        """Return the summary, and record the parts of the stream in the prompt."""
        found = [text for text in self._texts if text in prompt]
        conversation = _CARRIED.sub("", prompt)
        sent = [text for text in found if text in conversation]
        self.nothing_new += all(self.times_read[text] for text in sent)
        self.times_read.update(sent)
        again = count(self._last) if self._last and self._last in prompt else 0
        self.tokens_read += sum(map(count, found)) + again
        said = super().summarize(prompt)
        if self._keeps and (asked := _ASKED.search(prompt)):
            said = " ".join(said.split()[: int(asked[1])])
        self._last = said
        return said


class Flow(msgspec.Struct, frozen=True):
    """The cost of a stream, and its largest context in tokens."""

    calls: int
    tokens_read: int
    sent_twice: int
    nothing_new: int
    largest: int


def row(name: str, found: Flow) -> list[object]:
    """Return the figures below `HEADERS`."""
    return [name, *msgspec.structs.astuple(found)]


def flow(make: Callable[[Instruments, int, str], Showing], reader: Reader) -> Flow:
    """Run the stream through one system, with a context after each message."""
    subject = make(reader, LIMIT, SESSION)
    largest = 0
    for item in messages():
        subject.append(item)
        shown = subject.shown(subject.context())
        largest = max(largest, sum(count(one.text) for one in shown))
    return Flow(
        reader.summarized,
        reader.tokens_read,
        sum(times > 1 for times in reader.times_read.values()),
        reader.nothing_new,
        largest,
    )


class Way(msgspec.Struct, frozen=True):
    """Settings, the length of the summaries, and the most calls and tokens that they may cost."""

    settings: Mapping[str, Any]
    summary_tokens: int
    calls: int
    tokens: int
    keeps: bool = True  # the summarizer keeps to the requested length


# A summary is at most `max_summary_ratio` of low water: 200 tokens of 1,000, or 120 of 600.
_LOW = {"target_ratio": 0.3}
_FIRST_TEXTS = 18  # replaced by a first compression down to 600 tokens, with an outline
WAYS: dict[str, Way] = {
    "the defaults": Way({}, SUMMARY_TOKENS, 40, 48_000),
    "target 0.3, summaries of the requested 120 tokens": Way(_LOW, 120, 29, 46_000),
    "target 0.3, room for 200": Way({**_LOW, "max_summary_ratio": 0.34}, 200, 29, 46_000),
    "target 0.3, 200 tokens although 120 were requested": Way(_LOW, 200, 29, 46_000, keeps=False),
}


def flow_of(way: Way) -> Flow:
    """Run the stream through memman."""

    def make(instruments: Instruments, budget: int, session: str) -> Showing:
        return Memman(instruments, budget, session, **way.settings)

    return flow(make, Reader(way.summary_tokens, way.keeps))


def goals_of(name: str, way: Way, found: Flow) -> list[Goal]:
    """Return memman's goals. A summarizer that exceeds the length is called twice the first time."""
    again = 0 if way.keeps else 1
    return [
        Goal(f"{name}: summarizer calls", found.calls, way.calls),
        Goal(f"{name}: tokens read", found.tokens_read, way.tokens),
        Goal(f"{name}: texts sent twice", found.sent_twice, again * _FIRST_TEXTS),
        Goal(f"{name}: calls that read nothing new", found.nothing_new, again),
        Goal(f"{name}: largest context", found.largest, LIMIT, unit="tokens"),
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code."""
    logging.getLogger("memman").addHandler(logging.NullHandler())
    parser = argparse.ArgumentParser(prog="python -m benchmarks.stream", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.parse_args(arguments)
    found = {name: flow_of(way) for name, way in WAYS.items()}
    print(table(HEADERS, [row(name, one) for name, one in found.items()]))
    goals = [goal for name, way in WAYS.items() for goal in goals_of(name, way, found[name])]
    print(f"\n{report(goals)}")
    return int(any_failed(goals))


if __name__ == "__main__":
    sys.exit(main())
