"""The statements of a SQLite store, each within a transaction of the caller."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any, Final

import msgspec

from memman.errors import StoreError
from memman.protocols import Appended, Candidates, FeedItem, SearchRequest, SessionInfo, StoredItem
from memman.records import Added, Record, SessionTotals, encode, tombstone
from memman.search import index, searchable, vectors
from memman.stores import rows
from memman.stores.rows import (
    LISTED_COLUMNS,
    MADE,
    NO_ITEMS,
    NO_METADATA,
    NO_TOTALS,
    ROW_COLUMNS,
    SNAPSHOT_COLUMNS,
    ListedRow,
    NewRecords,
    SessionRow,
    SnapshotRow,
    candidates_of,
    decoded,
    encoded_items,
    in_batches,
    new_records,
)

if TYPE_CHECKING:
    from sqlite3 import Connection

_IDS: Final = "id IN (SELECT value FROM json_each(:ids))"
_MADE: Final = f"""
SELECT id, seq FROM record WHERE session = :session AND {_IDS}
UNION ALL
SELECT id, seq FROM mention WHERE session = :session AND {_IDS} AND effect = {MADE}
"""  # noqa: S608 - our own words
_EFFECTS: Final = f"""
SELECT id, seq, {MADE} FROM record WHERE session = ? AND id = ?
UNION ALL
SELECT id, seq, effect FROM mention WHERE session = ? AND id = ?
"""  # noqa: S608 - our own words
_NAMING: Final = f"""
SELECT seq FROM record WHERE session = :session AND {_IDS}
UNION
SELECT seq FROM mention WHERE session = :session AND {_IDS}
"""  # noqa: S608 - our own words
_AT: Final = """
SELECT seq, payload FROM record
WHERE session = ? AND seq IN (SELECT value FROM json_each(?)) ORDER BY seq
"""
_READ: Final = """
SELECT seq, payload FROM record WHERE session = ? AND seq > ? AND seq <= ? ORDER BY seq
"""
_LISTED: Final = f"""
SELECT {LISTED_COLUMNS} FROM session JOIN snapshot ON snapshot.session = session.number
WHERE id >= :prefix AND id < :prefix || x'ff' ORDER BY number
"""  # noqa: S608 - our own names; no character begins with the byte FF
_RELIST: Final = """
UPDATE snapshot SET created_at = coalesce(?, created_at), metadata = coalesce(?, metadata),
    first_line = coalesce(?, first_line)
WHERE session = ?
"""
_PLACED: Final = """
SELECT wanted.value, session.id, record.seq, record.payload
FROM json_each(?) AS wanted CROSS JOIN record
    ON record.session = wanted.value >> 32 AND record.seq = wanted.value & 0xFFFFFFFF
    CROSS JOIN session ON session.number = record.session
"""
_BYTES_PER_CANDIDATE: Final = 10_000  # that a search reads at most, on average
_TO_INDEX: Final = """
SELECT number, session, seq, payload FROM record WHERE number > ? ORDER BY number LIMIT ?
"""
_INDEXED: Final = """
SELECT seq, payload FROM record WHERE session = ? AND number <= ?
    AND (? IS NULL OR seq IN (SELECT value FROM json_each(?)))
"""
# Records, and bytes of them, that a transaction indexes.
_INDEXED_AT_ONCE, _BYTES_AT_ONCE = 2_000, 2**22
_FEED: Final = """
SELECT session.id, record.seq, record.payload, record.number
FROM record CROSS JOIN session ON session.number = record.session
WHERE record.number > ? ORDER BY record.number LIMIT ?
"""


# ---------------------------------------------------------------- reading


def row_of(db: Connection, session_id: str) -> SessionRow | None:
    """Return a session's row, or None."""
    found = db.execute(f"SELECT {ROW_COLUMNS} FROM session WHERE id = ?", (session_id,)).fetchone()  # noqa: S608 - our own names
    return None if found is None else msgspec.convert(found, SessionRow)


