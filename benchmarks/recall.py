"""Recall: the share of evidence that search finds, its speed, and the cost of the index.

    python -m benchmarks.recall [--quick] [--folder ../shared/data] [--memdaily FOLDER]

- LoCoMo: the share of questions whose evidence turns are all among the hits of `search(budget=...)`, at
  four characters a token, names of speakers included. The ranking was tuned on every second dialogue; the
  goals are for the others, which are held out.
- LoCoMo in the context: the same questions as the newest message of a context of 4,096 tokens, with a share
  of it for texts that come back by themselves, and without.
- MemDaily (https://github.com/nuster1128/MemSim; FOLDER is its
  `data_generation/final_dataset/messages_and_QAs`): Chinese messages of one person, and questions of six
  kinds about them. The share of a question's messages among the first five hits.
- Old values: argument values that a recorded coding agent needs and that its context of 4,000 tokens lacks
  (`benchmarks.needed`). The share that is in the first three hits for the value's file name, if the value
  is one path, or for its longest word. One word of a command of several is often a word of many commands.
- Time: a query over 1,000,000 tokens of recorded sessions in one session of a SQLite file (without them, of
  generated ones), over the same query to a bare FTS5 table; and queries in a file of 100,000 sessions.
- Cost: the first search, which makes the index; an append to a file that was searched, over one to a file
  that was not; the size of the index over that of the text; opening.

Exit codes: 0 all goals met or held, 1 a goal missed, 2 no data (the times of generated sessions are shown).
"""

from __future__ import annotations

import argparse
import gzip
import json
import logging
import random
import shutil
import sqlite3
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from time import process_time
from typing import Any

import msgspec

from benchmarks.goals import RATIO_NOISE, TIME_NOISE, Goal, any_failed, report
from benchmarks.needed import (
    is_long,
    kind_of,
    moments,
    request_of,
    size_of,
    text_of,
    window_start,
)
from benchmarks.stores import add
from benchmarks.tables import table
from benchmarks.trajectories import DATA, Trajectory, read_trajectories
from benchmarks.workload import Item, items, sentence
from memman import Entry, MemoryConfig, MemoryManager, TokenCount
from memman.ids import new_id
from memman.records import Added
from memman.search import searchable, terms_of
from memman.stores import SQLiteStore

# The least shares of questions whose evidence is found, by budget, and of old values.
AIMS = {1_024: 0.70, 2_048: 0.75, 4_096: 0.79}
VALUES_AIM = 0.95
_HELD = {1_024: 0.69, 2_048: 0.74, 4_096: 0.78}
# The kinds of MemDaily, each with its aim and with the least recall that passes.
MEMDAILY = {
    "01": ("simple", 0.78, 0.75), "02": ("conditional", 0.78, 0.75), "03": ("comparative", 0.84, 0.81),
    "04": ("aggregative", 0.75, 0.72), "05": ("post-processing", 0.74, 0.72), "06": ("noisy", 0.80, 0.78),
}  # fmt: skip
_FIRST = 5  # hits
# Shares of a context for recalled texts, each with its aim and the least part of the questions that passes.
CONTEXT_AIMS = {0.0: (0.06, 0.04), 0.1: (0.55, 0.26)}
_CONTEXT = 4_096  # tokens
_CONTEXT_EVERY = 8  # the distance of two questions that are asked
_BEGINNING = 60  # characters of a turn that tell that it is in a context
_HELD_PATHS, _HELD_VALUES = 0.83, 0.68
_VALUES_BUDGET = 4_000
_HITS = 3
_CHARS = 4  # of a token
_NO_DATA = 2
_CALLS = 4
_CHUNK = 50  # appends in a turn
_ALL = MemoryConfig(max_tokens=10**9, max_entries=None, auto_compress=False)
_SESSION = "s"


