"""Random lives of a session."""

from __future__ import annotations

import random
from typing import Any

import msgspec

from memman.errors import EntryNotFound, Refused
from memman.log import History, places_for_commit
from memman.protocols import Store, StoredItem
from memman.records import Cleared, Deleted, Record, Undone, encode, tainted_by
from memman.testing.stores import records
from memman.testing.stores.base import snapshot_of
from memman.window import Window

_STEPS = 40


def play(store: Store, rng: random.Random) -> None:
    """Play a random life of a session; after each step the store's window is the fold of its log."""
    for step in range(_STEPS):
        history = History.of(store.read("s"))
        behind = [records.added(f"late{step}")] if rng.random() < 0.3 else []
        head = history.head
        record = _change(history, rng, f"r{step}") if history.items and rng.random() < 0.6 else None
        if record is None:
            # Sometimes with the id of an earlier entry, which is free if that one was retracted.
            name = f"r{rng.randrange(step + 1) if rng.random() < 0.2 else step}"
            store.append("s", (records.added(name, pinned=rng.random() < 0.1),))
        else:
            for late in behind if not isinstance(record, Cleared) else ():
                store.append("s", (late,))  # between the plan and its commit
            _commit(store, record, places_for_commit(history.state.window, record), head)
        folded = History.of(store.read("s"))
        window = folded.state.window
        snapshot = snapshot_of(store)
        places = [place for place, _ in snapshot.window]
        assert [item.place() for item in window.stored_items] == places
        stored = Window.from_snapshot(snapshot).state
        assert (stored and stored.state) == (window.state and window.state.state)
        assert snapshot.totals == folded.totals
        listed = store.sessions() if hasattr(store, "sessions") else ()
        titles = [(info.entries, info.first_line) for info in listed]
        assert titles in ([], [(folded.totals.entries, folded.totals.first_line)])


def _commit(store: Any, record: Record, places: list[StoredItem], head: int) -> None:
    """Commit a change of shape; a deletion is an erasure, if the store has that."""
    epoch = snapshot_of(store).epoch
    if not isinstance(record, Deleted) or not hasattr(store, "erase"):
        store.commit("s", epoch, (record,), places, head)
        return
    tainted = tainted_by([each for _, each in store.read("s")], frozenset(record.ids))
    store.erase("s", epoch, record, places, head, tainted)
    left = [encode(each) for _, each in store.read("s")]
    assert not any(f'"kept-{name}"'.encode() in payload for name in record.ids for payload in left)


def _change(history: History, rng: random.Random, record_id: str) -> Record | None:
    """Apply a random change of shape to the history and return its record; None if it is refused."""
    chosen = rng.choice(history.items).entry.id
    try:
        match rng.choice(("compress", "compress", "undo", "pin", "retract", "delete", "clear")):
            case "compress":
                ids = [item.entry.id for item in history.items]
                at = rng.randrange(len(ids))
                run = ids[at : at + rng.randint(1, 4)]
                known = rng.sample(list(history.added), min(3, len(history.added)))
                state = records.state_of(*known) if known and rng.random() < 0.8 else None
                record: Record = records.summary_of(record_id, run, state=state)
            case "undo":
                undone = rng.choice(list(history.compressions) or [chosen])
                record = Undone(id=record_id, at=records.AT, compression_id=undone)
            case "retract":
                record = records.retraction(record_id, rng.choice(list(history.added) or [chosen]))
                covering = tuple(history.unfolded_by(record))
                record = msgspec.structs.replace(record, unfolds=covering)
            case "pin":
                record = records.pinning(record_id, chosen)
            case "delete":
                doomed = rng.choice(list(history.added) or [chosen])
                record = Deleted(id=record_id, at=records.AT, ids=(doomed,))
            case _:
                record = records.clearing(record_id)
        record = history.completed(record)
        history.apply(history.head + 1, record)
    except (Refused, EntryNotFound):
        return None
    return record
