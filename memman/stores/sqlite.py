"""The store in one SQLite file: what was acknowledged is there when the process is gone.

A record is one row, written once; a session's row has its head, its epoch and its window as a list up to a
floor. So an append costs the same in a session of any length, and loading a window costs the window.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, NoReturn, TypeVar

import msgspec

from memman.errors import StoreBusy, StoreConflict, StoreError, StoreFull
from memman.ports import Appended, FeedItem, Place, SessionInfo, Snapshot
from memman.records import Added, Ledger, Record, decode, encode, tombstone
from memman.stores.drivers import Driver, error_code, library
from memman.stores.forks import tell_of_forks
from memman.stores.rows import (
    NO_LEDGER,
    NO_PLACES,
    ROW_COLUMNS,
    SessionRow,
    conflict,
    elsewhere,
    encoded_places,
    fits,
    foreign,
    grown,
    in_batches,
    names_of,
    numbers_in,
    single,
)
from memman.stores.schema import APPLICATION_ID, VERSIONS

if TYPE_CHECKING:
    from sqlite3 import Connection

logger = logging.getLogger("memman")
T = TypeVar("T")
Durability = Literal["fast", "full"]
Work = Callable[["Connection"], T]

_SYNCHRONOUS: Final = {"fast": "NORMAL", "full": "FULL"}
_SEQ_BITS: Final = 32  # of a record's key are its seq; above them is its session's number
_MOST_NAMED: Final = 500  # parameters in one statement; every SQLite takes 999
_OPENING_PAUSE: Final = 0.02  # seconds between attempts while another process sets the file up
_LOOK_AFTER: Final = (
    1.0  # seconds; each look at what the path leads to costs two calls of the system
)
# SQLite's result codes.
_BUSY, _LOCKED, _READONLY, _IOERR, _CORRUPT, _FULL, _CANTOPEN, _NOTADB = 5, 6, 8, 10, 11, 13, 14, 26

# What comes of bytes that are not what was written; SQLite's own messages quote such, too.
_UNREADABLE: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)

# The order of the loops is given: the feed leads, and where a session is gone its rows lead nowhere.
_FEED: Final = f"""
SELECT feed.position, session.id, record.key - (feed.session << {_SEQ_BITS}) AS seq, record.payload
FROM feed
CROSS JOIN session ON session.number = feed.session
CROSS JOIN record ON record.key BETWEEN (feed.session << {_SEQ_BITS}) + feed.first
    AND (feed.session << {_SEQ_BITS}) + feed.last
