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


OLDER = [GOLDEN / f"version-{number}.db" for number in (1, 2, 3)]


@pytest.fixture(params=OLDER, ids=lambda path: path.stem)
def path(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return shutil.copy(request.param, tmp_path / "chat.db")


@pytest.fixture
def store(path: str) -> Iterator[SQLiteStore]:
    opened = SQLiteStore(path)
    yield opened
    opened.close()


def rows_of(path: str, query: str) -> list[Any]:
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute(query).fetchall()


_SESSIONS = "SELECT number, id, epoch, floor, places, folded, ledger FROM session"
_TOTALS = "SELECT id, head, entries, tokens FROM session ORDER BY number"
_TOTALS_IN_RECORDS = """
SELECT id, max(key) & 4294967295, record.entries, record.tokens
FROM session JOIN record ON key >> 32 = number GROUP BY number ORDER BY number
"""
_RECORDS = "SELECT key, payload FROM record"
_NAMES = "SELECT session, id, seq FROM name"  # what the table was called up to version 3


def test_there_is_a_golden_file_of_every_older_version() -> None:
    found = sorted(file.name for file in GOLDEN.glob("*.db"))
    assert found == [f"version-{number}.db" for number in range(1, len(VERSIONS))]
    for number, name in enumerate(found, 1):
        assert rows_of(str(GOLDEN / name), "PRAGMA user_version") == [(number,)]


def test_a_file_of_an_older_version_is_migrated_with_nothing_lost(path: str) -> None:
    before = [rows_of(path, query) for query in (_SESSIONS, _RECORDS, _NAMES)]
    assert [len(rows) > 30 for rows in before] == [False, True, True]
    [(version,)] = rows_of(path, "PRAGMA user_version")
    totals = rows_of(path, _TOTALS if version < 3 else _TOTALS_IN_RECORDS)
    with closing(SQLiteStore(path)) as store:
        assert [
            (each.session_id, each.head, each.entries, each.tokens) for each in store.sessions()
        ] == totals
    names = _NAMES.replace("FROM name", "FROM named")
    assert [rows_of(path, query) for query in (_SESSIONS, _RECORDS, names)] == before
    assert rows_of(path, "PRAGMA user_version") == [(len(VERSIONS),)]
    assert rows_of(path, "PRAGMA integrity_check") == [("ok",)]


def test_its_sessions_go_on(path: str) -> None:
    with MemoryManager(path, counter="chars4") as memory:
        assert memory.list_sessions() == ["trip", "other", "cleared"]
        assert len(memory.get_entries("trip")) == 27
        before = memory.get_stats("trip")
        memory.add_user_message("trip", "and on")
        assert memory.get_entries("trip")[-1].text == "and on"
        after = memory.get_stats("trip")
        assert (after.total_entries, after.total_tokens) == (28, before.total_tokens + 2)


def test_the_totals_of_a_migrated_session_go_on(path: str, store: SQLiteStore) -> None:
    [before] = [info for info in store.sessions() if info.session_id == "trip"]
    store.append("trip", (added("one", tokens=5),))
    store.append("trip", (added("two", tokens=6), added("three", tokens=7)))
    [after] = [info for info in store.sessions() if info.session_id == "trip"]
    assert (after.head, after.entries, after.tokens) == (
        before.head + 3, before.entries + 3, before.tokens + 18,
    )  # fmt: skip
    snapshot = store.load("trip")
    assert snapshot is not None
    assert (snapshot.totals.entries, snapshot.totals.tokens) == (after.entries, after.tokens)


def test_no_number_of_a_session_is_given_twice(path: str) -> None:
    """Or the feed's rows of one that was deleted would lead to the next one's records."""
    given = rows_of(path, "SELECT seq FROM sqlite_sequence WHERE name = 'session'")
    with closing(SQLiteStore(path)) as store:
        store.append("new", (added("a"),))
        assert [
            (item.session_id, item.seq) for item in store.feed() if item.session_id == "new"
        ] == [("new", 1)]
    assert rows_of(path, "SELECT number FROM session WHERE id = 'new'") == [(given[0][0] + 1,)]


def test_the_feed_of_a_migrated_file_has_all_that_was_there_and_what_comes(
    path: str, store: SQLiteStore
) -> None:
    there = store.feed()
    store.append("cleared", (added("later"),))
    store.append("trip", (added("latest"),))
    names = ("trip", "other", "cleared")
    logs = {name: [(name, *each) for each in store.read(name, 0, 10**6)] for name in names}
    fed = [(item.session_id, item.seq, item.record) for item in store.feed()]
    assert fed[:-2] == [(item.session_id, item.seq, item.record) for item in there]
    assert fed[-2:] == [logs["cleared"][-1], logs["trip"][-1]]
    for name, log in logs.items():
        assert [item for item in fed if item[0] == name] == log
    for item in there:
        after = [(each.session_id, each.seq) for each in store.feed(item.cursor)]
        assert after == [(name, seq) for name, seq, _ in fed[len(fed) - len(after) :]]
    assert [decode(payload).id for _, payload in rows_of(path, _RECORDS)[:3]] == [
        record.id for name, _, record in fed if name == "trip"
    ][:3]


def test_the_feed_of_version_2_keeps_its_cursors(tmp_path: Path) -> None:
    """Version 1 had no feed; its sessions stand in it one after another."""
    path = shutil.copy(OLDER[1], tmp_path / "chat.db")
    given = rows_of(path, "SELECT position, last FROM feed")
    with closing(SQLiteStore(path)) as store:
        for position, last in given:
            store.feed(f"{position}:{last}")


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
    [(records,)] = rows_of(path, "SELECT count(*) FROM record")
    assert len(fed) == len(set(fed)) == records
    with closing(SQLiteStore(path)) as store:
        assert len(store.find("other", [f"of {number}" for number in range(6)])) == 6


def test_an_older_memman_that_has_the_file_open_is_refused(path: str) -> None:
    """It would not see which names are yet to be written."""
    with closing(sqlite3.connect(path)) as older:
        older.execute("SELECT * FROM name").fetchone()
        SQLiteStore(path).close()
        with pytest.raises(sqlite3.OperationalError, match="no such table"):
            older.execute("INSERT INTO name VALUES (1, 'x', 9)")
