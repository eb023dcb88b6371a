"""The laws of the `Store` protocol, each a test."""

from __future__ import annotations

import random
import time
import tracemalloc
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, ClassVar

import msgspec

from memman.entries import Entry, TokenCount, encode_json
from memman.errors import EntryNotFound, InvalidInput, Refused, StoreConflict
from memman.history import History, pin_slots
from memman.ports import Appended, FeedItem, Place, Snapshot, Store
from memman.records import (
    Added,
    Cleared,
    Compressed,
    Configured,
    Deleted,
    Ledger,
    Pinned,
    Record,
    Replacement,
    Undone,
    UsageReported,
    encode,
)
from memman.testing.laws import finished, in_threads, refused
from memman.window import Slot, Window, compress_slots

AT = datetime(2026, 1, 1, tzinfo=UTC)
_WRITERS = 8
_EACH = 40
_STEPS = 40
_PATIENCE = 10.0  # seconds until what was committed is in the feed, whatever else its server does


def added(entry_id: str, text: str = "text", tokens: int = 1, **fields: Any) -> Added:
    """A record of a user message."""
    settings: dict[str, Any] = {"type": "message", "role": "user", **fields}
    count = TokenCount(tokens, counter="test")
    return Added(Entry(id=entry_id, content=text, timestamp=AT, token_count=count, **settings))


def summary_of(compression_id: str, *runs: Sequence[str], text: str = "short") -> Compressed:
    """A record that replaces each run by an entry called `<compression_id>/<number>`."""
    replacements = tuple(
        Replacement(tuple(run), _replacement(f"{compression_id}/{number}", text), "summary")
        for number, run in enumerate(runs)
    )
    return Compressed(
        id=compression_id,
        at=AT,
        replacements=replacements,
        reason="test",
        tokens_before=0,
        tokens_after=0,
    )


def _replacement(entry_id: str, text: str) -> Entry:
    count = TokenCount(1, counter="test")
    return Entry(
        id=entry_id, type="summary", role="system", content=text, timestamp=AT, token_count=count
    )


