"""The store in a SQLite file: every law of the protocol, and the faults of files."""

from __future__ import annotations

import math
import os
import random
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from memman import (
    InvalidInput,
    MemoryConfig,
    MemoryManager,
    PluginNotFound,
    StoreBusy,
    StoreError,
    StoreFull,
)
from memman.plugins import shared_plugins
from memman.protocols import StoredItem
from memman.records import Added
from memman.stores import SQLiteStore, no_store, open_store, without_password
from memman.testing import StoreConformance
from memman.testing.stores import added, erase_entries, summary_of
from tests.patience import PATIENCE

CANARY = "canary-7f3a"


class TestSQLiteStore(StoreConformance):
    driver: Any = "sqlite3"

    @pytest.fixture(autouse=True)
    def _folder(self, tmp_path: Path) -> Iterator[None]:
        self.folder = tmp_path
        self.stores: list[SQLiteStore] = []
        yield
        for store in self.stores:
            store.close()

    def make_store(self) -> SQLiteStore:
        return self.reopen(f"{self.folder}/{len(self.stores)}.db")

    def reopen(self, store: Any) -> SQLiteStore:
        opened = SQLiteStore(getattr(store, "path", store), driver=self.driver)
        self.stores.append(opened)
        return opened


class TestSQLiteStoreByApsw(TestSQLiteStore):
    driver = "apsw"


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "chat.db")


@pytest.fixture
def store(path: str) -> Iterator[SQLiteStore]:
    opened = SQLiteStore(path, timeout=0.2)
    yield opened
    opened.close()


def ids_in(store: SQLiteStore) -> list[str]:
    return [record.id for _, record in store.read("s")]


# ---------------------------------------------------------------- a file among processes


def test_acknowledged_entries_survive_the_process(path: str) -> None:
    code = (
        "import os, sys; from memman import MemoryManager\n"
        "memory = MemoryManager(sys.argv[1])\n"
        "memory.add_user_message('s', 'remember 4711')\n"
        "os._exit(9)"
    )
    done = subprocess.run([sys.executable, "-c", code, path], check=False)
    assert done.returncode == 9
    with MemoryManager(path) as memory:
        assert [entry.text for entry in memory.get_entries("s")] == ["remember 4711"]


def test_second_manager_sees_additions_and_clears(path: str) -> None:
    with MemoryManager(path) as first, MemoryManager(path) as second:
        first.add_user_message("s", "one")
        second.add_assistant_message("s", "two")
        assert [entry.text for entry in first.get_active_entries("s")] == ["one", "two"]
        second.clear_session("s")
        assert first.get_active_entries("s") == []
        first.add_user_message("s", "three")
        assert [entry.text for entry in second.get_entries("s")] == ["three"]


def test_session_continues_after_a_restart(path: str) -> None:
    config = MemoryConfig(max_tokens=400, min_entries_to_compress=2, recent_window=2)
    with MemoryManager(path, counter="chars4", config=config) as memory:
        for number in range(40):
            memory.add_user_message("s", f"message {number} " + "word " * 12)
        shown = memory.get_context_for_llm("s")
        stats = memory.get_stats("s")
    with MemoryManager(path, counter="chars4", config=config) as memory:
        assert memory.get_context_for_llm("s") == shown
        assert memory.get_stats("s") == stats
        before = len(memory.get_active_entries("s"))
        memory.undo_compression("s")
        assert len(memory.get_active_entries("s")) > before
        assert len(memory.get_entries("s")) == 40


def test_forked_child_and_parent_both_write(store: SQLiteStore) -> None:
    store.append("s", (added("a"),))
    pid = os.fork()
    if pid == 0:
        try:
            store.append("s", (added("of the child"),))
        finally:
            os._exit(0)
    os.waitpid(pid, 0)
    store.append("s", (added("b"),))
    assert ids_in(store) == ["a", "of the child", "b"]


# ---------------------------------------------------------------- faults


def test_writer_waits_until_the_timeout(store: SQLiteStore, path: str) -> None:
    store.append("s", (added("a"),))
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    began = time.monotonic()
    with pytest.raises(StoreBusy, match=r"held .*chat.db for 0.2 s; nothing was changed"):
        store.append("s", (added("b"),))
    assert time.monotonic() - began < PATIENCE
    assert ids_in(store) == ["a"], "reading does not wait for a writer"
    other.execute("ROLLBACK")
    assert store.append("s", (added("b"),)).seqs == (2,)
    other.close()