WHERE feed.position >= :position AND (feed.position > :position OR seq > :seq)
ORDER BY feed.position, record.key
LIMIT :limit
"""  # noqa: S608 - our own number
_TO_FEED: Final = "INSERT INTO feed (session, first, last) VALUES (?, ?, ?)"
_LEASE: Final = """
UPDATE session SET lease_holder = :holder, lease_from = :now, lease_until = :now + :seconds
WHERE id = :id AND (
    lease_holder IS NULL OR lease_holder = :holder OR :now NOT BETWEEN lease_from AND lease_until
)
"""
_GIVE_BACK: Final = """
UPDATE session SET lease_holder = NULL, lease_from = NULL, lease_until = NULL
WHERE id = :id AND lease_holder = :holder
"""
_ROW: Final = f"SELECT {ROW_COLUMNS} FROM session WHERE id = ?"  # noqa: S608 - our own names


class SQLiteStore:
    """Logs in one SQLite file, for the threads and processes of one machine.

    Args:
        path: the file; it is created where there is none. ":memory:" keeps everything in this process.
        durability: "fast" survives the death of the process, and may lose the last moments when the
            machine loses power (WAL, synchronous=NORMAL); "full" waits for the disk at each write.
        timeout: seconds to wait while another process writes; then `StoreBusy`.
        driver: "apsw" opens the file by the newer SQLite of the extra `memman-core[apsw]`.

    Raises:
        StoreError: the file cannot be opened, is no memman database, or is of a newer version.

    Every method is atomic and may be called from any thread. A forked child opens the file for itself.
    """

    blocking = True

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        durability: Durability = "fast",
        timeout: float = 10.0,
        driver: Driver = "sqlite3",
    ) -> None:
        if durability not in _SYNCHRONOUS:
            raise StoreError(f'durability={durability!r} is neither "fast" nor "full"')
        self.path = os.fspath(path)
        if not self.path or "\0" in self.path:
            raise StoreError(f"{self.path!r} is no path of a file")
        self._in_memory = self.path == ":memory:"
        # The working directory may be another one when the file is opened again.
        self._file = self.path if self._in_memory else str(Path(self.path).absolute())
        self.durability = durability
        self._library = library(driver)
        self._timeout = timeout
        self._lock = threading.RLock()
        self._seen = 0  # the file as this connection last saw it changed by others
        self._warned = False
        self._closed = False
        self._files: tuple[object, ...] = ()  # what the path led to when the connection was made
        self._look_at = 0.0  # when to see whether it still does
        self._open: Connection | None = self._connected()
        self._inherited: list[Any] = []  # closing a parent's connection would take away its locks
        tell_of_forks(self)

    def __reduce__(self) -> NoReturn:
        raise TypeError("a SQLiteStore is not to be pickled or copied: hand over its path")

    # ------------------------------------------------------------ writing

    def append(
        self, session_id: str, records: Sequence[Record], *, expect_head: int | None = None
    ) -> Appended:
        """Appends records; one whose id is there keeps its seq."""
        payloads = [encode(record) for record in records]

        def work(db: Connection) -> Appended:
            if (alone := single(records, expect_head)) is not None:
                appended = _added(db, session_id, alone, payloads[0])
                if appended is not None:
                    return appended
            row = _row(db, session_id)
            head = 0 if row is None else row.head
            if expect_head is not None and head != expect_head:
                raise StoreConflict(elsewhere(session_id, head, expect_head))
            return _appended(db, row or _begun(db, session_id), records, payloads)

        return self._write(work)

    def commit(
        self,
        session_id: str,
        epoch: int,
        records: Sequence[Record],
        window: Sequence[Place],
        floor: int,
        *,
        expect_head: int | None = None,
        erase: frozenset[str] = frozenset(),
    ) -> Appended:
        """Appends records and takes the new window, if the epoch is still the same."""

        def work(db: Connection) -> Appended:
            row = _row(db, session_id)
            if row is None:
                row = _begun(db, session_id)
            elif _seqs(db, row, [records[0].id]):
                return _all_appended(db, row, records)[0]
            if not fits(row, epoch, len(records), floor, expect_head):
                raise StoreConflict(conflict(session_id, (row.epoch, row.head), epoch, expect_head))
            appended, ledger = _all_appended(db, row, records)
            _reshape(db, row, appended.head, ledger, window, floor)
            if erase:
                _erase(db, row, erase)
            return msgspec.structs.replace(appended, epoch=row.epoch + 1)

        return self._write(work)

    def erase(self, session_id: str, ids: frozenset[str]) -> None:
        """Puts tombstones where the payloads were, and leaves nothing of them in the file."""

        def work(db: Connection) -> None:
            row = _row(db, session_id)
            if row is not None:
                _erase(db, row, ids)

        self._write(work)
        self._empty_wal()

    def delete(self, session_id: str) -> bool:
        """Removes a session with its log, and leaves nothing of it in the file."""

        def work(db: Connection) -> bool:
            row = _row(db, session_id)
            if row is None:
                return False
            db.execute(
                "DELETE FROM record WHERE key BETWEEN ? AND ?", (_key(row, 0), _key(row, row.head))
            )
            db.execute("DELETE FROM name WHERE session = ?", (row.number,))
            db.execute("DELETE FROM session WHERE number = ?", (row.number,))
            db.execute("UPDATE store SET first_epoch = max(first_epoch, ?)", (row.epoch + 1,))
            return True

        deleted = self._write(work)
        if deleted:
            self._empty_wal()
        return deleted

    # ------------------------------------------------------------ reading

    def load(self, session_id: str) -> Snapshot | None:
        """The session as it stands."""

        def work(db: Connection) -> Snapshot | None:
            self._look_for_others(db)
            row = _row(db, session_id)
            if row is None:
                return None
            known = dict(_records(db, row, {place.seq for place in row.listed}))
            return row.snapshot(known, _stretch(db, row, row.tail, row.head))

        return self._read(work)

    def state(self, session_id: str) -> tuple[int, int] | None:
        """(head, epoch) of a session."""
        query = "SELECT head, epoch FROM session WHERE id = ?"
        found: tuple[int, int] | None = self._once(
            lambda db: db.execute(query, (session_id,)).fetchone()
        )
        return found

    def read(
        self, session_id: str, after: int = 0, limit: int = 1_000
    ) -> Sequence[tuple[int, Record]]:
        """A stretch of the log."""

        def work(db: Connection) -> list[tuple[int, Record]]:
            row = _row(db, session_id)
            return _stretch(db, row, after, min(row.head, after + limit)) if row else []

        return self._read(work)

    def feed(self, after: str = "", limit: int = 1_000) -> Sequence[FeedItem]:
        """The records of every session behind a cursor, in the order of the commits."""
        position, seq = numbers_in(after, 2, "a SQLite file")

        def work(db: Connection) -> list[FeedItem]:
            if position and not _was_given(db, position, seq):
                raise foreign(after, self.path)
            bounds = {"position": position, "seq": seq, "limit": limit}
            return [
                FeedItem(session_id, seq, decode(payload), f"{position}:{seq}")
                for position, session_id, seq, payload in db.execute(_FEED, bounds)
            ]

        return self._read(work)

    def lease(self, session_id: str, holder: str, seconds: float) -> bool:
        """Takes, prolongs or gives back the right to pay for a summary; by this machine's clock."""
        statement = _LEASE if seconds else _GIVE_BACK
        values: dict[str, Any] = {"id": session_id, "holder": holder, "seconds": seconds}

        def work(db: Connection) -> bool:
            # The time when the file is ours: before that, another may have taken the lease. A clock that
            # went back ends a lease rather than making it longer.
            return db.execute(statement, {**values, "now": time.time()}).rowcount == 1

        return self._write(work)

    def get(self, session_id: str, ids: Sequence[str]) -> Sequence[tuple[int, Record]]:
        """Records by id."""

        def work(db: Connection) -> list[tuple[int, Record]]:
            row = _row(db, session_id)
            return _records(db, row, _seqs(db, row, ids).values()) if row else []

        return self._read(work)

    def sessions(self) -> Iterable[SessionInfo]:
        """Every session, in the order of creation."""
        query = "SELECT id, head, entries, tokens FROM session ORDER BY number"
        return [SessionInfo(*row) for row in self._once(lambda db: db.execute(query).fetchall())]

    def close(self) -> None:
        """Closes the file. Closing again does nothing; any other call after it raises `StoreError`."""
        with self._lock:
            self._closed = True
            if self._open is not None:
                self._open.close()
            self._open = None

    # ------------------------------------------------------------ the file

    def _write(self, work: Work[T]) -> T:
        """Does `work` in a transaction that holds the file's write lock from its beginning."""
        # A deferred one that reads first and then writes fails at once when another process wrote between.
        return self._transacted("BEGIN IMMEDIATE", work)

    def _read(self, work: Work[T]) -> T:
        """Does `work` on one state of the file."""
        return self._transacted("BEGIN", work)

    def _transacted(self, begin: str, work: Work[T]) -> T:
        def transaction(db: Connection) -> T:
            try:
                db.execute(begin)
                result = work(db)
                db.execute("COMMIT")
            except BaseException:
                # Where the disk is full SQLite has rolled back already.
                if db.in_transaction:
                    db.execute("ROLLBACK")
                raise
            return result

        return self._once(transaction)

    def _once(self, work: Work[T]) -> T:
        """Does `work` alone in this process; what SQLite raises comes out as an error of ours."""
        with self._lock:
            if self._closed:
                raise StoreError(f"the store {self.path} is closed")
            db = self._open = self._open or self._connected()
            self._look_at_files()
            try:
                return work(db)
            except db.Error as error:
                self._fail(error)
            except _UNREADABLE:
                # Without the cause: it quotes what it could not read.
                raise self._damaged("a record, or what belongs to one, cannot be read") from None

    def _fail(self, error: Exception) -> NoReturn:
        code = error_code(error)
        if code in (_BUSY, _LOCKED):
            raise StoreBusy(
                f"another process held {self.path} for {self._timeout:g} s; nothing was changed: "
                "try again, or give the store a longer timeout"
            ) from error
        if code == _FULL:
            raise StoreFull(f"no room for {self.path}; nothing was changed: {error}") from error
        if code == _READONLY:
            raise StoreError(f"{self.path} may only be read; nothing was changed") from error
        if code == _CANTOPEN:
            raise StoreError(
                f"cannot open {self.path}: is there its folder, and may this user write there?"
            ) from error
        if code == _NOTADB:
            raise StoreError(f"{self.path} is no memman database") from error
        if code == _IOERR:
            raise StoreError(
                f"{self.path} could not be read or written ({error}): is its disk full or failing? "
                "The same call may be made again"
            ) from error
        if code == _CORRUPT:
            raise self._damaged(str(error)) from error
        raise StoreError(f"SQLite failed on {self.path}: {error}") from error

    def _damaged(self, how: str) -> StoreError:
        return StoreError(
            f"{self.path} is damaged: {how}; nothing was changed. Restore a copy, or save what can be "
            "read with the sqlite3 command's .recover"
        )

    def _look_at_files(self) -> None:
        """Raises `StoreError` where what would be written goes to files that nobody will find."""
        now = time.monotonic()
        if now >= self._look_at:
            if self._files != self._found_files():
                raise self._moved()
            self._look_at = now + _LOOK_AFTER

    def _found_files(self) -> tuple[object, ...]:
        """Which files are at the path now: the database and the two that belong to it while it is open."""
        ends = () if self._in_memory else ("", "-wal", "-shm")
        return tuple([_identity(self._file + end) for end in ends])

    def _moved(self) -> StoreError:
        return StoreError(
            f"{self.path}, or the -wal or -shm file beside it, was moved, deleted or replaced while it was "
            "open; nothing was changed. Put it back, or close this store and open the file anew"
        )

    # SQLite keeps its locks in the process: with an open connection carried over a fork, the child's own
    # would take no locks, and the parent's close would remove the write-ahead log under it.

    def before_fork(self) -> None:
        """Waits for what is under way and closes the file: each side opens it again when it needs it."""
        self._lock.acquire()
        if self._open is not None and not self._in_memory:
            self._open.close()
            self._open = None

    def after_fork(self) -> None:
        """Lets others go on."""
        self._lock.release()

    def in_child(self) -> None:
        """The same, where a fork may have come without `before_fork`, by code that is not Python's."""
        self._lock = threading.RLock()
        if self._open is not None and not self._in_memory:
            self._inherited.append(self._open)
            self._open = None

    def _connected(self) -> Connection:
        if self._files and self._files[0] != _identity(self._file):
            raise self._moved()  # or a fork would begin an empty file where this one was
        deadline = time.monotonic() + self._timeout
        while True:
            try:
                db: Connection = self._library.connect(self._file, self._timeout)
                try:
                    self._set_up(db)
                except BaseException:
                    db.close()
                    raise
            except self._library.error as error:
                # Turning WAL on does not wait for another process that is doing the same.
                busy = error_code(error) in (_BUSY, _LOCKED)
                if not busy or time.monotonic() > deadline:
                    self._fail(error)
                time.sleep(_OPENING_PAUSE)
            except _UNREADABLE:
                raise self._damaged("its tables cannot be read") from None
            else:
                return db

    def _set_up(self, db: Connection) -> None:
        """Makes a connection ready: the file's version first, so that a foreign file is not touched."""
        version = self._version(db)
        db.execute("PRAGMA journal_mode = WAL")
        db.execute(f"PRAGMA synchronous = {_SYNCHRONOUS[self.durability]}")
        db.execute("PRAGMA secure_delete = ON")
        if version < len(VERSIONS):
            db.execute("BEGIN IMMEDIATE")
            version = self._version(db)  # another process may have been faster
            for number, statements in enumerate(VERSIONS[version:], version + 1):
                for statement in statements:
                    db.execute(statement)
                db.execute(f"PRAGMA user_version = {number}")
            db.execute(f"PRAGMA application_id = {APPLICATION_ID}")
            db.execute("COMMIT")
        [(self._seen,)] = db.execute("PRAGMA data_version")
        self._files = self._found_files()

    def _version(self, db: Connection) -> int:
        """The version of the file's tables, 0 for an empty file."""
        # In one look: another process may be making the tables.
        [(application, version, tables)] = db.execute(
            "SELECT application_id, user_version, (SELECT count(*) FROM sqlite_master)"
            " FROM pragma_application_id, pragma_user_version"
        )
        if application != APPLICATION_ID and (tables or version or application):
            raise StoreError(f"{self.path} is no memman database")
        if version > len(VERSIONS):
            raise StoreError(
                f"{self.path} is of version {version} and this memman knows up to {len(VERSIONS)}: "
                "install a newer memman-core"
            )
        return int(version)

    def _empty_wal(self) -> None:
        """Moves all that is in the write-ahead log into the file, so that nothing erased stays in it."""
        busy = self._once(lambda db: db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0])
        if busy:
            logger.warning(
                "another process is reading %s: what was erased stays in its write-ahead log until "
                "the next checkpoint",
                self.path,
            )

    def _look_for_others(self, db: Connection) -> None:
        """Warns once where another process writes and this SQLite has the WAL-reset fault."""
        if self._warned:
            return
        [(seen,)] = db.execute("PRAGMA data_version")
        if seen != self._seen and self._library.has_wal_fault:
            self._warned = True
            logger.warning(
                "several processes write %s with SQLite %s, which can, rarely, corrupt the file then "
                "(fixed in 3.51.3): use a newer SQLite (memman-core[apsw] and driver=apsw), or PostgreSQL",
                self.path,
                self._library.version,
            )
        self._seen = seen


