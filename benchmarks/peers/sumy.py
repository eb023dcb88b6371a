"""Extracts by sumy: the sentences that it rates best, as many as fit.

Its own tokenizer needs a download, so this module splits sentences and words: a line is a paragraph,
a sentence ends at `.`, `!` or `?`, and a long one at commas.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

Count = Callable[[str], int]
Extract = Callable[[str, int, Count], str]
"""`(text, most tokens, count) -> the extract`."""

_WORD = re.compile(r"\w+")
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+|\n+")
_CLAUSE_END = re.compile(r"(?<=,)\s*")
_LONG = 300  # characters


def load() -> dict[str, Extract]:
    """Return the methods that are fast enough. Raises `ImportError` if sumy is not installed."""
    basic = import_module("sumy.summarizers.sum_basic").SumBasicSummarizer
    luhn = import_module("sumy.summarizers.luhn").LuhnSummarizer
    return {"SumBasic": _extract(basic), "Luhn": _extract(luhn)}


def _extract(summarizer: Any) -> Extract:
    def extract(text: str, most: int, count: Count) -> str:
        chosen = summarizer()(_document(text), _Room(most, count))
        return "\n".join(map(str, chosen))

    return extract


class _Room:
    """Chooses the best rated sentences while they fit; sumy takes a function in place of a number."""

    def __init__(self, most: int, count: Count) -> None:
        self._left = most
        self._count = count

    def __call__(self, rated: Sequence[Any]) -> list[Any]:
        chosen = []
        for one in rated:
            cost = self._count(f"{one.sentence}\n")
            if cost <= self._left:
                self._left -= cost
                chosen.append(one)
        return chosen


class _Words:
    """The methods of a tokenizer that sumy's sentences call."""

    def to_words(self, sentence: str) -> tuple[str, ...]:
        """Return runs of letters and digits."""
        return tuple(_WORD.findall(sentence))


def _document(text: str) -> Any:
    dom = import_module("sumy.models.dom")
    words = _Words()
    sentences = [dom.Sentence(sentence, words) for sentence in sentences_of(text)]
    return dom.ObjectDocumentModel([dom.Paragraph(sentences)])


def sentences_of(text: str) -> list[str]:
    """Return the sentences of a text, long ones in their clauses."""
    found: list[str] = []
    for sentence in _SENTENCE_END.split(text):
        found += _CLAUSE_END.split(sentence) if len(sentence) > _LONG else [sentence]
    return [sentence for sentence in found if _WORD.search(sentence)]
