"""The outline of a session through undo, deletion and copies, and the compression that it is named by."""

from __future__ import annotations

from typing import Any

import pytest

from memman import EntryNotFound, MemoryConfig, MemoryManager, events
from memman.state import State
from memman.stores import MemoryStore
from memman.testing import FakeClock, record_events, sequential_ids


def manager(**given: Any) -> MemoryManager:
    config = MemoryConfig(auto_compress=False, max_entries=None, recent_window=2)
    fixed = {"counter": "chars4", "clock": FakeClock(), "new_id": sequential_ids()}
    return MemoryManager(config=config, **{**fixed, **given})


def work(memory: MemoryManager, first: int, turns: int = 8) -> None:
    """Add turns of four entries: a question, a call, its result and an answer."""
    for n in range(first, first + turns):
        memory.add_user_message("s", f"Please look at module_{n}.py for part {n}.", id=f"ask{n}")
        call, path = f"c{n}", f"/srv/app/module_{n}.py"
        memory.add_tool_call("s", "read", {"path": path}, call_id=call, id=f"call{n}")
        text = f"part {n} is in /srv/lib/part_{n}.py " + "line of text " * 60
        memory.add_tool_result("s", "read", text, call_id=call, id=f"result{n}")
        memory.add_assistant_message("s", f"Part {n} computes region_{n}.", id=f"answer{n}")


def outline_of(memory: MemoryManager) -> State:
    """Return the outline in the window, with its items."""
    memory.get_active_entries("s")  # loads the session
    active = memory._core.sessions.get("s").log.window.state
    assert active is not None
    return active.state


def outlined(memory: MemoryManager) -> list[str]:
    """Return the ids of the entries that the outline covers."""
    [summary] = memory.get_summaries("s")
    return list(summary.original_entry_ids)


def text_of(memory: MemoryManager) -> str:
    [summary] = memory.get_summaries("s")
    return summary.content


@pytest.fixture
def memory() -> MemoryManager:
    """A manager with a session that was compressed twice."""
    made = manager()
    work(made, 0)
    made.compress("s")
    work(made, 8, 6)
    made.compress("s")
    return made


# ---------------------------------------------------------------- undo


def test_undo_of_the_newest_restores_the_text_before_it() -> None:
    memory = manager()
    work(memory, 0)
    first = memory.compress("s")
    before, counts = text_of(memory), outline_of(memory).covered
    work(memory, 8, 6)
    memory.compress("s")
    assert text_of(memory) != before
    memory.undo_compression("s")
    assert text_of(memory) == before
    assert outline_of(memory).covered == counts
    assert memory.get_summaries("s")[0].id == first.compression_id


def test_undo_of_an_older_one_removes_its_entries_items() -> None:
    memory = manager()
    work(memory, 0)
    first = memory.compress("s")
    work(memory, 8, 6)
    second = memory.compress("s")
    assert "part 1." in text_of(memory)
    memory.undo_compression("s", first.compression_id)
    back = set(first.replaced_ids)
    outline = outline_of(memory)
    assert not outline.is_of(back)
    assert all(item.sources for item in outline.items)
    text = text_of(memory)
    assert "module_1.py" not in text
    assert "region_1." not in text
    assert "module_9.py" in text
    assert outline.compression_id == second.compression_id
    assert back <= {entry.id for entry in memory.get_active_entries("s")}
    assert back.isdisjoint(outlined(memory))


def test_count_after_an_undo_of_an_older_one_is_correct() -> None:
    memory = manager()
    work(memory, 0)
    first = memory.compress("s")
    work(memory, 8, 6)
    memory.compress("s")
    memory.undo_compression("s", first.compression_id)
    assert outline_of(memory).covered is None
    work(memory, 14, 4)
    memory.compress("s")
    covers_what_left(memory)


def covers_what_left(memory: MemoryManager) -> None:
    """Check that the counts of the outline are those of the entries that left the window."""
    hidden = [entry for entry in memory.get_entries("s") if entry.compressed]
    covered = outline_of(memory).covered
    assert covered is not None
    assert covered.entries == len(hidden)
    assert covered.user == sum(entry.role == "user" for entry in hidden)
    assert covered.tools == {"read": sum(entry.type == "tool_call" for entry in hidden)}
    assert (covered.first, covered.last) == (hidden[0].seq, hidden[-1].seq)
    assert text_of(memory).startswith(
        f"{len(hidden)} entries, #{hidden[0].seq} to #{hidden[-1].seq}"
    )


# ---------------------------------------------------------------- deletion


def test_deletion_removes_an_entrys_items_and_the_counts(memory: MemoryManager) -> None:
    assert "module_3.py for part 3" in text_of(memory)
    memory.delete_entries("s", ["ask3"])
    outline = outline_of(memory)
    assert not outline.is_of({"ask3"})
    assert outline.covered is None
    assert text_of(memory).startswith("What was said and done")
    assert "module_9.py" in text_of(memory)
    # The compression that covered it is dissolved, so the others are in the window and not in the outline.
    back = {f"{what}{n}" for what in ("ask", "call", "result", "answer") for n in range(7)} - {
        "ask3"
    }
    assert back <= {entry.id for entry in memory.get_active_entries("s")}
    assert not outline.is_of(back)
    assert "module_3.py for part 3" not in memory.export_session("s").to_json()


def test_next_compression_counts_again_after_a_deletion(memory: MemoryManager) -> None:
    memory.delete_entries("s", ["ask3", "answer4"])
    work(memory, 14, 4)
    memory.compress("s")
    covers_what_left(memory)


def test_deletion_of_an_active_entry_leaves_the_outline(memory: MemoryManager) -> None:
    before = outline_of(memory)
    memory.delete_entries("s", ["answer13"])
    assert outline_of(memory) == before


