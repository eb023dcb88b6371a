"""Functions that stores share: rows of sessions and records, windows, conflicts and cursors."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from operator import itemgetter
from typing import Any

import msgspec

from memman.display import safe_repr
from memman.errors import InvalidInput, StoreConflict
from memman.protocols import (
    Appended,
    Candidate,
    Candidates,
    SearchRequest,
    SessionInfo,
    Snapshot,
    StoredItem,
)
from memman.records import (
    Added,
    Record,
    SessionTotals,
    decode,
    encode,
    ids_made_by,
    ids_moved_by,
    ids_retracted_by,
)
from memman.search import searchable
from memman.search.index import Found
from memman.search.scan import AS_WORD, is_in

_items = msgspec.json.Decoder(tuple[StoredItem, ...])
_metadata = msgspec.json.Decoder(dict[str, Any])
_totals = msgspec.json.Decoder(SessionTotals)

UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""Errors for stored bytes that are damaged. Their texts quote the bytes and must not be shown."""
_FIELD = re.compile(r"at `(\$[^`]*)`$")
_BATCH, _BATCH_BYTES = 500, 2**20  # records of a commit that are held at a time
_MOST_DIGITS = 18
NO_ITEMS = b"[]"
NO_METADATA = b"{}"
NO_TOTALS = msgspec.json.encode(SessionTotals())


class UnknownRecord(msgspec.ValidationError):
    """A record that this version does not know. The text names the field, not its value."""


def decoded(seq: int, payload: bytes) -> tuple[int, Record]:
    """Return a record with its seq. Raises `UnknownRecord`, or an error of `UNREADABLE`."""
    try:
        return seq, decode(payload)
    except msgspec.ValidationError as error:
        field = _FIELD.search(str(error))
        raise UnknownRecord(
            f"record #{seq} cannot be read at {field[1] if field else '$'}; nothing was changed. A newer "
            "memman or a plugin may have written it: use the newest version first"
        ) from None


# ---------------------------------------------------------------- a session's row and its snapshot


