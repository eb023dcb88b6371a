"""What a store asks of the tables of its SQLite file, each within a transaction of the caller's."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import msgspec

from memman.protocols import Appended, FeedItem, SessionInfo, StoredItem
from memman.records import Added, Record, SessionTotals, encode, tombstone
from memman.stores.rows import (
    NO_LEDGER,
    NO_PLACES,
    SessionRow,
    decoded,
    encoded_places,
    in_batches,
    placed,
    renamed,
)

if TYPE_CHECKING:
    from sqlite3 import Connection

_SEQ_BITS: Final = 32  # of a record's key are its seq; above them is its session's number
_MOST_SEQ: Final = (1 << _SEQ_BITS) - 1
_MOST_NAMED: Final = 500  # parameters in one statement; every SQLite takes 999
# A row by which an id is found costs each commit a page of its own, so those of entries are written in
# sixteens: up to the last seq that this divides all are in `named`, and later records are looked through.
_NAMED_TOGETHER: Final = 16

# A session beside its newest record, which has its totals.
_RECORDS: Final = f"""
BETWEEN session.number << {_SEQ_BITS} AND (session.number << {_SEQ_BITS}) + {_MOST_SEQ}
"""
_NEWEST: Final = f"(SELECT max(key) FROM record WHERE key {_RECORDS})"  # noqa: S608 - our own words and numbers, nothing given
_HEAD: Final = f"coalesce(record.key & {_MOST_SEQ}, 0)"
_TOTALS: Final = "coalesce(entries, 0), coalesce(tokens, 0)"
_STANDING: Final = f"""
FROM session LEFT JOIN record ON record.key {_RECORDS} WHERE id = ? ORDER BY record.key DESC LIMIT 1
"""
_ROW: Final = f"SELECT number, {_HEAD}, epoch, {_TOTALS}, floor, places, folded, ledger {_STANDING}"
_STATE: Final = f"SELECT coalesce({_NEWEST} & {_MOST_SEQ}, 0), epoch FROM session WHERE id = ?"  # noqa: S608 - our own words and numbers, nothing given
_SESSIONS: Final = f"""
SELECT id, {_HEAD}, {_TOTALS} FROM session LEFT JOIN record ON record.key = {_NEWEST} ORDER BY number
"""  # noqa: S608 - our own words and numbers, nothing given

# The session whose run the newest row of the feed is, while it is open.
_RUNNING: Final = (
    "(SELECT CASE WHEN last IS NULL THEN session END FROM feed ORDER BY position DESC LIMIT 1)"
)
_TO_APPEND: Final = f"SELECT number, epoch, record.key, entries, tokens, {_RUNNING} {_STANDING}"
_STRETCH: Final = "SELECT key, payload FROM record WHERE key BETWEEN ? AND ? ORDER BY key"
_IS_NAMED: Final = "SELECT 1 FROM named WHERE session = ? AND id = ?"
# A whole append where nothing came between: the record before is the newest, the run of the feed is this
# session's, and the id is not there. Else a total is NULL or the key is taken, and nothing is written.
# Numbered placeholders would be shorter, and from Python 3.12.0 to 3.12.3 each is warned of.
_ADD_NEXT: Final = f"""
INSERT OR IGNORE INTO record VALUES (
    ?,
    ?,
    (
        SELECT entries + 1 FROM record
        WHERE key = ? AND {_RUNNING} = ?
        AND NOT EXISTS (SELECT 1 FROM named WHERE session = ? AND id = ?)
    ),
    (SELECT tokens + ? FROM record WHERE key = ?)
)
"""  # noqa: S608 - our own words and numbers, nothing given
# What was taken is found where that was last; no id begins with a control character.
_NAME: Final = """
INSERT INTO named VALUES (?, ?, ?)
ON CONFLICT (session, id) DO UPDATE SET seq = excluded.seq WHERE excluded.id < ' '
"""
_END_RUN: Final = f"""
UPDATE feed SET last = {_MOST_SEQ} & (
    SELECT max(key) FROM record
    WHERE key BETWEEN feed.session << {_SEQ_BITS} AND (feed.session << {_SEQ_BITS}) + {_MOST_SEQ}
)
WHERE position = (SELECT max(position) FROM feed) AND last IS NULL
"""  # noqa: S608 - our own words and numbers, nothing given
# The order of the loops is given: the feed leads, and where a session is gone its rows lead nowhere.
_FEED: Final = f"""
SELECT feed.position, session.id, record.key & {_MOST_SEQ} AS seq, record.payload
FROM feed
CROSS JOIN session ON session.number = feed.session
CROSS JOIN record ON record.key
    BETWEEN (feed.session << {_SEQ_BITS}) + max(first, (position = :position) * (:seq + 1))
    AND (feed.session << {_SEQ_BITS}) + ifnull(last, {_MOST_SEQ})
