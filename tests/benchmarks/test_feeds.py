"""Followers and writers that are killed, on small sizes, and the check of the followed records."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.feeds import Found, follow_under_kills, found

LOGS = {("s", 1), ("s", 2), ("t", 1)}


def test_killed_followers_see_every_record_once_in_order(tmp_path: Path) -> None:
    outcome = follow_under_kills(str(tmp_path / "chat.db"), 3, writers=3)
    assert outcome.records >= 10
    assert outcome.problems == 0, outcome


def test_nothing_is_wrong_where_each_saw_all_in_order() -> None:
    seen = [[("s", 1), ("s", 2), ("t", 1)], [("t", 1), ("s", 1), ("s", 2)]]
    assert found(LOGS, seen, 0, 1.0).problems == 0


@pytest.mark.parametrize(
    ("seen", "fault"),
    [
        ([("s", 1), ("s", 2)], {"missed": 1}),
        ([("s", 1), ("t", 1)], {"missed": 1}),
        ([("s", 1), ("s", 2), ("t", 1), ("u", 1)], {"invented": 1}),
        ([("s", 2), ("s", 1), ("t", 1)], {"disordered": 2}),
        ([("s", 1), ("s", 1), ("s", 2), ("t", 1)], {"disordered": 1, "repeated": 1}),
    ],
)
def test_each_fault_is_found(seen: list[tuple[str, int]], fault: dict[str, int]) -> None:
    outcome = found(LOGS, [seen], 0, 1.0)
    counts = {name: getattr(outcome, name) for name in Found.__struct_fields__[3:]}
    assert {name: count for name, count in counts.items() if count} == fault