class StoreConformance:
    """Derive from it and say how a store is made; every law of the protocol becomes a test.

    A store whose methods are coroutines is handed over behind a facade that runs each to its end.
    """

    # Random lives of a session that are played; fewer where calls take long.
    lives: ClassVar[int] = 12
    # Whether the records are kept in this process, so that holding them is the point.
    in_process: ClassVar[bool] = False

    def make_store(self) -> Store:
        """A new and empty store."""
        raise NotImplementedError

    def reopen(self, store: Store) -> Store:
        """Another opening of the same data; the store itself where nothing survives the process."""
        return store

    # ------------------------------------------------------------ append

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
        for record in _one_of_each_plain():
            store.append("s", (record,))
        assert store.state("s") == (3, 0)

    def test_every_kind_of_record_comes_back_equal(self) -> None:
        store = self.make_store()
        records = _one_of_each()
        for record in records:
            store.append("s", (record,))
        assert [record for _, record in self.reopen(store).read("s")] == records

    # ------------------------------------------------------------ commit

    def test_a_commit_replaces_the_window_and_grows_the_epoch_by_one(self) -> None:
        store = _filled(self.make_store())
        answer = store.commit(
            "s", 0, (summary_of("k", ["a", "b"]),), _places(_own(1), (3, -1, 3)), 3
        )
        assert answer == Appended((4,), 4, 1, 1)
        assert _shown(store) == ["k/0", "c"]
        assert store.state("s") == (4, 1)

    def test_a_commit_on_an_old_epoch_is_refused_and_changes_nothing(self) -> None:
        store = _filled(self.make_store())
        store.commit(
            "s", 0, (_pin("p1", "a"),), _places((1, -1, 1, True), (2, -1, 2), (3, -1, 3)), 3
        )
        before = (store.load("s"), store.read("s"))
        late = summary_of("k", ["b", "c"])
        refused(StoreConflict, lambda: store.commit("s", 0, (late,), _places(_own(2)), 3))
        assert (store.load("s"), store.read("s")) == before

    def test_a_commit_on_an_epoch_to_come_is_refused(self) -> None:
        store = _filled(self.make_store())
        refused(StoreConflict, lambda: store.commit("s", 1, (_clear("x"),), (), 3))
        assert store.state("s") == (3, 0)

    def test_a_commit_at_another_head_is_refused_and_changes_nothing(self) -> None:
        store = _filled(self.make_store())
        refused(StoreConflict, lambda: store.commit("s", 0, (_clear("x"),), (), 2, expect_head=2))
        assert store.state("s") == (3, 0)

    def test_a_commit_with_nothing_expected_of_the_head_lets_appends_go_before(self) -> None:
        store = _filled(self.make_store())
        store.append("s", (added("d"),))
        assert store.commit("s", 0, (_clear("x"),), (), 3).seqs == (5,)

    def test_a_retried_commit_gets_the_first_answer_and_changes_nothing(self) -> None:
        store = _filled(self.make_store())
        record, places = summary_of("k", ["a", "b"]), _places(_own(1), (3, -1, 3))
        first = store.commit("s", 0, (record,), places, 3)
        again = store.commit("s", 0, (record,), places, 3)
        assert (again.seqs, again.head, again.epoch) == (first.seqs, first.head, first.epoch)
        assert len(store.read("s")) == 4

    def test_a_retried_commit_is_recognised_after_later_changes(self) -> None:
        store = _filled(self.make_store())
        record, places = summary_of("k", ["a", "b"]), _places(_own(1), (3, -1, 3))
        store.commit("s", 0, (record,), places, 3)
        store.commit("s", 1, (_clear("x"),), (), 4)
        again = store.commit("s", 0, (record,), places, 3)
        assert (again.seqs, again.head, again.epoch) == ((4,), 5, 2)
        assert _shown(store) == []

    def test_places_at_or_below_zero_refer_to_the_records_of_the_commit(self) -> None:
        store = self.make_store()
        records = (added("a"), added("b"), added("c"))
        store.commit("s", 0, records, [Place(-2, -1, 1), Place(0, -1, 3)], 3, expect_head=0)
        assert _shown(store) == ["c", "a"]
        assert [place.seq for place, _ in _snapshot(store).window] == [3, 1]

    def test_places_refer_to_the_commit_even_when_appends_went_between(self) -> None:
        store = _filled(self.make_store())
        store.append("s", (added("d"),))
        store.commit("s", 0, (summary_of("k", ["a", "b"]),), _places(_own(1), (3, -1, 3)), 3)
        assert _shown(store) == ["k/0", "c", "d"]

    def test_a_commit_may_begin_a_session(self) -> None:
        store = self.make_store()
        store.commit("s", 0, (added("a"), added("b")), [Place(0, -1, 1), Place(-1, -1, 2)], 2,
                     expect_head=0)  # fmt: skip
        assert _shown(store) == ["a", "b"]

    def test_a_commit_that_would_begin_a_session_is_refused_where_there_is_one(self) -> None:
        store = _filled(self.make_store())
        refused(
            StoreConflict,
            lambda: store.commit("s", 0, (added("z"),), [Place(0, -1, 1)], 1, expect_head=0),
        )
        assert store.state("s") == (3, 0)

    def test_a_commit_takes_records_that_are_made_when_they_are_asked_for(self) -> None:
        store = self.make_store()
        records = _Coming(1_300)
        store.commit("s", 0, records, [Place(0, -1, 1), Place(-1_299, -1, 1_300)], 1_300)
        assert _shown(store) == ["e0", "e1299"]
        assert [record.id for _, record in store.read("s", 0, 2_000)] == [r.id for r in records]
        ledger = _snapshot(store).ledger
        assert (ledger.entries, ledger.tokens) == (1_300, 1_300)

    def test_a_commit_whose_records_fail_on_the_way_changes_nothing(self) -> None:
        store = self.make_store()
        broken = _Coming(1_300, fails_at=1_200)
        refused(_BrokenOffError, lambda: store.commit("s", 0, broken, [], 0))
        assert store.load("s") is None
        assert list(store.sessions()) == []

    def test_a_store_elsewhere_holds_few_records_of_a_commit_at_a_time(self) -> None:
        store = self.make_store()
        if self.in_process:
            return
        records = _Coming(3_000, text="x" * 10_000)
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
        refused(StoreConflict, lambda: store.commit("s", 4, (added("z"),), [Place(0, -1, 1)], 1))
        assert store.load("s") is None
        assert list(store.sessions()) == []

    def test_of_commits_on_one_epoch_a_single_one_succeeds(self) -> None:
        store = _filled(self.make_store())

        def commit(number: int) -> bool:
            try:
                store.commit("s", 0, (_clear(f"x{number}"),), (), 3)
            except StoreConflict:
                return False
            return True

        won = in_threads([lambda n=n: commit(n) for n in range(_WRITERS)])  # type: ignore[misc]
        assert won.count(True) == 1
        assert store.state("s") == (4, 1)

    # ------------------------------------------------------------ the window

    def test_without_a_commit_the_window_is_every_added_entry(self) -> None:
        store = self.make_store()
        store.append("s", (added("a"),))
        store.append("s", (_configured("g"), added("b", pinned=True)))
        assert _snapshot(store).window == (
            (Place(1, -1, 1), added("a")),
            (Place(3, -1, 3, True), added("b", pinned=True)),
        )

    def test_the_window_is_its_list_and_every_entry_added_after_the_floor(self) -> None:
        store = _filled(self.make_store())
        store.append("s", (added("d"),))
        store.commit("s", 0, (_clear("x"),), (), 3)
        store.append("s", (added("e"),))
        assert _shown(store) == ["d", "e"]

    def test_after_the_floor_only_added_entries_enter_the_window(self) -> None:
        store = _filled(self.make_store())
        store.commit("s", 0, (_clear("x"),), (), 3)
        for record in (_configured("g"), _usage("u"), added("d")):
            store.append("s", (record,))
        assert _shown(store) == ["d"]

    def test_pins_and_positions_are_kept(self) -> None:
        store = _filled(self.make_store())
        places = [Place(2, -1, 2, True), Place(3, -1, 3), Place(1, -1, 9)]
        store.commit("s", 0, (_pin("p", "b"),), places, 3)
        assert [place for place, _ in _snapshot(self.reopen(store)).window] == places

    def test_each_replacement_of_a_compression_is_placed_on_its_own(self) -> None:
        store = _filled(self.make_store())
        record = summary_of("k", ["a"], ["c"])
        store.commit("s", 0, (record,), [Place(0, 0, 1), Place(2, -1, 2), Place(0, 1, 3)], 3)
        assert _shown(store) == ["k/0", "b", "k/1"]

    def test_the_window_is_the_fold_of_the_log(self) -> None:
        for seed in range(self.lives):
            _play(self.make_store(), random.Random(seed))  # noqa: S311 - no secret

    # ------------------------------------------------------------ reading

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
        store = _filled(self.make_store())
        store.commit("s", 0, (_clear("x"),), (), 3)
        snapshot = _snapshot(store)
        assert store.state("s") == (snapshot.head, snapshot.epoch) == (4, 1)

    def test_the_log_is_read_in_order_from_any_place_and_up_to_a_limit(self) -> None:
        store = self.make_store()
        store.append("s", tuple(added(f"e{n}") for n in range(1, 8)))
        assert [seq for seq, _ in store.read("s", 2, 3)] == [3, 4, 5]
        assert [record.id for _, record in store.read("s", 5)] == ["e6", "e7"]
        assert list(store.read("s", 7)) == []

    def test_records_are_found_by_id_in_log_order(self) -> None:
        store = _filled(self.make_store())
        store.commit("s", 0, (summary_of("k", ["a", "b"]),), _places(_own(1), (3, -1, 3)), 3)
        found = store.get("s", ["k", "c", "unknown", "a"])
        assert [(seq, record.id) for seq, record in found] == [(1, "a"), (3, "c"), (4, "k")]

    def test_the_ledger_is_the_fold_of_the_records(self) -> None:
        store = self.make_store()
        records = [*_one_of_each(), added("later", tokens=7), _configured("g2", target_ratio=0.4)]
        ledger = Ledger()
        for seq, record in enumerate(records, 1):
            store.append("s", (record,))
            ledger = ledger.after(seq, record)
        assert _snapshot(self.reopen(store)).ledger == ledger

    def test_a_snapshot_does_not_change_when_the_session_does(self) -> None:
        store = _filled(self.make_store())
        snapshot, log = _snapshot(store), list(store.read("s"))
        held = msgspec.json.encode([snapshot, log])
        store.append("s", (added("d"),))
        store.commit("s", 0, (_clear("x"),), (), 4)
        assert msgspec.json.encode([snapshot, log]) == held

    # ------------------------------------------------------------ the feed
    # A store may hold back what is committed for as long as something could still come before it.

    def test_the_feed_has_the_records_of_every_session_in_the_order_of_their_logs(self) -> None:
        store = _filled(self.make_store())
        store.append("t", (added("a"),))
        store.commit("s", 0, (_clear("x"),), (), 3)
        store.append("t", (added("b"), added("c")))
        items = _fed(store, 7)
        assert _by_session(items) == {"s": list(store.read("s")), "t": list(store.read("t"))}
        assert _by_session(self.reopen(store).feed()) == _by_session(items)

    def test_the_feed_goes_on_behind_any_cursor(self) -> None:
        store = _filled(self.make_store())
        store.append("t", tuple(added(f"e{n}") for n in range(5)))
        store.append("s", (added("d"),))
        items = _fed(store, 9)
        for place, item in enumerate(items, 1):
            assert list(store.feed(item.cursor)) == items[place:]

    def test_the_feed_gives_at_most_limit_records_and_pages_make_the_whole(self) -> None:
        store = _filled(self.make_store())
        store.append("t", tuple(added(f"e{n}") for n in range(5)))
        items = _fed(store, 8)
        pages: list[FeedItem] = []
        while page := store.feed(pages[-1].cursor if pages else "", 2):
            assert len(page) <= 2
            pages += page
        assert pages == items

    def test_what_is_committed_later_stands_behind_every_cursor_that_was_given(self) -> None:
        store = _filled(self.make_store())
        store.append("t", (added("a"),))
        before = _fed(store, 4)
        store.append("t", (added("b"),))
        store.append("s", (added("d"),))
        later = _fed(store, 2, before[-1].cursor)
        assert sorted((item.session_id, item.seq) for item in later) == [("s", 4), ("t", 2)]
        assert list(store.feed()) == before + later

    def test_a_retried_record_is_in_the_feed_once(self) -> None:
        store = _filled(self.make_store())
        [*_, last] = _fed(store, 3)
        store.append("s", (added("b"),))
        store.append("s", (added("a"), added("c"), added("d")))
        assert [item.record.id for item in _fed(store, 1, last.cursor)] == ["d"]

    def test_an_erased_record_is_a_tombstone_at_its_place(self) -> None:
        store = self.make_store()
        store.append("s", (added("a", "secret"), added("b")))
        before = [(item.seq, item.cursor) for item in _fed(store, 2)]
        store.erase("s", frozenset({"a"}))
        items = _fed(store, 2)
        assert [(item.seq, item.cursor) for item in items] == before
        assert [item.record.id for item in items] == ["a", "b"]
        assert b"secret" not in encode(items[0].record)

    def test_a_deleted_session_is_in_the_feed_no_more_and_its_cursors_still_lead_on(self) -> None:
        store = _filled(self.make_store())
        last = _fed(store, 3)[-1]
        store.append("s", (added("d"),))
        store.append("t", (added("a"),))
        store.delete("s")
        store.append("s", (added("anew"),))
        later = _by_session(_fed(store, 2, last.cursor))
        assert later == {"t": [(1, added("a"))], "s": [(1, added("anew"))]}
        assert _by_session(store.feed()) == later

    def test_the_feed_of_an_empty_store_is_empty(self) -> None:
        store = self.make_store()
        assert list(store.feed()) == []
        assert list(store.sessions()) == []

    def test_a_cursor_of_another_kind_is_refused(self) -> None:
        store = _filled(self.make_store())
        for cursor in (
            "x",
            "-1",
            "1:2:3:4",
            "1:-2",
            " 1",
            "9" * 19,
            "9" * 400 + ":1",
            "\u0661",
            "a:b:c",
        ):
            refused(InvalidInput, partial(store.feed, cursor))
        assert len(_fed(store, 3)) == 3

    def test_a_cursor_that_the_store_has_not_come_to_is_refused(self) -> None:
        store = _filled(self.make_store())
        first, *_, last = _fed(store, 3)
        place, *rest = last.cursor.split(":")
        refused(InvalidInput, lambda: store.feed(":".join([str(int(place) + 10**12), *rest])))
        assert len(store.feed(first.cursor)) == 2

    def test_a_follower_among_threads_that_write_misses_nothing_and_keeps_order(self) -> None:
        store = self.make_store()
        seen: list[FeedItem] = []

        def write(writer: int) -> None:
            for n in range(_EACH):
                # One session of its own and one with everybody.
                store.append((f"s{writer}", "all")[n % 2], (added(f"{writer}-{n:03}"),))

        def follow() -> None:
            while len(seen) < _WRITERS * _EACH:
                seen.extend(store.feed(seen[-1].cursor if seen else "", 7))

        in_threads([follow, *[lambda w=w: write(w) for w in range(_WRITERS)]])
        assert len(seen) == _WRITERS * _EACH
        for session_id, records in _by_session(seen).items():
            assert records == list(store.read(session_id))

    # ------------------------------------------------------------ leases

    def test_one_holds_a_lease_and_the_others_do_not(self) -> None:
        store = _filled(self.make_store())
        store.append("t", (added("a"),))
        assert store.lease("s", "ada", 60) is True
        assert self.reopen(store).lease("s", "bob", 60) is False
        assert store.lease("t", "bob", 60) is True

    def test_its_holder_prolongs_a_lease_and_gives_it_back(self) -> None:
        store = _filled(self.make_store())
        store.lease("s", "ada", 60)
        assert store.lease("s", "ada", 90) is True
        store.lease("s", "bob", 0)  # which is not bob's to give
        assert store.lease("s", "bob", 60) is False
        store.lease("s", "ada", 0)
        assert store.lease("s", "bob", 60) is True

    def test_a_lease_runs_out(self) -> None:
        store = _filled(self.make_store())
        assert store.lease("s", "ada", 0.05) is True
        deadline = time.monotonic() + 5
        while not store.lease("s", "bob", 60):
            assert time.monotonic() < deadline, "a lease of 0.05 s still holds after 5 s"
            time.sleep(0.01)
        assert store.lease("s", "ada", 60) is False

    def test_one_of_several_threads_gets_the_lease(self) -> None:
        store = _filled(self.make_store())
        answers = in_threads(
            [lambda n=n: store.lease("s", f"worker{n}", 60) for n in range(_WRITERS)]  # type: ignore[misc]
        )
        assert sorted(answers) == [False] * (_WRITERS - 1) + [True]

    def test_there_is_no_lease_of_a_session_that_is_not_there(self) -> None:
        store = self.make_store()
        assert store.lease("s", "ada", 60) is False
        assert list(store.sessions()) == []
        store.append("s", (added("a"),))
        store.lease("s", "ada", 60)
        store.delete("s")
        store.append("s", (added("a"),))
        assert store.lease("s", "bob", 60) is True

    def test_a_lease_changes_neither_log_nor_window_and_keeps_nobody_from_writing(self) -> None:
        store = _filled(self.make_store())
        before = (store.state("s"), _snapshot(store), _fed(store, 3))
        store.lease("s", "ada", 60)
        assert (store.state("s"), _snapshot(store), store.feed()) == before
        assert store.append("s", (added("d"),)).seqs == (4,)
        assert store.commit("s", 0, (_clear("x"),), (), 4).seqs == (5,)
        assert self.reopen(store).lease("s", "bob", 60) is False

    # ------------------------------------------------------------ erase and delete

    def test_erasing_leaves_seq_id_and_kind_and_no_payload(self) -> None:
        store = self.make_store()
        metadata = encode_json({"note": "secret"}, "metadata")
        doomed = added(
            "a",
            "secret",
            name="secret",
            call_id="secret",
            metadata_json=metadata,
            raw_json=metadata,
        )
        store.append("s", (doomed, added("b", "kept")))
        store.erase("s", frozenset({"a"}))
        (first, erased), (second, kept) = self.reopen(store).read("s")
        assert (first, erased.id, type(erased)) == (1, "a", Added)
        assert b"secret" not in encode(erased)
        assert (second, kept) == (2, added("b", "kept"))

    def test_erasing_reaches_the_window_and_what_is_found_by_id(self) -> None:
        store = self.make_store()
        store.append("s", (added("a", "secret"),))
        store.erase("s", frozenset({"a"}))
        for found in (store.get("s", ["a"]), _snapshot(store).window):
            assert [b"secret" in encode(record) for _, record in found] == [False]

    def test_erasing_a_replacement_leaves_its_compression(self) -> None:
        store = _filled(self.make_store())
        record = summary_of("k", ["a"], ["b"], text="secret")
        store.commit("s", 0, (record,), _places(_own(1), (0, 1, 2), (3, -1, 3)), 3)
        store.erase("s", frozenset({"k/0"}))
        [(_, left)] = store.get("s", ["k"])
        assert isinstance(left, Compressed)
        texts = [item.entry.text for item in left.replacements if item.entry]
        assert texts == ["", "secret"]
        assert [item.ids for item in left.replacements] == [("a",), ("b",)]

    def test_erasing_changes_neither_head_nor_epoch_nor_ledger(self) -> None:
        store = _filled(self.make_store())
        before = (store.state("s"), _snapshot(store).ledger)
        store.erase("s", frozenset({"a"}))
        assert (store.state("s"), _snapshot(store).ledger) == before

    def test_a_commit_that_erases_does_both_or_neither(self) -> None:
        store = _filled(self.make_store())
        doomed = Deleted(id="d", at=AT, ids=("a",), entries=1, tokens=1)
        ids = frozenset({"a"})
        refused(StoreConflict, lambda: store.commit("s", 7, (doomed,), (), 3, erase=ids))
        assert [record for _, record in store.get("s", ["a"])] == [added("a")]
        store.commit("s", 0, (doomed,), _places((2, -1, 2), (3, -1, 3)), 3, erase=ids)
        (_, erased), *others = self.reopen(store).read("s")
        assert isinstance(erased, Added)
        assert (erased.id, erased.entry.text) == ("a", "")
        assert [record for _, record in others] == [added("b"), added("c"), doomed]

    def test_erasing_again_or_what_is_not_there_changes_nothing(self) -> None:
        store = _filled(self.make_store())
        store.erase("s", frozenset({"a"}))
        before = store.read("s")
        store.erase("s", frozenset({"a", "unknown"}))
        assert store.read("s") == before

    def test_an_erased_record_is_still_known_by_its_id(self) -> None:
        store = _filled(self.make_store())
        store.erase("s", frozenset({"b"}))
        assert store.append("s", (added("b"),)).seqs == (2,)

    def test_deleting_a_session_removes_its_log_and_leaves_the_others(self) -> None:
        store = _filled(self.make_store())
        store.append("t", (added("a"),))
        assert store.delete("s") is True
        assert (store.load("s"), list(store.read("s"))) == (None, [])
        assert [info.session_id for info in store.sessions()] == ["t"]

    def test_deleting_what_is_not_there_says_so(self) -> None:
        assert self.make_store().delete("s") is False

    def test_a_session_after_its_deletion_begins_anew(self) -> None:
        store = _filled(self.make_store())
        before = store.commit("s", 0, (_clear("x"),), (), 3)
        store.delete("s")
        again = store.append("s", (added("a"),))
        assert (again.seqs, again.head, again.fresh) == ((1,), 1, 1)
        assert _shown(store) == ["a"]
        # Or whoever still has the old window would take it for this one.
        assert again.epoch > before.epoch

    def test_epoch_0_means_to_commit_that_the_session_is_not_there(self) -> None:
        store = _filled(self.make_store())
        store.commit("s", 0, (_clear("x"),), (), 3)
        store.delete("s")
        committed = store.commit("s", 0, (added("a"),), (Place(0, -1, 1),), 1, expect_head=0)
        assert (committed.seqs, committed.head) == ((1,), 1)
        assert _shown(store) == ["a"]

    def test_every_session_is_listed_with_its_head_and_totals(self) -> None:
        store = self.make_store()
        store.append("s", (added("a", tokens=2), added("b", tokens=3), _configured("g")))
        store.append("t", (added("a", tokens=4),))
        listed = {i.session_id: (i.head, i.entries, i.tokens) for i in store.sessions()}
        assert listed == {"s": (3, 2, 5), "t": (1, 1, 4)}

    # ------------------------------------------------------------ several at once

    def test_appends_of_several_threads_leave_no_gap_and_lose_nothing(self) -> None:
        store = self.make_store()

        def write(writer: int) -> list[int]:
            return [store.append("s", (added(f"{writer}-{n:03}"),)).seqs[0] for n in range(_EACH)]

        seqs = in_threads([lambda w=w: write(w) for w in range(_WRITERS)])  # type: ignore[misc]
        assert sorted(seq for each in seqs for seq in each) == list(range(1, _WRITERS * _EACH + 1))
        assert all(each == sorted(each) for each in seqs)
        log = [record.id for _, record in store.read("s")]
        assert len(set(log)) == len(log) == _WRITERS * _EACH

    def test_threads_that_retry_one_record_append_it_once(self) -> None:
        store = self.make_store()
        answers = in_threads([lambda: store.append("s", (added("a"),))] * _WRITERS)
        assert sorted(answer.fresh for answer in answers) == [0] * (_WRITERS - 1) + [1]
        assert len(store.read("s")) == 1

    def test_a_commit_among_appends_of_threads_hides_none_of_them(self) -> None:
        store = _filled(self.make_store())

        def write() -> None:
            for n in range(_EACH):
                store.append("s", (added(f"w{n:03}"),))

        def clear() -> None:
            store.commit("s", 0, (_clear("x"),), (), 3)

        in_threads([write, clear])
        assert _shown(store) == [f"w{n:03}" for n in range(_EACH)]


