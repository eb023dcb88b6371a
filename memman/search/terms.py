"""The terms of a query, and the text that an entry is found by.

A term is a piece of the query without white space. Quotes and operators have no meaning: everything in a
query is data. Scripts without spaces are searched by pairs of neighbouring characters.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, Final

from memman.entries import Entry, depth_of, json_or

MOST_TERMS: Final = 24
"""The most terms of a query; later ones are ignored."""
_MOST_QUERY: Final = 2_000  # characters that are read
_LEAST_PART: Final = 3  # characters of a part of a term that is a term itself
_MOST_TERM: Final = 200  # characters
_DEEPEST: Final = 64  # levels of JSON
# Thai and Lao, Tibetan, Burmese, Khmer, Japanese kana, Chinese characters.
UNSPACED: Final = "\u0e00-\u0eff\u0f40-\u0fbc\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff"
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
    pieces = [piece for chunk in query[:_MOST_QUERY].split() for piece in _pieces(chunk)]
    terms = dict.fromkeys(piece.lower()[:_MOST_TERM] for piece in pieces)
    telling = [term for term in terms if term not in function_words()] or list(terms)
    parts = (
        part
        for term in telling
        for part in PARTS.findall(term)
        if len(part) >= _LEAST_PART and part not in function_words()
    )
    return tuple(dict.fromkeys([*telling, *parts]))[:MOST_TERMS]


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
