"""The laws of `append`."""

from __future__ import annotations

from memman.errors import StoreConflict
from memman.protocols import Appended
from memman.testing.laws import finished, refused
from memman.testing.stores.making import Making
from memman.testing.stores.records import added, one_of_each, one_of_each_plain


class Appending(Making):
    """Laws of `append`."""

    def test_records_are_numbered_from_one_without_gaps(self) -> None:
        store = self.make_store()
        seqs = [store.append("s", (added(f"e{n}"),)).seqs for n in range(5)]
        assert seqs == [(1,), (2,), (3,), (4,), (5,)]
        assert [seq for seq, _ in store.read("s")] == [1, 2, 3, 4, 5]

    def test_a_batch_is_appended_in_its_order(self) -> None:
        store = self.make_store()
        store.append("s", (added("a"),))
        assert store.append("s", (added("c"), added("b"))).seqs == (2, 3)
        assert [record.id for _, record in store.read("s")] == ["a", "c", "b"]

    def test_an_append_answers_with_seqs_head_epoch_and_how_many_were_new(self) -> None:
        store = self.make_store()
        assert store.append("s", (added("a"), added("b"))) == Appended((1, 2), 2, 0, 2)
        assert store.append("s", (added("b"), added("c"))) == Appended((2, 3), 3, 0, 1)

    def test_a_retried_record_keeps_its_first_seq_and_adds_nothing(self) -> None:
        store = self.make_store()
        store.append("s", (added("a"),))
        store.append("s", (added("b"),))
        assert store.append("s", (added("a"),)) == Appended((1,), 2, 0, 0)
        assert len(store.read("s")) == 2

    def test_a_retried_batch_adds_nothing(self) -> None:
        store = self.make_store()
        batch = (added("a"), added("b"))
        first = store.append("s", batch)
        store.append("s", (added("c"),))
        again = store.append("s", batch)
        assert (again.seqs, again.fresh, again.head) == (first.seqs, 0, 3)

    def test_a_record_that_is_twice_in_a_batch_is_appended_once(self) -> None:
        store = self.make_store()
        appended = finished(lambda: store.append("s", (added("a"), added("a"), added("b"))))
        assert (appended.seqs, appended.fresh) == ((1, 1, 2), 2)
        assert [record.id for _, record in store.read("s")] == ["a", "b"]

    def test_a_retry_does_not_change_what_was_stored(self) -> None:
        store = self.make_store()
        store.append("s", (added("a", "first"),))
        store.append("s", (added("a", "second"),))
        assert store.read("s") == [(1, added("a", "first"))]

    def test_the_same_record_id_in_another_session_is_another_record(self) -> None:
        store = self.make_store()
        store.append("s", (added("a"),))
        assert store.append("t", (added("a"),)).fresh == 1
        assert store.state("s") == store.state("t") == (1, 0)

    def test_an_append_at_the_expected_head_succeeds(self) -> None:
        store = self.make_store()
        store.append("s", (added("a"),), expect_head=0)
        assert store.append("s", (added("b"),), expect_head=1).seqs == (2,)

    def test_an_append_at_another_head_is_refused_and_changes_nothing(self) -> None:
        store = self.make_store()
        store.append("s", (added("a"),))
        refused(StoreConflict, lambda: store.append("s", (added("b"),), expect_head=0))
        assert [record.id for _, record in store.read("s")] == ["a"]

    def test_an_append_leaves_the_epoch(self) -> None:
        store = self.make_store()
        for record in one_of_each_plain():
            store.append("s", (record,))
        assert store.state("s") == (4, 0)

    def test_every_kind_of_record_comes_back_equal(self) -> None:
        store = self.make_store()
        records = one_of_each()
        for record in records:
            store.append("s", (record,))
        assert [record for _, record in self.reopen(store).read("s")] == records
