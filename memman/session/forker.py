"""Forking a session: a copy of its log up to an entry, stored in one commit."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from memman import events
from memman.archive.temp_file import RecordFile
from memman.archive.validation import FoldedLog, with_entry
from memman.errors import EntryNotFound, SessionExists, StoreConflict
from memman.records import Added, Cleared, Deleted, ForkPoint, Opened, Record, blank, deleted_in
from memman.session.cache import SessionCache
from memman.session.log import no_session
from memman.session.reader import LogReader
from memman.session.session import Session
from memman.session.shared import Shared


async def fork_session(
    session_id: str, new_id: str, upto: str | None, shared: Shared, sessions: SessionCache
) -> None:
    """Copy the log as it is now, up to an entry, to a new session; later records are not in the copy.

    Raises:
        SessionNotFound: the session does not exist.
        SessionExists: the new session exists.
        EntryNotFound: `upto` was not added, or was deleted.
        StoreConflict: entries, or the session, were deleted in the meantime.
    """
    runtime, reader = shared.runtime, LogReader(session_id, shared)
    head, epoch = await reader.state() or (0, 0)
    if not head:
        raise no_session(session_id)
    if await shared.store.state(new_id) is not None:
        raise _exists(new_id)
    end = head if upto is None else await _end_of_message(upto, reader, head)
    copy = _Copy(await _opening(reader, end, shared))
    try:
        async for page in reader.pages(end):
            await runtime.complete(runtime.call(copy, copy.take, [record for _, record in page]))
        found = await shared.store.hiding(session_id, copy.empty) if copy.empty else []
        gone = deleted_in(record for seq, record in found if seq > end)
        deleted = tuple(dict.fromkeys(name for name in copy.empty if name in gone))
        if upto in deleted:
            raise _unknown(upto, session_id)
        await reader.check_kept(head, epoch)
        if deleted:
            # The payloads are gone, so the copy must not show these entries either.
            deletion = Deleted(id=shared.new_id(), at=shared.clock(), ids=deleted)
            await runtime.complete(runtime.call(copy, copy.take, [deletion]))
        session = await runtime.complete(_committed(new_id, session_id, copy, shared, sessions))
    finally:
        copy.records.close()
    await session.outbox.flush()


async def _committed(
    new_id: str, session_id: str, copy: _Copy, shared: Shared, sessions: SessionCache
) -> Session:
    log, records = copy.log, copy.records
    try:
        await shared.store.commit(new_id, 0, records, log.window(), log.floor, expect_head=0)
    except StoreConflict:
        raise _exists(new_id) from None
    session = sessions.get(new_id)
    session.outbox.notify(
        events.SessionForked(session_id=new_id, forked_from=session_id, records=len(records))
    )
    return session


class _Copy:
    """The records of a fork, in a temporary file, and their fold."""

    blocking = True

    def __init__(self, opening: Opened) -> None:
        self.records = RecordFile()
        self.log = FoldedLog()
        self.empty: list[str] = []  # entries without content, which may have been deleted
        self._append(opening)

    def take(self, records: Iterable[Record]) -> None:
        """Append the next records; the copy has an opening of its own."""
        for record in records:
            if isinstance(record, Added) and not record.entry.content:
                self.empty.append(record.id)
            if not isinstance(record, Opened):
                self._append(record)

    def _append(self, record: Record) -> None:
        record = self.log.history.completed(record)
        self.log.take(len(self.records) + 1, with_entry(record, blank))  # texts would fill memory
        self.records.append(record)


async def _opening(reader: LogReader, end: int, shared: Shared) -> Opened:
    """Return the first record of the fork.

    Its id is new, so that two forks of one name do not look like a retry. It keeps the nonce, so that
    contexts of both sessions begin alike and share a provider's prompt cache.
    """
    first, point = await reader.at(1), ForkPoint(reader.id, end)
    record_id, at = shared.new_id(), shared.clock()
    if isinstance(first, Opened):
        return msgspec.structs.replace(first, id=record_id, at=at, forked_from=point)
    return Opened(id=record_id, at=at, nonce=shared.new_nonce(), forked_from=point)


async def _end_of_message(upto: str, reader: LogReader, head: int) -> int:
    """Return the seq of the last entry of the message that `upto` belongs to."""
    found = [(seq, record) for seq, record in await reader.get([upto]) if seq <= head]
    if not found or not isinstance(found[0][1], Added):
        raise _unknown(upto, reader.id)
    end, message_id = found[0][0], found[0][1].entry.message_id
    seq = end
    while message_id is not None and seq < head:
        seq += 1
        record = await reader.at(seq)
        if isinstance(record, Added) and record.entry.message_id == message_id:
            end = seq
        elif isinstance(record, Added | Cleared):
            break
    return end


def _unknown(upto: str | None, session_id: str) -> EntryNotFound:
    return EntryNotFound(
        f"no entry {upto!r} was added to session {session_id!r}; nothing was changed"
    )


def _exists(new_id: str) -> SessionExists:
    return SessionExists(
        f"session {new_id!r} exists; nothing was changed: choose another id, or delete it first"
    )