def _identity(path: str) -> tuple[int, int] | None:
    """What tells a file from another one at the same path; None where none can be found."""
    try:
        found = Path(path).stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _key(row: SessionRow, seq: int) -> int:
    """The key of the record at a seq: a session's records are neighbours, in their order."""
    return (row.number << _SEQ_BITS) + seq


def _row(db: Connection, session_id: str) -> SessionRow | None:
    found = db.execute(_ROW, (session_id,)).fetchone()
    return None if found is None else msgspec.convert(found, SessionRow)


def _begun(db: Connection, session_id: str) -> SessionRow:
    """The row of a new session."""
    [(epoch,)] = db.execute("SELECT first_epoch FROM store")
    number = db.execute(
        "INSERT INTO session (id, head, epoch, entries, tokens, floor, places, folded, ledger)"
        " VALUES (?, 0, ?, 0, 0, 0, ?, 0, ?)",
        (session_id, epoch, NO_PLACES, NO_LEDGER),
    ).lastrowid
    return SessionRow(number or 0, 0, epoch, 0, 0, 0, NO_PLACES, 0, NO_LEDGER)


def _added(db: Connection, session_id: str, record: Added, payload: bytes) -> Appended | None:
    """One more entry of a session that is there, which nearly every append is; else None."""
    # Plain statements: one that also returns what it wrote takes SQLite longer than asking before.
    found = db.execute(
        "SELECT number, head, epoch FROM session WHERE id = ?", (session_id,)
    ).fetchone()
    if found is None:
        return None
    number, head, epoch = found
    seq = head + 1
    named = db.execute("INSERT OR IGNORE INTO name VALUES (?, ?, ?)", (number, record.id, seq))
    if not named.rowcount:
        return None  # the id is there
    db.execute("INSERT INTO record VALUES (?, ?)", ((number << _SEQ_BITS) + seq, payload))
    db.execute(
        "UPDATE session SET head = ?, entries = entries + 1, tokens = tokens + ? WHERE number = ?",
        (seq, record.entry.token_count.tokens, number),
    )
    db.execute(_TO_FEED, (number, seq, seq))
    return Appended((seq,), seq, epoch, 1)


