"""Databases whose long reads and writes are seen on a terminal: how many records of how many."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, cast

from memman.cli.progress import told
from memman.protocols import Appended, Store
from memman.records import Record
from memman.runtime import SyncRuntime, drive
from memman.session.store import FullStore


def watched(store: Store) -> Store:
    """The store, which tells how far a walk through a log and a commit have come."""
    return cast("Store", _Watched(store))


class _Watched:
    """A store that does what another does."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._read = self._in_all = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def state(self, session_id: str) -> tuple[int, int] | None:
        """What is asked before a log is read from its beginning."""
        found = drive(FullStore(self._store, SyncRuntime()).state(session_id))
        head, epoch = found or (0, 0)
        # An export reads a log twice that something may have been deleted from.
        self._read, self._in_all = 0, head * (2 if epoch else 1)
        return found

    def read(
        self, session_id: str, after: int = 0, limit: int = 1_000
    ) -> Sequence[tuple[int, Record]]:
        """A stretch of the log."""
        page = self._store.read(session_id, after, limit)
        self._read += len(page)
        told(self._read, self._in_all)
        return page

    def commit(
        self, session_id: str, epoch: int, records: Sequence[Record], *given: Any, **named: Any
    ) -> Appended:
        """Appends records and takes the new window."""
        return self._store.commit(session_id, epoch, _Counted(records), *given, **named)


class _Counted(Sequence[Record]):
    """Records that tell how many of them were asked for."""

    def __init__(self, records: Sequence[Record]) -> None:
        self._records = records

    def __len__(self) -> int:
        return len(self._records)

    def __getitem__(self, place: Any) -> Any:
        return self._records[place]

    def __iter__(self) -> Iterator[Record]:
        for number, record in enumerate(self._records, 1):
            told(number, len(self))
            yield record
