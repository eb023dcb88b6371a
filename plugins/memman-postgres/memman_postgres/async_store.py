"""The store for `AsyncMemoryManager`: the same steps, awaited."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

import psycopg
from psycopg_pool import AsyncConnectionPool, PoolTimeout

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
from memman_postgres.answers import AsyncConnection
from memman_postgres.attempts import Attempts
from memman_postgres.database import Database, is_open, logger
from memman_postgres.transactions import INDEX_SNAPSHOT, INDEX_WRITE, SNAPSHOT, WRITE, Step, T


class AsyncPostgresStore(Database):
    """`PostgresStore` for `AsyncMemoryManager`: no worker threads, the same arguments and laws.

    It connects at its first use, in the event loop of that call.
    """

    blocking = False

    def __init__(self, url: str, **settings: Any) -> None:
        super().__init__(url, **settings)
        self._opening: asyncio.Lock | None = None
        self._pool: AsyncConnectionPool[AsyncConnection] | None = None

    async def append(
        self, session_id: str, records: Sequence[Record], *, expect_head: int | None = None
    ) -> Appended:
        """Append records; one whose id is known keeps its seq."""
        given = session_id, records, expect_head
        appended = await self._run(None, lambda: steps.append_one(*given))
        if appended is None:
            return await self._run(WRITE, lambda: steps.append(*given))
        return appended

    async def commit(
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
        return await self._run(WRITE, step)

    async def load(self, session_id: str) -> Snapshot | None:
        """Return the session's snapshot."""
        return await self._run(SNAPSHOT, lambda: steps.load(session_id))

    async def state(self, session_id: str) -> tuple[int, int] | None:
        """Return the head and the epoch of a session."""
        return await self._run(None, lambda: steps.state(session_id))

    async def read(
        self, session_id: str, after: int = 0, limit: int = 1_000
    ) -> Sequence[tuple[int, Record]]:
        """Return records of the log."""
        return await self._run(SNAPSHOT, lambda: steps.read(session_id, after, limit))

    async def feed(self, after: str = "", limit: int = 1_000) -> Sequence[FeedItem]:
        """Return the records of every session behind a cursor, up to the oldest open transaction."""
        return await self._run(SNAPSHOT, lambda: steps.feed(after, limit))

    async def lease(self, session_id: str, holder: str, seconds: float) -> bool:
        """Take, prolong or return the right to pay for a summary, by the server's clock."""
        return await self._run(None, lambda: steps.lease(session_id, holder, seconds))

    async def find(self, session_id: str, ids: Sequence[str]) -> Sequence[tuple[int, Record]]:
        """Return the records that name one of these ids."""
        return await self._run(SNAPSHOT, lambda: steps.find(session_id, ids))

    async def erase(
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
        return await self._delete(step)

    async def search(self, request: SearchRequest) -> Candidates:
        """Return entries that contain some of the terms; indexes missing entries first.

        What cannot be indexed, for a lock, a missing right or a full disk, is read instead. So are all
        records if the index is damaged; it is made again.
        """
        progress = index.Progress()
        try:
            while not progress.done:
                progress = await self._run(INDEX_WRITE, partial(index.catch_up, request, progress))
        except StoreError as error:
            logger.info("the search index was not continued: %s", error)
        try:
            step = partial(searching.search, request, is_current=progress.done)
            return await self._run(INDEX_SNAPSHOT, step)
        except StoreError as error:
            logger.info("the search index was not used: %s", error)
            return await self._run(SNAPSHOT, lambda: searching.scanned(request, behind_index=False))

    async def sessions(self, prefix: str = "") -> Iterable[SessionInfo]:
        """Return the sessions whose ids begin with `prefix`, in the order in which they began."""
        return await self._run(None, lambda: steps.sessions(prefix))

    async def delete(self, session_id: str) -> bool:
        """Remove a session with its log."""
        return await self._delete(partial(steps.delete, session_id, set()))

    async def _delete(self, step: Callable[[], Step[T]]) -> T:
        """Delete from the log, and remove the words of this and earlier deletions from the index."""
        deleted = await self._run(WRITE, step)
        try:
            if await self._run(None, erasure.marked):
                await self._run(INDEX_WRITE, erasure.remove_marked)
        except StoreError as error:
            self._warn_of_words(error)
        return deleted

    async def close(self) -> None:
        """Close the connections. Any other later call raises `StoreError`."""
        self._closed = True
        if self._pool is not None and self._pid == os.getpid():
            await self._pool.close()
        self._pool = None

    async def _run(self, begin: str | None, step: Callable[[], Step[T]]) -> T:
        attempts = Attempts(self._timeout)
        while True:
            pool = await self._connect()
            try:
                async with pool.connection() as connection:
                    with self._using(connection):
                        return await _adrive(connection, begin, step())
            except index.IndexDamaged as error:
                warn_once("memman", f"{self._where()}: {error}; records are read instead")
                await self._run(INDEX_WRITE, tables.remake_index)
                raise
            except (psycopg.Error, PoolTimeout) as error:
                pause = attempts.pause_after(error)
                if pause is None:
                    self._failed(error, attempts.broken)
            await asyncio.sleep(pause)
            if attempts.broken:
                await pool.check()

    async def _connect(self) -> AsyncConnectionPool[AsyncConnection]:
        if self._closed:
            raise StoreError(f"the store of {self._where()} is closed")
        if self._pool is not None and self._pid == os.getpid():
            return self._pool
        if self._opening is None or self._pid not in (0, os.getpid()):
            self._opening = asyncio.Lock()
        async with self._opening:
            if self._pool is None or self._pid != os.getpid():
                # Tables are created once, so the sync code does it on a thread.
                await asyncio.to_thread(self._set_up)
                pool = AsyncConnectionPool(
                    connection_class=AsyncConnection,
                    configure=self._configure,
                    open=False,
                    **self._pooled,
                )
                await pool.open()
                self._pool, self._pid = pool, os.getpid()
            return self._pool

    async def _configure(self, connection: AsyncConnection) -> None:
        connection.answer_timeout = self._answer_timeout


async def _adrive(connection: psycopg.AsyncConnection[Any], begin: str | None, step: Step[T]) -> T:
    resume: Callable[[Any], Any] = step.send
    answer: Any = None
    try:
        if begin is not None:
            await connection.execute(begin.encode())
        while True:
            try:
                statement, arguments = resume(answer)
            except StopIteration as end:
                if begin is not None:
                    await connection.execute(b"COMMIT")
                value: T = end.value
                return value
            try:
                cursor = await connection.execute(statement.encode(), arguments)
                rows = await cursor.fetchall() if cursor.description else []
                resume, answer = step.send, rows
            except psycopg.Error as error:
                resume, answer = step.throw, error
    except BaseException:
        if is_open(connection):
            await connection.execute(b"ROLLBACK")
        raise
