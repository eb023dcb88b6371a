"""The full-text index: a row of `memman_word` for each entry that has words.

An append writes nothing to it: with an index an append would cost 1.5 to 2 times as much. A search first
indexes the records that came since the last one. A session's records are indexed while its row is locked,
so they come in the order of its log, and a deletion comes either before or after them.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Container, Iterator, Sequence
from typing import Final

import msgspec
import psycopg

from memman.errors import StoreBusy, StoreError
from memman.protocols import SearchRequest
from memman.records import Added
from memman.search import in_pairs, searchable
from memman.search.terms import SPACELESS
from memman.stores.rows import decoded
from memman_postgres.attempts import said
from memman_postgres.transactions import Rows, Step

ALL: Final = 0
"""The number in place of a session's in the row of `memman_indexed` that is about all sessions."""
_MOST_SESSIONS: Final = 200  # of a transaction
_MOST_RECORDS: Final = 500  # of a transaction, whose sessions cannot grow until it ends
_MOST_BYTES: Final = 4 * 2**20
_FAR: Final = 50_000  # transactions: to list later records costs more than to list sessions
WORD: Final = re.compile(r"[^\W_]+")
_ACCENTED: Final = re.compile("[\u00c0-\u024f\u1e00-\u1eff]")  # Latin letters
_LONG: Final = 5  # characters: of longer words the ending is kept, too
# A word of more characters is written as pieces; every term is a part of one of them.
_MOST_CHARACTERS: Final = 500
_STRIDE: Final = 300
_MOST_WORD_BYTES: Final = 900_000  # a tsvector takes 1 MB
_PLACE: Final = 12  # bytes of a tsvector for each word, besides its characters

# Classes of SQLSTATE: wrong values, missing or other columns and tables, unreadable files and pages.
_OF_DAMAGE: Final = ("22", "23", "42", "58", "XX")

_MARK = """
SELECT behind + pg_snapshot_xmin(pg_current_snapshot())::text::bigint,
    (SELECT upto FROM memman_indexed WHERE session = 0)
FROM memman_store
"""
_UNINDEXED = """
SELECT its.number FROM memman_session AS its LEFT JOIN memman_indexed AS known ON known.session = its.number
WHERE coalesce(known.upto, 0) <> its.head AND
"""
_IN_ONE = f"{_UNINDEXED} its.id = %s"
_IN_MANY = f"{_UNINDEXED} its.number > %s AND starts_with(its.id, %s) ORDER BY its.number LIMIT %s"
_SINCE = """
SELECT DISTINCT record.session
FROM memman_record AS record JOIN memman_session AS its ON its.number = record.session
    LEFT JOIN memman_indexed AS known ON known.session = record.session
WHERE record.position >= %s AND coalesce(known.upto, 0) <> its.head
ORDER BY record.session LIMIT %s
"""
_LOCKED = (
    "SELECT number, head FROM memman_session WHERE number = ANY(%s) ORDER BY number FOR UPDATE"
)
_KNOWN = "SELECT session, upto FROM memman_indexed WHERE session = ANY(%s)"
_RECORDS = """
SELECT session, seq, payload FROM (
    SELECT record.session, record.seq, record.payload,
        sum(octet_length(record.payload)) OVER (ORDER BY record.session, record.seq)
            - octet_length(record.payload) AS before
    FROM unnest(%s::bigint[], %s::bigint[], %s::bigint[]) AS part (session, after, upto)
        JOIN memman_record AS record ON record.session = part.session
            AND record.seq > part.after AND record.seq <= part.upto
) AS found WHERE before < %s ORDER BY session, seq
"""
# Stems, and of long words the words themselves, so that parts of them are found with any ending.
_ADD = """
INSERT INTO memman_word (session, seq, words)
SELECT session, seq,
    strip(to_tsvector('memman_english', words)) || strip(to_tsvector('pg_catalog.simple', long))
FROM unnest(%s::bigint[], %s::bigint[], %s::text[], %s::text[]) AS given (session, seq, words, long)
ON CONFLICT (session, seq) DO UPDATE SET words = excluded.words
"""
_CONTINUE = """
UPDATE memman_indexed AS known SET upto = given.upto, entries = known.entries + given.entries
FROM unnest(%s::bigint[], %s::bigint[], %s::bigint[]) AS given (session, upto, entries)
WHERE known.session = given.session RETURNING known.session
"""
_BEGIN = """
INSERT INTO memman_indexed (session, upto, entries)
SELECT * FROM unnest(%s::bigint[], %s::bigint[], %s::bigint[]) ON CONFLICT DO NOTHING
"""
_COUNT = "UPDATE memman_indexed SET entries = entries + %s WHERE session = 0"
_BEGIN_ALL = """
INSERT INTO memman_indexed (session, upto, entries)
SELECT 0, %s, coalesce(sum(entries), 0) FROM memman_indexed WHERE session <> 0 ON CONFLICT DO NOTHING
"""
_MOVE = "UPDATE memman_indexed SET upto = %s WHERE session = 0"


class IndexDamaged(StoreError):
    """The content of the index is damaged, or a statement about it failed so. The log may be sound."""


def ask(statement: str, values: Sequence[object] = ()) -> Step[Rows]:
    """Return the rows of a statement about the index. Raises `IndexDamaged`."""
    try:
        return (yield statement, values)
    except (psycopg.errors.InsufficientPrivilege, psycopg.errors.UniqueViolation):
        raise  # a missing right, and a collision
    except psycopg.Error as error:
        if (error.sqlstate or "").startswith(_OF_DAMAGE):
            raise IndexDamaged(f"the search index is damaged: {said(error)}") from error
        raise


