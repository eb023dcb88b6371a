"""The laws of the six methods that every store has."""

from __future__ import annotations

import random
import tracemalloc
from collections.abc import Callable
from functools import partial
from typing import TypeVar

import msgspec

from memman.errors import StoreConflict
from memman.protocols import Appended
from memman.records import Deleted, SessionTotals, Undone
from memman.testing.laws import finished, in_threads, refused
from memman.testing.stores.base import (
    StoreLaws,
    filled,
    head_and_epoch,
    ids_in_log,
    ids_shown,
    items,
    log_of,
    snapshot_of,
)
from memman.testing.stores.lives import play
from memman.testing.stores.records import (
    AT,
    BrokenOffError,
    Coming,
    added,
    clearing,
    configuring,
    one_of_each,
    one_of_each_plain,
    pinning,
    reporting,
    retraction,
    state_of,
    summary_of,
)
from memman.window import STATE_INDEX, Window

T = TypeVar("T")
_WRITERS = 8
_EACH = 40


class AppendLaws(StoreLaws):
    """Laws of `append`."""

    def test_seqs_start_at_one_and_have_no_gaps(self) -> None:
        store = self.make_store()
        seqs = [store.append("s", (added(f"e{n}"),)).seqs for n in range(5)]
        assert seqs == [(1,), (2,), (3,), (4,), (5,)]
        assert [seq for seq, _ in store.read("s")] == [1, 2, 3, 4, 5]

    def test_append_keeps_the_order_of_a_batch(self) -> None:
        store = filled(self.make_store(), added("a"))
        assert store.append("s", (added("c"), added("b"))).seqs == (2, 3)
        assert ids_in_log(store) == ["a", "c", "b"]

    def test_append_returns_seqs_head_epoch_and_number_of_new(self) -> None:
        store = self.make_store()
        assert store.append("s", (added("a"), added("b"))) == Appended((1, 2), 2, 0, 2)
        assert store.append("s", (added("b"), added("c"))) == Appended((2, 3), 3, 0, 1)

    def test_retried_record_keeps_its_seq_and_adds_nothing(self) -> None:
        store = filled(self.make_store(), added("a"))
        store.append("s", (added("b"),))
        assert store.append("s", (added("a"),)) == Appended((1,), 2, 0, 0)
        assert len(store.read("s")) == 2

    def test_retried_batch_adds_nothing(self) -> None:
        store = self.make_store()
        batch = (added("a"), added("b"))
        first = store.append("s", batch)
        store.append("s", (added("c"),))
        again = store.append("s", batch)
        assert (again.seqs, again.fresh, again.head) == (first.seqs, 0, 3)

    def test_record_twice_in_a_batch_is_appended_once(self) -> None:
        store = self.make_store()
        appended = finished(lambda: store.append("s", (added("a"), added("a"), added("b"))))
        assert (appended.seqs, appended.fresh) == ((1, 1, 2), 2)
        assert ids_in_log(store) == ["a", "b"]

    def test_retry_leaves_the_stored_record_unchanged(self) -> None:
        store = filled(self.make_store(), added("a", "first"))
        store.append("s", (added("a", "second"),))
        assert log_of(store) == [(1, added("a", "first"))]

    def test_id_of_a_replacement_is_known(self) -> None:
        store = filled(self.make_store())
        store.commit("s", 0, (summary_of("k", ["a", "b"]),), items((0, 0, 1), (3, -1, 3)), 3)
        assert store.append("s", (added("k/0"),)) == Appended((4,), 4, 1, 0)

    def test_id_of_an_entry_is_free_again_after_a_clear(self) -> None:
        store = filled(self.make_store(), added("a", "first"), added("b"))
        store.commit("s", 0, (clearing("x"),), (), 3)
        again = store.append("s", (added("a", "second"),))
        assert (again.seqs, again.fresh, again.head) == ((4,), 1, 4)
        retried = store.append("s", (added("a", "second"),))
        assert (retried.seqs, retried.fresh) == ((4,), 0)
        assert self.reopen(store).append("s", (added("a", "second"),)).fresh == 0

    def test_id_of_an_entry_is_free_again_after_a_retraction(self) -> None:
        store = filled(self.make_store())
        store.commit("s", 0, (retraction("r", "a"),), items((2, -1, 2), (3, -1, 3)), 3)
        again = store.append("s", (added("a", "second"), added("b", "second")))
        assert (again.seqs, again.fresh, again.head) == ((5, 2), 1, 5)
        assert ids_shown(store) == ["b", "c", "a"]
        assert store.append("s", (added("a", "second"),)) == Appended((5,), 5, 1, 0)
        assert self.reopen(store).append("s", (added("a", "second"),)).fresh == 0

    def test_id_of_a_restored_entry_is_known(self) -> None:
        store = filled(self.make_store())
        store.commit("s", 0, (retraction("r", "a"),), items((2, -1, 2), (3, -1, 3)), 3)
        undo = Undone(id="u", at=AT, compression_id="r", restored=("a",))
        store.commit("s", 1, (undo,), items((1, -1, 1), (2, -1, 2), (3, -1, 3)), 4)
        assert self.reopen(store).append("s", (added("a"),)) == Appended((1,), 5, 2, 0)

    def test_id_of_an_entry_deleted_after_its_retraction_is_known(self) -> None:
        store = filled(self.make_store())
        window = items((2, -1, 2), (3, -1, 3))
        store.commit("s", 0, (retraction("r", "a"),), window, 3)
        store.commit("s", 1, (Deleted(id="d", at=AT, ids=("a",)),), window, 4)
        assert self.reopen(store).append("s", (added("a"),)) == Appended((1,), 5, 2, 0)

    def test_sessions_have_ids_of_their_own(self) -> None:
        store = filled(self.make_store(), added("a"))
        assert store.append("t", (added("a"),)).fresh == 1
        assert head_and_epoch(store, "s") == head_and_epoch(store, "t") == (1, 0)

    def test_append_at_the_expected_head_succeeds(self) -> None:
        store = self.make_store()
        store.append("s", (added("a"),), expect_head=0)
        assert store.append("s", (added("b"),), expect_head=1).seqs == (2,)

    def test_append_at_another_head_is_refused(self) -> None:
        store = filled(self.make_store(), added("a"))
        refused(StoreConflict, lambda: store.append("s", (added("b"),), expect_head=0))
        assert ids_in_log(store) == ["a"]

    def test_append_keeps_the_epoch(self) -> None:
        store = self.make_store()
        for record in one_of_each_plain():
            store.append("s", (record,))
        assert head_and_epoch(store) == (5, 0)

    def test_every_kind_of_record_is_read_back_equal(self) -> None:
        store = self.make_store()
        records = one_of_each()
        for record in records:
            store.append("s", (record,))
        assert [record for _, record in self.reopen(store).read("s")] == records


