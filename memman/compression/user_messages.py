"""The pieces of a message, and the worth of each when not all of them fit.

A piece is a sentence or a line, with the blanks after it: the pieces of a message together are the
message. Rules and labelled lines are worth most, then short sentences with many content words, names and
exact values; filler is worth least. No grammar is used: labels and structure count, and a short list of
words that rules have in several languages.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from itertools import chain
from math import log, sqrt
from pathlib import Path
from typing import Final

_LONGEST: Final = 300  # characters of a piece
_SHORTEST_CUT: Final = 120
# Includes the sentence ends of Greek, Arabic, Urdu, Hindi, Burmese, Ethiopic, Khmer; Chinese and
# Japanese, where a quoted sentence does not end its own.
ENDS: Final = re.compile(
    r"(?<=[.!?\u037e\u061f\u06d4\u0964\u0965\u104b\u1362\u17d4])\s+|\n\s*"
    r"|(?<=[\u3002\uff01\uff1f])(?![\u201d\u2019\u300d\u300f\uff09])\s*"
)
_LABEL: Final = re.compile(
    r"[\s>#*\u2022-]{0,8}(?:\d{1,3}[.)]\s{1,3})?"
    r"(?P<label>[^\W\d_][^\s:\uff1a]{0,30}(?: [^\s:\uff1a]{1,30}){0,5})"
    r"(?::\*{0,2}[ \t]{1,4}|\uff1a\s{0,4})(?P<value>\S)"
)
_TAG: Final = re.compile(  # `NOTE - ...` and `[NOTE] ...`
    r"[\s>#*\u2022-]{0,8}(?:[A-Z]{3,20}(?: [A-Z]{2,20})? [-\u2013\u2014] |\[[A-Z][A-Z _-]{2,30}\] )"
)
_NUMBER: Final = re.compile(r"(?<![\w.-])[$\u20ac\u00a3\u00a5]?\d[\w.,:%/-]*")
_MARK: Final = re.compile(r"[\d/@_]")
_NAME: Final = re.compile(r"(?<=[a-z,] )[A-Z]\w+")
_PUNCTUATION: Final = " \t\r\n.,;:!?*`\"'"
_MOST_INFORMATION: Final = 10.0  # more adds nothing to a piece's worth
_RULE: Final = 8.0
_PREFERENCE: Final = 5.0
_LABELLED: Final = 6.0
_MOST_OF_A_LABEL: Final = 4  # pieces: a label of more is the name of a speaker
_EACH_VALUE: Final = 2.0
_EACH_NAME: Final = 1.0
_EXCLAIMED: Final = 0.5  # of the worth: "Can't wait to see it!"
_HEAD: Final = 5  # words of a sentence of which one is "never" if it is a rule
_BEFORE_QUANTITIES: Final = frozenset(
    [
        "=",
        "is",
        "are",
        "was",
        "for",
        "to",
        "at",
        "of",
        "most",
        "max",
        "maximum",
        "under",
        "over",
        "ist",
        "sind",
        "auf",
        "um",
        "für",
        "est",
        "sont",
        "pour",
        "à",
        "es",
        "son",
        "por",
        "para",
        "a",
        "é",
        "são",
        "è",
        "sono",
        "per",
    ]
)
_SHORT_VALUE: Final = 60  # characters of a value that a newer one of its label replaces
_TOLD: Final = frozenset(
    (
        "i",
        "i'm",
        "i'll",
        "i've",
        "i'd",
        "that",
        "that's",
        "it",
        "they",
        "he",
        "she",
        "ich",
        "je",
        "yo",
        "eu",
        "io",
        "ik",
        "я",
    )
)


def _listed(name: str) -> list[str]:
    return (Path(__file__).parent / name).read_bytes().decode().splitlines()


@cache
def _label_words() -> frozenset[str]:
    """Return labels that name a kind of line."""
    return frozenset(_listed("label_words.txt"))


class _Words:
    """The words of a list, and its parts of texts: of two words, or in scripts without blanks."""

    def __init__(self, name: str) -> None:
        every = _listed(name)
        apart = [word for word in every if " " in word or _unspaced(word)]
        self._words = frozenset(every) - frozenset(apart)
        self._apart = tuple(apart)
        self._ascii = tuple(word for word in apart if word.isascii())

    def has_one(self, words: Iterable[str]) -> bool:
        """Return True if one of the words is in the list."""
        return not self._words.isdisjoint(words)

    def has_part(self, lower: str) -> bool:
        """Return True if a text in lower case contains one of the parts."""
        return any(part in lower for part in (self._ascii if lower.isascii() else self._apart))


@cache
def _words_in(name: str) -> _Words:
    return _Words(name)


def _unspaced(word: str) -> bool:
    return "\u0e00" <= word[0] <= "\u0eff" or "\u3040" <= word[0] <= "\ud7ff"


def pieces_of(text: str) -> list[str]:
    """Return the sentences and lines of a text, each with the blanks after it."""
    found: list[str] = []
    start = 0
    for end in ENDS.finditer(text):
        if end.end() > start:
            found += _cut(text[start : end.end()])
            start = end.end()
    if start < len(text):
        found += _cut(text[start:])
    return found


def _cut(piece: str) -> Iterator[str]:
    """Divide a long piece at blanks."""
    start = 0
    while len(piece) - start > _LONGEST:
        most = start + _LONGEST
        end = piece.rfind(" ", start + _SHORTEST_CUT, most) + 1 or most
        yield piece[start:end]
        start = end
    yield piece[start:]


def is_rule(piece: str) -> bool:
    """Return True if a piece demands or forbids something, in one of the languages listed.

    A habit ("He never ...") is not a rule.
    """
    words = _words_in("rule_words.txt")
    found = _LABEL.match(piece)
    lower = piece[found.start("value") if found else 0 :].lower().replace("\u2019", "'")
    if words.has_part(lower):
        return True
    head = [word.strip(_PUNCTUATION) for word in lower.split(None, _HEAD)[:_HEAD]]
    return words.has_one(head) and _TOLD.isdisjoint(head)


def is_preference(piece: str) -> bool:
    """Return True if a piece has a wish of its author, in one of the languages listed."""
    words = _words_in("prefer_words.txt")
    lower = piece.lower()
    spaced = [word.strip(_PUNCTUATION) for word in lower.split()]
    return words.has_one(spaced) or words.has_part(lower)


def label_of(piece: str) -> str:
    """Return the label of a line `LABEL: text`, in lower case; "" if it has none."""
    found = _LABEL.match(piece)
    return "" if found is None else found["label"].lower()


def worths(
    pieces: Sequence[str], words: Sequence[frozenset[str]], others: Sequence[frozenset[str]] = ()
) -> list[float]:
    """Return how much each piece is worth for its length.

    A word that many of the pieces have counts little.

    Args:
        pieces: the pieces.
        words: the words of each.
        others: the words of other pieces.
    """
    seen = Counter(chain.from_iterable(chain(words, others)))
    number = len(pieces) + len(others)
    most = log(1 + number)
    weight = {times: log(1 + number / times) / most for times in set(seen.values())}
    found = [
        _worth(piece, min(_MOST_INFORMATION, sum(sorted([weight[seen[word]] for word in each]))))
        for piece, each in zip(pieces, words, strict=True)
    ]
    speakers = frequent_labels(pieces)
    return [
        score + (_LABELLED / sqrt(len(piece) + 40) if _tells(piece, speakers) else 0.0)
        for score, piece in zip(found, pieces, strict=True)
    ]


def _tells(piece: str, speakers: frozenset[str]) -> bool:
    label = label_of(piece)
    return bool(label) and label not in speakers


def frequent_labels(pieces: Iterable[str]) -> frozenset[str]:
    """Return the labels of many pieces that are no kinds of line, as names of speakers."""
    seen = Counter(label_of(piece) for piece in pieces if not is_generic(piece))
    return frozenset(label for label, times in seen.items() if label and times > _MOST_OF_A_LABEL)


def _worth(piece: str, information: float) -> float:
    text = piece.strip()
    if not information:
        return 0.0
    information += _EACH_VALUE * min(
        3, sum(_MARK.search(word) is not None for word in text.split())
    )
    information += _EACH_NAME * min(3, len(_NAME.findall(text)))
    if is_rule(text):
        information += _RULE
    elif is_preference(text):
        information += _PREFERENCE
    if text[-1] in "!\uff01":
        information *= _EXCLAIMED
    return information / sqrt(len(text) + 40)


def rule_key(piece: str) -> str:
    """Return the subject of a rule or a labelled line: a newer one of the same key replaces it.

    The key is the label if it names one thing and its value is short, otherwise the text without its only
    number. Lines that differ in a name are about different things.
    """
    text = " ".join(piece.split()).strip(_PUNCTUATION).lower()
    found = _LABEL.match(text)
    if found and not is_generic(piece) and len(text) - found.start("value") <= _SHORT_VALUE:
        return found["label"]
    numbers = list(_NUMBER.finditer(text))
    if len(numbers) != 1 or is_rule(text) or not _is_quantity(text, numbers[0]):
        return text
    return _NUMBER.sub("#", text)


def is_generic(piece: str) -> bool:
    """Return True if a line's label names a kind of line, as `FACT:`, not one thing."""
    if _TAG.match(piece):
        return True
    if ":" not in piece and "\uff1a" not in piece:
        return False
    found = _LABEL.match(piece)
    return found is not None and (
        found["label"].isupper() or found["label"].lower() in _label_words()
    )


def _is_quantity(text: str, number: re.Match[str]) -> bool:
    """Return False for a number that may name a thing, as in "order 4411" or "module 10"."""
    if not number[0][0].isdigit():  # a currency
        return True
    before = text[: number.start()].split()
    return bool(before) and before[-1].strip("*`") in _BEFORE_QUANTITIES
