"""The trail of a log: what became of every entry and of every compression.

All of it follows from the records. Nothing here is stored, and nothing can disagree with the window.
"""

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
    summary_in,
)

EntryState = Literal[
    "active", "stubbed", "folded", "clipped", "summarised", "dropped", "deleted", "cleared"
]
_NEVER = 1 << 62  # a place behind every log
CompressionState = Literal["in force", "folded", "undone", "unfolded", "cleared"]

_STATES: dict[ReplacementMethod, EntryState] = {
    "summary": "summarised",
    "digest": "summarised",
    "stub": "stubbed",
    "fold": "folded",
    "clip": "clipped",
    "drop": "dropped",
}


class EntryStatus(msgspec.Struct, frozen=True, kw_only=True):
    """What became of an added entry, and where its content is now.

    `state` is by what stands for it in the window: a stub that was summarised later makes its original
    "summarised". `compression_id` is the compression that took the entry itself out of the window.
    `shown_by`, `shown_at` and `shown_address` are the id, the place in the log and the address of the
    window's entry that shows it or speaks for it: its own while it is active, None where nothing does.
    `undone` has the compressions that had replaced it and were taken back. `retrievable` says whether
    `get_entry` still gives the original.
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


class Sent(msgspec.Struct, frozen=True, kw_only=True):
    """How often the model has had an entry word for word, as far as the log tells.

    A request is an answer of the model in the log. `requests` came after the entry, and in `sent` of them,
    the last one at `last_at`, it stood in the window; `requests_since` came after it last left. What a
    context was cut to as it was built is in no log, and not counted.
    """

    requests: int
    sent: int
    requests_since: int = 0
    last_at: datetime | None = None


class LogHistory:
    """The records of a log, or of its newest era, read once."""

    def __init__(self, log: Sequence[tuple[int, Record]]) -> None:
        self.log = log
        self.history = History()
        self.entries: dict[str, Entry] = {}  # every added one, deleted or cleared away too
        self.compressions: dict[str, tuple[int, Compressed]] = {}  # every one, in log order
        self.deleted: set[str] = set()
        self._ended: dict[str, CompressionState] = {}
        self._undone: dict[str, list[str]] = {}
        self._answers: list[Entry] = []  # the first entry of each
        self._answering = False
        self._answered: set[str] = set()  # the message ids of these
        # Of each entry: where it came into the window again, or went out of it.
        self._moves: dict[str, list[tuple[int, bool]]] = {}
        for seq, record in log:
            self._take(seq, record)

    def _take(self, seq: int, record: Record) -> None:
        in_force = self.history.compressions
        before = list(in_force) if isinstance(record, Deleted | Cleared) else []
        self.history.apply(seq, record)
        match record:
            case Added(entry):
                self._add(msgspec.structs.replace(entry, seq=seq))
            case Compressed():
                self.compressions[record.id] = seq, record
                self._move(seq, _names(record), False)
            case Undone():
                self._take_back(seq, record.compression_id)
            case Deleted():
                unfolded = [name for name in before if name not in in_force]
                for name in unfolded:
                    self._move(seq, _names(self.compressions[name][1]), True)
                self._move(seq, record.ids, False)
                self.deleted.update(record.ids)
                self._ended |= dict.fromkeys(unfolded, "unfolded")
            case Cleared():
                self._move(seq, self.entries, False)
                self._ended |= dict.fromkeys(before, "cleared")

    def _add(self, entry: Entry) -> None:
        self.entries[entry.id] = entry
        by_model = entry.role == "assistant"
        if by_model and not self._answering and entry.message_id not in self._answered:
            self._answers.append(entry)
        if by_model and entry.message_id is not None:
            self._answered.add(entry.message_id)
        self._answering = by_model

    def _move(self, seq: int, names: Iterable[str], into: bool) -> None:
        for name in names:
            if name in self.entries:
                self._moves.setdefault(name, []).append((seq, into))

    def _take_back(self, seq: int, compression_id: str) -> None:
        self._ended[compression_id] = "undone"
        for name in _names(self.compressions[compression_id][1]):
            self._undone.setdefault(name, []).append(compression_id)
            self._move(seq, (name,), True)

    def sent(self, entry: Entry) -> Sent:
        """How often the model has had an entry of this log."""
        after = bisect_right(self._answers, entry.seq, key=_place)
        requests = len(self._answers) - after
        moves = [(entry.seq, True), *self._moves.get(entry.id, ())]
        times, last = 0, None
        for (begin, inside), (end, _) in pairwise([*moves, (_NEVER, False)]):
            first = bisect_right(self._answers, begin, key=_place)
            behind = bisect_right(self._answers, end, key=_place)
            if inside and behind > first:
                times += behind - first
                last = self._answers[behind - 1].timestamp
        left_at, inside = moves[-1]
        gone = len(self._answers) - bisect_right(self._answers, left_at, key=_place)
        return Sent(
            requests=requests, sent=times, requests_since=0 if inside else gone, last_at=last
        )

    def until(self, seq: int) -> Iterator[tuple[int, Record]]:
        """The records before a place in the log."""
        return ((place, record) for place, record in self.log if place < seq)

    def entry_statuses(self) -> dict[str, EntryStatus]:
        """What became of every added entry, by id, in log order."""
        shown = self.history.shown()
        slots = {slot.entry.id: slot for slot in self.history.items}
        statuses: dict[str, EntryStatus] = {}
        for name, entry in self.entries.items():
            state, shower = self._standing(name, shown)
            shower_slot = slots.get(shower or "")
            statuses[name] = EntryStatus(
                entry_id=name,
                seq=entry.seq,
                type=entry.type,
                tokens=entry.token_count.tokens,
                state=state,
                pinned=name in slots and slots[name].pinned,
                compression_id=self.history.hider(name),
                shown_by=shower,
                shown_at=shower_slot.entry.seq if shower_slot else None,
                shown_address=shower_slot.entry.address if shower_slot else None,
                undone=tuple(self._undone.get(name, ())),
                retrievable=name not in self.deleted,
            )
        return statuses

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

    def compression_statuses(self) -> tuple[CompressionStatus, ...]:
        """What became of every compression, in log order."""
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


def _place(entry: Entry) -> int:
    return entry.seq


def _names(record: Compressed) -> Iterator[str]:
    """What a compression took out of the window."""
    return (name for item in record.replacements for name in item.ids)


def _replaced(record: Compressed) -> dict[ReplacementMethod, int]:
    counts: dict[ReplacementMethod, int] = {}
    for item in record.replacements:
        counts[item.method] = counts.get(item.method, 0) + len(item.ids)
    return counts
