"""The store in this process: lists and a lock. Nothing survives the process."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Sequence

import msgspec

from memman.errors import StoreConflict
from memman.protocols import Appended, FeedItem, SessionInfo, Snapshot, StoredItem
from memman.records import Added, Record, SessionTotals, ids_hidden_by, tombstone
from memman.runtime.forks import tell_of_forks
from memman.stores.feed_order import Order
from memman.stores.rows import conflict, elsewhere, foreign, hidden, is_there, names_of, numbers_in

_HERE = "the store in memory"
_EMPTY = SessionTotals()


class _Log:
    """One session: its records, where each id stands, and its window as a list up to a floor.

    A signal handler may raise between any two steps, so every change is one step that the
    interpreter cannot be interrupted in, or is noted first (`pending`) and completed later.
    """

    __slots__ = ("folded", "indexed", "pending", "records", "seqs", "shape", "totals")

    def __init__(self, epoch: int) -> None:
        self.records: list[Record] = []
        self.seqs: dict[str, int] = {}
        self.indexed = 0  # how many records `seqs` covers
        self.shape: tuple[int, tuple[StoredItem, ...], int] = (epoch, (), 0)  # epoch, window, floor
        self.pending: tuple[int, list[Record], tuple[int, tuple[StoredItem, ...], int]] | None = (
            None
        )
        self.totals = _EMPTY
        self.folded = 0

    def recovered(self) -> _Log:
        """The log with what an interruption left undone completed."""
        if self.pending is not None:
            head, records, shape = self.pending
            if len(self.records) == head:
                self.records.extend(records)
            self.shape = shape
            self.pending = None
        while self.indexed < len(self.records):
            seq = self.indexed + 1
            record = self.records[seq - 1]
            for name in names_of(record):
                self.seqs.setdefault(name, seq)
            self.seqs[record.id] = seq  # an entry's of an earlier era is found no more
            self.seqs.update(dict.fromkeys(map(hidden, ids_hidden_by(record)), seq))
            self.indexed = seq
        return self

    def append(self, records: Sequence[Record]) -> Appended:
        seqs = self.seqs
        if len(records) == 1:  # which nearly every append is
            [record] = records
            # Asking a property takes as long as the rest of it.
            record_id = record.entry.id if type(record) is Added else record.id
            if record_id not in seqs or not self._has(record):
                self.records.append(record)
                self.indexed = seqs[record_id] = head = len(self.records)
                return Appended((head,), head, self.shape[0], 1)
        fresh: dict[str, Record] = {}
        for record in records:
            if not self._has(record):
                fresh.setdefault(record.id, record)
        self.records.extend(fresh.values())
        self.recovered()
        placed = tuple(seqs[record.id] for record in records)
        return Appended(placed, len(self.records), self.shape[0], len(fresh))

    def _has(self, record: Record) -> bool:
        """Whether a record is there; an entry's only if it is of this era."""
        seq = self.seqs.get(record.id)
        return seq is not None and is_there(record, seq, self.up_to_date_ledger().era)

    def commit(
        self, records: Sequence[Record], places: Sequence[StoredItem], floor: int
    ) -> Appended:
        head = len(self.records)
        resolved = tuple(
            place if place.seq > 0 else msgspec.structs.replace(place, seq=head + 1 - place.seq)
            for place in places
        )
        self.pending = (head, list(records), (self.shape[0] + 1, resolved, floor))
        self.recovered()
        seqs = tuple(range(head + 1, len(self.records) + 1))
        return Appended(seqs, len(self.records), self.shape[0], len(seqs))

    def erase(self, ids: frozenset[str]) -> None:
        self.records[:] = [tombstone(record, ids) for record in self.records]

    def snapshot(self) -> Snapshot:
        epoch, places, floor = self.shape
        listed = [(place, self.records[place.seq - 1]) for place in places]
        later = [
            (StoredItem(seq, -1, seq, record.entry.pinned), record)
            for seq, record in enumerate(self.records[floor:], floor + 1)
            if isinstance(record, Added)
        ]
        totals = self.up_to_date_ledger()
        return Snapshot(len(self.records), epoch, (*listed, *later), totals)

    def named(self, ids: Sequence[str]) -> list[tuple[int, Record]]:
        found = sorted({self.seqs[name] for name in ids if name in self.seqs})
        return [(seq, self.records[seq - 1]) for seq in found]

    def up_to_date_ledger(self) -> SessionTotals:
        """The ledger, folded when somebody asks: an append pays nothing for it."""
        while self.folded < len(self.records):
            seq = self.folded + 1
            self.totals, self.folded = self.totals.after(seq, self.records[seq - 1]), seq
        return self.totals


