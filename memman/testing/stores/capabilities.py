"""The laws of the optional capabilities: one class for each, skipped if the store lacks it."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from functools import partial
from typing import Any

import msgspec

from memman.entries import encode_json
from memman.errors import InvalidInput, StoreConflict
from memman.protocols import Appended, FeedItem
from memman.records import (
    Added,
    Compressed,
    Deleted,
    Record,
    SessionTotals,
    StateSetter,
    Undone,
    encode,
    tainted_by,
)
from memman.testing.laws import in_threads, refused
from memman.testing.stores.base import (
    StoreLaws,
    erase_entries,
    filled,
    head_and_epoch,
    ids_in_log,
    items,
    log_of,
    snapshot_of,
)
from memman.testing.stores.records import (
    AT,
    added,
    clearing,
    configuring,
    describing,
    one_of_each,
    one_of_each_plain,
    opening,
    reporting,
    retraction,
    state_of,
    summary_of,
)
from memman.window import STATE_INDEX, Window

_WRITERS = 8
_EACH = 40
_MINUTE = timedelta(minutes=1)
_PATIENCE = 10.0  # seconds until a committed record is in the feed, whatever else the server does


class StateLaws(StoreLaws):
    """Laws of `state`."""

    def test_state_is_the_head_and_epoch_of_the_snapshot(self) -> None:
        store = filled(self.make_store_with("state"))
        store.commit("s", 0, (clearing("x"),), (), 3)
        assert store.state("s") == head_and_epoch(store) == (4, 1)

    def test_state_of_an_unknown_session_is_none(self) -> None:
        store = self.make_store_with("state")
        assert store.state("s") is None
        assert store.load("s") is None


class FindLaws(StoreLaws):
    """Laws of `find`."""

    def test_find_returns_records_by_id_in_log_order(self) -> None:
        store = filled(self.make_store_with("find"))
        found = store.find("s", ["c", "unknown", "a"])
        assert list(found) == [(1, added("a")), (3, added("c"))]

    def test_find_returns_what_made_and_what_hid_an_entry(self) -> None:
        store = filled(self.make_store_with("find"))
        record = summary_of("k", ["a", "b"])
        store.commit("s", 0, (record,), items((0, 0, 1), (3, -1, 3)), 3)
        deletion = Deleted(id="d", at=AT, ids=("c",))
        store.commit("s", 1, (deletion,), items((4, 0, 1)), 4)
        store = self.reopen(store)
        assert list(store.find("s", ["k"])) == [(4, record)]
        assert list(store.find("s", ["k/0"])) == [(4, record)]
        assert list(store.find("s", ["a", "k/0"])) == [(1, added("a")), (4, record)]
        assert list(store.find("s", ["c"])) == [(3, added("c")), (5, deletion)]

    def test_find_returns_what_retracted_and_what_restored_an_entry(self) -> None:
        store = filled(self.make_store_with("find"))
        record = retraction("r", "a")
        store.commit("s", 0, (record,), items((2, -1, 2), (3, -1, 3)), 3)
        undo = Undone(id="u", at=AT, compression_id="r", restored=("a",))
        store.commit("s", 1, (undo,), items((1, -1, 1), (2, -1, 2), (3, -1, 3)), 4)
        assert list(store.find("s", ["a"])) == [(1, added("a")), (4, record), (5, undo)]

    def test_find_reaches_every_era(self) -> None:
        store = filled(self.make_store_with("find"))
        store.commit("s", 0, (clearing("x"),), (), 3)
        store.append("s", (added("a", "again"),))
        assert list(store.find("s", ["a"])) == [(1, added("a")), (5, added("a", "again"))]

    def test_find_in_an_unknown_session_returns_nothing(self) -> None:
        store = self.make_store_with("find")
        assert list(store.find("s", ["a"])) == []
        assert store.load("s") is None


class SessionsLaws(StoreLaws):
    """Laws of `sessions`."""

    def test_sessions_have_their_totals_in_order(self) -> None:
        store = self.make_store_with("sessions")
        assert list(store.sessions()) == []
        store.append("s", (added("a", tokens=2), added("b", tokens=3), configuring("g")))
        store.append("a", (added("a", tokens=4),))
        store.append("s", (added("c"),))
        listed = [(info.session_id, info.entries, info.tokens) for info in store.sessions()]
        assert listed == [("s", 3, 6), ("a", 1, 4)]

    def test_sessions_have_times_of_first_record_and_newest_entry(self) -> None:
        store = self.make_store_with("sessions")
        store.append("s", (opening("o"), added("a", timestamp=AT + 2 * _MINUTE)))
        store.append("s", (added("b", timestamp=AT + 3 * _MINUTE),))
        store.append("s", (reporting("u"),))
        [info] = self.reopen(store).sessions()
        assert (info.created_at, info.last_active_at) == (AT, AT + 3 * _MINUTE)
        store.append("t", (describing("m", AT + _MINUTE),))  # nothing was added
        store.append("t", (added("a"),))  # older than the first record, as in a fork
        [_, info] = store.sessions()
        assert info.created_at == info.last_active_at == AT + _MINUTE

    def test_sessions_have_their_newest_metadata(self) -> None:
        store = self.make_store_with("sessions")
        first, second = opening("o"), describing("m", note='"\x00\u4e2d')
        store.append("s", (first, added("a")))
        assert [info.metadata for info in store.sessions()] == [first.metadata]
        store.append("s", (second,))
        store.append("s", (added("b"),))
        store.commit("s", 0, (clearing("x"),), (), 4)
        assert [info.metadata for info in self.reopen(store).sessions()] == [second.metadata]
        store.append("s", (describing("n"),))
        assert [info.metadata for info in store.sessions()] == [{}]

    def test_sessions_have_the_first_line_of_the_era(self) -> None:
        store = filled(self.make_store_with("sessions"), added("a", role="assistant"))
        assert _first_lines(store) == [""]
        store.append("s", (added("b", " \n\x00 Plan\x00 it, \u4f60\n\nplease"),))
        store.append("s", (added("c", "later"),))
        assert _first_lines(self.reopen(store)) == ["Plan it, \u4f60"]
        store.commit("s", 0, (clearing("x"),), (), 3)
        assert _first_lines(store) == [""]
        store.append("s", (added("d", "w" * 500), added("e", "last")))
        assert _first_lines(store) == ["w" * 200]

    def test_first_line_goes_with_its_entry(self) -> None:
        store = self.make_store_with("sessions")
        if not hasattr(store, "erase"):
            return
        store.append("s", (added("a", "secret"), added("b", "second")))
        erase_entries(store, "s", "b")
        assert _first_lines(store) == ["secret"]
        erase_entries(store, "s", "a")
        assert _first_lines(self.reopen(store)) == [""]
        assert b"secret" not in msgspec.json.encode(snapshot_of(store).totals)
        store.append("s", (added("c", "third"),))
        assert _first_lines(store) == ["third"]

    def test_list_of_sessions_is_the_fold_of_their_records(self) -> None:
        store = self.make_store_with("sessions")
        totals = SessionTotals()
        for seq, record in enumerate([*one_of_each(), added("z"), describing("m2", n=1)], 1):
            store.append("s", (record,))
            totals = totals.after(seq, record)
            [info] = store.sessions()
            shown = (info.entries, info.tokens, info.metadata, info.first_line)
            assert shown == (totals.entries, totals.tokens, totals.metadata, totals.first_line)
            assert info.last_active_at == (totals.last_counted_at or AT)

    def test_committed_session_is_listed_as_an_appended_one(self) -> None:
        store = self.make_store_with("sessions")
        records = [*one_of_each_plain(), *(added(f"e{n}") for n in range(1_200))]
        store.append("s", records)
        store.commit("t", 0, records, [], 0, expect_head=0)
        [appended, committed] = store.sessions()
        assert msgspec.structs.replace(committed, session_id="s") == appended

    def test_prefix_selects_sessions_by_the_beginning_of_their_ids(self) -> None:
        store = self.make_store_with("sessions")
        ends = ("", "%", "_c", "b", "\\x", "*", "\U0010ffff", "\u00e9", "a:1", "a:2")
        ids = ["b", "A", *(f"a{end}" for end in ends)]
        for session_id in ids:
            store.append(session_id, (added("a"),))
        for prefix in ["", *ids, "aa:", "c", "a\U0010ffff\U0010ffff"]:
            found = [info.session_id for info in store.sessions(prefix)]
            assert found == [name for name in ids if name.startswith(prefix)], prefix

    def test_sessions_lists_no_deleted_session(self) -> None:
        store = filled(self.make_store_with("sessions"))
        store.delete("s")
        assert list(store.sessions()) == []

    def test_reading_begins_no_session(self) -> None:
        store = self.make_store_with("sessions")
        store.load("s"), store.read("s"), store.delete("s")
        assert list(store.sessions()) == []


class FeedLaws(StoreLaws):
    """Laws of `feed`. A store may hold a record back while something could still come before it."""

    def test_feed_has_every_session_in_the_order_of_its_log(self) -> None:
        store = filled(self.make_store_with("feed"))
        store.append("t", (added("a"),))
        store.commit("s", 0, (clearing("x"),), (), 3)
        store.append("t", (added("b"), added("c")))
        found = _fed(store, 7)
        assert _by_session(found) == {"s": log_of(store), "t": log_of(store, "t")}
        assert _by_session(self.reopen(store).feed()) == _by_session(found)

    def test_feed_continues_behind_any_cursor(self) -> None:
        store = filled(self.make_store_with("feed"))
        store.append("t", tuple(added(f"e{n}") for n in range(5)))
        store.append("s", (added("d"),))
        found = _fed(store, 9)
        for number, item in enumerate(found, 1):
            assert list(store.feed(item.cursor)) == found[number:]

    def test_feed_returns_pages_of_at_most_limit_records(self) -> None:
        store = filled(self.make_store_with("feed"))
        store.append("t", tuple(added(f"e{n}") for n in range(5)))
        found = _fed(store, 8)
        pages: list[FeedItem] = []
        while page := store.feed(pages[-1].cursor if pages else "", 2):
            assert len(page) <= 2
            pages += page
        assert pages == found

    def test_later_commits_come_behind_every_returned_cursor(self) -> None:
        store = filled(self.make_store_with("feed"))
        store.append("t", (added("a"),))
        before = _fed(store, 4)
        store.append("t", (added("b"),))
        store.append("s", (added("d"),))
        later = _fed(store, 2, before[-1].cursor)
        assert sorted((item.session_id, item.seq) for item in later) == [("s", 4), ("t", 2)]
        assert list(store.feed()) == before + later

    def test_retried_record_is_in_the_feed_once(self) -> None:
        store = filled(self.make_store_with("feed"))
        [*_, last] = _fed(store, 3)
        store.append("s", (added("b"),))
        store.append("s", (added("a"), added("c"), added("d")))
        assert [item.record.id for item in _fed(store, 1, last.cursor)] == ["d"]

    def test_deleted_session_leaves_the_feed_but_keeps_cursors(self) -> None:
        store = filled(self.make_store_with("feed"))
        last = _fed(store, 3)[-1]
        store.append("s", (added("d"),))
        store.append("t", (added("a"),))
        store.delete("s")
        store.append("s", (added("new"),))
        later = _by_session(_fed(store, 2, last.cursor))
        assert later == {"t": [(1, added("a"))], "s": [(1, added("new"))]}
        assert _by_session(store.feed()) == later

    def test_feed_of_an_empty_store_is_empty(self) -> None:
        assert list(self.make_store_with("feed").feed()) == []

    def test_cursor_of_another_form_is_refused(self) -> None:
        store = filled(self.make_store_with("feed"))
        foreign = (
            "x",
            "-1",
            "1:2:3:4",
            "1:-2",
            " 1",
            "9" * 19,
            "9" * 400 + ":1",
            "\u0661",
            "a:b:c",
        )
        for cursor in foreign:
            refused(InvalidInput, partial(store.feed, cursor))
        assert len(_fed(store, 3)) == 3

    def test_cursor_of_the_future_is_refused(self) -> None:
        store = filled(self.make_store_with("feed"))
        first, *_, last = _fed(store, 3)
        place, *rest = last.cursor.split(":")
        refused(InvalidInput, lambda: store.feed(":".join([str(int(place) + 10**12), *rest])))
        assert len(store.feed(first.cursor)) == 2

    def test_follower_of_writing_threads_misses_nothing(self) -> None:
        store = self.make_store_with("feed")
        seen: list[FeedItem] = []

        def write(writer: int) -> None:
            for n in range(_EACH):
                # One session of its own and one that all share.
                store.append((f"s{writer}", "all")[n % 2], (added(f"{writer}-{n:03}"),))

        def follow() -> None:
            while len(seen) < _WRITERS * _EACH:
                seen.extend(store.feed(seen[-1].cursor if seen else "", 7))

        writers: list[Callable[[], None]] = [partial(write, number) for number in range(_WRITERS)]
        in_threads([follow, *writers])
        assert len(seen) == _WRITERS * _EACH
        for session_id, records in _by_session(seen).items():
            assert records == log_of(store, session_id)


class LeaseLaws(StoreLaws):
    """Laws of `lease`."""

    def test_lease_has_one_holder(self) -> None:
        store = filled(self.make_store_with("lease"))
        store.append("t", (added("a"),))
        assert store.lease("s", "ada", 60) is True
        assert self.reopen(store).lease("s", "bob", 60) is False
        assert store.lease("t", "bob", 60) is True

    def test_holder_prolongs_and_returns_a_lease(self) -> None:
        store = filled(self.make_store_with("lease"))
        store.lease("s", "ada", 60)
        assert store.lease("s", "ada", 90) is True
        store.lease("s", "bob", 0)  # which is not bob's to return
        assert store.lease("s", "bob", 60) is False
        store.lease("s", "ada", 0)
        assert store.lease("s", "bob", 60) is True

    def test_lease_expires(self) -> None:
        store = filled(self.make_store_with("lease"))
        assert store.lease("s", "ada", 0.05) is True
        deadline = time.monotonic() + 5
        while not store.lease("s", "bob", 60):
            assert time.monotonic() < deadline, "a lease of 0.05 s has not expired after 5 s"
            time.sleep(0.01)
        assert store.lease("s", "ada", 60) is False

    def test_one_of_several_threads_gets_the_lease(self) -> None:
        store = filled(self.make_store_with("lease"))
        workers = (f"worker{number}" for number in range(_WRITERS))
        answers = in_threads([partial(store.lease, "s", worker, 60) for worker in workers])
        assert sorted(answers) == [False] * (_WRITERS - 1) + [True]

    def test_unknown_session_has_no_lease(self) -> None:
        store = self.make_store_with("lease")
        assert store.lease("s", "ada", 60) is False
        assert store.load("s") is None

    def test_deletion_ends_a_lease(self) -> None:
        store = filled(self.make_store_with("lease"))
        store.lease("s", "ada", 60)
        store.delete("s")
        store.append("s", (added("a"),))
        assert store.lease("s", "bob", 60) is True

    def test_lease_changes_nothing_and_blocks_no_writer(self) -> None:
        store = filled(self.make_store_with("lease"))
        before = (snapshot_of(store), log_of(store))
        store.lease("s", "ada", 60)
        assert (snapshot_of(store), log_of(store)) == before
        assert store.append("s", (added("d"),)).seqs == (4,)
        assert store.commit("s", 0, (clearing("x"),), (), 4).seqs == (5,)
        assert self.reopen(store).lease("s", "bob", 60) is False


class EraseLaws(StoreLaws):
    """Laws of `erase`."""

    def test_erase_keeps_seq_id_and_kind_and_no_payload(self) -> None:
        store = self.make_store_with("erase")
        metadata = encode_json({"note": "secret"}, "metadata")
        texts = {"name": "secret", "call_id": "secret"}
        raw = {"metadata_json": metadata, "raw_json": metadata}
        doomed = Added(msgspec.structs.replace(added("a", "secret").entry, **texts, **raw))
        store.append("s", (doomed, added("b", "kept")))
        erase_entries(store, "s", "a")
        (first, erased), (second, kept), _ = self.reopen(store).read("s")
        assert (first, erased.id, type(erased)) == (1, "a", Added)
        assert b"secret" not in encode(erased)
        assert (second, kept) == (2, added("b", "kept"))

    def test_erase_is_a_commit_of_its_deletion(self) -> None:
        store = filled(self.make_store_with("erase"))
        deletion = Deleted(id="d", at=AT, ids=("a",), entries=1, tokens=1)
        window, ids = items((2, -1, 2), (3, -1, 3)), frozenset({"a"})
        refused(StoreConflict, lambda: store.erase("s", 7, deletion, window, 3, ids))
        assert log_of(store)[0] == (1, added("a"))
        assert store.erase("s", 0, deletion, window, 3, ids) == Appended((4,), 4, 1, 1)
        (_, erased), *others = self.reopen(store).read("s")
        assert (erased.id, erased.entry.text) == ("a", "")
        assert [record for _, record in others] == [added("b"), added("c"), deletion]
        assert snapshot_of(store).totals.entries == 2

    def test_erase_reaches_the_window(self) -> None:
        store = filled(self.make_store_with("erase"), added("a", "secret"))
        erase_entries(store, "s", "a")
        assert [b"secret" in encode(record) for _, record in snapshot_of(store).window] == [False]

    def test_erase_reaches_an_id_in_every_era(self) -> None:
        store = filled(self.make_store_with("erase"))
        store.commit("s", 0, (clearing("x"),), (), 3)
        store.append("s", (added("a", "again"),))
        erase_entries(store, "s", "a")
        texts = [record.entry.text for _, record in store.read("s") if isinstance(record, Added)]
        assert texts == ["", "text", "text", ""]

    def test_erase_of_a_replacement_keeps_its_compression(self) -> None:
        store = filled(self.make_store_with("erase"))
        record = summary_of("k", ["a"], ["b"], text="secret")
        store.commit("s", 0, (record,), items((0, 0, 1), (0, 1, 2), (3, -1, 3)), 3)
        erase_entries(store, "s", "k/0")
        [*_, (_, left), _] = store.read("s")
        assert isinstance(left, Compressed)
        texts = [item.entry.text for item in left.replacements if item.entry]
        assert texts == ["", "secret"]
        assert [item.ids for item in left.replacements] == [("a",), ("b",)]

    def test_erase_reaches_every_state_block(self) -> None:
        store = filled(self.make_store_with("erase"))
        state = state_of("a", "b", text="secret")
        window = items((1, -1, 1), (0, 0, 2), (3, -1, 3), (0, STATE_INDEX, 2))
        store.commit("s", 0, (summary_of("k", ["b"], state=state),), window, 3)
        window = items((1, -1, 1), (0, 0, 2), (0, STATE_INDEX, 2))
        store.commit("s", 1, (summary_of("m", ["k/0", "c"], state=state),), window, 4)
        undone = Undone(id="n", at=AT, compression_id="m", state=state)
        window = items((1, -1, 1), (4, 0, 2), (3, -1, 3), (0, STATE_INDEX, 2))
        store.commit("s", 2, (undone,), window, 5)
        store.append("s", (added("d"),))
        left = state.without({"a"})
        deletion = Deleted(id="x", at=AT, ids=("a",), entries=1, tokens=1, state=left)
        ids = tainted_by([record for _, record in log_of(store)], frozenset({"a"}))
        window = items((4, 0, 2), (3, -1, 3), (7, -1, 7), (0, STATE_INDEX, 2))
        store.erase("s", 3, deletion, window, 7, ids)
        store = self.reopen(store)
        found = [record for _, record in store.read("s") if isinstance(record, StateSetter)]
        assert [record.id for record in found] == ["k", "m", "n", "x"]
        assert [record.state for record in found] == [left] * 4
        assert not any(b"secret-a" in encode(record) for record in found)
        shown = Window.from_snapshot(snapshot_of(store)).state
        assert shown is not None
        assert shown.state == left

    def test_retried_erase_changes_nothing(self) -> None:
        store = filled(self.make_store_with("erase"))
        deletion, ids = Deleted(id="d", at=AT, ids=("a",)), frozenset({"a", "unknown"})
        first = store.erase("s", 0, deletion, (), 3, ids)
        before = log_of(store)
        assert store.erase("s", 0, deletion, (), 3, ids).seqs == first.seqs
        assert log_of(store) == before

    def test_erased_record_is_still_known_by_its_id(self) -> None:
        store = filled(self.make_store_with("erase"))
        erase_entries(store, "s", "b")
        assert store.append("s", (added("b"),)).seqs == (2,)
        assert ids_in_log(store) == ["a", "b", "c", "d4"]

    def test_erased_record_keeps_its_place_in_the_feed(self) -> None:
        store = self.make_store_with("erase")
        if not hasattr(store, "feed"):
            return
        store.append("s", (added("a", "secret"), added("b")))
        before = [(item.seq, item.cursor) for item in _fed(store, 2)]
        erase_entries(store, "s", "a")
        found = _fed(store, 3)
        assert [(item.seq, item.cursor) for item in found][:2] == before
        assert [item.record.id for item in found] == ["a", "b", "d3"]
        assert b"secret" not in encode(found[0].record)


def _fed(store: Any, count: int, after: str = "") -> list[FeedItem]:
    """Return `count` items of the feed, once they are there."""
    deadline = time.monotonic() + _PATIENCE
    while len(found := list(store.feed(after))) < count:
        assert time.monotonic() < deadline, f"the feed has {len(found)} of {count} records"
        time.sleep(0.005)
    assert len(found) == count
    return found


def _first_lines(store: Any) -> list[str]:
    return [info.first_line for info in store.sessions()]


def _by_session(found: Sequence[FeedItem]) -> dict[str, list[tuple[int, Record]]]:
    """Return the records of each session, in the order of the feed."""
    records: dict[str, list[tuple[int, Record]]] = {}
    for item in found:
        records.setdefault(item.session_id, []).append((item.seq, item.record))
    return records
