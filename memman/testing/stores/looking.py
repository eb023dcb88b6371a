"""What is seen of a store, in short words."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from memman.protocols import FeedItem, Snapshot, Store, StoredItem
from memman.records import Record
from memman.testing.stores.records import added
from memman.window import Window

_PATIENCE = 10.0  # seconds until what was committed is in the feed, whatever else its server does


def filled(store: Store) -> Store:
    """The store with three entries in the session "s"."""
    store.append("s", (added("a"), added("b"), added("c")))
    return store


def snapshot_of(store: Store, session_id: str = "s") -> Snapshot:
    """What the store has of a session that is there."""
    snapshot = store.load(session_id)
    assert snapshot is not None, f"session {session_id!r} is not there"
    return snapshot


def ids_shown(store: Store) -> list[str]:
    """The ids of the window's entries, in order."""
    return [slot.entry.id for slot in Window.from_snapshot(snapshot_of(store)).items]


def fed_items(store: Store, count: int, after: str = "") -> list[FeedItem]:
    """So many items of the feed, when they have come."""
    deadline = time.monotonic() + _PATIENCE
    while len(items := list(store.feed(after))) < count:
        assert time.monotonic() < deadline, f"the feed has {len(items)} of {count} records"
        time.sleep(0.005)
    assert len(items) == count
    return items


def by_session(items: Sequence[FeedItem]) -> dict[str, list[tuple[int, Record]]]:
    """The records of each session, in the order of the feed."""
    found: dict[str, list[tuple[int, Record]]] = {}
    for item in items:
        found.setdefault(item.session_id, []).append((item.seq, item.record))
    return found


def own_place(position: int) -> tuple[int, int, int]:
    """The first replacement of the first record of a commit."""
    return (0, 0, position)


def places_of(*rows: tuple[Any, ...]) -> list[StoredItem]:
    return [StoredItem(*row) for row in rows]
