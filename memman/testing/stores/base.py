"""The base class of all laws, and helpers that the laws share."""

from __future__ import annotations

from typing import Any, ClassVar
from unittest import SkipTest

from memman.protocols import Snapshot, Store, StoredItem
from memman.records import Deleted, Record
from memman.testing.stores.records import AT, added
from memman.window import Window


class StoreLaws:
    """How the store under test is made."""

    lives: ClassVar[int] = 12
    """How many random lives of a session are played; fewer for a store whose calls take long."""
    in_process: ClassVar[bool] = False
    """Whether the store keeps its records in this process, so that a long commit is held in memory."""

    def make_store(self) -> Store:
        """Return a new and empty store."""
        raise NotImplementedError

    def reopen(self, store: Any) -> Any:
        """Return another store on the same data; the store itself if nothing survives the process."""
        return store

    def make_store_with(self, method: str) -> Any:
        """Return a new store, or skip the law if the store lacks this method."""
        store = self.make_store()
        if not hasattr(store, method):
            raise SkipTest(f"the store has no method `{method}`")
        return store


def filled(store: Any, *records: Record) -> Any:
    """Return the store with these records in the session "s"; without any, with three entries."""
    store.append("s", records or (added("a"), added("b"), added("c")))
    return store


def snapshot_of(store: Any, session_id: str = "s") -> Snapshot:
    """Return the snapshot of a session that must exist."""
    snapshot: Snapshot | None = store.load(session_id)
    assert snapshot is not None, f"session {session_id!r} does not exist"
    return snapshot


def head_and_epoch(store: Any, session_id: str = "s") -> tuple[int, int]:
    """Return the head and the epoch of a session that must exist."""
    snapshot = snapshot_of(store, session_id)
    return snapshot.head, snapshot.epoch


def ids_shown(store: Any) -> list[str]:
    """Return the ids of the window's entries, in order."""
    return [item.entry.id for item in Window.from_snapshot(snapshot_of(store)).items]


def ids_in_log(store: Any, session_id: str = "s") -> list[str]:
    """Return the ids of the log's records, in order."""
    return [record.id for _, record in store.read(session_id)]


def items(*rows: tuple[Any, ...]) -> list[StoredItem]:
    """Return a window's items: (seq, index, position) each, and whether it is pinned."""
    return [StoredItem(*row) for row in rows]


def log_of(store: Any, session_id: str = "s") -> list[tuple[int, Record]]:
    """Return the log of a session."""
    return list(store.read(session_id))


def erase_entries(store: Any, session_id: str, *ids: str) -> None:
    """Erase entries of a session by a deletion that leaves its window as it is."""
    snapshot = snapshot_of(store, session_id)
    window = [item for item, _ in snapshot.window]
    deletion = Deleted(id=f"d{snapshot.head + 1}", at=AT, ids=ids)
    store.erase(session_id, snapshot.epoch, deletion, window, snapshot.head, frozenset(ids))
