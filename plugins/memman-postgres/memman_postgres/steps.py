"""What a store asks of the database, written once: generators of statements that either door drives.

A step yields `(statement, arguments)` and is sent the rows. One step is one transaction.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Any, TypeVar

import msgspec

from memman.errors import StoreConflict
from memman.protocols import Appended, FeedItem, SessionInfo, Snapshot, StoredItem
from memman.records import Added, Record, SessionTotals, encode, tombstone
from memman.stores.rows import (
    NO_LEDGER,
    NO_PLACES,
    ROW_COLUMNS,
    Placed,
    SessionRow,
    conflict,
    decoded,
    elsewhere,
    encoded_places,
    fits,
    foreign,
    hidden,
    in_batches,
    numbers_in,
    placed,
    renamed,
)

T = TypeVar("T")
Statement = tuple[str, Sequence[Any]]
Rows = list[tuple[Any, ...]]
Step = Generator[Statement, Rows, T]

# Where this transaction's records stand in the feed: never before the session's last, since a transaction
# with an older id may have waited for the one that wrote it.
_POSITION = (
    "greatest(position, pg_current_xact_id()::text::bigint + (SELECT behind FROM memman_store))"
)
# One round trip. A record whose id is there moves nothing, and so adds nothing.
_APPEND_ONE = "SELECT memman_add(%s, %s, %s, %s)"
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
# The clock is read again when the row is free: another may have taken the lease meanwhile. A clock that
# went back ends a lease rather than making it longer.
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
_ROW = f"SELECT {ROW_COLUMNS} FROM memman_session WHERE id = %s"  # noqa: S608 - our own names


def append_one(session_id: str, record: Added) -> Step[Appended | None]:
    """Adds one entry in one round trip; None where there is no such session, or the entry is there."""
    tokens = record.entry.token_count.tokens
    [(found,)] = yield _APPEND_ONE, (session_id, record.id, tokens, encode(record))
    if found is None:
        return None
    head, epoch = found
    return Appended((head,), head, epoch, 1)


def append(session_id: str, records: Sequence[Record], expect_head: int | None) -> Step[Appended]:
    """Appends records; one whose id is there keeps its seq."""
    row = yield from _locked(session_id)
    if expect_head is not None and row.head != expect_head:
        raise StoreConflict(elsewhere(session_id, row.head, expect_head))
    payloads = [encode(record) for record in records]
    return (yield from _appended(row, row.totals, records, payloads))[0]


def commit(
    session_id: str,
    epoch: int,
    records: Sequence[Record],
    window: Sequence[StoredItem],
    floor: int,
    expect_head: int | None,
    erase: frozenset[str] = frozenset(),
) -> Step[Appended]:
    """Appends records and takes the new window, if the epoch is still the same."""
    row = yield from _locked(session_id)
    if (yield from _seqs(row, [records[0].id])):
        return (yield from _all_appended(row, records))[0]
    if not fits(row, epoch, len(records), floor, expect_head):
        raise StoreConflict(conflict(session_id, (row.epoch, row.head), epoch, expect_head))
    appended, totals = yield from _all_appended(row, records)
    yield (
        "UPDATE memman_session SET epoch = %s, floor = %s, places = %s, folded = %s, ledger = %s"
        " WHERE number = %s",
        (
            row.epoch + 1,
            floor,
            encoded_places(window, row.head),
            appended.head,
            msgspec.json.encode(totals),
            row.number,
        ),
    )
    if erase:
        yield from _erased(row, erase)
    return Appended(appended.seqs, appended.head, row.epoch + 1, appended.fresh)


def load(session_id: str) -> Step[Snapshot | None]:
    """The session as it stands."""
    row = yield from _row(session_id)
    if row is None:
        return None
    found = yield (
        "SELECT seq, payload FROM memman_record"
        " WHERE session = %s AND (seq = ANY(%s) OR seq > %s) ORDER BY seq",
        (row.number, [place.seq for place in row.listed], row.tail),
    )
    records = [decoded(seq, payload) for seq, payload in found]
    tail = [pair for pair in records if pair[0] > row.tail]
    if len(tail) != row.head - row.tail:
        raise msgspec.DecodeError("a record is missing")
    return row.snapshot(dict(records), tail)


def state(session_id: str) -> Step[tuple[int, int] | None]:
    """(head, epoch) of a session."""
    found = yield "SELECT head, epoch FROM memman_session WHERE id = %s", (session_id,)
    return (found[0][0], found[0][1]) if found else None


def read(session_id: str, after: int, limit: int) -> Step[list[tuple[int, Record]]]:
    """A stretch of the log."""
    row = yield from _row(session_id)
    return (yield from _stretch(row, after, min(row.head, after + limit))) if row else []


def feed(after: str, limit: int) -> Step[list[FeedItem]]:
    """The records of every session behind a cursor, as far as nothing can come before them any more."""
    position, number, seq = numbers_in(after, 3, "PostgreSQL")
    [(horizon, end)] = yield _HORIZON, ()
    if position >= end:
        raise foreign(after, "this database")
    found = yield _FEED, (position, number, seq, horizon, limit)
    return [
        FeedItem(session_id, *decoded(seq, payload), f"{position}:{number}:{seq}")
        for position, number, seq, session_id, payload in found
    ]


def lease(session_id: str, holder: str, seconds: float) -> Step[bool]:
    """Takes, prolongs or gives back the right to pay for a summary; by the server's clock."""
    if seconds:
        found = yield _LEASE, (holder, seconds, session_id, holder)
    else:
        found = yield _GIVE_BACK, (session_id, holder)
    return bool(found)