class CommitLaws(StoreLaws):
    """Laws of `commit`, and of the window that it replaces."""

    def test_commit_replaces_the_window_and_increments_the_epoch(self) -> None:
        store = filled(self.make_store())
        record = summary_of("k", ["a", "b"])
        answer = store.commit("s", 0, (record,), items((0, 0, 1), (3, -1, 3)), 3)
        assert answer == Appended((4,), 4, 1, 1)
        assert ids_shown(store) == ["k/0", "c"]
        assert head_and_epoch(store) == (4, 1)

    def test_commit_on_an_old_epoch_is_refused(self) -> None:
        store = filled(self.make_store())
        window = items((1, -1, 1, True), (2, -1, 2), (3, -1, 3))
        store.commit("s", 0, (pinning("p1", "a"),), window, 3)
        before = (store.load("s"), log_of(store))
        late = summary_of("k", ["b", "c"])
        refused(StoreConflict, lambda: store.commit("s", 0, (late,), items((0, 0, 2)), 3))
        assert (store.load("s"), log_of(store)) == before

    def test_commit_on_a_later_epoch_is_refused(self) -> None:
        store = filled(self.make_store())
        refused(StoreConflict, lambda: store.commit("s", 1, (clearing("x"),), (), 3))
        assert head_and_epoch(store) == (3, 0)

    def test_commit_at_another_head_is_refused(self) -> None:
        store = filled(self.make_store())
        refused(StoreConflict, lambda: store.commit("s", 0, (clearing("x"),), (), 2, expect_head=2))
        assert head_and_epoch(store) == (3, 0)

    def test_append_before_a_commit_does_not_prevent_it(self) -> None:
        store = filled(self.make_store())
        store.append("s", (added("d"),))
        assert store.commit("s", 0, (clearing("x"),), (), 3).seqs == (5,)

    def test_retried_commit_returns_the_first_answer(self) -> None:
        store = filled(self.make_store())
        record, window = summary_of("k", ["a", "b"]), items((0, 0, 1), (3, -1, 3))
        first = store.commit("s", 0, (record,), window, 3)
        again = store.commit("s", 0, (record,), window, 3)
        assert (again.seqs, again.head, again.epoch) == (first.seqs, first.head, first.epoch)
        assert len(store.read("s")) == 4

    def test_retried_commit_is_recognised_after_later_changes(self) -> None:
        store = filled(self.make_store())
        record, window = summary_of("k", ["a", "b"]), items((0, 0, 1), (3, -1, 3))
        store.commit("s", 0, (record,), window, 3)
        store.commit("s", 1, (clearing("x"),), (), 4)
        again = store.commit("s", 0, (record,), window, 3)
        assert (again.seqs, again.head, again.epoch) == ((4,), 5, 2)
        assert ids_shown(store) == []

    def test_seq_of_zero_or_less_refers_to_the_commit(self) -> None:
        store = self.make_store()
        records = (added("a"), added("b"), added("c"))
        store.commit("s", 0, records, items((-2, -1, 1), (0, -1, 3)), 3, expect_head=0)
        assert ids_shown(store) == ["c", "a"]
        assert [item.seq for item, _ in snapshot_of(store).window] == [3, 1]

    def test_seq_of_zero_is_right_after_an_append_in_between(self) -> None:
        store = filled(self.make_store())
        store.append("s", (added("d"),))
        store.commit("s", 0, (summary_of("k", ["a", "b"]),), items((0, 0, 1), (3, -1, 3)), 3)
        assert ids_shown(store) == ["k/0", "c", "d"]

    def test_commit_on_epoch_zero_begins_a_session(self) -> None:
        store = self.make_store()
        window = items((0, -1, 1), (-1, -1, 2))
        store.commit("s", 0, (added("a"), added("b")), window, 2, expect_head=0)
        assert ids_shown(store) == ["a", "b"]

    def test_commit_begins_no_session_that_exists(self) -> None:
        store = filled(self.make_store())
        window = items((0, -1, 1))
        refused(
            StoreConflict, lambda: store.commit("s", 0, (added("z"),), window, 1, expect_head=0)
        )
        assert head_and_epoch(store) == (3, 0)

    def test_refused_commit_begins_no_session(self) -> None:
        store = self.make_store()
        refused(StoreConflict, lambda: store.commit("s", 4, (added("z"),), items((0, -1, 1)), 1))
        assert store.load("s") is None

    def test_commit_takes_records_that_are_created_on_iteration(self) -> None:
        store = self.make_store()
        records = Coming(1_300)
        store.commit("s", 0, records, items((0, -1, 1), (-1_299, -1, 1_300)), 1_300)
        assert ids_shown(store) == ["e0", "e1299"]
        assert [record.id for _, record in store.read("s", 0, 2_000)] == [r.id for r in records]
        totals = snapshot_of(store).totals
        assert (totals.entries, totals.tokens) == (1_300, 1_300)

    def test_commit_takes_an_entry_added_again_after_a_retraction(self) -> None:
        store = self.make_store()
        records = (added("a", "first"), added("b"), retraction("r", "a"), added("a", "second"))
        committed = store.commit("s", 0, records, items((-1, -1, 2), (-3, -1, 4)), 4, expect_head=0)
        assert committed == Appended((1, 2, 3, 4), 4, 1, 4)
        assert [record for _, record in self.reopen(store).read("s")] == list(records)
        assert ids_shown(store) == ["b", "a"]
        assert snapshot_of(store).totals.entries == 2

    def test_commit_changes_nothing_if_the_iteration_raises(self) -> None:
        store = self.make_store()
        broken = Coming(1_300, fails_at=1_200)
        refused(BrokenOffError, lambda: store.commit("s", 0, broken, [], 0))
        assert store.load("s") is None

    def test_commit_holds_few_records_in_memory(self) -> None:
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

    def test_window_without_a_commit_is_every_added_entry(self) -> None:
        store = filled(self.make_store(), added("a"))
        store.append("s", (configuring("g"), added("b", pinned=True)))
        shown = [added("a"), added("b", pinned=True)]
        window = items((1, -1, 1), (3, -1, 3, True))
        assert snapshot_of(store).window == tuple(zip(window, shown, strict=True))

    def test_window_continues_after_the_floor(self) -> None:
        store = filled(self.make_store())
        store.append("s", (added("d"),))
        store.commit("s", 0, (clearing("x"),), (), 3)
        store.append("s", (added("e"),))
        assert ids_shown(store) == ["d", "e"]

    def test_only_added_entries_enter_the_window_after_the_floor(self) -> None:
        store = filled(self.make_store())
        store.commit("s", 0, (clearing("x"),), (), 3)
        for record in (configuring("g"), reporting("u"), added("d")):
            store.append("s", (record,))
        assert ids_shown(store) == ["d"]

    def test_pins_and_positions_are_kept(self) -> None:
        store = filled(self.make_store())
        window = items((2, -1, 2, True), (3, -1, 3), (1, -1, 9))
        store.commit("s", 0, (pinning("p", "b"),), window, 3)
        assert [item for item, _ in snapshot_of(self.reopen(store)).window] == window

    def test_each_replacement_has_an_item_of_its_own(self) -> None:
        store = filled(self.make_store())
        window = items((0, 0, 1), (2, -1, 2), (0, 1, 3))
        store.commit("s", 0, (summary_of("k", ["a"], ["c"]),), window, 3)
        assert ids_shown(store) == ["k/0", "b", "k/1"]

    def test_state_block_has_an_item_of_its_own(self) -> None:
        store = filled(self.make_store())
        window = items((0, 0, 1), (2, -1, 2), (3, -1, 3), (0, STATE_INDEX, 1))
        record = summary_of("k", ["a"], state=state_of("a"))
        store.commit("s", 0, (record,), window, 3)
        store.append("s", (added("d"),))
        found = Window.from_snapshot(snapshot_of(self.reopen(store)))
        assert [item.entry.id for item in found.items] == ["k/0", "b", "c", "d"]
        assert found.state is not None
        assert (found.state.state, found.state.item.position) == (state_of("a"), 1)
        undone = Undone(id="n", at=AT, compression_id="k")
        store.commit("s", 1, (undone,), items((1, -1, 1), (2, -1, 2), (3, -1, 3), (4, -1, 4)), 4)
        assert Window.from_snapshot(snapshot_of(self.reopen(store))).state is None

    def test_window_is_the_fold_of_the_log(self) -> None:
        for seed in range(self.lives):
            play(self.make_store(), random.Random(seed))  # noqa: S311 - no secret