def snapshot_row(db: Connection, row: SessionRow) -> SnapshotRow:
    """Return a session as its last commit left it."""
    found = db.execute(
        f"SELECT {SNAPSHOT_COLUMNS} FROM snapshot WHERE session = ?",  # noqa: S608 - our own names
        (row.number,),
    ).fetchone()
    return msgspec.convert(found, SnapshotRow)


def state_of(db: Connection, session_id: str) -> tuple[int, int] | None:
    """Return the head and the epoch of a session."""
    found: tuple[int, int] | None = db.execute(
        "SELECT head, epoch FROM session WHERE id = ?", (session_id,)
    ).fetchone()
    return found


def sessions(db: Connection, prefix: str) -> list[SessionInfo]:
    """Return the sessions whose ids begin with `prefix`, in the order in which they began."""
    found = db.execute(_LISTED, {"prefix": prefix}).fetchall()
    return [msgspec.convert(row, ListedRow, strict=False).info for row in found]


def read(db: Connection, row: SessionRow, after: int, limit: int) -> list[tuple[int, Record]]:
    """Return records with seq > `after`, in order."""
    last = min(after + limit, row.head)
    found = db.execute(_READ, (row.number, after, last)).fetchall()
    return _decoded(found, max(0, last - after))


def records_at(db: Connection, row: SessionRow, seqs: Collection[int]) -> list[tuple[int, Record]]:
    """Return the records with these seqs, in order."""
    found = db.execute(_AT, (row.number, msgspec.json.encode(list(seqs)).decode())).fetchall()
    return _decoded(found, len(set(seqs)))


def seqs_naming(db: Connection, row: SessionRow, ids: Iterable[str]) -> list[int]:
    """Return the seqs of the records that name one of these ids."""
    return [seq for (seq,) in db.execute(_NAMING, _values(row, ids))]


def known_seqs(db: Connection, row: SessionRow, ids: Iterable[str]) -> dict[str, int]:
    """Return the newest seq that each of these ids is known by."""
    number = row.number
    found = (db.execute(_EFFECTS, (number, name, number, name)) for name in ids)
    return rows.known_seqs(chain.from_iterable(found))


def _values(row: SessionRow, ids: Iterable[str]) -> dict[str, Any]:
    return {"session": row.number, "ids": msgspec.json.encode(list(ids)).decode()}


def _decoded(found: list[tuple[int, bytes]], expected: int) -> list[tuple[int, Record]]:
    """Return the records of rows. Raises `msgspec.DecodeError` if one is missing or damaged."""
    if len(found) != expected or not all(type(payload) is bytes for _, payload in found):
        raise msgspec.DecodeError("a record is missing")
    return [decoded(seq, payload) for seq, payload in found]


# ---------------------------------------------------------------- writing


def begin(db: Connection, session_id: str) -> SessionRow:
    """Create a session and return its row."""
    [(epoch,)] = db.execute("SELECT first_epoch FROM store")
    number = db.execute(
        "INSERT INTO session (id, head, epoch, entries, tokens, era) VALUES (?, 0, ?, 0, 0, 0)",
        (session_id, epoch),
    ).lastrowid
    db.execute(
        "INSERT INTO snapshot VALUES (?, NULL, ?, '', 0, ?, 0, ?)",
        (number, NO_METADATA, NO_ITEMS, NO_TOTALS),
    )
    return SessionRow(number or 0, 0, epoch, 0, 0, 0, "")


def append(
    db: Connection,
    row: SessionRow,
    totals: SessionTotals,
    records: Sequence[Record],
    payloads: Sequence[bytes],
) -> NewRecords:
    """Put the records whose ids are not known behind the row's head, at which the totals are."""
    known = known_seqs(db, row, [record.id for record in records])
    new = new_records(row, totals, records, payloads, known)
    if not new.rows:
        return new
    db.executemany(
        "INSERT INTO record (session, seq, id, payload) VALUES (?, ?, ?, ?)",
        [(row.number, *values) for values in new.rows],
    )
    if new.mentions:
        db.executemany(
            "INSERT INTO mention VALUES (?, ?, ?, ?)",
            [(row.number, name.id, name.seq, name.effect) for name in new.mentions],
        )
    after, counted_at = new.row, new.totals.last_counted_at
    active = None if counted_at is None else counted_at.timestamp()
    db.execute(
        "UPDATE session SET head = ?, entries = ?, tokens = ?, era = ?,"
        " last_active_at = coalesce(?, last_active_at) WHERE number = ?",
        (after.head, after.entries, after.tokens, after.era, active, row.number),
    )
    if (changes := new.changes) is not None:
        began = changes.created_at and changes.created_at.timestamp()
        db.execute("UPDATE session SET first_id = ? WHERE number = ?", (after.first_id, row.number))
        db.execute(_RELIST, (began, changes.metadata, changes.first_line, row.number))
    return new


