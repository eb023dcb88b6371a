"""Random lives of a session."""

from __future__ import annotations

import random

from memman.errors import EntryNotFound, Refused
from memman.history import History, pin_items
from memman.protocols import Store, StoredItem
from memman.records import Cleared, Deleted, Record, Undone
from memman.testing.stores.looking import snapshot_of
from memman.testing.stores.records import AT, added, clearing, pinning, summary_of
from memman.window import WindowItem, compress_slots

_STEPS = 40


def play(store: Store, rng: random.Random) -> None:
    """A random life of a session; after each step the store's window is the fold of its log."""
    for step in range(_STEPS):
        history = History.of(store.read("s"))
        behind = [added(f"late{step}")] if rng.random() < 0.3 else []
        change = _change(history, rng, f"r{step}") if history.items and rng.random() < 0.6 else None
        if change is None:
            store.append("s", (added(f"r{step}", pinned=rng.random() < 0.1),))
        else:
            record, items = change
            for late in behind if not isinstance(record, Cleared) else ():
                store.append("s", (late,))  # between the plan and its commit
            places = [
                StoredItem(
                    0 if item.compression == record.id else item.entry.seq,
                    item.index,
                    item.position,
                    item.pinned,
                )
                for item in items
            ]
            epoch = snapshot_of(store).epoch
            store.commit("s", epoch, (record,), places, history.head)
        folded = History.of(store.read("s"))
        assert [item.place() for item in folded.items] == [p for p, _ in snapshot_of(store).window]
        assert snapshot_of(store).totals == folded.totals


def _change(
    history: History, rng: random.Random, record_id: str
) -> tuple[Record, list[WindowItem]] | None:
    """A random change of shape that the history allows, and the window after it."""
    items = history.items
    chosen = rng.choice(items).entry.id
    try:
        match rng.choice(("compress", "compress", "undo", "pin", "delete", "clear")):
            case "compress":
                at = rng.randrange(len(items))
                run = [item.entry.id for item in items[at : at + rng.randint(1, 4)]]
                record = summary_of(record_id, run)
                return record, compress_slots(items, record, history.head + 1)
            case "undo":
                undone = Undone(id=record_id, at=AT, compression_id=history.latest())
                return undone, history.undo(undone.compression_id)
            case "pin":
                return pinning(record_id, chosen), pin_items(items, chosen, True)
            case "delete":
                doomed = rng.choice(list(history.added) or [chosen])
                left, entries, tokens = history.without([doomed])
                deleted = Deleted(
                    id=record_id, at=AT, ids=(doomed,), entries=entries, tokens=tokens
                )
                return deleted, left
        return clearing(record_id), []
    except (Refused, EntryNotFound):
        return None
