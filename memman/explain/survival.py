"""What came through every compression of a log, for who shows them all: no texts, and the log read once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from memman.explain.comparison import with_pieces
from memman.explain.history import LogHistory
from memman.explain.values import KeptIn, Values
from memman.log import History
from memman.records import Compressed, Replacement


class SurvivingValues(msgspec.Struct, frozen=True):
    """Of a replacement's originals the values that the window kept, and where. `ids` is all that it stands
    for, earlier replacements by their own ids; `tokens_before` is what these cost in the window.
    """

    item: Replacement
    ids: Sequence[str]
    tokens_before: int
    kept: dict[str, KeptIn]


class Survival(msgspec.Struct, frozen=True):
    """A compression: `values` is how many different exact values its originals have, `kept` how many of
    them the window had once it was done. The same figures as those of `compare`.
    """

    values: int
    kept: int
    replacements: tuple[SurvivingValues, ...]


def survivals(log: LogHistory) -> Iterator[Survival]:
    """Every compression of the log, in log order."""
    reading = _Reading(log)
    for seq, record in log.records:
        if isinstance(record, Compressed):
            yield reading.compressed(seq, record)
        else:
            reading.history.apply(seq, record)


class _Reading:
    """The log as far as it was read, and the values behind the replacements in the window."""

    def __init__(self, log: LogHistory) -> None:
        self.history = History()
        self._entries = log.entries
        self._values = Values()
        self._behind: dict[str, frozenset[str]] = {}

    def compressed(self, seq: int, record: Compressed) -> Survival:
        """Takes a compression that is the next record of the log."""
        tokens = {item.entry.id: item.tokens for item in self.history.items}
        self.history.apply(seq, record)
        window = self._values.shown_in(item.entry for item in self.history.items)
        every: set[str] = set()
        kept: set[str] = set()
        survived = []
        for item, ids in with_pieces(record):
            values = frozenset().union(*[self._of(name) for name in ids])
            text = ""
            if item.entry is not None:
                text = item.entry.text
                self._behind[item.entry.id] = values
            found = self._values.kept(values, text, window)
            every |= values
            kept |= found.keys()
            spent = sum(tokens[name] for name in ids)
            survived.append(SurvivingValues(item, ids, spent, found))
        return Survival(len(every), len(kept), tuple(survived))

    def _of(self, name: str) -> frozenset[str] | list[str]:
        """The values of an entry, or of all originals behind a replacement."""
        if name in self._entries:
            return self._values.of(self._entries[name])
        # Let go of: what is behind it is behind another now, and is asked for again only after an undo.
        known = self._behind.pop(name, None)
        if known is None:
            known = frozenset().union(*map(self._values.of, self.history.originals([name])))
        return known
