"""A user's statements in recorded conversations of several repositories, in a small window.

The exchanges of a repository's conversations follow one another up to 22,000 tokens. In their first six
tenths a user states a rule, a preference, a fact and a decision, and the assistant a finding, each with a
value of three plain words. A session with a window of a fifth of the tokens takes them one by one, and the
values that its last context has are counted.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator, Sequence
from copy import deepcopy
from itertools import cycle
from pathlib import Path
from random import Random
from typing import Any

import msgspec

from benchmarks.needed import text_of
from benchmarks.trajectories import Message, Trajectory, is_in
from memman import MemoryConfig, MemoryManager

BUDGET = 4_600
KINDS = ("rule", "preference", "fact", "decision", "finding")
_TOKENS = 22_000
_STATED = 0.6  # the part of the exchanges that statements stand in
_MOST_TEXT, _MOST_SPOKEN, _MOST_ARGUMENTS = 1_200, 600, 3_000  # characters
_DIALOGUES = "locomo.public.jsonl.gz"
_FIRST = (
    "amber",
    "brisk",
    "cobalt",
    "dusty",
    "eager",
    "fuzzy",
    "gentle",
    "hollow",
    "lively",
    "mellow",
)
_SECOND = (
    "anvil",
    "basket",
    "compass",
    "dune",
    "ember",
    "falcon",
    "glacier",
    "heron",
    "lantern",
    "meadow",
)
_SAID = (
    ("rule", "Hands off the {} tables, those belong to the accountants."),
    ("rule", "The {} folder is looked after by somebody else, so it stays as it is."),
    ("rule", "Whatever happens, {} gets no new dependencies."),
    ("preference", "I like the layout called {} much better for reports."),
    ("preference", "For me the {} wording reads nicer than the old one."),
    ("fact", "Since Monday the staging box answers to the name {}."),
    ("fact", "By the way, our customer in Bergen is called {} now."),
    ("decision", "All right, {} it is for the queue, the others are out."),
    ("decision", "We talked it over: the importer will be built around {}."),
    ("finding", "The double bookings come from the {} lock, which is released too early."),
    ("finding", "So the report is slow because {} reads each row again."),
)


class Surroundings(msgspec.Struct, frozen=True):
    """The exchanges of one repository's conversations, in order."""

    repository: str
    exchanges: tuple[tuple[Message, ...], ...]


class Stated(msgspec.Struct, frozen=True):
    """A value, and the kind of statement that it is in."""

    kind: str
    value: str


def surroundings(
    sessions: Sequence[Trajectory], folder: Path, half: str = "both"
) -> list[Surroundings]:
    """Return the surroundings of each repository, with the dialogues of the folder as one more."""
    of: dict[str, list[tuple[Message, ...]]] = {}
    for session in (*sessions, *_dialogues(folder)):
        if is_in(half, session.id):
            of.setdefault(session.repository, []).extend(_exchanges(session.messages))
    enough = _TOKENS // 2
    return [
        Surroundings(name, tuple(found))
        for name, found in sorted(of.items())
        if sum(map(_size, found)) > enough
    ]


def _dialogues(folder: Path) -> Iterator[Trajectory]:
    path = folder / _DIALOGUES
    if not path.is_file():
        return
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        for line in lines:
            made = json.loads(line)
            one, _ = made["speakers"]
            messages = [
                {"role": "user" if turn["speaker"] == one else "assistant", "content": turn["text"]}
                for turn in made["turns"]
                if turn["text"]
            ]
            yield Trajectory(made["id"], messages, made["source"])


