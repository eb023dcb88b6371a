"""The SQLite libraries of a store: the standard library's, or the newer one of APSW."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, Final, Literal

import msgspec

from memman.display import warn_once
from memman.errors import StoreError
from memman.plugins import how_to_install

Driver = Literal["sqlite3", "apsw"]
# Up to this version, two processes that wrote at once could, rarely, corrupt the file.
_FIXED_WAL: Final = (3, 51, 3)
_URI: Final = "file:"  # the path of a store is absolute and does not begin so


class Library(msgspec.Struct, frozen=True):
    """A SQLite library. `connect` takes a path or a SQLite URI, and seconds to wait for a lock."""

    connect: Callable[[str, float], Any]
    error: type[Exception]
    version: str

    @property
    def has_wal_fault(self) -> bool:
        """Return whether several writing processes may corrupt the file."""
        return tuple(int(part) for part in self.version.split(".")) < _FIXED_WAL


@cache
def has_search(library: Library) -> bool:
    """Return whether FTS5 is compiled in, with its trigrams."""
    db = library.connect(":memory:", 1.0)
    try:
        db.execute("CREATE VIRTUAL TABLE temp.trial USING fts5(text, tokenize='trigram')")
    except library.error:
        return False
    finally:
        db.close()
    return True


@cache
def library(driver: Driver) -> Library:
    """Return a library by its name. Raises `StoreError` if it is not installed."""
    return _standard() if driver == "sqlite3" else _apsw()


def warn_without_search(sqlite: Library) -> None:
    """Warn once that searches read every entry."""
    warn_once(
        "memman",
        f"SQLite {sqlite.version} has no FTS5, or is older than the one that wrote the search index: a "
        "search reads every entry. Use driver=apsw (memman-core[apsw])",
    )


def error_code(error: Exception) -> int:
    """Return SQLite's primary result code of an error of either library."""
    code: int = getattr(error, "sqlite_errorcode", 0) or getattr(error, "result", 0)
    return code & 0xFF


# SQLite's extended codes for writing to the file and for growing its -shm file.
_IOERR_OF_WRITING: Final = {10 | 3 << 8, 10 | 19 << 8}


def written(error: Exception) -> bool:
    """Return whether an I/O error came from writing: nearly always a quota or a limit of file sizes."""
    code = getattr(error, "sqlite_errorcode", 0) or getattr(error, "extendedresult", 0)
    return code in _IOERR_OF_WRITING


def _standard() -> Library:
    import sqlite3

    def connect(path: str, timeout: float) -> Any:
        # Only a path that begins with "file:" is taken for a URI.
        return sqlite3.connect(
            path, timeout=timeout, isolation_level=None, check_same_thread=False, uri=True
        )

    return Library(connect, sqlite3.Error, sqlite3.sqlite_version)


def _apsw() -> Library:
    try:
        import apsw
    except ImportError:
        need = how_to_install("memman-core[apsw]")
        raise StoreError(f"driver=apsw needs an extra: {need}") from None

    # APSW has these attributes of the standard library under other names.
    class Cursor(apsw.Cursor):
        @property
        def rowcount(self) -> int:
            return self.connection.changes()

        @property
        def lastrowid(self) -> int:
            return self.connection.last_insert_rowid()

    class Connection(apsw.Connection):
        Error = apsw.Error

    def connect(path: str, timeout: float) -> Any:
        uri = apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI
        connection = Connection(path, uri) if path.startswith(_URI) else Connection(path)
        connection.cursor_factory = Cursor
        connection.set_busy_timeout(int(timeout * 1_000))
        return connection

    return Library(connect, apsw.Error, apsw.sqlite_lib_version())