def words_of(text: str) -> list[str]:
    """Return the distinct words of a text as the index has them, in lower case and without accents.

    Scripts without spaces are written as pairs of characters and as single ones. No text is too long: the
    words that do not fit are left out.
    """
    plain = plain_of(text)
    words = dict.fromkeys(_pieces(in_pairs(plain)))
    if not plain.isascii():
        words.update(dict.fromkeys("".join(SPACELESS.findall(plain))))
    room = _MOST_WORD_BYTES
    fitting: list[str] = []
    for word in words:
        room -= (1 + _is_long(word)) * (len(word.encode()) + _PLACE)
        if room < 0:
            break
        fitting.append(word)
    return fitting


def plain_of(text: str) -> str:
    """Return a text in lower case and without accents."""
    return _ACCENTED.sub(lambda letter: unicodedata.normalize("NFD", letter[0])[0], text.lower())


def catch_up(request: SearchRequest, progress: Progress) -> Step[Progress]:
    """Index a part of the records in a request's scope that the index lacks, in one transaction."""
    if request.session_id is not None:
        stale = yield from ask(_IN_ONE, (request.session_id,))
        rest, _ = yield from _extend([number for (number,) in stale])
        return Progress(done=rest is None)
    [(horizon, mark)] = yield from ask(_MARK)
    since = progress.horizon is None and mark is not None and 0 <= horizon - mark <= _FAR
    if since:
        stale = yield from ask(_SINCE, (mark, _MOST_SESSIONS))
    else:
        stale = yield from ask(_IN_MANY, (progress.after, request.prefix, _MOST_SESSIONS))
        # Records written since the first part have later positions.
        horizon = horizon if progress.horizon is None else progress.horizon
    numbers = [number for (number,) in stale]
    rest, added = yield from _extend(numbers)
    if rest is not None or len(numbers) == _MOST_SESSIONS:
        after = numbers[-1] if rest is None else rest - 1
        return Progress() if since else Progress(after=after, horizon=horizon)
    if not since and not request.prefix and mark is None:
        yield from ask(_BEGIN_ALL, (horizon,))
    elif (since and (added or horizon - mark > _FAR // 10)) or (not since and not request.prefix):
        yield from ask(_MOVE, (horizon,))
    return Progress(done=True)


class Progress(msgspec.Struct, frozen=True, kw_only=True):
    """The place of a search in the list of sessions: those up to number `after` are indexed.

    `horizon` is the position before which all records were visible at the beginning.
    """

    after: int = 0
    horizon: int | None = None
    done: bool = False


def _extend(numbers: Sequence[int]) -> Step[tuple[int | None, bool]]:
    """Index records of these sessions.

    Returns the number of the first one that is not finished, and whether anything was new.
    """
    if not numbers:
        return None, False
    yield "SET LOCAL synchronous_commit = off", ()  # rows that a crash loses are indexed again
    heads: dict[int, int] = dict((yield _LOCKED, (list(numbers),)))
    # Read once the rows are locked: another search may have indexed them before that.
    known: dict[int, int] = dict((yield from ask(_KNOWN, (list(numbers),))))
    if not all(upto is not None and 0 <= upto <= heads.get(n, upto) for n, upto in known.items()):
        raise IndexDamaged("the search index is damaged: it goes beyond the log")
    parts: list[tuple[int, int, int]] = []
    room = _MOST_RECORDS
    for number, head in heads.items():
        after = known.get(number, 0)
        if room and after < head:
            parts.append((number, after, min(head, after + room)))
            room -= parts[-1][2] - after
    if not parts:
        return None, False
    found = yield _RECORDS, (*map(list, zip(*parts, strict=True)), _MOST_BYTES)
    upto = {session: seq for session, seq, _ in found}
    entries = dict.fromkeys(upto, 0)
    rows: list[tuple[int, int, str, str]] = []
    for session, seq, payload in found:
        _, record = decoded(seq, payload)
        words = words_of(searchable(record.entry)) if isinstance(record, Added) else []
        if words:
            entries[session] += 1
            rows.append((session, seq, " ".join(words), " ".join(filter(_is_long, words))))
    if rows:
        yield from ask(_ADD, [list(column) for column in zip(*rows, strict=True)])
    yield from _note(upto, entries, known)
    unfinished = (
        number for number, head in heads.items() if upto.get(number, known.get(number, 0)) < head
    )
    return next(unfinished, None), True


def _note(upto: dict[int, int], entries: dict[int, int], known: Container[int]) -> Step[None]:
    """Note the last record of each session that is indexed, and the number of entries with words."""
    moved = yield from ask(_CONTINUE, (list(upto), list(upto.values()), list(entries.values())))
    new = [number for number in upto if (number,) not in moved]
    if any(number in known for number in new):
        raise StoreBusy("the search index was emptied at the same moment")
    if new:
        ends, counts = [upto[number] for number in new], [entries[number] for number in new]
        yield from ask(_BEGIN, (new, ends, counts))
    yield from ask(_COUNT, (sum(entries.values()),))


def _pieces(text: str) -> Iterator[str]:
    for word in WORD.findall(text):
        if len(word) <= _MOST_CHARACTERS:
            yield word
        else:
            yield from (word[at : at + _MOST_CHARACTERS] for at in range(0, len(word), _STRIDE))


def _is_long(word: str) -> bool:
    """Return whether a stem may lack an ending that a query has."""
    return len(word) >= _LONG and word.isascii()
