"""The laws of erasing and deleting."""

from __future__ import annotations

from memman.entries import encode_json
from memman.errors import StoreConflict
from memman.protocols import StoredItem
from memman.records import Added, Compressed, Deleted, encode
from memman.testing.laws import refused
from memman.testing.stores.looking import filled, ids_shown, own_place, places_of, snapshot_of
from memman.testing.stores.making import Making
from memman.testing.stores.records import AT, added, clearing, configuring, summary_of


class Erasing(Making):
    """Laws of erasing and deleting."""

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
        for found in (store.get("s", ["a"]), snapshot_of(store).window):
            assert [b"secret" in encode(record) for _, record in found] == [False]

    def test_erasing_a_replacement_leaves_its_compression(self) -> None:
        store = filled(self.make_store())
        record = summary_of("k", ["a"], ["b"], text="secret")
        store.commit("s", 0, (record,), places_of(own_place(1), (0, 1, 2), (3, -1, 3)), 3)
        store.erase("s", frozenset({"k/0"}))
        [(_, left)] = store.get("s", ["k"])
        assert isinstance(left, Compressed)
        texts = [item.entry.text for item in left.replacements if item.entry]
        assert texts == ["", "secret"]
        assert [item.ids for item in left.replacements] == [("a",), ("b",)]

    def test_erasing_changes_neither_head_nor_epoch_nor_ledger(self) -> None:
        store = filled(self.make_store())
        before = (store.state("s"), snapshot_of(store).totals)
        store.erase("s", frozenset({"a"}))
        assert (store.state("s"), snapshot_of(store).totals) == before

    def test_a_commit_that_erases_does_both_or_neither(self) -> None:
        store = filled(self.make_store())
        doomed = Deleted(id="d", at=AT, ids=("a",), entries=1, tokens=1)
        ids = frozenset({"a"})
        refused(StoreConflict, lambda: store.commit("s", 7, (doomed,), (), 3, erase=ids))
        assert [record for _, record in store.get("s", ["a"])] == [added("a")]
        store.commit("s", 0, (doomed,), places_of((2, -1, 2), (3, -1, 3)), 3, erase=ids)
        (_, erased), *others = self.reopen(store).read("s")
        assert isinstance(erased, Added)
        assert (erased.id, erased.entry.text) == ("a", "")
        assert [record for _, record in others] == [added("b"), added("c"), doomed]

    def test_erasing_again_or_what_is_not_there_changes_nothing(self) -> None:
        store = filled(self.make_store())
        store.erase("s", frozenset({"a"}))
        before = store.read("s")
        store.erase("s", frozenset({"a", "unknown"}))
        assert store.read("s") == before

    def test_an_erased_record_is_still_known_by_its_id(self) -> None:
        store = filled(self.make_store())
        store.erase("s", frozenset({"b"}))
        assert store.append("s", (added("b"),)).seqs == (2,)

    def test_deleting_a_session_removes_its_log_and_leaves_the_others(self) -> None:
        store = filled(self.make_store())
        store.append("t", (added("a"),))
        assert store.delete("s") is True
        assert (store.load("s"), list(store.read("s"))) == (None, [])
        assert [info.session_id for info in store.sessions()] == ["t"]

    def test_deleting_what_is_not_there_says_so(self) -> None:
        assert self.make_store().delete("s") is False

    def test_a_session_after_its_deletion_begins_anew(self) -> None:
        store = filled(self.make_store())
        before = store.commit("s", 0, (clearing("x"),), (), 3)
        store.delete("s")
        again = store.append("s", (added("a"),))
        assert (again.seqs, again.head, again.fresh) == ((1,), 1, 1)
        assert ids_shown(store) == ["a"]
        # Or whoever still has the old window would take it for this one.
        assert again.epoch > before.epoch

    def test_epoch_0_means_to_commit_that_the_session_is_not_there(self) -> None:
        store = filled(self.make_store())
        store.commit("s", 0, (clearing("x"),), (), 3)
        store.delete("s")
        committed = store.commit("s", 0, (added("a"),), (StoredItem(0, -1, 1),), 1, expect_head=0)
        assert (committed.seqs, committed.head) == ((1,), 1)
        assert ids_shown(store) == ["a"]

    def test_every_session_is_listed_with_its_head_and_totals(self) -> None:
        store = self.make_store()
        store.append("s", (added("a", tokens=2), added("b", tokens=3), configuring("g")))
        store.append("t", (added("a", tokens=4),))
        listed = {i.session_id: (i.head, i.entries, i.tokens) for i in store.sessions()}
        assert listed == {"s": (3, 2, 5), "t": (1, 1, 4)}
