"""The values that an agent needs are in its context: earlier ones in the arguments of a tool call.

    python -m benchmarks.needed [--quick] [--budgets 4000,8000] [--every 4] [--first 1] [--kind coding]

Recorded conversations are played message by message, and a context is built before each assistant message
that calls a tool with a needed value. A *value* is a string of 4 to 120 characters in the call's arguments
with a digit, one of `/ _ . @ -` or two capitals in a row. It is *needed* if an earlier message contains it,
and *old* if the newest messages that fill the budget do not: a sliding window has none of the old ones.
*First uses* are the old values that no earlier call had. A reader joins paths that are listed as
`directory/{name,name}`.
Only conversations of at least 24 messages and 1.2 times the budget count.

- memman: the whole product with its defaults, and with `state_ratio=0`: without an outline.
- sliding window: the newest messages that fit, at four characters per token.
- LangMem: `summarize_messages`, called before each answer. There is no network, so sumy's extract (Luhn)
  replaces its model, in a tenth of the budget. A real model may keep more or fewer values.
  Conversations that it refuses are not in its row.
- mixed compressions: memman, with stubs, outlines, undone ones, summaries that omit everything, and drops
  in turn (`benchmarks.mixed`). A second table has how much of the outline survives ten compressions.

Exit codes: 0 all goals met or held, 1 a goal missed, 2 no data.
"""

from __future__ import annotations

import argparse
import json
import logging
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from functools import cache, reduce
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec

from benchmarks import mixed
from benchmarks.goals import Goal, any_failed, report
from benchmarks.peers import langmem
from benchmarks.reader import with_paths
from benchmarks.real import JOBS
from benchmarks.tables import table
from benchmarks.tokens import Recount, o200k
from benchmarks.trajectories import DATA, Message, Trajectory, read_trajectories
from memman import MemoryConfig, MemoryManager

BUDGETS = (4_000, 8_000, 16_000, 32_000)
KINDS = ("coding", "tau-bench")
# The least shares of old values, and of all needed ones, that the contexts of coding agents have.
AIMS = {4_000: (0.75, 0.92), 8_000: (0.82, 0.955), 16_000: (0.88, 0.975)}
_SHORTEST = 24  # messages of a conversation
_LONGER = 1.2  # times the budget
_MIXED = (4_000, 8_000)
_QUICK_BUDGETS, _QUICK = (4_000, 8_000), 18
_VALUE = re.compile(r"[\d/_.@-]|[A-Z]{2}")
_WORDS_OF_A_SCHEMA = ("status", "state")  # a tool's schema lists them in each request
_HELD_OLD, _HELD = 0.32, 0.12  # the worst shares of lost values that pass, also in a sample
_NO_DATA = 2


# ---------------------------------------------------------------- the measure


class Moment(msgspec.Struct, frozen=True):
    """The number of messages before a call of a tool, and its argument values that one of them has.

    `first` are those that no earlier call used.
    """

    at: int
    values: frozenset[str]
    first: frozenset[str] = frozenset()


class Request(msgspec.Struct, frozen=True):
    """A request to a model: the text of its messages, and its tokens."""

    text: str
    tokens: int


class Score(msgspec.Struct, frozen=True):
    """Sums over requests: needed values, old ones, first uses of these; each in the context; tokens."""

    requests: int = 0
    needed: int = 0
    kept: int = 0
    old: int = 0
    old_kept: int = 0
    tokens: int = 0
    first: int = 0
    first_kept: int = 0

    def __add__(self, other: Score) -> Score:
        return Score(*map(sum, zip(*map(msgspec.structs.astuple, (self, other)), strict=True)))


