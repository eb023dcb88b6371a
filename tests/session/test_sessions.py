"""The list of sessions, and the metadata of a session."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from memman import InvalidInput, MemoryConfig, MemoryManager, SessionInfo, events
from memman.stores import SQLiteStore
from memman.testing import FakeClock, record_events
from tests.kinds import IN_FILES, InMemory

DAY = timedelta(days=1)


@pytest.fixture(params=[pytest.param(InMemory, id="memory"), *IN_FILES])
def store(request: Any) -> Iterator[Any]:
    kind = request.param()
    try:
        yield kind.open()
    finally:
        kind.remove()


def manager(store: Any = None, **given: Any) -> MemoryManager:
    config = MemoryConfig(max_tokens=4_000, max_entries=None, recent_window=2, target_ratio=0.5)
    return MemoryManager(store, **{"config": config, "counter": "chars4", **given})


def only(memory: MemoryManager, prefix: str = "") -> SessionInfo:
    [info] = memory.list_sessions(prefix=prefix)
    return info


def test_list_shows_times_totals_and_first_line(store: Any) -> None:
    clock = FakeClock(tick=DAY)
    began = clock.now
    memory = manager(store, clock=clock)
    memory.add_system_message("s", "Be brief.")
    memory.add_user_message("s", "\n  Plan three days in Lisbon. \nIt may rain.")
    memory.add_user_message("s", "And then?")
    entries = memory.get_entries("s")
    assert memory.list_sessions() == [
        SessionInfo(
            "s",
            entries[0].timestamp,
            entries[-1].timestamp,
            3,
            sum(entry.token_count.tokens for entry in entries),
            {},
            "Plan three days in Lisbon.",
        )
    ]
    assert began <= only(memory).created_at < only(memory).last_active_at


def test_compression_leaves_totals_and_first_line(store: Any) -> None:
    memory = manager(store)
    for number in range(30):
        memory.add_user_message("s", f"{number} " + "word " * 50, compress=False)
    before = only(memory)
    memory.compress("s")
    memory.undo_compression("s")
    assert only(memory) == before
    assert (before.entries, before.first_line) == (30, ("0 " + "word " * 50)[:200])


def test_prefix_selects_sessions(store: Any) -> None:
    memory = manager(store)
    for name in ("thread-1", "thread-2", "other", "thread-1~fork"):
        memory.add_user_message(name, "x")
    assert [info.session_id for info in memory.list_sessions(prefix="thread-1")] == [
        "thread-1",
        "thread-1~fork",
    ]
    assert len(memory.list_sessions()) == 4
    assert memory.list_sessions(prefix="none") == []
    with pytest.raises(InvalidInput, match="prefix"):
        memory.list_sessions(prefix=None)  # type: ignore[arg-type] # not a text


def test_deleted_first_message_is_not_in_the_list(store: Any) -> None:
    memory = manager(store)
    first = memory.add_user_message("s", "my secret")
    memory.add_user_message("s", "second")
    memory.delete_entries("s", [first.id])
    assert only(memory).first_line == ""
    memory.add_user_message("s", "third")
    assert only(memory).first_line == "third"
    memory.clear_session("s")
    assert (only(memory).first_line, only(memory).entries) == ("", 0)


def test_nothing_of_a_deleted_first_line_stays_in_the_file(tmp_path: Any) -> None:
    path = tmp_path / "a.db"
    memory = manager(SQLiteStore(path))
    first = memory.add_user_message("s", "my secret")
    for number in range(30):
        memory.add_user_message("s", f"{number} " + "word " * 50, compress=False)
    memory.compress("s")  # writes the totals, too
    assert b"my secret" in path.read_bytes() + (tmp_path / "a.db-wal").read_bytes()
    memory.delete_entries("s", [first.id])
    assert not any(b"my secret" in file.read_bytes() for file in tmp_path.iterdir())


def test_first_line_is_of_the_redacted_message(store: Any) -> None:
    def redact(entry: Any) -> Any:
        return msgspec.structs.replace(entry, content=entry.text.replace("secret", "***"))

    memory = manager(store, redact=redact)
    memory.add_user_message("s", "my secret")
    assert only(memory).first_line == "my ***"


def test_metadata_is_replaced_and_kept(store: Any) -> None:
    memory = manager(store)
    memory.update_session("s", metadata={"user": "ada", "tags": ["a"]})
    assert (only(memory).metadata, only(memory).entries) == ({"user": "ada", "tags": ["a"]}, 0)
    only(memory).metadata["tags"].append("b")
    assert only(memory).metadata == {"user": "ada", "tags": ["a"]}
    memory.add_user_message("s", "x")
    memory.update_session("s", metadata={"user": "bob"})
    memory.clear_session("s")
    assert only(manager(store)).metadata == {"user": "bob"}
    memory.update_session("s", metadata={})
    assert only(memory).metadata == {}


def test_same_metadata_again_adds_no_record(store: Any) -> None:
    memory = manager(store)
    with record_events(memory) as emitted:
        for _ in range(2):
            memory.update_session("s", metadata={"n": 1})
    assert [type(event) for event in emitted] == [events.SessionOpened, events.SessionDescribed]
    assert emitted[1] == events.SessionDescribed(session_id="s", metadata={"n": 1})
    assert store.state("s") == (2, store.state("s")[1])


@pytest.mark.parametrize("metadata", [None, "text", {"n": float("nan")}, {1: 2}, {"o": object()}])
def test_metadata_that_cannot_be_stored_is_refused(metadata: Any) -> None:
    memory = manager()
    with pytest.raises(InvalidInput, match="metadata"):
        memory.update_session("s", metadata=metadata)
    assert memory.list_sessions() == []


def test_export_import_and_fork_keep_the_list(store: Any) -> None:
    clock = FakeClock(tick=DAY)
    memory, other = manager(store, clock=clock), manager()
    memory.add_user_message("s", "Plan it")
    memory.update_session("s", metadata={"user": "ada"})
    info = only(memory)
    other.import_session(memory.export_session("s").to_json())
    assert only(other) == info
    memory.fork_session("s", "t")
    fork = only(memory, "t")
    assert (fork.metadata, fork.first_line, fork.entries) == ({"user": "ada"}, "Plan it", 1)
    assert fork.created_at == fork.last_active_at > info.created_at
