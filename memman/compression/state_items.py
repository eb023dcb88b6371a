"""A thing that the outline carries forward, while the outline is rebuilt."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec

from memman.entries import Entry, attributed
from memman.state import MESSAGES, StateItem

# The scores of a user's message with a rule, of a sentence with one in a long message, of a short
# message, of a longer one, of the other sentences of long messages, and of a program's text in the user's
# place.
RULE, RULE_PIECE, SHORT, LONG, PIECE, PASTED = 4.0, 3.0, 2.5, 2.0, 1.0, 0.3
# The scores of the assistant's sentences at the end of a turn, and of others.
ENDING, SAID = 2.0, 1.0
WAITING = 0.5  # of an outcome whose call has not left
MOST_SOURCES: Final = 2  # of an item, the newest
# Fading is by multiplication only, which gives the same on every platform.
_FADED: Final = [1.0]
for _ in range(600):
    _FADED.append(_FADED[-1] * 0.99)


class Found(msgspec.Struct, gc=False, eq=False):
    """A thing to carry forward, while the outline is rebuilt."""

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

    def step(self, text: str, seq: int, score: float, entry: Entry) -> None:
        """Take the text of a call with its outcome, and the entry that brought one of them."""
        self.text, self.seq, self.score = text, seq, score
        self.ids = (*self.ids, entry.id)[-MOST_SOURCES:]

    def merge(self, older: Found) -> None:
        """Take the sources of an older thing with the same text."""
        self.ids = tuple(dict.fromkeys((*older.ids, *self.ids)))[-MOST_SOURCES:]

    def see(self, entry: Entry, weight: float) -> None:
        """Count the thing again, in an entry."""
        distance = min(max(0, entry.seq - self.seq), len(_FADED) - 1)
        self.score = self.score * _FADED[distance] + weight
        self.seq = max(self.seq, entry.seq)
        others = [name for name in self.ids if name != entry.id]
        self.ids = (*others, entry.id)[-MOST_SOURCES:]


def item_of(found: Found, sources: Iterable[int], shown: bool) -> StateItem:
    """Return the item of a record; `sources` are indexes."""
    score = round(found.score, 3)
    return StateItem(
        found.section, found.key, found.text, tuple(sources), found.seq, score, shown, found.part
    )