def values_of(message: Message) -> set[str]:
    """Return the values in the arguments of a message's calls."""
    found = set()
    for call in message.get("tool_calls") or ():
        try:
            waiting: list[Any] = [json.loads(call["function"]["arguments"])]
        except ValueError:
            continue
        while waiting:
            one = waiting.pop()
            if isinstance(one, dict):
                waiting += [each for name, each in one.items() if name not in _WORDS_OF_A_SCHEMA]
            elif isinstance(one, list):
                waiting += one
            elif isinstance(one, str) and 4 <= len(one) <= 120 and _VALUE.search(one):
                found.add(one)
    return found


def text_of(message: Message) -> str:
    """Return the text of a message, with the names and arguments of its calls."""
    content = message.get("content")
    texts = [content if isinstance(content, str) else json.dumps(content or "", ensure_ascii=False)]
    functions = (call["function"] for call in message.get("tool_calls") or ())
    return "\n".join([*texts, *(each["name"] + each["arguments"] for each in functions)])


def moments(messages: Sequence[Message]) -> list[Moment]:
    """Return the moments at which a value is needed."""
    texts = [text_of(message) for message in messages]
    searched: dict[str, int] = {}  # the messages that a value was not found in
    said: set[str] = set()
    used: set[str] = set()
    found = []
    for at, message in enumerate(messages):
        if not at or message["role"] != "assistant":
            continue
        values = values_of(message)
        for value in values - said:
            if any(value in text for text in islice(texts, searched.get(value, 0), at)):
                said.add(value)
            searched[value] = at
        if needed := frozenset(values & said):
            found.append(Moment(at, needed, needed - used))
        used |= values
    return found


def size_of(text: str) -> int:
    """Count the tokens of a message by the measure's own rule."""
    return len(text) // 4 + 4


def window_start(sizes: Sequence[int], at: int, budget: int) -> int:
    """Return the first of the newest messages before `at` that fill the budget."""
    used = 0
    for start in range(at - 1, -1, -1):
        used += sizes[start]
        if used > budget:
            return start + 1
    return 0


def score(moment: Moment, near: str, request: Request) -> Score:
    """Return the score of a request for the needed values; `near` is the sliding window's text."""
    there = {value for value in moment.values if value in request.text}
    old = {value for value in moment.values if value not in near}
    first = old & moment.first
    return Score(
        requests=1,
        needed=len(moment.values),
        kept=len(there),
        old=len(old),
        old_kept=len(there & old),
        tokens=request.tokens,
        first=len(first),
        first_kept=len(there & first),
    )


# ---------------------------------------------------------------- systems

System = Callable[[Sequence[Message], Sequence[Moment], int], Iterator[Request]]
"""`(messages, moments, budget) -> the request of each moment`."""


@cache
def recount() -> Recount:
    """Return the counter of the requests' tokens (o200k_base)."""
    encode = o200k()
    return Recount(lambda text: len(encode(text)))


def request_of(messages: Sequence[Message]) -> Request:
    """Return the request with these messages."""
    text = "\n".join(map(text_of, messages))
    return Request(with_paths(text), recount().openai_chat(messages))


def sliding_window(
    messages: Sequence[Message], at: Sequence[Moment], budget: int
) -> Iterator[Request]:
    """The newest messages that fit."""
    sizes = [size_of(text_of(message)) for message in messages]
    for moment in at:
        yield request_of(messages[window_start(sizes, moment.at, budget) : moment.at])


def memman(**settings: Any) -> System:
    """Return memman with its defaults and these settings."""

    def play(messages: Sequence[Message], at: Sequence[Moment], budget: int) -> Iterator[Request]:
        config = MemoryConfig(max_tokens=budget, **settings)
        with MemoryManager(model="gpt-4o", config=config) as memory:
            added = 0
            for moment in at:
                memory.add_messages("s", messages[added : moment.at], format="openai-chat")
                added = moment.at
                yield request_of(memory.build_context("s").messages)

    return play


