"""Validation of the records of a document or an archive."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import msgspec

from memman.config import MemoryConfig, readable
from memman.display import safe_repr
from memman.entries import MOST_TOKENS, Entry, TokenCount, check_id, check_new_entry, fault_in_json
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
    Described,
    Opened,
    Record,
    SettingsInEffect,
    StateSetter,
    UsageReported,
    ids_made_by,
    with_replacements,
)
from memman.spend import MOST_DOLLARS
from memman.state import MESSAGES, State, is_section, state_text
from memman.summary_metadata import covered_by
from memman.window import state_entry


class Recount(Protocol):
    """A counter that can count an entry again."""

    fingerprint: str

    def count_entry(self, entry: Entry) -> TokenCount: ...


class FoldedLog:
    """The fold of a log that is to be committed as a whole."""

    def __init__(self) -> None:
        self.history = History()
        self.floor = 0  # the place of the last record that changed the window's shape

    def take(self, seq: int, record: Record) -> None:
        """Take the next record. Raises `Refused`, `EntryNotFound` or `InvalidInput` if it cannot follow."""
        self.history.apply(seq, record)
        if isinstance(record, SHAPES):
            self.floor = seq

    def window(self) -> list[StoredItem]:
        """Return the window up to `floor`, for a commit of the whole log: 0 is its first record."""
        return [
            StoredItem(1 - item.entry.seq, item.index, item.position, item.pinned)
            for item in self.history.state.window.stored_items
            if item.position <= self.floor
        ]


class LogChecker(FoldedLog):
    """Checks that each record of a log can follow those before it, by folding them."""

    def __init__(self) -> None:
        super().__init__()
        self._ids: set[str] = set()  # ids that may not come again, also after a clear

    def take(self, seq: int, record: Record) -> None:
        """Check and take the next record; raises as `FoldedLog.take`, and for settings or a repeated id."""
        for entry_id in ids_made_by(record):
            if entry_id in self._ids or entry_id in self.history.added:
                raise InvalidInput(f"the id {entry_id!r} was there before")
            if not isinstance(record, Added):
                self._ids.add(entry_id)
        if isinstance(record, Deleted):
            self._ids.update(record.ids)
        if isinstance(record, Configured):
            MemoryConfig().updated(readable(self.history.totals.settings | record.changes))
        super().take(seq, record)
        if isinstance(record, StateSetter) and record.state is not None:
            for name in record.state.sources:
                if name and name not in self.history.added:
                    raise InvalidInput(f"an outline has an unknown source {safe_repr(name)}")


def check_record(record: Record) -> None:
    """Raise `InvalidInput` for a record that memman would not have written, whatever came before it."""
    if record.at.tzinfo is None:
        raise InvalidInput(f"the time {record.at} has no time zone")
    if isinstance(record, StateSetter) and record.state is not None:
        _check_state(record.state)
    if isinstance(record, Added):
        check_id(record.id, "the entry's id")
        _check_entry(record.entry)
    elif isinstance(record, Opened):
        check_nonce(record.nonce)
        _check_metadata(record.metadata)
        _check_observed(record.settings)
        if record.forked_from is not None:
            check_id(record.forked_from.session_id, "the id of the forked session")
    elif isinstance(record, Compressed):
        for entry in entries_of(record):
            _check_entry(entry)
        _check_replacements(record)
        cost = record.cost
        _check_tokens(record.tokens_before, record.tokens_after, cost.calls)
        _check_tokens(cost.input_tokens, cost.output_tokens, cost.unpriced)
        _check_tokens(cost.cached_tokens, cost.cache_written_tokens)
        _check_dollars(cost.dollars)
        _check_observed(record.settings)
    elif isinstance(record, Described):
        _check_metadata(record.metadata)
    elif isinstance(record, UsageReported):
        _check_usage(record)


def entries_of(record: Record) -> list[Entry]:
    """Return the entries that a record contains."""
    if isinstance(record, Added):
        return [record.entry]
    if isinstance(record, Compressed):
        return [item.entry for item in record.replacements if item.entry is not None]
    return []


def with_entry(record: Record, change: Callable[[Entry], Entry]) -> Record:
    """Return the record with `change` applied to every entry in it."""
    if isinstance(record, Added):
        return msgspec.structs.replace(record, entry=change(record.entry))
    return with_replacements(record, change) if isinstance(record, Compressed) else record


def with_sound_state(record: Record, counter: Recount) -> Record:
    """Return the record with the text and a correct count of its outline; too high a count stays."""
    if not isinstance(record, StateSetter) or record.state is None:
        return record
    state = msgspec.structs.replace(
        record.state, text=state_text(record.state.items, record.state.covered)
    )
    count, true = state.token_count, counter.count_entry(state_entry(record, state))
    if count.counter in (counter.fingerprint, "") and count.tokens < true.tokens:
        state = msgspec.structs.replace(state, token_count=true)
    return msgspec.structs.replace(record, state=state)


def verified(entry: Entry, counter: Recount) -> Entry:
    """Return the entry with a correct count. An upper bound, as of a stub, may be somewhat high."""
    count = entry.token_count
    if count.counter not in (counter.fingerprint, ""):
        return entry
    true = counter.count_entry(entry)
    bound = count.accuracy == "medium" and true.tokens <= count.tokens <= 2 * true.tokens + 16
    if count.tokens == true.tokens or bound:
        return entry
    return msgspec.structs.replace(entry, token_count=true)


def _check_entry(entry: Entry) -> None:
    """Raise `InvalidInput` for an entry that `add_*` would have refused, or that cannot be rendered."""
    check_new_entry(entry)
    _check_tokens(entry.token_count.tokens)
    if not len(memoryview(entry.metadata_json)):
        return
    what = f"the metadata of entry {entry.id!r}"
    try:
        metadata = msgspec.json.decode(entry.metadata_json)
    except (msgspec.MsgspecError, RecursionError, UnicodeError) as error:
        raise InvalidInput(f"{what} cannot be decoded: {error}") from None
    if not isinstance(metadata, dict):
        raise InvalidInput(f"{what} is not an object")
    if entry.type == "summary":
        try:
            covered_by(entry)
        except msgspec.MsgspecError as error:
            what = f"the metadata of summary {entry.id!r} lacks what it covers: {error}"
            raise InvalidInput(what) from None


def _check_state(state: State) -> None:
    """Raise `InvalidInput` for an outline that the next compression could not be built from."""
    _check_tokens(state.token_count.tokens, state.values, state.kept)
    if state.compression_id:
        check_id(state.compression_id, "the id of an outline's compression")
    for item in state.items:
        if not item.sources or not all(0 <= each < len(state.sources) for each in item.sources):
            raise InvalidInput("an item of an outline has no source")
        if not any(state.sources[each] for each in item.sources):
            raise InvalidInput("an item of an outline has only deleted sources")
        if not is_section(item.section):
            raise InvalidInput(f"an outline has no section {safe_repr(item.section)}")
        if not _is_line(item.section) or not (item.section in MESSAGES or _is_line(item.text)):
            raise InvalidInput(f"the section {safe_repr(item.section)} has a text of several lines")
        _check_tokens(item.seq, item.part)


def _is_line(text: str) -> bool:
    return text.splitlines() in ([], [text])


def _check_tokens(*numbers: int) -> None:
    for number in numbers:
        if not 0 <= number <= MOST_TOKENS:
            raise InvalidInput(
                f"{number} is not a number of tokens: it must be in 0 .. {MOST_TOKENS}"
            )


def _check_usage(record: UsageReported) -> None:
    for call in record.calls:
        _check_tokens(*msgspec.structs.astuple(call)[1:])
    _check_tokens(record.hidden_tokens, record.estimated, record.counted, record.cleared_tokens)
    if record.charge is not None:
        _check_dollars(*msgspec.structs.astuple(record.charge))


def _check_dollars(*amounts: float) -> None:
    for amount in amounts:
        if not 0 <= amount <= MOST_DOLLARS:
            raise InvalidInput(f"{amount} is not an amount of US dollars")


def _check_metadata(metadata: dict[str, Any]) -> None:
    """Raise `InvalidInput` for metadata that `update_session` would have refused."""
    if fault := fault_in_json(metadata):
        raise InvalidInput(f"the metadata of the session cannot be stored: {fault}")


def _check_observed(settings: SettingsInEffect) -> None:
    limits = (settings.max_tokens, settings.max_entries, settings.target_tokens)
    _check_tokens(*[limit for limit in limits if limit is not None])


def _check_replacements(record: Compressed) -> None:
    """Raise `InvalidInput` for a record that is neither a plain compression nor a plain retraction.

    `into` of a run must be a replacement of the same compression.
    """
    made = ids_made_by(record)[1:]
    for item in record.replacements:
        if item.into is not None and (item.entry is not None or item.into not in made):
            raise InvalidInput(
                f"a run names the replacement {item.into!r}, which this compression did not make"
            )
    retracts = [item.method == "retract" for item in record.replacements]
    if any(retracts) and (made or not all(retracts)):
        raise InvalidInput("a retraction replaces entries by nothing, and does nothing else")
