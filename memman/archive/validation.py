"""What makes a record from elsewhere sound, whether it came in a document or in an archive."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import msgspec

from memman.config import MemoryConfig, readable
from memman.entries import MOST_TOKENS, Entry, TokenCount, check_id, check_new_entry, decode_json
from memman.errors import InvalidInput
from memman.ids import check_nonce
from memman.log import History
from memman.protocols import StoredItem
from memman.records import (
    SHAPES,
    Added,
    Compressed,
    Configured,
    Deleted,
    Opened,
    Record,
    SettingsInEffect,
    UsageReported,
)
from memman.summary_metadata import covered_by


class Recount(Protocol):
    """What counts an entry again: a meter."""

    fingerprint: str

    def count_entry(self, entry: Entry) -> TokenCount: ...


class LogChecker:
    """Checks that each record of a log can follow those before it, by folding them."""

    def __init__(self) -> None:
        self.history = History()
        self.floor = 0  # the place of the last record that changed the window's shape
        self._ids: set[str] = set()  # that never come again; those of the era's entries may

    def take(self, seq: int, record: Record) -> None:
        """Take the next record. Raises `Refused`, `EntryNotFound` or `InvalidInput` if it cannot follow."""
        self._take_ids(record)
        if isinstance(record, Configured):
            MemoryConfig().updated(readable(self.history.totals.settings | record.changes))
        self.history.apply(seq, record)
        if isinstance(record, SHAPES):
            self.floor = seq

    def with_losses(self, record: Record) -> Record:
        """Return the next record; a deletion with the entries and tokens that the era loses by it."""
        if not isinstance(record, Deleted):
            return record
        entries, tokens = self.history.lost(record.ids)
        return msgspec.structs.replace(record, entries=entries, tokens=tokens)

    def window(self) -> list[StoredItem]:
        """Return the window up to `floor`, for a commit of the whole log: 0 is its first record."""
        return [
            StoredItem(1 - item.entry.seq, item.index, item.position, item.pinned)
            for item in self.history.items
            if item.position <= self.floor
        ]

    def _take_ids(self, record: Record) -> None:
        for entry_id in ids_of(record):
            if entry_id in self._ids or entry_id in self.history.added:
                raise InvalidInput(f"the id {entry_id!r} was there before")
            if not isinstance(record, Added):
                self._ids.add(entry_id)
        if isinstance(record, Deleted):
            self._ids.update(record.ids)


def check_record(record: Record) -> None:
    """Refuses a record that no verb would have written, as far as it can be told without the others.

    Raises `InvalidInput`.
    """
    if record.at.tzinfo is None:
        raise InvalidInput(f"the time {record.at} has no zone")
    if isinstance(record, Added):
        check_id(record.id, "the entry's id")
        _check_entry(record.entry)
    elif isinstance(record, Opened):
        check_nonce(record.nonce)
        _check_observed(record.settings)
    elif isinstance(record, Compressed):
        for entry in entries_of(record):
            _check_entry(entry)
        _check_speakers(record)
        cost = record.cost
        _check_tokens(record.tokens_before, record.tokens_after, cost.calls)
        _check_tokens(cost.input_tokens, cost.output_tokens)
        _check_observed(record.settings)
    elif isinstance(record, UsageReported):
        _check_tokens(record.input_tokens, record.output_tokens, record.cached_tokens)
        _check_tokens(record.estimated, record.counted)


def ids_of(record: Record) -> list[str]:
    """The ids that a record takes: its own, and those of its replacements."""
    ids = [record.id]
    if isinstance(record, Compressed):
        ids += [item.entry.id for item in record.replacements if item.entry is not None]
    return ids


def entries_of(record: Record) -> list[Entry]:
    """The entries that a record brings."""
    if isinstance(record, Added):
        return [record.entry]
    if isinstance(record, Compressed):
        return [item.entry for item in record.replacements if item.entry is not None]
    return []


def with_entries(records: Sequence[Record], change: Callable[[Entry], Entry]) -> tuple[Record, ...]:
    """The records with every entry in them changed."""
    return tuple(with_entry(record, change) for record in records)


def with_entry(record: Record, change: Callable[[Entry], Entry]) -> Record:
    """The record with every entry in it changed."""
    if isinstance(record, Added):
        return Added(change(record.entry))
    if isinstance(record, Compressed):
        items = tuple(
            msgspec.structs.replace(item, entry=change(item.entry)) if item.entry else item
            for item in record.replacements
        )
        return msgspec.structs.replace(record, replacements=items)
    return record


def verified(entry: Entry, meter: Recount) -> Entry:
    """The entry with its count, or a true one. A bound from above (a stub's) may be somewhat high."""
    said = entry.token_count
    if said.counter not in (meter.fingerprint, ""):
        return entry
    true = meter.count_entry(entry)
    bound = said.accuracy == "medium" and true.tokens <= said.tokens <= 2 * true.tokens + 16
    if said.tokens == true.tokens or bound:
        return entry
    return msgspec.structs.replace(entry, token_count=true)


def _check_entry(entry: Entry) -> None:
    """Refuses an entry that would not have been accepted by `add`, or that no rendering can read."""
    check_new_entry(entry)
    _check_tokens(entry.token_count.tokens)
    if not len(memoryview(entry.metadata_json)):
        return
    try:
        metadata = decode_json(entry.metadata_json)
    except (msgspec.MsgspecError, RecursionError, UnicodeError) as error:
        raise InvalidInput(f"the metadata of {entry.id!r} cannot be read: {error}") from None
    if not isinstance(metadata, dict):
        raise InvalidInput(f"the entry {entry.id!r} has metadata that is no object")
    if entry.type == "summary":
        try:
            covered_by(entry)
        except msgspec.MsgspecError as error:
            what = f"{entry.id!r} is a summary whose metadata does not say what it covers: {error}"
            raise InvalidInput(what) from None


def _check_tokens(*numbers: int) -> None:
    for number in numbers:
        if not 0 <= number <= MOST_TOKENS:
            raise InvalidInput(f"{number} is no number of tokens; it must be in 0 .. {MOST_TOKENS}")


def _check_observed(settings: SettingsInEffect) -> None:
    limits = (settings.max_tokens, settings.max_entries, settings.target_tokens)
    _check_tokens(*[limit for limit in limits if limit is not None])


def _check_speakers(record: Compressed) -> None:
    """Refuses a run that names what speaks for it, where that is not of the same compression."""
    made = ids_of(record)[1:]
    for item in record.replacements:
        if item.into is not None and (item.entry is not None or item.into not in made):
            raise InvalidInput(f"a run names {item.into!r}, which this compression did not make")
