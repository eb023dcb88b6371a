"""The tables of a SQLite store, and the check that a file has these tables and no others.

A file may come from an untrusted source, so its schema is checked before anything else is read.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Final, TypeAlias

from memman.search import index, vectors
from memman.stores.drivers import Library, has_search

if TYPE_CHECKING:
    from sqlite3 import Connection

_Parts: TypeAlias = frozenset[tuple[str, str | None]]
"""The name of each table or index of a file, with its columns or its definition."""

APPLICATION_ID: Final = 0x6D656D6E  # "memn", by which a file of another program is recognised
VERSION: Final = 1

SCHEMA: Final = (
    # `first_epoch` is later than any epoch of a deleted session; `discarded` is 1 while pages of a damaged
    # index are in the file, which nothing uses.
    "CREATE TABLE store (first_epoch INTEGER NOT NULL, discarded INTEGER NOT NULL)",
    "INSERT INTO store VALUES (0, 0)",
    # `entries` and `tokens` are the era's totals, `era` the seq of the last clear, `first_id` the era's
    # first user message, `last_active_at` the time of the newest entry (ISO 8601). `lease_from` and
    # `lease_until` are seconds since 1970, NULL if there is no lease.
    # With AUTOINCREMENT no number is used twice. Otherwise a row of the search index that outlives its
    # session could be found in a new one.
    """CREATE TABLE session (
        number INTEGER PRIMARY KEY AUTOINCREMENT,
        id TEXT NOT NULL UNIQUE,
        head INTEGER NOT NULL,
        epoch INTEGER NOT NULL,
        entries INTEGER NOT NULL,
        tokens INTEGER NOT NULL,
        era INTEGER NOT NULL,
        first_id TEXT NOT NULL DEFAULT '',
        last_active_at REAL,
        lease_holder TEXT,
        lease_from REAL,
        lease_until REAL
    )""",
    # What few appends change: the time of the first record (ISO 8601), the metadata (JSON), the first line
    # of the era's first user message, and the session as its last commit left it: the window up to
    # `floor` and the totals up to `folded`, as JSON.
    """CREATE TABLE snapshot (
        session INTEGER PRIMARY KEY,
        created_at REAL,
        metadata BLOB NOT NULL,
        first_line TEXT NOT NULL,
        floor INTEGER NOT NULL,
        items BLOB NOT NULL,
        folded INTEGER NOT NULL,
        totals BLOB NOT NULL
    )""",
    # `number` is the order of the commits in the whole file, the feed's; AUTOINCREMENT gives none twice.
    """CREATE TABLE record (
        number INTEGER PRIMARY KEY AUTOINCREMENT,
        session INTEGER NOT NULL,
        seq INTEGER NOT NULL,
        id TEXT NOT NULL,
        payload BLOB NOT NULL
    )""",
    "CREATE UNIQUE INDEX record_seq ON record (session, seq)",
    "CREATE INDEX record_id ON record (session, id)",
    # The entries that a record made (`effect` is 1), hid or restored (0), or retracted (2).
    """CREATE TABLE mention (
        session INTEGER NOT NULL,
        id TEXT NOT NULL,
        seq INTEGER NOT NULL,
        effect INTEGER NOT NULL,
        PRIMARY KEY (session, id, seq)
    ) WITHOUT ROWID""",
)

# The columns of a virtual table could only be read by running its module, so its definition is compared.
_PARTS: Final = """
SELECT type || ' ' || name, CASE WHEN rootpage = 0 THEN sql ELSE
    (SELECT group_concat(name || ' ' || type || ' ' || hidden) FROM pragma_table_xinfo(part.name)) END
FROM sqlite_master AS part WHERE name NOT LIKE 'sqlite~_%' ESCAPE '~'
"""


def create(db: Connection) -> None:
    """Create the tables, in the caller's transaction."""
    for statement in SCHEMA:
        db.execute(statement)
    db.execute(f"PRAGMA user_version = {VERSION}")
    db.execute(f"PRAGMA application_id = {APPLICATION_ID}")


def strange_part(db: Connection, library: Library) -> str | None:
    """Return the table or index that differs from ours, or None. Index and vectors may be missing."""
    tables = _parts_made_by(create, library)
    parts = _parts(db)
    others = parts - tables - _parts_made_by(vectors.create, library)
    names = {f"table {name}" for name in index.PARTS_OF_TABLES - {"vector"}}
    of_index = {part for part in others if part[0] in names}
    # Without FTS5 its tables are never read.
    known = _parts_made_by(index.create, library) if of_index and has_search(library) else of_index
    differing = (tables - parts) | (others ^ known)
    return min(name for name, _ in differing) if differing else None


def _parts(db: Connection) -> _Parts:
    return frozenset((name, columns) for name, columns in db.execute(_PARTS))


@cache
def _parts_made_by(make: Callable[[Connection], None], library: Library) -> _Parts:
    db: Connection = library.connect(":memory:", 1.0)
    try:
        make(db)
        return _parts(db)
    finally:
        db.close()