def _exchanges(messages: Sequence[Message]) -> list[tuple[Message, ...]]:
    """Return each message, or a call with its result, without long texts and without the system prompt."""
    found: list[list[Message]] = []
    for message in messages[1:]:
        content = message.get("content") or ""
        text = content if isinstance(content, str) else json.dumps(content, ensure_ascii=False)
        calls = (message.get("tool_calls") or [])[:1]
        if message["role"] == "tool":
            last = found[-1][-1].get("tool_calls") if found else None
            if last and last[0]["id"] == message.get("tool_call_id"):
                result = {"role": "tool", "tool_call_id": last[0]["id"]}
                found[-1].append({**result, "content": text[:_MOST_TEXT] or "."})
        elif calls and len(calls[0]["function"]["arguments"]) < _MOST_ARGUMENTS:
            said = text[:_MOST_SPOKEN] or None
            found.append([{"role": "assistant", "content": said, "tool_calls": calls}])
        elif text and not calls:
            found.append([{"role": message["role"], "content": text[:_MOST_TEXT]}])
    return [tuple(each) for each in found if not each[-1].get("tool_calls")]


def conversation(around: Surroundings, seed: int) -> tuple[list[Message], list[Stated]]:
    """Return the exchanges with the statements between them."""
    random = Random(f"{around.repository} {seed}")
    rounds: list[list[Message]] = []
    used = 0
    start = random.randrange(len(around.exchanges))
    for number, exchange in enumerate(cycle(around.exchanges[start:] + around.exchanges[:start])):
        if used >= _TOKENS:
            break
        used += _size(exchange)
        rounds.append(_renamed(exchange, f"call{number}"))
    planned = [
        (kind, said, f"{random.choice(_FIRST)} {random.choice(_SECOND)} {random.choice(_SECOND)}")
        for kind, said in random.sample(_SAID, len(_SAID))
    ]
    places = sorted(random.sample(range(1, int(_STATED * len(rounds))), len(planned)))
    due = dict(zip(places, planned, strict=True))
    messages: list[Message] = [{"role": "system", "content": "You are a helpful agent."}]
    for at, each in enumerate(rounds):
        messages += each
        if at in due:
            messages += _stated(*due[at])
    return messages, [Stated(kind, value) for kind, _, value in planned]


def _stated(kind: str, said: str, value: str) -> list[Message]:
    text = said.format(value)
    if kind == "finding":
        return [{"role": "assistant", "content": text}]
    return [{"role": "user", "content": text}, {"role": "assistant", "content": "All right."}]


def _renamed(exchange: Sequence[Message], call_id: str) -> list[Message]:
    """Return an exchange with this id of its call: a repeated one has another."""
    messages: list[Any] = deepcopy(list(exchange))
    for message in messages:
        if message.get("tool_calls"):
            message["tool_calls"][0]["id"] = call_id
        if message["role"] == "tool":
            message["tool_call_id"] = call_id
    return messages


def _size(exchange: Sequence[Message]) -> int:
    return sum(_quarter(text_of(message)) + 4 for message in exchange)


def _quarter(text: str) -> int:
    return (len(text) + 3) // 4


def kept(messages: Sequence[Message], budget: int) -> str:
    """Return the last context of a session that takes these messages one by one."""
    return "\n".join(played_at(messages, budget)[0])


def played_at(messages: Sequence[Message], budget: int) -> tuple[list[str], list[float]]:
    """Return the last context's texts, and the share of the target that the window had after each
    compression.
    """
    config = MemoryConfig(max_tokens=budget, max_entries=None)
    shares: list[float] = []
    target = budget * config.target_ratio
    with MemoryManager(counter=_quarter, config=config) as memory:
        memory.on("compressed", lambda event: shares.append(event.tokens_after / target))
        for message in messages:
            memory.add_messages("s", [message], format="openai-chat")
        context = memory.build_context("s", format="openai-chat").messages
    return list(map(text_of, context)), shares


class Played(msgspec.Struct, frozen=True):
    """A session's statements that its last context has, and the shares of the target that were used."""

    repository: str
    kept: tuple[tuple[str, bool], ...]  # the kind of each statement
    used: tuple[float, ...]

    @property
    def share(self) -> float:
        """Return the share of the statements that the context has."""
        return sum(there for _, there in self.kept) / len(self.kept)


def played(around: Surroundings, seed: int) -> Played:
    """Play the session of a seed."""
    messages, stated = conversation(around, seed)
    texts, used = played_at(messages, BUDGET)
    text = "\n".join(texts)
    there = tuple((one.kind, one.value in text) for one in stated)
    return Played(around.repository, there, tuple(used))
