"""The laws of reading."""

from __future__ import annotations

import msgspec

from memman.records import SessionTotals
from memman.testing.stores.looking import filled, own_place, places_of, snapshot_of
from memman.testing.stores.making import Making
from memman.testing.stores.records import added, clearing, configuring, one_of_each, summary_of


class Reading(Making):
    """Laws of reading."""

    def test_what_is_not_there_is_none_or_empty(self) -> None:
        store = self.make_store()
        assert store.load("s") is None
        assert store.state("s") is None
        assert list(store.read("s")) == []
        assert list(store.get("s", ["a"])) == []
        assert list(store.sessions()) == []

    def test_reading_creates_nothing(self) -> None:
        store = self.make_store()
        store.load("s"), store.state("s"), store.read("s"), store.get("s", ["a"])
        assert list(store.sessions()) == []

    def test_state_is_the_head_and_epoch_of_the_snapshot(self) -> None:
        store = filled(self.make_store())
        store.commit("s", 0, (clearing("x"),), (), 3)
        snapshot = snapshot_of(store)
        assert store.state("s") == (snapshot.head, snapshot.epoch) == (4, 1)

    def test_the_log_is_read_in_order_from_any_place_and_up_to_a_limit(self) -> None:
        store = self.make_store()
        store.append("s", tuple(added(f"e{n}") for n in range(1, 8)))
        assert [seq for seq, _ in store.read("s", 2, 3)] == [3, 4, 5]
        assert [record.id for _, record in store.read("s", 5)] == ["e6", "e7"]
        assert list(store.read("s", 7)) == []

    def test_records_are_found_by_id_in_log_order(self) -> None:
        store = filled(self.make_store())
        store.commit("s", 0, (summary_of("k", ["a", "b"]),), places_of(own_place(1), (3, -1, 3)), 3)
        found = store.get("s", ["k", "c", "unknown", "a"])
        assert [(seq, record.id) for seq, record in found] == [(1, "a"), (3, "c"), (4, "k")]

    def test_the_ledger_is_the_fold_of_the_records(self) -> None:
        store = self.make_store()
        records = [*one_of_each(), added("later", tokens=7), configuring("g2", target_ratio=0.4)]
        totals = SessionTotals()
        for seq, record in enumerate(records, 1):
            store.append("s", (record,))
            totals = totals.after(seq, record)
        assert snapshot_of(self.reopen(store)).totals == totals

    def test_a_snapshot_does_not_change_when_the_session_does(self) -> None:
        store = filled(self.make_store())
        snapshot, log = snapshot_of(store), list(store.read("s"))
        held = msgspec.json.encode([snapshot, log])
        store.append("s", (added("d"),))
        store.commit("s", 0, (clearing("x"),), (), 4)
        assert msgspec.json.encode([snapshot, log]) == held
