"""Adding entries to a session: identity, redaction, count and append."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from itertools import groupby
from operator import attrgetter
from typing import Any, NamedTuple

import msgspec

from memman import events
from memman.entries import NOT_COUNTED, Entry, NewEntry, TextPart, entry_of, note_of, noted
from memman.errors import BudgetExceeded, IdConflict, StoreConflict
from memman.ids import entry_id as id_of_entry
from memman.records import (
    Added,
    Deleted,
    SessionTotals,
    UsageReported,
    ids_moved_by,
    ids_retracted_by,
)
from memman.session.calls import is_same_content
from memman.session.context import ContextBuilder
from memman.session.log import RETRIES, SessionLog, repeated_id
from memman.session.outbox import Outbox
from memman.session.shared import Shared
from memman.state import is_users_message
from memman.window import Window

logger = logging.getLogger("memman")


class Additions:
    """Makes entries and appends them. Entries that it returns are in the log for good."""

    __slots__ = ("_contexts", "_has_warned", "_log", "_outbox", "_shared")

    def __init__(
        self, shared: Shared, log: SessionLog, outbox: Outbox, contexts: ContextBuilder
    ) -> None:
        self._contexts = contexts
        self._shared = shared
        self._log = log
        self._outbox = outbox
        self._has_warned = False  # of an altered message

    async def add(
        self, new_entry: NewEntry, entry_id: str | None, pinned: bool, metadata: msgspec.Raw
    ) -> Entry:
        """Add one entry. With an `entry_id` of the caller, a retry with the same content is a no-op.

        Raises `IdConflict` if the id was added before with other content, or was deleted.
        """
        log = self._log
        if log.is_stale:  # before anything is counted by another counter
            await log.catch_up()
        named = entry_id is not None
        identity = entry_id or self._shared.new_id()
        entry = self._counted(self._redacted(new_entry, identity, pinned, metadata))
        self._check_files([entry])
        async with log.lock:
            await self._prepare([entry], named=named)
            found, repeated = await self._contexts.notes_for([entry], named=named)
            if repeated:
                return repeated[entry.id]
            records = self._records(found)
            # An entry of an earlier era may have had the id.
            if named and log.totals.era and isinstance(await log.reader.hiding(identity), Deleted):
                raise IdConflict(
                    f"the id {entry_id!r} was deleted; nothing was changed. Give the entry another id"
                )
            appended = await log.append(records, named=named)
            if appended.fresh:
                self._report_altered(entry.id, new_entry.altered)
                return records[0].placed(appended.seqs[0])
            if not named:
                await self._check_ours(records)
            return await self._added_before(records[0].entry)

    async def add_messages(
        self,
        new_entries: Sequence[NewEntry],
        ids: Sequence[str | None] | None,
        pinned: bool,
        metadata: msgspec.Raw,
        response: str,
    ) -> tuple[list[Entry], AbstractSet[str]]:
        """Add the entries of messages, all or none, and return them and the ids of new ones.

        If the window ends with the entries of the `response` of this id, they are returned.

        `ids` has the id of each message, None for one of memman's. A message that is known by its id is
        returned as it is stored; deleted entries are left out.

        Raises `IdConflict` if a known message has other content.
        """
        log = self._log
        await log.catch_up()
        messages = self._messages(new_entries, ids, pinned, metadata)
        if response and messages:
            messages[0].entries[0] = noted(messages[0].entries[0], response=response)
        for retries in reversed(range(1 + RETRIES)):
            async with log.lock:
                try:
                    added = await self._add_messages(messages, named=ids is not None)
                    break
                except StoreConflict:  # another writer may have added the same ids
                    if not retries:
                        raise
        return added

    async def _add_messages(
        self, messages: Sequence[_Message], named: bool
    ) -> tuple[list[Entry], AbstractSet[str]]:
        """Append the entries of the messages that are not known. Under the lock."""
        log = self._log
        entries = [entry for message in messages for entry in message.entries]
        if not entries:
            return [], frozenset()
        await self._prepare(entries, named=named or bool(note_of(entries[0], "response")))
        if last := _known_response(log.window, entries):
            return last, frozenset()
        known: dict[str, Entry | None] = {}
        retracted: AbstractSet[str] = frozenset()
        if named:
            ids = [name for message in messages for name in message.ids]
            known, retracted = await self._known(ids)
        fresh, shown = _without_known(messages, known, retracted)
        new = {entry.id for entry in fresh}
        if fresh:
            counted = [self._counted(entry) for entry in fresh]
            self._check_files(counted)
            found, repeated = await self._contexts.notes_for(counted, named=named)
            new -= repeated.keys()
            if not found:
                return list(repeated.values()), new
            records = self._records(found)
            if len({record.id for record in records}) < len(records):
                raise repeated_id(records[0].id)
            appended = await log.append(records, exact=named)
            if appended.fresh < len(records):
                await self._check_ours(records)
            placed = zip(records, appended.seqs, strict=True)
            known |= {record.id: record.placed(seq) for record, seq in placed}
            known |= {name: known.get(each.id, each) for name, each in repeated.items()}
            for message in messages:
                if (name := message.entries[0].id) in new:
                    self._report_altered(name, message.altered)
        return [entry for name in shown if (entry := known.get(name)) is not None], new

    def _messages(
        self,
        new_entries: Sequence[NewEntry],
        ids: Sequence[str | None] | None,
        pinned: bool,
        metadata: msgspec.Raw,
    ) -> list[_Message]:
        """Return the messages of parsed entries, which are not counted yet."""
        new_id = self._shared.new_id
        labels = dict.fromkeys(new_entry.message_id for new_entry in new_entries)
        message_ids = {label: label and new_id() for label in labels}
        messages = []
        for index, parsed in groupby(new_entries, key=attrgetter("message_index")):
            name = None if ids is None else ids[index]
            entries = []
            altered = ""
            for number, new_entry in enumerate(parsed):
                altered = new_entry.altered or new_entry.kept
                message_id = message_ids[new_entry.message_id]
                labelled = msgspec.structs.replace(new_entry, message_id=message_id)
                identity = new_id() if name is None else id_of_entry(name, number)
                entries.append(self._redacted(labelled, identity, pinned, metadata))
            end = None if name is None else id_of_entry(name, len(entries))
            messages.append(_Message(entries, end, altered))
        return messages

    def _report_altered(self, entry_id: str, reason: str) -> None:
        """Emit an event for an added message that was altered, and log the first of the session."""
        if not reason:
            return
        self._outbox.notify(
            events.MessageAltered(session_id=self._log.id, entry_id=entry_id, reason=reason)
        )
        if not self._has_warned:
            self._has_warned = True
            logger.warning(
                "session %s: message %s could not be stored as it was: %s. Later ones are reported by "
                "the event message_altered alone",
                self._log.id,
                entry_id,
                reason,
            )

    async def _known(self, ids: Sequence[str]) -> tuple[dict[str, Entry | None], set[str]]:
        """Return the entries of this era by those ids that are taken, and the retracted ids.

        None is a deleted entry, of any era.
        """
        log = self._log
        active = filter(None, map(log.window.find, ids))
        known: dict[str, Entry | None] = {item.entry.id: item.entry for item in active}
        missing = set(ids) - known.keys()
        retracted: set[str] = set()
        for seq, record in await log.reader.naming(missing) if missing else ():
            retracted.difference_update((record.id, *ids_moved_by(record)))
            retracted.update(missing & set(ids_retracted_by(record)))
            if isinstance(record, Deleted):
                known |= dict.fromkeys(record.ids)
            elif isinstance(record, Added) and seq > log.totals.era:
                known[record.id] = record.placed(seq)
        return {name: known[name] for name in known if name not in retracted}, retracted

    def _redacted(
        self, new_entry: NewEntry, entry_id: str, pinned: bool, metadata: msgspec.Raw
    ) -> Entry:
        """Return an entry with its id, time and redacted content, but without its count."""
        shared = self._shared
        entry = entry_of(new_entry, entry_id, shared.clock(), NOT_COUNTED, pinned, metadata)
        return shared.redacted(entry, "nothing was stored")

    def _counted(self, entry: Entry) -> Entry:
        """Return an entry with its count."""
        counter = self._log.resolved.counter
        count = counter.count_entry(entry)
        if count.counter != counter.fingerprint:
            self._outbox.notify_fallback(counter.fingerprint, counter.failure)
        return msgspec.structs.replace(entry, token_count=count)

    def _check_files(self, entries: Sequence[Entry]) -> None:
        """Raise `BudgetExceeded` for files of the newest user message that no window of the model takes.

        They are never taken out of it, so every request would fail.
        """
        usable, counter = self._log.resolved.budget.usable, self._log.resolved.counter
        newest = next(filter(is_users_message, reversed(entries)), None)
        if usable is None or newest is None or newest.token_count.tokens <= usable:
            return
        parts = () if isinstance(newest.content, str) else newest.content
        files = tuple(part for part in parts if not isinstance(part, TextPart))
        tokens = counter.count_entry(msgspec.structs.replace(newest, content=files)).tokens
        if files and tokens > usable:
            raise BudgetExceeded(
                tokens, usable, [("the files of the message", tokens)], pinned=False
            )

    async def _prepare(self, entries: Sequence[Entry], *, named: bool = False) -> None:
        """Bring the window in step if it decides something about the entries. Under the lock.

        It does for ids of the caller's: one may have been deleted in an earlier era.
        """
        # A result without a name takes that of its call.
        unnamed = any(entry.name is None and entry.type == "tool_result" for entry in entries)
        await self._log.prepare(reads_window=named or unnamed or entries[0].role == "system")

    def _records(self, entries: Sequence[Entry]) -> tuple[Added, ...]:
        """Return the records of entries: system messages at the start pinned."""
        at_start = entries[0].role == "system" and self._log.window.only_system()
        records = []
        off_record = self._contexts.is_off_record()
        for entry in entries:
            at_start = at_start and entry.role == "system" and entry.type == "message"
            if at_start:
                entry = msgspec.structs.replace(entry, pinned=True)
            has_blocks = entry.role == "assistant" and not isinstance(entry.content, str)
            records.append(Added(entry, has_blocks and off_record))
        return tuple(records)

    async def _check_ours(self, records: Sequence[Added]) -> None:
        """Raise `IdConflict` unless the stored records with these ids are these very ones.

        A store that lost the answer to a write tries again, and finds its own records.
        """
        found = await self._log.reader.get([record.id for record in records])
        stored = {record.id: record.entry for _, record in found if isinstance(record, Added)}
        for record in records:
            entry = stored.get(record.id)
            if entry is None or entry.timestamp != record.at or not _is_same(entry, record.entry):
                raise repeated_id(record.id)

    async def _added_before(self, entry: Entry) -> Entry:
        """Return the entry that was added under this id before, if it is the same."""
        found = await self._log.reader.get([entry.id])
        added = (record.placed(seq) for seq, record in found if isinstance(record, Added))
        stored = next(added, None)
        gone = stored is not None and await self._is_deleted(stored)
        if stored is not None and not gone and _is_same(stored, entry):
            return stored
        raise IdConflict(
            f"the id {entry.id!r} was {'deleted' if gone else 'added before with other content'}; "
            "nothing was changed. Give each entry its own id, or leave ids to memman"
        )

    async def _is_deleted(self, stored: Entry) -> bool:
        """Return whether an added entry was deleted. Under the lock, refreshed.

        A tombstone looks like an entry without content, which may have been added so.
        """
        if stored.content or self._log.window.find(stored.id) is not None:
            return False
        return isinstance(await self._log.reader.hiding(stored.id), Deleted)


class _Message(NamedTuple):
    """A message to add.

    `end` is the id that one more entry would have: if it is taken, the message was longer. None if memman
    makes the ids. `altered` is the reason if it is not stored as it was, or is kept whole.
    """

    entries: list[Entry]
    end: str | None
    altered: str

    @property
    def ids(self) -> list[str]:
        """The ids of its entries, and the one after them."""
        return [entry.id for entry in self.entries] + ([] if self.end is None else [self.end])


def _without_known(
    messages: Sequence[_Message], known: Mapping[str, Entry | None], retracted: AbstractSet[str]
) -> tuple[list[Entry], list[str]]:
    """Return the entries to append and the ids of all entries, in order.

    A message of which an entry is known or deleted is not appended. An entry of an answer that is known in
    part gets the message id of that part. Raises `IdConflict` for a known message with other content.
    """
    taken = dict(known)
    fresh: list[Entry] = []
    message_ids: dict[str | None, str | None] = {}
    for message in messages:
        if not any(entry.id in taken for entry in message.entries):
            taken |= {entry.id: entry for entry in message.entries}
            fresh += message.entries
            continue
        stored = [found for entry in message.entries if (found := taken.get(entry.id))]
        if not stored:
            continue
        after = taken.get(message.end or "")
        if after is not None and stored[-1].message_id == after.message_id is not None:
            raise _other_content(message)
        for entry in message.entries:
            found = taken.get(entry.id)
            if found is None and (entry.id in taken or entry.id in retracted):
                continue
            if found is None or not is_same_content(found, entry):
                raise _other_content(message)
            if entry.message_id is not None:
                message_ids[entry.message_id] = found.message_id or entry.message_id
    shown = [entry.id for message in messages for entry in message.entries]
    return [
        msgspec.structs.replace(
            entry, message_id=message_ids.get(entry.message_id, entry.message_id)
        )
        for entry in fresh
    ], shown


def _known_response(window: Window, entries: Sequence[Entry]) -> list[Entry]:
    """Return the entries at the end of a window if they are those of the same response, by its id."""
    name = note_of(entries[0], "response")
    last = [item.entry for item in window.items[-len(entries) :]] if name else []
    same = len(last) == len(entries) and note_of(last[0], "response") == name
    return last if same and all(map(is_same_content, last, entries)) else []


def is_known_report(report: UsageReported, totals: SessionTotals, window: Window) -> bool:
    """Return whether the usage of the same response, by its id and numbers, is in the log already.

    A server may give one id to all responses. If all ids so far are one, only a report directly behind
    itself is the same: the response may be between, or the results of its calls.
    """
    if report.identity not in totals.responses:
        return False
    if any(name[:8] != report.identity[:8] for name in totals.responses):
        return True
    later = (item for item in window.items if item.position > totals.reported_at)
    return {item.entry.role for item in later} in (set(), {"assistant"}, {"tool"})


def _other_content(message: _Message) -> IdConflict:
    return IdConflict(
        f"the message {message.entries[0].id!r} was added before with other content; nothing was "
        "changed. Give an edited message its own id, or retract the earlier one first"
    )


def _is_same(stored: Entry, given: Entry) -> bool:
    """Return whether two entries have the same content, whenever and however they were counted."""
    same = _callers(stored) == _callers(given) and stored.message_id == given.message_id
    return same and is_same_content(stored, given)


def _callers(entry: Entry) -> dict[str, Any]:
    """Return the caller's own metadata, without memman's notes."""
    return {key: value for key, value in entry.metadata.items() if key != "memman"}
