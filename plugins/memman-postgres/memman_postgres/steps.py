"""The statements of a store, written once: generators that both managers drive.

A step yields `(statement, arguments)` and is sent the rows. One step is one transaction.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from memman.errors import StoreConflict
from memman.protocols import Appended, FeedItem, SessionInfo, Snapshot, StoredItem
from memman.records import Added, Record, SessionTotals, encode, first_line_of, tombstone
from memman.stores.rows import (
    LISTED_COLUMNS,
    MADE,
    NO_ITEMS,
    NO_TOTALS,
    ROW_COLUMNS,
    SNAPSHOT_COLUMNS,
    ListedRow,
    NewRecords,
    SessionRow,
    SnapshotRow,
    decoded,
    encoded_items,
    fits,
    foreign_cursor,
    head_conflict,
    in_batches,
    known_seqs,
    new_records,
    numbers_in,
    window_conflict,
)
from memman_postgres import erasure
from memman_postgres.transactions import Step

# The place of this transaction's records in the feed. It is never before the session's last record, since a
# transaction with an older id may have waited for the one that wrote it.
_POSITION = (
    "greatest(position, pg_current_xact_id()::text::bigint + (SELECT behind FROM memman_store))"
)
# One round trip. A record whose id is known adds nothing.
_APPEND_ONE = "SELECT memman_add(%s, %s, %s, %s, %s, %s)"
_HORIZON = """
SELECT behind + pg_snapshot_xmin(pg_current_snapshot())::text::bigint,
    behind + pg_snapshot_xmax(pg_current_snapshot())::text::bigint
FROM memman_store
"""
_FEED = """
SELECT record.position, record.session, record.seq, session.id, record.payload
FROM memman_record AS record JOIN memman_session AS session ON session.number = record.session
WHERE (record.position, record.session, record.seq) > (%s, %s, %s) AND record.position < %s
ORDER BY record.position, record.session, record.seq
LIMIT %s
"""
# The clock is read again once the row is free: another worker may have taken the lease since.
# A clock that was set back ends a lease; it must not make it longer.
_LEASE = """
UPDATE memman_session SET lease_holder = %s, lease_from = clock_timestamp(),
    lease_until = clock_timestamp() + make_interval(secs => %s)
WHERE id = %s AND (
    lease_holder IS NULL OR lease_holder = %s OR clock_timestamp() < lease_from
    OR clock_timestamp() > lease_until
)
RETURNING number
"""
_GIVE_BACK = """
UPDATE memman_session SET lease_holder = NULL, lease_from = NULL, lease_until = NULL
WHERE id = %s AND lease_holder = %s
RETURNING number
"""
_SNAPSHOT = f"SELECT {SNAPSHOT_COLUMNS} FROM memman_session WHERE number = %s"  # noqa: S608 - our own names
_LISTED = f"SELECT {LISTED_COLUMNS} FROM memman_session WHERE starts_with(id, %s) ORDER BY number"  # noqa: S608 - our own names
_RELIST = """
UPDATE memman_session SET created_at = coalesce(%s, created_at), metadata = coalesce(%s, metadata),
    first_line = coalesce(%s, first_line)
