"""The ranking of candidates: BM25 over the terms, and a share of the score of the entries around.

Of a query of one value, such as a file's name, entries with different matches come first.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from heapq import nsmallest
from math import log
from operator import mul
from typing import Final

import msgspec

from memman.protocols import Candidate, Candidates
from memman.search.terms import searchable

# Okapi BM25's usual constants (Robertson and Zaragoza, 2009).
_SATURATION: Final = 1.2
_LENGTH: Final = 0.75
_AROUND: Final = (0.5, 0.25, 0.125)
"""The shares of a score that the entries one, two and three places away get."""
_MOST_REPEATS: Final = 8
_SHORTEST: Final = 40  # characters: shorter entries count as this long
_LONGEST: Final = 8  # means: longer entries count as this long, or their values would come last
_BY_STEM: Final = 0.2  # the weight of a path or an identifier whose words are there in another form
_AGAIN: Final = 0.5  # the share of its score that an entry without a new match keeps
_READ: Final = 50  # candidates whose texts are read
_MOST_MATCHES: Final = 20  # of an entry
_MOST_AROUND: Final = 200  # characters of a match on each side
_EDGE: Final = re.compile(r"[\s\"'`]")


class Ranked(msgspec.Struct, frozen=True):
    """A candidate with its score; higher is better."""

    candidate: Candidate
    score: float


def rarity(entries: int, count: int) -> float:
    """Return the weight of a term that `count` of so many entries contain (BM25's idf)."""
    count = min(count, entries)
    return log(1 + (entries - count + 0.5) / (count + 0.5))


def ranked(candidates: Candidates, terms: Sequence[str]) -> list[Ranked]:
    """Return the candidates, best first; of two equal ones the newer.

    The texts of the best ones are read; the others are ranked by the store's matches.
    """
    found = candidates.found
    if not found:
        return []
    rarities = [rarity(candidates.entries, count) for count in candidates.counts]
    lengths = [max(len(each.record.entry.text), _SHORTEST) for each in found]
    mean = sum(lengths) / len(lengths)
    dampings = [
        _SATURATION * (1 - _LENGTH + _LENGTH * min(length / mean, _LONGEST)) for length in lengths
    ]
    own = [
        sum(map(mul, each.weights, rarities)) * (1 + _SATURATION) / (1 + damping)
        for each, damping in zip(found, dampings, strict=True)
    ]
    first = enumerate(_with_those_around(found, own))
    best = nsmallest(_READ, first, key=lambda one: _order(one[1]))
    texts = {at: searchable(found[at].record.entry).lower() for at, _ in best}
    for at, text in texts.items():
        own[at] = _score(text, terms, list(map(mul, found[at].weights, rarities)), dampings[at])
    listed = sorted(enumerate(_with_those_around(found, own)), key=lambda one: _order(one[1]))
    read = _new_matches_first([(one, texts[at]) for at, one in listed if at in texts], terms)
    return [*read, *(one for at, one in listed if at not in texts)]


def _order(one: Ranked) -> tuple[float, str, int]:
    return -one.score, one.candidate.session_id, -one.candidate.seq


def _score(text: str, terms: Sequence[str], weights: Sequence[float], damping: float) -> float:
    """Return the score of a text, in which terms of some weight are repeated."""
    score = 0.0
    for term, weight in zip(terms, weights, strict=True):
        if weight:
            repeats = min(text.count(term), _MOST_REPEATS)
            if not repeats and not term.isalpha():
                weight *= _BY_STEM
            repeats = max(1, repeats)
            score += weight * repeats * (1 + _SATURATION) / (repeats + damping)
    return score


def _with_those_around(found: Sequence[Candidate], own: Sequence[float]) -> list[Ranked]:
    """Return the candidates with their own scores and a share of those of the entries around."""
    at = {(each.session_id, each.seq): score for each, score in zip(found, own, strict=True)}
    return [
        Ranked(
            each,
            score
            + sum(
                share * (at.get((name, seq - away), 0.0) + at.get((name, seq + away), 0.0))
                for away, share in enumerate(_AROUND, 1)
            ),
        )
        for each, ((name, seq), score) in zip(found, at.items(), strict=True)
    ]


def _new_matches_first(listed: Sequence[tuple[Ranked, str]], terms: Sequence[str]) -> list[Ranked]:
    """Return ranked entries. If one value is searched, those whose matches were all seen come later.

    So a command that is repeated, or a path in many entries, is found once among the first.
    """
    value = terms[0]
    if not all(term in value for term in terms):
        return [one for one, _ in listed]
    seen: set[str] = set()
    found = []
    for one, text in listed:
        matches = _matches(text, value)
        if matches <= seen:
            one = msgspec.structs.replace(one, score=one.score * _AGAIN)
        seen |= matches
        found.append(one)
    return sorted(found, key=_order)


def _matches(text: str, term: str) -> set[str]:
    """Return the matches of a term, each with the characters around it up to white space or a quote."""
    matches: set[str] = set()
    place = text.find(term)
    for _ in range(_MOST_MATCHES):
        if place < 0:
            break
        end = place + len(term)
        before = _EDGE.split(text[max(0, place - _MOST_AROUND) : place])[-1]
        after = _EDGE.split(text[end : end + _MOST_AROUND], maxsplit=1)[0]
        matches.add(before + term + after)
        place = text.find(term, end + len(after))
    return matches
