"""Adding where a store had to write twice, because the answer to its first write was lost."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from memman import IdConflict, MemoryManager, events
from memman.ports import Appended
from memman.records import Record
from memman.stores import MemoryStore
from memman.testing import record_events


class AnswerLost(MemoryStore):
    """Writes, hears nothing, and writes again: as a store does whose connection broke."""

    def append(
        self, session_id: str, records: Sequence[Record], *, expect_head: int | None = None
    ) -> Appended:
        super().append(session_id, records, expect_head=expect_head)
        return super().append(session_id, records)


MESSAGES = [{"role": "user", "content": "one"}, {"role": "user", "content": "two"}]


def test_an_entry_that_was_written_at_the_first_attempt_is_added_once_and_told_once() -> None:
    memory = MemoryManager(AnswerLost())
    with record_events(memory) as told:
        added = [memory.add_user_message("s", text) for text in ("one", "two")]
    assert memory.get_entries("s") == added
    assert [entry.seq for entry in added] == [1, 2]
    assert [event.entry for event in told if isinstance(event, events.EntryAdded)] == added


def test_a_batch_that_was_written_at_the_first_attempt_is_added_once() -> None:
    memory = MemoryManager(AnswerLost())
    added = memory.add_messages("s", MESSAGES)
    assert [entry.text for entry in added] == ["one", "two"]
    assert memory.get_entries("s") == added


@pytest.mark.parametrize("store", [MemoryStore, AnswerLost])
def test_an_id_that_is_given_out_twice_is_refused_and_changes_nothing(
    store: type[MemoryStore],
) -> None:
    memory = MemoryManager(store(), new_id=lambda: "always the same")
    memory.add_user_message("s", "one")
    for add in (
        lambda: memory.add_user_message("s", "two"),
        lambda: memory.add_user_message("s", "one"),  # at another moment
    ):
        with pytest.raises(IdConflict, match="ids must be unique"):
            add()
    assert [entry.text for entry in memory.get_entries("s")] == ["one"]
