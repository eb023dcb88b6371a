"""Forks: copies of a session up to an entry."""

from __future__ import annotations

import io
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from memman import (
    EntryNotFound,
    InvalidInput,
    MemoryConfig,
    MemoryManager,
    SessionExists,
    SessionNotFound,
    StoreConflict,
    events,
)
from memman.records import Added, Deleted, ForkPoint, Opened, encode
from memman.stores import MemoryStore, SQLiteStore
from memman.testing import record_events
from tests.kinds import IN_FILES, InMemory

SETTINGS = MemoryConfig(max_tokens=4_000, max_entries=None, recent_window=2, target_ratio=0.5)


@pytest.fixture(params=[pytest.param(InMemory, id="memory"), *IN_FILES])
def store(request: Any) -> Iterator[Any]:
    kind = request.param()
    try:
        yield kind.open()
    finally:
        kind.remove()


def manager(store: Any = None, **given: Any) -> MemoryManager:
    return MemoryManager(store, **{"config": SETTINGS, "counter": "chars4", **given})


def texts(memory: MemoryManager, session_id: str) -> list[str]:
    return [entry.text for entry in memory.get_entries(session_id)]


def fill(memory: MemoryManager, number: int, size: int = 50) -> None:
    for n in range(number):
        memory.add_user_message("s", f"{n} " + "word " * size, id=f"e{n}", compress=False)


def test_fork_of_the_whole_log_equals_the_session(store: Any) -> None:
    memory = manager(store)
    fill(memory, 30)
    memory.update_config("s", max_tokens=3_000)
    memory.compress("s")
    memory.pin("s", "e29")
    memory.record_usage("s", {"prompt_tokens": 500, "completion_tokens": 5}, model="gpt-4o")
    before = memory.export_session("s")
    assert memory.fork_session("s", "t") == "t"
    assert memory.export_session("s") == before
    fork = memory.export_session("t")
    assert (fork.entries, fork.summaries, fork.totals) == (
        before.entries, before.summaries, before.totals,
    )  # fmt: skip
    assert fork.log[1:] == before.log[1:]
    assert memory.get_active_entries("t") == memory.get_active_entries("s")
    assert memory.build_context("t").messages == memory.build_context("s").messages
    opening = store.read("t", 0, 1)[0][1]
    original = store.read("s", 0, 1)[0][1]
    assert opening.forked_from == ForkPoint("s", len(before.log))
    assert (opening.nonce, opening.settings) == (original.nonce, original.settings)
    assert opening.id != original.id


def test_fork_is_the_session_as_it_was_at_each_entry(store: Any) -> None:
    memory = manager(store)
    seen: dict[str, Any] = {}
    for number in range(12):
        entry = memory.add_user_message("s", f"{number} " + "word " * 50)
        seen[entry.id] = memory.get_active_entries("s"), memory.get_stats("s").total_tokens
        if number in (4, 9):
            memory.compress("s")
        if number == 6:
            memory.undo_compression("s")
    for number, (upto, (window, tokens)) in enumerate(seen.items()):
        name = memory.fork_session("s", f"fork{number}", upto=upto)
        assert memory.get_active_entries(name) == window
        assert memory.get_stats(name).total_tokens == tokens


def test_both_branches_continue_on_their_own(store: Any) -> None:
    memory = manager(store)
    fill(memory, 3)
    memory.fork_session("s", "t", upto="e1")
    memory.add_user_message("t", "left", id="e2")
    memory.add_user_message("s", "right")
    memory.delete_entries("s", ["e0"])
    assert [text[:5] for text in texts(memory, "t")] == ["0 wor", "1 wor", "left"]
    assert [text[:5] for text in texts(memory, "s")] == ["1 wor", "2 wor", "right"]
    for n in range(20):
        memory.add_user_message("t", f"{n} " + "more " * 50)
    memory.compress("t")
    memory.undo_compression("t")
    memory.delete_session("s")
    assert len(texts(memory, "t")) == 23


