"""The exact values of replaced texts that a window still has."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Final, Literal

from memman.compression.words import exact_values, stands_alone
from memman.entries import Entry

KeptIn = Literal["replacement", "state", "elsewhere"]

_WORD: Final = re.compile(r"[A-Za-z0-9]+")


class Values:
    """The exact values of entries; each entry is read once."""

    def __init__(self) -> None:
        self._values: dict[str, list[str]] = {}
        self._words: dict[str, str] = {}  # value -> its rarest word

    def of(self, entry: Entry) -> list[str]:
        """Return the values of an original, in order of appearance."""
        if entry.id not in self._values:
            self._values[entry.id] = exact_values(entry.text)
        return self._values[entry.id]

    def kept(
        self, values: Collection[str], text: str, state: set[str], window: set[str]
    ) -> dict[str, KeptIn]:
        """Return the values in a replacement's text, in the outline, or elsewhere in the window."""
        wanted = set(values)
        found: dict[str, KeptIn] = dict.fromkeys(window & wanted, "elsewhere")
        found |= dict.fromkeys(state & wanted, "state")
        found |= dict.fromkeys(self.standing_in(text, wanted), "replacement")
        return found

    def standing_in(self, text: str, values: Collection[str]) -> set[str]:
        """Return the values that a text contains."""
        wanted = set(values)
        # Most values have a word that the text lacks, which needs no search in the text.
        words = {"", *_WORD.findall(text)}
        words_of = self._words
        return wanted.intersection(exact_values(text)).union(
            value
            for value in wanted
            if (words_of[value] if value in words_of else self._word(value)) in words
            and stands_alone(value, text)
        )

    def _word(self, value: str) -> str:
        words = _WORD.findall(value)
        found = max(words, key=lambda word: (not word.isalpha(), len(word)), default="")
        self._words[value] = found
        return found
