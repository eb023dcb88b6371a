"""The digest: a summary of a run of entries that is written without a model.

Two parts share its room. The key facts are exact values (paths, identifiers, numbers, dates, addresses)
with their entries: the next steps need them, and summaries lose them. The extract has the lines that
together cover most of the text: the gain of a line is the weight of its words that no chosen line has
yet, over the square root of its length, and the best line is chosen until the room is full (greedy
maximum coverage under a budget, after Lin and Bilmes, "A Class of Submodular Functions for Document
Summarization", 2011). A short overview comes before both.

It is deterministic and prefers no language. An earlier digest among the entries is read back, so its
values keep their entries. `python -m benchmarks.facts` measures how much is kept.
"""

from __future__ import annotations

import heapq
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from math import log, log1p
from typing import Final

import msgspec

from memman.compression.key_facts import key_facts_line, ranked_values
from memman.compression.prompt import placeholder
from memman.compression.summary_parts import (
    NOTHING_CARRIED,
    Carried,
    CountText,
    Parts,
    parts_of,
    without_headings,
)
from memman.compression.words import words_of
from memman.entries import Entry, FilePart, ImagePart
from memman.summary_metadata import QUOTE_CHARS, quotable, stats_of

_HEAD: Final = "[Previous conversation summary]"
# The shares of a digest's room were chosen on recorded conversations (benchmarks/facts.py): values are
# short and many are needed again. If there are few, the extract gets the rest.
_KEY_FACTS_SHARE: Final = 0.9
_LENGTH_POWER: Final = 0.5  # 1 would take only short lines, 0 only long ones
_PRECISION: Final = 2**32  # of a word's weight
_LINE_CHARS: Final = 200  # a longer line is cut, if possible between clauses
_SHORTEST_CUT: Final = 80
_LEAST_ROOM: Final = 16
_LEAST_HEADED: Final = 600  # characters: a smaller digest has no overview
_QUOTE_SHARE: Final = 0.05  # of the room, for the first and for the last user message each
_ROUNDS: Final = 8
_FULL: Final = 0.985  # of the tokens is near enough

_AT_A_GLANCE: Final = re.compile(
    r"^(?:\[Previous conversation summary\]|(?:At least )?\d+ (?:user messages|errors encountered)"
    r"|(?:First|Last): \".*\"|(?:At least these tools|Tools) used: .*)$",
    re.MULTILINE,
)
# Includes the sentence ends of Greek, Arabic, Urdu, Hindi, Burmese, Ethiopic, Khmer; Chinese and
# Japanese.
_SENTENCE: Final = re.compile(
    r"(?<=[.!?\u037e\u061f\u06d4\u0964\u0965\u104b\u1362\u17d4])\s+|\n+|(?<=[\u3002\uff01\uff1f])\s*"
)


class _Line(msgspec.Struct, gc=False):
    """A candidate of the extract, and the words that it covers."""

    text: str
    words: frozenset[str]


def digest(
    entries: Sequence[Entry],
    tokens: int,
    count: CountText,
    below: Carried = NOTHING_CARRIED,
    sources: str = "",
) -> str:
    """Return a digest of the entries in at most `tokens` tokens, by `count`; "" if nothing fits.

    `below` are constraints that it contains verbatim, `sources` is its first line.
    """
    above = (*below.declared, sources)
    coverage, ranked = _Coverage(_lines_of(entries)), ranked_values(entries, above=above)
    least = Parts("", below.constraints, below.declared, sources=sources).text

    def composed(room: int) -> str:
        kept = key_facts_line(ranked, int(room * _KEY_FACTS_SHARE))
        body = _extract(entries, coverage, room, len(kept))
        shown = without_headings(body)
        return Parts(shown, below.constraints, below.declared, kept, sources).text

    return longest(tokens, count, composed, least)


def longest(tokens: int, count: CountText, composed: Callable[[int], str], least: str = "") -> str:
    """Return the longest text of at most `tokens` tokens that `composed` makes for some room in
    characters.

    `least` is a text that is known to fit.
    """
    fits, over = 0, 0  # the largest room that fits, the smallest that does not; 0 if unknown
    room, best = tokens * 4, least
    for _ in range(_ROUNDS):
        text = composed(room)
        cost = count(text)
        if cost <= tokens:
            fits = room
            if cost >= _FULL * tokens or len(text) < room // 2 or text == best:
                return max(best, text, key=len)
            best = max(best, text, key=len)
        else:
            room = over = min(room, len(text))  # the text may be shorter than its room
        guess = int(room * tokens * 0.99 / max(cost, 1))
        room = guess if fits < guess and (not over or guess < over) else (fits + over) // 2
        if room <= fits:
            break
    return best


# ---------------------------------------------------------------- the extract


