"""The full-text index of a database: two FTS5 tables without a copy of the texts.

`word` has the words of every entry, stemmed as English, with their places. `fragment` has every three
neighbouring characters, to find parts of words. The key of a row is the place of its record: the number of
its session in the table `session (number, id, head)`, and its seq. So a session is a range of keys, and a
text has nothing but the words of its entry.

The index is made at the first search and continued at each later one, in batches, which costs a fraction
of indexing each append. `indexed.upto` is the last record that it covers.

Only the log is precious: a damaged index is discarded and made again. So statements about the index are
inside `guarded`, and statements about the log are not.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from heapq import nlargest
from typing import TYPE_CHECKING, Final

import msgspec

from memman.errors import StoreError
from memman.protocols import SearchRequest
from memman.search.ranking import rarity
from memman.search.scan import (
    AS_BEGINNING,
    AS_NAMESAKE,
    AS_PART,
    AS_WORD,
    MOST_COUNTED,
    beginning_of,
)
from memman.search.terms import PARTS, SPACELESS, chosen_terms, in_pairs, is_value

if TYPE_CHECKING:
    from sqlite3 import Connection

VERSION: Final = 2
"""Grows when `searchable` or `in_pairs` changes: an entry leaves the index by the text it entered with."""
SCHEMA: Final = (
    "CREATE VIRTUAL TABLE word USING"
    " fts5(text, content='', tokenize='porter unicode61 remove_diacritics 2')",
    "CREATE VIRTUAL TABLE fragment USING fts5(text, content='', detail=none, tokenize='trigram')",
    # `overwritten` is 1 once a SQLite from 3.42 on has deleted from it: older ones cannot read it then.
    "CREATE TABLE indexed (upto INTEGER NOT NULL, version INTEGER NOT NULL, overwritten INTEGER NOT NULL)",
    f"INSERT INTO indexed VALUES (0, {VERSION}, 0)",  # noqa: S608 - our own words
)
TABLES: Final = ("word", "fragment", "indexed")
PARTS_OF_TABLES: Final = frozenset(
    [
        "indexed",
        "vector",
        *(f"{t}{end}" for t in TABLES[:2] for end in ("", "_config", "_data", "_docsize", "_idx")),
    ]
)
"""The tables with those that FTS5 makes, and that of vectors (`memman.search.vectors`)."""
# Of the errors of either SQLite library; those of a lock, a full disk and a missing right have none.
_OF_DAMAGE: Final = ("malformed", "vtable constructor failed", "fts5", "no such table")
_SECURE_DELETE: Final = (3, 42, 0)  # from this SQLite on FTS5 can overwrite deleted words
_MOST_ROWS: Final = 1_000  # of one term, the newest: a more frequent term distinguishes little
_MOST_JOINED: Final = 300  # of one term, if the session of each row is looked up
_FEW: Final = 50  # entries with a term as a word; parts of words are searched if there are no more
_MOST_WORDS: Final = 16  # of a term: the time of a phrase grows with its words
_TRIGRAM: Final = 3
_MOST_TRIGRAMS: Final = 60  # of a term
_SEQ_BITS: Final = 32  # of a key
_MOST_SEQ: Final = (1 << _SEQ_BITS) - 1
_MOST_SESSIONS: Final = 200  # that a statement names
# No character begins with the byte FF.
_BEGINS: Final = "session.id >= ? AND session.id < ? || x'ff'"
_JOINED: Final = f" CROSS JOIN session ON session.number = ({{}}.rowid >> {_SEQ_BITS})"

Row = tuple[int, str]
"""The place of a record, and the text of its entry."""


def place_of(session: int, seq: int) -> int:
    """Return the key of a record of the session with this number."""
    return session << _SEQ_BITS | seq


class IndexDamaged(StoreError):
    """The content of the index is damaged, and a statement about it failed. The log may be sound."""


@contextmanager
def guarded(db: Connection) -> Iterator[None]:
    """Raise `IndexDamaged` for damage that a statement of the block finds; all are about the index."""
    try:
        yield
    except db.Error as error:
        if any(words in str(error) for words in _OF_DAMAGE):
            raise IndexDamaged(f"the search index is damaged: {error}") from error
        raise


def discard(db: Connection) -> None:
    """Take a damaged index out of the schema, in the caller's transaction: a DROP would read its pages.

    They stay in the file, with the words in them, until VACUUM, which must follow.
    """
    db.execute("PRAGMA writable_schema = ON")
    try:
        marks = ", ".join("?" * len(PARTS_OF_TABLES))
        db.execute(f"DELETE FROM sqlite_master WHERE tbl_name IN ({marks})", tuple(PARTS_OF_TABLES))  # noqa: S608 - marks alone
    finally:
        db.execute("PRAGMA writable_schema = RESET")


def exists(db: Connection) -> bool:
    """Return whether the database has an index of this version; one whose state is damaged is none."""
    if not db.execute("SELECT 1 FROM sqlite_master WHERE name = 'indexed'").fetchone():
        return False
    states = db.execute("SELECT version, upto, overwritten FROM indexed").fetchall()
    version, *others = states[0] if len(states) == 1 else (None,)
    return version == VERSION and all(type(value) is int for value in others)


def is_readable(db: Connection) -> bool:
    """Return whether this SQLite can read the index, which must exist."""
    [(overwritten,)] = db.execute("SELECT overwritten FROM indexed")
    return not overwritten or _can_overwrite(db)


def create(db: Connection) -> None:
    """Create the tables, without those of another version, in the caller's transaction."""
    drop(db)
    for statement in SCHEMA:
        db.execute(statement)


