"""The trail of a log: what became of every entry and of every compression.

All of it follows from the records. Nothing here is stored, and nothing can disagree with the window.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Literal

import msgspec

from memman.entries import Entry, EntryType
from memman.history import History
from memman.records import (
    Added,
    Cleared,
    Compressed,
    Cost,
    Deleted,
    Record,
    ReplacementMethod,
    Undone,
    summary_in,
)

EntryState = Literal[
    "active", "stubbed", "folded", "clipped", "summarised", "dropped", "deleted", "cleared"
]
CompressionState = Literal["in force", "folded", "undone", "unfolded", "cleared"]

_STATES: dict[ReplacementMethod, EntryState] = {
    "summary": "summarised",
    "digest": "summarised",
    "stub": "stubbed",
    "fold": "folded",
    "clip": "clipped",
    "drop": "dropped",
}


class EntryFate(msgspec.Struct, frozen=True, kw_only=True):
    """What became of an added entry, and where its content is now.

    `state` is by what stands for it in the window: a stub that was summarised later makes its original
    "summarised". `compression_id` is the compression that took the entry itself out of the window.
    `shown_by` and `shown_at` are the id and the place in the log of the window's entry that shows it or
    speaks for it: its own while it is active, None where nothing does. `undone` has the compressions that
    had replaced it and were taken back. `retrievable` says whether `get_entry` still gives the original.
    """

    entry_id: str
    seq: int
    type: EntryType
    tokens: int
    state: EntryState
    pinned: bool = False
    compression_id: str | None = None
    shown_by: str | None = None
    shown_at: int | None = None
    undone: tuple[str, ...] = ()
    retrievable: bool = True


class CompressionFate(msgspec.Struct, frozen=True, kw_only=True):
    """What a compression did, and whether it still holds.

    `replaced` counts what left the window by method, earlier summaries and stubs among it. `state` is
    "folded" when later compressions (`folded_into`) replaced what it had put into the window, "unfolded"
    when a deletion took it apart. `seq` is its place in the log, and that of every entry it made.
    """

    compression_id: str
    seq: int
    at: datetime
    state: CompressionState
    reason: str
    tokens_before: int
    tokens_after: int
    replaced: dict[ReplacementMethod, int]
    summary_id: str | None
    folded_into: tuple[str, ...]
    cost: Cost


class Trail:
    """The records of a log, or of its newest era, read once."""

    def __init__(self, log: Sequence[tuple[int, Record]]) -> None:
        self.log = log
        self.history = History()
        self.entries: dict[str, Entry] = {}  # every added one, deleted or cleared away too
        self.compressions: dict[str, tuple[int, Compressed]] = {}  # every one, in log order
        self.deleted: set[str] = set()
        self._ended: dict[str, CompressionState] = {}
        self._undone: dict[str, list[str]] = {}
        for seq, record in log:
            self._take(seq, record)

    def _take(self, seq: int, record: Record) -> None:
        in_force = self.history.compressions
        before = list(in_force) if isinstance(record, Deleted | Cleared) else []
        self.history.apply(seq, record)
        match record:
            case Added(entry):
                self.entries[entry.id] = msgspec.structs.replace(entry, seq=seq)
            case Compressed():
                self.compressions[record.id] = seq, record
            case Undone():
                self._take_back(record.compression_id)
            case Deleted():
                self.deleted.update(record.ids)
                self._ended |= dict.fromkeys([n for n in before if n not in in_force], "unfolded")
            case Cleared():
                self._ended |= dict.fromkeys(before, "cleared")

    def _take_back(self, compression_id: str) -> None:
        self._ended[compression_id] = "undone"
        for item in self.compressions[compression_id][1].replacements:
            for name in item.ids:
                self._undone.setdefault(name, []).append(compression_id)

    def until(self, seq: int) -> Iterator[tuple[int, Record]]:
        """The records before a place in the log."""
        return ((place, record) for place, record in self.log if place < seq)

    def entry_fates(self) -> dict[str, EntryFate]:
        """What became of every added entry, by id, in log order."""
        shown = self.history.shown()
        slots = {slot.entry.id: slot for slot in self.history.slots}
        places = {name: slot.entry.seq for name, slot in slots.items()}
        fates: dict[str, EntryFate] = {}
        for name, entry in self.entries.items():
            state, shower = self._standing(name, shown)
            fates[name] = EntryFate(
                entry_id=name,
                seq=entry.seq,
                type=entry.type,
                tokens=entry.token_count.tokens,
                state=state,
                pinned=name in slots and slots[name].pinned,
                compression_id=self.history.hider(name),
                shown_by=shower,
                shown_at=places.get(shower or ""),
                undone=tuple(self._undone.get(name, ())),
                retrievable=name not in self.deleted,
            )
        return fates

    def _standing(
        self, name: str, shown: dict[str, tuple[ReplacementMethod, str | None]]
    ) -> tuple[EntryState, str | None]:
        if name in self.deleted:
            return "deleted", None
        if name not in self.history.added:
            return "cleared", None
        if name not in shown:
            return "active", name
        method, speaker = shown[name]
        return _STATES[method], speaker

    def compression_fates(self) -> tuple[CompressionFate, ...]:
        """What became of every compression, in log order."""
        return tuple(
            CompressionFate(
                compression_id=name,
                seq=seq,
                at=record.at,
                state=self.state_of(name),
                reason=record.reason,
                tokens_before=record.tokens_before,
                tokens_after=record.tokens_after,
                replaced=_replaced(record),
                summary_id=summary_in(record.replacements),
                folded_into=() if name in self._ended else self.history.folded_into(name),
                cost=record.cost,
            )
            for name, (seq, record) in self.compressions.items()
        )

    def state_of(self, compression_id: str) -> CompressionState:
        """Whether a compression of the log still holds."""
        if compression_id in self._ended:
            return self._ended[compression_id]
        return "folded" if self.history.folded_into(compression_id) else "in force"


def _replaced(record: Compressed) -> dict[ReplacementMethod, int]:
    counts: dict[ReplacementMethod, int] = {}
    for item in record.replacements:
        counts[item.method] = counts.get(item.method, 0) + len(item.ids)
    return counts
