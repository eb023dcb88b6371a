"""The laws of the feed."""

from __future__ import annotations

from functools import partial

from memman.errors import InvalidInput
from memman.protocols import FeedItem
from memman.records import encode
from memman.testing.laws import in_threads, refused
from memman.testing.stores.looking import by_session, fed_items, filled
from memman.testing.stores.making import Making
from memman.testing.stores.records import added, clearing

_WRITERS = 8
_EACH = 40


class Feeding(Making):
    """Laws of the feed."""

    # A store may hold back what is committed for as long as something could still come before it.

    def test_the_feed_has_the_records_of_every_session_in_the_order_of_their_logs(self) -> None:
        store = filled(self.make_store())
        store.append("t", (added("a"),))
        store.commit("s", 0, (clearing("x"),), (), 3)
        store.append("t", (added("b"), added("c")))
        items = fed_items(store, 7)
        assert by_session(items) == {"s": list(store.read("s")), "t": list(store.read("t"))}
        assert by_session(self.reopen(store).feed()) == by_session(items)

    def test_the_feed_goes_on_behind_any_cursor(self) -> None:
        store = filled(self.make_store())
        store.append("t", tuple(added(f"e{n}") for n in range(5)))
        store.append("s", (added("d"),))
        items = fed_items(store, 9)
        for place, item in enumerate(items, 1):
            assert list(store.feed(item.cursor)) == items[place:]

    def test_the_feed_gives_at_most_limit_records_and_pages_make_the_whole(self) -> None:
        store = filled(self.make_store())
        store.append("t", tuple(added(f"e{n}") for n in range(5)))
        items = fed_items(store, 8)
        pages: list[FeedItem] = []
        while page := store.feed(pages[-1].cursor if pages else "", 2):
            assert len(page) <= 2
            pages += page
        assert pages == items

    def test_what_is_committed_later_stands_behind_every_cursor_that_was_given(self) -> None:
        store = filled(self.make_store())
        store.append("t", (added("a"),))
        before = fed_items(store, 4)
        store.append("t", (added("b"),))
        store.append("s", (added("d"),))
        later = fed_items(store, 2, before[-1].cursor)
        assert sorted((item.session_id, item.seq) for item in later) == [("s", 4), ("t", 2)]
        assert list(store.feed()) == before + later

    def test_a_retried_record_is_in_the_feed_once(self) -> None:
        store = filled(self.make_store())
        [*_, last] = fed_items(store, 3)
        store.append("s", (added("b"),))
        store.append("s", (added("a"), added("c"), added("d")))
        assert [item.record.id for item in fed_items(store, 1, last.cursor)] == ["d"]

    def test_an_erased_record_is_a_tombstone_at_its_place(self) -> None:
        store = self.make_store()
        store.append("s", (added("a", "secret"), added("b")))
        before = [(item.seq, item.cursor) for item in fed_items(store, 2)]
        store.erase("s", frozenset({"a"}))
        items = fed_items(store, 2)
        assert [(item.seq, item.cursor) for item in items] == before
        assert [item.record.id for item in items] == ["a", "b"]
        assert b"secret" not in encode(items[0].record)

    def test_a_deleted_session_is_in_the_feed_no_more_and_its_cursors_still_lead_on(self) -> None:
        store = filled(self.make_store())
        last = fed_items(store, 3)[-1]
        store.append("s", (added("d"),))
        store.append("t", (added("a"),))
        store.delete("s")
        store.append("s", (added("anew"),))
        later = by_session(fed_items(store, 2, last.cursor))
        assert later == {"t": [(1, added("a"))], "s": [(1, added("anew"))]}
        assert by_session(store.feed()) == later

    def test_the_feed_of_an_empty_store_is_empty(self) -> None:
        store = self.make_store()
        assert list(store.feed()) == []
        assert list(store.sessions()) == []

    def test_a_cursor_of_another_kind_is_refused(self) -> None:
        store = filled(self.make_store())
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
        assert len(fed_items(store, 3)) == 3

    def test_a_cursor_that_the_store_has_not_come_to_is_refused(self) -> None:
        store = filled(self.make_store())
        first, *_, last = fed_items(store, 3)
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
        for session_id, records in by_session(seen).items():
            assert records == list(store.read(session_id))