def memman_mixed(
    messages: Sequence[Message], at: Sequence[Moment], budget: int
) -> Iterator[Request]:
    """Play memman through compressions of different kinds."""
    with mixed.Session(budget) as session:
        added = 0
        for moment in at:
            for message in messages[added : moment.at]:
                session.add(message)
            added = moment.at
            yield request_of(session.memory.build_context("s").messages)


def langmem_system() -> System:
    """Return LangMem's summaries. Raises `ImportError` if it is not installed."""
    summaries = langmem.load_summaries()

    def play(messages: Sequence[Message], at: Sequence[Moment], budget: int) -> Iterator[Request]:
        memory = summaries(budget, budget // 10)
        added = 0
        for moment in at:
            for message in messages[added : moment.at]:
                if message["role"] == "assistant":
                    memory.context()
                memory.append(message)
            added = moment.at
            yield request_of(memory.context())

    return play


SYSTEMS: dict[str, Callable[[], System]] = {
    "memman": memman,
    "memman, state_ratio=0": lambda: memman(state_ratio=0),
    "memman, mixed compressions": lambda: memman_mixed,
    "sliding window": lambda: sliding_window,
    "langmem": langmem_system,
}
OURS = "memman"


# ---------------------------------------------------------------- a run


class Played(msgspec.Struct, frozen=True):
    """The scores of a conversation by budget and system."""

    kind: str
    scores: dict[tuple[int, str], Score]


def kind_of(trajectory: Trajectory) -> str:
    """Return which of `KINDS` a conversation is."""
    return "tau-bench" if trajectory.id.startswith("tau-") else "coding"


def is_long(trajectory: Trajectory, budget: int) -> bool:
    """Return whether a conversation is long enough for a budget."""
    chars = sum(len(text_of(message)) for message in trajectory.messages)
    return len(trajectory.messages) >= _SHORTEST and chars / 4 >= _LONGER * budget


def play(trajectory: Trajectory, budgets: Sequence[int], systems: Sequence[str]) -> Played:
    """Play a conversation through each system at each budget that it is long enough for."""
    messages = trajectory.messages
    texts = [text_of(message) for message in messages]
    at = moments(messages)
    sizes = list(map(size_of, texts))
    scores = {}
    for budget in budgets:
        if not is_long(trajectory, budget):
            continue
        nears = ["\n".join(texts[window_start(sizes, m.at, budget) : m.at]) for m in at]
        for name in systems:
            requests = SYSTEMS[name]()(messages, at, budget)
            each = map(score, at, nears, requests)
            with suppress(langmem.Refused):
                scores[budget, name] = reduce(Score.__add__, each, Score())
    return Played(kind_of(trajectory), scores)


def run(
    trajectories: Iterable[Trajectory], budgets: Sequence[int], systems: Sequence[str], jobs: int
) -> list[Played]:
    """Play conversations, the longest first so that no process ends alone."""
    long = [one for one in trajectories if is_long(one, min(budgets))]
    long.sort(key=lambda one: -sum(len(text_of(message)) for message in one.messages))
    if jobs == 1:
        return [play(one, budgets, systems) for one in long]
    with ProcessPoolExecutor(jobs) as pool:
        return list(pool.map(play, long, *([each] * len(long) for each in (budgets, systems))))


def sums(played: Sequence[Played]) -> dict[tuple[str, int, str], tuple[int, Score]]:
    """Return the number of conversations and their sum by kind, budget and system."""
    found: dict[tuple[str, int, str], tuple[int, Score]] = {}
    for one in played:
        for (budget, name), each in one.scores.items():
            key = one.kind, budget, name
            sessions, before = found.get(key, (0, Score()))
            found[key] = sessions + 1, before + each
    return dict(sorted(found.items(), key=lambda item: (item[0][0], item[0][1])))


def rows(found: dict[tuple[str, int, str], tuple[int, Score]]) -> list[list[object]]:
    """Return a row for each kind, budget and system."""
    return [
        [
            f"{kind}, {budget:,}: {name}", sessions, one.requests, one.needed,
            one.kept / max(1, one.needed), one.old, one.old_kept / max(1, one.old),
            one.first, one.first_kept / max(1, one.first), one.tokens // max(1, one.requests),
        ]
        for (kind, budget, name), (sessions, one) in found.items()
    ]  # fmt: skip


HEADERS = (
    "", "sessions", "requests", "needed", "there", "old", "there", "first uses", "there", "tokens",
)  # fmt: skip


def goals(found: dict[tuple[str, int, str], tuple[int, Score]]) -> list[Goal]:
    """Return memman's aims for coding agents."""
    made = []
    for budget, (old, every) in AIMS.items():
        if (key := ("coding", budget, OURS)) in found:
            one = found[key][1]
            lost = 1 - one.old_kept / max(1, one.old), 1 - one.kept / max(1, one.needed)
            made += [
                Goal(f"{budget:,}: old needed values lost", lost[0], 1 - old, held=_HELD_OLD),
                Goal(f"{budget:,}: needed values lost", lost[1], 1 - every, held=_HELD),
            ]
    return made


def _available(systems: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the systems that can be measured, and why others cannot."""
    found, notes = [], []
    for name in systems:
        try:
            SYSTEMS[name]()
        except ImportError as error:
            notes.append(f"note: {name} is skipped: {error}")
        else:
            found.append(name)
    return found, notes


def measure(
    trajectories: Sequence[Trajectory], budgets: Sequence[int], systems: Sequence[str], jobs: int
) -> tuple[str, list[Goal]]:
    """Return the table of these conversations, and memman's goals."""
    available, notes = _available(systems)
    found = sums(run(trajectories, budgets, available, jobs))
    return "\n".join([table(HEADERS, rows(found)), *notes]), goals(found)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code."""
    options = _parser().parse_args(arguments)
    logging.getLogger("memman").addHandler(logging.NullHandler())
    path = options.folder / "trajectories.jsonl.gz"
    if not path.is_file():
        print(f"no recorded conversations in {options.folder}", file=sys.stderr)
        return _NO_DATA
    every = options.every or (_QUICK if options.quick else 1)
    budgets = options.budgets or (_QUICK_BUDGETS if options.quick else BUDGETS)
    of_kinds = [one for one in read_trajectories(path) if kind_of(one) in options.kinds]
    chosen = of_kinds[options.first :: every]
    shown, aims = measure(chosen, budgets, options.systems, options.jobs)
    print(shown)
    if OURS in options.systems:
        coding = [one for one in chosen if is_long(one, _MIXED[-1])]
        chosen_budgets = _MIXED[:1] if options.quick else _MIXED
        print(table(mixed.HEADERS, mixed.run(coding, chosen_budgets, options.jobs)))
    print(f"\n{report(aims)}")
    return int(any_failed(aims))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.needed", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--folder", type=Path, default=DATA, help="folder of the conversations")
    quick = f"every {_QUICK}th conversation, at {_QUICK_BUDGETS[0]:,} and {_QUICK_BUDGETS[1]:,}"
    parser.add_argument("--quick", action="store_true", help=quick)
    parser.add_argument("--budgets", type=numbers, help="tokens, comma-separated")
    parser.add_argument("--every", type=int, help="only every Nth conversation")
    parser.add_argument("--first", type=int, default=0, help="the first of them, from 0")
    parser.add_argument("--kinds", type=names, default=KINDS, help=", ".join(KINDS))
    parser.add_argument("--systems", type=names, default=[*SYSTEMS], help="; ".join(SYSTEMS))
    parser.add_argument("--jobs", type=int, default=JOBS)
    return parser


def numbers(text: str) -> tuple[int, ...]:
    return tuple(map(int, text.split(",")))


def names(text: str) -> list[str]:
    return [name.strip() for name in text.split(";")]


if __name__ == "__main__":
    sys.exit(main())