WHERE number = %s
"""
_ROW = f"SELECT {ROW_COLUMNS} FROM memman_session WHERE id = %s"  # noqa: S608 - our own names


_EFFECTS = f"""
SELECT id, seq, {MADE} AS effect FROM memman_record WHERE session = %s AND id = ANY(%s)
UNION ALL
SELECT id, seq, effect FROM memman_mention WHERE session = %s AND id = ANY(%s)
"""  # noqa: S608 - our own words
_NAMING = """
SELECT seq, payload FROM memman_record WHERE session = %s AND seq IN (
    SELECT seq FROM memman_record WHERE session = %s AND id = ANY(%s)
    UNION
    SELECT seq FROM memman_mention WHERE session = %s AND id = ANY(%s)
) ORDER BY seq
"""


def append_one(
    session_id: str, records: Sequence[Record], expect_head: int | None
) -> Step[Appended | None]:
    """Add a single entry in one round trip, as nearly every append does.

    Returns None for other appends, and if the session does not exist or knows the id.
    """
    record = records[0] if len(records) == 1 and expect_head is None else None
    if not isinstance(record, Added):
        return None
    entry, body = record.entry, encode(record)
    said = first_line_of(entry.text) if entry.role == "user" else None
    given = (session_id, record.id, entry.token_count.tokens, body, entry.timestamp, said)
    [(found,)] = yield _APPEND_ONE, given
    if found is None:
        return None
    head, epoch = found
    return Appended((head,), head, epoch, 1)


def append(session_id: str, records: Sequence[Record], expect_head: int | None) -> Step[Appended]:
    """Append records; one whose id is known keeps its seq."""
    row = yield from _locked(session_id)
    if expect_head not in (None, row.head):
        raise StoreConflict(head_conflict(session_id, row.head, expect_head))
    payloads = [encode(record) for record in records]
    return (yield from _append(row, row.totals, records, payloads)).appended


def commit(
    session_id: str,
    epoch: int,
    records: Sequence[Record],
    window: Sequence[StoredItem],
    floor: int,
    expect_head: int | None,
    erase: frozenset[str] = frozenset(),
) -> Step[Appended]:
    """Append records and replace the window, if the epoch is unchanged."""
    row = yield from _locked(session_id)
    if (yield from _known_seqs(row, [records[0].id])):
        return (yield from _append_all(row, records))[0]
    if not fits(row.head, row.epoch, epoch, len(records), floor, expect_head):
        raise StoreConflict(window_conflict(session_id, (row.head, row.epoch), epoch, expect_head))
    appended, totals = yield from _append_all(row, records)
    yield (
        "UPDATE memman_session SET epoch = %s, floor = %s, items = %s, folded = %s, totals = %s"
        " WHERE number = %s",
        (
            row.epoch + 1,
            floor,
            encoded_items(window, row.head),
            appended.head,
            msgspec.json.encode(totals),
            row.number,
        ),
    )
    if erase:
        yield from _erase(row, erase)
    return Appended(appended.seqs, appended.head, row.epoch + 1, appended.fresh)


def load(session_id: str) -> Step[Snapshot | None]:
    """Return the session's snapshot."""
    row = yield from _row(session_id)
    if row is None:
        return None
    kept = yield from _snapshot_row(row)
    found = yield (
        "SELECT seq, payload FROM memman_record"
        " WHERE session = %s AND (seq = ANY(%s) OR seq > %s) ORDER BY seq",
        (row.number, [item.seq for item in kept.window], kept.tail),
    )
    records = [decoded(seq, payload) for seq, payload in found]
    return kept.snapshot(row, dict(records), [pair for pair in records if pair[0] > kept.tail])


def state(session_id: str) -> Step[tuple[int, int] | None]:
    """Return the head and the epoch of a session."""
    found = yield "SELECT head, epoch FROM memman_session WHERE id = %s", (session_id,)
    return (found[0][0], found[0][1]) if found else None


def read(session_id: str, after: int, limit: int) -> Step[list[tuple[int, Record]]]:
    """Return records of the log."""
    row = yield from _row(session_id)
    return (yield from _read(row, after, min(row.head, after + limit))) if row else []


def find(session_id: str, ids: Sequence[str]) -> Step[list[tuple[int, Record]]]:
    """Return the records that name one of these ids."""
    row = yield from _row(session_id)
    if row is None:
        return []
    names = list(ids)
    found = yield _NAMING, (row.number, row.number, names, row.number, names)
    return [decoded(seq, payload) for seq, payload in found]


def feed(after: str, limit: int) -> Step[list[FeedItem]]:
    """Return the records of every session behind a cursor, up to the oldest running transaction."""
    position, number, seq = numbers_in(after, 3, "PostgreSQL")
    [(horizon, end)] = yield _HORIZON, ()
    if position >= end:
        raise foreign_cursor(after, "this database")
    found = yield _FEED, (position, number, seq, horizon, limit)
    return [
        FeedItem(session_id, *decoded(seq, payload), f"{position}:{number}:{seq}")
        for position, number, seq, session_id, payload in found
    ]


def lease(session_id: str, holder: str, seconds: float) -> Step[bool]:
    """Take, prolong or return the right to pay for a summary, by the server's clock."""
    if seconds:
        found = yield _LEASE, (holder, seconds, session_id, holder)
    else:
        found = yield _GIVE_BACK, (session_id, holder)
    return bool(found)


def sessions(prefix: str) -> Step[list[SessionInfo]]:
    """Return the sessions whose ids begin with `prefix`, in the order in which they began."""
    found = yield _LISTED, (prefix,)
    return [ListedRow(*row).info for row in found]


def delete(session_id: str, found: set[int]) -> Step[bool]:
    """Removes a session with its log.

    `found` is shared by all attempts: if the answer to a commit was lost, the next attempt finds nothing,
    although there was a session.
    """
    row = yield from _row(session_id, lock=True)
    if row is None:
        return bool(found)
    found.add(row.number)
    yield "DELETE FROM memman_record WHERE session = %s", (row.number,)
    yield "DELETE FROM memman_mention WHERE session = %s", (row.number,)
    yield "DELETE FROM memman_session WHERE number = %s", (row.number,)
    yield "UPDATE memman_store SET first_epoch = greatest(first_epoch, %s)", (row.epoch + 1,)
    yield from erasure.remove(row.number)
    return True


# ---------------------------------------------------------------- parts of steps


def _row(session_id: str, *, lock: bool = False) -> Step[SessionRow | None]:
    found = yield _ROW + (" FOR UPDATE" if lock else ""), (session_id,)
    return SessionRow(*found[0]) if found else None


