"""A SQLite file without write permission, opened read-only without creating files next to it.

Without a write-ahead log SQLite must treat such a file as one that never changes, and checks no locks. So
the file is compared before and after each read: if another process wrote to it, it is opened and read
again.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Final, NoReturn, TypeVar

from memman.entries import file_mode
from memman.errors import StoreBusy, StoreError
from memman.stores.drivers import error_code
from memman.stores.sqlite import SQLiteStore
from memman.stores.sqlite_file import CANTOPEN, READONLY, Work

if TYPE_CHECKING:
    from sqlite3 import Connection

T = TypeVar("T")
_ATTEMPTS: Final = 10


class SQLiteReader(SQLiteStore):
    """Logs in a SQLite file without write permission: every write raises `StoreError`.

    Never use it with a `SQLiteStore` on the same file in one process: closing it would release its locks.
    """

    _state: object = None  # of the file when it was opened

    def _location(self) -> str:
        self._state = self._state_now()
        # With a log next to it, a process has it open, or had. Without one, SQLite would have to create it.
        how = "readonly_shm=1" if self._has_log() else "immutable=1"
        return f"{Path(self._file).as_uri()}?mode=ro&{how}"

    def _make_ready(self, db: Connection, version: int) -> None:
        if not version:
            raise StoreError(f"{self.path} has no tables yet, and this user may only read it")

    def _once(self, work: Work[T]) -> T:
        with self._lock:
            for _ in range(_ATTEMPTS):
                if self._state != self._state_now():
                    self._close_open()
                try:
                    result = super()._once(work)
                except StoreError:
                    if self._state == self._state_now():
                        raise
                else:
                    if self._state == self._state_now():
                        return result
        raise StoreBusy(f"{self.path} was written to each time it was read; try again")

    def _look_at_files(self) -> None:
        """Do nothing: each read compares the file itself."""

    def _has_log(self) -> bool:
        return file_mode(self._file + "-wal") != 0

    def _state_now(self) -> object:
        """Return a value that changes with the file; with a write-ahead log, only when the log goes."""
        if self._has_log():
            return "with a log"
        try:
            found = Path(self._file).stat()
        except OSError:
            return "gone"
        return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns

    def _fail(self, error: Exception) -> NoReturn:
        if self._open is not None or error_code(error) not in (CANTOPEN, READONLY):
            super()._fail(error)
        parts = [self._file + end for end in ("", "-wal", "-shm")]
        for part in parts:
            if file_mode(part) and not os.access(part, os.R_OK):
                raise StoreError(
                    f"this user may not read {part}: ask its owner for that right, or for a copy"
                ) from error
        raise StoreError(
            f"this user may not write to {self.path}, and what was written last is in {parts[1]}, which "
            f"cannot be read without {parts[2]}: let the owner open {self.path} once, or copy it together "
            "with its -wal file to a folder of your own"
        ) from error
