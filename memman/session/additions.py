"""Adding entries to a session: identity, redaction, count and append."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from memman import events
from memman.entries import NO_JSON, Entry, NewEntry, TokenCount, entry_of
from memman.errors import IdConflict
from memman.records import Added, Deleted
from memman.session.log import SessionLog, repeated_id
from memman.session.outbox import Outbox
from memman.session.shared import Shared


class Additions:
    """Makes entries and appends them. Entries that it returns are in the log for good."""

    __slots__ = ("_log", "_outbox", "_shared")

    def __init__(self, shared: Shared, log: SessionLog, outbox: Outbox) -> None:
        self._shared = shared
        self._log = log
        self._outbox = outbox

    async def add(
        self, new_entry: NewEntry, entry_id: str | None, pinned: bool, metadata: msgspec.Raw
    ) -> Entry:
        """Add one entry. With an `entry_id` of the caller, a retry with the same content is a no-op.

        Raises `IdConflict` if the id was added before with other content, or was deleted.
        """
        log = self._log
        if log.is_stale:  # before anything is counted by another counter
            await log.follow_settings()
        entry = self._entry(new_entry, entry_id, pinned, metadata)
        async with log.lock:
            await self._prepare([entry], named=entry_id is not None)
            records = self._records([entry])
            if entry_id is not None and log.totals.era:
                await self._refuse_deleted(entry_id)
            appended = await log.append(records, named=entry_id is not None)
            if appended.fresh:
                return msgspec.structs.replace(records[0].entry, seq=appended.seqs[0])
            if entry_id is None:
                await self._check_ours(records)
            return await self._added_before(records[0].entry)

    async def add_all(
        self, new_entries: Sequence[NewEntry], labels: Mapping[str, str]
    ) -> list[Entry]:
        """Add several entries atomically: all or none. `labels` maps parse labels to message ids."""
        log = self._log
        await log.follow_settings()
        entries = [
            self._entry(_labelled(new_entry, labels), None, False, NO_JSON)
            for new_entry in new_entries
        ]
        if not entries:
            return []
        async with log.lock:
            await self._prepare(entries)
            records = self._records(entries)
            if len({record.id for record in records}) < len(records):
                raise repeated_id(records[0].id)
            appended = await log.append(records)
            if appended.fresh < len(records):
                await self._check_ours(records)
            return [
                msgspec.structs.replace(record.entry, seq=seq)
                for record, seq in zip(records, appended.seqs, strict=True)
            ]

    def _entry(
        self, new_entry: NewEntry, entry_id: str | None, pinned: bool, metadata: msgspec.Raw
    ) -> Entry:
        """Return an entry with its id, time, redacted content and count."""
        shared, counter = self._shared, self._log.resolved.counter
        count = counter.count_entry(new_entry) if shared.redact is None else TokenCount(0)
        identity = entry_id or shared.new_id()
        entry = entry_of(new_entry, identity, shared.clock(), count, pinned, metadata)
        if shared.redact is not None:
            entry = shared.redacted_to_store(entry, counter)
        if entry.token_count.counter != counter.fingerprint:
            self._outbox.notify(
                events.CountFellBack(
                    session_id=self._log.id, counter=counter.fingerprint, reason=counter.failure
                )
            )
        return entry

    async def _prepare(self, entries: Sequence[Entry], *, named: bool = False) -> None:
        """Bring the window in step if it decides something about the entries. Under the lock.

        It does for ids of the caller's: one may have been deleted in an earlier era.
        """
        decides = named or entries[0].role == "system" or any(map(_is_unnamed, entries))
        await self._log.prepare(reads_window=decides)

    def _records(self, entries: Sequence[Entry]) -> tuple[Added, ...]:
        """Return the records of entries: system messages at the start pinned, results named."""
        window = self._log.window
        at_start = entries[0].role == "system" and window.only_system()
        records = []
        for entry in entries:
            at_start = at_start and entry.role == "system" and entry.type == "message"
            if at_start:
                entry = msgspec.structs.replace(entry, pinned=True)
            elif _is_unnamed(entry):
                call = window.open_call(entry.call_id, None)
                entry = msgspec.structs.replace(entry, name=call.entry.name if call else None)
            records.append(Added(entry))
        return tuple(records)

    async def _check_ours(self, records: Sequence[Added]) -> None:
        """Raise `IdConflict` unless the stored records with these ids are these very ones.

        A store that lost the answer to a write tries again, and finds its own records.
        """
        found = await self._log.reader.get([record.id for record in records])
        stored = {record.id: record.entry for _, record in found if isinstance(record, Added)}
        for record in records:
            entry = stored.get(record.id)
            if entry is None or not _is_written(entry, record.entry):
                raise repeated_id(record.id)

    async def _added_before(self, entry: Entry) -> Entry:
        """Return the entry that was added under this id before, if it is the same."""
        found = await self._log.reader.get([entry.id])
        stored = next(
            (
                msgspec.structs.replace(record.entry, seq=seq)
                for seq, record in found
                if isinstance(record, Added)
            ),
            None,
        )
        gone = stored is not None and await self._is_deleted(stored)
        if stored is not None and not gone and _is_same(stored, entry):
            return stored
        raise IdConflict(
            f"the id {entry.id!r} was {'deleted' if gone else 'added before with other content'}; "
            "nothing was changed. Give each entry its own id, or leave ids to memman"
        )

    async def _refuse_deleted(self, entry_id: str) -> None:
        """Raise `IdConflict` if an entry of an earlier era with this id was deleted."""
        if isinstance(await self._log.reader.hiding(entry_id), Deleted):
            raise IdConflict(
                f"the id {entry_id!r} was deleted; nothing was changed. Give the entry another id"
            )

    async def _is_deleted(self, stored: Entry) -> bool:
        """Return whether an added entry was deleted. Under the lock, refreshed.

        A tombstone looks like an entry without content, which may have been added so.
        """
        if stored.content or self._log.window.find(stored.id) is not None:
            return False
        return isinstance(await self._log.reader.hiding(stored.id), Deleted)


def _is_unnamed(entry: Entry) -> bool:
    """Return whether an entry is a result that takes its name from its call."""
    return entry.name is None and entry.type == "tool_result"


def _labelled(new_entry: NewEntry, labels: Mapping[str, str]) -> NewEntry:
    """Return a parsed entry with a message id in place of its label."""
    if new_entry.message_id is None:
        return new_entry
    return msgspec.structs.replace(new_entry, message_id=labels[new_entry.message_id])


def _is_written(stored: Entry, given: Entry) -> bool:
    """Return whether a stored entry is the one that was made at the same moment."""
    return (stored.id, stored.timestamp) == (given.id, given.timestamp) and _is_same(stored, given)


def _is_same(stored: Entry, given: Entry) -> bool:
    """Return whether two entries have the same content, whenever and however they were counted."""
    if stored.name != given.name and given.name is not None:
        return False  # a result's name may have been taken from its call
    return stored.metadata == given.metadata and all(
        getattr(stored, name) == getattr(given, name)
        for name in ("type", "role", "content", "call_id", "message_id", "is_error")
    )
