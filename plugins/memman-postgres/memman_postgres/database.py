"""The part that the sync and the async store share: connecting, and the meaning of errors."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal, NoReturn

import psycopg
from psycopg_pool import PoolTimeout

from memman.errors import StoreBusy, StoreError, StoreFull
from memman.providers import safe_repr
from memman.stores.rows import UNREADABLE, UnknownRecord
from memman.stores.settings import check_choice, check_seconds, check_switch, check_whole
from memman_postgres.answers import Connection
from memman_postgres.attempts import AGAIN, TOO_LONG, advice, said
from memman_postgres.index import IndexDamaged
from memman_postgres.tables import VERSION, made_ready

logger = logging.getLogger("memman")
Durability = Literal["fast", "full"]

_URL = "postgresql://user:password@host:port/database"


class Database:
    """A database by its URL."""

    def __init__(
        self,
        url: str,
        *,
        pool_size: int = 8,
        durability: Durability = "full",
        timeout: float = 10.0,
        answer_timeout: float = 60.0,
        create: bool = True,
    ) -> None:
        if not isinstance(url, str):
            raise StoreError(f"{safe_repr(url)} is not a URL: write {_URL}")
        check_choice("durability", durability, ("fast", "full"))
        check_whole("pool_size", pool_size, least=1)
        check_seconds("timeout", timeout)
        check_seconds("answer_timeout", answer_timeout, zero=False)
        check_switch("create", create)
        self._url = url
        self._given()
        self._answer_timeout = answer_timeout
        self._size = pool_size
        self._in_use: set[int] = set()
        self._pid = 0  # of the process that opened the pool
        self._closed = False
        self._timeout = timeout
        self._create = create
        self._settings: dict[str, Any] = {
            "autocommit": True,
            # A prepared statement belongs to one connection, and a pooler changes connections.
            "prepare_threshold": None,
            "connect_timeout": max(2, int(timeout)),
        }
        if durability == "fast":
            self._settings["options"] = (
                f"{self._given().get('options', '')} -c synchronous_commit=off"
            )

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._where()}>"

    def _where(self) -> str:
        """Return the name and host of the database, without the password."""
        given = self._given()
        return f"database {given.get('dbname', '')!r} at {given.get('host', 'the local socket')}"

    def _given(self) -> dict[str, Any]:
        """Return the parameters of the URL. Raises `StoreError`, which does not quote the URL."""
        try:
            return dict(psycopg.conninfo.conninfo_to_dict(self._url))
        except psycopg.Error:
            raise StoreError(f"the URL of the store cannot be read: write {_URL}") from None

    def _failed(self, error: Exception, broken: Exception | None = None) -> NoReturn:
        """Raise the error that ends a call; `broken` is the error of an earlier attempt."""
        where = self._where()
        if isinstance(error, psycopg.errors.DiskFull):
            raise StoreFull(f"no room in {where}; nothing was changed") from error
        if isinstance(error, TOO_LONG):
            raise StoreBusy(
                f"{where} took longer than the server allows ({said(error)}); nothing was changed{AGAIN}"
            ) from error
        if isinstance(error, PoolTimeout) and broken is None:
            why = (
                f"all {self._size} of the pool are in use: give it a larger pool_size, or fewer threads"
                if len(self._in_use) >= self._size
                else "the server is away, or accepts no more connections"
            )
            raise StoreBusy(
                f"no connection to {where} within {self._timeout:g} s: {why}. Nothing was changed{AGAIN}"
            ) from error
        # After a broken connection the outcome of its last write is unknown.
        error = broken or error
        raise StoreError(f"PostgreSQL failed on {where}: {said(error)}{advice(error)}") from error

    @property
    def _pooled(self) -> dict[str, Any]:
        """The arguments of a pool of either kind."""
        sizes = {"min_size": 1, "max_size": self._size}
        return {"conninfo": self._url, "kwargs": self._settings, "timeout": self._timeout, **sizes}

    @contextmanager
    def _using(self, connection: Any) -> Iterator[None]:
        """Note that a connection of the pool is in use; raise `StoreError` for an unreadable record."""
        self._in_use.add(id(connection))
        try:
            yield
        except UNREADABLE as error:
            raise self._unreadable(error) from None  # the cause quotes the unreadable text
        finally:
            self._in_use.discard(id(connection))

    def _warn_of_words(self, error: StoreError) -> None:
        """Warn that a deletion could not change the index, unless it was made again without words."""
        if not isinstance(error, IndexDamaged):
            pending = "words of deleted entries are in the search index until a later deletion erases them"
            logger.warning("%s: %s", pending, error)

    def _unreadable(self, error: Exception) -> StoreError:
        """Return the error for a record that cannot be read, without quoting it."""
        if isinstance(error, UnknownRecord):
            return StoreError(
                f"{self._where()}: {error}. If that does not help, the database is damaged: restore a "
                "copy of it"
            )
        return StoreError(
            f"{self._where()} is damaged: a record, or what belongs to one, cannot be read; nothing was "
            "changed. Restore a copy of it"
        )

    def _set_up(self) -> None:
        """Connect once without the pool, so that a wrong URL fails at once and with its own error."""
        try:
            connection = Connection.connect(self._url, **self._settings)
            connection.answer_timeout = self._answer_timeout
        except psycopg.Error as error:
            raise StoreError(
                f"cannot connect to {self._where()}: {said(error)}. Is the server running there, and "
                "are the URL's user, password and database right?"
            ) from error
        try:
            with connection:
                version = made_ready(connection, self._create)
        except psycopg.Error as error:
            self._failed(error)
        self._check(version)

    def _check(self, version: int | None) -> None:
        where = self._where()
        if version is None:
            raise StoreError(
                f"{where} shows no row of memman_store: the tables are incomplete, or the tenant is empty"
            )
        if version > VERSION:
            raise StoreError(
                f"{where} has tables of version {version}, and this plugin knows version {VERSION}: "
                "install a newer memman-postgres"
            )


def is_open(connection: psycopg.Connection[Any] | psycopg.AsyncConnection[Any]) -> bool:
    """Return whether a transaction must be rolled back."""
    idle = psycopg.pq.TransactionStatus.IDLE
    return not connection.closed and connection.info.transaction_status != idle
