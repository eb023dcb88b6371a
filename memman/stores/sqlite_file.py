"""A SQLite file: opened, set up, written in transactions, and closed across a fork.

Errors of SQLite become errors of ours, which say whether the call changed anything.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from stat import S_ISDIR
from typing import TYPE_CHECKING, Any, Final, Literal, NoReturn, TypeVar

from memman.display import safe_repr
from memman.entries import file_mode
from memman.errors import StoreBusy, StoreError, StoreFull
from memman.files import make_private
from memman.runtime.forks import register_for_forks
from memman.stores.drivers import Driver, error_code, library, written
from memman.stores.rows import UNREADABLE, UnknownRecord
from memman.stores.schema import APPLICATION_ID, VERSION, create, strange_part
from memman.stores.settings import check_choice, check_seconds, checked_path

if TYPE_CHECKING:
    from sqlite3 import Connection

logger = logging.getLogger("memman")
T = TypeVar("T")
Durability = Literal["fast", "full"]
Work = Callable[["Connection"], T]

_EMPTY_WAL: Final = "PRAGMA wal_checkpoint(TRUNCATE)"
_SYNCHRONOUS: Final = {"fast": "NORMAL", "full": "FULL"}
_OPENING_PAUSE: Final = 0.02  # seconds between attempts while another process sets the file up
_LOOK_AFTER: Final = 1.0  # seconds between checks that the path still leads to the open file
_RESTORE: Final = "restore a copy, or save what can be read with the sqlite3 command's .recover"
# SQLite's result codes.
_BUSY, _LOCKED, READONLY, _IOERR, _CORRUPT, _FULL, CANTOPEN, _NOTADB = 5, 6, 8, 10, 11, 13, 14, 26


class SQLiteFile:
    """One SQLite file, for the threads of this process and of others."""

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        durability: Durability = "fast",
        timeout: float = 10.0,
        driver: Driver = "sqlite3",
    ) -> None:
        self._open: Connection | None = None
        # Connections of the parent: closing one would release its locks.
        self._inherited: list[Any] = []
        check_choice("durability", durability, tuple(_SYNCHRONOUS))
        check_choice("driver", driver, ("sqlite3", "apsw"))
        check_seconds("timeout", timeout)
        self.path = checked_path(path)
        self._in_memory = self.path == ":memory:"
        # The working directory may have changed when the file is opened again.
        self._file = self.path if self._in_memory else str(Path(self.path).absolute())
        self.durability = durability
        self._library = library(driver)
        self._timeout = timeout
        self._lock = threading.RLock()
        self._seen = 0  # `data_version`, which grows when others write
        self._warned = False
        self._closed = False
        self._files: tuple[object, ...] = ()  # identities of the files that were opened
        self._look_at = 0.0  # when to check them again
        self._open = self._connect()
        register_for_forks(self)

    def __del__(self) -> None:
        # From Python 3.13 on an unclosed connection warns, but a program may drop its manager unclosed.
        for connection in (self._open, *self._inherited):
            if connection is not None:
                connection.close()

    def __reduce__(self) -> NoReturn:
        raise TypeError("a SQLiteStore cannot be pickled or copied: pass its path")

    def close(self) -> None:
        """Close the file. Closing again does nothing; any other later call raises `StoreError`."""
        with self._lock:
            self._closed = True
            self._close_open()

    def _close_open(self) -> None:
        if self._open is not None:
            self._open.close()
            self._open = None

    def _write(self, work: Work[T]) -> T:
        """Run `work` in a transaction that holds the file's write lock from its beginning."""
        # A deferred transaction fails at once if another process writes between its read and its write.
        return self._in_transaction("BEGIN IMMEDIATE", work)

    def _read(self, work: Work[T]) -> T:
        """Run `work` on one state of the file."""
        return self._in_transaction("BEGIN", work)

    def _in_transaction(self, begin: str, work: Work[T]) -> T:
        def transaction(db: Connection) -> T:
            try:
                db.execute(begin)
                result = work(db)
                db.execute("COMMIT")
            except BaseException:
                # SQLite rolls back by itself when the disk is full.
                if db.in_transaction:
                    db.execute("ROLLBACK")
                raise
            return result

        return self._once(transaction)

    def _once(self, work: Work[T]) -> T:
        """Run `work` alone in this process, and translate the errors of SQLite."""
        with self._lock:
            if self._closed:
                raise StoreError(f"the store {self.path} is closed")
            db = self._open = self._open or self._connect()
            self._look_at_files()
            try:
                return work(db)
            except db.Error as error:
                self._fail(error)
            except UnknownRecord as error:
                raise StoreError(
                    f"{self.path}: {error}. If that does not help, the file is damaged: {_RESTORE}"
                ) from None
            except UNREADABLE:
                # Without the cause, which quotes the damaged bytes.
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
        if code == READONLY:
            raise StoreError(
                f"{self.path} may only be read; nothing was changed: give this user the right to write to "
                "it and to its folder, or work on a copy"
            ) from error
        if code == CANTOPEN and S_ISDIR(file_mode(self._file)):
            raise StoreError(f"{self.path} is a folder: name a file in it") from error
        if code == CANTOPEN:
            raise StoreError(
                f"cannot open {self.path}: does its folder exist, and may this user write there?"
            ) from error
        if code == _NOTADB:
            raise StoreError(f"{self.path} is not a memman database") from error
        if code == _IOERR and written(error):
            raise StoreFull(
                f"{self.path} could not be written ({error}); nothing was changed. Is a quota or a limit "
                "of file sizes (ulimit -f) reached, or is its disk failing?"
            ) from error
        if code == _IOERR:
            raise StoreError(
                f"{self.path} could not be read or written ({error}): is its disk full or failing? "
                "The same call may be made again"
            ) from error
        if code == _CORRUPT:
            raise self._damaged(str(error)) from error
        raise StoreError(f"SQLite failed on {self.path}: {error}") from error

    def _damaged(self, how: str) -> StoreError:
        return StoreError(f"{self.path} is damaged: {how}; nothing was changed: {_RESTORE}")

    def _look_at_files(self) -> None:
        """Raise `StoreError` if the open files are no longer those at the path."""
        now = time.monotonic()
        if now >= self._look_at:
            if self._files != self._found_files():
                raise self._moved()
            self._look_at = now + _LOOK_AFTER

    def _found_files(self) -> tuple[object, ...]:
        """Return the identities of the database and of the two files next to it while it is open."""
        ends = () if self._in_memory else ("", "-wal", "-shm")
        return tuple(_identity(self._file + end) for end in ends)

    def _moved(self) -> StoreError:
        return StoreError(
            f"{self.path}, or the -wal or -shm file next to it, was moved, deleted or replaced while it "
            "was open; nothing was changed. Put it back, or close this store and open the file again"
        )

    # SQLite keeps its locks in the process. If an open connection were carried over a fork, the child would
    # take no locks, and the parent's close would remove the write-ahead log of the child.

    def before_fork(self) -> None:
        """Wait for the running call and close the file: both sides open it again when they need it."""
        self._lock.acquire()
        if not self._in_memory:
            self._close_open()

    def after_fork(self) -> None:
        """Let other threads continue."""
        self._lock.release()

    def in_child(self) -> None:
        """Keep an inherited connection unused: code outside Python may fork without `before_fork`."""
        self._lock = threading.RLock()
        if self._open is not None and not self._in_memory:
            self._inherited.append(self._open)
            self._open = None

    def _connect(self) -> Connection:
        if self._files and self._files[0] != _identity(self._file):
            raise self._moved()  # or a fork would create an empty file at the path
        deadline = time.monotonic() + self._timeout
        while True:
            try:
                db: Connection = self._library.connect(self._location(), self._timeout)
                try:
                    # No function that the file's schema names is run, and its pages are checked.
                    db.execute("PRAGMA trusted_schema = OFF")
                    db.execute("PRAGMA cell_size_check = ON")
                    self._set_up(db)
                except BaseException:
                    db.close()
                    raise
            except self._library.error as error:
                # Turning WAL on does not wait for another process that does the same.
                busy = error_code(error) in (_BUSY, _LOCKED)
                if not busy or time.monotonic() > deadline:
                    self._fail(error)
                time.sleep(_OPENING_PAUSE)
            except UNREADABLE:
                raise self._damaged("its tables cannot be read") from None
            else:
                return db

    def _location(self) -> str:
        """Create the file with mode 0600 if it is missing, and return its path or a SQLite URI.

        SQLite gives the -wal and -shm files the permissions of the database.
        """
        if not self._in_memory:
            with suppress(OSError):  # SQLite's own error is clearer
                make_private(self._file)
        return self._file

    def _set_up(self, db: Connection) -> None:
        """Set a connection up: the version is checked first, so that a foreign file is not touched."""
        self._make_ready(db, self._version(db))
        if strange := strange_part(db, self._library):
            raise _foreign_schema(self.path, strange)
        [(self._seen,)] = db.execute("PRAGMA data_version")
        self._files = self._found_files()

    def _make_ready(self, db: Connection, version: int) -> None:
        """Set how the file is written, and create the tables of an empty one, of version 0."""
        db.execute("PRAGMA journal_mode = WAL")
        db.execute(f"PRAGMA synchronous = {_SYNCHRONOUS[self.durability]}")
        db.execute("PRAGMA secure_delete = ON")
        if not version:
            db.execute("BEGIN IMMEDIATE")
            if not self._version(db):  # another process may have been faster
                create(db)
            db.execute("COMMIT")

    def _version(self, db: Connection) -> int:
        """Return the version of the file's tables, 0 for an empty file."""
        # In one statement: another process may be creating the tables.
        [(application, version, tables, active)] = db.execute(
            "SELECT application_id, user_version, (SELECT count(*) FROM sqlite_master),"
            " (SELECT min(type || ' ' || name) FROM sqlite_master WHERE type IN ('trigger', 'view'))"
            " FROM pragma_application_id, pragma_user_version"
        )
        if application != APPLICATION_ID and (tables or version or application):
            raise StoreError(f"{self.path} is not a memman database")
        if version > VERSION:
            raise StoreError(
                f"{self.path} has tables of version {version}, and this memman knows version {VERSION}: "
                "install a newer memman-core"
            )
        if active is not None:
            raise _foreign_schema(self.path, active)
        return int(version)

    def _empty_wal(self) -> None:
        """Move the write-ahead log into the file, so that no erased payload stays in it."""
        why = "another process is reading it"
        try:
            if not self._once(lambda db: db.execute(_EMPTY_WAL).fetchone()[0]):
                return
        except StoreError as error:  # the deletion is in the log already
            why = str(error)
        logger.warning(
            "%s: erased payloads stay in its write-ahead log until the next checkpoint: %s",
            self.path,
            why,
        )

    def _look_for_others(self, db: Connection) -> None:
        """Warn once if another process writes and this SQLite has the WAL-reset fault."""
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


def _foreign_schema(path: str, part: str) -> StoreError:
    return StoreError(
        f"{path} has {safe_repr(part, 60)}, which is not of memman and could run code; "
        "nothing was read. Ask the author of the file for archives of its sessions"
    )


def _identity(path: str) -> tuple[int, int] | None:
    """Return a value that identifies a file, also if another one replaces it; None if it is missing."""
    try:
        found = Path(path).stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino
