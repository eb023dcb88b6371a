"""The tables of a store: the script that creates them, and a store that is restored from a copy."""

from __future__ import annotations

from contextlib import suppress
from importlib.resources import files
from typing import Any

import psycopg

from memman.errors import InvalidInput
from memman_postgres.transactions import BRIEFLY, Step

VERSION = 1
_BY_HASH = "PARTITION BY HASH (session)"
_MOST_PARTITIONS = 10_000
_LOCK = b"SELECT pg_advisory_xact_lock(1835363694)"  # "memn": one process at a time
# The last position, if no transaction of this server can have written it.
_AHEAD = """
SELECT last FROM memman_store, (SELECT greatest(max(position), %s) AS last FROM memman_record) AS given
WHERE last >= behind + pg_snapshot_xmax(pg_current_snapshot())::text::bigint
"""
# A search finds new records by the position before which all are indexed.
_INDEXED = "SELECT max(upto) - 1 FROM memman_indexed WHERE session = 0"
_SHAPE = """
SELECT (SELECT count(*) FROM pg_inherits WHERE inhparent = its.oid),
    EXISTS (SELECT FROM pg_attribute WHERE attrelid = its.oid AND attname = 'tenant' AND NOT attisdropped)
FROM pg_class AS its WHERE oid = 'memman_record'::regclass
"""
_DROP_INDEX = """
DROP TABLE IF EXISTS memman_indexed, memman_word;
DROP TEXT SEARCH CONFIGURATION IF EXISTS memman_english;
DROP TEXT SEARCH DICTIONARY IF EXISTS memman_english;
"""


def schema(partitions: int = 0, *, tenants: bool = False) -> str:
    """Return the statements that create the tables, for a database whose users may not.

    Args:
        partitions: the number of tables for records, for mentions and for words, divided by a hash of their
            session; 0 for one table each. To change it later, the data must be copied.
        tenants: add row-level security, so that each tenant has its own sessions.

    Raises:
        InvalidInput: `partitions` is negative or above 10,000.
    """
    if not 0 <= partitions <= _MOST_PARTITIONS:
        raise InvalidInput(f"partitions={partitions} must be between 0 and {_MOST_PARTITIONS:,}")
    script = _script("schema.sql")
    if partitions:
        script = script.replace(f"/* {_BY_HASH} */", _BY_HASH) + _parts(partitions)
    return script + _script("append.sql") + (_script("tenants.sql") if tenants else "")


def _parts(number: int) -> str:
    return "".join(
        f"CREATE TABLE IF NOT EXISTS {table}_{part} PARTITION OF {table}"
        f" FOR VALUES WITH (MODULUS {number}, REMAINDER {part});\n"
        for table in ("memman_record", "memman_mention", "memman_word")
        for part in range(number)
    )


def made_ready(connection: psycopg.Connection[Any], create: bool) -> int | None:
    """Return the version of the tables, None without one; create them first if `create` allows it."""
    if create:
        _made(connection)
    found = connection.execute("SELECT version FROM memman_store").fetchall()
    version = int(found[0][0]) if found else None
    if create and version == VERSION:
        _moved(connection)
    return version


def _script(name: str) -> str:
    return files("memman_postgres").joinpath(name).read_text()


def _made(connection: psycopg.Connection[Any]) -> None:
    """Create the tables if they are missing; one process at a time."""
    if connection.execute("SELECT to_regclass('memman_session')").fetchall() != [(None,)]:
        return
    with connection.transaction():
        connection.execute(_LOCK)
        connection.execute(schema().encode())


def _moved(connection: psycopg.Connection[Any]) -> None:
    """Continue positions behind those of data that was restored from another server.

    A restored copy has ids of transactions that this server will use in the future; without this, its feed
    would stop until then.
    """
    indexed: tuple[Any, ...] | None = (None,)
    with suppress(psycopg.Error), connection.transaction():  # a search makes a damaged index again
        connection.execute(BRIEFLY)
        indexed = connection.execute(_INDEXED).fetchone()
    if not connection.execute(_AHEAD, indexed).fetchall():
        return
    with connection.transaction():
        connection.execute(_LOCK)
        connection.execute("LOCK TABLE memman_session IN EXCLUSIVE MODE")  # no writers
        for (last,) in connection.execute(_AHEAD, indexed).fetchall():
            connection.execute("UPDATE memman_store SET behind = %s", (last,))


def remake_index() -> Step[None]:
    """Create the tables of the index again, with the rights on records; without the right, empty them."""
    [(partitions, tenants)] = yield _SHAPE, ()
    yield "SAVEPOINT words", ()
    try:
        script = _DROP_INDEX + schema(partitions, tenants=tenants) + _script("rights.sql")
        yield script, None
    except psycopg.errors.InsufficientPrivilege:
        yield "ROLLBACK TO SAVEPOINT words", ()
        yield "DELETE FROM memman_indexed", ()
        yield "DELETE FROM memman_word", ()
    yield "DELETE FROM memman_mention WHERE id = ''", ()
