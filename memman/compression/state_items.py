"""A thing that the state block carries forward, while the block is rebuilt."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec

from memman.entries import Entry, attributed
from memman.state import LISTED_SECTIONS, MESSAGES, StateItem, quoted

_MOST_SOURCES: Final = 2  # of an item, the newest
_ITEM: Final = 34  # characters of an item's encoding besides its text
_NUMBER: Final = 8  # characters of "#123: " and the line end
# Fading is by multiplication only, which gives the same on every platform.
_FADED: Final = [1.0]
for _ in range(600):
    _FADED.append(_FADED[-1] * 0.99)


class Found(msgspec.Struct, gc=False, eq=False):
    """A thing to carry forward, while the block is rebuilt."""

    section: str
    key: str
    text: str
    ids: tuple[str, ...]
    seq: int
    score: float
    part: int = 0

    @property
    def said(self) -> str:
        """The text; of a message with the name of its speaker, which is the key."""
        return attributed(self.key, self.text) if self.section in MESSAGES else self.text

    def faded(self, seq: int) -> float:
        """Return the score at a later position."""
        return self.score * _FADED[min(max(0, seq - self.seq), len(_FADED) - 1)]

    def see(self, entry: Entry, weight: float) -> None:
        """Count the thing again, in an entry."""
        self.score = self.faded(entry.seq) + weight
        self.seq = max(self.seq, entry.seq)
        others = [name for name in self.ids if name != entry.id]
        self.ids = (*others, entry.id)[-_MOST_SOURCES:]


def cost_of(item: Found) -> int:
    """Return the characters that an item takes in the text."""
    if item.section in LISTED_SECTIONS:
        return len(quoted(item.text)) + 3 if " " in item.text else len(item.text) + 1
    if item.part > 1:
        return len(item.text) + 3
    return len(item.said) + _NUMBER


def size_of(item: Found) -> int:
    """Return about how many bytes an item takes in a record."""
    text = item.text
    return (len(text) if text.isascii() else len(text.encode())) + len(item.key) + _ITEM


def item_of(found: Found, sources: Iterable[int], shown: bool) -> StateItem:
    """Return the item of a record; `sources` are indexes."""
    return StateItem(
        found.section,
        found.key,
        found.text,
        tuple(sources),
        found.seq,
        round(found.score, 3),
        shown,
        found.part,
    )
