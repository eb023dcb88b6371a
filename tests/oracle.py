"""A second implementation of the fold, to compare memman with. It shares no code with `memman.log`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from memman.entries import Entry
from memman.records import (
    SHAPES,
    Added,
    Cleared,
    Compressed,
    Deleted,
    Described,
    Pinned,
    Record,
    StateSetter,
    Undone,
)


class Oracle:
    """The fold of a log. Raise `AssertionError` for an invalid record."""

    def __init__(self) -> None:
        self.head = 0
        self.epoch = 0
        self.positions: dict[str, int] = {}
        self.active: set[str] = set()
        self.outline = ""  # the id of the outline; "" without one
        self.pins: set[str] = set()
        self.types: dict[str, str] = {}
        self.era: list[str] = []
        self.deleted: set[str] = set()
        self.first: Entry | None = None  # the first user message of the era that is still there
        self.metadata: dict[str, Any] = {}
        self.compressions: dict[str, Compressed] = {}
        # Retraction -> (position, type, pinned) of each entry that its undo restores.
        self.retractions: dict[str, dict[str, tuple[int, str, bool]]] = {}

    @classmethod
    def of(cls, log: Iterable[tuple[int, Record]]) -> Oracle:
        oracle = cls()
        for seq, record in log:
            oracle.apply(seq, record)
            oracle.describe(record)
        return oracle

    def window(self) -> list[str]:
        return sorted(self.active, key=lambda name: self.positions[name])

    def besides_outline(self, shown: Iterable[Entry]) -> list[str]:
        """Return the ids of the entries that a window shows, without its outline, which it must have."""
        ids = [entry.id for entry in shown]
        if self.outline:
            assert ids.count(self.outline) == 1, "the outline is not shown once"
            ids.remove(self.outline)
        return ids

    def leaves(self, name: str) -> list[str]:
        """Return the added entries that an active entry represents."""
        for record in self.compressions.values():
            runs = [
                item
                for item in record.replacements
                if (item.entry.id if item.entry else item.into) == name
            ]
            if runs:
                return [leaf for item in runs for each in item.ids for leaf in self.leaves(each)]
        return [name]

    def dropped(self) -> set[str]:
        """Return the added entries that compressions in force dropped."""
        return self._without_entry("drop")

    def outlined(self) -> set[str]:
        """Return the added entries that compressions in force left to the outline alone."""
        return self._without_entry("outline")

    def _without_entry(self, method: str) -> set[str]:
        return {
            leaf
            for record in self.compressions.values()
            for item in record.replacements
            if item.method == method and item.entry is None and item.into is None
            for name in item.ids
            for leaf in self.leaves(name)
        }

    def assert_represented_once(self) -> None:
        """Assert that one active entry represents each one of the era that was not dropped or outlined."""
        leaves = [leaf for name in self.window() for leaf in self.leaves(name)]
        assert len(leaves) == len(set(leaves)), "an entry is represented twice"
        dropped, outlined = self.dropped(), self.outlined()
        assert {*leaves, *dropped, *outlined} == set(self.era), "an entry is lost or too many"
        assert not set(leaves) & (dropped | outlined)
        assert not dropped & outlined

    def shows(self, name: str) -> bool:
        """Return whether an entry or a single replacement of its type is active."""
        replacements = [each for each in self.active if self.leaves(each) == [name]]
        return any(self.types[each] == self.types[name] for each in replacements)

    def apply(self, seq: int, record: Record) -> None:
        assert seq == self.head + 1, f"{seq} follows {self.head}: a gap in the log"
        self.head = seq
        self.epoch += isinstance(record, SHAPES)
        if isinstance(record, StateSetter):
            state = record.state
            self.outline = state.compression_id if state is not None and state.text else ""
        match record:
            case Added(entry):
                self._add(entry.id, seq, entry.type)
                self.era.append(entry.id)
                if entry.pinned:
                    self.pins.add(entry.id)
            case Compressed() if any(item.method == "retract" for item in record.replacements):
                self._retract(record)
            case Compressed():
                self._compress(record)
            case Undone() if record.compression_id in self.retractions:
                self._restore(record)
            case Undone():
                assert record.compression_id in self.compressions, "undone, but not in force"
                self._unfold(record.compression_id)
            case Pinned():
                assert record.entry_id in self.active, "pinned, but not active"
                (self.pins.add if record.on else self.pins.discard)(record.entry_id)
            case Deleted():
                for name in record.ids:
                    self._delete(name)
            case Cleared():
                self.active.clear()
                self.outline = ""
                self.pins.clear()
                self.compressions.clear()
                self.retractions.clear()
                for name in self.era:  # their ids are free again
                    del self.positions[name]
                self.era.clear()

    def describe(self, record: Record) -> None:
        """Take what the list of sessions shows of a record."""
        match record:
            case Added(entry) if entry.role == "user" and self.first is None:
                self.first = entry
            case Described():
                self.metadata = record.metadata
            case Cleared():
                self.first = None
            case Deleted() | Compressed() if self.first and self.first.id not in self.era:
                self.first = None

    def _add(self, name: str, position: int, kind: str) -> None:
        assert name not in self.positions, f"the id {name} is in the log twice"
        self.positions[name] = position
        self.types[name] = kind
        self.active.add(name)

    def _compress(self, record: Compressed) -> None:
        for item in record.replacements:
            window = self.window()
            at = window.index(item.ids[0]) if item.ids[0] in window else -1
            run = window[at : at + len(item.ids)]
            assert at >= 0, f"{item.ids[0]} is replaced and not active"
            assert run == list(item.ids), "the run is not contiguous"
            assert self.pins.isdisjoint(run), "a pinned entry is replaced"
            self.active.difference_update(run)
            if item.entry is not None:
                self._add(item.entry.id, self.positions[run[0]], item.entry.type)
        self.compressions[record.id] = record

    def _retract(self, record: Compressed) -> None:
        before = set(self.compressions)
        kept = {}
        for name in [name for item in record.replacements for name in item.ids]:
            assert name in self.era, "retracted, but no entry of the era"
            self._uncover(name)
            self.era.remove(name)
            self.active.remove(name)
            kept[name] = self.positions.pop(name), self.types[name], name in self.pins
            self.pins.discard(name)
        assert before - set(self.compressions) == set(record.unfolds)
        self.retractions[record.id] = kept

    def _restore(self, record: Undone) -> None:
        kept = self.retractions.pop(record.compression_id)
        assert set(record.restored) == set(kept)
        for name, (position, kind, pinned) in kept.items():
            self._add(name, position, kind)
            self.era.append(name)
            if pinned:
                self.pins.add(name)
        self.era.sort(key=self.positions.__getitem__)

    def retracted(self) -> set[str]:
        """Return the retracted entries whose ids are not in use."""
        return {name for kept in self.retractions.values() for name in kept} - set(self.era)

    def restorable(self, retraction: str) -> bool:
        """Return whether the undo of a retraction is possible: no id of it was used again."""
        kept = self.retractions[retraction]
        newest = {name: each for each, names in self.retractions.items() for name in names}
        return bool(kept) and all(
            newest[name] == retraction and name not in self.era for name in kept
        )

    def _unfold(self, compression_id: str) -> None:
        for item in self.compressions.pop(compression_id).replacements:
            if item.entry is not None:
                assert item.entry.id in self.active, "undone from the inside out"
                assert item.entry.id not in self.pins or item.entry.id in self.deleted
                self.active.discard(item.entry.id)
            self.active.update(name for name in item.ids if name not in self.deleted)

    def _delete(self, name: str) -> None:
        self._uncover(name)
        self.active.discard(name)
        self.pins.discard(name)
        self.deleted.add(name)
        self.positions.setdefault(name, 0)  # its id is never free again
        for kept in self.retractions.values():
            kept.pop(name, None)
        if name in self.era:
            self.era.remove(name)

    def _uncover(self, name: str) -> None:
        while name not in self.active and (outer := self._outermost(name)):
            for item in self.compressions[outer].replacements:
                self.pins.discard(item.entry.id if item.entry else "")
            self._unfold(outer)

    def _outermost(self, name: str) -> str | None:
        """Return the compression that hides `name` and is not itself hidden."""
        for record in self.compressions.values():
            if any(name in item.ids for item in record.replacements):
                shown = [item.entry.id for item in record.replacements if item.entry]
                hidden = [each for each in shown if each not in self.active]
                return self._outermost(hidden[0]) if hidden else record.id
        return None