WHERE feed.position >= :position
ORDER BY feed.position, record.key
LIMIT :limit
"""  # noqa: S608 - our own words and numbers, nothing given


class Tail(msgspec.Struct, frozen=True, gc=False):
    """A session as it stood when its log ended at `head`: what an append needs to know.

    `names` are the ids of its newest records, in their order, which are not in `named` yet. It stays true
    of that head, whatever comes after it.
    """

    number: int
    epoch: int
    head: int
    names: tuple[str, ...]

    @property
    def is_full(self) -> bool:
        """Whether its names are written with the next one."""
        return (self.head + 1) % _NAMED_TOGETHER == 0

    def after(self, name: str) -> Tail:
        """The session with one more entry."""
        names = () if self.is_full else (*self.names, name)
        return Tail(self.number, self.epoch, self.head + 1, names)


def key_of(row: SessionRow, seq: int) -> int:
    """The key of the record at a seq: a session's records are neighbours, in their order."""
    return (row.number << _SEQ_BITS) + seq


# ---------------------------------------------------------------- reading


def row_of(db: Connection, session_id: str) -> SessionRow | None:
    """A session's row; None where there is no such session."""
    found = db.execute(_ROW, (session_id,)).fetchone()
    if found is None:
        return None
    row = msgspec.convert(found, SessionRow)
    if row.floor > row.head:
        raise msgspec.DecodeError("the newest record is missing")
    return row


def state_of(db: Connection, session_id: str) -> tuple[int, int] | None:
    """(head, epoch) of a session."""
    found: tuple[int, int] | None = db.execute(_STATE, (session_id,)).fetchone()
    return found


def all_sessions(db: Connection) -> list[SessionInfo]:
    """Every session, in the order of creation."""
    return [SessionInfo(*row) for row in db.execute(_SESSIONS).fetchall()]


def stretch(db: Connection, row: SessionRow, after: int, last: int) -> list[tuple[int, Record]]:
    """The records with `after` < seq <= `last`, in order."""
    found = db.execute(_STRETCH, (key_of(row, after + 1), key_of(row, last))).fetchall()
    return _decoded(row.number, found, max(0, last - after))


def seqs_of(db: Connection, row: SessionRow, ids: Collection[str]) -> dict[str, int]:
    """Where the ids that are there stand."""
    seqs: dict[str, int] = {}
    for names in _batches(list(dict.fromkeys(ids))):
        marks = ", ".join("?" * len(names))
        query = f"SELECT id, seq FROM named WHERE session = ? AND id IN ({marks})"  # noqa: S608 - only marks
        seqs.update(db.execute(query, (row.number, *names)).fetchall())
    unnamed = _unnamed(db, row.number, row.head)
    return {name: unnamed[name] for name in ids if name in unnamed} | seqs


def _unnamed(db: Connection, number: int, head: int) -> dict[str, int]:
    """The ids of the newest records, which may not be in `named` yet, with their places."""
    count = head % _NAMED_TOGETHER
    if not count:
        return {}
    last = (number << _SEQ_BITS) + head
    found = db.execute(_STRETCH, (last - count + 1, last)).fetchall()
    return {record.id: seq for seq, record in _decoded(number, found, count)}


