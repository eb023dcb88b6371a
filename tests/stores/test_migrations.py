"""Files of older versions: taken as they are, by one process at a time, with nothing lost."""

from __future__ import annotations

import multiprocessing
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from memman import MemoryManager
from memman.records import decode
from memman.stores import SQLiteStore
from memman.stores.schema import VERSIONS
from memman.testing.stores import added

GOLDEN = Path(__file__).with_name("golden")


@pytest.fixture
def path(tmp_path: Path) -> str:
    return shutil.copy(GOLDEN / "version-1.db", tmp_path / "chat.db")


@pytest.fixture
def store(path: str) -> Iterator[SQLiteStore]:
    opened = SQLiteStore(path)
    yield opened
    opened.close()


def rows_of(path: str, query: str) -> list[Any]:
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute(query).fetchall()


_SESSIONS = (
    "SELECT number, id, head, epoch, entries, tokens, floor, places, folded, ledger FROM session"
)
_RECORDS = "SELECT key, payload FROM record"
_NAMES = "SELECT session, id, seq FROM name"


def test_there_is_a_golden_file_of_every_older_version() -> None:
    found = sorted(file.name for file in GOLDEN.glob("*.db"))
    assert found == [f"version-{number}.db" for number in range(1, len(VERSIONS))]
    for number, name in enumerate(found, 1):
        assert rows_of(str(GOLDEN / name), "PRAGMA user_version") == [(number,)]


def test_a_file_of_version_1_is_migrated_with_nothing_lost(path: str) -> None:
    before = [rows_of(path, query) for query in (_SESSIONS, _RECORDS, _NAMES)]
    assert [len(rows) for rows in before] == [3, 38, 39]
    SQLiteStore(path).close()
    assert [rows_of(path, query) for query in (_SESSIONS, _RECORDS, _NAMES)] == before
    assert rows_of(path, "PRAGMA user_version") == [(len(VERSIONS),)]
    assert rows_of(path, "PRAGMA integrity_check") == [("ok",)]


def test_its_sessions_go_on(path: str) -> None:
    with MemoryManager(path, counter="chars4") as memory:
        assert memory.list_sessions() == ["trip", "other", "cleared"]
        assert [entry.text for entry in memory.get_entries("other")] == ["hello", "hi"]
        assert len(memory.get_entries("trip")) == 27
        memory.add_user_message("trip", "and on")
        assert memory.get_entries("trip")[-1].text == "and on"


def test_the_feed_of_a_migrated_file_has_all_that_was_there_and_what_comes(
    path: str, store: SQLiteStore
) -> None:
    store.append("cleared", (added("later"),))
    store.append("trip", (added("latest"),))
    fed = [(item.session_id, item.seq, item.record) for item in store.feed()]
    logs = {
        name: [(name, seq, record) for seq, record in store.read(name, 0, 10**6)]
        for name in ("trip", "other", "cleared")
    }
    assert fed == [
        *logs["trip"][:-1], *logs["other"], *logs["cleared"][:-1],
        logs["cleared"][-1], logs["trip"][-1],
    ]  # fmt: skip
    assert [decode(payload).id for _, payload in rows_of(path, _RECORDS)[:3]] == [
        record.id for _, _, record in fed[:3]
    ]


def _open(path: str, number: int) -> None:
    store = SQLiteStore(path)
    store.append("other", (added(f"of {number}"),))
    store.close()


def test_processes_that_open_an_old_file_at_once_migrate_it_once(path: str) -> None:
    fork = multiprocessing.get_context("fork")
    processes = [fork.Process(target=_open, args=(path, number)) for number in range(6)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(30)
    assert [process.exitcode for process in processes] == [0] * 6
    store = SQLiteStore(path)
    fed = [(item.session_id, item.seq) for item in store.feed()]
    store.close()
    assert len(fed) == len(set(fed)) == 38 + 6
    assert [seq for name, seq in fed if name == "other"] == list(range(1, 11))