def append_all(
    db: Connection, row: SessionRow, records: Sequence[Record]
) -> tuple[Appended, SessionTotals]:
    """Append any number of records, a few at a time, and return the totals behind them, too."""
    before = snapshot_row(db, row)
    totals = before.totals_after(read(db, row, before.folded, row.head))
    seqs: list[int] = []
    now = row
    for batch, payloads in in_batches(records):
        new = append(db, now, totals, batch, payloads)
        now, totals = new.row, new.totals
        seqs += new.seqs
    return Appended(tuple(seqs), now.head, row.epoch, now.head - row.head), totals


def replace_window(
    db: Connection,
    row: SessionRow,
    head: int,
    totals: SessionTotals,
    window: Sequence[StoredItem],
    floor: int,
) -> None:
    """Take a new window, with the totals at `head`, so that neither is ever folded from the beginning."""
    db.execute(
        "UPDATE snapshot SET floor = ?, items = ?, folded = ?, totals = ? WHERE session = ?",
        (floor, encoded_items(window, row.head), head, msgspec.json.encode(totals), row.number),
    )
    db.execute("UPDATE session SET epoch = ? WHERE number = ?", (row.epoch + 1, row.number))


def erase(db: Connection, row: SessionRow, ids: frozenset[str]) -> None:
    """Overwrite payloads with tombstones, in every era."""
    seqs = {seq for _, seq in db.execute(_MADE, _values(row, ids))}
    _unindex(db, row, seqs)
    db.executemany(
        "UPDATE record SET payload = ? WHERE session = ? AND seq = ?",
        [
            (encode(tombstone(record, ids)), row.number, seq)
            for seq, record in records_at(db, row, seqs)
        ],
    )


def delete(db: Connection, row: SessionRow) -> None:
    """Remove a session with its log."""
    _unindex(db, row)
    for table in ("record", "mention", "snapshot"):
        db.execute(f"DELETE FROM {table} WHERE session = ?", (row.number,))  # noqa: S608 - our own names
    db.execute("DELETE FROM session WHERE number = ?", (row.number,))
    db.execute("UPDATE store SET first_epoch = max(first_epoch, ?)", (row.epoch + 1,))


# ---------------------------------------------------------------- search


def search(db: Connection, request: SearchRequest) -> tuple[Candidates, int]:
    """Return the candidates of the index, and the number of the last record that it covers.

    Without an index that can be read there are none, and the number is 0.
    """
    if not is_indexed(db):
        return Candidates(0, (0,) * len(request.terms), []), 0
    with index.guarded(db):
        found, upto = index.find(db, request), index.upto(db)
    places = msgspec.json.encode([place for place, _ in found.rows]).decode()
    records: dict[int, tuple[str, int, Record]] = {}
    room = request.limit * _BYTES_PER_CANDIDATE
    for place, session_id, seq, payload in db.execute(_PLACED, (places,)):
        records[place] = session_id, *decoded(seq, payload)
        room -= len(payload)
        if room < 0:
            break
    return candidates_of(request, found, records), upto


def is_indexed(db: Connection, *, missing: bool = False) -> bool:
    """Return whether there is an index that this SQLite can read; `missing` is the answer without any."""
    with index.guarded(db):
        return index.is_readable(db) if index.exists(db) else missing