class Sizes(msgspec.Struct, frozen=True):
    """How much is measured: every nth question and conversation, tokens, sessions, queries, appends."""

    questions: int = 1
    conversations: int = 1
    tokens: int = 1_000_000
    sessions: int = 100_000
    queries: int = 60
    appends: int = 2_000


FULL = Sizes()
QUICK = Sizes(
    questions=8, conversations=18, tokens=100_000, sessions=2_000, queries=20, appends=400
)


class Measurement(msgspec.Struct):
    """Tables to read and goals to hold."""

    tables: list[str] = []
    goals: list[Goal] = []

    def __str__(self) -> str:
        return "\n\n".join([*self.tables, report(self.goals)])


# ---------------------------------------------------------------- LoCoMo


def chars4(text: str) -> int:
    """Count four characters as a token."""
    return max(1, -(-len(text) // _CHARS))


def dialogues(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the recorded dialogues."""
    with gzip.open(path, "rb") as lines:
        for line in lines:
            yield json.loads(line)


def evidence_of(dialogue: dict[str, Any]) -> list[tuple[str, frozenset[str]]]:
    """Return the questions that have an answer, each with the turns that are its evidence."""
    turns = {turn["id"] for turn in dialogue["turns"]}
    found = (
        (each["question"], frozenset(each["evidence"]) & turns)
        for each in dialogue["questions"]
        if each["category_name"] != "adversarial"
    )
    return [(question, evidence) for question, evidence in found if evidence]


def _spoken(dialogue: dict[str, Any]) -> list[dict[str, str]]:
    """Return the turns of a dialogue, of which the first speaker's are the user's."""
    return [
        {
            "role": "user" if turn["speaker"] == dialogue["speakers"][0] else "assistant",
            "content": f"{turn['speaker']}: {turn['text'] or '.'}",
        }
        for turn in dialogue["turns"]
    ]


def measure_dialogues(found: Measurement, path: Path, every: int) -> None:
    """Search for the evidence of every nth question."""
    asked, hit = Counter[int](), Counter[tuple[int, int]]()
    with MemoryManager(counter=chars4, config=_ALL) as memory:
        for number, dialogue in enumerate(dialogues(path)):
            half = number % 2
            name, ids = f"dialogue-{number}", [turn["id"] for turn in dialogue["turns"]]
            memory.add_messages(name, _spoken(dialogue), format="openai-chat", ids=ids)
            for question, evidence in evidence_of(dialogue)[::every]:
                asked[half] += 1
                for budget in AIMS:
                    hits = memory.search(name, question, budget=budget)
                    hit[half, budget] += evidence <= {each.entry.id for each in hits}
    halves = {0: "LoCoMo, tuned on", 1: "LoCoMo, held out"}
    rows = [
        [label, asked[half], *(hit[half, budget] / max(1, asked[half]) for budget in AIMS)]
        for half, label in halves.items()
    ]
    found.tables.append(table(("all evidence found", "questions", *map(str, AIMS)), rows))
    slack = 0.0 if every == 1 else 0.06  # of a small sample
    for budget, aim in AIMS.items():
        lost = 1 - hit[1, budget] / max(1, asked[1])
        name = f"LoCoMo, held out: evidence not found in {budget:,} tokens"
        found.goals.append(Goal(name, lost, 1 - aim, held=1 - _HELD[budget] + slack))


def measure_contexts(found: Measurement, path: Path, every: int) -> None:
    """Ask every nth question as the newest message, and look for all its evidence in the context."""
    rows = []
    for share in CONTEXT_AIMS:
        asked = there = tokens = 0
        config = MemoryConfig(max_tokens=_CONTEXT, max_entries=None, recall_ratio=share)
        with MemoryManager(counter=chars4, config=config) as memory:
            for dialogue in dialogues(path):
                texts = {
                    turn["id"]: f"{turn['speaker']}: {turn['text'] or '.'}"
                    for turn in dialogue["turns"]
                }
                for name, message in zip(texts, _spoken(dialogue), strict=True):
                    memory.add_messages("whole", [message], format="openai-chat", ids=[name])
                for question, evidence in evidence_of(dialogue)[::every]:
                    memory.fork_session("whole", "asked")
                    memory.add_user_message("asked", question)
                    context = memory.build_context("asked")
                    asked, tokens = asked + 1, tokens + context.tokens.tokens
                    shown = " ".join(context.text.split())
                    there += all(
                        " ".join(texts[name].split())[:_BEGINNING] in shown for name in evidence
                    )
                    memory.delete_session("asked")
                memory.delete_session("whole")
        rows.append((share, asked, there / max(1, asked), tokens // max(1, asked)))
        aim, held = CONTEXT_AIMS[share]
        slack = 0.1 if every > _CONTEXT_EVERY else 0.0
        name = f"LoCoMo: evidence not in a context of {_CONTEXT:,} tokens, recall_ratio={share}"
        found.goals.append(Goal(name, 1 - there / max(1, asked), 1 - aim, held=1 - held + slack))
    found.tables.append(
        table(("recall_ratio", "questions", "all evidence in the context", "mean tokens"), rows)
    )


# ---------------------------------------------------------------- MemDaily


def measure_memdaily(found: Measurement, folder: Path, every: int) -> None:
    """Search for the messages that every nth question of MemDaily is about."""
    shares = defaultdict[str, list[float]](list)
    empty = Counter[str]()
    for path in sorted(folder.glob("0*.json")):
        kind = path.name.split("_")[0]
        for talk in json.loads(path.read_bytes())[::every]:
            question = talk["question_list"][0]
            if "[ERRORQ]" in question["question"] or "[ERRORA]" in question["answer"]:
                continue
            targets = question["target_step_id"]
            wanted = set(map(str, targets if isinstance(targets, list) else [targets]))
            with MemoryManager(config=_ALL) as memory:
                memory.add_messages(
                    _SESSION,
                    [{"role": "user", "content": each["message"]} for each in talk["message_list"]],
                    format="openai-chat",
                    ids=[str(each["mid"]) for each in talk["message_list"]],
                )
                hits = memory.search(_SESSION, question["question"], limit=_FIRST)
            empty[kind] += not hits
            shares[kind].append(len(wanted & {hit.entry.id for hit in hits}) / max(1, len(wanted)))
    rows = []
    for kind, (label, aim, held) in MEMDAILY.items():
        share = sum(shares[kind]) / max(1, len(shares[kind]))
        rows.append((label, len(shares[kind]), share, empty[kind]))
        name = f"MemDaily, {label}: messages not among the first {_FIRST}"
        slack = 0.06 if every > 1 else 0.0  # few questions give a less exact share
        found.goals.append(Goal(name, 1 - share, 1 - aim, held=1 - held + slack))
    found.tables.append(table(("MemDaily", "questions", "recall@5", "without a hit"), rows))


# ---------------------------------------------------------------- old values


def query_of(value: str) -> str:
    """Return the last part of a path, or the longest word of anything else."""
    words = value.split()
    if len(words) == 1 and "/" in value:
        return value.rstrip("/").rsplit("/", 1)[-1] or value
    return max(words, key=len)


def kind_of_value(value: str) -> str:
    """Return whether a value is a path, another word, or several words."""
    if len(value.split()) > 1:
        return "several words"
    return "path" if "/" in value else "one word"


def missing_values(
    memory: MemoryManager, trajectory: Trajectory, budget: int
) -> Iterator[tuple[str, str]]:
    """Play a conversation. Yield (session id, value) for each old value that a context lacks."""
    messages, name = trajectory.messages, trajectory.id
    texts = [text_of(message) for message in messages]
    sizes = list(map(size_of, texts))
    added = 0
    for moment in moments(messages):
        memory.add_messages(name, messages[added : moment.at], format="openai-chat")
        added = moment.at
        near = "\n".join(texts[window_start(sizes, moment.at, budget) : moment.at])
        context = request_of(memory.build_context(name).messages).text
        for value in sorted(moment.values):
            if value.strip() and value not in context and value not in near:
                yield name, value


def measure_values(found: Measurement, path: Path, every: int) -> None:
    """Search for the old values that contexts of every nth coding session lack."""
    missing, first = Counter[str](), Counter[str]()
    chosen = [one for one in read_trajectories(path) if kind_of(one) == "coding"]
    config = MemoryConfig(max_tokens=_VALUES_BUDGET)
    with MemoryManager(model="gpt-4o", config=config) as memory:
        for trajectory in chosen[::every]:
            if not is_long(trajectory, _VALUES_BUDGET):
                continue
            for name, value in missing_values(memory, trajectory, _VALUES_BUDGET):
                hits = memory.search(name, query_of(value), limit=_HITS)
                missing[kind_of_value(value)] += 1
                first[kind_of_value(value)] += any(value in searchable(hit.entry) for hit in hits)
    missing["all"], first["all"] = missing.total(), first.total()
    rows = [[kind, number, first[kind] / number] for kind, number in missing.items() if number]
    headers = ("old values that the context lacks", "values", f"in the first {_HITS} hits")
    found.tables.append(table(headers, rows))
    slack = 0.0 if every == 1 else 0.15
    for kind, held in (("path", _HELD_PATHS), ("all", _HELD_VALUES)):
        if missing[kind]:
            lost = 1 - first[kind] / missing[kind]
            name = f"old values not in the first {_HITS} hits, {kind}"
            found.goals.append(Goal(name, lost, 1 - VALUES_AIM, held=1 - held + slack))


# ---------------------------------------------------------------- a long session


def _manager(path: Path) -> MemoryManager:
    return MemoryManager(SQLiteStore(path), counter="chars4", config=_ALL)


def fill(memory: MemoryManager, recorded: Path, tokens: int) -> list[str]:
    """Add recorded sessions, or generated ones, of so many tokens to one. Return its texts."""
    left = tokens * _CHARS
    texts: list[str] = []
    for messages in _messages(recorded):
        for entry in memory.add_messages(_SESSION, messages, format="openai-chat"):
            texts.append(searchable(entry))
            left -= len(texts[-1])
        if left < 0:
            return texts
    for item in items(tokens // 16):  # an item has some hundred characters
        texts.append(searchable(add(memory, item, _SESSION)))
        left -= len(texts[-1])
        if left < 0:
            break
    return texts


def _messages(recorded: Path) -> Iterator[list[dict[str, Any]]]:
    if recorded.is_file():
        for trajectory in read_trajectories(recorded):
            if kind_of(trajectory) == "coding":
                yield trajectory.messages


def queries_of(texts: Sequence[str], number: int, seed: int = 1) -> list[str]:
    """Return words of the texts: one, two neighbours, or five, as people and agents search."""
    draw = random.Random(seed)
    made: list[str] = []
    while len(made) < number:
        words = draw.choice(texts).split()
        size = (1, 2, 5)[len(made) % 3]
        if len(words) >= size:
            at = draw.randrange(len(words) - size + 1)
            made.append(" ".join(words[at : at + size])[:200])
    return [query for query in made if terms_of(query)]


def _warm_ms(act: Callable[..., object], *given: object) -> float:
    """Return the least time of a few calls: another process may disturb one."""
    return min(_ms(act, *given) for _ in range(_CALLS))


def _ms(act: Callable[..., object], *given: object) -> float:
    began = process_time()
    act(*given)
    return 1e3 * (process_time() - began)


class _Bare:
    """The minimum for SQLite: one FTS5 table with the texts, and the ten best rows by its own rank."""

    def __init__(self, path: Path, texts: Sequence[str]) -> None:
        self._db = sqlite3.connect(path)
        self._db.execute("CREATE VIRTUAL TABLE bare USING fts5(text, tokenize='porter unicode61')")
        self._db.executemany("INSERT INTO bare VALUES (?)", [(text,) for text in texts])
        self._db.commit()

    def search(self, query: str) -> None:
        """Fetch the ten best texts."""
        terms = " OR ".join('"' + term.replace('"', '""') + '"' for term in terms_of(query))
        wanted = "SELECT text FROM bare WHERE bare MATCH ? ORDER BY rank LIMIT 10"
        self._db.execute(wanted, (terms,)).fetchall()

    def close(self) -> None:
        """Close the file."""
        self._db.close()


def measure_long_session(found: Measurement, sizes: Sizes, folder: Path, recorded: Path) -> None:
    """Measure queries in a long session, the index, and its effect on appends and opening."""
    path, plain = folder / "long.db", folder / "plain.db"
    memory = _manager(path)
    began = process_time()
    texts = fill(memory, recorded, sizes.tokens)
    append_us = 1e6 * (process_time() - began) / len(texts)
    memory.close()
    shutil.copy(path, plain)
    memory = _manager(path)
    queries = queries_of(texts, sizes.queries)
    index_ms = _ms(memory.search, _SESSION, queries[0])
    memory.get_stats(_SESSION)
    _queries(found, sizes, memory, queries, folder / "bare.db", texts)
    memory.close()  # moves the write-ahead log into the file
    text_bytes = sum(len(text.encode()) for text in texts)
    size = (path.stat().st_size - plain.stat().st_size) / text_bytes
    index_us = 1e3 * index_ms / len(texts)
    ratio = _appends(path, plain, sizes.appends)
    opening = _openings(path, plain)
    rows = [
        ["the first search, ms", index_ms],
        ["... for each text, us", index_us],
        ["... over an add with its count and append", index_us / append_us],
        ["size of the index over that of the texts", size],
    ]
    found.tables.append(table((f"the index of {len(texts):,} texts", ""), rows))
    found.goals += [
        Goal("index over its texts", size, 1.0, unit="x"),
        Goal("an add to a searched file", ratio, 1.2, RATIO_NOISE, "x"),
        Goal("opening a searched file", opening, 1.1, 2 * RATIO_NOISE, "x"),
    ]


def _queries(
    found: Measurement,
    sizes: Sizes,
    memory: MemoryManager,
    queries: Sequence[str],
    path: Path,
    texts: Sequence[str],
) -> None:
    with closing(_Bare(path, texts)) as bare:
        ours = [_warm_ms(memory.search, _SESSION, query) for query in queries]
        theirs = [_warm_ms(bare.search, query) for query in queries]
    label = f"{sizes.tokens:,} tokens in {len(texts):,} entries"
    rows = [[label, median(ours), sorted(ours)[len(ours) * 9 // 10], median(theirs)]]
    headers = ("ms of a query, warm", "median", "of ten the slowest", "bare FTS5, median")
    found.tables.append(table(headers, rows))
    name = f"a query over {sizes.tokens:,} tokens"
    found.goals.append(Goal(name, median(ours), 5.0, TIME_NOISE, "ms"))


def _appends(searched: Path, plain: Path, number: int) -> float:
    """Return the time of adds to a file with an index over that to one without, in turns."""
    managers = _manager(searched), _manager(plain)
    for memory in managers:
        memory.get_stats(_SESSION)
    workload = items(number)
    taken = [0.0, 0.0]
    for at in range(0, number, _CHUNK):
        for which, memory in enumerate(managers):
            taken[which] += _ms(_add_all, memory, workload[at : at + _CHUNK])
    for memory in managers:
        memory.close()
    return taken[0] / taken[1]


def _add_all(memory: MemoryManager, workload: Sequence[Item]) -> None:
    for item in workload:
        add(memory, item, "new")


def _openings(searched: Path, plain: Path) -> float:
    """Return the time of opening a file with an index over that of one without, in turns."""
    taken: tuple[list[float], list[float]] = ([], [])
    for _ in range(20):
        for path, times in zip((searched, plain), taken, strict=True):
            times.append(_ms(_opened, path))
    return median(taken[0]) / median(taken[1])


def _opened(path: Path) -> None:
    with _manager(path) as memory:
        memory.get_stats("new")


# ---------------------------------------------------------------- many sessions


def _added(text: str) -> Added:
    return Added(
        Entry(
            id=new_id(),
            type="message",
            role="user",
            content=text,
            timestamp=datetime.now(UTC),
            token_count=TokenCount(30, "client", "high"),
        )
    )


def measure_sessions(found: Measurement, sizes: Sizes, folder: Path) -> None:
    """Measure queries in a file of many sessions: in one, in those of a prefix, and in all."""
    draw = random.Random(1)
    path = folder / "sessions.db"
    with closing(SQLiteStore(path)) as store:
        for number in range(sizes.sessions):
            texts = [sentence(draw, 120), f"{sentence(draw, 80)} ticket-{number}"]
            store.append(f"customer-{number % 1_000}/{number}", [_added(text) for text in texts])
    memory = _manager(path)
    index_s = _ms(memory.search, None, "retry") / 1e3
    asked: dict[str, Callable[[int], object]] = {
        "one session": lambda n: memory.search(f"customer-{n % 1_000}/{n}", "retry timeout"),
        "a customer's, by prefix": lambda n: memory.search(
            None, "retry timeout", sessions=f"customer-{n % 1_000}/*"
        ),
        "a tenth, by prefix": lambda _: memory.search(
            None, "retry timeout", sessions="customer-1*"
        ),
        "all, two words": lambda _: memory.search(None, "retry timeout"),
        "all, a name": lambda n: memory.search(None, f"ticket-{n}"),
    }
    rows = []
    for name, ask in asked.items():
        times = [_warm_ms(ask, n * 37 % sizes.sessions) for n in range(sizes.queries)]
        rows.append([name, median(times)])
        goal = f"a query over {sizes.sessions:,} sessions: {name}"
        found.goals.append(Goal(goal, median(times), 20.0, TIME_NOISE, "ms"))
    memory.close()
    rows.append(["the first search, s", index_s])
    found.tables.append(table((f"ms of a query, {sizes.sessions:,} sessions", ""), rows))


# ---------------------------------------------------------------- the command


def measure(sizes: Sizes, data: Path, folder: Path, memdaily: Path | None = None) -> Measurement:
    """Run all measurements that have their data."""
    found = Measurement()
    recorded, locomo = data / "trajectories.jsonl.gz", data / "locomo.public.jsonl.gz"
    if locomo.is_file():
        measure_dialogues(found, locomo, sizes.questions)
        measure_contexts(found, locomo, sizes.questions * _CONTEXT_EVERY)
    else:
        found.tables.append(f"note: {locomo} does not exist; evidence was not searched")
    if memdaily is not None:
        measure_memdaily(found, memdaily, sizes.questions)
    if recorded.is_file():
        measure_values(found, recorded, sizes.conversations)
    else:
        found.tables.append(f"note: {recorded} does not exist; old values were not searched")
    measure_long_session(found, sizes, folder, recorded)
    measure_sessions(found, sizes, folder)
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.recall", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--folder", type=Path, default=DATA, help="folder of the recorded data")
    parser.add_argument("--memdaily", type=Path, help="folder of MemDaily's files")
    parser.add_argument("--quick", action="store_true", help="small sizes: some ten seconds")
    options = parser.parse_args(arguments)
    logging.getLogger("memman").addHandler(logging.NullHandler())
    with tempfile.TemporaryDirectory() as folder:
        sizes = QUICK if options.quick else FULL
        found = measure(sizes, options.folder, Path(folder), options.memdaily)
    print(found)
    if any_failed(found.goals):
        return 1
    return 0 if any(options.folder.glob("*.jsonl.gz")) else _NO_DATA


if __name__ == "__main__":
    sys.exit(main())
