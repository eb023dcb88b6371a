"""What stores have in common, above all those that keep a record in a row and a session in another."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec

from memman.display import safe_repr
from memman.errors import InvalidInput
from memman.protocols import Snapshot, StoredItem
from memman.records import Added, Compressed, Record, SessionTotals, decode, encode, ids_hidden_by

_places = msgspec.json.Decoder(tuple[StoredItem, ...])
_ledger = msgspec.json.Decoder(SessionTotals)

# What comes of bytes that are not what was written; none of it may be quoted.
UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
_FIELD = re.compile(r"at `(\$[^`]*)`$")
_BATCH, _BATCH_BYTES = 500, 2**20  # of a commit's records so many are held at a time
_MOST_DIGITS = 18
NO_PLACES = b"[]"
NO_LEDGER = msgspec.json.encode(SessionTotals())


class UnknownRecord(msgspec.ValidationError):
    """A record that this version does not know. The text names the field, not what is in it."""


def decoded(seq: int, payload: bytes) -> tuple[int, Record]:
    """Return a record with its place. Raises `UnknownRecord`, or an error of `UNREADABLE`."""
    try:
        return seq, decode(payload)
    except msgspec.ValidationError as error:
        field = _FIELD.search(str(error))
        raise UnknownRecord(
            f"record #{seq} cannot be read at {field[1] if field else '$'}; nothing was changed. A newer "
            "memman or a plugin may have written it: use the newest version first"
        ) from None


class SessionRow(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A session's row.

    `entries` and `tokens` are the era's totals at `head`. `places` (JSON) is the window up to `floor`,
    `ledger` (JSON) the fold of the records up to `folded`: both are written by commits alone, so that an
    append stays small.
    """

    number: int
    head: int
    epoch: int
    entries: int
    tokens: int
    floor: int
    places: bytes
    folded: int
    ledger: bytes

    @property
    def totals(self) -> SessionTotals:
        """The ledger as far as an append needs it; a clear is a commit, which writes it whole."""
        era = _ledger.decode(self.ledger).era
        return SessionTotals(entries=self.entries, tokens=self.tokens, era=era)

    @property
    def listed(self) -> tuple[StoredItem, ...]:
        """The places of the window up to the floor."""
        return _places.decode(self.places)

    @property
    def tail(self) -> int:
        """The seq after which records must be read to know the session."""
        return min(self.floor, self.folded)

    def ledger_after(self, tail: Iterable[tuple[int, Record]]) -> SessionTotals:
        """The ledger with the records of the tail."""
        totals = _ledger.decode(self.ledger)
        for seq, record in tail:
            if seq > self.folded:
                totals = totals.after(seq, record)
        return totals

    def snapshot(self, known: Mapping[int, Record], tail: Sequence[tuple[int, Record]]) -> Snapshot:
        """The session, from the records of its places and those of its tail.

        Raises `msgspec.DecodeError` where one is missing.
        """
        if not all(place.seq in known for place in self.listed):
            raise msgspec.DecodeError("a record is missing")
        listed = [(place, known[place.seq]) for place in self.listed]
        later = [
            (StoredItem(seq, -1, seq, record.entry.pinned), record)
            for seq, record in tail
            if seq > self.floor and isinstance(record, Added)
        ]
        return Snapshot(self.head, self.epoch, (*listed, *later), self.ledger_after(tail))


ROW_COLUMNS = ", ".join(SessionRow.__struct_fields__)


def single(records: Sequence[Record], expect_head: int | None) -> Added | None:
    """The one entry that is appended with nothing expected, which nearly every append is."""
    alone = records[0] if len(records) == 1 and expect_head is None else None
    return alone if isinstance(alone, Added) else None


def in_batches(records: Iterable[Record]) -> Iterator[tuple[list[Record], list[bytes]]]:
    """The records and their payloads, a few at a time: a long import makes them as they are asked for."""
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


class Placed(msgspec.Struct, frozen=True):
    """Where records stand once they are behind a head, and what is written for that.

    `seqs` are theirs in their order, those of records that were there too. A row of `rows` has the seq,
    the payload, and the era's entries and tokens with it; `names` has the seq of every name to find by: an
    added entry's id is found in the newest era that has it, what was `taken` where it was last.
    """

    seqs: tuple[int, ...]
    rows: list[tuple[int, bytes, int, int]]
    names: dict[str, int]
    head: int
    totals: SessionTotals