def heuristic_summary(entries: Sequence[Entry], quote: int = QUOTE_CHARS) -> str:
    """Return an overview: the number of user messages, the first and last of them, tools, errors.

    All but the last message include what earlier summaries among the entries cover. If a summary has no
    statistics, the first message is left out, and the numbers and tools are marked as lower bounds.
    Source of the shape: the fallback of the reference memory manager.
    """
    stats = stats_of(entries)
    users = [entry for entry in entries if entry.type == "message" and entry.role == "user"]
    least = "" if stats.whole else "At least "
    lines = [_HEAD, f"{least}{stats.user_messages} user messages"]
    if stats.first_message is not None:
        lines.append(f'First: "{_quoted(stats.first_message, quote)}"')
    if users:
        lines.append(f'Last: "{_quoted(quotable(users[-1].text), quote)}"')
    if stats.tools:
        used = "Tools used" if stats.whole else "At least these tools used"
        lines.append(f"{used}: {_quoted(', '.join(stats.tools), 2 * quote)}")
    if stats.errors:
        lines.append(f"{least}{stats.errors} errors encountered")
    return "\n".join(lines)


def _quoted(text: str, limit: int) -> str:
    return text if len(text) <= limit else f"{text[:limit]}..."


def _lines_of(entries: Sequence[Entry]) -> list[_Line]:
    """Return the distinct sentences and lines of the entries, in order."""
    seen: set[str] = set()
    lines: list[_Line] = []
    for entry in entries:
        for text in _pieces(entry):
            if text not in seen:
                seen.add(text)
                words = words_of(text)
                if words:
                    lines.append(_Line(text, words))
    return lines


def _pieces(entry: Entry) -> Iterator[str]:
    text = entry.text
    if entry.type == "summary":
        text = _AT_A_GLANCE.sub("", parts_of(text).body)
    elif entry.type == "tool_call":
        text = f"{entry.name}({text})"
    elif not isinstance(entry.content, str):
        shown = [
            part for part in entry.content if isinstance(part, ImagePart | FilePart) and part.alt
        ]
        text = "\n".join([text, *map(placeholder, shown)])
    for sentence in _SENTENCE.split(text):
        piece = sentence.strip()
        while len(piece) > _LINE_CHARS:
            end = max(
                piece.rfind(", ", _SHORTEST_CUT, _LINE_CHARS),
                piece.rfind("; ", _SHORTEST_CUT, _LINE_CHARS),
            )
            if end < 0:
                end = piece.rfind(" ", _SHORTEST_CUT, _LINE_CHARS)
            end = _LINE_CHARS - 1 if end < 0 else end
            yield piece[: end + 1].strip()
            piece = piece[end + 1 :].strip()
        if piece:
            yield piece


def _extract(entries: Sequence[Entry], coverage: _Coverage, room: int, taken: int) -> str:
    """Return the overview and lines that cover the rest, in a room of which `taken` is used."""
    head = ""
    if room >= _LEAST_HEADED:
        head = heuristic_summary(entries, min(QUOTE_CHARS, int(room * _QUOTE_SHARE)))
    left = room - sum(length + 1 for length in (len(head), taken) if length)
    chosen = coverage.chosen(left, words_of(head))
    return "\n".join([part for part in (head, *chosen) if part])


class _Coverage:
    """Lines, and their gains by the words in them."""

    def __init__(self, lines: Sequence[_Line]) -> None:
        seen: Counter[str] = Counter()
        for line in lines:
            seen.update(line.words)
        weight = {times: _weight(times, len(lines)) for times in set(seen.values())}
        self._weights = {word: weight[times] for word, times in seen.items()}
        self._lines = lines
        self._costs: list[float] = [(len(line.text) + 1) ** _LENGTH_POWER for line in lines]
        self._worth = [self._sum(line.words) for line in lines]
        self._having: defaultdict[str, list[int]] = defaultdict(list)  # of words in several lines
        several = {word for word, times in seen.items() if times > 1}
        for number, line in enumerate(lines):
            for word in line.words & several:
                self._having[word].append(number)

    def _sum(self, words: frozenset[str]) -> int:
        return sum(self._weights[word] for word in words)

    def chosen(self, room: int, known: frozenset[str]) -> list[str]:
        """Return lines that together cover most of the words that are not `known`, in their order.

        The gain of a line only falls as others are chosen, so the line with the highest earlier gain that
        still has it is the best (lazy greedy).
        """
        worth = [
            worth if line.words.isdisjoint(known) else worth - self._sum(line.words & known)
            for worth, line in zip(self._worth, self._lines, strict=True)
        ]
        uncovered = self._having.keys() - known
        costs = self._costs
        heap = [
            (-gain / cost, number)
            for number, (gain, cost) in enumerate(zip(worth, costs, strict=True))
        ]
        heapq.heapify(heap)
        taken: list[int] = []
        while heap and room > _LEAST_ROOM:
            least, number = heap[0]
            line = self._lines[number]
            again = -worth[number] / costs[number]
            if again == 0 or len(line.text) + 1 > room:
                heapq.heappop(heap)
            elif again > least:
                heapq.heapreplace(heap, (again, number))
            else:
                heapq.heappop(heap)
                taken.append(number)
                room -= len(line.text) + 1
                fresh = line.words & uncovered
                uncovered -= fresh
                for word in fresh:
                    for other in self._having[word]:
                        worth[other] -= self._weights[word]
        return [self._lines[number].text for number in sorted(taken)]


def _weight(times: int, lines: int) -> int:
    """Return the weight of a word in `times` of the lines: frequent words weigh more, ubiquitous ones
    less.

    A whole number, so that sums are exact and independent of the order of a set.
    """
    return round(_PRECISION * log1p(times) * log(1 + lines / times) ** 2)
