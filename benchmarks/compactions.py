"""What an outline has of summaries that a frontier model wrote: 44 recorded compactions, at equal tokens.

A case is what a recorded session of Claude Code said between two of its compactions, and the summary that
its model wrote of that. memman compresses the same messages to the tokens of that summary. The words of
each sentence of the summary weigh by their rarity in the messages.

- agreement: the weight of the words that the context has, as a mean over the sentences
- sentences: those with seven tenths of their weight there
- wordless: the lines of the outline with fewer than two words of three letters
- conclusions: the same of the last two sentences of the message that ends a turn
- short, all: the user's messages of up to 240 characters, and all, that the context has whole
- steps: the newest six calls of which the context has the beginning of an argument
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from math import log
from statistics import mean

import msgspec

from benchmarks.needed import text_of
from benchmarks.trajectories import Message, Trajectory
from memman import MemoryConfig, MemoryManager

_CONTINUED = "continued from a previous conversation"
_SUMMARY = re.compile(r"Summary:(.*?)(?:Please continue the conversation|\Z)", re.DOTALL)
_LEAST_MESSAGES = 40
_LEAST_TOKENS = 500
_ENOUGH = 0.7  # of a sentence's weight
_SHORT = 240  # characters
_RARE = 8.0  # the weight of a word that the messages lack
_WORD = re.compile(r"[a-z_][a-z0-9_]{2,}|\d{2,}")
_LETTERS = re.compile(r"[^\W\d_]{3,}")
_MARK = re.compile(r"[\s*#.\d-]+")
_END = re.compile(r"(?<=[.!?:])\s+|\n+")
_COMMON = frozenset(
    re.findall(
        r"\w+",
        "about all and any are assistant been being but can code could did does down file for from had "
        "has have her his how into its may not now off our out over own she should than that the their "
        "them then there they this use used user using was were what when where which who why will with "
        "would you your",
    )
)
_BY_PROGRAMS = ("<", "[Request interrupted", "Caveat:")  # texts that the user did not type
_DELIMITERS = ("[memman", "[end of memman")
_WINDOW = 1_000_000


class Case(msgspec.Struct, frozen=True):
    """What a session said before a compaction, and the summary that a model wrote of it."""

    session: str
    messages: tuple[Message, ...]
    summary: str

    @property
    def tokens(self) -> int:
        """Return the tokens of the summary."""
        return max(_LEAST_TOKENS, len(self.summary) // 4)


class Figures(msgspec.Struct, frozen=True):
    """What a context has; None if a case has nothing of the kind."""

    agreement: float
    sentences: float
    wordless: float
    conclusions: float | None
    short: float | None
    all: float | None
    steps: float | None
    size: float  # over the tokens of the summary


_NEWEST_CALLS, _BEGINNING = 6, 30

NAMES = Figures.__struct_fields__


def cases(sessions: Iterable[Trajectory]) -> Iterator[Case]:
    """Yield the compactions of sessions."""
    for session in sessions:
        start = 0
        for at, message in enumerate(session.messages):
            said = _said(message) if message["role"] == "user" else ""
            if _CONTINUED not in said[:300]:
                continue
            found = _SUMMARY.search(said)
            summary = found[1] if found else said
            if at - start > _LEAST_MESSAGES:
                yield Case(session.id, tuple(session.messages[start:at]), summary)
            start = at


def figures(case: Case, text: str, outline: str) -> Figures:
    """Return what a context has of a case; `outline` are the lines that memman wrote."""
    there = frozenset(_words(text))
    times = Counter(word for message in case.messages for word in {*_words(text_of(message))})
    weights = {word: log(1 + len(case.messages) / seen) for word, seen in times.items()}

    def share(sentence: str) -> float:
        found = [(weights.get(word, _RARE), word in there) for word in sorted({*_words(sentence)})]
        return sum(weight for weight, kept in found if kept) / sum(weight for weight, _ in found)

    agreed = [share(sentence) for sentence in _sentences(case.summary)]
    typed, ends = _turns(case.messages)
    flat = " ".join(text.split()).replace("\\n", " ")
    whole = [(len(said) <= _SHORT, said in flat) for said in typed]
    lines = [line for line in outline.splitlines() if line.strip()]
    return Figures(
        agreement=mean(agreed),
        sentences=mean(one >= _ENOUGH for one in agreed),
        wordless=mean([len(_LETTERS.findall(line)) < 2 for line in lines] or [True]),
        conclusions=_mean([share(end) >= _ENOUGH for end in ends]),
        short=_mean([kept for short, kept in whole if short]),
        all=_mean([kept for _, kept in whole]),
        steps=_mean([any(each in flat for each in step) for step in _steps(case.messages)]),
        size=len(text) / 4 / case.tokens,
    )


def measured(case: Case, times: int = 1) -> Figures:
    """Compress a case so many times, added in as many parts, and return what the context has."""
    config = MemoryConfig(
        max_tokens=_WINDOW, auto_compress=False, recent_window=0, count_policy="estimate"
    )
    each = -(-len(case.messages) // times)
    with MemoryManager(config=config, counter=_quarter) as memory:
        for start in range(0, len(case.messages), each):
            part = case.messages[start : start + each]
            memory.add_messages("s", part, format="openai-chat", unknown="keep")
            memory.compress("s", target_tokens=case.tokens)
        # Another measure has the recalled texts.
        context = memory.build_context(
            "s", format="openai-chat", budget=_WINDOW, recall=False
        ).messages
    texts = list(map(text_of, context))
    lines = [line for one in texts if one.startswith(_DELIMITERS[0]) for line in one.splitlines()]
    outline = "\n".join(line for line in lines if not line.startswith(_DELIMITERS))
    return figures(case, "\n".join(texts), outline)


def means(found: Sequence[Figures]) -> dict[str, float]:
    """Return the mean of each figure over the cases that have it."""
    listed = {name: [getattr(one, name) for one in found] for name in NAMES}
    return {
        name: mean([value for value in values if value is not None] or [0.0])
        for name, values in listed.items()
    }


def _steps(messages: Sequence[Message]) -> list[list[str]]:
    """Return the newest calls: of each the beginnings of its arguments, of a path only its name."""
    functions = [call["function"] for each in messages for call in each.get("tool_calls") or ()]
    found = []
    for function in functions[-_NEWEST_CALLS:]:
        texts = [
            text for text in json.loads(function["arguments"]).values() if isinstance(text, str)
        ]
        flat = [" ".join(text.split()) for text in texts if text.strip()]
        found.append(
            [(each if " " in each else each.rpartition("/")[2])[:_BEGINNING] for each in flat]
        )
    return [[each for each in step if each] for step in found if any(step)]


def _quarter(text: str) -> int:
    return (len(text) + 3) // 4


def _mean(values: Sequence[bool]) -> float | None:
    return mean(values) if values else None


def _words(text: str) -> list[str]:
    return [word for word in _WORD.findall(text.lower()) if word not in _COMMON]


def _said(message: Message) -> str:
    content = message.get("content") or ""
    if isinstance(content, list):
        parts = (part.get("text") or "" for part in content if isinstance(part, dict))
        content = "\n".join(parts)
    return str(content)


def _sentences(summary: str) -> list[str]:
    """Return the lines of a summary that say something, without code blocks and marks."""
    found, code = [], False
    for line in summary.splitlines():
        if line.strip().startswith("```"):
            code = not code
        elif not code:
            mark = _MARK.match(line)
            sentence = line[mark.end() if mark else 0 :].replace("**", "").replace("`", "")
            if len(_words(sentence)) >= 4:
                found.append(sentence.strip())
    return found


def _turns(messages: Sequence[Message]) -> tuple[list[str], list[str]]:
    """Return what the user typed, and the last two sentences of each turn's last message."""
    typed: list[str] = []
    last: list[str] = [""]  # of each turn
    for message in messages:
        said = _said(message).strip()
        if said and message["role"] == "user":
            last.append("")
            if not said.startswith(_BY_PROGRAMS) and _CONTINUED not in said[:300]:
                typed.append(" ".join(said.split()))
        elif said and message["role"] == "assistant":
            last[-1] = said
    each = ([end for end in _END.split(said) if len({*_words(end)}) >= 4] for said in last)
    return typed, [end for ends in each for end in ends[-2:]]
