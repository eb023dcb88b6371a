"""The search index of a SQLite file: deletion, old and new versions of SQLite, foreign files."""

import sqlite3
from contextlib import closing
from pathlib import Path

import msgspec
import pytest

from memman import MemoryManager, StoreError
from memman.protocols import SearchRequest
from memman.search import index
from memman.stores import SQLiteStore
from memman.stores import drivers as libraries
from memman.stores.sqlite_readonly import SQLiteReader
from memman.testing.stores import added, erase_entries

DRIVERS = ("sqlite3", "apsw")
CANARY = "qanaria"


@pytest.fixture
def path(tmp_path):
    return tmp_path / "chat.db"


def stored_bytes(path: Path) -> bytes:
    return b"".join(each.read_bytes() for each in sorted(path.parent.glob(f"{path.name}*")))


def ids(store, *terms, session_id="s"):
    found = store.search(SearchRequest(terms=terms, session_id=session_id)).found
    return sorted(hit.record.id for hit in found)


def tables(path):
    with closing(sqlite3.connect(path)) as db, db:
        return {name for (name,) in db.execute("SELECT name FROM sqlite_master")}


def test_index_is_made_by_the_first_search(path):
    store = SQLiteStore(path)
    store.append("s", (added("a", "kappa"),))
    assert not tables(path) & set(index.TABLES)
    assert ids(store, "kappa") == ["a"]
    assert tables(path) >= set(index.TABLES)
    store.close()
    assert ids(SQLiteStore(path), "kappa") == ["a"]


def test_index_has_no_copy_of_a_text(path):
    store = SQLiteStore(path)
    # The first message's first line is in the list of sessions, too.
    store.append("s", (added("a", "hello"), added("b", f"the {CANARY} is yellow")))
    ids(store, "yellow")
    store.close()
    assert stored_bytes(path).count(f"{CANARY} is yellow".encode()) == 1


