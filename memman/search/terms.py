"""The terms of a query, and the text that an entry is found by.

A term is a piece of the query without white space. Quotes and operators have no meaning: everything in a
query is data. Scripts without spaces are searched by pairs of neighbouring characters.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Final

from memman.entries import Entry, depth_of, json_or

MOST_TERMS: Final = 200
"""The most terms of a query: of more the first half and the last. A search chooses the telling ones."""
_MOST_QUERY: Final = 8_000  # characters that are read, half of them at the end
_MOST_CHOSEN: Final = 24  # terms that are searched, twice as many if they are mostly pairs
_LEAST_PART: Final = 3  # characters of a part of a term that is a term itself
_MOST_TERM: Final = 200  # characters
_DEEPEST: Final = 64  # levels of JSON
# Thai and Lao, Tibetan, Burmese, Khmer, Japanese kana, Chinese characters, and Hangul, whose words have
# spaces between them and end in particles.
UNSPACED: Final = (
    "\u0e00-\u0eff\u0f40-\u0fbc\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uac00-\ud7a3"
)
SPACELESS: Final = re.compile(f"[{UNSPACED}]+")
PARTS: Final = re.compile(r"[^\W_]+")
ENDINGS: Final = "(?:ies|y|ing|ed|es|s|e)"  # of English words, as a pattern
_EDGES: Final = "\"'`.,;:!?()[]{}<>\u2018\u2019\u201c\u201d\u3001\u3002\uff0c\uff1f"
_POSSESSIVE: Final = ("'s", "\u2019s")


@cache
def function_words() -> frozenset[str]:
    """Return function words: English, German, French, Spanish, Portuguese, Italian, Dutch, Russian."""
    return frozenset((Path(__file__).parent / "function_words.txt").read_bytes().decode().split())


def terms_of(query: str) -> tuple[str, ...]:
    """Return the distinct terms of a query in lower case, without function words if others are left.

    A term of several words, such as a path, is followed by its words.
    """
    half = _MOST_QUERY // 2
    read = query if len(query) <= _MOST_QUERY else f"{query[:half]} {query[-half:]}"
    pieces = [piece for chunk in read.split() for piece in _pieces(chunk)]
    terms = dict.fromkeys(piece.lower()[:_MOST_TERM] for piece in pieces)
    telling = [term for term in terms if term not in function_words()] or list(terms)
    found = tuple(dict.fromkeys(part for term in telling for part in (term, *_words_in(term))))
    if len(found) <= MOST_TERMS:
        return found
    return found[: MOST_TERMS // 2] + found[-MOST_TERMS // 2 :]


def _words_in(term: str) -> list[str]:
    words = PARTS.findall(term)
    return [each for each in words if len(each) >= _LEAST_PART and each not in function_words()]


def is_value(term: str) -> bool:
    """Return whether a term is an exact value, such as a number, an identifier or a path, and no word."""
    return not term.isalpha() and not SPACELESS.match(term)


def chosen_terms(terms: Sequence[str], count: Callable[[str], int]) -> set[int]:
    """Return the places of the terms of a query that a search looks for; every store chooses the same.

    Two thirds are the rarest of those that occur: they may all be of one sentence before the question. The
    rest are the last ones that occur, since a question is at the end. If few occur, long ones are added.

    Args:
        terms: those of the query.
        count: returns how many entries in scope have a term as a word, 200 for more.
    """
    pairs = sum(SPACELESS.match(term) is not None for term in terms)
    most = _MOST_CHOSEN * (2 if 2 * pairs > len(terms) else 1)
    if len(terms) <= most:
        return set(range(len(terms)))
    counts = list(map(count, terms))
    absent = [number for number, count in enumerate(counts) if not count]
    present = [number for number, count in enumerate(counts) if count]
    chosen = set(sorted(present, key=lambda number: (counts[number], number))[: most * 2 // 3])
    chosen.update([number for number in present if number not in chosen][len(chosen) - most :])
    absent.sort(key=lambda number: (-len(terms[number]), number))
    return chosen.union(absent[: most - len(chosen)])


def _pieces(chunk: str) -> Iterator[str]:
    """Divide a chunk without white space into terms."""
    end = 0
    for run in SPACELESS.finditer(chunk):
        yield from _stripped(chunk[end : run.start()])
        yield from _pairs(run[0])
        end = run.end()
    yield from _stripped(chunk[end:])


def _stripped(piece: str) -> Iterator[str]:
    """Yield a term without the punctuation around it; signs alone stay as they are."""
    bare = piece.strip(_EDGES)
    if bare.endswith(_POSSESSIVE):
        bare = bare[:-2]
    if piece:
        yield bare if PARTS.search(bare) else piece


def _pairs(run: str) -> list[str]:
    return [run[at : at + 2] for at in range(len(run) - 1)] or [run]


def in_pairs(text: str) -> str:
    """Return the text with each run of a script without spaces written as pairs of its characters.

    The last character of a run follows as a word of its own, so that a single character is found as the
    beginning of a word.
    """
    if text.isascii():
        return text
    return SPACELESS.sub(lambda run: f" {' '.join(_pairs(run[0]))} {run[0][-1]} ", text)


def searchable(entry: Entry) -> str:
    """Return the text that an entry is found by: the name of its tool or source, and its text.

    Of a call these are the keys and values of its arguments, one per line, unless they are deeply nested.
    """
    text = entry.text
    if entry.type == "tool_call":
        value = json_or(text, text)
        # The answer must not depend on the stack of the caller: an entry leaves an index by the same text.
        if depth_of(value, _DEEPEST) <= _DEEPEST:
            text = "\n".join(_strings(value))
    return f"{entry.name}\n{text}" if entry.name else text


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for key, inner in value.items():
            yield key
            yield from _strings(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _strings(inner)
    elif value is not None:
        yield str(value)
