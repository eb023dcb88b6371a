"""The laws of what a window is."""

from __future__ import annotations

import random

from memman.protocols import StoredItem
from memman.testing.stores.lives import play
from memman.testing.stores.looking import filled, ids_shown, snapshot_of
from memman.testing.stores.making import Making
from memman.testing.stores.records import (
    added,
    clearing,
    configuring,
    pinning,
    reporting,
    summary_of,
)


class Windows(Making):
    """Laws of what a window is."""

    def test_without_a_commit_the_window_is_every_added_entry(self) -> None:
        store = self.make_store()
        store.append("s", (added("a"),))
        store.append("s", (configuring("g"), added("b", pinned=True)))
        assert snapshot_of(store).window == (
            (StoredItem(1, -1, 1), added("a")),
            (StoredItem(3, -1, 3, True), added("b", pinned=True)),
        )

    def test_the_window_is_its_list_and_every_entry_added_after_the_floor(self) -> None:
        store = filled(self.make_store())
        store.append("s", (added("d"),))
        store.commit("s", 0, (clearing("x"),), (), 3)
        store.append("s", (added("e"),))
        assert ids_shown(store) == ["d", "e"]

    def test_after_the_floor_only_added_entries_enter_the_window(self) -> None:
        store = filled(self.make_store())
        store.commit("s", 0, (clearing("x"),), (), 3)
        for record in (configuring("g"), reporting("u"), added("d")):
            store.append("s", (record,))
        assert ids_shown(store) == ["d"]

    def test_pins_and_positions_are_kept(self) -> None:
        store = filled(self.make_store())
        places = [StoredItem(2, -1, 2, True), StoredItem(3, -1, 3), StoredItem(1, -1, 9)]
        store.commit("s", 0, (pinning("p", "b"),), places, 3)
        assert [place for place, _ in snapshot_of(self.reopen(store)).window] == places

    def test_each_replacement_of_a_compression_is_placed_on_its_own(self) -> None:
        store = filled(self.make_store())
        record = summary_of("k", ["a"], ["c"])
        store.commit(
            "s", 0, (record,), [StoredItem(0, 0, 1), StoredItem(2, -1, 2), StoredItem(0, 1, 3)], 3
        )
        assert ids_shown(store) == ["k/0", "b", "k/1"]

    def test_the_window_is_the_fold_of_the_log(self) -> None:
        for seed in range(self.lives):
            play(self.make_store(), random.Random(seed))  # noqa: S311 - no secret
