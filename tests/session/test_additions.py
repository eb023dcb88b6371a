"""Adding to a store that repeats a write because the answer to the first was lost."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from itertools import chain, repeat
from pathlib import Path
from typing import Any

import pytest

from memman import AsyncMemoryManager, IdConflict, MemoryManager, events
from memman.protocols import Appended
from memman.records import Record
from memman.stores import MemoryStore, SQLiteStore
from memman.testing import record_events


class AnswerLost(MemoryStore):
    """A store that writes, gets no answer and writes again, as after a broken connection."""

    def append(
        self, session_id: str, records: Sequence[Record], *, expect_head: int | None = None
    ) -> Appended:
        super().append(session_id, records, expect_head=expect_head)
        return super().append(session_id, records)


MESSAGES = [{"role": "user", "content": "one"}, {"role": "user", "content": "two"}]


def test_entry_of_a_lost_answer_is_added_and_emitted_once() -> None:
    memory = MemoryManager(AnswerLost())
    with record_events(memory) as emitted:
        added = [memory.add_user_message("s", text) for text in ("one", "two")]
    assert memory.get_entries("s") == added
    assert [entry.seq for entry in added] == [2, 3]
    assert [event.entry for event in emitted if isinstance(event, events.EntryAdded)] == added


def test_batch_of_a_lost_answer_is_added_once() -> None:
    memory = MemoryManager(AnswerLost())
    added = memory.add_messages("s", MESSAGES)
    assert [entry.text for entry in added] == ["one", "two"]
    assert memory.get_entries("s") == added


class Counted(MemoryStore):
    """A store that counts the reads of a log from its beginning."""

    reads = 0

    def read(
        self, session_id: str, after: int = 0, limit: int = 1_000
    ) -> Sequence[tuple[int, Record]]:
        self.reads += after == 0
        return super().read(session_id, after, limit)


def filled(memory: MemoryManager, text: str, compressed: bool) -> None:
    memory.add_user_message("s", text, id="mine")
    if compressed:
        for number in range(20):
            memory.add_user_message("s", f"message {number}: " + "word " * 200)
        memory.compress("s", target_tokens=600)
        assert memory.get_entry("s", "mine").compressed


@pytest.mark.parametrize("text", ["", "a secret"])
@pytest.mark.parametrize("compressed", [False, True])
def test_repeated_id_is_found_without_reading_the_log(text: str, compressed: bool) -> None:
    kept = Counted()
    memory = MemoryManager(kept, counter="chars4")
    filled(memory, text, compressed)

    def reads_of(again: str) -> int:
        before = kept.reads
        if again == text:
            assert memory.add_user_message("s", again, id="mine").content == text
        else:
            with pytest.raises(IdConflict, match="'mine' was added before with other content"):
                memory.add_user_message("s", again, id="mine")
        return kept.reads - before

    assert [reads_of(again) for again in ("", "a secret", "another")] == [0, 0, 0]


@pytest.mark.parametrize("kind", [Counted, SQLiteStore])
@pytest.mark.parametrize("text", ["", "a secret"])
@pytest.mark.parametrize("compressed", [False, True])
def test_id_of_a_deleted_entry_is_refused(
    kind: Any, text: str, compressed: bool, tmp_path: Path
) -> None:
    store = kind(tmp_path / "s.db") if kind is SQLiteStore else kind()
    memory = MemoryManager(store, counter="chars4")
    filled(memory, text, compressed)
    memory.delete_entries("s", ["mine"])
    before = getattr(store, "reads", 0)
    for again in ("", "a secret", "another"):
        with pytest.raises(IdConflict, match="the id 'mine' was deleted; nothing was changed"):
            memory.add_user_message("s", again, id="mine")
    assert getattr(store, "reads", 0) - before == 0


@pytest.mark.parametrize("kind", [Counted, SQLiteStore])
def test_async_manager_adds_it_once_too(kind: Any, tmp_path: Path) -> None:
    store = kind(tmp_path / "s.db") if kind is SQLiteStore else kind()

    async def emitted() -> None:
        async with AsyncMemoryManager(store, counter="chars4") as memory:
            first = await memory.add_user_message("s", "", id="mine")
            assert await memory.add_user_message("s", "", id="mine") == first
            await memory.delete_entries("s", ["mine"])
            with pytest.raises(IdConflict, match="'mine' was deleted"):
                await memory.add_user_message("s", "", id="mine")

    asyncio.run(emitted())


@pytest.mark.parametrize("store", [MemoryStore, AnswerLost])
def test_id_from_new_id_given_twice_is_refused(
    store: type[MemoryStore],
) -> None:
    memory = MemoryManager(store(), new_id=chain(["opening"], repeat("always the same")).__next__)
    memory.add_user_message("s", "one")
    for add in (
        lambda: memory.add_user_message("s", "two"),
        lambda: memory.add_user_message("s", "one"),  # at another moment
    ):
        with pytest.raises(IdConflict, match="ids must be unique"):
            add()
    assert [entry.text for entry in memory.get_entries("s")] == ["one"]
