"""Benchmarks of stores and scale, on small sizes; growth is found."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import scale, stores
from benchmarks.long_sessions import grow
from memman import MemoryManager
from memman.log import History
from memman.stores import MemoryStore, SQLiteStore


@pytest.mark.parametrize("kind", ["memory", "file"])
def test_a_grown_session_is_one_that_a_manager_could_have_made(kind: str, tmp_path: Path) -> None:
    store = MemoryStore() if kind == "memory" else SQLiteStore(tmp_path / "s.db")
    grow(store, "s", 2_500, 40)
    snapshot = store.load("s")
    assert snapshot is not None
    folded = History.of(store.read("s", 0, 10_000))
    assert [place for place, _ in snapshot.window] == [
        item.place() for item in folded.state.window.stored_items
    ]
    assert len(snapshot.window) == 41
    memory = MemoryManager(store, counter="chars4")
    stats = memory.get_stats("s")
    assert (stats.total_entries, stats.active_entries, stats.summaries) == (2_500, 41, 1)
    [summary] = memory.get_summaries("s")
    assert len(summary.original_entry_ids) == 2_460
    memory.close()


def test_every_goal_of_the_stores_is_measured(tmp_path: Path) -> None:
    sizes = stores.Sizes(
        appends=50, full_appends=50, long_session=2_000, openings=1, alternations=(5, 20)
    )
    found = stores.measure(sizes, tmp_path, tmp_path / "no data here")
    assert [goal.name for goal in found.goals] == [
        "durable append, NORMAL",
        "durable append, FULL",
        "async SQLite",
        "opening 2,000 entries, 200 in the window: more than of 200",
        "reloading 5,000 entries",
        "appends in turns, 20 entries in the window over 5",
    ]
    assert "the share of disk was not measured" in str(found)


def test_memory_does_not_grow_with_the_sessions_of_a_store(tmp_path: Path) -> None:
    found = scale.Measurement()
    scale.measure_sessions(found, scale.Sizes(sessions=1_200, few_sessions=50), tmp_path)
    kept, held = [goal for goal in found.goals if not goal.noise]
    assert kept.measured == 0
    assert not held.failed, held
