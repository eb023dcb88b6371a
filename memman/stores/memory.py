"""The store in this process: lists and a lock. Nothing survives the process."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice

import msgspec

from memman.errors import StoreConflict
from memman.protocols import (
    Appended,
    Candidates,
    FeedItem,
    SearchRequest,
    SessionInfo,
    Snapshot,
    StoredItem,
)
from memman.records import (
    Record,
    SessionTotals,
    ids_made_by,
    ids_moved_by,
    ids_retracted_by,
    tombstone,
)
from memman.runtime.forks import register_for_forks
from memman.search import scan
from memman.stores.drivers import has_search, library, warn_without_search
from memman.stores.memory_index import MemoryIndex
from memman.stores.rows import (
    Commit,
    ListedRow,
    foreign_cursor,
    head_conflict,
    is_known,
    numbers_in,
    resolved,
    window_of,
)

_HERE = "the store in memory"


class _Log:
    """One session.

    A change is never half made: records are appended to the list, or `content` is replaced as a whole. The
    rest is an index of them, which `catch_up` continues.
    """

    __slots__ = ("content", "folded", "free", "lease", "made", "moved")

    def __init__(self, epoch: int) -> None:
        # Records, epoch, the window's items up to the floor, the floor.
        self.content: tuple[list[Record], int, Sequence[StoredItem], int] = ([], epoch, (), 0)
        self.folded = (0, SessionTotals())  # the totals, and up to which seq
        self.made: dict[str, list[int]] = {}
        self.moved: dict[str, list[int]] = {}
        self.free: set[str] = set()  # the ids of retracted entries
        self.lease = ("", 0.0)  # its holder, and until when

    @property
    def records(self) -> list[Record]:
        return self.content[0]

    @property
    def epoch(self) -> int:
        return self.content[1]

    @property
    def totals(self) -> SessionTotals:
        return self.folded[1]

    def catch_up(self) -> _Log:
        """Index and fold the records after the last one that was."""
        seq, totals = self.folded
        for record in self.records[seq:]:
            seq += 1
            for name in ids_made_by(record):
                self.made.setdefault(name, []).append(seq)
                self.free.discard(name)
            for name in ids_moved_by(record):
                self.moved.setdefault(name, []).append(seq)
                self.free.discard(name)
            self.free.update(ids_retracted_by(record))
            totals = totals.after(seq, record)
            self.folded = seq, totals
        return self

    def seq_of(self, record: Record) -> int | None:
        """Return the newest seq that a record's id is known by; None if it is free."""
        return None if record.id in self.free else self.made.get(record.id, [None])[-1]

    def append(self, records: Sequence[Record]) -> Appended:
        fresh = {
            record.id: record
            for record in records
            if not is_known(record, self.seq_of(record), self.totals.era)
        }
        self.records.extend(fresh.values())
        self.catch_up()
        seqs = tuple(self.made[record.id][-1] for record in records)
        return Appended(seqs, len(self.records), self.epoch, len(fresh))

    def commit(self, given: Commit) -> Appended:
        head, old = len(self.records), self.records
        if given.erase:
            old = [tombstone(record, given.erase) for record in old]
        window = resolved(given.window, head)
        self.content = ([*old, *given.records], self.epoch + 1, window, given.floor)
        self.catch_up()
        seqs = tuple(range(head + 1, len(self.records) + 1))
        return Appended(seqs, len(self.records), self.epoch, len(seqs))

    def snapshot(self) -> Snapshot:
        records, epoch, items, floor = self.content
        listed = [(item, records[item.seq - 1]) for item in items]
        later = enumerate(records[floor:], floor + 1)
        return Snapshot(len(records), epoch, window_of(listed, later), self.totals)

    def listed(self, session_id: str) -> SessionInfo:
        totals, began = self.totals, self.records[0].at
        metadata = msgspec.json.encode(totals.metadata)
        row = (totals.last_counted_at, totals.entries, totals.tokens, metadata, totals.first_line)
        return ListedRow(session_id, began, *row).info

    def take_lease(self, holder: str, seconds: float, now: float) -> bool:
        held_by, until = self.lease
        if held_by != holder and now < until:
            return False
        self.lease = (holder, now + seconds) if seconds else ("", 0.0)
        return bool(seconds) or held_by == holder