def records_at(db: Connection, row: SessionRow, seqs: Iterable[int]) -> list[tuple[int, Record]]:
    """The records at these places, in the order of the log."""
    keys = [key_of(row, seq) for seq in sorted(set(seqs))]
    found: list[tuple[int, bytes]] = []
    for some in _batches(keys):
        marks = ", ".join("?" * len(some))
        query = f"SELECT key, payload FROM record WHERE key IN ({marks}) ORDER BY key"  # noqa: S608 - only marks
        found += db.execute(query, some).fetchall()
    return _decoded(row.number, found, len(keys))


def _decoded(
    number: int, found: list[tuple[int, bytes]], expected: int
) -> list[tuple[int, Record]]:
    """The records of rows. Raises `msgspec.DecodeError` where one is missing or is no record."""
    if len(found) != expected or any(type(payload) is not bytes for _, payload in found):
        raise msgspec.DecodeError("a record is missing")
    first = number << _SEQ_BITS
    return [decoded(key - first, payload) for key, payload in found]


def _batches(values: list[Any]) -> list[list[Any]]:
    return [values[at : at + _MOST_NAMED] for at in range(0, len(values), _MOST_NAMED)]


# ---------------------------------------------------------------- writing


def begun(db: Connection, session_id: str) -> SessionRow:
    """The row of a new session."""
    [(epoch,)] = db.execute("SELECT first_epoch FROM store")
    number = db.execute(
        "INSERT INTO session (id, epoch, floor, places, folded, ledger) VALUES (?, ?, 0, ?, 0, ?)",
        (session_id, epoch, NO_PLACES, NO_LEDGER),
    ).lastrowid
    return SessionRow(number or 0, 0, epoch, 0, 0, 0, NO_PLACES, 0, NO_LEDGER)


def added_next(db: Connection, known: Tail, record: Added, payload: bytes) -> Tail | None:
    """The session with one more entry; None where something came between, or the entry is there.

    Unless the tail is full, it is one statement.
    """
    if record.id in known.names:
        return None
    number, tokens = known.number, record.entry.token_count.tokens
    before = (number << _SEQ_BITS) + known.head
    values = before + 1, payload, before, number, number, record.id, tokens, before
    if db.execute(_ADD_NEXT, values).rowcount != 1:
        return None
    return _named_after(db, known, record)


def added(
    db: Connection, session_id: str, record: Added, payload: bytes, known: Tail | None
) -> Tail | None:
    """The session with one more entry, which nearly every append is; None where it begins, or has it.

    `known` is the tail as it was when last looked at.
    """
    # Plain statements: one that also returns what it wrote takes SQLite longer than asking before.
    found = db.execute(_TO_APPEND, (session_id,)).fetchone()
    if found is None or found[2] is None:
        return None
    number, epoch, newest, entries, tokens, running = found
    head = newest & _MOST_SEQ
    if known is None or (known.number, known.head) != (number, head):
        known = Tail(number, epoch, head, tuple(_unnamed(db, number, head)))
    if record.id in known.names or db.execute(_IS_NAMED, (number, record.id)).fetchone():
        return None
    db.execute(
        "INSERT INTO record VALUES (?, ?, ?, ?)",
        (newest + 1, payload, entries + 1, tokens + record.entry.token_count.tokens),
    )
    if running != number:
        _run(db, number, head + 1)
    return _named_after(db, known, record)


def _named_after(db: Connection, known: Tail, record: Added) -> Tail:
    """The tail with a record that was written behind it; the names of a full one are written now."""
    if known.is_full:
        names = (*known.names, record.id)
        first = known.head + 2 - len(names)
        _name(db, known.number, {name: seq for seq, name in enumerate(names, first)})
    return known.after(record.id)


def _name(db: Connection, number: int, seqs: Mapping[str, int]) -> None:
    db.executemany(_NAME, [(number, name, seq) for name, seq in seqs.items()])


