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

VERSIONS: Final[tuple[tuple[str, ...], ...]] = (_FIRST,)
