"""Repeated reads are folded by key or by content, never by prose, and only with a gain."""

from typing import Any

import pytest

from memman import Entry, MemoryConfig, MemoryManager
from memman.compression import fold_repeats
from memman.formats.rules import check

FILE = "def main():\n    return 42\n" * 20
OTHER = FILE.replace("42", "43")


def manager(**settings: Any) -> MemoryManager:
    given = {"auto_compress": False, "recent_window": 0, "strategy": (fold_repeats,)} | settings
    return MemoryManager(counter="chars4", config=MemoryConfig(**given))


def read(memory: MemoryManager, content: str = FILE, key: str | None = None, **more: Any) -> Entry:
    """Return a call and its result, and a message after it."""
    call = f"c{len(memory.get_active_entries('s')) if memory.list_sessions() else 0}"
    metadata = None if key is None else {"fold_key": key}
    memory.add_tool_call("s", "read", {}, call_id=call)
    entry = memory.add_tool_result("s", "read", content, call_id=call, metadata=metadata, **more)
    memory.add_assistant_message("s", "I have read the file; now I read the requirements.")
    return entry


def folded(memory: MemoryManager) -> list[str]:
    """Return the entries that a compression folds, without any other stage."""
    result = memory.compress("s", target_tokens=1)
    assert {item.method for item in result.replacements} <= {"fold"}
    return [entry_id for item in result.replacements for entry_id in item.ids]


def test_equal_reads_are_folded_to_the_newest() -> None:
    memory = manager()
    first, second, _newest = read(memory), read(memory), read(memory)
    assert folded(memory) == [first.id, second.id]
    assert check(memory.build_context("s").messages, "openai-chat") == []


def test_a_stub_names_the_newest_read_and_the_original() -> None:
    memory = manager()
    first, newest = read(memory), read(memory)
    folded(memory)
    stub = memory.get_active_entries("s")[1]
    assert stub.text == (
        f"[memman: entry #{newest.seq} is a newer read of this; the original is entry "
        f"#{first.seq}, {first.token_count.tokens} tokens]"
    )
    assert (stub.type, stub.call_id) == ("tool_result", first.call_id)
    assert memory.get_entry("s", first.id).text == FILE


def test_with_a_key_the_newest_version_of_a_source_stays() -> None:
    memory = manager()
    old, new = read(memory, FILE, "src/a.py"), read(memory, OTHER, "src/a.py")
    assert folded(memory) == [old.id]
    assert new.id in {entry.id for entry in memory.get_active_entries("s")}


def test_other_keys_and_other_contents_are_not_folded() -> None:
    memory = manager()
    read(memory, FILE, "src/a.py")
    read(memory, OTHER, "src/b.py")
    read(memory, FILE.replace("42", "44"))
    assert folded(memory) == []


def test_failed_read_does_not_replace_a_successful_one() -> None:
    memory = manager()
    read(memory, FILE, "src/a.py")
    read(memory, "No such file: src/a.py. " * 20, "src/a.py", is_error=True)
    assert folded(memory) == []


def test_contexts_are_folded_by_content_not_source() -> None:
    memory = manager()
    first = memory.add_context("s", FILE, "manual")
    memory.add_context("s", OTHER, "manual")
    memory.add_context("s", FILE, "another name")
    memory.add_user_message("s", "go on")
    assert folded(memory) == [first.id]


def test_a_context_may_have_a_key_too() -> None:
    memory = manager()
    first = memory.add_context("s", FILE, "page", metadata={"fold_key": "page"})
    memory.add_context("s", OTHER, "page", metadata={"fold_key": "page"})
    memory.add_user_message("s", "go on")
    assert folded(memory) == [first.id]


def test_prose_and_repeated_messages_are_not_folded() -> None:
    memory = manager()
    for _ in range(4):
        memory.add_user_message("s", "I have read the requirements in src/a.py. " * 20)
        memory.add_assistant_message("s", "I read the file src/a.py again. " * 20)
    assert folded(memory) == []


def test_text_next_to_a_call_is_not_folded() -> None:
    memory = manager()
    for number in "abc":
        memory.add_assistant_message("s", "I read src/a.py. " * 20, message_id=number)
        memory.add_tool_call("s", "read", {}, call_id=number, message_id=number)
        memory.add_tool_result("s", "read", "short", call_id=number)
    assert folded(memory) == []


