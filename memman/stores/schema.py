"""The tables of a SQLite store, as an ordered list of versions: forward only, each in one transaction.

A file may come from somebody else, so its schema is compared with ours before anything is read.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Final

from memman.stores.drivers import Library

if TYPE_CHECKING:
    from sqlite3 import Connection

APPLICATION_ID: Final = 0x6D656D6E  # "memn": a file of another program is told apart by it

# A record's key is its session's number and its seq, so that a session's records are neighbours in their
# order. `name` (now `named`) finds a record by its id, and a compression by the ids of its replacements.
_FIRST: Final = (
    "CREATE TABLE store (first_epoch INTEGER NOT NULL)",
    "INSERT INTO store VALUES (0)",
    """CREATE TABLE session (
        number INTEGER PRIMARY KEY AUTOINCREMENT,
        id TEXT NOT NULL UNIQUE,
        head INTEGER NOT NULL,
        epoch INTEGER NOT NULL,
        entries INTEGER NOT NULL,
        tokens INTEGER NOT NULL,
        floor INTEGER NOT NULL,
        places BLOB NOT NULL,
        folded INTEGER NOT NULL,
        ledger BLOB NOT NULL
    )""",
    "CREATE TABLE record (key INTEGER PRIMARY KEY, payload BLOB NOT NULL)",
    """CREATE TABLE name (
        session INTEGER NOT NULL,
        id TEXT NOT NULL,
        seq INTEGER NOT NULL,
        PRIMARY KEY (session, id)
    ) WITHOUT ROWID""",
)

# One row for each write: the records `first` to `last` of a session. Positions are given under the file's
# write lock, so that they are the order of the commits. Rows of deleted sessions stay, as SQLite would give
# the last position again. `lease_*` are seconds since 1970, NULL where nobody holds the lease.
_FEED_AND_LEASES: Final = (
    """CREATE TABLE feed (
        position INTEGER PRIMARY KEY,
        session INTEGER NOT NULL,
        first INTEGER NOT NULL,
        last INTEGER NOT NULL
    )""",
    "INSERT INTO feed (session, first, last) SELECT number, 1, head FROM session ORDER BY number",
    "ALTER TABLE session ADD COLUMN lease_holder TEXT",
    "ALTER TABLE session ADD COLUMN lease_from REAL",
    "ALTER TABLE session ADD COLUMN lease_until REAL",
)

# An append writes to `record` and `name` alone, where it can. A session's newest record has the era's
# totals behind it (the older ones of a migrated file have 0). A row of the feed is a run of one session's
# records; the newest is open, `last` being NULL, until another session is written to.
_APPENDS_TO_TWO_TABLES: Final = (
    "ALTER TABLE record ADD COLUMN entries INTEGER NOT NULL DEFAULT 0",
    "ALTER TABLE record ADD COLUMN tokens INTEGER NOT NULL DEFAULT 0",
    """UPDATE record SET (entries, tokens) = (
        SELECT session.entries, session.tokens FROM session WHERE session.number = record.key >> 32
    ) WHERE key IN (SELECT (number << 32) + head FROM session)""",
    "ALTER TABLE session RENAME TO older_session",
    """CREATE TABLE session (
        number INTEGER PRIMARY KEY AUTOINCREMENT,
        id TEXT NOT NULL UNIQUE,
        epoch INTEGER NOT NULL,
        floor INTEGER NOT NULL,
        folded INTEGER NOT NULL,
        places BLOB NOT NULL,
        ledger BLOB NOT NULL,
        lease_holder TEXT,
        lease_from REAL,
        lease_until REAL
    )""",
    "INSERT INTO session SELECT number, id, epoch, floor, folded, places, ledger,"
    " lease_holder, lease_from, lease_until FROM older_session",
    # No number is given twice, whatever was deleted: rows of the feed stay.
    "DELETE FROM sqlite_sequence WHERE name = 'session'",
    "INSERT INTO sqlite_sequence SELECT 'session', seq FROM sqlite_sequence WHERE name = 'older_session'",
    "DROP TABLE older_session",
    "ALTER TABLE feed RENAME TO older_feed",
    """CREATE TABLE feed (
        position INTEGER PRIMARY KEY,
        session INTEGER NOT NULL,
        first INTEGER NOT NULL,
        last INTEGER
    )""",
    "INSERT INTO feed SELECT position, session, first, last FROM older_feed",
    "DROP TABLE older_feed",
)

# An append writes to `record` alone: an entry's name is written later, with others. The table is called
# otherwise so that an older memman that has the file open is refused: it would miss the names to come.
_NAMES_WRITTEN_LATER: Final = ("ALTER TABLE name RENAME TO named",)

VERSIONS: Final[tuple[tuple[str, ...], ...]] = (
    _FIRST,
    _FEED_AND_LEASES,
    _APPENDS_TO_TWO_TABLES,
    _NAMES_WRITTEN_LATER,
)

_PARTS: Final = """
SELECT type || ' ' || name,
    (SELECT group_concat(name || ' ' || type || ' ' || hidden) FROM pragma_table_xinfo(part.name))
FROM sqlite_master AS part WHERE name NOT LIKE 'sqlite~_%' ESCAPE '~'
"""


def distrust(db: Connection) -> None:
    """Make a connection run no functions that the file's schema names, and check its pages."""
    db.execute("PRAGMA trusted_schema = OFF")
    db.execute("PRAGMA cell_size_check = ON")


def strange_part(db: Connection, library: Library) -> str | None:
    """The table or index that differs from ours, with its columns; None if there is none."""
    differing = _parts(db) ^ _our_parts(library)
    return min(name for name, _ in differing) if differing else None


def _parts(db: Connection) -> frozenset[tuple[str, str | None]]:
    return frozenset((name, columns) for name, columns in db.execute(_PARTS))


@cache
def _our_parts(library: Library) -> frozenset[tuple[str, str | None]]:
    """The parts of a file that was made just now."""
    db: Connection = library.connect(":memory:", 1.0)
    try:
        for statements in VERSIONS:
            for statement in statements:
                db.execute(statement)
        return _parts(db)
    finally:
        db.close()
