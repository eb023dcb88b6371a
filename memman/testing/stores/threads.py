"""The laws for several threads at once."""

from __future__ import annotations

from memman.testing.laws import in_threads
from memman.testing.stores.looking import filled, ids_shown
from memman.testing.stores.making import Making
from memman.testing.stores.records import added, clearing

_WRITERS = 8
_EACH = 40


class Threads(Making):
    """Laws for several threads at once."""

    def test_appends_of_several_threads_leave_no_gap_and_lose_nothing(self) -> None:
        store = self.make_store()

        def write(writer: int) -> list[int]:
            return [store.append("s", (added(f"{writer}-{n:03}"),)).seqs[0] for n in range(_EACH)]

        seqs = in_threads([lambda w=w: write(w) for w in range(_WRITERS)])  # type: ignore[misc]  # mypy infers no lambda with a default
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
        store = filled(self.make_store())

        def write() -> None:
            for n in range(_EACH):
                store.append("s", (added(f"w{n:03}"),))

        def clear() -> None:
            store.commit("s", 0, (clearing("x"),), (), 3)

        in_threads([write, clear])
        assert ids_shown(store) == [f"w{n:03}" for n in range(_EACH)]


# ---------------------------------------------------------------- the store under the laws