def find(session_id: str, ids: Sequence[str]) -> Step[list[tuple[int, Record]]]:
    """Return the records that name one of these ids."""
    row = yield from _row(session_id)
    return (yield from _named(row, [*ids, *map(hidden, ids)])) if row else []


def sessions() -> Step[list[SessionInfo]]:
    """Every session, in the order of creation."""
    found = yield "SELECT id, head, entries, tokens FROM memman_session ORDER BY number", ()
    return [SessionInfo(*row) for row in found]


def delete(session_id: str, found: set[int]) -> Step[bool]:
    """Removes a session with its log.

    `found` is the caller's, over all attempts: where the answer to a commit was lost, the next attempt
    finds nothing, and yet there was a session.
    """
    row = yield from _row(session_id, lock=True)
    if row is None:
        return bool(found)
    found.add(row.number)
    for table, column in (
        ("memman_record", "session"), ("memman_name", "session"), ("memman_session", "number"),
    ):  # fmt: skip
        yield f"DELETE FROM {table} WHERE {column} = %s", (row.number,)  # noqa: S608 - our own names
    yield "UPDATE memman_store SET first_epoch = greatest(first_epoch, %s)", (row.epoch + 1,)
    return True


# ---------------------------------------------------------------- parts of steps


def _row(session_id: str, *, lock: bool = False) -> Step[SessionRow | None]:
    found = yield _ROW + (" FOR UPDATE" if lock else ""), (session_id,)
    return SessionRow(*found[0]) if found else None


def _locked(session_id: str) -> Step[SessionRow]:
    """The session's row, locked till the transaction ends; begun where there is none."""
    row = yield from _row(session_id, lock=True)
    if row is None:
        yield (
            "INSERT INTO memman_session (id, head, epoch, entries, tokens, floor, places, folded, ledger)"
            " VALUES (%s, 0, 0, 0, 0, 0, %s, 0, %s) ON CONFLICT DO NOTHING",
            (session_id, NO_PLACES, NO_LEDGER),
        )
        # Read after the row is ours: a deletion that was under way has counted by then.
        yield (
            "UPDATE memman_session SET epoch = first_epoch FROM memman_store WHERE id = %s AND head = 0",
            (session_id,),
        )
        row = yield from _row(session_id, lock=True)
    if row is None:
        raise StoreConflict(f"session {session_id!r} was deleted at the same moment; try again")
    return row