def drop(db: Connection) -> None:
    """Remove the tables of any version."""
    for table in TABLES:
        db.execute(f"DROP TABLE IF EXISTS {table}")


def upto(db: Connection) -> int:
    """Return the number of the last record that the index covers."""
    [(number,)] = db.execute("SELECT upto FROM indexed")
    return int(number)


def add(db: Connection, rows: Iterable[Row], last: int) -> None:
    """Add the texts of entries; the index covers the records up to `last` then."""
    # FTS5 begins a segment at a key that is less than the last one.
    for place, text in sorted(rows):
        db.execute("INSERT INTO word (rowid, text) VALUES (?, ?)", (place, in_pairs(text)))
        db.execute("INSERT INTO fragment (rowid, text) VALUES (?, ?)", (place, text))
    db.execute("UPDATE indexed SET upto = ?", (last,))


def remove(db: Connection, rows: Iterable[Row]) -> None:
    """Remove the texts of entries, which must be those that were added; no word of them stays."""
    overwrites = _can_overwrite(db)
    if overwrites:
        for table in ("word", "fragment"):
            db.execute(f"INSERT INTO {table} ({table}, rank) VALUES ('secure-delete', 1)")  # noqa: S608 - our own words
    for place, text in rows:
        given = (place, in_pairs(text))
        db.execute("INSERT INTO word (word, rowid, text) VALUES ('delete', ?, ?)", given)
        given = (place, text)
        db.execute("INSERT INTO fragment (fragment, rowid, text) VALUES ('delete', ?, ?)", given)
    if overwrites:
        db.execute("UPDATE indexed SET overwritten = 1")
    else:
        # The deleted words leave a segment only when it is rewritten.
        for table in ("word", "fragment"):
            db.execute(f"INSERT INTO {table} ({table}) VALUES ('optimize')")  # noqa: S608 - our own words


def _can_overwrite(db: Connection) -> bool:
    [(version,)] = db.execute("SELECT sqlite_version()")
    return tuple(map(int, version.split("."))) >= _SECURE_DELETE


# ---------------------------------------------------------------- searching


class Found(msgspec.Struct, frozen=True):
    """The rows that contain terms: the place of a record, and the weight of each term in it.

    `entries` is about the number of rows in scope, `counts` how many of them have each term, at most
    some. A match by part of a word, or by its beginning, is likely only: the text has all three-character
    pieces.
    """

    entries: int
    counts: tuple[int, ...]
    rows: list[tuple[int, tuple[float, ...]]]


def find(db: Connection, request: SearchRequest) -> Found:
    """Return the rows with terms, those with many and rare ones first."""
    scope = _resolve_scope(db, request)
    if scope is None:
        return Found(0, (0,) * len(request.terms), [])
    terms = request.terms
    chosen = chosen_terms(terms, scope.count)
    matches = [
        _match(scope, term) if number in chosen else _Match(set(), set(), AS_PART)
        for number, term in enumerate(terms)
    ]
    frequent = [n for n, match in enumerate(matches) if len(match.words) == scope.most_rows]
    if len(frequent) > 1:  # older rows that have several frequent terms
        together = scope.rows_with_words([terms[n] for n in frequent])
        for n in frequent:
            matches[n].words.update(together)
    worth: dict[int, float] = {}
    for match in matches:
        weight = rarity(scope.entries, match.count)
        for row in match.words:
            worth[row] = worth.get(row, 0.0) + AS_WORD * weight
        for row in match.parts:
            worth[row] = worth.get(row, 0.0) + match.as_part * weight
    best = nlargest(request.limit, zip(worth.values(), worth, strict=True))
    rows = [(row, tuple(match.weight(row) for match in matches)) for _, row in best]
    return Found(scope.entries, tuple(match.count for match in matches), rows)


