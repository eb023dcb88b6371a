"""Search without an index: every entry is read."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from itertools import count
from typing import Final

import msgspec

from memman.protocols import Candidate, Candidates, SearchRequest
from memman.records import Added, Record
from memman.search.ranking import rarity
from memman.search.terms import ENDINGS, SPACELESS, chosen_terms, is_value, searchable

AS_WORD, AS_PART, AS_BEGINNING, AS_NAMESAKE = 1.0, 0.5, 0.25, 0.01
"""The weight of a term that an entry contains as a word, in a word, or by the beginning of a word; and of a
value in a longer word, if another entry has the value as a whole."""
MOST_COUNTED: Final = 200
"""The most entries with a term that are counted to choose the terms."""
_ENDING: Final = re.compile(rf"(?<=[a-z]{{3}}){ENDINGS}$")
_LEAST_BEGUN, _OTHER_ENDING = 6, 3  # letters of a word that may differ at its end, and by so many


def scan(request: SearchRequest, records: Iterable[tuple[str, int, Record]]) -> Candidates:
    """Return the candidates among (session id, seq, record), which are in the request's scope."""
    forms = [_forms(term) for term in request.terms]
    entries = 0
    found: list[Candidate] = []
    for name, seq, record in records:
        if isinstance(record, Added) and request.covers(name, seq):
            entries += 1
            text = searchable(record.entry).lower()
            weights = tuple(_weight(text, *form) for form in forms)
            if any(weights):
                found.append(Candidate(name, seq, record, weights))
    return _settled(request, entries, found)


def joined(request: SearchRequest, *parts: Candidates) -> Candidates:
    """Return the candidates of the parts of a scope as those of the whole."""
    found = [each for part in parts for each in part.found]
    whole = _settled(request, sum(part.entries for part in parts), found)
    sums = [sum(numbers) for numbers in zip(*(part.counts for part in parts), strict=True)]
    counts = [total if has else 0 for total, has in zip(sums, whole.counts, strict=True)]
    more = whole.more or any(part.more for part in parts)
    return msgspec.structs.replace(whole, counts=tuple(counts), more=more)


def beginning_of(term: str) -> str:
    """Return the beginning by which a word is searched that no entry contains; "" for none."""
    is_long = term.isalpha() and len(term) >= _LEAST_BEGUN and not SPACELESS.match(term)
    return term[:-_OTHER_ENDING] if is_long else ""


def is_in(text: str, term: str, weight: float) -> bool:
    """Return whether a text in lower case has a match of the kind that this weight stands for.

    With `AS_BEGINNING` a word must begin like the term; with the others the term may be anywhere in it.
    """
    if weight != AS_BEGINNING:
        return term in text
    return re.search(rf"(?<!\w){re.escape(beginning_of(term))}", text) is not None


def with_namesakes(terms: Sequence[str], found: Sequence[Candidate]) -> list[Candidate]:
    """Return candidates in which a value in a longer word weighs little, if another has it as a whole."""
    whole = {
        number
        for number, term in enumerate(terms)
        if is_value(term) and any(each.weights[number] == AS_WORD for each in found)
    }
    return _weighed(
        found, lambda n, weight: AS_NAMESAKE if weight == AS_PART and n in whole else weight
    )


def _settled(request: SearchRequest, entries: int, found: Sequence[Candidate]) -> Candidates:
    """Return the best candidates, with weights that depend on those of the other ones."""
    terms, entries = request.terms, request.until or entries
    columns = list(zip(*(each.weights for each in found), strict=True)) or [()] * len(terms)
    words = [min(column.count(AS_WORD), MOST_COUNTED) for column in columns]
    chosen = chosen_terms(terms, dict(zip(terms, words, strict=True)).__getitem__)
    begun = {n for n, column in enumerate(columns) if not {AS_WORD, AS_PART} & {*column}}
    kept = _weighed(
        found,
        lambda n, weight: weight if n in chosen and (weight != AS_BEGINNING or n in begun) else 0.0,
    )
    kept = [each for each in with_namesakes(terms, kept) if any(each.weights)]
    counts = [sum(each.weights[n] > AS_NAMESAKE for each in kept) for n in range(len(terms))]
    rarities = [rarity(entries, count) for count in counts]
    # Of two equal ones the newer comes first, as in an index.
    kept.sort(
        key=lambda each: (sum(map(float.__mul__, each.weights, rarities)), each.seq), reverse=True
    )
    return Candidates(entries, tuple(counts), kept[: request.limit], len(kept) > request.limit)


def _weighed(found: Sequence[Candidate], weigh: Callable[[int, float], float]) -> list[Candidate]:
    return [
        msgspec.structs.replace(each, weights=tuple(map(weigh, count(), each.weights)))
        for each in found
    ]


def _weight(text: str, term: str, stem: str, word: re.Pattern[str]) -> float:
    if stem in text and word.search(text):
        return AS_WORD
    if term in text:
        return AS_PART
    beginning = beginning_of(term)
    begins = beginning and beginning in text and is_in(text, term, AS_BEGINNING)
    return AS_BEGINNING if begins else 0.0


def _forms(term: str) -> tuple[str, str, re.Pattern[str]]:
    """Return a term, its stem, and a pattern for it as a word."""
    if SPACELESS.match(term):
        return term, term, re.compile(re.escape(term))
    stem = _ENDING.sub("", term)
    return term, stem, re.compile(rf"(?<!\w){re.escape(stem)}{ENDINGS}?(?!\w)")