# ---------------------------------------------------------------- the store under the laws


class _BrokenOffError(Exception):
    """What a record raises that cannot be made."""


class _Coming(Sequence[Record]):
    """Records that are made when they are asked for, and of which none is kept."""

    def __init__(self, size: int, text: str = "text", fails_at: int = -1) -> None:
        self._size = size
        self._text = text
        self._fails_at = fails_at

    def __len__(self) -> int:
        return self._size

    def __getitem__(self, place: Any) -> Any:
        if isinstance(place, slice):
            return [self[number] for number in range(*place.indices(self._size))]
        if place >= self._size:
            raise IndexError(place)
        if place == self._fails_at:
            raise _BrokenOffError
        return added(f"e{place}", f"{place} {self._text}")


def _snapshot(store: Store, session_id: str = "s") -> Snapshot:
    snapshot = store.load(session_id)
    assert snapshot is not None, f"session {session_id!r} is not there"
    return snapshot


def _shown(store: Store) -> list[str]:
    """The ids of the window's entries, in order."""
    return [slot.entry.id for slot in Window.from_snapshot(_snapshot(store)).slots]


def _fed(store: Store, count: int, after: str = "") -> list[FeedItem]:
    """So many items of the feed, when they have come."""
    deadline = time.monotonic() + _PATIENCE
    while len(items := list(store.feed(after))) < count:
        assert time.monotonic() < deadline, f"the feed has {len(items)} of {count} records"
        time.sleep(0.005)
    assert len(items) == count
    return items


