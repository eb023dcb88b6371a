"""The store in one SQLite file: an acknowledged entry survives the process.

A record is a row that is written once. A session's row has its head, its epoch and its totals. Only a
commit writes the window, as a list up to a floor. So an append costs the same in a session of any length,
and loading a session costs its window.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec

from memman.display import warn_once
from memman.errors import StoreConflict, StoreError
from memman.protocols import (
    Appended,
    Candidates,
    FeedItem,
    SearchRequest,
    SessionInfo,
    Snapshot,
    StoredItem,
)
from memman.records import Record, encode
from memman.search import scan
from memman.search.index import IndexDamaged
from memman.search.scan import joined
from memman.search.vectors import Vector
from memman.stores import sqlite_tables as tables
from memman.stores.drivers import has_search, warn_without_search
from memman.stores.rows import Commit, foreign_cursor, head_conflict, numbers_in
from memman.stores.sqlite_file import SQLiteFile

if TYPE_CHECKING:
    from sqlite3 import Connection

logger: Final = logging.getLogger("memman")
T = TypeVar("T")
_LEASE: Final = """
UPDATE session SET lease_holder = :holder, lease_from = :now, lease_until = :now + :seconds
WHERE id = :id AND (
    lease_holder IS NULL OR lease_holder = :holder OR :now NOT BETWEEN lease_from AND lease_until
)
"""
_RETURN: Final = """
UPDATE session SET lease_holder = NULL, lease_from = NULL, lease_until = NULL
WHERE id = :id AND lease_holder = :holder
"""


class SQLiteStore(SQLiteFile):
    """Logs in one SQLite file, for the threads and processes of one machine.

    Args:
        path: the file, which is created if it does not exist. ":memory:" keeps everything in this process.
        durability: "fast" survives a crash of the process, and may lose the last moments if the machine
            loses power (WAL, synchronous=NORMAL); "full" waits for the disk at each write.
        timeout: seconds to wait while another process writes; then `StoreBusy` is raised.
        driver: "apsw" uses the newer SQLite of the extra `memman-core[apsw]`.

    Raises:
        StoreError: an argument has a wrong type or value, or the file cannot be opened, is not a memman
            database, or is of a newer version.

    Every method is atomic and may be called from any thread. A forked child opens the file for itself.
    """

    blocking = True

    # ------------------------------------------------------------ writing

    def append(
        self, session_id: str, records: Sequence[Record], *, expect_head: int | None = None
    ) -> Appended:
        """Append records; one whose id is known keeps its seq."""
        payloads = [encode(record) for record in records]

        def work(db: Connection) -> Appended:
            row = tables.row_of(db, session_id)
            head = 0 if row is None else row.head
            if expect_head not in (None, head):
                raise StoreConflict(head_conflict(session_id, head, expect_head))
            row = row or tables.begin(db, session_id)
            return tables.append(db, row, row.totals, records, payloads).appended

        return self._write(work)

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
        """Append records and replace the window, if the epoch is unchanged."""
        return self._commit(Commit(session_id, epoch, records, window, floor, expect_head))

    def erase(
        self,
        session_id: str,
        epoch: int,
        record: Record,
        window: Sequence[StoredItem],
        floor: int,
        ids: frozenset[str],
    ) -> Appended:
        """Commit a deletion and overwrite payloads; nothing of them stays in the file."""
        given = Commit(session_id, epoch, (record,), window, floor, None, ids)
        appended = self._commit(given)
        self._empty_wal()
        return appended

    def has_pending_erasure(self) -> bool:
        """Return whether words of deleted entries may be in unused pages until the next deletion.

        A damaged index is taken out of the file before its pages are overwritten, which needs as much room
        on the disk as the file has.
        """
        return self._once(tables.has_discarded)

    def _repaired(self, call: Callable[[], T]) -> T:
        """Return the answer of a call; if the index is damaged, of the same call without the index."""
        try:
            return call()
        except IndexDamaged as error:
            warn_once("memman", f"{self.path}: {error}. It is made again at the next search")
            with suppress(StoreError):  # the file cannot be written
                self._write(tables.discard_index)
            answer = call()
            self._empty_wal()
            return answer

    def _empty_wal(self) -> None:
        """Leave nothing of erased payloads in the write-ahead log, and nothing of a discarded index."""
        if self.has_pending_erasure():
            try:
                self._once(lambda db: db.execute("VACUUM"))
                self._write(tables.forget_discarded)
            except StoreError as error:
                logger.warning(
                    "%s has words of a damaged search index in unused pages, maybe deleted ones, until a "
                    "later deletion can erase them: %s",
                    self.path,
                    error,
                )
        super()._empty_wal()

    def _commit(self, given: Commit) -> Appended:
        def work(db: Connection) -> Appended:
            row = tables.row_of(db, given.session_id) or tables.begin(db, given.session_id)
            if tables.known_seqs(db, row, [given.records[0].id]):
                return tables.append_all(db, row, given.records)[0]
            given.check(row.head, row.epoch)
            appended, totals = tables.append_all(db, row, given.records)
            tables.replace_window(db, row, appended.head, totals, given.window, given.floor)
            if given.erase:
                tables.erase(db, row, given.erase)
            return msgspec.structs.replace(appended, epoch=row.epoch + 1)

        return self._repaired(lambda: self._write(work))

    def delete(self, session_id: str) -> bool:
        """Remove a session with its log; nothing of it stays in the file."""

        def work(db: Connection) -> bool:
            row = tables.row_of(db, session_id)
            if row is not None:
                tables.delete(db, row)
            return row is not None

        deleted = self._repaired(lambda: self._write(work))
        if deleted:
            self._empty_wal()
        return deleted

    def lease(self, session_id: str, holder: str, seconds: float) -> bool:
        """Take, prolong or return the right to pay for a summary, by this machine's clock."""
        statement = _LEASE if seconds else _RETURN
        values: dict[str, Any] = {"id": session_id, "holder": holder, "seconds": seconds}

        def work(db: Connection) -> bool:
            # The time once the file is ours: before that, another may have taken the lease. A clock that
            # was set back ends a lease; it must not make it longer.
            return db.execute(statement, {**values, "now": time.time()}).rowcount == 1

        return self._write(work)

    # ------------------------------------------------------------ reading

    def load(self, session_id: str) -> Snapshot | None:
        """Return the session's snapshot."""

        def work(db: Connection) -> Snapshot | None:
            self._look_for_others(db)
            row = tables.row_of(db, session_id)
            if row is None:
                return None
            kept = tables.snapshot_row(db, row)
            known = dict(tables.records_at(db, row, {item.seq for item in kept.window}))
            return kept.snapshot(row, known, tables.read(db, row, kept.tail, row.head))

        return self._read(work)

    def state(self, session_id: str) -> tuple[int, int] | None:
        """Return the head and the epoch of a session."""
        return self._once(lambda db: tables.state_of(db, session_id))

    def read(
        self, session_id: str, after: int = 0, limit: int = 1_000
    ) -> Sequence[tuple[int, Record]]:
        """Return records of the log."""

        def work(db: Connection) -> list[tuple[int, Record]]:
            row = tables.row_of(db, session_id)
            return tables.read(db, row, after, limit) if row else []

        return self._read(work)

    def find(self, session_id: str, ids: Sequence[str]) -> Sequence[tuple[int, Record]]:
        """Return the records that name one of these ids."""

        def work(db: Connection) -> list[tuple[int, Record]]:
            row = tables.row_of(db, session_id)
            return tables.records_at(db, row, tables.seqs_naming(db, row, ids)) if row else []

        return self._read(work)

    def sessions(self, prefix: str = "") -> Iterable[SessionInfo]:
        """Return the sessions whose ids begin with `prefix`, in the order in which they began."""
        return self._once(lambda db: tables.sessions(db, prefix))

    def search(self, request: SearchRequest) -> Candidates:
        """Return entries that contain some of the terms, by the index as far as it goes.

        The index is brought up to date first. If it cannot be written or read, records are read instead.
        """
        if has_search(self._library):
            with suppress(IndexDamaged):  # and the file cannot be written
                return self._repaired(lambda: self._found(request))
        return scan(request, self._records_in_scope(request))

    def _found(self, request: SearchRequest) -> Candidates:
        if not self._read(partial(tables.is_indexed, missing=True)):
            warn_without_search(self._library)
            return scan(request, self._records_in_scope(request))
        try:
            while not self._read(tables.has_current_index):
                self._write(tables.continue_index)
        except IndexDamaged:
            raise
        except StoreError as error:  # a lock, a full disk, a missing right
            logger.info("the search index of %s was not continued: %s", self.path, error)
        found, upto = self._read(lambda db: tables.search(db, request))
        if not upto:
            return scan(request, self._records_in_scope(request))
        behind = list(self._records_behind(str(upto), request))
        return joined(request, found, scan(request, behind)) if behind else found

    def vectors(self, session_id: str, embed: str, until: int, limit: int) -> Sequence[Vector]:
        """Return the vectors of an embed in a session, the newest first; none if they are damaged."""
        given = session_id, embed, until, limit
        with suppress(IndexDamaged):  # and the file cannot be written
            return self._repaired(lambda: self._read(lambda db: tables.find_vectors(db, *given)))
        return []

    def keep_vectors(self, session_id: str, embed: str, epoch: int, rows: Sequence[Vector]) -> bool:
        """Keep the vectors of an embed, if no entry was deleted since this epoch; others' go."""
        given = session_id, embed, epoch, rows
        return self._repaired(lambda: self._write(lambda db: tables.keep_vectors(db, *given)))

    def _records_in_scope(self, request: SearchRequest) -> Iterator[tuple[str, int, Record]]:
        last, name = 0, request.session_id
        if name is None:
            yield from self._records_behind("", request)
            return
        while records := self.read(name, last):
            yield from ((name, seq, record) for seq, record in records)
            last = records[-1][0]

    def _records_behind(
        self, cursor: str, request: SearchRequest
    ) -> Iterator[tuple[str, int, Record]]:
        while page := self.feed(cursor):
            for each in page:
                if request.covers(each.session_id, each.seq):
                    yield each.session_id, each.seq, each.record
            cursor = page[-1].cursor

    def feed(self, after: str = "", limit: int = 1_000) -> Sequence[FeedItem]:
        """Return the records of every session behind a cursor, in the order of the commits."""
        [number] = numbers_in(after, 1, "a SQLite file")

        def work(db: Connection) -> list[FeedItem]:
            if number > tables.last_number(db):
                raise foreign_cursor(after, self.path)
            return tables.feed(db, number, limit)

        return self._read(work)
