"""Retracted entries are hidden until the retraction is undone, and their ids are free."""

from __future__ import annotations

import io
import json
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from memman import (
    EntryNotFound,
    IdConflict,
    InvalidInput,
    MemoryConfig,
    MemoryManager,
    Refused,
    StateError,
    SummaryReply,
    SummaryRequest,
    events,
)
from memman.testing import record_events
from tests.kinds import IN_FILES, InMemory
from tests.patience import PATIENCE

CONFIG = MemoryConfig(max_tokens=10_000, recent_window=0, min_entries_to_compress=2)


@pytest.fixture(params=[pytest.param(InMemory, id="memory"), *IN_FILES])
def kind(request: Any) -> Iterator[Any]:
    made = request.param()
    yield made
    made.remove()


@pytest.fixture
def memory(kind: Any) -> Iterator[MemoryManager]:
    with MemoryManager(kind.open(), counter="chars4", config=CONFIG) as opened:
        yield opened


def fill(memory: MemoryManager, number: int = 8) -> list[str]:
    return [
        memory.add_user_message("s", f"{n} " + "abc " * 100, id=f"e{n}").id for n in range(number)
    ]


def listed(memory: MemoryManager) -> list[str]:
    return [entry.id for entry in memory.get_entries("s")]


def active(memory: MemoryManager) -> list[str]:
    return [entry.id for entry in memory.get_active_entries("s")]


def test_retracted_entry_is_in_no_context(memory: MemoryManager) -> None:
    fill(memory, 3)
    memory.retract("s", ["e1"])
    assert listed(memory) == active(memory) == ["e0", "e2"]
    assert not any("1 abc" in message["content"] for message in memory.build_context("s").messages)
    assert memory.get_entry("s", "e1").text.startswith("1 abc")
    assert memory.get_entry("s", "#3").id == "e1"


def test_statistics_leave_out_retracted_entries(memory: MemoryManager) -> None:
    fill(memory, 3)
    before = memory.get_stats("s")
    memory.retract("s", ["e1", "e2"])
    stats = memory.get_stats("s")
    assert (stats.total_entries, stats.active_entries, stats.compressed_entries) == (1, 1, 0)
    assert stats.total_tokens == memory.get_entry("s", "e0").token_count.tokens
    assert before.total_tokens == 3 * stats.total_tokens


def test_undo_restores_entries_in_their_places(memory: MemoryManager) -> None:
    fill(memory, 4)
    memory.pin("s", "e1")
    before = memory.get_active_entries("s"), memory.get_stats("s")
    retraction = memory.retract("s", ["e2", "e1"])
    assert memory.undo_compression("s", retraction) == retraction
    assert (memory.get_active_entries("s"), memory.get_stats("s")) == before
    assert [entry.id for entry in memory.get_active_entries("s") if entry.pinned] == ["e1"]


def test_retraction_unfolds_covering_compressions(memory: MemoryManager) -> None:
    fill(memory)
    compression = memory.compress("s", target_tokens=400).compression_id
    retraction = memory.retract("s", ["e1"])
    assert active(memory) == listed(memory) == ["e0", *[f"e{n}" for n in range(2, 8)]]
    with pytest.raises(EntryNotFound, match="unfolded by a deletion or retraction"):
        memory.undo_compression("s", compression)
    memory.undo_compression("s", retraction)
    assert active(memory) == [f"e{n}" for n in range(8)]
    states = {each.compression_id: each.state for each in memory.explain("s").compressions}
    assert states == {compression: "unfolded", retraction: "undone"}


def test_undo_without_id_passes_over_retractions(memory: MemoryManager) -> None:
    fill(memory)
    compression = memory.compress("s", target_tokens=400).compression_id
    memory.retract("s", ["e7"])
    assert memory.undo_compression("s") == compression
    with pytest.raises(EntryNotFound, match="no compression to undo"):
        memory.undo_compression("s")


def test_id_of_retracted_entry_is_free(memory: MemoryManager, kind: Any) -> None:
    fill(memory, 3)
    retraction = memory.retract("s", ["e1"])
    added = memory.add_user_message("s", "other words", id="e1")
    assert listed(memory) == ["e0", "e2", "e1"]
    assert memory.add_user_message("s", "other words", id="e1").seq == added.seq
    with pytest.raises(IdConflict):
        memory.add_user_message("s", "third words", id="e1")
    with pytest.raises(Refused, match="e1 was added again"):
        memory.undo_compression("s", retraction)
    assert memory.get_entry("s", "e1") == added
    assert memory.get_entry("s", "#3").text.startswith("1 abc")
    other = MemoryManager(kind.open(), counter="chars4")
    assert other.get_entries("s") == memory.get_entries("s")


def test_same_content_after_retraction_is_new_entry(memory: MemoryManager) -> None:
    memory.add_user_message("s", "hello", id="e0")
    memory.retract("s", "e0")
    memory.add_user_message("s", "hello", id="e0")
    assert listed(memory) == active(memory) == ["e0"]