def _by_session(items: Sequence[FeedItem]) -> dict[str, list[tuple[int, Record]]]:
    """The records of each session, in the order of the feed."""
    found: dict[str, list[tuple[int, Record]]] = {}
    for item in items:
        found.setdefault(item.session_id, []).append((item.seq, item.record))
    return found


def _filled(store: Store) -> Store:
    store.append("s", (added("a"), added("b"), added("c")))
    return store


def _own(position: int) -> tuple[int, int, int]:
    """The first replacement of the first record of a commit."""
    return (0, 0, position)


def _places(*rows: tuple[Any, ...]) -> list[Place]:
    return [Place(*row) for row in rows]


def _pin(record_id: str, entry_id: str) -> Pinned:
    return Pinned(id=record_id, at=AT, entry_id=entry_id, on=True)


def _clear(record_id: str) -> Cleared:
    return Cleared(id=record_id, at=AT)


def _configured(record_id: str, **changes: Any) -> Configured:
    return Configured(id=record_id, at=AT, changes=changes or {"max_tokens": 500})


def _usage(record_id: str) -> UsageReported:
    return UsageReported(id=record_id, at=AT, model="m", input_tokens=5, estimated=4)


def _one_of_each_plain() -> list[Record]:
    """One record of each kind that leaves the window's shape as it is."""
    awkward = 'nul \x00, quotes " and \\, \u00e9\u4e2d\U0001f600, \u2028 and a tab\t'
    metadata = encode_json({"n": [1, 2.5, None, {"deep": awkward}]}, "metadata")
    entry = added("a", awkward, tokens=3, metadata_json=metadata, raw_json=metadata)
    return [entry, _configured("g", strategy=None, max_entries=7), _usage("u")]