def _appended(
    db: Connection, row: SessionRow, records: Sequence[Record], payloads: Sequence[bytes]
) -> Appended:
    """Puts the records that are not there behind the head."""
    seqs = _seqs(db, row, [record.id for record in records])
    head, ledger = row.head, Ledger(entries=row.entries, tokens=row.tokens)
    for record, payload in zip(records, payloads, strict=True):
        if record.id in seqs:
            continue
        head += 1
        ledger = ledger.after(head, record)
        seqs[record.id] = head
        db.execute("INSERT INTO record VALUES (?, ?)", (_key(row, head), payload))
        db.executemany(
            "INSERT INTO name VALUES (?, ?, ?) ON CONFLICT DO NOTHING",
            [(row.number, name, head) for name in names_of(record)],
        )
    if head > row.head:
        db.execute(
            "UPDATE session SET head = ?, entries = ?, tokens = ? WHERE number = ?",
            (head, ledger.entries, ledger.tokens, row.number),
        )
        db.execute(_TO_FEED, (row.number, row.head + 1, head))
    placed = tuple([seqs[record.id] for record in records])
    return Appended(placed, head, row.epoch, head - row.head)


def _all_appended(
    db: Connection, row: SessionRow, records: Sequence[Record]
) -> tuple[Appended, Ledger]:
    """What `_appended` does of however many, held a few at a time; and the ledger behind them."""
    ledger = row.ledger_after(_stretch(db, row, row.folded, row.head))
    seqs: list[int] = []
    appended = Appended((), row.head, row.epoch, 0)
    for batch, payloads in in_batches(records):
        now = grown(row, appended, ledger)
        appended = _appended(db, now, batch, payloads)
        for seq, record in enumerate(batch, now.head + 1):
            ledger = ledger.after(seq, record)
        seqs += appended.seqs
    fresh = appended.head - row.head
    return Appended(tuple(seqs), appended.head, row.epoch, fresh), ledger


