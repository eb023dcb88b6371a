"""The part of an entry's text that shows why it was found."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Final

from memman.search.terms import ENDINGS

_LENGTH: Final = 240  # characters
_BEFORE: Final = 60  # of them before the first match
_MOST_PLACES: Final = 50  # of one term
_LEAST_PART: Final = 3  # characters of a part of a word
_ENDING: Final = re.compile(rf"(?<=\w{{3}}){ENDINGS}$")


def snippet_of(text: str, terms: Sequence[str], length: int = _LENGTH) -> str:
    """Return the part of the text with the most terms, on one line; `...` marks a cut."""
    start = densest(text, terms, length)
    end = start + length
    line = " ".join(text[start:end].split())
    return f"{'... ' if start else ''}{line}{' ...' if end < len(text) else ''}"


def densest(text: str, terms: Sequence[str], length: int) -> int:
    """Return the start of the part of a text, of so many characters, that has the most of these terms."""
    lower = text.lower()
    if len(lower) != len(text):  # a few capitals are longer in lower case
        lower = text
    places = sorted((place, n) for n, term in enumerate(terms) for place in _places(lower, term))
    best, most = 0, 0
    inside: Counter[int] = Counter()
    end = 0
    for place, first in places:
        while end < len(places) and places[end][0] < place + length - _BEFORE:
            inside[places[end][1]] += 1
            end += 1
        if len(inside) > most:
            best, most = place, len(inside)
        inside[first] -= 1
        if not inside[first]:
            del inside[first]
    return max(0, min(best - _BEFORE, len(text) - length))


def matches_in(text: str, terms: Sequence[str]) -> list[tuple[int, int]]:
    """Return the beginnings and ends of the terms in a text, in order and without overlaps.

    The other forms of an English word count, too: `retries` for `retry`.
    """
    longest = sorted(filter(None, terms), key=len, reverse=True)
    forms = "|".join(f"{_as_written(term)}|{_other_forms(term)}" for term in longest)
    return [each.span() for each in re.finditer(forms, text, re.IGNORECASE)] if forms else []


def _as_written(term: str) -> str:
    """Return a pattern for a term; a short one is no part of a word."""
    short = len(term) < _LEAST_PART and term.isascii() and term.isalnum()
    return rf"\b{term}\b" if short else re.escape(term)


def _other_forms(term: str) -> str:
    """Return a pattern for the words that differ from a term by their English ending only."""
    return rf"\b{re.escape(_ENDING.sub('', term))}{ENDINGS}?\b"


def _places(text: str, term: str) -> list[int]:
    """Return the places of a term in a text of lower case, else those of its other forms."""
    if found := list(islice(_find(text, term), _MOST_PLACES)):
        return found
    form = re.compile(_other_forms(term))
    others = (place for place in _find(text, _ENDING.sub("", term)) if form.match(text, place))
    return list(islice(others, _MOST_PLACES))


def _find(text: str, part: str) -> Iterator[int]:
    place = text.find(part)
    while place >= 0:
        yield place
        place = text.find(part, place + len(part))
