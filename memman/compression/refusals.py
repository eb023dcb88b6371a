"""Refusals in words: whole replies that models are known to give instead of an answer.

A reply is one only where it is short and every word of it is a refusal's, so no summary is taken for one. A
refusal that gives its reasons is not told from a summary.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Final

from memman.tables import beside

_MOST_CHARS: Final = 200
_WORD: Final = re.compile(r"[^\W_]+")
_SPACED: Final = 8  # so many of the languages part their words by spaces

_Groups = list[list[str]]


@cache
def _languages() -> tuple[list[_Groups], list[_Groups]]:
    """Of each language the groups of which a refusal has a word each, and last what else it may have.

    English, German, French, Spanish, Portuguese, Italian, Dutch, Russian; Chinese, Japanese, Korean.
    """
    lines = beside(__file__, "refusals.txt").decode().splitlines()
    read = [[group.split() for group in line.split("|")] for line in lines]
    return read[:_SPACED], read[_SPACED:]


def is_refusal(text: str) -> bool:
    """Whether a reply is nothing but a refusal, in one of eleven languages."""
    if len(text) > _MOST_CHARS:
        return False
    text = text.lower()
    words = set(_WORD.findall(text))
    spaced, unspaced = _languages()
    return any(_refuses(words, groups) for groups in spaced) or any(
        _refuses(_pieces(text, groups), groups) for groups in unspaced
    )


def _refuses(words: set[str], groups: _Groups) -> bool:
    return words <= {word for group in groups for word in group} and all(
        not words.isdisjoint(group) for group in groups[:-1]
    )


def _pieces(text: str, groups: _Groups) -> set[str]:
    """The words of a text without spaces, the longest first; and what of it is none."""
    known = sorted((word for group in groups for word in group), key=len, reverse=True)
    pattern = re.compile("|".join(known))
    return {*pattern.findall(text), *_WORD.findall(pattern.sub(" ", text))}