def test_compression_in_a_fork_can_be_undone(store: Any) -> None:
    memory = manager(store)
    fill(memory, 30)
    memory.compress("s")
    memory.fork_session("s", "t")
    memory.undo_compression("t")
    assert len(memory.get_active_entries("t")) == 30
    assert len(memory.get_active_entries("s")) < 30


def test_fork_contains_the_whole_message_of_its_last_entry(store: Any) -> None:
    memory = manager(store)
    fill(memory, 2)
    call = {"type": "function", "function": {"name": "f", "arguments": "{}"}}
    message = {
        "role": "assistant",
        "content": "Both.",
        "tool_calls": [{"id": "c1", **call}, {"id": "c2", **call}],
    }
    text, first, second = memory.add_messages("s", [message])
    memory.add_tool_result("s", "f", "done", call_id="c1")
    for entry in (text, first, second):
        name = memory.fork_session("s", f"from {entry.id}", upto=entry.id)
        assert [each.id for each in memory.get_entries(name)][2:] == [text.id, first.id, second.id]


def test_message_goes_on_after_a_compression_in_it(store: Any) -> None:
    memory = manager(store)
    fill(memory, 30)
    first = memory.add_tool_call("s", "f", {}, message_id="m")
    memory.compress("s")
    second = memory.add_tool_call("s", "f", {}, message_id="m")
    memory.add_user_message("s", "later")
    memory.fork_session("s", "t", upto=first.id)
    assert memory.get_entries("t")[-1].id == second.id
    assert memory.get_summaries("t") == memory.get_summaries("s")


def test_entry_that_was_deleted_later_is_not_in_a_fork(store: Any) -> None:
    memory = manager(store)
    fill(memory, 20)
    memory.compress("s")
    memory.add_user_message("s", "", id="empty")
    memory.add_user_message("s", "the end", id="end")
    memory.delete_entries("s", ["e3"])
    memory.fork_session("s", "t", upto="end")
    entries = memory.get_entries("t")
    assert [entry.id for entry in entries] == [e.id for e in memory.get_entries("s")]
    assert memory.get_active_entries("t") == memory.get_active_entries("s")
    assert memory.get_stats("t").total_tokens == memory.get_stats("s").total_tokens
    log = [record for _, record in store.read("t")]
    assert isinstance(log[-1], Deleted)
    assert log[-1].ids == ("e3",)
    assert not any(b'"3 word' in encode(record) for record in log)


def test_fork_up_to_an_earlier_era(store: Any) -> None:
    memory = manager(store)
    fill(memory, 3)
    memory.clear_session("s")
    memory.add_user_message("s", "new era", id="e0")
    memory.fork_session("s", "old", upto="e2")
    assert [entry.id for entry in memory.get_entries("old")] == ["e0", "e1", "e2"]
    memory.fork_session("s", "new", upto="e0")
    assert texts(memory, "new") == ["new era"]


@pytest.mark.parametrize("upto", ["unknown", "e1"])
def test_unknown_or_deleted_entry_is_refused(store: Any, upto: str) -> None:
    memory = manager(store)
    fill(memory, 3)
    memory.delete_entries("s", ["e1"])
    with pytest.raises(EntryNotFound, match=upto):
        memory.fork_session("s", "t", upto=upto)
    assert [info.session_id for info in memory.list_sessions()] == ["s"]


def test_summary_is_no_place_to_fork_at(store: Any) -> None:
    memory = manager(store)
    fill(memory, 30)
    memory.compress("s")
    [summary] = memory.get_summaries("s")
    with pytest.raises(EntryNotFound):
        memory.fork_session("s", "t", upto=summary.id)


def test_existing_session_and_missing_session_are_refused(store: Any) -> None:
    memory = manager(store)
    fill(memory, 2)
    memory.add_user_message("t", "mine")
    for name in ("t", "s"):
        with pytest.raises(SessionExists, match="nothing was changed"):
            memory.fork_session("s", name)
    with pytest.raises(SessionNotFound):
        memory.fork_session("missing", "u")
    with pytest.raises(InvalidInput, match="new_id"):
        memory.fork_session("s", "")
    assert texts(memory, "t") == ["mine"]


