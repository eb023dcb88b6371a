"""The store in PostgreSQL.

A session's row is locked while its log grows, so the log has no gaps; different sessions do not wait for
each other. A call that fails because of a concurrent writer or a broken connection is repeated: every step
may run again, since records are recognised by their ids.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

import psycopg
from psycopg_pool import ConnectionPool, PoolTimeout

from memman.display import warn_once
from memman.errors import StoreError
from memman.protocols import (
    Appended,
    Candidates,
    FeedItem,
    SearchRequest,
    SessionInfo,
    Snapshot,
    StoredItem,
)
from memman.records import Record
from memman_postgres import erasure, index, steps, tables
from memman_postgres import search as searching
from memman_postgres.answers import Connection
from memman_postgres.attempts import Attempts
from memman_postgres.database import Database, is_open, logger
from memman_postgres.transactions import INDEX_SNAPSHOT, INDEX_WRITE, SNAPSHOT, WRITE, Step, T


class PostgresStore(Database):
    """Logs in PostgreSQL, for any number of processes on any number of machines.

    Args:
        url: `postgresql://user:password@host:port/database`, or a libpq connection string.
        pool_size: connections at most.
        durability: "full" waits for the disk at each commit, as the server is set; "fast" does not
            (synchronous_commit=off), and a crash of the server may lose the last moments.
        timeout: seconds to wait for a connection, and to repeat a call after a broken connection or a
            collision with another writer.
        answer_timeout: seconds that the server has to answer one statement; then the connection is closed,
            and after `timeout` the call raises a `StoreError`.
        create: create missing tables; with False they must exist (`schema()`).

    Raises:
        StoreError: an argument has a wrong type or value, the server cannot be reached or refuses, or
            its tables are of a newer version.

    Every method is atomic and may be called from any thread. A forked child connects for itself.
    """

    blocking = True

    def __init__(self, url: str, **settings: Any) -> None:
        super().__init__(url, **settings)
        self._opening = threading.Lock()
        self._pool: ConnectionPool[Connection] | None = None
        self._connect()

    def append(
        self, session_id: str, records: Sequence[Record], *, expect_head: int | None = None
    ) -> Appended:
        """Append records; one whose id is known keeps its seq."""
        given = session_id, records, expect_head
        appended = self._run(None, lambda: steps.append_one(*given))
        if appended is None:
            return self._run(WRITE, lambda: steps.append(*given))
        return appended

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
        step = partial(steps.commit, session_id, epoch, records, window, floor, expect_head)
        return self._run(WRITE, step)

    def load(self, session_id: str) -> Snapshot | None:
        """Return the session's snapshot."""
        return self._run(SNAPSHOT, lambda: steps.load(session_id))

    def state(self, session_id: str) -> tuple[int, int] | None:
        """Return the head and the epoch of a session."""
        return self._run(None, lambda: steps.state(session_id))

    def read(
        self, session_id: str, after: int = 0, limit: int = 1_000
    ) -> Sequence[tuple[int, Record]]:
        """Return records of the log."""
        return self._run(SNAPSHOT, lambda: steps.read(session_id, after, limit))

    def feed(self, after: str = "", limit: int = 1_000) -> Sequence[FeedItem]:
        """Return the records of every session behind a cursor, up to the oldest open transaction."""
        return self._run(SNAPSHOT, lambda: steps.feed(after, limit))

    def lease(self, session_id: str, holder: str, seconds: float) -> bool:
        """Take, prolong or return the right to pay for a summary, by the server's clock."""
        return self._run(None, lambda: steps.lease(session_id, holder, seconds))

    def find(self, session_id: str, ids: Sequence[str]) -> Sequence[tuple[int, Record]]:
        """Return the records that name one of these ids."""
        return self._run(SNAPSHOT, lambda: steps.find(session_id, ids))

    def erase(
        self,
        session_id: str,
        epoch: int,
        record: Record,
        window: Sequence[StoredItem],
        floor: int,
        ids: frozenset[str],
    ) -> Appended:
        """Commit a deletion and overwrite payloads; VACUUM then removes the old rows from the files."""
        step = partial(steps.commit, session_id, epoch, (record,), window, floor, None, ids)
        return self._delete(step)

    def search(self, request: SearchRequest) -> Candidates:
        """Return entries that contain some of the terms; indexes missing entries first.

        What cannot be indexed, for a lock, a missing right or a full disk, is read instead. So are all
        records if the index is damaged; it is made again.
        """
        progress = index.Progress()
        try:
            while not progress.done:
                progress = self._run(INDEX_WRITE, partial(index.catch_up, request, progress))
        except StoreError as error:
            logger.info("the search index was not continued: %s", error)
        try:
            step = partial(searching.search, request, is_current=progress.done)
            return self._run(INDEX_SNAPSHOT, step)
        except StoreError as error:
            logger.info("the search index was not used: %s", error)
            return self._run(SNAPSHOT, lambda: searching.scanned(request, behind_index=False))

    def sessions(self, prefix: str = "") -> Iterable[SessionInfo]:
        """Return the sessions whose ids begin with `prefix`, in the order in which they began."""
        return self._run(None, lambda: steps.sessions(prefix))

    def delete(self, session_id: str) -> bool:
        """Remove a session with its log."""
        return self._delete(partial(steps.delete, session_id, set()))

    def _delete(self, step: Callable[[], Step[T]]) -> T:
        """Delete from the log, and remove the words of this and earlier deletions from the index."""
        deleted = self._run(WRITE, step)
        try:
            if self._run(None, erasure.marked):
                self._run(INDEX_WRITE, erasure.remove_marked)
        except StoreError as error:
            self._warn_of_words(error)
        return deleted

    def close(self) -> None:
        """Close the connections. Any other later call raises `StoreError`."""
        self._closed = True
        if self._pool is not None and self._pid == os.getpid():
            self._pool.close()
        self._pool = None

    # ------------------------------------------------------------ the database

    def _run(self, begin: str | None, step: Callable[[], Step[T]]) -> T:
        """Run a step to its end, and repeat it if that may help."""
        attempts = Attempts(self._timeout)
        while True:
            pool = self._connect()
            try:
                with pool.connection() as connection, self._using(connection):
                    return _drive(connection, begin, step())
            except index.IndexDamaged as error:
                warn_once("memman", f"{self._where()}: {error}; records are read instead")
                self._run(INDEX_WRITE, tables.remake_index)
                raise
            except (psycopg.Error, PoolTimeout) as error:
                pause = attempts.pause_after(error)
                if pause is None:
                    self._failed(error, attempts.broken)
            time.sleep(pause)
            if attempts.broken:
                pool.check()  # the other connections may be broken, too

    def _connect(self) -> ConnectionPool[Connection]:
        if self._closed:
            raise StoreError(f"the store of {self._where()} is closed")
        pool = self._pool
        if pool is not None and self._pid == os.getpid():
            return pool
        with self._opening:
            if self._pool is None or self._pid != os.getpid():
                self._set_up()
                # A pool inherited over a fork stays untouched: its connections are the parent's.
                self._pool = ConnectionPool(
                    connection_class=Connection,
                    configure=self._configure,
                    open=True,
                    **self._pooled,
                )
                self._pid = os.getpid()
            return self._pool

    def _configure(self, connection: Connection) -> None:
        connection.answer_timeout = self._answer_timeout


def _drive(connection: psycopg.Connection[Any], begin: str | None, step: Step[T]) -> T:
    resume: Callable[[Any], Any] = step.send
    answer: Any = None
    try:
        if begin is not None:
            connection.execute(begin.encode())
        while True:
            try:
                statement, arguments = resume(answer)
            except StopIteration as end:
                if begin is not None:
                    connection.execute(b"COMMIT")
                value: T = end.value
                return value
            try:
                cursor = connection.execute(statement.encode(), arguments)
                rows = cursor.fetchall() if cursor.description else []
                resume, answer = step.send, rows
            except psycopg.Error as error:
                resume, answer = step.throw, error
    except BaseException:
        if is_open(connection):
            connection.execute(b"ROLLBACK")
        raise
