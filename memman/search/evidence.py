"""The rules for entries that are quoted without a search.

A search returns every match. A context quotes an entry only if it answers the user's message.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from operator import mul
from typing import Final

import msgspec

from memman.protocols import Candidate, Candidates
from memman.search.ranking import Ranked, ranked, rarity
from memman.search.scan import AS_PART, AS_WORD
from memman.search.terms import SPACELESS, function_words, terms_of

_QUESTION: Final = re.compile(r"[?\uff1f\u061f]\W*\Z")
_VALUE: Final = re.compile(r"[\d/\\._:@#=]")
_LEAST_VALUE: Final = 4  # characters of a value that is enough alone
_LEAST_WORD: Final = 3  # characters
_LEAST_WORDS: Final = 2
_OF_SUBJECT: Final = 3  # words longer than the least
_TELLING: Final = 1.1  # the rarity of a word that a third of the entries have
_WEIGHED: Final = 12  # the rarest terms of a message, whose weight counts
# One entry must have this part of the weight of a question, or of a statement, or the message gets no text.
# Each quoted entry must have the last part.
_IF_ASKED, _IF_SAID, _LEAST_SHARE = 0.5, 0.7, 0.15
# The first two parts are smaller in a script that is searched by pairs: its terms include function words.
_IN_PAIRS: Final = 0.7
_LEAST_SCORE: Final = 0.4  # of the best one's
_BEST: Final = 20


class Evidence(msgspec.Struct, frozen=True):
    """How well entries answer a message: by terms of it that are rare in the conversation."""

    terms: tuple[str, ...]
    rarities: tuple[float, ...]  # 0 for a term that no entry has
    weight: float

    @classmethod
    def of(cls, terms: Sequence[str], found: Candidates) -> Evidence:
        """Return the evidence of a store's answer."""
        most = rarity(found.entries, 0)
        every = [
            (rarity(found.entries, count) if count else most) if _is_telling(term) else 0.0
            for term, count in zip(terms, found.counts, strict=True)
        ]
        known = [rare if count else 0.0 for rare, count in zip(every, found.counts, strict=True)]
        weight = sum(sorted(every, reverse=True)[:_WEIGHED])
        return cls(tuple(terms), tuple(known), weight)

    def words(self, candidate: Candidate, share: float = _LEAST_SHARE) -> tuple[str, ...]:
        """Return the telling terms that an entry has, if they are enough, else none.

        One whole value is enough. Otherwise it takes two words, and this share of the message's weight.
        """
        telling = [
            (term, weight)
            for term, weight, rare in zip(self.terms, candidate.weights, self.rarities, strict=True)
            if weight >= AS_PART and rare >= _TELLING
        ]
        words = tuple(term for term, _ in telling)
        if any(weight == AS_WORD and _is_value(term) for term, weight in telling):
            return words
        have = sum(map(mul, candidate.weights, self.rarities))
        return words if have >= share * self.weight and _number_of(words) >= _LEAST_WORDS else ()


def answers(message: str, found: Candidates) -> list[tuple[Ranked, tuple[str, ...]]]:
    """Return the entries that answer a message, best first, with the words of it that tell so.

    Most messages need no answer from the past. So one entry must contain a large part of the message, of a
    question a smaller part than of a statement.
    """
    terms = terms_of(message)
    evidence, listed = Evidence.of(terms, found), ranked(found, terms)
    share = _IF_ASKED if _QUESTION.search(message) else _IF_SAID
    if 2 * sum(SPACELESS.match(term) is not None for term in terms) > len(terms):
        share *= _IN_PAIRS
    if not any(evidence.words(one.candidate, share) for one in listed[:_BEST]):
        return []
    least = _LEAST_SCORE * listed[0].score
    good = ((one, evidence.words(one.candidate)) for one in listed if one.score >= least)
    return [(one, words) for one, words in good if words]


def has_subject(message: str) -> bool:
    """Return whether a message has enough long words to be about something, unlike "Go on with step 4"."""
    words = [term for term in terms_of(message) if _is_telling(term)]
    long = [word for word in words if len(word) > _LEAST_WORD or SPACELESS.match(word)]
    return _number_of(long) >= _OF_SUBJECT


def _is_telling(term: str) -> bool:
    return bool(len(term) >= _LEAST_WORD or SPACELESS.match(term)) and term not in function_words()


def _is_value(term: str) -> bool:
    return len(term) >= _LEAST_VALUE and _VALUE.search(term) is not None


def _number_of(terms: Sequence[str]) -> int:
    """Return the number of words. Of pairs of characters that overlap, every second one is a word."""
    number, last = 0, ""
    for term in terms:
        is_pair = bool(SPACELESS.match(term))
        if is_pair and last and last[-1] == term[0]:
            last = ""
        else:
            number, last = number + 1, term if is_pair else ""
    return number