class MemoryStore:
    """Logs in memory, thread-safe, with every law of the `Store` protocol."""

    # No loop that filters stands in a `with` on its lock: see `tests/test_architecture.py`.

    blocking = False

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._logs: dict[str, _Log] = {}
        self._first_epoch = 0  # later than any epoch of a deleted session
        self._order = Order()  # of the feed: laid when somebody asks, an append pays nothing
        self._leases: dict[str, tuple[str, float]] = {}  # who holds it, and until when
        tell_of_forks(self)

    def before_fork(self) -> None:
        """Wait for a change under way, which the child would have by half."""
        self._lock.acquire()

    def after_fork(self) -> None:
        """Let other threads go on."""
        self._lock.release()

    def in_child(self) -> None:
        """Begin with a free lock."""
        self._lock = threading.Lock()

    def append(
        self, session_id: str, records: Sequence[Record], *, expect_head: int | None = None
    ) -> Appended:
        """Appends records; one whose id is there keeps its seq."""
        with self._lock:
            log = self._logs.get(session_id)
            if log is None:
                log = self._logs[session_id] = _Log(self._first_epoch)
            elif log.pending is not None or log.indexed != len(log.records):
                log.recovered()
            if expect_head is not None and expect_head != len(log.records):
                raise StoreConflict(elsewhere(session_id, len(log.records), expect_head))
            return log.append(records)

    def commit(
        self,
        session_id: str,
        epoch: int,
        records: Sequence[Record],
        window: Sequence[StoredItem],
        floor: int,
        *,
        expect_head: int | None = None,
    ) -> Appended:
        """Appends records and takes the new window, if the epoch is still the same."""
        return self._commit(session_id, epoch, records, window, floor, expect_head, frozenset())

    def _commit(
        self,
        session_id: str,
        epoch: int,
        records: Sequence[Record],
        window: Sequence[StoredItem],
        floor: int,
        expect_head: int | None,
        erase: frozenset[str],
    ) -> Appended:
        with self._lock:
            log = self._found(session_id)
            if log is None:
                log = _Log(self._first_epoch)
                epoch = self._first_epoch if epoch == 0 else epoch
            head = len(log.records)
            if records[0].id in log.seqs:
                return log.append(records)
            # A window of another log (the session was deleted meanwhile) reaches beyond this one.
            beyond = floor > head + len(records)
            if epoch != log.shape[0] or beyond or expect_head not in (None, head):
                raise StoreConflict(conflict(session_id, (log.shape[0], head), epoch, expect_head))
            kept = list(records)  # which may be made only now, and may fail
            self._logs[session_id] = log
            committed = log.commit(kept, window, floor)
            if erase:
                log.erase(erase)
            return committed

    def load(self, session_id: str) -> Snapshot | None:
        """The session as it stands."""
        with self._lock:
            log = self._found(session_id)
            return None if log is None else log.snapshot()

    def state(self, session_id: str) -> tuple[int, int] | None:
        """(head, epoch) of a session."""
        with self._lock:
            log = self._found(session_id)
            return None if log is None else (len(log.records), log.shape[0])

    def _found(self, session_id: str) -> _Log | None:
        log = self._logs.get(session_id)
        return None if log is None else log.recovered()

    def read(
        self, session_id: str, after: int = 0, limit: int = 1_000
    ) -> Sequence[tuple[int, Record]]:
        """A stretch of the log."""
        with self._lock:
            log = self._found(session_id)
            stretch = log.records[after : after + limit] if log else []
        return list(enumerate(stretch, after + 1))

    def feed(self, after: str = "", limit: int = 1_000) -> Sequence[FeedItem]:
        """The records of every session behind a cursor; looks at every session for new ones."""
        [place] = numbers_in(after, 1, _HERE)
        with self._lock:
            if place > self._order.end:
                raise foreign(after, _HERE)
            self._order.lay((name, log.recovered().records) for name, log in self._logs.items())
            found = self._order.after(place, limit, self._is_alive)
            return [FeedItem(name, seq, record, str(at)) for at, name, seq, record in found]

    def _is_alive(self, name: str, records: list[Record]) -> bool:
        log = self._logs.get(name)
        return log is not None and log.records is records

    def lease(self, session_id: str, holder: str, seconds: float) -> bool:
        """Takes, prolongs or gives back the right to pay for a summary."""
        now = time.monotonic()
        with self._lock:
            held_by, until = self._leases.get(session_id, (holder, now))
            if session_id not in self._logs or (held_by != holder and now < until):
                return False
            if seconds:
                self._leases[session_id] = (holder, now + seconds)
                return True
            return held_by == holder and self._leases.pop(session_id, None) is not None

    def find(self, session_id: str, ids: Sequence[str]) -> Sequence[tuple[int, Record]]:
        """Return the records that name one of these ids."""
        with self._lock:
            log = self._found(session_id)
            return [] if log is None else log.named([*ids, *map(hidden, ids)])

    def erase(
        self,
        session_id: str,
        epoch: int,
        record: Record,
        window: Sequence[StoredItem],
        floor: int,
        ids: frozenset[str],
    ) -> Appended:
        """Commit a deletion and put tombstones where the payloads were."""
        return self._commit(session_id, epoch, (record,), window, floor, None, ids)

    def sessions(self) -> Iterable[SessionInfo]:
        """Every session, in the order of creation."""
        with self._lock:
            return [
                SessionInfo(name, len(log.records), totals.entries, totals.tokens)
                for name, log in self._logs.items()
                for totals in (log.recovered().up_to_date_ledger(),)
            ]

    def delete(self, session_id: str) -> bool:
        """Forgets a session."""
        with self._lock:
            log = self._logs.pop(session_id, None)
            if log is not None:
                self._first_epoch = max(self._first_epoch, log.recovered().shape[0] + 1)
                log.records.clear()  # the feed's order still has the list
                self._order.forget(session_id)
                self._leases.pop(session_id, None)
            return log is not None

    def close(self) -> None:
        """Nothing to free: the logs go with the object."""