def test_id_is_known_again_after_undo(memory: MemoryManager) -> None:
    fill(memory, 2)
    memory.undo_compression("s", memory.retract("s", ["e1"]))
    with pytest.raises(IdConflict):
        memory.add_user_message("s", "other words", id="e1")
    assert listed(memory) == ["e0", "e1"]


def test_retracting_again_returns_same_retraction(memory: MemoryManager) -> None:
    fill(memory, 4)
    first = memory.retract("s", ["e0", "e1"])
    second = memory.retract("s", ["e1", "e2"])
    assert memory.retract("s", ["e0"]) == memory.retract("s", ["e0", "e1"]) == first
    assert memory.retract("s", ["e2", "e1"]) == second
    assert listed(memory) == ["e3"]
    memory.undo_compression("s", first)
    assert listed(memory) == ["e0", "e1", "e3"]


@pytest.mark.parametrize("unknown", ["nobody", "summary", "deleted", "cleared"])
def test_retraction_of_other_ids_changes_nothing(memory: MemoryManager, unknown: str) -> None:
    memory.add_user_message("s", "of an earlier era", id="cleared")
    memory.clear_session("s")
    fill(memory)
    memory.add_user_message("s", "unwanted", id="deleted")
    memory.delete_entries("s", ["deleted"])
    memory.compress("s", target_tokens=400)
    [summary] = memory.get_summaries("s")
    before = memory.export_session("s")
    with pytest.raises(EntryNotFound):
        memory.retract("s", ["e7", summary.id if unknown == "summary" else unknown])
    assert memory.export_session("s") == before


@pytest.mark.parametrize("ids", [[], None, [3], [None]])
def test_retraction_without_ids_is_refused(memory: MemoryManager, ids: Any) -> None:
    fill(memory, 1)
    with pytest.raises(InvalidInput):
        memory.retract("s", ids)


def test_deleted_entry_does_not_come_back_by_undo(memory: MemoryManager) -> None:
    fill(memory, 4)
    retraction = memory.retract("s", ["e1", "e2"])
    memory.delete_entries("s", ["e1"])
    assert listed(memory) == ["e0", "e3"]
    assert memory.get_stats("s").total_entries == 2
    assert "1 abc" not in memory.export_session("s").to_json()
    with pytest.raises(IdConflict, match="deleted"):
        memory.add_user_message("s", "again", id="e1")
    memory.undo_compression("s", retraction)
    assert listed(memory) == ["e0", "e2", "e3"]


def test_undo_fails_if_everything_was_deleted(memory: MemoryManager) -> None:
    fill(memory, 2)
    retraction = memory.retract("s", ["e1"])
    memory.delete_entries("s", ["e1"])
    with pytest.raises(EntryNotFound, match="was deleted"):
        memory.undo_compression("s", retraction)


def test_deletion_erases_every_entry_with_the_id(memory: MemoryManager) -> None:
    memory.add_user_message("s", "hello", id="e0")
    memory.add_user_message("s", "first words", id="e1")
    memory.retract("s", ["e1"])
    memory.add_user_message("s", "second words", id="e1")
    memory.delete_entries("s", ["e1"])
    assert listed(memory) == ["e0"]
    assert "words" not in memory.export_session("s").to_json()


def test_clear_ends_a_retraction(memory: MemoryManager) -> None:
    fill(memory, 2)
    retraction = memory.retract("s", ["e1"])
    memory.clear_session("s")
    memory.add_user_message("s", "again", id="e1")
    with pytest.raises(EntryNotFound, match="cleared"):
        memory.undo_compression("s", retraction)
    assert listed(memory) == ["e1"]


def test_retraction_is_emitted_with_its_reason(memory: MemoryManager) -> None:
    fill(memory, 2)
    with record_events(memory) as emitted:
        retraction = memory.retract("s", ["e1"], reason="the user edited it")
        memory.undo_compression("s", retraction)
    compressed, undone = emitted
    assert isinstance(compressed, events.CompressionResult)
    assert (compressed.compression_id, compressed.reason) == (
        retraction,
        "retracted: the user edited it",
    )
    assert compressed.replaced_ids == ("e1",)
    assert compressed.tokens_saved == memory.get_entry("s", "e1").token_count.tokens
    assert undone == events.CompressionUndone(session_id="s", compression_id=retraction)


def test_copies_keep_retractions(memory: MemoryManager) -> None:
    fill(memory)
    memory.compress("s", target_tokens=400)
    retraction = memory.retract("s", ["e1", "e2"])
    memory.add_user_message("s", "another", id="e2")
    memory.delete_entries("s", ["e2"])
    state = memory.export_session("s")
    document, archive = io.BytesIO(), MemoryManager(counter="chars4")
    memory.export_archive("s", document)
    document.seek(0)
    archive.import_archive(document)
    copy = MemoryManager(counter="chars4")
    copy.import_session(state.to_json())
    for other in (copy, archive):
        assert other.export_session("s") == state
        assert other.get_stats("s").total_tokens == memory.get_stats("s").total_tokens
        other.undo_compression("s", retraction)
        assert listed(other) == ["e0", "e1", *[f"e{n}" for n in range(3, 8)]]


