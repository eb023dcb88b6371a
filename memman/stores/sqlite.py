"""The store in one SQLite file: what was acknowledged is there when the process is gone.

A record is one row, written once, with the era's totals behind it; a session's row has its epoch and its
window as a list up to a floor, and only a commit writes to it. So an append costs the same in a session of
any length, behind a list of any length, and loading a window costs the window.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final

import msgspec

from memman.errors import StoreConflict
from memman.protocols import Appended, FeedItem, SessionInfo, Snapshot, StoredItem
from memman.records import Added, Record, encode
from memman.stores import sqlite_tables as tables
from memman.stores.drivers import Driver
from memman.stores.rows import conflict, elsewhere, fits, foreign, hidden, numbers_in, single
from memman.stores.sqlite_file import Durability, SQLiteFile

if TYPE_CHECKING:
    from sqlite3 import Connection

_MOST_TAILS: Final = 500  # sixteen ids and some each
_LEASE: Final = """
UPDATE session SET lease_holder = :holder, lease_from = :now, lease_until = :now + :seconds
WHERE id = :id AND (
    lease_holder IS NULL OR lease_holder = :holder OR :now NOT BETWEEN lease_from AND lease_until
)
"""
_GIVE_BACK: Final = """
UPDATE session SET lease_holder = NULL, lease_from = NULL, lease_until = NULL
WHERE id = :id AND lease_holder = :holder
"""


class SQLiteStore(SQLiteFile):
    """Logs in one SQLite file, for the threads and processes of one machine.

    Args:
        path: the file; it is created where there is none. ":memory:" keeps everything in this process.
        durability: "fast" survives the death of the process, and may lose the last moments when the
            machine loses power (WAL, synchronous=NORMAL); "full" waits for the disk at each write.
        timeout: seconds to wait while another process writes; then `StoreBusy`.
        driver: "apsw" opens the file by the newer SQLite of the extra `memman-core[apsw]`.

    Raises:
        StoreError: an argument has a wrong type or value, or the file cannot be opened, is no memman
            database, or is of a newer version.

    Every method is atomic and may be called from any thread. A forked child opens the file for itself.
    """

    blocking = True

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        durability: Durability = "fast",
        timeout: float = 10.0,
        driver: Driver = "sqlite3",
    ) -> None:
        super().__init__(path, durability=durability, timeout=timeout, driver=driver)
        # How sessions stood when last written to, and whose run the feed was at. Both are only tried first.
        self._tails: dict[str, tables.Tail] = {}
        self._running = 0

    # ------------------------------------------------------------ writing

    def append(
        self, session_id: str, records: Sequence[Record], *, expect_head: int | None = None
    ) -> Appended:
        """Appends records; one whose id is there keeps its seq."""
        if (alone := single(records, expect_head)) is not None:
            appended = self._added(session_id, alone)
            if appended is not None:
                return appended
        payloads = [encode(record) for record in records]

        def work(db: Connection) -> Appended:
            row = tables.row_of(db, session_id)
            head = 0 if row is None else row.head
            if expect_head is not None and head != expect_head:
                raise StoreConflict(elsewhere(session_id, head, expect_head))
            row = row or tables.begun(db, session_id)
            return tables.appended(db, row, row.totals, records, payloads)[0]

        return self._write(work)

    def _added(self, session_id: str, record: Added) -> Appended | None:
        """Adds one entry to a session that is there and has it not; else None."""
        payload = encode(record)
        known = self._tails.get(session_id)
        tail: tables.Tail | None = None
        if known is not None and known.number == self._running:
            # A statement that stands alone is a transaction.
            run = self._write if known.is_full else self._once
            tail = run(lambda db: tables.added_next(db, known, record, payload))
        if tail is None:
            tail = self._write(lambda db: tables.added(db, session_id, record, payload, known))
            if tail is None:
                return None
            self._running = tail.number
            if len(self._tails) >= _MOST_TAILS:
                self._tails.clear()
        self._tails[session_id] = tail
        return Appended((tail.head,), tail.head, tail.epoch, 1)

    def commit(
        self,
        session_id: str,
        epoch: int,
        records: Sequence[Record],
        window: Sequence[StoredItem],
        floor: int,
        *,
        expect_head: int | None = None,
    ) -> Appended:
        """Appends records and takes the new window, if the epoch is still the same."""
        return self._commit(session_id, epoch, records, window, floor, expect_head, frozenset())

    def erase(
        self,
        session_id: str,
        epoch: int,
        record: Record,
        window: Sequence[StoredItem],
        floor: int,
        ids: frozenset[str],
    ) -> Appended:
        """Commit a deletion and overwrite the payloads, and leave nothing of them in the file."""
        appended = self._commit(session_id, epoch, (record,), window, floor, None, ids)
        self._empty_wal()
        return appended

    def _commit(
        self,
        session_id: str,
        epoch: int,
        records: Sequence[Record],
        window: Sequence[StoredItem],
        floor: int,
        expect_head: int | None,
        erase: frozenset[str],
    ) -> Appended:

        def work(db: Connection) -> Appended:
            row = tables.row_of(db, session_id)
            if row is None:
                row = tables.begun(db, session_id)
            elif tables.seqs_of(db, row, [records[0].id]):
                return tables.all_appended(db, row, records)[0]
            if not fits(row, epoch, len(records), floor, expect_head):
                raise StoreConflict(conflict(session_id, (row.epoch, row.head), epoch, expect_head))
            appended, totals = tables.all_appended(db, row, records)
            tables.reshape(db, row, appended.head, totals, window, floor)
            if erase:
                tables.erased(db, row, erase)
            return msgspec.structs.replace(appended, epoch=row.epoch + 1)

        return self._write(work)

    def delete(self, session_id: str) -> bool:
        """Removes a session with its log, and leaves nothing of it in the file."""

        def work(db: Connection) -> bool:
            row = tables.row_of(db, session_id)
            if row is None:
                return False
            tables.removed(db, row)
            return True

        deleted = self._write(work)
        if deleted:
            self._empty_wal()
        return deleted

    # ------------------------------------------------------------ reading

    def load(self, session_id: str) -> Snapshot | None:
        """The session as it stands."""

        def work(db: Connection) -> Snapshot | None:
            self._look_for_others(db)
            row = tables.row_of(db, session_id)
            if row is None:
                return None
            known = dict(tables.records_at(db, row, {place.seq for place in row.listed}))
            return row.snapshot(known, tables.stretch(db, row, row.tail, row.head))

        return self._read(work)

    def state(self, session_id: str) -> tuple[int, int] | None:
        """(head, epoch) of a session."""
        return self._once(lambda db: tables.state_of(db, session_id))

    def read(
        self, session_id: str, after: int = 0, limit: int = 1_000
    ) -> Sequence[tuple[int, Record]]:
        """A stretch of the log."""

        def work(db: Connection) -> list[tuple[int, Record]]:
            row = tables.row_of(db, session_id)
            return tables.stretch(db, row, after, min(row.head, after + limit)) if row else []

        return self._read(work)

    def feed(self, after: str = "", limit: int = 1_000) -> Sequence[FeedItem]:
        """The records of every session behind a cursor, in the order of the commits."""
        position, seq = numbers_in(after, 2, "a SQLite file")

        def work(db: Connection) -> list[FeedItem]:
            if position and not tables.was_fed(db, position, seq):
                raise foreign(after, self.path)
            return tables.fed(db, position, seq, limit)

        return self._read(work)

    def lease(self, session_id: str, holder: str, seconds: float) -> bool:
        """Takes, prolongs or gives back the right to pay for a summary; by this machine's clock."""
        statement = _LEASE if seconds else _GIVE_BACK
        values: dict[str, Any] = {"id": session_id, "holder": holder, "seconds": seconds}

        def work(db: Connection) -> bool:
            # The time when the file is ours: before that, another may have taken the lease. A clock that
            # went back ends a lease rather than making it longer.
            return db.execute(statement, {**values, "now": time.time()}).rowcount == 1

        return self._write(work)

    def find(self, session_id: str, ids: Sequence[str]) -> Sequence[tuple[int, Record]]:
        """Return the records that name one of these ids."""

        def work(db: Connection) -> list[tuple[int, Record]]:
            row = tables.row_of(db, session_id)
            names = [*ids, *map(hidden, ids)]
            return (
                tables.records_at(db, row, tables.seqs_of(db, row, names).values()) if row else []
            )

        return self._read(work)

    def sessions(self) -> Iterable[SessionInfo]:
        """Every session, in the order of creation."""
        return self._once(tables.all_sessions)