def _appended(
    row: SessionRow, totals: SessionTotals, records: Sequence[Record], payloads: Sequence[bytes]
) -> Step[tuple[Appended, SessionTotals]]:
    """Puts the records that are not there behind the row's head, where the ledger stands."""
    known = yield from _seqs(row, [record.id for record in records])
    found = placed(row.head, totals, records, payloads, known)
    if found.rows:
        [(position,)] = yield (
            "UPDATE memman_session SET head = %s, entries = %s, tokens = %s, "  # noqa: S608 - our own words
            f"position = {_POSITION} WHERE number = %s RETURNING position",
            (found.head, found.totals.entries, found.totals.tokens, row.number),
        )
        yield (
            "DELETE FROM memman_name WHERE session = %s AND id = ANY(%s)",
            (row.number, renamed(found, known)),
        )
        yield from _write(row, found, position)
    return Appended(found.seqs, found.head, row.epoch, len(found.rows)), found.totals


def _all_appended(
    row: SessionRow, records: Sequence[Record]
) -> Step[tuple[Appended, SessionTotals]]:
    """What `_appended` does of however many, held a few at a time; and the ledger behind them."""
    totals = row.ledger_after((yield from _stretch(row, row.folded, row.head)))
    seqs: list[int] = []
    now = row
    for batch, payloads in in_batches(records):
        some, totals = yield from _appended(now, totals, batch, payloads)
        now = msgspec.structs.replace(now, head=some.head)
        seqs += some.seqs
    return Appended(tuple(seqs), now.head, row.epoch, now.head - row.head), totals


def _write(row: SessionRow, found: Placed, position: int) -> Step[None]:
    yield (
        "INSERT INTO memman_record (session, seq, payload, position)"
        " SELECT %s, seq, payload, %s FROM unnest(%s::bigint[], %s::bytea[]) AS given (seq, payload)",
        (row.number, position, [each[0] for each in found.rows], [each[1] for each in found.rows]),
    )
    yield (
        "INSERT INTO memman_name (session, id, seq) SELECT %s, id, seq"
        " FROM unnest(%s::text[], %s::bigint[]) AS given (id, seq) ON CONFLICT (session, id)"
        # What was taken is found where that was last; no id begins with a control character.
        " DO UPDATE SET seq = excluded.seq WHERE left(excluded.id, 1) = chr(1)",
        (row.number, list(found.names), list(found.names.values())),
    )


def _erased(row: SessionRow, doomed: frozenset[str]) -> Step[None]:
    """Puts tombstones where the payloads were, in every era."""
    for seq, record in (yield from _stretch(row, 0, row.head)):
        if (erased := tombstone(record, doomed)) == record:
            continue
        yield (
            "UPDATE memman_record SET payload = %s WHERE session = %s AND seq = %s",
            (encode(erased), row.number, seq),
        )


def _seqs(row: SessionRow, ids: Sequence[str]) -> Step[dict[str, int]]:
    """Where the ids that are there stand."""
    found = yield (
        "SELECT id, seq FROM memman_name WHERE session = %s AND id = ANY(%s)",
        (row.number, list(ids)),
    )
    return dict(found)


def _named(row: SessionRow, ids: Sequence[str]) -> Step[list[tuple[int, Record]]]:
    found = yield (
        "SELECT seq, payload FROM memman_record WHERE session = %s AND seq IN"
        " (SELECT seq FROM memman_name WHERE session = %s AND id = ANY(%s)) ORDER BY seq",
        (row.number, row.number, list(ids)),
    )
    return [decoded(seq, payload) for seq, payload in found]


def _stretch(row: SessionRow, after: int, last: int) -> Step[list[tuple[int, Record]]]:
    """The records with `after` < seq <= `last`, in order."""
    found = yield (
        "SELECT seq, payload FROM memman_record WHERE session = %s AND seq > %s AND seq <= %s ORDER BY seq",
        (row.number, after, last),
    )
    if len(found) != max(0, last - after):
        raise msgspec.DecodeError("a record is missing")
    return [decoded(seq, payload) for seq, payload in found]