def test_full_disk_loses_nothing(store: SQLiteStore) -> None:
    store.append("s", (added("a"),))
    connection = store._open
    assert connection is not None
    [(pages,)] = connection.execute("PRAGMA page_count")
    connection.execute(f"PRAGMA max_page_count = {pages + 4}")
    kept = 1

    def fill() -> None:
        nonlocal kept
        for number in range(1_000):
            store.append("s", (added(f"big{number}", "x" * 3_000),))
            kept += 1

    with pytest.raises(StoreFull, match="nothing was changed"):
        fill()
    assert len(store.read("s")) == kept
    assert store.state("s") == (kept, 0)
    connection.execute("PRAGMA max_page_count = 1000000")
    assert store.append("s", (added("after"),)).seqs == (kept + 1,)


def test_write_to_read_only_file_is_refused(store: SQLiteStore) -> None:
    store.append("s", (added("a"),))
    assert store._open is not None
    store._open.execute("PRAGMA query_only = ON")
    with pytest.raises(StoreError, match="may only be read; nothing was changed"):
        store.append("s", (added("b"),))
    assert ids_in(store) == ["a"]


def test_interrupted_write_changes_nothing(
    store: SQLiteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.append("s", (added("a"),))

    def interrupted(*_given: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("memman.stores.sqlite_tables.append", interrupted)
        with pytest.raises(KeyboardInterrupt):
            store.append("s", (added("b"), added("c")))
    assert ids_in(store) == ["a"]
    assert store.append("s", (added("b"),)).seqs == (2,)


def test_append_writes_two_rows_behind_a_window_of_any_length(store: SQLiteStore) -> None:
    store.append("s", tuple(added(f"e{number}") for number in range(2_000)))
    window = [StoredItem(seq, -1, seq) for seq in range(1, 2_001)]
    store.commit("s", 0, (summary_of("k", []),), window, 2_001)
    assert store._open is not None
    before = store._open.total_changes
    store.append("s", (added("later"),))
    assert store._open.total_changes - before == 2  # the record, and the session's head and totals


def test_records_of_every_writer_are_found_by_id(store: SQLiteStore, path: str) -> None:
    rng = random.Random(3)
    writers = [store, SQLiteStore(path), SQLiteStore(path)]
    logs: dict[str, list[str]] = {"a": [], "b": []}
    for number in range(600):
        log = logs[session := rng.choice("aab")]
        names = [f"e{number}.{each}" for each in range(rng.choice((1, 1, 1, 1, 1, 1, 4)))]
        if log and rng.random() < 0.2:
            names = [*rng.sample(log[-20:], 1), *names[1:]]
        if rng.random() < 0.02:
            writers[2].close()
            writers[2] = SQLiteStore(path)
        writer = rng.choice(writers)
        if log and rng.random() < 0.05:
            head, epoch = writer.state(session) or (0, 0)
            writer.commit(session, epoch, (summary_of(f"k{number}", []),), (), head)
            log.append(f"k{number}")
        records = tuple(map(added, names))
        fresh = [name for name in names if name not in log]
        log += fresh
        appended = writer.append(session, records)
        assert appended.seqs == tuple(log.index(name) + 1 for name in names)
        assert (appended.head, appended.fresh) == (len(log), len(fresh))
        assert (appended.head, appended.epoch) == rng.choice(writers).state(session)
    for session, log in logs.items():
        assert len(log) > 150
        found = writers[1].find(session, log)
        assert [(seq, record.id) for seq, record in found] == list(enumerate(log, 1))
    for writer in writers[1:]:
        writer.close()


def test_feed_has_the_order_of_the_commits(store: SQLiteStore, path: str) -> None:
    rng = random.Random(7)
    other = SQLiteStore(path)
    expected: list[tuple[str, int, str]] = []
    deleted = 0
    for number in range(400):
        session = rng.choice("abc")
        names = [f"e{number}.{each}" for each in range(rng.choice((1, 1, 1, 3)))]
        writer = rng.choice((store, other))
        seqs = writer.append(session, tuple(map(added, names))).seqs
        expected += [(session, seq, name) for seq, name in zip(seqs, names, strict=True)]
        if rng.random() < 0.03:
            writer.delete(session)
            expected = [item for item in expected if item[0] != session]
            deleted += 1
    assert deleted > 5
    fed = list(store.feed())
    assert [(item.session_id, item.seq, item.record.id) for item in fed] == expected
    for place in range(0, len(fed), 7):
        assert list(other.feed(fed[place].cursor)) == fed[place + 1 :]
    other.close()


def test_cursor_of_a_deleted_session_remains_valid(
    store: SQLiteStore,
) -> None:
    store.append("s", (added("a"), added("b")))
    cursor = store.feed()[0].cursor
    store.delete("s")
    assert list(store.feed(cursor)) == []
    store.append("t", (added("c"),))
    assert [item.record.id for item in store.feed(cursor)] == ["c"]
    with pytest.raises(InvalidInput, match="has never been at"):
        store.feed("4")


def test_concurrent_openings_all_succeed(path: str) -> None:
    stores: list[SQLiteStore] = []
    threads = [threading.Thread(target=lambda: stores.append(SQLiteStore(path))) for _ in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(stores) == 12
    for number, store in enumerate(stores):
        store.append("s", (added(f"e{number}"),))
    assert len(stores[0].read("s")) == 12
    for store in stores:
        store.close()


def test_closed_store_raises(store: SQLiteStore) -> None:
    store.close()
    store.close()
    with pytest.raises(StoreError, match="is closed"):
        store.state("s")


def test_lease_taken_while_waiting_is_respected(store: SQLiteStore, path: str) -> None:
    """The lease starts by the clock when the file is free, not when the call was made."""
    store.append("s", (added("a"),))
    waiting = SQLiteStore(path, timeout=10)
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    answers: list[bool] = []
    thread = threading.Thread(target=lambda: answers.append(waiting.lease("s", "bob", 60)))
    thread.start()
    time.sleep(0.1)
    now = time.time()
    other.execute(
        "UPDATE session SET lease_holder = 'ada', lease_from = ?, lease_until = ?", (now, now + 60)
    )
    other.execute("COMMIT")
    thread.join(PATIENCE)
    assert answers == [False]
    waiting.close()
    other.close()


def test_clock_set_back_ends_a_lease(store: SQLiteStore, monkeypatch: pytest.MonkeyPatch) -> None:
    store.append("s", (added("a"),))
    assert store.lease("s", "ada", 60)
    before = time.time() - 3_600
    monkeypatch.setattr("memman.stores.sqlite.time.time", lambda: before)
    assert store.lease("s", "bob", 60), "or nobody would summarise for an hour"


# ---------------------------------------------------------------- invalid stores


def test_database_of_another_program_is_refused_unchanged(path: str) -> None:
    other = sqlite3.connect(path)
    other.execute("CREATE TABLE notes (text)")
    other.commit()
    other.close()
    before = Path(path).read_bytes()
    with pytest.raises(StoreError, match="is not a memman database"):
        MemoryManager(path)
    assert Path(path).read_bytes() == before


def test_file_of_another_format_is_refused_unchanged(path: str) -> None:
    Path(path).write_text("dear diary, " * 200)
    with pytest.raises(StoreError, match="is not a memman database"):
        MemoryManager(path)
    assert Path(path).read_text() == "dear diary, " * 200


def test_file_of_a_newer_version_is_refused(store: SQLiteStore, path: str) -> None:
    assert store._open is not None
    store._open.execute("PRAGMA user_version = 99")
    with pytest.raises(StoreError, match=r"version 99, .* install a newer memman-core"):
        SQLiteStore(path)


@pytest.mark.parametrize(
    ("where", "message"),
    [("no/such/folder/chat.db", "cannot open .*chat.db"), (".", "is a folder: name a file in it")],
)
def test_error_names_a_path_that_cannot_be_opened(tmp_path: Path, where: str, message: str) -> None:
    with pytest.raises(StoreError, match=message):
        MemoryManager(tmp_path / where)


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("sqlite:///", "names no file"),
        ("sqlite://chat.db", "names no file"),
        ("sqlite:chat.db", "names no file: write sqlite:///PATH"),
        ("sqlite:///chat.db?journal=off", "'journal' is not an option"),
        ("sqlite:///chat.db?timeout=soon", "timeout='soon' is not an option"),
        ("sqlite:///chat.db?durability=maybe", "durability='maybe'"),
        ("sqlite:///chat.db?driver=other", "driver='other'"),
    ],
)
def test_error_names_the_fault_of_a_url(url: str, message: str) -> None:
    with pytest.raises(StoreError, match=message):
        MemoryManager(url)


@pytest.mark.parametrize("value", [["fast"], None, True, 7, b"fast", {}, "slow"], ids=repr)
@pytest.mark.parametrize("name", ["durability", "driver"])
def test_error_names_the_argument_of_a_wrong_choice(path: str, name: str, value: Any) -> None:
    with pytest.raises(StoreError, match=rf"^{name}=.* is neither"):
        SQLiteStore(path, **{name: value})
    assert not Path(path).exists()


@pytest.mark.parametrize(
    "value", ["10", None, True, [1], -1, math.nan, math.inf, 10**400, 1 + 0j], ids=repr
)
def test_error_names_the_argument_of_wrong_seconds(path: str, value: Any) -> None:
    with pytest.raises(StoreError, match=r"^timeout=.* must be a number of seconds, from 0 up to"):
        SQLiteStore(path, timeout=value)
    assert not Path(path).exists()


@pytest.mark.parametrize("value", [7, None, True, b"chat.db", ["chat.db"], "", "a\0b"], ids=repr)
def test_value_that_is_not_a_path_is_refused(value: Any) -> None:
    with pytest.raises(StoreError, match="is not a path of a file"):
        SQLiteStore(value)


def test_error_names_the_plugin_of_a_url_and_no_password() -> None:
    message = no_store("postgresql://ada:secret@db/chat")
    assert message.endswith("pip install './plugins/memman-postgres'")
    assert "secret" not in message


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://ada:secret@db/chat", "postgresql://ada:***@db/chat"),
        ("postgresql://ada:se@cret@db/chat", "postgresql://ada:***@db/chat"),
        (
            "postgresql://ada@db/chat?password=secret&x=1",
            "postgresql://ada@db/chat?password=***&x=1",
        ),
        ("postgresql://db/chat", "postgresql://db/chat"),
        ("chat.db", "chat.db"),
    ],
)
def test_url_is_shown_without_its_password(url: str, shown: str) -> None:
    assert without_password(url) == shown


