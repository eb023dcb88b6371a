"""The exact values that survived each compression of a log, without the texts."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from memman.explain.history import LogHistory
from memman.log import History, speaker_of
from memman.records import Compressed, Record, Replacement, ids_retracted_by
from memman.window import own_count
from memman_cli.explain.values import KeptIn, Values


class SurvivingValues(msgspec.Struct, frozen=True):
    """The values of a replacement's originals that the window kept, and where.

    `ids` are the entries that it represents, earlier replacements by their own ids. `tokens_before` are
    their tokens in the window.
    """

    item: Replacement
    ids: Sequence[str]
    tokens_before: int
    kept: dict[str, KeptIn]


class Survival(msgspec.Struct, frozen=True):
    """A compression: the number of exact values in its originals, and of those that the window kept."""

    values: int
    kept: int
    replacements: tuple[SurvivingValues, ...]


class SurvivalFold:
    """The log up to a place (`history`), and the values behind the replacements in the window."""

    def __init__(self, log: LogHistory) -> None:
        self.history = History()
        self._entries = log.entries
        self._values = Values()
        self._behind: dict[str, frozenset[str]] = {}

    def apply(self, seq: int, record: Record) -> Survival | None:
        """Take the next record of the log, and return the survival of a compression, not a retraction."""
        if isinstance(record, Compressed) and not ids_retracted_by(record):
            return self.compress(seq, record)
        self.history.apply(seq, record)
        return None

    def compress(self, seq: int, record: Compressed) -> Survival:
        """Take a compression, the next record of the log, and return its survival."""
        tokens = {item.entry.id: item.tokens for item in self.history.items}
        self.history.apply(seq, record)
        for entry in self.history.retracted_by(record.id):  # a compression may have covered it
            tokens[entry.id] = own_count(entry)
        found = list(_with_ids(record))
        values = [frozenset().union(*map(self._of, ids)) for _, ids in found]
        every = frozenset().union(*values)
        window = {value for item in self.history.items for value in self._values.of(item.entry)}
        block = self.history.state.window.state
        state = self._values.standing_in(block.state.text, every) if block is not None else set()
        kept: set[str] = set()
        survived = []
        for (item, ids), of_item in zip(found, values, strict=True):
            text = ""
            if item.entry is not None:
                text = item.entry.text
                self._behind[item.entry.id] = of_item
            places = self._values.kept(of_item, text, state, window)
            kept |= places.keys()
            spent = sum(tokens[name] for name in ids)
            survived.append(SurvivingValues(item, ids, spent, places))
        return Survival(len(every), len(kept), tuple(survived))

    def _of(self, name: str) -> frozenset[str] | list[str]:
        """Return the values of an entry, or of all originals behind a replacement."""
        if name in self._entries:
            return self._values.of(self._entries[name])
        # Forget them: another replacement has them now, and only an undo needs them again.
        known = self._behind.pop(name, None)
        if known is None:
            known = frozenset().union(*map(self._values.of, self.history.originals([name])))
        return known


def _with_ids(record: Compressed) -> list[tuple[Replacement, list[str]]]:
    """Return each replacement with the ids that it represents.

    A summary, and the outline, may represent several runs.
    """
    found: dict[str, tuple[Replacement, list[str]]] = {}
    for number, item in enumerate(sorted(record.replacements, key=lambda item: bool(item.into))):
        shared = item.method if item.method == "outline" else speaker_of(item)
        found.setdefault(shared or f"{number}", (item, []))[1].extend(item.ids)
    return list(found.values())
