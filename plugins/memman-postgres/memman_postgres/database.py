"""What both doors' stores know of the database: how to reach it, its tables, and what its errors mean."""

from __future__ import annotations

from importlib.resources import files
from typing import Any, Literal, NoReturn

import psycopg
from psycopg_pool import PoolTimeout

from memman.errors import StoreBusy, StoreError, StoreFull

Durability = Literal["fast", "full"]

VERSION = 2
_LOCK = b"SELECT pg_advisory_xact_lock(1835363694)"  # "memn": one process at a time
WRITE = "BEGIN"
SNAPSHOT = "BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY"
PAUSE = 0.05  # seconds before the second attempt; twice as long before each further one
_ATTEMPTS = 4
# The last position, where no transaction of this server can have given it.
_AHEAD = """
SELECT last FROM memman_store, (SELECT max(position) AS last FROM memman_record) AS given
WHERE last >= behind + pg_snapshot_xmax(pg_current_snapshot())::text::bigint
"""
_AGAIN = (
    psycopg.errors.SerializationFailure,
    psycopg.errors.DeadlockDetected,
    psycopg.errors.UniqueViolation,  # two began the same session, or added the same record, at once
    psycopg.OperationalError,  # the connection broke, or the server restarts
)


class Database:
    """A database by its URL; what the two stores have in common."""

    def __init__(
        self,
        url: str,
        *,
        pool_size: int = 8,
        durability: Durability = "full",
        timeout: float = 10.0,
        create: bool = True,
    ) -> None:
        if durability not in ("fast", "full"):
            raise StoreError(f'durability={durability!r} is neither "fast" nor "full"')
        if pool_size < 1:
            raise StoreError(f"pool_size={pool_size} must be at least 1")
        self._url = url
        self._given()
        self._size = pool_size
        self._timeout = timeout
        self._create = create
        self._settings: dict[str, Any] = {
            "autocommit": True,
            # A prepared statement belongs to a connection, and behind a pooler the next one is another.
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
        """The database without the password."""
        given = self._given()
        return f"database {given.get('dbname', '')!r} at {given.get('host', 'the local socket')}"

    def _given(self) -> dict[str, Any]:
        """What the URL says. Raises `StoreError` where it says nothing, without repeating it."""
        try:
            return dict(psycopg.conninfo.conninfo_to_dict(self._url))
        except psycopg.Error:
            raise StoreError(
                "the URL of the store cannot be read: write postgresql://user:password@host:port/database"
            ) from None

    def _failed(self, error: Exception) -> NoReturn:
        if isinstance(error, psycopg.errors.DiskFull):
            raise StoreFull(f"no room in {self._where()}; nothing was changed") from error
        if isinstance(error, PoolTimeout | psycopg.errors.LockNotAvailable):
            raise StoreBusy(
                f"no connection to {self._where()} within {self._timeout:g} s: all {self._size} of "
                "the pool are in use, or the server is away. The same call may be made again"
            ) from error
        said = str(error).strip().splitlines() or [type(error).__name__]
        # Where a connection broke, whether its last write was made is not known: records have ids.
        again = ". The same call may be made again" if isinstance(error, _AGAIN) else ""
        raise StoreError(f"PostgreSQL failed on {self._where()}: {said[0]}{again}") from error

    def _set_up(self) -> None:
        """Connects once by itself, so that what is wrong is told as such and at once."""
        try:
            with psycopg.connect(self._url, **self._settings) as connection:
                if self._create:
                    _made(connection)
                version = _version(connection)
                if self._create and version < VERSION:
                    version = _migrated(connection)
                if self._create and version == VERSION:
                    _moved(connection)
        except psycopg.Error as error:
            self._failed(error)
        if version > VERSION:
            raise StoreError(
                f"{self._where()} is of version {version} and this plugin knows up to {VERSION}: "
                "install a newer memman-postgres"
            )
        if version < VERSION:
            raise StoreError(
                f"{self._where()} is of version {version} and this plugin needs {VERSION}: open it once "
                "with create=True, or run the statements of memman_postgres.database.migrations()"
            )


def schema() -> str:
    """The statements that make the tables, for a database whose users may not make any."""
    return _script("schema.sql")


def migrations(version: int = 1) -> str:
    """The statements that bring tables of a version to that of this plugin; in one transaction."""
    return "".join(_script(f"migration_{number}.sql") for number in range(version + 1, VERSION + 1))


def _script(name: str) -> str:
    return files("memman_postgres").joinpath(name).read_text()


def mends(error: Exception, attempt: int) -> bool:
    """Whether trying again may help."""
    return isinstance(error, _AGAIN) and attempt + 1 < _ATTEMPTS


def _made(connection: psycopg.Connection[Any]) -> None:
    """Makes the tables unless they are there; one process at a time."""
    if connection.execute("SELECT to_regclass('memman_name')").fetchall() != [(None,)]:
        return
    with connection.transaction():
        connection.execute(_LOCK)
        connection.execute(schema().encode())


def _version(connection: psycopg.Connection[Any]) -> int:
    [(version,)] = connection.execute("SELECT version FROM memman_store").fetchall()
    return int(version)


def _migrated(connection: psycopg.Connection[Any]) -> int:
    """Brings older tables to this version, one process at a time; the version that they have then."""
    with connection.transaction():
        connection.execute(_LOCK)
        version = _version(connection)  # another process may have been faster
        connection.execute(migrations(version).encode())
    return max(version, VERSION)


def _moved(connection: psycopg.Connection[Any]) -> None:
    """Where the data came from another server, lets positions go on behind those that it brought.

    A restored copy holds ids of transactions that this server has yet to give, and its feed would stand
    still until then.
    """
    if not connection.execute(_AHEAD).fetchall():
        return
    with connection.transaction():
        connection.execute(_LOCK)
        connection.execute("LOCK TABLE memman_session IN EXCLUSIVE MODE")  # nobody writes meanwhile
        for (last,) in connection.execute(_AHEAD).fetchall():
            connection.execute("UPDATE memman_store SET behind = %s", (last,))


def is_open(connection: psycopg.Connection[Any] | psycopg.AsyncConnection[Any]) -> bool:
    """Whether a transaction is to be rolled back."""
    idle = psycopg.pq.TransactionStatus.IDLE
    return not connection.closed and connection.info.transaction_status != idle
