"""The entry of a summary, made of a model's reply, within its tokens."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from memman.compression.view import EntryFactory
from memman.entries import Entry
from memman.summary_metadata import summary_draft

SMALLEST_SUMMARY: Final = 16  # tokens: a smaller summary conveys nothing
_CUT: Final = " [...]"
_ROUNDS: Final = 8
_FULL: Final = 0.985  # of the tokens is near enough


class Composer:
    """Makes summaries of some entries.

    `replaced` are the tokens of the entries. `recall` is the name of the agent's tool that returns them.
    """

    def __init__(
        self, originals: Sequence[Entry], make_entry: EntryFactory, recall: str = ""
    ) -> None:
        self._originals = originals
        self._make_entry = make_entry
        self._draft = summary_draft("", originals, recall)
        self.replaced = sum(entry.token_count.tokens for entry in originals)

    def of_part(self, originals: Sequence[Entry]) -> Composer:
        """Return a composer for a part that goes into another summary."""
        return Composer(originals, self._make_entry)

    def entry(self, text: str) -> Entry:
        """Return a summary with exactly this text."""
        return self._make_entry(msgspec.structs.replace(self._draft, content=text))

    def clipped(self, text: str, cap: int) -> Entry:
        """Return the summary with as much of a reply's beginning as fits."""
        return self.entry(longest(cap, self._count, lambda room: _beginning(text, room)))

    def _count(self, text: str) -> int:
        return self.entry(text).token_count.tokens


def longest(tokens: int, count: Callable[[str], int], composed: Callable[[int], str]) -> str:
    """Return the longest text of at most `tokens` tokens that `composed` makes for some room in
    characters.
    """
    fits, over = 0, 0  # the largest room that fits, the smallest that does not; 0 if unknown
    room, best = tokens * 4, ""
    for _ in range(_ROUNDS):
        text = composed(room)
        cost = count(text)
        if cost <= tokens:
            fits = room
            if cost >= _FULL * tokens or len(text) < room // 2 or text == best:
                return max(best, text, key=len)
            best = max(best, text, key=len)
        else:
            room = over = min(room, len(text))  # the text may be shorter than its room
        guess = int(room * tokens * 0.99 / max(cost, 1))
        room = guess if fits < guess and (not over or guess < over) else (fits + over) // 2
        if room <= fits:
            break
    return best


def _beginning(text: str, room: int) -> str:
    """Return the beginning of a text with a mark of the cut, if possible after a line or a word."""
    if len(text) <= room:
        return text
    kept = text[: max(0, room - len(_CUT))]
    for end in ("\n", " "):
        at = kept.rfind(end, len(kept) * 3 // 4)
        if at > 0:
            kept = kept[:at]
            break
    return f"{kept.rstrip()}{_CUT}" if kept else ""