class ReadLaws(StoreLaws):
    """Laws of `load` and `read`."""

    def test_unknown_session_is_none_or_empty(self) -> None:
        store = self.make_store()
        assert store.load("s") is None
        assert log_of(store) == []
        assert store.load("s") is None

    def test_log_is_read_in_order_after_a_seq_up_to_a_limit(self) -> None:
        store = filled(self.make_store(), *(added(f"e{n}") for n in range(1, 8)))
        assert [seq for seq, _ in store.read("s", 2, 3)] == [3, 4, 5]
        assert [record.id for _, record in store.read("s", 5)] == ["e6", "e7"]
        assert list(store.read("s", 7)) == []

    def test_totals_are_the_fold_of_the_records(self) -> None:
        store = self.make_store()
        records = [*one_of_each(), added("later", tokens=7), configuring("g2", target_ratio=0.4)]
        totals = SessionTotals()
        for seq, record in enumerate(records, 1):
            store.append("s", (record,))
            totals = totals.after(seq, record)
        assert snapshot_of(self.reopen(store)).totals == totals

    def test_snapshot_does_not_change_with_the_session(self) -> None:
        store = filled(self.make_store())
        snapshot, log = snapshot_of(store), log_of(store)
        held = msgspec.json.encode([snapshot, log])
        store.append("s", (added("d"),))
        store.commit("s", 0, (clearing("x"),), (), 4)
        assert msgspec.json.encode([snapshot, log]) == held


