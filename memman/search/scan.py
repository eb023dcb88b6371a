"""Search without an index: every entry is read."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from memman.protocols import Candidate, Candidates, SearchRequest
from memman.records import Added, Record
from memman.search.ranking import rarity
from memman.search.terms import ENDINGS, SPACELESS, searchable

AS_WORD, AS_PART = 1.0, 0.5
"""The weight of a term that an entry contains as a word, and as a part of a word."""
_ENDING: Final = re.compile(rf"(?<=[a-z]{{3}}){ENDINGS}$")


def scan(request: SearchRequest, records: Iterable[tuple[str, int, Record]]) -> Candidates:
    """Return the candidates among (session id, seq, record), which are in the request's scope."""
    words = [_word(term) for term in request.terms]
    counts = [0] * len(words)
    entries = 0
    found: list[Candidate] = []
    for name, seq, record in records:
        if not isinstance(record, Added):
            continue
        entries += 1
        text = searchable(record.entry).lower()
        weights = tuple(
            (AS_WORD if word.search(text) else AS_PART) if stem in text else 0.0
            for stem, word in words
        )
        if any(weights):
            counts = [count + bool(weight) for count, weight in zip(counts, weights, strict=True)]
            found.append(Candidate(name, seq, record, weights))
    rarities = [rarity(entries, count) for count in counts]
    found.sort(key=lambda each: sum(map(float.__mul__, each.weights, rarities)), reverse=True)
    return Candidates(entries, tuple(counts), found[: request.limit], len(found) > request.limit)


def _word(term: str) -> tuple[str, re.Pattern[str]]:
    """Return the stem of a term, and a pattern for it as a word."""
    if SPACELESS.match(term):
        return term, re.compile(re.escape(term))
    stem = _ENDING.sub("", term)
    return stem, re.compile(rf"(?<!\w){re.escape(stem)}{ENDINGS}?(?!\w)")