def appended(
    db: Connection,
    row: SessionRow,
    totals: SessionTotals,
    records: Sequence[Record],
    payloads: Sequence[bytes],
) -> tuple[Appended, SessionTotals]:
    """Puts the records that are not there behind the row's head, where the ledger stands."""
    known = seqs_of(db, row, [record.id for record in records])
    found = placed(row.head, totals, records, payloads, known)
    if found.head // _NAMED_TOGETHER > row.head // _NAMED_TOGETHER:
        _name(db, row.number, _unnamed(db, row.number, row.head))
    first = key_of(row, 0)
    db.executemany(
        "INSERT INTO record VALUES (?, ?, ?, ?)",
        [(first + seq, *columns) for seq, *columns in found.rows],
    )
    again = renamed(found, known)
    db.executemany(
        "DELETE FROM named WHERE session = ? AND id = ?", [(row.number, name) for name in again]
    )
    _name(db, row.number, found.names)
    if found.rows and db.execute(f"SELECT {_RUNNING}").fetchone() != (row.number,):
        _run(db, row.number, row.head + 1)
    return Appended(found.seqs, found.head, row.epoch, len(found.rows)), found.totals


def all_appended(
    db: Connection, row: SessionRow, records: Sequence[Record]
) -> tuple[Appended, SessionTotals]:
    """What `appended` does of however many, held a few at a time; and the ledger behind them."""
    totals = row.ledger_after(stretch(db, row, row.folded, row.head))
    seqs: list[int] = []
    now = row
    for batch, payloads in in_batches(records):
        some, totals = appended(db, now, totals, batch, payloads)
        now = msgspec.structs.replace(now, head=some.head)
        seqs += some.seqs
    return Appended(tuple(seqs), now.head, row.epoch, now.head - row.head), totals


def _run(db: Connection, number: int, first: int) -> None:
    """Begins a run of the feed: from this record on, until another session is written to."""
    db.execute(_END_RUN)
    db.execute("INSERT INTO feed (session, first) VALUES (?, ?)", (number, first))


def reshape(
    db: Connection,
    row: SessionRow,
    head: int,
    totals: SessionTotals,
    window: Sequence[StoredItem],
    floor: int,
) -> None:
    """Takes a new window, and the ledger with it, so that neither is ever folded from the beginning."""
    db.execute(
        "UPDATE session SET epoch = ?, floor = ?, places = ?, folded = ?, ledger = ? WHERE number = ?",
        (
            row.epoch + 1,
            floor,
            encoded_places(window, row.head),
            head,
            msgspec.json.encode(totals),
            row.number,
        ),
    )


def erased(db: Connection, row: SessionRow, ids: frozenset[str]) -> None:
    """Puts tombstones where the payloads were, in every era."""
    found = stretch(db, row, 0, row.head)
    db.executemany(
        "UPDATE record SET payload = ? WHERE key = ?",
        [
            (encode(erased), key_of(row, seq))
            for seq, record in found
            if (erased := tombstone(record, ids)) != record
        ],
    )


def removed(db: Connection, row: SessionRow) -> None:
    """Removes a session with its log; its rows of the feed stay, and lead nowhere."""
    if db.execute(f"SELECT {_RUNNING}").fetchone() == (row.number,):
        db.execute(_END_RUN)
    db.execute(
        "DELETE FROM record WHERE key BETWEEN ? AND ?", (key_of(row, 0), key_of(row, row.head))
    )
    db.execute("DELETE FROM named WHERE session = ?", (row.number,))
    db.execute("DELETE FROM session WHERE number = ?", (row.number,))
    db.execute("UPDATE store SET first_epoch = max(first_epoch, ?)", (row.epoch + 1,))


# ---------------------------------------------------------------- the feed


def fed(db: Connection, position: int, seq: int, limit: int) -> list[FeedItem]:
    """The records behind a place of the feed."""
    bounds = {"position": position, "seq": seq, "limit": limit}
    return [
        FeedItem(session_id, *decoded(seq, payload), f"{position}:{seq}")
        for position, session_id, seq, payload in db.execute(_FEED, bounds)
    ]


def was_fed(db: Connection, position: int, seq: int) -> bool:
    """Whether the feed has a record at this place, or had it before its session was deleted."""
    found = db.execute(
        "SELECT session, first, last FROM feed WHERE position = ?", (position,)
    ).fetchone()
    if found is None:
        return False
    session, first, last = found
    if last is None:
        key = (session << _SEQ_BITS) + seq
        return (
            seq >= first
            and db.execute("SELECT 1 FROM record WHERE key = ?", (key,)).fetchone() is not None
        )
    return bool(first <= seq <= last)