class DeleteLaws(StoreLaws):
    """Laws of `delete`."""

    def test_delete_removes_one_session(self) -> None:
        store = filled(self.make_store())
        store.append("t", (added("a"),))
        assert store.delete("s") is True
        assert (store.load("s"), log_of(store)) == (None, [])
        assert ids_in_log(store, "t") == ["a"]

    def test_delete_of_an_unknown_session_returns_false(self) -> None:
        assert self.make_store().delete("s") is False

    def test_session_after_its_deletion_has_a_later_epoch(self) -> None:
        store = filled(self.make_store())
        before = store.commit("s", 0, (clearing("x"),), (), 3)
        store.delete("s")
        again = store.append("s", (added("a"),))
        assert (again.seqs, again.head, again.fresh) == ((1,), 1, 1)
        assert ids_shown(store) == ["a"]
        # Or a manager that still has the old window would take it for this one.
        assert again.epoch > before.epoch

    def test_commit_on_epoch_zero_begins_a_deleted_session(self) -> None:
        store = filled(self.make_store())
        store.commit("s", 0, (clearing("x"),), (), 3)
        store.delete("s")
        committed = store.commit("s", 0, (added("a"),), items((0, -1, 1)), 1, expect_head=0)
        assert (committed.seqs, committed.head) == ((1,), 1)
        assert ids_shown(store) == ["a"]


