"""What became of every entry and of every compression of a log, derived from its records."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from itertools import pairwise
from typing import Literal

import msgspec

from memman.entries import Entry, EntryType
from memman.log import History
from memman.records import (
    Added,
    Cleared,
    Compressed,
    Cost,
    Deleted,
    Record,
    ReplacementMethod,
    Undone,
    ids_moved_by,
    summary_in,
)
from memman.results import EntryState

_AFTER_ALL = 1 << 62  # greater than any seq
CompressionState = Literal["in force", "folded", "undone", "unfolded", "cleared"]

STATES: dict[ReplacementMethod, EntryState] = {
    "summary": "summarised",
    "outline": "summarised",
    "stub": "stubbed",
    "fold": "folded",
    "clip": "clipped",
    "drop": "dropped",
    "retract": "retracted",
}


class EntryStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The state of an added entry, and where its content is now.

    `state` follows the entry that represents it in the window: a stub that was summarised later makes its
    original "summarised". `compression_id` is the compression that took the entry out of the window.
    `shown_by`, `shown_at` and `shown_address` are the id, the place in the log and the address of the entry
    that represents it: itself while it is active, None if there is none. `undone` lists the undone
    compressions that had replaced it. `retrievable` is true if `get_entry` still returns the original.
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
    shown_address: str | None = None
    undone: tuple[str, ...] = ()
    retrievable: bool = True


class CompressionStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The effect of a compression, and its state.

    `replaced` counts the replaced entries by method, including earlier summaries and stubs. `state` is
    "folded" if later compressions (`folded_into`) replaced its entries, and "unfolded" if a deletion
    or a retraction dissolved it. `seq` is its place in the log, and that of every entry it made. `values`
    counts the exact values in the entries that left the window, `values_kept` those that it still showed;
    0 without an outline.
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
    values: int = 0
    values_kept: int = 0


class Sent(msgspec.Struct, frozen=True, kw_only=True):
    """How often the model received an entry word for word, as far as the log shows.

    Each answer of the model in the log counts as a request. `requests` came after the entry. In `sent` of
    them, the last one at `last_at`, the entry was in the window. `requests_since` came after it last left.
    Entries trimmed from a context are not in the log and not considered.
    """

    requests: int
    sent: int
    requests_since: int = 0
    last_at: datetime | None = None


class LogHistory:
    """The records of a log, or of its newest era, and what became of its entries and compressions."""

    def __init__(self, records: Sequence[tuple[int, Record]]) -> None:
        self.records = records
        self.history = History()
        self.entries: dict[str, Entry] = {}  # every added one, also deleted and cleared ones
        self.compressions: dict[str, tuple[int, Compressed]] = {}  # every one, in log order
        self.deleted: set[str] = set()
        self._ended: dict[str, CompressionState] = {}
        self._undone: dict[str, list[str]] = {}  # entry -> the undone compressions that replaced it
        self._answers: list[Entry] = []  # the first entry of each
        self._answering = False
        self._answered: set[str] = set()  # their message ids
        # Where each entry came into the window again, or left it.
        self._moves: dict[str, list[tuple[int, bool]]] = {}
        for seq, record in records:
            self._take(seq, record)

    def _take(self, seq: int, record: Record) -> None:
        in_force = list(self.history.compressions) if isinstance(record, Cleared) else []
        for name in self.history.unfolded_by(record):
            # Of a retraction, the entries that were not deleted since.
            restored = record.restored if isinstance(record, Undone) else ()
            ids = restored or ids_moved_by(self.compressions[name][1])
            self._move(seq, ids, True)
            self._ended[name] = "undone" if isinstance(record, Undone) else "unfolded"
            if isinstance(record, Undone):
                for entry_id in ids:
                    self._undone.setdefault(entry_id, []).append(name)
        self.history.apply(seq, record)
        match record:
            case Added():
                self._add(self.history.items[-1].entry)
            case Compressed():
                self.compressions[record.id] = seq, record
                self._move(seq, ids_moved_by(record), False)
            case Deleted():
                self._move(seq, record.ids, False)
                self.deleted.update(record.ids)
            case Cleared():
                self._move(seq, self.entries, False)
                self._ended |= dict.fromkeys(in_force, "cleared")

    def _add(self, entry: Entry) -> None:
        # An earlier entry with this id was retracted, or cleared away.
        for known in (self.entries, self._moves, self._undone):
            known.pop(entry.id, None)
        self.entries[entry.id] = entry
        by_model = entry.role == "assistant"
        if by_model and not self._answering and entry.message_id not in self._answered:
            self._answers.append(entry)
        if by_model and entry.message_id is not None:
            self._answered.add(entry.message_id)
        self._answering = by_model

    def _move(self, seq: int, ids: Iterable[str], into: bool) -> None:
        for entry_id in ids:
            if entry_id in self.entries:
                self._moves.setdefault(entry_id, []).append((seq, into))

    def sent(self, entry: Entry) -> Sent:
        """Return how often the model received an entry of this log."""
        moves = [(entry.seq, True), *self._moves.get(entry.id, ())]
        times, last = 0, None
        for (begin, inside), (end, _) in pairwise([*moves, (_AFTER_ALL, False)]):
            answers = self._answers[self._answers_until(begin) : self._answers_until(end)]
            if inside and answers:
                times += len(answers)
                last = answers[-1].timestamp
        left_at, inside = moves[-1]
        total = len(self._answers)
        return Sent(
            requests=total - self._answers_until(entry.seq),
            sent=times,
            requests_since=0 if inside else total - self._answers_until(left_at),
            last_at=last,
        )

    def _answers_until(self, seq: int) -> int:
        return bisect_right(self._answers, seq, key=lambda entry: entry.seq)

    def before(self, seq: int) -> Iterator[tuple[int, Record]]:
        """Return the records before a place in the log."""
        return ((place, record) for place, record in self.records if place < seq)

    def entry_statuses(self) -> dict[str, EntryStatus]:
        """Return the status of every added entry by id, in log order."""
        shown = self.history.shown()
        window = self.history.state.window
        statuses: dict[str, EntryStatus] = {}
        for name, entry in self.entries.items():
            state, shown_by = self._state_of_entry(name, shown)
            own, visible = window.find(name), window.shown(shown_by or "")
            statuses[name] = EntryStatus(
                entry_id=name,
                seq=entry.seq,
                type=entry.type,
                tokens=entry.token_count.tokens,
                state=state,
                pinned=own is not None and own.pinned,
                compression_id=self.history.hider(name),
                shown_by=shown_by,
                shown_at=visible.entry.seq if visible else None,
                shown_address=visible.entry.address if visible else None,
                undone=tuple(self._undone.get(name, ())),
                retrievable=name not in self.deleted,
            )
        return statuses

    def _state_of_entry(
        self, name: str, shown: dict[str, tuple[ReplacementMethod, str | None]]
    ) -> tuple[EntryState, str | None]:
        if name in self.deleted:
            return "deleted", None
        if name in shown:
            method, shown_by = shown[name]
            return STATES[method], shown_by
        return ("active", name) if name in self.history.added else ("cleared", None)

    def compression_statuses(self) -> tuple[CompressionStatus, ...]:
        """Return the status of every compression, in log order."""
        return tuple(
            CompressionStatus(
                compression_id=name,
                seq=seq,
                at=record.at,
                state=self.state_of(name),
                reason=record.reason,
                tokens_before=record.tokens_before,
                tokens_after=record.tokens_after,
                replaced=_replaced(record),
                summary_id=summary_in(record.replacements, record.state),
                folded_into=() if name in self._ended else self.history.folded_into(name),
                cost=record.cost,
                values=record.state.values if record.state else 0,
                values_kept=record.state.kept if record.state else 0,
            )
            for name, (seq, record) in self.compressions.items()
        )

    def state_of(self, compression_id: str) -> CompressionState:
        """Return whether a compression of the log is in force, or how it ended."""
        if compression_id in self._ended:
            return self._ended[compression_id]
        return "folded" if self.history.folded_into(compression_id) else "in force"


def _replaced(record: Compressed) -> dict[ReplacementMethod, int]:
    counts: dict[ReplacementMethod, int] = {}
    for item in record.replacements:
        counts[item.method] = counts.get(item.method, 0) + len(item.ids)
    return counts
