"""Ids are unique among the entries of an era: after a clear they may come again."""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import Any

import pytest

from memman import IdConflict, MemoryManager
from memman.archive.document import records_of
from memman.records import Added
from tests.kinds import IN_FILES, InMemory


@pytest.fixture(params=[pytest.param(InMemory, id="memory"), *IN_FILES])
def kind(request: Any) -> Iterator[Any]:
    made = request.param()
    yield made
    made.remove()


def texts(memory: MemoryManager) -> list[str]:
    return [entry.text for entry in memory.get_entries("s")]


def twice(memory: MemoryManager) -> None:
    """Return the same ids in two eras, with other entries around them."""
    memory.add_user_message("s", "first", id="e1")
    memory.add_user_message("s", "second", id="e2")
    memory.clear_session("s")
    memory.add_user_message("s", "between")
    memory.add_user_message("s", "first again", id="e1")


def test_same_id_after_clear_is_new_entry(kind: Any) -> None:
    memory = MemoryManager(kind.open())
    memory.add_user_message("s", "a", id="e1")
    memory.clear_session("s")
    entry = memory.add_user_message("s", "a", id="e1")
    assert texts(memory) == ["a"]
    assert [one.id for one in memory.get_active_entries("s")] == ["e1"]
    assert memory.get_entry("s", "e1").seq == entry.seq
    assert [m["content"] for m in memory.build_context("s").messages] == ["a"]


def test_retry_in_same_era_is_no_op(kind: Any) -> None:
    memory = MemoryManager(kind.open())
    twice(memory)
    again = memory.add_user_message("s", "first again", id="e1")
    assert texts(memory) == ["between", "first again"]
    assert again.text == "first again"
    with pytest.raises(IdConflict):
        memory.add_user_message("s", "other words", id="e1")
    assert texts(memory) == ["between", "first again"]


def test_other_manager_finds_entry_of_newest_era(kind: Any) -> None:
    twice(MemoryManager(kind.open()))
    memory = MemoryManager(kind.open())
    assert memory.get_entry("s", "e1").text == "first again"
    assert memory.get_entry("s", "e2").text == "second"
    memory.add_user_message("s", "first again", id="e1")
    assert texts(memory) == ["between", "first again"]


def test_deletion_reaches_every_era(kind: Any) -> None:
    memory = MemoryManager(kind.open())
    twice(memory)
    memory.delete_entries("s", ["e1"])
    assert texts(memory) == ["between"]
    document = memory.export_session("s").to_json()
    assert "first" not in document
    assert "second" in document
    memory.clear_session("s")
    with pytest.raises(IdConflict, match="deleted"):
        memory.add_user_message("s", "first", id="e1")


def test_export_and_import_keep_both_eras(kind: Any) -> None:
    memory, other, third = MemoryManager(), MemoryManager(kind.open()), MemoryManager()
    twice(memory)
    state = memory.export_session("s")
    other.import_session(state.to_json())
    assert other.export_session("s") == state
    added = [record.entry.text for record in records_of(state) if isinstance(record, Added)]
    assert added == ["first", "second", "between", "first again"]
    assert other.get_entry("s", "e1").text == "first again"
    archive = io.BytesIO()
    other.export_archive("s", archive)
    archive.seek(0)
    third.import_archive(archive)
    assert third.export_session("s") == state
    other.add_user_message("s", "first again", id="e1")
    assert texts(other) == ["between", "first again"]


def test_compression_and_undo_work_with_repeated_ids(kind: Any) -> None:
    memory = MemoryManager(kind.open(), counter="chars4")
    for era in range(2):
        for number in range(30):
            memory.add_user_message("s", f"{era} {number} " + "word " * 30, id=f"e{number}")
        memory.compress("s", target_tokens=500)
        if not era:
            memory.clear_session("s")
    assert len(memory.get_entries("s")) == 30
    assert memory.get_entry("s", "e3").text.startswith("1 3 ")
    memory.undo_compression("s")
    assert [entry.text[:2] for entry in memory.get_active_entries("s")] == ["1 "] * 30


def test_deleted_id_is_refused_after_a_clear_elsewhere(tmp_path: Any) -> None:
    here, there = MemoryManager(tmp_path / "x.db"), MemoryManager(tmp_path / "x.db")
    here.add_user_message("s", "secret", id="e1")
    here.add_user_message("s", "other")
    there.delete_entries("s", ["e1"])
    there.clear_session("s")
    with pytest.raises(IdConflict, match="was deleted"):
        here.add_user_message("s", "again", id="e1")
    MemoryManager().import_session(here.export_session("s"))
    here.close()
    there.close()
