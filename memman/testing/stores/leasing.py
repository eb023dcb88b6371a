"""The laws of leases."""

from __future__ import annotations

import time

from memman.testing.laws import in_threads
from memman.testing.stores.looking import fed_items, filled, snapshot_of
from memman.testing.stores.making import Making
from memman.testing.stores.records import added, clearing

_WRITERS = 8


class Leasing(Making):
    """Laws of leases."""

    def test_one_holds_a_lease_and_the_others_do_not(self) -> None:
        store = filled(self.make_store())
        store.append("t", (added("a"),))
        assert store.lease("s", "ada", 60) is True
        assert self.reopen(store).lease("s", "bob", 60) is False
        assert store.lease("t", "bob", 60) is True

    def test_its_holder_prolongs_a_lease_and_gives_it_back(self) -> None:
        store = filled(self.make_store())
        store.lease("s", "ada", 60)
        assert store.lease("s", "ada", 90) is True
        store.lease("s", "bob", 0)  # which is not bob's to give
        assert store.lease("s", "bob", 60) is False
        store.lease("s", "ada", 0)
        assert store.lease("s", "bob", 60) is True

    def test_a_lease_runs_out(self) -> None:
        store = filled(self.make_store())
        assert store.lease("s", "ada", 0.05) is True
        deadline = time.monotonic() + 5
        while not store.lease("s", "bob", 60):
            assert time.monotonic() < deadline, "a lease of 0.05 s still holds after 5 s"
            time.sleep(0.01)
        assert store.lease("s", "ada", 60) is False

    def test_one_of_several_threads_gets_the_lease(self) -> None:
        store = filled(self.make_store())
        answers = in_threads(
            [lambda n=n: store.lease("s", f"worker{n}", 60) for n in range(_WRITERS)]  # type: ignore[misc]  # mypy infers no lambda with a default
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
        store = filled(self.make_store())
        before = (store.state("s"), snapshot_of(store), fed_items(store, 3))
        store.lease("s", "ada", 60)
        assert (store.state("s"), snapshot_of(store), store.feed()) == before
        assert store.append("s", (added("d"),)).seqs == (4,)
        assert store.commit("s", 0, (clearing("x"),), (), 4).seqs == (5,)
        assert self.reopen(store).lease("s", "bob", 60) is False