def _one_of_each() -> list[Record]:
    return [
        *_one_of_each_plain(),
        summary_of("k", ["a"]),
        Undone(id="n", at=AT + timedelta(microseconds=1), compression_id="k"),
        _pin("p", "a"),
        Deleted(id="d", at=AT, ids=("a",), entries=1, tokens=3),
        _clear("x"),
    ]


def _play(store: Store, rng: random.Random) -> None:
    """A random life of a session; after each step the store's window is the fold of its log."""
    for step in range(_STEPS):
        history = History.of(store.read("s"))
        behind = [added(f"late{step}")] if rng.random() < 0.3 else []
        change = _change(history, rng, f"r{step}") if history.slots and rng.random() < 0.6 else None
        if change is None:
            store.append("s", (added(f"r{step}", pinned=rng.random() < 0.1),))
        else:
            record, slots = change
            for late in behind if not isinstance(record, Cleared) else ():
                store.append("s", (late,))  # between the plan and its commit
            places = [
                Place(
                    0 if slot.compression == record.id else slot.entry.seq,
                    slot.index,
                    slot.position,
                    slot.pinned,
                )
                for slot in slots
            ]
            epoch = _snapshot(store).epoch
            store.commit("s", epoch, (record,), places, history.head)
        folded = History.of(store.read("s"))
        assert [slot.place() for slot in folded.slots] == [p for p, _ in _snapshot(store).window]
        assert _snapshot(store).ledger == folded.ledger


def _change(
    history: History, rng: random.Random, record_id: str
) -> tuple[Record, list[Slot]] | None:
    """A random change of shape that the history allows, and the window after it."""
    slots = history.slots
    chosen = rng.choice(slots).entry.id
    try:
        match rng.choice(("compress", "compress", "undo", "pin", "delete", "clear")):
            case "compress":
                at = rng.randrange(len(slots))
                run = [slot.entry.id for slot in slots[at : at + rng.randint(1, 4)]]
                record = summary_of(record_id, run)
                return record, compress_slots(slots, record, history.head + 1)
            case "undo":
                undone = Undone(id=record_id, at=AT, compression_id=history.latest())
                return undone, history.undo(undone.compression_id)
            case "pin":
                return _pin(record_id, chosen), pin_slots(slots, chosen, True)
            case "delete":
                doomed = rng.choice(list(history.added) or [chosen])
                left, entries, tokens = history.without([doomed])
                deleted = Deleted(
                    id=record_id, at=AT, ids=(doomed,), entries=entries, tokens=tokens
                )
                return deleted, left
        return _clear(record_id), []
    except (Refused, EntryNotFound):
        return None