def _snapshot_row(row: SessionRow) -> Step[SnapshotRow]:
    """Return a session as its last commit left it."""
    found = yield _SNAPSHOT, (row.number,)
    return SnapshotRow(*found[0])


def _locked(session_id: str) -> Step[SessionRow]:
    """Return the session's row, locked until the transaction ends; create it if there is none."""
    row = yield from _row(session_id, lock=True)
    if row is None:
        yield (
            "INSERT INTO memman_session"
            " (id, head, epoch, entries, tokens, era, floor, items, folded, totals)"
            " VALUES (%s, 0, 0, 0, 0, 0, 0, %s, 0, %s) ON CONFLICT DO NOTHING",
            (session_id, NO_ITEMS, NO_TOTALS),
        )
        # Read once the row is ours: a deletion that was running has ended by then.
        yield (
            "UPDATE memman_session SET epoch = first_epoch FROM memman_store WHERE id = %s AND head = 0",
            (session_id,),
        )
        row = yield from _row(session_id, lock=True)
    if row is None:
        raise StoreConflict(f"session {session_id!r} was deleted at the same moment; try again")
    return row


def _append(
    row: SessionRow, totals: SessionTotals, records: Sequence[Record], payloads: Sequence[bytes]
) -> Step[NewRecords]:
    """Put the records whose ids are not known behind the row's head, at which the totals are."""
    known = yield from _known_seqs(row, [record.id for record in records])
    new = new_records(row, totals, records, payloads, known)
    if not new.rows:
        return new
    after = new.row
    [(position,)] = yield (
        "UPDATE memman_session SET head = %s, entries = %s, tokens = %s, era = %s, first_id = %s, "  # noqa: S608 - our own words
        f"last_active_at = coalesce(%s, last_active_at), position = {_POSITION} "
        "WHERE number = %s RETURNING position",
        (
            after.head,
            after.entries,
            after.tokens,
            after.era,
            after.first_id,
            new.totals.last_counted_at,
            row.number,
        ),
    )
    if (changes := new.changes) is not None:
        yield _RELIST, (changes.created_at, changes.metadata, changes.first_line, row.number)
    seqs, ids, bodies = zip(*new.rows, strict=True)
    yield (
        "INSERT INTO memman_record (session, seq, id, payload, position) SELECT %s, seq, id, payload, %s"
        " FROM unnest(%s::bigint[], %s::text[], %s::bytea[]) AS given (seq, id, payload)",
        (row.number, position, list(seqs), list(ids), list(bodies)),
    )
    if new.mentions:
        yield (
            "INSERT INTO memman_mention (session, id, seq, effect) SELECT %s, id, seq, effect"
            " FROM unnest(%s::text[], %s::bigint[], %s::smallint[]) AS given (id, seq, effect)",
            (
                row.number,
                [name.id for name in new.mentions],
                [name.seq for name in new.mentions],
                [name.effect for name in new.mentions],
            ),
        )
    return new


def _append_all(row: SessionRow, records: Sequence[Record]) -> Step[tuple[Appended, SessionTotals]]:
    """Append any number of records, a few at a time, and return the totals behind them, too."""
    kept = yield from _snapshot_row(row)
    totals = kept.totals_after((yield from _read(row, kept.folded, row.head)))
    seqs: list[int] = []
    now = row
    for batch, payloads in in_batches(records):
        new = yield from _append(now, totals, batch, payloads)
        now, totals = new.row, new.totals
        seqs += new.seqs
    return Appended(tuple(seqs), now.head, row.epoch, now.head - row.head), totals


def _erase(row: SessionRow, ids: frozenset[str]) -> Step[None]:
    """Overwrite payloads with tombstones, in every era."""
    names = list(ids)
    found = yield _EFFECTS, (row.number, names, row.number, names)
    seqs = [seq for _, seq, effect in found if effect == MADE]
    stored = yield (
        "SELECT seq, payload FROM memman_record WHERE session = %s AND seq = ANY(%s)",
        (row.number, seqs),
    )
    for seq, record in [decoded(seq, payload) for seq, payload in stored]:
        yield (
            "UPDATE memman_record SET payload = %s WHERE session = %s AND seq = %s",
            (encode(tombstone(record, ids)), row.number, seq),
        )
    yield from erasure.remove(row.number, seqs)


def _known_seqs(row: SessionRow, ids: Sequence[str]) -> Step[dict[str, int]]:
    """Return the newest seq that each of these ids is known by."""
    names = list(ids)
    return known_seqs((yield _EFFECTS, (row.number, names, row.number, names)))


def _read(row: SessionRow, after: int, last: int) -> Step[list[tuple[int, Record]]]:
    """Return the records with `after` < seq <= `last`, in order."""
    found = yield (
        "SELECT seq, payload FROM memman_record WHERE session = %s AND seq > %s AND seq <= %s ORDER BY seq",
        (row.number, after, last),
    )
    if len(found) != max(0, last - after):
        raise msgspec.DecodeError("a record is missing")
    return [decoded(seq, payload) for seq, payload in found]
