"""The digest: a summary of a run of entries that is written without a model.

It has the lines that together cover most of the text: the gain of a line is the weight of its words that
no chosen line has yet, over its length to a power, and the best line is chosen until the room is full
(greedy maximum coverage under a budget, after Lin and Bilmes, "A Class of Submodular Functions for Document
Summarization", 2011). In messages, labelled lines and lines with numbers, names and quotations are worth
more, questions, exclamations and short or repeated lines less; a statement that a later one replaces is
left out.

It is deterministic and prefers no language. The lines of an earlier summary are candidates like others.
`python -m benchmarks.facts` and `benchmarks.kits` measure how much is kept.
"""

from __future__ import annotations

import heapq
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from math import log, log1p, sqrt
from pathlib import Path
from typing import Final

import msgspec

from memman.compression.prompt import placeholder
from memman.compression.user_messages import ASKED, ENDS, cut, is_generic, superseded
from memman.compression.words import words_of
from memman.entries import Entry, FilePart, ImagePart, attributed, speaker_of

_LENGTH_POWER: Final = 0.8  # 1 would take only short lines, 0 only long ones
_PRECISION: Final = 2**32  # of a word's weight and a line's cost
# The worth of a line of a message against others, chosen on dialogues (benchmarks/kits.py, facts.py).
_LABELLED: Final = 3.0  # a rule, or `KEY: value`
_OF_SPEAKER: Final = 1.4
_TO_OTHER: Final = 0.7
_QUESTION: Final = 0.5
_EXCLAIMED: Final = 0.8
_EXACT: Final = 2.0  # with a number, a name or a quotation
_VALUED: Final = 3.0  # of a tool result or context, with an exact value
_FEW_WORDS: Final = 4
_FILLER_WORDS: Final = 2  # a line of so few in a conversation is filler if it is repeated
_OFTEN: Final = 2  # a line that is repeated more often is filler
_CALLED: Final = ("!", "\uff01")
_MARKS: Final = re.compile(r"\d|[\"\u201c\u00ab\u300c\u300e]|(?<=[a-z,] )[A-Z][a-z]")
_DIGIT: Final = re.compile(r"\d")
_VALUE: Final = re.compile(r"\d{3}|\w[/@]\w|\w_\w++(?!:)")
_USER: Final = "(user) "
_LINE_CHARS: Final = 200  # a longer line is cut, if possible between clauses
_DATA_CHARS: Final = 60  # of a line of JSON
_BARE: Final = str.maketrans("", "", '{}[]"')
_LEAST_ROOM: Final = 16
_ROUNDS: Final = 8
_FULL: Final = 0.985  # of the tokens is near enough


_Said = tuple[str, str]  # the name of a speaker, "" without one, and a text


class _Line(msgspec.Struct, gc=False):
    """A candidate, the words that it covers, and its worth against other lines of its length.

    A `firm` line keeps its worth if other lines cover its words: it may differ in a value. The line that
    follows it directly in the original has the next `place`.
    """

    text: str
    words: frozenset[str]
    factor: float
    place: int
    firm: bool = False


def digest(entries: Sequence[Entry], tokens: int, count: Callable[[str], int]) -> str:
    """Return a digest of the entries in at most `tokens` tokens, by `count`; "" if nothing fits."""
    coverage = _Coverage(_lines_of(entries))
    return longest(tokens, count, lambda room: _joined(coverage.chosen(room)))


def _joined(lines: Sequence[_Line]) -> str:
    """Return the lines, with an empty one wherever the original has others between two of them.

    A value would else read as the value of a heading or a label above it that has another one.
    """
    places = {line.place for line in lines}
    shown = [line.text if line.place - 1 in places else f"\n{line.text}" for line in lines]
    return "\n".join(shown).lstrip()


def longest(tokens: int, count: Callable[[str], int], composed: Callable[[int], str]) -> str:
    """Return the longest text of at most `tokens` tokens that `composed` makes for some room in
    characters.
    """
    fits, over = 0, 0  # the largest room that fits, the smallest that does not; 0 if unknown
    room, best = tokens * 4, ""
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


# ---------------------------------------------------------------- the lines


def _lines_of(entries: Sequence[Entry]) -> list[_Line]:
    """Return the distinct sentences and lines of the entries, without statements that later ones replace.

    They are in order; a repeated one is at its last place.
    """
    times: dict[_Said, int] = {}
    spoken: dict[
        _Said, tuple[str, int]
    ] = {}  # the role of each ("" without a speaker) and its place
    place = 0
    for entry in entries:
        speaker, name = _role_of(entry), speaker_of(entry)
        place += 1
        for text in _pieces(entry):
            said = name, text
            # The lines of a summary may be of different entries.
            place += 2 if speaker == "summary" else 1
            times[said] = times.get(said, 0) + 1
            if speaker:
                spoken.pop(said, None)
                spoken[said] = speaker, place
            else:
                spoken.setdefault(said, ("", place))
    words = {said: words_of(said[1]) for said in spoken}
    stated = [said for said, (speaker, _) in spoken.items() if _is_statement(said[1], speaker)]
    for number in superseded(stated):
        del spoken[stated[number]]
    named = len({speaker for speaker, _ in spoken.values()} - {""}) > 1
    return [
        _line(said, words[said], speaker, times[said], place, named)
        for said, (speaker, place) in spoken.items()
        if len(words[said]) > (_FILLER_WORDS if speaker and times[said] > 1 else 0)
    ]