def placed(
    head: int,
    totals: SessionTotals,
    records: Sequence[Record],
    payloads: Sequence[bytes],
    known: Mapping[str, int],
) -> Placed:
    """Puts records behind a head, where `ledger` stands, except those whose ids are known."""
    seqs, names = dict(known), dict[str, int]()
    rows: list[tuple[int, bytes, int, int]] = []
    for record, payload in zip(records, payloads, strict=True):
        if is_there(record, seqs.get(record.id), totals.era):
            continue
        head += 1
        totals = totals.after(head, record)
        seqs[record.id] = head
        rows.append((head, payload, totals.entries, totals.tokens))
        for name in names_of(record):
            names.setdefault(name, head)
        names[record.id] = head
        names.update(dict.fromkeys(map(hidden, ids_hidden_by(record)), head))
    return Placed(tuple(seqs[record.id] for record in records), rows, names, head, totals)


def is_there(record: Record, seq: int | None, era: int) -> bool:
    """Return whether a record need not be appended, as its id is at `seq`: an entry's only in this era."""
    return seq is not None and (seq > era or not isinstance(record, Added))


def renamed(found: Placed, known: Mapping[str, int]) -> list[str]:
    """Return the ids that earlier eras have too: they are found by the newest record from now on."""
    return [name for name, seq in known.items() if found.names.get(name, 0) > seq]


def hidden(name: str) -> str:
    """Return the key of the newest record that hid an entry: no id has a control character."""
    return "\x01" + name


def names_of(record: Record) -> list[str]:
    """The ids that a record is found by: its own, and those of its replacements."""
    replacements = record.replacements if isinstance(record, Compressed) else ()
    return [record.id, *[item.entry.id for item in replacements if item.entry is not None]]


def encoded_places(window: Iterable[StoredItem], head: int) -> bytes:
    """A commit's window as JSON; places at or below zero are those of the records behind `head`."""
    return msgspec.json.encode(
        [
            place if place.seq > 0 else msgspec.structs.replace(place, seq=head + 1 - place.seq)
            for place in window
        ]
    )


def fits(row: SessionRow, epoch: int, records: int, floor: int, expect_head: int | None) -> bool:
    """Whether a commit of so many records may be made on this row."""
    # To a commit, epoch 0 is a session that is not there.
    current = row.epoch if row.head else 0
    # A window of another log (the session was deleted meanwhile) reaches beyond this one.
    beyond = floor > row.head + records
    return epoch == current and not beyond and expect_head in (None, row.head)


def conflict(session_id: str, at: tuple[int, int], epoch: int, expect_head: int | None) -> str:
    """What a refused commit says; `at` is the session's epoch and head."""
    expected = at[1] if expect_head is None else expect_head
    return f"session {session_id!r} is at epoch {at[0]} and head {at[1]}, not at {epoch} and {expected}"


def elsewhere(session_id: str, head: int, expect_head: int) -> str:
    """What a refused append says."""
    return f"session {session_id!r} is at {head}, not at {expect_head}"


def numbers_in(cursor: str, parts: int, store: str) -> tuple[int, ...]:
    """The numbers of a feed's cursor, zeros for the beginning.

    Raises `InvalidInput` where it is no cursor of this kind of store.
    """
    if cursor == "":
        return (0,) * parts
    numbers = cursor.split(":") if isinstance(cursor, str) else []
    if len(numbers) != parts or not all(map(_is_number, numbers)):
        raise InvalidInput(
            f"{safe_repr(cursor, 80)} is no cursor of the feed of {store}: pass the cursor of an item it "
            'gave, or "" for the beginning'
        )
    return tuple(int(part) for part in numbers)


def _is_number(part: str) -> bool:
    """Whether it is what a store writes: no column holds more digits."""
    return part.isascii() and part.isdigit() and len(part) <= _MOST_DIGITS


def foreign(cursor: str, store: str) -> InvalidInput:
    """The error for a cursor that is well made and of nothing that this store ever gave out."""
    return InvalidInput(
        f"the feed of {store} has never been at {safe_repr(cursor, 80)}: the cursor is of another "
        'store, or of this one before an older copy of it was restored. Begin again from "", or from a '
        "cursor that is older than that copy"
    )