def test_pinned_recent_and_newest_reads_are_not_folded() -> None:
    memory = manager(recent_window=6, max_entry_ratio=0.01)
    memory.add_tool_call(
        "s", "wait", {"for": "abc " * 4_000}, call_id="open"
    )  # stays, whatever its size
    pinned, old = read(memory, pinned=True), read(memory)
    recent, newest = read(memory), read(memory)
    result = memory.compress("s", target_tokens=1_200)
    assert result.tokens_after > 1_200
    assert [entry_id for item in result.replacements for entry_id in item.ids] == [old.id]
    active = {entry.id for entry in memory.get_active_entries("s")}
    assert {pinned.id, recent.id, newest.id} <= active


def test_small_repeats_are_not_worth_it() -> None:
    memory = manager()
    for _ in range(5):
        read(memory, "ok: 3 passed")
    assert folded(memory) == []


def test_folding_stops_at_the_target() -> None:
    memory = manager(max_entries=None, recent_window=1)
    entries = [read(memory) for _ in range(6)]
    tokens = memory.get_stats("s").active_tokens
    result = memory.compress("s", target_tokens=tokens - 150)
    gone = [entry_id for item in result.replacements for entry_id in item.ids]
    assert gone == [entry.id for entry in entries[: len(gone)]]
    assert 0 < len(gone) < 5


def test_stub_of_an_earlier_stage_is_not_a_read() -> None:
    texts = dict.fromkeys((3, 6), "told apart by a step of one's own " * 10)

    def replaces(view: Any, goal: Any, make_entry: Any) -> Any:
        chosen = {entry.id: texts[entry.seq] for entry in view.shown("old") if entry.seq in texts}
        for entry_id, text in chosen.items():
            view = view.stub([entry_id], make_entry, text)
        return view

    memory = manager(strategy=(replaces, fold_repeats))
    for number in range(3):
        read(memory, f"{number} " + FILE)
    result = memory.compress("s", target_tokens=1)
    assert [item.method for item in result.replacements] == ["stub", "stub"]


def test_stubbed_newest_read_replaces_nothing() -> None:
    memory = manager()
    first, second = read(memory, FILE, "a"), read(memory, OTHER, "a")
    memory.update_config(
        strategy=(lambda view, goal, make_entry: view.stub([second.id], make_entry),)
    )
    memory.compress("s", target_tokens=1)
    memory.update_config(strategy=(fold_repeats,))
    assert folded(memory) == []
    assert first.id in {entry.id for entry in memory.get_active_entries("s")}


def test_stub_of_an_earlier_compression_is_not_a_read() -> None:
    memory = manager()
    reads = [read(memory, f"{number} " + FILE) for number in range(3)]
    ids = [entry.id for entry in reads]
    memory.update_config(
        strategy=(lambda view, goal, make_entry: view.stub(ids, make_entry, FILE[:400]),)
    )
    memory.compress("s", target_tokens=1)
    memory.update_config(strategy=(fold_repeats,))
    assert folded(memory) == []


def test_a_fold_is_undone_and_survives_an_export() -> None:
    memory = manager()
    read(memory)
    read(memory)
    before = memory.get_active_entries("s")
    folded(memory)
    restored = MemoryManager(counter="chars4")
    restored.import_session(memory.export_session("s"))
    assert restored.get_active_entries("s") == memory.get_active_entries("s")
    memory.undo_compression("s")
    assert memory.get_active_entries("s") == before


@pytest.mark.parametrize("strategy", ["default", (fold_repeats, "summarise")])
def test_the_default_folds_contexts_before_it_summarises(strategy: Any) -> None:
    memory = manager(strategy=strategy, max_entries=None, recent_window=1)
    for _ in range(3):
        memory.add_context("s", FILE, "src/a.py")
    memory.add_user_message("s", "go on")
    tokens = memory.get_stats("s").active_tokens
    result = memory.compress("s", target_tokens=tokens - 60)
    assert [item.method for item in result.replacements] == ["fold"]