def test_open_without_create_makes_no_file(tmp_path: Path) -> None:
    for given in (str(tmp_path / "none.db"), f"sqlite:///{tmp_path}/none.db"):
        with pytest.raises(StoreError, match="there is no database at"):
            open_store(given, shared_plugins, create=False)
    assert not list(tmp_path.iterdir())


def test_error_of_an_unknown_url_has_no_password() -> None:
    with pytest.raises(PluginNotFound, match="scheme 'mystore'") as caught:
        MemoryManager("mystore://ada:secret@db/chat")
    assert "secret" not in str(caught.value)


def test_url_sets_durability_and_timeout(path: str) -> None:
    with MemoryManager(f"sqlite:///{path}?durability=full&timeout=3") as memory:
        memory.add_user_message("s", "x")
    with pytest.raises(InvalidInput):
        MemoryManager(path, config="not settings")  # type: ignore[arg-type]


@pytest.mark.parametrize(("durability", "level"), [("fast", 1), ("full", 2)])
def test_durability_sets_sqlites_synchronous_mode(path: str, durability: Any, level: int) -> None:
    store = SQLiteStore(path, durability=durability)
    assert store._open is not None
    assert store._open.execute("PRAGMA synchronous").fetchone() == (level,)
    assert store._open.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    store.close()