@pytest.mark.parametrize(
    ("driver", "size"),
    [
        ("sqlite3", 3_000),
        ("apsw", 0),
        pytest.param("sqlite3", 0, marks=pytest.mark.long),
        pytest.param("apsw", 3_000, marks=pytest.mark.long),
    ],
)
def test_deleted_words_are_in_no_page_of_the_index(path, driver, size):
    store = SQLiteStore(path, driver=driver)
    # Each has a word of its own that begins with other letters, since an index shares beginnings.
    words = [f"{chr(97 + n % 26)}{chr(97 + n // 26)}{CANARY}" for n in range(260)]
    for n, word in enumerate(words):
        store.append(f"s{n % 3}", (added(f"e{n}", f"{word} " + "filler " * (size // 7)),))
    assert ids(store, words[5], session_id="s2") == ["e5"]
    for n in range(0, 260, 2):
        erase_entries(store, f"s{n % 3}", f"e{n}")
        assert ids(store, words[n], session_id=f"s{n % 3}") == []
    store.delete("s1")
    left = {n for n in range(260) if n % 2 and n % 3 != 1}
    held = stored_bytes(path)
    assert {n for n, word in enumerate(words) if f'"{word} '.encode() in held} == left
    store.close()  # another library's connection would remove its -wal file
    with closing(sqlite3.connect(path)) as db, db:
        pages = b"".join(block for (block,) in db.execute("SELECT block FROM word_data"))
    assert pages.count(CANARY[:3].encode()) == len(left), (
        "words of deleted entries stay in the index"
    )
    store = SQLiteStore(path, driver=driver)
    for n in sorted(left)[:20]:
        assert ids(store, words[n], session_id=f"s{n % 3}") == [f"e{n}"]


@pytest.mark.parametrize("driver", DRIVERS)
def test_entry_deleted_before_it_was_indexed_leaves_no_trace(path, driver):
    store = SQLiteStore(path, driver=driver)
    store.append("s", (added("a", "kappa"),))
    assert ids(store, "kappa") == ["a"]
    store.append("s", (added("b", f"kappa {CANARY}"),))
    erase_entries(store, "s", "b")
    assert ids(store, "kappa") == ["a"]
    store.delete("s")
    assert CANARY.encode() not in stored_bytes(path)
    assert ids(store, "kappa") == []


@pytest.mark.parametrize("driver", DRIVERS)
def test_either_driver_deletes_from_the_index_of_the_other(path, driver):
    [maker] = {*DRIVERS} - {driver}
    made = SQLiteStore(path, driver=maker)
    made.append("s", (added("a", "kappa"), added("b", f"the {CANARY} is yellow")))
    assert ids(made, CANARY) == ["b"]
    made.close()
    store = SQLiteStore(path, driver=driver)
    erase_entries(store, "s", "b")
    store.close()
    assert CANARY.encode() not in stored_bytes(path)


def test_deletion_removes_an_index_of_another_version(path):
    store = SQLiteStore(path)
    store.append("s", (added("a", "kappa"), added("b", f"the {CANARY} is yellow")))
    assert ids(store, CANARY) == ["b"]
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("UPDATE indexed SET version = 0")
    erase_entries(store, "s", "b")
    assert CANARY.encode() not in stored_bytes(path)
    assert ids(store, "kappa") == ["a"]


@pytest.mark.parametrize(
    "change",
    [
        "DELETE FROM indexed",
        "INSERT INTO indexed SELECT * FROM indexed",
        "UPDATE indexed SET upto = 'x'",
        "UPDATE indexed SET version = x'00'",
    ],
)
def test_index_with_a_damaged_state_is_made_anew(path, change):
    store = SQLiteStore(path)
    store.append("s", (added("a", "kappa"), added("b", "kappa")))
    assert ids(store, "kappa") == ["a", "b"]
    with closing(sqlite3.connect(path)) as db, db:
        db.execute(change)
    erase_entries(store, "s", "b")
    assert ids(store, "kappa") == ["a"]
    with closing(sqlite3.connect(path)) as db:
        assert index.exists(db)


def test_older_sqlite_reads_an_index_until_a_newer_one_deletes(path, caplog):
    libraries.warn_once.cache_clear()
    if sqlite3.sqlite_version_info >= (3, 42):
        pytest.skip("the SQLite of this Python is new, too")
    newer = SQLiteStore(path, driver="apsw")
    newer.append("s", (added("a", "kappa"), added("b", "kappa"), added("c", "kappa")))
    assert ids(newer, "kappa") == ["a", "b", "c"]
    older = SQLiteStore(path)
    assert ids(older, "kappa") == ["a", "b", "c"]
    erase_entries(older, "s", "a")
    assert ids(newer, "kappa") == ["b", "c"]
    erase_entries(newer, "s", "b")
    assert caplog.messages == []
    older.append("s", (added("d", "kappa"),))
    assert ids(older, "kappa") == ["c", "d"], "it reads the entries themselves"
    assert "a search reads every entry" in caplog.text
    with pytest.raises(StoreError, match="nothing was deleted: a newer SQLite"):
        erase_entries(older, "s", "c")
    assert ids(SQLiteStore(path, driver="apsw"), "kappa") == ["c", "d"]


def connect_without_fts5(*given):
    db = libraries.library("sqlite3").connect(*given)
    db.set_authorizer(
        lambda action, *_: (
            sqlite3.SQLITE_DENY if action == sqlite3.SQLITE_CREATE_VTABLE else sqlite3.SQLITE_OK
        )
    )
    return db


def test_open_file_creates_no_fts5_table_before_a_search(path, monkeypatch):
    statements = []

    def traced(*given):
        db = libraries.library("sqlite3").connect(*given)
        db.set_trace_callback(statements.append)
        return db

    traced_library = msgspec.structs.replace(libraries.library("sqlite3"), connect=traced)
    monkeypatch.setattr("memman.stores.sqlite_file.library", lambda driver: traced_library)
    store = SQLiteStore(path)
    store.append("s", (added("a", "kappa"),))
    assert not any("fts5" in statement.lower() for statement in statements)
    assert ids(store, "kappa") == ["a"]
    assert any("fts5" in statement.lower() for statement in statements)


def test_scan_of_one_session_reads_all_its_pages_and_no_feed(path, monkeypatch):
    store = SQLiteStore(path)
    store.append("s", [added(f"e{n}", f"kappa n{n}n") for n in range(1_001)])
    store.append("t", (added("other", "n1000n"),))
    store.close()
    path.chmod(0o400)
    reader = SQLiteReader(path)
    monkeypatch.setattr(reader, "feed", None)
    assert ids(reader, "n1000n") == ["e1000"]
    assert ids(reader, "n1000n", session_id="unknown") == []


def test_search_without_fts5_reads_every_entry_and_warns_once(path, monkeypatch, caplog):
    libraries.warn_once.cache_clear()
    bare = msgspec.structs.replace(libraries.library("sqlite3"), connect=connect_without_fts5)
    monkeypatch.setattr("memman.stores.sqlite_file.library", lambda driver: bare)
    monkeypatch.setattr("memman.stores.memory.library", lambda driver: bare)
    for where in (str(path), None):
        memory = MemoryManager(where)
        memory.add_user_message("s", "the retry limit is 7", id="a")
        memory.add_user_message("t", "the retry limit is 8", id="b")
        assert [hit.entry.id for hit in memory.search("s", "retry limits")] == ["a"]
        assert len(memory.search(None, "retry")) == 2
    assert not tables(path) & set(index.TABLES)
    assert len(caplog.messages) == 1
    assert "a search reads every entry" in caplog.text


def test_file_without_write_permission_is_searched(path):
    store = SQLiteStore(path)
    store.append("s", (added("a", "kappa"),))
    store.close()
    for _ in range(2):
        path.chmod(0o400)
        before = path.read_bytes()
        reader = SQLiteReader(path)
        assert ids(reader, "kappa") == ["a"]
        reader.close()
        assert path.read_bytes() == before
        path.chmod(0o600)
        store = SQLiteStore(path)
        assert ids(store, "kappa") == ["a"]  # makes the index
        store.close()


@pytest.mark.parametrize(
    "change",
    [
        "CREATE VIRTUAL TABLE word2 USING fts5(text)",
        "CREATE TABLE word_docsize2 (id INTEGER)",
        "CREATE TABLE fragment_data (id INTEGER PRIMARY KEY, block BLOB)",
        "DROP TABLE word; CREATE VIRTUAL TABLE word USING fts5(session, text, content='record')",
        "DROP TABLE word; CREATE VIEW word AS SELECT id AS session, payload AS text FROM record",
        "DROP TABLE fragment; CREATE TABLE fragment (text)",
    ],
)
@pytest.mark.parametrize("indexed", [True, False])
def test_foreign_part_of_an_index_is_refused(path, change, indexed):
    store = SQLiteStore(path)
    store.append("s", (added("a", "kappa"),))
    if indexed:
        ids(store, "kappa")
    store.close()
    with closing(sqlite3.connect(path)) as db, db:
        try:
            db.executescript(change)
        except sqlite3.OperationalError:
            pytest.skip("SQLite itself refuses it")
    with pytest.raises(StoreError, match="which is not of memman"):
        SQLiteStore(path)


def test_index_of_another_version_is_made_anew(path, monkeypatch):
    store = SQLiteStore(path)
    store.append("s", (added("a", "kappa"),))
    assert ids(store, "kappa") == ["a"]
    monkeypatch.setattr(index, "VERSION", 2)
    monkeypatch.setattr(
        index, "SCHEMA", tuple(each.replace("(0, 1,", "(0, 2,") for each in index.SCHEMA)
    )
    store.append("s", (added("b", "kappa"),))
    assert ids(store, "kappa") == ["a", "b"]


def test_interrupted_indexing_is_continued(path, monkeypatch):
    store = SQLiteStore(path)
    monkeypatch.setattr("memman.stores.sqlite_tables._INDEXED_AT_ONCE", 10)
    store.append("s", [added(f"e{n}", f"kappa n{n}n") for n in range(35)])
    real, batches = index.add, []

    def failing(db, rows, last):
        batches.append(last)
        if len(batches) == 3:
            raise KeyboardInterrupt
        real(db, rows, last)

    monkeypatch.setattr(index, "add", failing)
    with pytest.raises(KeyboardInterrupt):
        ids(store, "kappa")
    assert len(ids(store, "kappa")) == 35
    assert batches == [10, 20, 30, 30, 35]
    assert ids(store, "n17n") == ["e17"]


def test_two_stores_index_one_file_together(path):
    one, two = SQLiteStore(path), SQLiteStore(path, driver="apsw")
    for n in range(20):
        (one, two)[n % 2].append("s", (added(f"e{n}", f"kappa n{n}n"),))
        assert ids((two, one)[n % 2], f"n{n}n") == [f"e{n}"]
    assert ids(one, "kappa") == ids(two, "kappa")
    assert len(ids(one, "kappa")) == 20


def test_redacted_text_is_never_indexed(path):
    def redact(entry):
        return msgspec.structs.replace(entry, content=entry.text.replace(CANARY, "***"))

    memory = MemoryManager(path, redact=redact)
    memory.add_user_message("s", f"my key is {CANARY}")
    assert memory.search("s", CANARY) == []
    assert len(memory.search("s", "key")) == 1
    memory.close()
    assert CANARY.encode() not in stored_bytes(path)


def test_fork_and_import_are_found(path):
    memory = MemoryManager(path)
    memory.add_user_message("s", "kappa", id="a")
    assert len(memory.search(None, "kappa")) == 1
    memory.fork_session("s", "fork")
    memory.import_session(MemoryManager(path).export_session("s"), on_conflict="new_session")
    assert len({hit.session_id for hit in memory.search(None, "kappa")}) == 3