def _reshape(
    db: Connection, row: SessionRow, head: int, ledger: Ledger, window: Sequence[Place], floor: int
) -> None:
    """Takes a new window, and the ledger with it, so that neither is ever folded from the beginning."""
    db.execute(
        "UPDATE session SET epoch = ?, floor = ?, places = ?, folded = ?, ledger = ? WHERE number = ?",
        (
            row.epoch + 1,
            floor,
            encoded_places(window, row.head),
            head,
            msgspec.json.encode(ledger),
            row.number,
        ),
    )


def _erase(db: Connection, row: SessionRow, ids: frozenset[str]) -> None:
    """Puts tombstones where the payloads were."""
    found = _records(db, row, _seqs(db, row, sorted(ids)).values())
    db.executemany(
        "UPDATE record SET payload = ? WHERE key = ?",
        [(encode(tombstone(record, ids)), _key(row, seq)) for seq, record in found],
    )


def _was_given(db: Connection, position: int, seq: int) -> bool:
    """Whether the feed has an item at this place, or had it before its session was deleted."""
    query = "SELECT 1 FROM feed WHERE position = ? AND ? BETWEEN first AND last"
    return db.execute(query, (position, seq)).fetchone() is not None


def _stretch(db: Connection, row: SessionRow, after: int, last: int) -> list[tuple[int, Record]]:
    """The records with `after` < seq <= `last`, in order."""
    found = db.execute(
        "SELECT key, payload FROM record WHERE key BETWEEN ? AND ? ORDER BY key",
        (_key(row, after + 1), _key(row, last)),
    ).fetchall()
    return _decoded(row, found, max(0, last - after))


