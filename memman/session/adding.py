"""Adding entries: identity, redaction, count, commit, and a compression where one is due."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeVar

import msgspec

from memman.entries import NO_JSON, Entry, NewEntry, TokenCount, entry_of
from memman.errors import IdConflict
from memman.records import Added, deleted_in
from memman.session.automatic import Automatic

T = TypeVar("T")


class Adding(Automatic):
    """Adds entries; what an add acknowledged is in the log for good."""

    __slots__ = ()

    async def add(
        self,
        new_entry: NewEntry,
        entry_id: str | None,
        pinned: bool,
        metadata: msgspec.Raw,
        compress: bool | None,
    ) -> Entry:
        """Adds one entry, whatever there is to be done before."""
        entry = await self._add_anywhere(new_entry, entry_id, pinned, metadata)
        return await self.after_add(entry, compress)

    async def after_add(self, added: T, compress: bool | None = None) -> T:
        """Tells what is to be told and compresses where that is due; gives what was added."""
        await self._drain()
        if self._due() and (self._config.auto_compress if compress is None else compress):
            await self._compress_after_add()
        return added

    async def _add_anywhere(
        self, new_entry: NewEntry, entry_id: str | None, pinned: bool, metadata: msgspec.Raw
    ) -> Entry:
        await self._follow_settings()
        entry = self._entry(new_entry, entry_id, pinned, metadata)
        async with self._lock:
            await self._prepare_for((entry,))
            records = self._added((entry,))
            if entry_id is not None and self._totals.era:
                await self._refuse_deleted(entry_id)
            appended = await self._append(records, named=entry_id is not None)
            if appended.fresh:
                return self._as_added(records, appended.seqs)[0]
            if entry_id is None:
                await self._check_ours(records)
            return await self._as_added_before(records[0].entry)

    async def add_all(
        self, new_entries: Sequence[NewEntry], labels: Mapping[str, str]
    ) -> list[Entry]:
        """Adds several entries atomically: all or none. `labels` maps parse labels to message ids."""
        await self._follow_settings()
        entries = [
            self._entry(_labelled(new_entry, labels), None, False, NO_JSON)
            for new_entry in new_entries
        ]
        if not entries:
            return []
        async with self._lock:
            await self._prepare_for(entries)
            records = self._added(entries)
            if len({record.id for record in records}) < len(records):
                raise _same_id_again(records[0].id)
            appended = await self._append(records)
            if appended.fresh < len(records):
                await self._check_ours(records)
            added = self._as_added(records, appended.seqs)
        return await self.after_add(added)

    def _as_added(self, records: Sequence[Added], seqs: Sequence[int]) -> list[Entry]:
        """The entries with their places in the log: those of the window, where they are its newest."""
        newest = [item.entry for item in self._window.items[-len(records) :]]
        if [entry.id for entry in newest] == [record.entry.id for record in records]:
            return newest
        return [
            msgspec.structs.replace(record.entry, seq=seq)
            for record, seq in zip(records, seqs, strict=True)
        ]

    def _entry(
        self, new_entry: NewEntry, entry_id: str | None, pinned: bool, metadata: msgspec.Raw
    ) -> Entry:
        """An entry of a draft: identity, time, redaction, count."""
        shared = self._shared
        redact = shared.redact
        count = self._meter.count_new(new_entry) if redact is None else TokenCount(0)
        identity = entry_id or shared.new_id()
        entry = entry_of(new_entry, identity, shared.clock(), count, pinned, metadata)
        if redact is not None:
            entry = self.redacted(entry)
        self._check_counter(entry.token_count)
        return entry

    def redacted(self, entry: Entry) -> Entry:
        """The entry as `redact` leaves it, counted after. What it hides is never stored."""
        clean = self._shared.redacted(entry, "nothing was stored")
        return msgspec.structs.replace(clean, token_count=self._meter.count_entry(clean))

    async def _prepare_for(self, entries: Sequence[Entry]) -> None:
        """Refreshes where the window says something about new entries. Under the lock.

        Nearly always it does not, and the answer to the append tells what others have written.
        """
        said = entries[0].role == "system" or any(map(_is_unnamed, entries))
        if self._unsure() if said else self._stale():
            await self._refresh()

    def _added(self, entries: Sequence[Entry]) -> tuple[Added, ...]:
        """The records of new entries: the head's system messages pinned, results named."""
        first = entries[0]
        at_head = first.role == "system" and self._window.only_system()
        records = []
        for entry in entries:
            at_head = at_head and entry.role == "system" and entry.type == "message"
            if at_head:
                entry = msgspec.structs.replace(entry, pinned=True)
            elif _is_unnamed(entry):
                call = self._window.open_call(entry.call_id, None)
                entry = msgspec.structs.replace(entry, name=call.entry.name if call else None)
            records.append(Added(entry))
        return tuple(records)

    async def _check_ours(self, records: Sequence[Added]) -> None:
        """Raises `IdConflict` unless records that were there already are these very ones.

        A store that lost the answer to a write writes again, and finds what it had written.
        """
        found = await self._get([record.id for record in records])
        there = {record.id: record.entry for _, record in found if isinstance(record, Added)}
        for record in records:
            entry = there.get(record.id)
            if entry is None or not _as_written(entry, record.entry):
                raise _same_id_again(record.id)

    async def _as_added_before(self, entry: Entry) -> Entry:
        """The entry that was added under this id, if it is the same; the retry was a no-op."""
        found = await self._get([entry.id])
        stored = next(
            (
                msgspec.structs.replace(record.entry, seq=seq)
                for seq, record in found
                if isinstance(record, Added)
            ),
            None,
        )
        gone = stored is not None and await self._is_deleted(stored)
        if stored is not None and not gone and _same(stored, entry):
            return stored
        raise IdConflict(
            f"the id {entry.id!r} was {'deleted' if gone else 'added before with other content'}; "
            "nothing was changed. Give each entry its own id, or leave ids to memman"
        )

    async def _refuse_deleted(self, entry_id: str) -> None:
        """Raise `IdConflict` if an entry of an earlier era with this id was deleted."""
        found = await self._shared.store.hiding(self.id, [entry_id])
        if entry_id in deleted_in(record for _, record in found):
            raise IdConflict(
                f"the id {entry_id!r} was deleted; nothing was changed. Give the entry another id"
            )

    async def _is_deleted(self, stored: Entry) -> bool:
        """Whether an added entry of the log was deleted. Under the lock, refreshed.

        What is left of one is like an entry that never had any content; of the others it is certain.
        """
        if stored.content or self._window.find(stored.id) is not None:
            return False
        found = await self._shared.store.hiding(self.id, [stored.id])
        return stored.id in deleted_in(record for _, record in found)


def _is_unnamed(entry: Entry) -> bool:
    """Whether an entry is a result that is named after its call."""
    return entry.name is None and entry.type == "tool_result"


def _same_id_again(entry_id: str) -> IdConflict:
    return IdConflict(f"new_id gave {entry_id!r} twice; ids must be unique. Nothing was changed")


def _labelled(new_entry: NewEntry, labels: Mapping[str, str]) -> NewEntry:
    """A parsed draft with a real message id in place of its label."""
    if new_entry.message_id is None:
        return new_entry
    return msgspec.structs.replace(new_entry, message_id=labels[new_entry.message_id])


def _as_written(stored: Entry, given: Entry) -> bool:
    """Whether an entry is the one that was made at that moment."""
    return (stored.id, stored.timestamp) == (given.id, given.timestamp) and _same(stored, given)


def _same(stored: Entry, given: Entry) -> bool:
    """Whether two entries say the same, whenever and however they were counted."""
    if stored.name != given.name and given.name is not None:
        return False  # a result's name may have been filled in from its call
    return stored.metadata == given.metadata and all(
        getattr(stored, name) == getattr(given, name)
        for name in ("type", "role", "content", "call_id", "message_id", "is_error")
    )