class ThreadLaws(StoreLaws):
    """Laws of several threads that write at once."""

    def test_appends_of_threads_leave_no_gap_and_lose_nothing(self) -> None:
        store = self.make_store()

        def write(writer: int) -> list[int]:
            return [store.append("s", (added(f"{writer}-{n:03}"),)).seqs[0] for n in range(_EACH)]

        seqs = in_threads(_for_each_writer(write))
        assert sorted(seq for each in seqs for seq in each) == list(range(1, _WRITERS * _EACH + 1))
        assert all(each == sorted(each) for each in seqs)
        assert len(set(ids_in_log(store))) == len(store.read("s")) == _WRITERS * _EACH

    def test_record_retried_by_threads_is_appended_once(self) -> None:
        store = self.make_store()
        answers = in_threads([lambda: store.append("s", (added("a"),))] * _WRITERS)
        assert sorted(answer.fresh for answer in answers) == [0] * (_WRITERS - 1) + [1]
        assert len(store.read("s")) == 1

    def test_one_of_several_commits_on_one_epoch_succeeds(self) -> None:
        store = filled(self.make_store())

        def commit(writer: int) -> bool:
            try:
                store.commit("s", 0, (clearing(f"x{writer}"),), (), 3)
            except StoreConflict:
                return False
            return True

        assert in_threads(_for_each_writer(commit)).count(True) == 1
        assert head_and_epoch(store) == (4, 1)

    def test_commit_among_appends_hides_none_of_them(self) -> None:
        store = filled(self.make_store())

        def write() -> None:
            for n in range(_EACH):
                store.append("s", (added(f"w{n:03}"),))

        def clear() -> None:
            store.commit("s", 0, (clearing("x"),), (), 3)

        in_threads([write, clear])
        assert ids_shown(store) == [f"w{n:03}" for n in range(_EACH)]


def _for_each_writer(work: Callable[[int], T]) -> list[Callable[[], T]]:
    return [partial(work, writer) for writer in range(_WRITERS)]
