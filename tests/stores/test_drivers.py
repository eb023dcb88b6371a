"""A store has the same results with another SQLite library.

Two libraries in one process must not have the same file open, so these tests use several processes.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest

from memman import MemoryManager, StoreBusy, StoreError, StoreFull
from memman.stores import SQLiteStore
from memman.stores.drivers import library
from memman.testing.stores import added

pytestmark = pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "chat.db")


def in_child(work: Any) -> None:
    """Run `work` in a forked process, which must end."""
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            work()
            status = 0
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def test_file_is_readable_by_both_libraries(path: str) -> None:
    for number, driver in enumerate(("sqlite3", "apsw", "sqlite3", "apsw")):
        with MemoryManager(f"sqlite:///{path}?driver={driver}") as memory:
            memory.add_user_message("s", f"n{number} \0")
            assert len(memory.get_entries("s")) == number + 1


@pytest.mark.parametrize("first", ["sqlite3", "apsw"])
def test_processes_with_different_libraries_wait_for_each_other(path: str, first: Any) -> None:
    second: Any = "apsw" if first == "sqlite3" else "sqlite3"
    store = SQLiteStore(path, driver=first)
    store.append("s", (added("a"),))

    def others() -> None:
        other = SQLiteStore(path, driver=second, timeout=0.1)
        other.append("s", (added("b"),))
        go, come = os.pipe(), os.pipe()
        pid = os.fork()
        if pid == 0:
            holder = SQLiteStore(path, driver=first)
            holder._open.execute("BEGIN IMMEDIATE")  # type: ignore[union-attr]
            os.write(come[1], b"x")
            os.read(go[0], 1)
            os._exit(0)
        os.read(come[0], 1)
        with pytest.raises(StoreBusy):
            other.append("s", (added("c"),))
        os.write(go[1], b"x")
        os.waitpid(pid, 0)
        other.append("s", (added("c"),))

    in_child(others)
    store.append("s", (added("d"),))
    assert [record.id for _, record in store.read("s")] == ["a", "b", "c", "d"]
    store.close()


def test_errors_of_apsw_are_the_same_typed_errors(path: str) -> None:
    store = SQLiteStore(path, driver="apsw")
    store.append("s", (added("a"),))
    assert store._open is not None
    [(pages,)] = store._open.execute("PRAGMA page_count")
    store._open.execute(f"PRAGMA max_page_count = {pages}")
    with pytest.raises(StoreFull):
        store.append("s", (added("big", "x" * 300_000),))
    store._open.execute("PRAGMA max_page_count = 1000000")
    store._open.execute("PRAGMA query_only = ON")
    with pytest.raises(StoreError, match="may only be read"):
        store.append("s", (added("b"),))
    store.close()
    with pytest.raises(StoreError, match="is closed"):
        store.state("s")
    Path(path).write_text("dear diary, " * 200)
    with pytest.raises(StoreError, match="is not a memman database"):
        SQLiteStore(path, driver="apsw")
    with pytest.raises(StoreError, match="cannot open"):
        SQLiteStore("no/such/folder/chat.db", driver="apsw")


def test_missing_extra_is_named(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    library.cache_clear()
    monkeypatch.setitem(sys.modules, "apsw", None)
    with pytest.raises(StoreError, match=r"pip install '\.\[apsw\]'"):
        SQLiteStore(path, driver="apsw")
    assert not Path(path).exists()


def test_library_of_the_extra_has_no_wal_fault() -> None:
    assert not library("apsw").has_wal_fault