class MemoryStore:
    """Logs in memory, thread-safe, with every capability of a store."""

    blocking = False

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._logs: dict[str, _Log] = {}
        self._first_epoch = 0  # later than any epoch of a deleted session
        # The feed's order: a log and a seq for each record. It is continued when the feed is read, up to
        # the number in `_listed`, which also has the number of each session's records in it.
        self._feed: list[tuple[str, _Log, int]] = []
        self._listed: tuple[int, dict[str, tuple[_Log, int]]] = (0, {})
        self._index: MemoryIndex | None = None  # made at the first search
        register_for_forks(self)

    def before_fork(self) -> None:
        """Wait for the change under way, of which the child would have a half."""
        self._lock.acquire()

    def after_fork(self) -> None:
        """Let other threads continue."""
        self._lock.release()

    def in_child(self) -> None:
        """Start with a free lock, and without the database of the parent."""
        self._lock = threading.Lock()
        self._index = None

    def append(
        self, session_id: str, records: Sequence[Record], *, expect_head: int | None = None
    ) -> Appended:
        """Append records; one whose id is known keeps its seq."""
        with self._lock:
            log = self._found(session_id) or _Log(self._first_epoch)
            if expect_head not in (None, len(log.records)):
                raise StoreConflict(head_conflict(session_id, len(log.records), expect_head))
            appended = log.append(records)
            self._logs[session_id] = log
            return appended

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
        """Append records and replace the window, if the epoch is unchanged."""
        return self._commit(Commit(session_id, epoch, records, window, floor, expect_head))

    def erase(
        self,
        session_id: str,
        epoch: int,
        record: Record,
        window: Sequence[StoredItem],
        floor: int,
        ids: frozenset[str],
    ) -> Appended:
        """Commit a deletion and replace payloads by tombstones."""
        return self._commit(Commit(session_id, epoch, (record,), window, floor, None, ids))

    def _commit(self, given: Commit) -> Appended:
        with self._lock:
            log = self._found(given.session_id) or _Log(self._first_epoch)
            if log.seq_of(given.records[0]) is not None:
                return log.append(given.records)
            given.check(len(log.records), log.epoch)
            if given.erase:
                self._index = None
            committed = log.commit(given)
            self._logs[given.session_id] = log
            return committed

    def load(self, session_id: str) -> Snapshot | None:
        """Return the session's snapshot."""
        with self._lock:
            log = self._found(session_id)
            return None if log is None else log.snapshot()

    def read(
        self, session_id: str, after: int = 0, limit: int = 1_000
    ) -> Sequence[tuple[int, Record]]:
        """Return records of the log."""
        with self._lock:
            log = self._logs.get(session_id)
            records = log.records[after : after + limit] if log else []
        return list(enumerate(records, after + 1))

    def delete(self, session_id: str) -> bool:
        """Remove a session with its log."""
        with self._lock:
            log = self._logs.get(session_id)
            if log is None:
                return False
            self._first_epoch = max(self._first_epoch, log.epoch + 1)
            self._index = None
            del self._logs[session_id]
            log.records.clear()  # the feed still has the log
            return True

    def close(self) -> None:
        """Do nothing: the logs go with the object."""

    def state(self, session_id: str) -> tuple[int, int] | None:
        """Return the head and the epoch of a session."""
        with self._lock:
            log = self._logs.get(session_id)
            return None if log is None else (len(log.records), log.epoch)

    def find(self, session_id: str, ids: Sequence[str]) -> Sequence[tuple[int, Record]]:
        """Return the records that name one of these ids."""
        with self._lock:
            log = self._found(session_id)
            if log is None:
                return []
            names = (names.get(name, ()) for name in ids for names in (log.made, log.moved))
            seqs = sorted({seq for found in names for seq in found})
            return [(seq, log.records[seq - 1]) for seq in seqs]

    def sessions(self, prefix: str = "") -> Iterable[SessionInfo]:
        """Return the sessions whose ids begin with `prefix`, in the order in which they began."""
        with self._lock:
            found = {name: log for name, log in self._logs.items() if name.startswith(prefix)}
            return [log.catch_up().listed(name) for name, log in found.items()]

    def feed(self, after: str = "", limit: int = 1_000) -> Sequence[FeedItem]:
        """Return the records of every session behind a cursor; checks each session for new ones."""
        [start] = numbers_in(after, 1, _HERE)
        with self._lock:
            if start > self._listed[0]:
                raise foreign_cursor(after, _HERE)
            self._continue_feed()
            return list(islice(self._fed(start), limit))

    def lease(self, session_id: str, holder: str, seconds: float) -> bool:
        """Take, prolong or return the right to pay for a summary."""
        with self._lock:
            log = self._logs.get(session_id)
            return log is not None and log.take_lease(holder, seconds, time.monotonic())

    def search(self, request: SearchRequest) -> Candidates:
        """Return entries that contain some of the terms; the first search makes an index."""
        sqlite = library("sqlite3")
        with self._lock:
            if not has_search(sqlite):
                warn_without_search(sqlite)
                return scan(request, self._records_in_scope(request))
            if self._index is None:
                self._index = MemoryIndex(sqlite)
            try:
                for name, log in self._logs.items():
                    if request.covers(name):
                        self._index.add(name, log.records)
                return self._index.search(request)
            except BaseException:
                self._index = None  # a half of a session may be in it
                raise

    def _records_in_scope(self, request: SearchRequest) -> Iterator[tuple[str, int, Record]]:
        for name, log in self._logs.items():
            if request.covers(name):
                yield from ((name, seq, record) for seq, record in enumerate(log.records, 1))

    def _found(self, session_id: str) -> _Log | None:
        log = self._logs.get(session_id)
        return None if log is None else log.catch_up()

    def _continue_feed(self) -> None:
        """Put the records that came since at the end of the feed, session by session."""
        end, listed = self._listed
        more: list[tuple[str, _Log, int]] = []
        now: dict[str, tuple[_Log, int]] = {}
        for name, log in self._logs.items():
            known, count = listed.get(name, (log, 0))
            first = count + 1 if known is log else 1
            more += [(name, log, seq) for seq in range(first, len(log.records) + 1)]
            now[name] = (log, len(log.records))
        self._feed[end:] = more  # replaces the items of an interrupted call
        self._listed = (end + len(more), now)

    def _fed(self, start: int) -> Iterator[FeedItem]:
        for number in range(start, self._listed[0]):
            name, log, seq = self._feed[number]
            if self._logs.get(name) is log:
                yield FeedItem(name, seq, log.records[seq - 1], str(number + 1))