def test_fork_survives_export_and_import(store: Any) -> None:
    memory, other = manager(store), manager()
    fill(memory, 30)
    memory.compress("s")
    memory.fork_session("s", "t", upto="e20")
    state = memory.export_session("t")
    other.import_session(state.to_json())
    assert other.export_session("t") == state
    archive = io.BytesIO()
    memory.export_archive("t", archive)
    archive.seek(0)
    other.delete_session("t")
    other.import_archive(archive)
    assert other.export_session("t") == state


def test_session_without_an_opening_can_be_forked() -> None:
    store = MemoryStore()
    memory = manager(store)
    fill(memory, 2)
    added = [record for _, record in store.read("s") if isinstance(record, Added)]
    store.append("bare", added)
    memory.fork_session("bare", "t")
    kinds = [type(record) for _, record in store.read("t")]
    assert kinds == [Opened, Added, Added]
    assert texts(memory, "t") == texts(memory, "bare")


def test_fork_emits_one_notice() -> None:
    memory = manager()
    fill(memory, 3)
    with record_events(memory) as emitted:
        memory.fork_session("s", "t", upto="e1")
    assert emitted == [events.SessionForked(session_id="t", forked_from="s", records=3)]


def test_fork_commits_once_and_holds_a_page(tmp_path: Any) -> None:
    class Counting(SQLiteStore):
        commits, largest = 0, 0

        def commit(self, *given: Any, **named: Any) -> Any:
            self.commits += 1
            return super().commit(*given, **named)

        def read(self, session_id: str, after: int = 0, limit: int = 1_000) -> Any:
            page = super().read(session_id, after, limit)
            self.largest = max(self.largest, len(page))
            return page

    store = Counting(tmp_path / "a.db")
    memory = manager(store)
    memory.add_messages("s", [{"role": "user", "content": str(n)} for n in range(1_000)])
    store.commits = store.largest = 0
    memory.fork_session("s", "t")
    assert store.commits == 1
    assert store.largest <= 200
    assert len(texts(memory, "t")) == 1_000


def test_fork_while_others_write_is_a_prefix(store: Any) -> None:
    memory = manager(store)
    fill(memory, 300, size=1)
    running = threading.Event()

    def write() -> None:
        number = 0
        while not running.is_set():
            number += 1
            memory.add_user_message("s", f"more {number}")

    writer = threading.Thread(target=write)
    writer.start()
    try:
        names = [memory.fork_session("s", f"fork{number}") for number in range(4)]
    finally:
        running.set()
        writer.join()
    whole = memory.get_entries("s")
    for name in names:
        entries = memory.get_entries(name)
        assert [entry.id for entry in entries] == [entry.id for entry in whole[: len(entries)]]
        assert len(entries) >= 300


def test_one_of_two_forks_to_one_id_succeeds(store: Any) -> None:
    memory = manager(store)
    fill(memory, 50, size=1)
    start = threading.Barrier(2)
    done: list[str] = []

    def fork(upto: str) -> None:
        start.wait()
        try:
            memory.fork_session("s", "t", upto=upto)
        except SessionExists:
            return
        done.append(upto)

    threads = [threading.Thread(target=fork, args=(upto,)) for upto in ("e10", "e40")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    [upto] = done
    assert memory.get_entries("t")[-1].id == upto


def test_deletion_during_a_fork_is_a_conflict() -> None:
    class Slow(MemoryStore):
        between: Any = None

        def read(self, session_id: str, after: int = 0, limit: int = 1_000) -> Any:
            page = super().read(session_id, after, limit)
            if self.between is not None and limit == 200:
                act, self.between = self.between, None
                act()
            return page

    store = Slow()
    memory = manager(store)
    fill(memory, 300, size=1)
    store.between = lambda: memory.delete_entries("s", ["e5"])
    with pytest.raises(StoreConflict, match="try again"):
        memory.fork_session("s", "t")
    store.between = lambda: memory.delete_session("s")
    with pytest.raises(StoreConflict, match="deleted"):
        memory.fork_session("s", "t")
    assert memory.list_sessions() == []