# ---------------------------------------------------------------- erasure


def files_of(path: str) -> bytes:
    return b"".join(
        Path(path + end).read_bytes() for end in ("", "-wal") if Path(path + end).exists()
    )


@pytest.mark.parametrize("size", [0, 900, 9_000])
def test_erased_content_is_in_no_file(store: SQLiteStore, path: str, size: int) -> None:
    for number in range(300):
        store.append(f"s{number % 7}", (added(f"e{number}", f"{CANARY}-{number} " + "x" * size),))
    for number in range(300):
        if number % 3 == 0:
            erase_entries(store, f"s{number % 7}", f"e{number}")
    held = files_of(path)
    left = [n for n in range(300) if f"{CANARY}-{n} ".encode() in held]
    assert left == [n for n in range(300) if n % 3]


def test_deleted_session_is_in_no_file(store: SQLiteStore, path: str) -> None:
    for number in range(200):
        store.append(f"s{number % 2}", (added(f"e{number}", f"{CANARY}-{number} " + "x" * 700),))
    store.delete("s1")
    held = files_of(path)
    left = [n for n in range(200) if f"{CANARY}-{n} ".encode() in held]
    assert left == [n for n in range(200) if n % 2 == 0]


def test_deletion_by_a_manager_reaches_the_file(path: str) -> None:
    with MemoryManager(path) as memory:
        memory.add_user_message("s", f"my key is {CANARY}", id="a")
        memory.add_user_message("s", "and this stays")
        memory.delete_entries("s", ["a"])
        assert CANARY.encode() not in files_of(path)
        assert b"this stays" in files_of(path)


def test_unreadable_record_is_never_written(tmp_path: Path) -> None:
    store = SQLiteStore(tmp_path / "chat.db")
    sound = added("sound")
    broken = msgspec.structs.replace(sound.entry, id="broken", call_id=5)
    for records in ((Added(broken),), (sound, Added(broken))):
        with pytest.raises(InvalidInput, match="nothing was written"):
            store.append("s", records)
    assert store.read("s", 0, 10) == []
    assert store.append("s", (sound,)).fresh == 1


def test_append_takes_the_same_steps_in_a_long_session(tmp_path: Path) -> None:
    store = SQLiteStore(tmp_path / "a.db")
    steps = []

    def measured(entry_id: str) -> int:
        steps.clear()
        store.append("s", (added(entry_id),))
        return len(steps)

    store._open.set_progress_handler(lambda: steps.append(None), 1)
    store.append("s", tuple(added(f"a{n}") for n in range(10)))
    early = measured("early")
    store.append("s", tuple(added(f"b{n}") for n in range(2_000)))
    late = measured("late")
    store.close()
    assert 0 < late <= early + 20