def _role_of(entry: Entry) -> str:
    if entry.type == "summary":
        return "summary"
    return entry.role if entry.type == "message" else ""


def _is_statement(text: str, speaker: str) -> bool:
    return speaker in ("user", "system", "summary") or (bool(speaker) and is_generic(text))


def _line(
    said: _Said, words: frozenset[str], speaker: str, times: int, place: int, named: bool
) -> _Line:
    """Return a candidate for a name's text; a user's lines about themselves have the role if `named`."""
    name, text = said
    factor = 1.0 if times <= _OFTEN else _OFTEN / times
    if text.startswith(_USER.rstrip()) and speaker != "summary":
        text = f"> {text}"  # no other text passes for the user's
    if not speaker:
        return _Line(text, words, factor * (_VALUED if _VALUE.search(text) else 1.0), place)
    me, you = _persons()
    spoken = text.lower().replace("\u2019", "'").split()
    of_speaker = not me.isdisjoint(spoken)
    labelled = is_generic(text.removeprefix(_USER))
    factor *= _LABELLED if labelled else 1.0
    factor *= _OF_SPEAKER if of_speaker else 1.0
    factor *= _TO_OTHER if not you.isdisjoint(spoken) else 1.0
    factor *= _form_factor(text) * min(1.0, (1 + len(words)) / _FEW_WORDS)
    firm = labelled or (speaker == "user" and _DIGIT.search(text) is not None)
    by_user = named and of_speaker and speaker == "user"
    shown = f"({speaker}) {attributed(name, text)}" if name or by_user else text
    return _Line(shown, words, factor, place, firm)


def _form_factor(text: str) -> float:
    """Return the worth that a line of a conversation has by its form."""
    factor = _EXACT if _MARKS.search(text) else 1.0
    if text.endswith(ASKED):
        return factor * _QUESTION
    return factor * _EXCLAIMED if text.endswith(_CALLED) else factor


@cache
def _persons() -> tuple[frozenset[str], frozenset[str]]:
    """Return the words by which speakers mean themselves, and those by which they mean the other."""
    path = Path(__file__).parent / "person_words.txt"
    me, you = path.read_bytes().decode().split("\n\n")
    return frozenset(me.split()), frozenset(you.split())


def _pieces(entry: Entry) -> Iterator[str]:
    text = entry.text
    if entry.type == "tool_call":
        text = f"{entry.name}({text})"
    elif not isinstance(entry.content, str):
        shown = [
            part for part in entry.content if isinstance(part, ImagePart | FilePart) and part.alt
        ]
        text = "\n".join([text, *map(placeholder, shown)])
    elif entry.type == "message" and len(text) <= _LINE_CHARS and is_generic(text):
        yield " ".join(text.split())  # one statement, however many sentences it has
        return
    most = _LINE_CHARS
    if entry.type == "tool_result" and text[:1] in ("{", "["):
        text, most = text.translate(_BARE).replace("\\n", "\n"), _DATA_CHARS
    for sentence in ENDS.split(text):
        piece = sentence.strip()
        if len(piece) > most:
            yield from filter(None, map(str.strip, cut(piece, most)))
        elif piece:
            yield piece


class _Coverage:
    """Lines, and their gains by the words in them."""

    def __init__(self, lines: Sequence[_Line]) -> None:
        seen: Counter[str] = Counter()
        for line in lines:
            seen.update(line.words)
        weight = {times: _weight(times, len(lines)) for times in set(seen.values())}
        self._weights = {word: weight[times] for word, times in seen.items()}
        self._lines = lines
        self._costs = [
            round(_PRECISION * (len(line.text) + 1) ** _LENGTH_POWER / line.factor)
            for line in lines
        ]
        self._worth = [sum(self._weights[word] for word in line.words) for line in lines]
        self._heap = [
            (-gain / cost, number)
            for number, (gain, cost) in enumerate(zip(self._worth, self._costs, strict=True))
        ]
        heapq.heapify(self._heap)
        self._having: defaultdict[str, list[int]] = defaultdict(list)  # of words in several lines
        several = {word for word, times in seen.items() if times > 1}
        for number, line in enumerate(lines):
            for word in line.words & several if not line.firm else ():
                self._having[word].append(number)

    def chosen(self, room: int) -> list[_Line]:
        """Return lines that together cover most of the words, in their order.

        The gain of a line only falls as others are chosen, so the line with the highest earlier gain that
        still has it is the best (lazy greedy).
        """
        worth = self._worth.copy()
        uncovered = set(self._having)
        costs = self._costs
        heap = self._heap.copy()
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
        return [self._lines[number] for number in sorted(taken)]


def _weight(times: int, lines: int) -> int:
    """Return the weight of a word in `times` of the lines: frequent words weigh more, ubiquitous ones
    less.

    A whole number, so that sums are exact and independent of the order of a set.
    """
    return round(_PRECISION * sqrt(log1p(times)) * log(1 + lines / times) ** 2)