def test_retraction_leaves_the_wait_after_an_undo(memory: MemoryManager) -> None:
    memory.update_config("s", max_tokens=800)
    fill(memory)
    memory.undo_compression("s")
    memory.retract("s", ["e0"])
    memory.add_user_message("s", "abc " * 100)
    assert memory.get_stats("s").active_tokens > 800, "an undone compression ran again at once"


def test_undone_retraction_makes_compression_wait_for_nothing(memory: MemoryManager) -> None:
    memory.update_config("s", max_tokens=800, auto_compress=False)
    fill(memory)
    memory.undo_compression("s", memory.retract("s", ["e0"]))
    memory.update_config("s", auto_compress=True)
    memory.add_user_message("s", "short")
    assert memory.get_stats("s").active_tokens < 800


class Waiting:
    """A summarizer whose first call waits."""

    def __init__(self) -> None:
        self.asked, self.go = threading.Event(), threading.Event()
        self.prompts: list[str] = []

    def summarize(self, request: SummaryRequest) -> SummaryReply:
        self.prompts.append(request.prompt)
        self.asked.set()
        assert self.go.wait(PATIENCE)
        return SummaryReply(text="short")


def test_summary_in_progress_replaces_no_entry_added_since() -> None:
    summarizer = Waiting()
    memory = MemoryManager(counter="chars4", config=CONFIG, summarizer=summarizer)
    fill(memory, 6)
    running = threading.Thread(target=lambda: memory.compress("s", target_tokens=200))
    running.start()
    assert summarizer.asked.wait(PATIENCE)
    memory.retract("s", [f"e{n}" for n in range(6)])
    for n in range(6):
        memory.add_user_message("s", f"{n} " + "xyz " * 100, id=f"e{n}")
    summarizer.go.set()
    running.join(PATIENCE)
    assert memory.get_summaries("s")
    assert "xyz" in summarizer.prompts[-1]


# ---------------------------------------------------------------- imports


def document_of(memory: MemoryManager, kind: str) -> tuple[Any, Any]:
    """Return a document and its record of this kind, the last one."""
    document = json.loads(memory.export_session("s").to_json())
    return document, [record for record in document["log"] if record["kind"] == kind][-1]


@pytest.fixture
def retracted() -> MemoryManager:
    """A session with a summary, unfolded by a retraction that was not undone."""
    memory = MemoryManager(counter="chars4", config=CONFIG)
    fill(memory)
    memory.compress("s", target_tokens=400)
    memory.retract("s", ["e1"])
    return memory


def two_methods(record: Any) -> None:
    record["replacements"].append({"ids": ["e2"], "entry": None, "method": "drop"})


def unknown_entry(record: Any) -> None:
    record["replacements"][0]["ids"] = ["nobody"]


def twice(record: Any) -> None:
    record["replacements"].append(record["replacements"][0])


def nothing_unfolded(record: Any) -> None:
    record["unfolds"] = []


def summary_kept(record: Any) -> None:
    record["replacements"][0]["into"] = "e2"


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (two_methods, "does nothing else"),
        (unknown_entry, "no added entry"),
        (twice, "in the window|overlap|no added entry"),
        (nothing_unfolded, "it unfolds"),
        (summary_kept, "did not make"),
    ],
)
def test_import_refuses_an_invalid_retraction(
    retracted: MemoryManager, change: Any, problem: str
) -> None:
    document, record = document_of(retracted, "compressed")
    change(record)
    with pytest.raises(StateError, match=problem):
        MemoryManager(counter="chars4").import_session(document)


def test_import_refuses_an_id_in_use(retracted: MemoryManager) -> None:
    retracted.add_user_message("s", "again", id="e1")
    document, record = document_of(retracted, "compressed")
    undone = {"kind": "undone", "id": "u", "at": record["at"], "compression_id": record["id"]}
    document["log"].append(undone)
    with pytest.raises(StateError, match="e1 was added again"):
        MemoryManager(counter="chars4").import_session(document)


def test_import_computes_the_figures_of_a_retraction(retracted: MemoryManager) -> None:
    document, record = document_of(retracted, "compressed")
    record["lost_tokens"] = 0
    copy = MemoryManager(counter="chars4")
    copy.import_session(document)
    assert copy.get_stats("s").total_tokens == retracted.get_stats("s").total_tokens
    retracted.undo_compression("s", record["id"])
    document, record = document_of(retracted, "undone")
    record["restored"], record["restored_tokens"] = ["e2"], 5
    copy = MemoryManager(counter="chars4")
    copy.import_session(document)
    assert copy.export_session("s") == retracted.export_session("s")