def test_undo_after_a_deletion_has_the_text_before() -> None:
    memory = manager()
    work(memory, 0)
    memory.compress("s")
    before = text_of(memory)
    work(memory, 8, 6)
    memory.compress("s")
    memory.delete_entries("s", ["answer13"])
    memory.undo_compression("s")
    assert text_of(memory) == before


def test_undo_does_not_return_what_was_deleted(memory: MemoryManager) -> None:
    work(memory, 14, 6)
    memory.compress("s")
    memory.delete_entries("s", ["ask3"])
    memory.undo_compression("s")
    assert "module_9.py for part 9" in text_of(memory)
    assert "module_3.py for part 3" not in text_of(memory)
    assert not outline_of(memory).is_of({"ask3"})


# ---------------------------------------------------------------- copies


def test_fork_has_an_equal_outline(memory: MemoryManager) -> None:
    memory.fork_session("s", "copy")
    [own], [copied] = memory.get_summaries("s"), memory.get_summaries("copy")
    assert copied.content == own.content
    assert memory.explain("copy").state.sections == memory.explain("s").state.sections
    texts = [memory.build_context(name, format="text").text for name in ("s", "copy")]
    assert own.content in texts[0]
    assert copied.content in texts[1]


@pytest.mark.parametrize("deleted", [[], ["ask3"]], ids=["whole", "after a deletion"])
def test_import_has_an_equal_outline(memory: MemoryManager, deleted: list[str]) -> None:
    if deleted:
        memory.delete_entries("s", deleted)
    other = manager()
    other.import_session(memory.export_session("s").to_json())
    assert outline_of(other) == outline_of(memory)
    assert other.get_summaries("s") == memory.get_summaries("s")
    assert other.export_session("s").to_json() == memory.export_session("s").to_json()


def test_outline_is_equal_when_the_session_is_loaded_again() -> None:
    store = MemoryStore()
    memory = manager(store=store)
    work(memory, 0)
    memory.compress("s")
    work(memory, 8, 6)
    memory.compress("s")
    memory.delete_entries("s", ["ask3"])
    other = manager(store=store)
    assert outline_of(other) == outline_of(memory)
    assert other.get_summaries("s") == memory.get_summaries("s")


# ---------------------------------------------------------------- its compression


def test_everything_names_the_compression_of_the_outline() -> None:
    memory = manager()
    work(memory, 0)
    with record_events(memory, [events.CompressionResult]) as received:
        result = memory.compress("s")
    [event] = received
    [summary] = memory.get_summaries("s")
    [status] = memory.explain("s").compressions
    name = result.compression_id
    assert {result.summary_id, event.summary_id, status.summary_id, summary.id} == {name}  # type: ignore[attr-defined]
    assert result.state is not None
    assert result.state.compression_id == name
    hidden = [entry for entry in memory.get_entries("s") if entry.compressed]
    assert hidden
    assert {entry.summary_id for entry in hidden} == {name}
    assert [entry.id for entry in hidden] == outlined(memory)


def test_entry_of_the_outline_is_found_by_id_and_by_address() -> None:
    memory = manager()
    work(memory, 0)
    result = memory.compress("s")
    assert result.compression_id is not None
    found = memory.get_entry("s", result.compression_id)
    assert (found.id, found.type) == (result.compression_id, "summary")
    assert found.content == text_of(memory)
    assert found.address == f"#{memory.explain('s').compressions[-1].seq}"
    assert memory.get_entry("s", found.address) == found
    [active] = [entry for entry in memory.get_active_entries("s") if entry.type == "summary"]
    assert active == found
    assert memory.get_stats("s").active_entries == len(memory.get_active_entries("s"))


def test_entries_of_two_compressions_name_the_newer_outline(memory: MemoryManager) -> None:
    newest = memory.explain("s").compressions[-1].compression_id
    hidden = [entry for entry in memory.get_entries("s") if entry.compressed]
    assert {entry.summary_id for entry in hidden} == {newest}
    assert memory.get_entry("s", "ask0").summary_id == newest
    assert memory.get_entry("s", newest).content == text_of(memory)
    states = {each.state for each in memory.explain("s").entries if each.entry_id == "ask0"}
    assert states == {"summarised"}


def test_outline_cannot_be_pinned(memory: MemoryManager) -> None:
    [summary] = memory.get_summaries("s")
    with pytest.raises(EntryNotFound, match="is the outline, which each compression writes again"):
        memory.pin("s", summary.id)


def test_plan_counts_the_outline_as_an_entry(memory: MemoryManager) -> None:
    work(memory, 20)
    plan = memory.plan_compression("s")
    assert plan.entries_before == len(memory.get_active_entries("s"))
    memory.compress("s")
    assert plan.entries_after == len(memory.get_active_entries("s"))


RULE = "Never delete the report."


def test_outline_has_room_if_only_entries_are_over() -> None:
    """The target of a strategy with `max_entries` takes out entries, though the tokens would fit"""
    config = MemoryConfig(auto_compress=False, max_tokens=1_500, strategy="summary")
    memory = MemoryManager(counter="chars4", config=config)
    memory.add_user_message("s", RULE)
    for number in range(8):
        memory.add_tool_call("s", "read", {"n": number}, call_id=f"c{number}")
        memory.add_tool_result("s", "read", "value " * 40, call_id=f"c{number}")
    memory.add_assistant_message("s", "I read them.")
    memory.add_user_message("s", "Go on.")
    memory.compress("s", target_tokens=900)
    assert memory.get_stats("s").active_entries < 12
    assert RULE in text_of(memory)
