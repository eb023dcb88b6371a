"""The laws of `commit`."""

from __future__ import annotations

import tracemalloc

from memman.errors import StoreConflict
from memman.protocols import Appended, StoredItem
from memman.records import Added
from memman.testing.laws import in_threads, refused
from memman.testing.stores.looking import filled, ids_shown, own_place, places_of, snapshot_of
from memman.testing.stores.making import Making
from memman.testing.stores.records import (
    BrokenOffError,
    Coming,
    added,
    clearing,
    pinning,
    summary_of,
)

_WRITERS = 8
_EACH = 40


class Committing(Making):
    """Laws of `commit`."""

    def test_an_entrys_id_is_free_again_after_a_clear(self) -> None:
        store = self.make_store()
        store.append("s", (added("a", "first"), added("b")))
        store.commit("s", 0, (clearing("x"),), (), 3)
        again = store.append("s", (added("a", "second"),))
        assert (again.seqs, again.fresh, again.head) == ((4,), 1, 4)
        retried = store.append("s", (added("a", "second"),))
        assert (retried.seqs, retried.fresh) == ((4,), 0)
        store = self.reopen(store)
        assert store.append("s", (added("a", "second"),)).fresh == 0
        assert [seq for seq, _ in store.get("s", ["a", "b"])] == [2, 4]
        store.erase("s", frozenset({"a"}))
        texts = [record.entry.text for _, record in store.read("s") if isinstance(record, Added)]
        assert texts == ["", "text", ""]

    def test_a_commit_replaces_the_window_and_grows_the_epoch_by_one(self) -> None:
        store = filled(self.make_store())
        answer = store.commit(
            "s", 0, (summary_of("k", ["a", "b"]),), places_of(own_place(1), (3, -1, 3)), 3
        )
        assert answer == Appended((4,), 4, 1, 1)
        assert ids_shown(store) == ["k/0", "c"]
        assert store.state("s") == (4, 1)

    def test_a_commit_on_an_old_epoch_is_refused_and_changes_nothing(self) -> None:
        store = filled(self.make_store())
        store.commit(
            "s", 0, (pinning("p1", "a"),), places_of((1, -1, 1, True), (2, -1, 2), (3, -1, 3)), 3
        )
        before = (store.load("s"), store.read("s"))
        late = summary_of("k", ["b", "c"])
        refused(StoreConflict, lambda: store.commit("s", 0, (late,), places_of(own_place(2)), 3))
        assert (store.load("s"), store.read("s")) == before

    def test_a_commit_on_an_epoch_to_come_is_refused(self) -> None:
        store = filled(self.make_store())
        refused(StoreConflict, lambda: store.commit("s", 1, (clearing("x"),), (), 3))
        assert store.state("s") == (3, 0)

    def test_a_commit_at_another_head_is_refused_and_changes_nothing(self) -> None:
        store = filled(self.make_store())
        refused(StoreConflict, lambda: store.commit("s", 0, (clearing("x"),), (), 2, expect_head=2))
        assert store.state("s") == (3, 0)

    def test_a_commit_with_nothing_expected_of_the_head_lets_appends_go_before(self) -> None:
        store = filled(self.make_store())
        store.append("s", (added("d"),))
        assert store.commit("s", 0, (clearing("x"),), (), 3).seqs == (5,)

    def test_a_retried_commit_gets_the_first_answer_and_changes_nothing(self) -> None:
        store = filled(self.make_store())
        record, places = summary_of("k", ["a", "b"]), places_of(own_place(1), (3, -1, 3))
        first = store.commit("s", 0, (record,), places, 3)
        again = store.commit("s", 0, (record,), places, 3)
        assert (again.seqs, again.head, again.epoch) == (first.seqs, first.head, first.epoch)
        assert len(store.read("s")) == 4

    def test_a_retried_commit_is_recognised_after_later_changes(self) -> None:
        store = filled(self.make_store())
        record, places = summary_of("k", ["a", "b"]), places_of(own_place(1), (3, -1, 3))
        store.commit("s", 0, (record,), places, 3)
        store.commit("s", 1, (clearing("x"),), (), 4)
        again = store.commit("s", 0, (record,), places, 3)
        assert (again.seqs, again.head, again.epoch) == ((4,), 5, 2)
        assert ids_shown(store) == []

    def test_places_at_or_below_zero_refer_to_the_records_of_the_commit(self) -> None:
        store = self.make_store()
        records = (added("a"), added("b"), added("c"))
        store.commit(
            "s", 0, records, [StoredItem(-2, -1, 1), StoredItem(0, -1, 3)], 3, expect_head=0
        )
        assert ids_shown(store) == ["c", "a"]
        assert [place.seq for place, _ in snapshot_of(store).window] == [3, 1]

    def test_places_refer_to_the_commit_even_when_appends_went_between(self) -> None:
        store = filled(self.make_store())
        store.append("s", (added("d"),))
        store.commit("s", 0, (summary_of("k", ["a", "b"]),), places_of(own_place(1), (3, -1, 3)), 3)
        assert ids_shown(store) == ["k/0", "c", "d"]

    def test_a_commit_may_begin_a_session(self) -> None:
        store = self.make_store()
        store.commit("s", 0, (added("a"), added("b")), [StoredItem(0, -1, 1), StoredItem(-1, -1, 2)], 2,
                     expect_head=0)  # fmt: skip
        assert ids_shown(store) == ["a", "b"]

    def test_a_commit_that_would_begin_a_session_is_refused_where_there_is_one(self) -> None:
        store = filled(self.make_store())
        refused(
            StoreConflict,
            lambda: store.commit("s", 0, (added("z"),), [StoredItem(0, -1, 1)], 1, expect_head=0),
        )
        assert store.state("s") == (3, 0)

    def test_a_commit_takes_records_that_are_made_when_they_are_asked_for(self) -> None:
        store = self.make_store()
        records = Coming(1_300)
        store.commit("s", 0, records, [StoredItem(0, -1, 1), StoredItem(-1_299, -1, 1_300)], 1_300)
        assert ids_shown(store) == ["e0", "e1299"]
        assert [record.id for _, record in store.read("s", 0, 2_000)] == [r.id for r in records]
        totals = snapshot_of(store).totals
        assert (totals.entries, totals.tokens) == (1_300, 1_300)

    def test_a_commit_whose_records_fail_on_the_way_changes_nothing(self) -> None:
        store = self.make_store()
        broken = Coming(1_300, fails_at=1_200)
        refused(BrokenOffError, lambda: store.commit("s", 0, broken, [], 0))
        assert store.load("s") is None
        assert list(store.sessions()) == []

    def test_a_store_elsewhere_holds_few_records_of_a_commit_at_a_time(self) -> None:
        store = self.make_store()
        if self.in_process:
            return
        records = Coming(3_000, text="x" * 10_000)
        tracemalloc.start()
        try:
            store.commit("s", 0, records, [], 0)
            _, most = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        held = most / 10_000
        assert held < 2_200, f"about {held:.0f} of 3,000 records were held at once"

    def test_a_refused_commit_begins_no_session(self) -> None:
        store = self.make_store()
        refused(
            StoreConflict, lambda: store.commit("s", 4, (added("z"),), [StoredItem(0, -1, 1)], 1)
        )
        assert store.load("s") is None
        assert list(store.sessions()) == []

    def test_of_commits_on_one_epoch_a_single_one_succeeds(self) -> None:
        store = filled(self.make_store())

        def commit(number: int) -> bool:
            try:
                store.commit("s", 0, (clearing(f"x{number}"),), (), 3)
            except StoreConflict:
                return False
            return True

        won = in_threads([lambda n=n: commit(n) for n in range(_WRITERS)])  # type: ignore[misc]  # mypy infers no lambda with a default
        assert won.count(True) == 1
        assert store.state("s") == (4, 1)
