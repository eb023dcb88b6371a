"""The full-text index of a database: two FTS5 tables without a copy of the texts.

`word` has the words of every entry, stemmed as English, with their places. `fragment` has every three
neighbouring characters, to find parts of words. Both are keyed by the number of a record in the table
`record (number, session, seq)`, whose `session` is a number of the table `session (number, id, head)`.

The index is made at the first search and continued at each later one, in batches, which costs a fraction
of indexing each append. `indexed.upto` is the last record that it covers.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from heapq import nlargest
from typing import TYPE_CHECKING, Final

import msgspec

from memman.protocols import SearchRequest
from memman.search.ranking import rarity
from memman.search.scan import AS_PART, AS_WORD
from memman.search.terms import PARTS, SPACELESS, in_pairs

if TYPE_CHECKING:
    from sqlite3 import Connection

VERSION: Final = 1
"""Grows when `searchable` or `in_pairs` changes: an entry leaves the index by the text it entered with."""
SCHEMA: Final = (
    "CREATE VIRTUAL TABLE word USING"
    " fts5(session, text, content='', tokenize='porter unicode61 remove_diacritics 2')",
    "CREATE VIRTUAL TABLE fragment USING fts5(text, content='', detail=none, tokenize='trigram')",
    # `overwritten` is 1 once a SQLite from 3.42 on has deleted from it: older ones cannot read it then.
    "CREATE TABLE indexed (upto INTEGER NOT NULL, version INTEGER NOT NULL, overwritten INTEGER NOT NULL)",
    f"INSERT INTO indexed VALUES (0, {VERSION}, 0)",  # noqa: S608 - our own words
)
TABLES: Final = ("word", "fragment", "indexed")
_SECURE_DELETE: Final = (3, 42, 0)  # from this SQLite on FTS5 can overwrite deleted words
_MOST_ROWS: Final = 1_000  # of one term, the newest: a more frequent term distinguishes little
_MOST_JOINED: Final = 300  # of one term, if the session of each row is looked up
_MOST_SESSIONS: Final = 100  # that are named in a query
_FEW: Final = 50  # entries with a term as a word; parts of words are searched if there are no more
_MOST_WORDS: Final = 16  # of a term: the time of a phrase grows with its words
_TRIGRAM: Final = 3
_MOST_TRIGRAMS: Final = 60  # of a term
# A session's number in three private characters is one word to `word`, and one trigram to `fragment`.
_FIRST, _DIGITS = 0xE000, 6_400
# No character begins with the byte FF.
_BEGINS: Final = "session.id >= ? AND session.id < ? || x'ff'"
_JOINED: Final = (
    " CROSS JOIN record ON record.number = {}.rowid"
    " CROSS JOIN session ON session.number = record.session"
)

Row = tuple[int, int, str]
"""The number of a record and of its session, and the text of its entry."""


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
    for row in rows:
        number, session, words, text = _columns(row)
        db.execute(
            "INSERT INTO word (rowid, session, text) VALUES (?, ?, ?)", (number, session, words)
        )
        db.execute("INSERT INTO fragment (rowid, text) VALUES (?, ?)", (number, text))
    db.execute("UPDATE indexed SET upto = ?", (last,))


def remove(db: Connection, rows: Iterable[Row]) -> None:
    """Remove the texts of entries, which must be those that were added; no word of them stays."""
    overwrites = _can_overwrite(db)
    if overwrites:
        for table in ("word", "fragment"):
            db.execute(f"INSERT INTO {table} ({table}, rank) VALUES ('secure-delete', 1)")  # noqa: S608 - our own words
    for row in rows:
        number, session, words, text = _columns(row)
        db.execute(
            "INSERT INTO word (word, rowid, session, text) VALUES ('delete', ?, ?, ?)",
            (number, session, words),
        )
        db.execute(
            "INSERT INTO fragment (fragment, rowid, text) VALUES ('delete', ?, ?)", (number, text)
        )
    if overwrites:
        db.execute("UPDATE indexed SET overwritten = 1")
    else:
        # The deleted words leave a segment only when it is rewritten.
        for table in ("word", "fragment"):
            db.execute(f"INSERT INTO {table} ({table}) VALUES ('optimize')")  # noqa: S608 - our own words


def _columns(row: Row) -> tuple[int, str, str, str]:
    number, session, text = row
    word = _session_word(session)
    return number, word, in_pairs(text), f"{word} {text}"


def _session_word(session: int) -> str:
    """Return the word of a session's number, by which its rows are found."""
    digits = (session // _DIGITS**2 % _DIGITS, session // _DIGITS % _DIGITS, session % _DIGITS)
    return "".join(chr(_FIRST + digit) for digit in digits)


def _can_overwrite(db: Connection) -> bool:
    [(version,)] = db.execute("SELECT sqlite_version()")
    return tuple(map(int, version.split("."))) >= _SECURE_DELETE


# ---------------------------------------------------------------- searching


class Found(msgspec.Struct, frozen=True):
    """The rows that contain terms: the number of a record, and the weight of each term in it.

    `entries` is about the number of rows in scope, `counts` how many of them have each term, at most
    some. A match by part of a word is likely only: the text has all three-character pieces of the term.
    """

    entries: int
    counts: tuple[int, ...]
    rows: list[tuple[int, tuple[float, ...]]]


def find(db: Connection, request: SearchRequest) -> Found:
    """Return the rows with terms, those with many and rare ones first."""
    scope = _resolve_scope(db, request)
    if scope is None:
        return Found(0, (0,) * len(request.terms), [])
    matches = [_match(scope, term) for term in request.terms]
    frequent = [
        number for number, match in enumerate(matches) if len(match.words) == scope.most_rows
    ]
    if len(frequent) > 1:  # older rows that have several frequent terms
        together = scope.rows_with_words([request.terms[number] for number in frequent])
        for number in frequent:
            matches[number].words.update(together)
    worth: dict[int, float] = {}
    for match in matches:
        weight = rarity(scope.entries, match.count)
        for row in match.words:
            worth[row] = worth.get(row, 0.0) + AS_WORD * weight
        for row in match.parts:
            worth[row] = worth.get(row, 0.0) + AS_PART * weight
    best = nlargest(request.limit, zip(worth.values(), worth, strict=True))
    rows = [(row, tuple(match.weight(row) for match in matches)) for _, row in best]
    return Found(scope.entries, tuple(match.count for match in matches), rows)


class _Match(msgspec.Struct, frozen=True):
    """The newest rows that contain a term as a word, and other rows that contain it as a part of one."""

    words: set[int]
    parts: set[int]

    @property
    def count(self) -> int:
        """The number of rows."""
        return len(self.words) + len(self.parts)

    def weight(self, row: int) -> float:
        """Return the weight of the term in a row."""
        return AS_WORD if row in self.words else AS_PART if row in self.parts else 0.0


def _match(scope: _Scope, term: str) -> _Match:
    words = set(scope.rows_with_words([term]))
    parts = scope.rows_with_part(term) if len(words) <= _FEW else []
    return _Match(words, {*parts} - words)


def _resolve_scope(db: Connection, request: SearchRequest) -> _Scope | None:
    """Return the scope of a request, None without any session in it."""
    name, prefix = request.session_id, request.prefix
    if name is None and not prefix:
        return _Scope(db, (), None, upto(db))
    where, values = ("id = ?", (name,)) if name is not None else (_BEGINS, (prefix, prefix))
    found = db.execute(
        f"SELECT number, head FROM session WHERE {where} LIMIT {_MOST_SESSIONS + 1}",  # noqa: S608 - our own words
        values,
    ).fetchall()
    if not found:
        return None
    if len(found) > _MOST_SESSIONS:
        return _Scope(db, (), prefix, upto(db))
    return _Scope(db, [number for number, _ in found], None, sum(head for _, head in found))


class _Scope:
    """The rows of a few sessions, of those whose ids begin with a prefix, or of all."""

    def __init__(
        self, db: Connection, sessions: Sequence[int], prefix: str | None, entries: int
    ) -> None:
        self._db = db
        self._sessions = " OR ".join(_quoted(_session_word(number)) for number in sessions)
        self._prefix = prefix
        self.entries = entries
        self.most_rows = _MOST_ROWS if prefix is None else _MOST_JOINED

    def rows_with_words(self, terms: Sequence[str]) -> list[int]:
        """Return the newest rows that have every term, as a word or a phrase."""
        wanted = " AND ".join(f"text : {_phrase(term)}" for term in terms)
        sessions = f"session : ({self._sessions}) AND " if self._sessions else ""
        return self._rows("word", sessions + wanted)

    def rows_with_part(self, term: str) -> list[int]:
        """Return the newest rows that have every piece of three characters of a term."""
        pieces = {term[at : at + _TRIGRAM] for at in range(len(term) - _TRIGRAM + 1)}
        if not pieces:
            return []
        wanted = " AND ".join(map(_quoted, sorted(pieces)[:_MOST_TRIGRAMS]))
        sessions = f"({self._sessions}) AND " if self._sessions else ""
        return self._rows("fragment", sessions + wanted)

    def _rows(self, table: str, query: str) -> list[int]:
        joined, values = "", [query]
        if self._prefix is not None:
            joined, values = _JOINED.format(table), [query, self._prefix, self._prefix]
        condition = f" AND {_BEGINS}" if joined else ""
        found = self._db.execute(
            f"SELECT {table}.rowid FROM {table}{joined} WHERE {table} MATCH ?{condition}"  # noqa: S608 - our own words
            f" ORDER BY {table}.rowid DESC LIMIT {self.most_rows}",
            values,
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
