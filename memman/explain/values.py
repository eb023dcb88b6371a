"""Which exact values of replaced texts a window still has, and where."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from typing import Final, Literal

from memman.compression.key_facts import without_key_facts
from memman.compression.words import exact_values
from memman.entries import Entry

KeptIn = Literal["replacement", "ledger", "elsewhere"]

_WORD: Final = re.compile(r"[A-Za-z0-9]+")


class Values:
    """The exact values of entries, each entry read once however often it is asked for."""

    def __init__(self) -> None:
        self._said: dict[str, list[str]] = {}
        self._shown: dict[str, list[str]] = {}
        self._told: dict[str, str] = {}  # value -> the word of it that is in the fewest texts

    def of(self, entry: Entry) -> list[str]:
        """Those of an original, in the order in which they first stand."""
        if entry.id not in self._said:
            self._said[entry.id] = exact_values(entry.text)
        return self._said[entry.id]

    def shown_in(self, entries: Iterable[Entry]) -> set[str]:
        """Those that a window of these entries has, in texts and in ledgers."""
        found: set[str] = set()
        for entry in entries:
            if entry.id not in self._shown:
                body, ledger = without_key_facts(entry.text)
                values = exact_values(body) if ledger else self.of(entry)
                self._shown[entry.id] = [*values, *(value for value, _ in ledger)]
            found.update(self._shown[entry.id])
        return found

    def kept(self, values: Collection[str], text: str, window: set[str]) -> dict[str, KeptIn]:
        """Those of the values that are in a replacement's text, its ledger, or elsewhere in the window."""
        body, below = without_key_facts(text)
        wanted = set(values)
        found: dict[str, KeptIn] = dict.fromkeys(window & wanted, "elsewhere")
        found |= dict.fromkeys([value for value, _ in below if value in wanted], "ledger")
        found |= dict.fromkeys(wanted.intersection(exact_values(body)), "replacement")
        found |= dict.fromkeys(self._standing(wanted, body), "replacement")
        return found

    def _standing(self, values: Iterable[str], text: str) -> list[str]:
        # Most values have a word that the text has not, which is seen without a search in it.
        words = {"", *_WORD.findall(text)}
        told = self._told
        return [
            value
            for value in values
            if (told[value] if value in told else self._word(value)) in words
            and stands_alone(value, text)
        ]

    def _word(self, value: str) -> str:
        words = _WORD.findall(value)
        found = max(words, key=lambda word: (not word.isalpha(), len(word)), default="")
        self._told[value] = found
        return found


def stands_alone(value: str, text: str) -> bool:
    """Whether a value stands in a text and is not a part of a longer word or number there."""
    at = text.find(value)
    while at >= 0:
        end = at + len(value)
        if not _joined(text[max(0, at - 1) : at + 1]) and not _joined(text[end - 1 : end + 1]):
            return True
        at = text.find(value, at + 1)
    return False


def _joined(pair: str) -> bool:
    """Whether two neighbours are of one word; in scripts without spaces nobody can say."""
    return len(pair) == 2 and pair.isascii() and pair.isalnum()