class SessionRow(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A session's row: all that an append needs. The totals are those of the era at `head`."""

    number: int
    head: int
    epoch: int
    entries: int
    tokens: int
    era: int
    first_id: str

    @property
    def totals(self) -> SessionTotals:
        """The part of the totals that the row has."""
        return SessionTotals(
            entries=self.entries, tokens=self.tokens, era=self.era, first_id=self.first_id
        )


class SnapshotRow(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A session as its last commit left it, so that an append need not write any of this.

    `items` (JSON) is the window up to `floor`, `totals` (JSON) the fold of the records up to `folded`.
    """

    floor: int
    items: bytes
    folded: int
    totals: bytes

    @property
    def window(self) -> tuple[StoredItem, ...]:
        """The window up to the floor."""
        return _items.decode(self.items)

    @property
    def tail(self) -> int:
        """The seq after which records must be read to load the session."""
        return min(self.floor, self.folded)

    def totals_after(self, tail: Iterable[tuple[int, Record]]) -> SessionTotals:
        """Return the totals with the records of the tail."""
        totals = _totals.decode(self.totals)
        for seq, record in tail:
            if seq > self.folded:
                totals = totals.after(seq, record)
        return totals

    def snapshot(
        self, row: SessionRow, known: Mapping[int, Record], tail: Sequence[tuple[int, Record]]
    ) -> Snapshot:
        """Return the session, from the records of its items and those of its tail.

        Raises `msgspec.DecodeError` if one is missing.
        """
        window = self.window
        if len(tail) != row.head - self.tail or not all(item.seq in known for item in window):
            raise msgspec.DecodeError("a record is missing")
        listed = [(item, known[item.seq]) for item in window]
        later = [(seq, record) for seq, record in tail if seq > self.floor]
        return Snapshot(row.head, row.epoch, window_of(listed, later), self.totals_after(tail))


class ListedRow(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """The columns of a session that the list of sessions shows; `metadata` is JSON."""

    id: str
    created_at: datetime
    last_active_at: datetime | None
    entries: int
    tokens: int
    metadata: bytes
    first_line: str

    @property
    def info(self) -> SessionInfo:
        """The session of the list. Raises `msgspec.DecodeError`."""
        began = self.created_at.astimezone(UTC)
        active = began if self.last_active_at is None else self.last_active_at.astimezone(UTC)
        return SessionInfo(
            self.id,
            began,
            max(began, active),  # the entries of a fork may be older
            self.entries,
            self.tokens,
            _metadata.decode(self.metadata),
            self.first_line,
        )


ROW_COLUMNS = ", ".join(SessionRow.__struct_fields__)
LISTED_COLUMNS = ", ".join(ListedRow.__struct_fields__)
SNAPSHOT_COLUMNS = ", ".join(SnapshotRow.__struct_fields__)


def window_of(
    listed: Iterable[tuple[StoredItem, Record]], later: Iterable[tuple[int, Record]]
) -> tuple[tuple[StoredItem, Record], ...]:
    """Return a window: its list, and every entry that was added after the floor."""
    added = [
        (StoredItem(seq, -1, seq, record.entry.pinned), record)
        for seq, record in later
        if isinstance(record, Added)
    ]
    return (*listed, *added)


def resolved(window: Iterable[StoredItem], head: int) -> list[StoredItem]:
    """Return a commit's window with the seqs of its own records, which come behind `head`."""
    return [
        item if item.seq > 0 else msgspec.structs.replace(item, seq=head + 1 - item.seq)
        for item in window
    ]


def encoded_items(window: Iterable[StoredItem], head: int) -> bytes:
    """Return a commit's window as JSON, with the seqs of its own records."""
    return msgspec.json.encode(resolved(window, head))


# ---------------------------------------------------------------- appending


def is_known(record: Record, seq: int | None, era: int) -> bool:
    """Return whether a record need not be appended, as its id is at `seq`: an entry's only in this era."""
    return seq is not None and (seq > era or not isinstance(record, Added))


MOVED, MADE, RETRACTED = range(3)  # the effects of a record on an entry


class Mention(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """An entry that a record made, moved or retracted, other than by being its `Added`."""

    id: str
    seq: int
    effect: int


def known_seqs(mentions: Iterable[tuple[str, int, int]]) -> dict[str, int]:
    """Return the newest seq that each id is known by, from (id, seq, effect) in any order.

    The id of a retracted entry is free until another record names it.
    """
    seqs: dict[str, int] = {}
    free: set[str] = set()
    # Sorted here: to sort them, a database may walk the session's whole log.
    for name, seq, effect in sorted(mentions, key=itemgetter(1)):
        if effect == MADE:
            seqs[name] = seq
        (free.add if effect == RETRACTED else free.discard)(name)
    return {name: seq for name, seq in seqs.items() if name not in free}


class Changes(msgspec.Struct, frozen=True):
    """The columns of the list of sessions that records change, None for one that stays as it is."""

    created_at: datetime | None
    metadata: bytes | None
    first_line: str | None


class NewRecords(msgspec.Struct, frozen=True):
    """Records that are new to a log: (seq, id, payload) of each, and the row and totals behind them.

    `seqs` has the seq of each given record, those of known ones too. `changes` is None for most appends.
    """

    seqs: tuple[int, ...]
    rows: list[tuple[int, str, bytes]]
    mentions: list[Mention]
    row: SessionRow
    totals: SessionTotals
    changes: Changes | None

    @property
    def appended(self) -> Appended:
        """The answer to the write."""
        return Appended(self.seqs, self.row.head, self.row.epoch, len(self.rows))


def new_records(
    row: SessionRow,
    totals: SessionTotals,
    records: Sequence[Record],
    payloads: Sequence[bytes],
    known: Mapping[str, int],
) -> NewRecords:
    """Put the records whose ids are not known behind the row's head, at which the totals are."""
    at, head, before = dict(known), row.head, totals
    seqs: list[int] = []
    rows: list[tuple[int, str, bytes]] = []
    mentions: list[Mention] = []
    for record, payload in zip(records, payloads, strict=True):
        seq = at.get(record.id)
        if seq is not None and is_known(record, seq, totals.era):
            seqs.append(seq)
            continue
        head += 1
        totals = totals.after(head, record)
        seqs.append(head)
        at[record.id] = head
        rows.append((head, record.id, payload))
        mentions += [Mention(name, head, MADE) for name in ids_made_by(record)[1:]]
        retracted = ids_retracted_by(record)
        for name in retracted:
            at.pop(name, None)
        effect = RETRACTED if retracted else MOVED
        mentions += [Mention(name, head, effect) for name in set(ids_moved_by(record))]
    after = SessionRow(
        row.number, head, row.epoch, totals.entries, totals.tokens, totals.era, totals.first_id
    )
    begun = not row.head and bool(rows)
    described = totals.metadata is not before.metadata  # the row's totals have none to compare with
    retitled = totals.first_id != before.first_id or totals.first_line != before.first_line
    changes = None
    if begun or described or retitled:
        changes = Changes(
            records[0].at if begun else None,
            msgspec.json.encode(totals.metadata) if described else None,
            totals.first_line if retitled else None,
        )
    return NewRecords(tuple(seqs), rows, mentions, after, totals, changes)


def in_batches(records: Iterable[Record]) -> Iterator[tuple[list[Record], list[bytes]]]:
    """Return the records and their payloads, a few at a time: a long import makes them on iteration."""
    batch: list[Record] = []
    payloads: list[bytes] = []
    room = _BATCH_BYTES
    for record in records:
        batch.append(record)
        payloads.append(encode(record))
        room -= len(payloads[-1])
        if room <= 0 or len(batch) >= _BATCH:
            yield batch, payloads
            batch, payloads, room = [], [], _BATCH_BYTES
    if batch:
        yield batch, payloads


class Commit(msgspec.Struct, frozen=True):
    """The arguments of a commit; `erase` has the ids of entries whose payloads become tombstones."""

    session_id: str
    epoch: int
    records: Sequence[Record]
    window: Sequence[StoredItem]
    floor: int
    expect_head: int | None = None
    erase: frozenset[str] = frozenset()

    def check(self, head: int, epoch: int) -> None:
        """Raise `StoreConflict` unless a session at this head and epoch takes the commit."""
        if not fits(head, epoch, self.epoch, len(self.records), self.floor, self.expect_head):
            why = window_conflict(self.session_id, (head, epoch), self.epoch, self.expect_head)
            raise StoreConflict(why)


# ---------------------------------------------------------------- conflicts


def fits(
    head: int, current: int, epoch: int, records: int, floor: int, expect_head: int | None
) -> bool:
    """Return whether a session at `head` and epoch `current` takes a commit of so many records."""
    # To a commit, epoch 0 means a session that does not exist.
    same_epoch = epoch == (current if head else 0)
    # A window that reaches beyond the log is one of a session that was deleted.
    return same_epoch and floor <= head + records and expect_head in (None, head)


def window_conflict(
    session_id: str, at: tuple[int, int], epoch: int, expect_head: int | None
) -> str:
    """Return the message of a refused commit; `at` is the session's head and epoch."""
    head, current = at
    expected = head if expect_head is None else expect_head
    return f"session {session_id!r} is at epoch {current} and head {head}, not at {epoch} and {expected}"


def head_conflict(session_id: str, head: int, expect_head: int | None) -> str:
    """Return the message of a refused append."""
    return f"session {session_id!r} is at {head}, not at {expect_head}"


# ---------------------------------------------------------------- search


def candidates_of(
    request: SearchRequest, found: Found, records: Mapping[int, tuple[str, int, Record]]
) -> Candidates:
    """Return the candidates of an index's rows, from the (session id, seq, record) of each key.

    `records` may lack some of the last. A match by a part of a word is checked here, and so is the scope:
    the index of a file from elsewhere may be wrong.
    """
    candidates = []
    for number, weights in found.rows:
        if number not in records:
            continue
        name, seq, record = records[number]
        if isinstance(record, Added) and request.covers(name, seq):
            text = searchable(record.entry).lower()
            checked = tuple(
                weight if weight in (0.0, AS_WORD) or is_in(text, term, weight) else 0.0
                for term, weight in zip(request.terms, weights, strict=True)
            )
            if any(checked):
                candidates.append(Candidate(name, seq, record, checked))
    more = len(found.rows) == request.limit or len(records) < len(found.rows)
    return Candidates(found.entries, found.counts, candidates, more)


# ---------------------------------------------------------------- the feed


def numbers_in(cursor: str, parts: int, store: str) -> tuple[int, ...]:
    """Return the numbers of a feed's cursor, zeros for the beginning.

    Raises `InvalidInput` if it is not a cursor of this kind of store.
    """
    if cursor == "":
        return (0,) * parts
    numbers = cursor.split(":") if isinstance(cursor, str) else []
    # No column holds more digits.
    known = (n.isascii() and n.isdigit() and len(n) <= _MOST_DIGITS for n in numbers)
    if len(numbers) != parts or not all(known):
        raise InvalidInput(
            f"{safe_repr(cursor, 80)} is not a cursor of the feed of {store}: pass the cursor of an item "
            'that it returned, or "" for the beginning'
        )
    return tuple(int(part) for part in numbers)


def foreign_cursor(cursor: str, store: str) -> InvalidInput:
    """Return the error for a cursor that this store never returned."""
    return InvalidInput(
        f"the feed of {store} has never been at {safe_repr(cursor, 80)}: the cursor is of another "
        'store, or of this one before an older copy of it was restored. Start again from "", or from a '
        "cursor that is older than that copy"
    )