def has_current_index(db: Connection) -> bool:
    """Return whether there is an index of every record that this SQLite can read."""
    with index.guarded(db):
        return is_indexed(db) and index.upto(db) >= last_number(db)


def continue_index(db: Connection) -> None:
    """Index the next records, of which a transaction takes some; make the index if there is none."""
    with index.guarded(db):
        if not index.exists(db):
            index.create(db)
        upto = index.upto(db)
    found = db.execute(_TO_INDEX, (upto, _INDEXED_AT_ONCE)).fetchall()
    rows, size, last = [], 0, last_number(db)
    for number, session, seq, payload in found:
        rows.append((index.place_of(session, seq), decoded(seq, payload)[1]))
        size += len(payload)
        if size > _BYTES_AT_ONCE or len(rows) == _INDEXED_AT_ONCE:
            last = number
            break
    texts = _indexed_rows(rows)
    with index.guarded(db):
        index.add(db, texts, last)


def find_vectors(
    db: Connection, session_id: str, embed: str, until: int, limit: int
) -> list[vectors.Vector]:
    """Return the vectors of an embed for a session's entries up to a seq, the newest first."""
    row = row_of(db, session_id)
    with index.guarded(db):
        is_known = row is not None and vectors.exist(db, embed)
        return vectors.find(db, row.number, until, limit) if row and is_known else []


def keep_vectors(
    db: Connection, session_id: str, embed: str, epoch: int, rows: Sequence[vectors.Vector]
) -> bool:
    """Keep the vectors of an embed if the epoch is unchanged, so that no entry was deleted since."""
    row = row_of(db, session_id)
    if row is None or row.epoch != epoch:
        return False
    with index.guarded(db):
        vectors.add(db, row.number, embed, rows)
    return True


def discard_index(db: Connection) -> None:
    """Take a damaged index out of the schema; its pages are to be erased."""
    index.discard(db)
    db.execute("UPDATE store SET discarded = 1")


def has_discarded(db: Connection) -> bool:
    """Return whether pages of a discarded index are to be erased."""
    return bool(db.execute("SELECT discarded FROM store").fetchone()[0])


def forget_discarded(db: Connection) -> None:
    """Note that the pages of a discarded index were erased."""
    db.execute("UPDATE store SET discarded = 0")


def _indexed_rows(records: Iterable[tuple[int, Record]]) -> list[index.Row]:
    """Return the rows of the index for records with their places.

    A tombstone has none: its text left the index when it was deleted.
    """
    texts = (
        (place, searchable(record.entry)) for place, record in records if isinstance(record, Added)
    )
    return [row for row in texts if row[1]]


def _unindex(db: Connection, row: SessionRow, seqs: Iterable[int] | None = None) -> None:
    """Remove these records, or all of the session's, from the index and the vectors."""
    chosen = None if seqs is None else msgspec.json.encode(list(seqs)).decode()
    with index.guarded(db):
        vectors.remove(db, row.number, chosen)
        if not index.exists(db):
            index.drop(db)  # one of another version has the words, too
            return
        is_readable, upto = index.is_readable(db), index.upto(db)
    if not is_readable:
        raise StoreError(
            "nothing was deleted: a newer SQLite has written the search index of this file, and this one "
            "cannot remove words from it. Use the newer Python, or driver=apsw (memman-core[apsw])"
        )
    found = db.execute(_INDEXED, (row.number, upto, chosen, chosen))
    places = ((index.place_of(row.number, seq), decoded(seq, payload)[1]) for seq, payload in found)
    texts = _indexed_rows(places)
    with index.guarded(db):
        index.remove(db, texts)


# ---------------------------------------------------------------- the feed


def feed(db: Connection, after: int, limit: int) -> list[FeedItem]:
    """Return the records behind a number."""
    return [
        FeedItem(session_id, *decoded(seq, payload), str(number))
        for session_id, seq, payload, number in db.execute(_FEED, (after, limit))
    ]


def last_number(db: Connection) -> int:
    """Return the greatest number that was ever given to a record."""
    found = db.execute("SELECT seq FROM sqlite_sequence WHERE name = 'record'").fetchone()
    return found[0] if found else 0
