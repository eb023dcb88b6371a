"""The tables of a SQLite store, as an ordered list of versions: forward only, each in one transaction."""

from __future__ import annotations

from typing import Final

APPLICATION_ID: Final = 0x6D656D6E  # "memn": a file of another program is told apart by it

# A record's key is its session's number and its seq, so that a session's records are neighbours in their
# order. `name` finds a record by its id, and a compression by the ids of its replacements.
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

VERSIONS: Final[tuple[tuple[str, ...], ...]] = (_FIRST, _FEED_AND_LEASES)
