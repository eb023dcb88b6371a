"""The store for `AsyncMemoryManager`: the same steps, awaited."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, TypeVar

import psycopg
from psycopg_pool import AsyncConnectionPool, PoolTimeout

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
from memman.stores.rows import UNREADABLE
from memman_postgres import index, steps
from memman_postgres import search as searching
from memman_postgres.answers import AsyncConnection
from memman_postgres.attempts import Attempts
from memman_postgres.database import SNAPSHOT, WRITE, Database, is_open
from memman_postgres.steps import Step

T = TypeVar("T")

logger = logging.getLogger("memman")


class AsyncPostgresStore(Database):
    """`PostgresStore` for `AsyncMemoryManager`: no worker threads, the same arguments and laws.

    It connects at its first use, in the event loop of that call.
    """

    blocking = False

    def __init__(self, url: str, **settings: Any) -> None:
        super().__init__(url, **settings)
        self._opening: asyncio.Lock | None = None
        self._pool: AsyncConnectionPool[AsyncConnection] | None = None
        self._pid = 0
        self._closed = False

    async def append(
        self, session_id: str, records: Sequence[Record], *, expect_head: int | None = None
    ) -> Appended:
        """Append records; one whose id is known keeps its seq."""
        record = steps.single(records, expect_head)
        if record is not None:
            appended = await self._run(None, lambda: steps.append_one(session_id, record))
            if appended is not None:
                return appended
        return await self._run(WRITE, lambda: steps.append(session_id, records, expect_head))

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
        return await self._run(
            WRITE,
            lambda: steps.commit(session_id, epoch, records, window, floor, expect_head),
        )

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
        return await self._run(
            WRITE,
            lambda: steps.commit(session_id, epoch, (record,), window, floor, None, ids),
        )

    async def search(self, request: SearchRequest) -> Candidates:
        """Return entries that contain some of the terms; indexes missing entries first.

        What cannot be indexed, for a missing right or a full disk, is read instead.
        """
        progress = index.Progress()
        try:
            while not progress.done:
                progress = await self._run(WRITE, partial(index.catch_up, request, progress))
            return await self._run(SNAPSHOT, lambda: searching.search(request))
        except StoreError as error:
            logger.info("the search index was not continued: %s", error)
        try:
            return await self._run(SNAPSHOT, lambda: searching.search(request, is_current=False))
        except StoreError:
            return await self._run(SNAPSHOT, lambda: searching.scanned(request, behind_index=False))

    async def sessions(self, prefix: str = "") -> Iterable[SessionInfo]:
        """Return the sessions whose ids begin with `prefix`, in the order in which they began."""
        return await self._run(None, lambda: steps.sessions(prefix))

    async def delete(self, session_id: str) -> bool:
        """Remove a session with its log."""
        found: set[int] = set()
        return await self._run(WRITE, lambda: steps.delete(session_id, found))

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
            except UNREADABLE as error:
                raise self._unreadable(error) from None  # the cause quotes the unreadable text
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
                    self._url,
                    min_size=1,
                    max_size=self._size,
                    connection_class=AsyncConnection,
                    configure=self._configure,
                    kwargs=self._settings,
                    timeout=self._timeout,
                    open=False,
                )
                await pool.open()
                self._pool, self._pid = pool, os.getpid()
            return self._pool

    async def _configure(self, connection: AsyncConnection) -> None:
        connection.answer_timeout = self._answer_timeout


async def _adrive(connection: psycopg.AsyncConnection[Any], begin: str | None, step: Step[T]) -> T:
    rows: Any = None
    try:
        if begin is not None:
            await connection.execute(begin.encode())
        while True:
            try:
                statement, arguments = step.send(rows)
            except StopIteration as end:
                if begin is not None:
                    await connection.execute(b"COMMIT")
                value: T = end.value
                return value
            cursor = await connection.execute(statement.encode(), arguments)
            rows = await cursor.fetchall() if cursor.description else []
    except BaseException:
        if is_open(connection):
            await connection.execute(b"ROLLBACK")
        raise