def _seqs(db: Connection, row: SessionRow, ids: Sequence[str]) -> dict[str, int]:
    """Where the ids that are there stand."""
    seqs: dict[str, int] = {}
    for names in _batches(list(dict.fromkeys(ids))):
        marks = ", ".join("?" * len(names))
        query = f"SELECT id, seq FROM name WHERE session = ? AND id IN ({marks})"  # noqa: S608 - only marks
        seqs.update(db.execute(query, (row.number, *names)).fetchall())
    return seqs


def _records(db: Connection, row: SessionRow, seqs: Iterable[int]) -> list[tuple[int, Record]]:
    """The records at these places, in the order of the log."""
    keys = [_key(row, seq) for seq in sorted(set(seqs))]
    found: list[tuple[int, bytes]] = []
    for some in _batches(keys):
        marks = ", ".join("?" * len(some))
        query = f"SELECT key, payload FROM record WHERE key IN ({marks}) ORDER BY key"  # noqa: S608 - only marks
        found += db.execute(query, some).fetchall()
    return _decoded(row, found, len(keys))


def _decoded(
    row: SessionRow, found: list[tuple[int, bytes]], expected: int
) -> list[tuple[int, Record]]:
    """The records of rows. Raises `msgspec.DecodeError` where one is missing or is no record."""
    if len(found) != expected or any([type(payload) is not bytes for _, payload in found]):
        raise msgspec.DecodeError("a record is missing")
    first = _key(row, 0)
    return [(key - first, decode(payload)) for key, payload in found]


def _batches(values: list[Any]) -> list[list[Any]]:
    return [values[at : at + _MOST_NAMED] for at in range(0, len(values), _MOST_NAMED)]