class _Match(msgspec.Struct, frozen=True):
    """The newest rows that contain a term as a word, and others that contain it less exactly.

    `as_part` is the weight of the term in these.
    """

    words: set[int]
    parts: set[int]
    as_part: float

    @property
    def count(self) -> int:
        """The number of rows; of a value that rows have as a whole, of these alone."""
        return len(self.words) + (len(self.parts) if self.as_part > AS_NAMESAKE else 0)

    def weight(self, row: int) -> float:
        """Return the weight of the term in a row."""
        return AS_WORD if row in self.words else self.as_part if row in self.parts else 0.0


def _match(scope: _Scope, term: str) -> _Match:
    words = set(scope.rows_with_words([term]))
    parts = set(scope.rows_with_part(term) if len(words) <= _FEW else ()) - words
    if words or parts or not (beginning := beginning_of(term)):
        return _Match(words, parts, AS_NAMESAKE if words and is_value(term) else AS_PART)
    return _Match(words, set(scope.rows_with_part(beginning)), AS_BEGINNING)


def _resolve_scope(db: Connection, request: SearchRequest) -> _Scope | None:
    """Return the scope of a request, None without any session in it."""
    name, prefix = request.session_id, request.prefix
    if name is None and not prefix:
        return _Scope(db, (), "", upto(db))
    where, values = ("id = ?", (name,)) if name is not None else (_BEGINS, (prefix, prefix))
    found = db.execute(
        f"SELECT number, head FROM session WHERE {where} LIMIT {_MOST_SESSIONS + 1}",  # noqa: S608 - our own words
        values,
    ).fetchall()
    if not found:
        return None
    if len(found) > _MOST_SESSIONS:
        return _Scope(db, (), prefix, upto(db))
    numbers = [number for number, _ in found]
    return _Scope(db, numbers, "", request.until or sum(head for _, head in found), request.until)


class _Scope:
    """The rows of a few sessions, of those whose ids begin with a prefix, or of all."""

    def __init__(
        self,
        db: Connection,
        sessions: Sequence[int],
        prefix: str,
        entries: int,
        until: int | None = None,
    ) -> None:
        self._db = db
        self.entries = entries
        self.most_rows = _MOST_JOINED if prefix else _MOST_ROWS
        self._where: tuple[str, str, tuple[object, ...]] = "", "", ()
        if len(sessions) == 1:
            keys = (
                place_of(sessions[0], seq) for seq in (0, _MOST_SEQ if until is None else until)
            )
            self._where = "", " AND {0}.rowid BETWEEN ? AND ?", tuple(keys)
        elif sessions:
            numbers = ", ".join(map(str, sessions))
            self._where = "", f" AND {{0}}.rowid >> {_SEQ_BITS} IN ({numbers})", ()
        elif prefix:
            self._where = _JOINED, f" AND {_BEGINS}", (prefix, prefix)

    def count(self, term: str) -> int:
        """Return how many rows have a term as a word, at most some."""
        return len(self._rows("word", _phrase(term), MOST_COUNTED))

    def rows_with_words(self, terms: Sequence[str]) -> list[int]:
        """Return the newest rows that have every term, as a word or a phrase."""
        return self._rows("word", " AND ".join(map(_phrase, terms)), self.most_rows)

    def rows_with_part(self, term: str) -> list[int]:
        """Return the newest rows that have every piece of three characters of a term."""
        pieces = {term[at : at + _TRIGRAM] for at in range(len(term) - _TRIGRAM + 1)}
        if not pieces:
            return []
        wanted = " AND ".join(map(_quoted, sorted(pieces)[:_MOST_TRIGRAMS]))
        return self._rows("fragment", wanted, self.most_rows)

    def _rows(self, table: str, query: str, most: int) -> list[int]:
        joined, condition, values = self._where
        found = self._db.execute(
            f"SELECT {table}.rowid FROM {table}{joined.format(table)} WHERE {table} MATCH ?"  # noqa: S608 - our own words
            f"{condition.format(table)} ORDER BY {table}.rowid DESC LIMIT {most}",
            (query, *values),
        )
        return [row for (row,) in found]


def _phrase(term: str) -> str:
    """Return a query for a term; a single character of a script without spaces begins a pair."""
    if len(term) == 1 and SPACELESS.match(term):
        return f"{_quoted(term)} *"
    words = PARTS.findall(term)
    return _quoted(" ".join(words[-_MOST_WORDS:]) if len(words) > _MOST_WORDS else term)


def _quoted(term: str) -> str:
    """Return a term as a string of FTS5's query syntax, in which nothing has a meaning."""
    return '"' + term.replace('"', '""').replace("\0", " ") + '"'
