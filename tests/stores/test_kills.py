"""Processes that are killed at random lose and double nothing in a shared session."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks.kills import kill_writers
from tests.kinds import IN_FILES

pytestmark = pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")


@pytest.mark.parametrize("made", IN_FILES)
def test_entries_of_killed_writers_are_there_once_in_order(made: Any) -> None:
    kind = made()
    kind.open().close()
    found = kill_writers(kind.url, 8, seed=7)
    kind.remove()
    assert (found.lost, found.doubled, found.disordered, found.gaps, found.inconsistent) == (0,) * 5
    assert found.acknowledged > 50
