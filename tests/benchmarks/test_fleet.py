"""The check of a fleet's sessions finds seeded faults."""

from __future__ import annotations

import pytest

from benchmarks.fleet import Findings, Note, check
from memman.protocols import StoredItem
from memman.stores import MemoryStore
from memman.testing.stores import added

MARKS = ("w1.1", "w2.1", "w1.2")


def _store(*marks: str) -> MemoryStore:
    store = MemoryStore()
    for number, mark in enumerate(marks):
        store.append("s", (added(f"e{number}", f"{mark} some text"),))
    return store


def _noted(*marks: str) -> list[Note]:
    return [Note("add", 1.0, "s", (mark,)) for mark in marks]


def test_nothing_is_found_where_all_is_well() -> None:
    found = check(_store(*MARKS), _noted(*MARKS))
    assert found == Findings(sessions=1, records=3, acknowledged=3)
    assert found.faults == 0


@pytest.mark.parametrize(
    ("stored", "noted", "fault"),
    [
        (MARKS[:2], MARKS, "lost"),
        ((), MARKS[:1], "lost"),
        ((*MARKS, "w1.2"), MARKS, "doubled"),
        (("w1.2", "w1.1"), (), "out_of_order"),
    ],
)
def test_what_was_lost_doubled_or_misplaced_is_counted(
    stored: tuple[str, ...], noted: tuple[str, ...], fault: str
) -> None:
    assert getattr(check(_store(*stored), _noted(*noted)), fault) == 1


def test_a_window_that_is_not_the_fold_of_its_log_is_counted() -> None:
    store = _store(*MARKS)
    store.commit("s", 0, (added("e3", "w3.1 text"),), [StoredItem(1, -1, 1)], 4)
    assert check(store, []).windows_wrong == 1
