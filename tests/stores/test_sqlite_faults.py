"""Faults of a file and of the processes that have it open: nothing is lost without an error.

Every fault is a real one. A typed error changes nothing, and calls succeed after the fault.
"""

from __future__ import annotations

import copy
import gc
import os
import pickle
import random
import shutil
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import apsw
import pytest

from memman import MemmanError, MemoryConfig, MemoryManager, StoreBusy, StoreError
from memman.plugins import shared_plugins
from memman.protocols import Store
from memman.stores import SQLiteStore, open_store
from memman.stores import sqlite_file as module
from memman.stores.drivers import Driver
from memman.testing import ScriptedSummarizer
from memman.testing.stores import added
from tests.patience import PATIENCE

pytestmark = pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
NOBODY = 65_534
COMPRESSING = MemoryConfig(max_tokens=400, min_entries_to_compress=2, recent_window=2)


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "chat.db")


@pytest.fixture
def store(path: str) -> Iterator[SQLiteStore]:
    opened = SQLiteStore(path, timeout=0.2)
    yield opened
    opened.close()


def ids_in(store: SQLiteStore) -> list[str]:
    return [record.id for _, record in store.read("s", 0, 10_000)]


def append(store: SQLiteStore, *names: str) -> None:
    for name in names:
        store.append("s", (added(name),))


def in_child(work: Callable[[], object]) -> int:
    """Fork a process that runs `work`; it exits with 0 if nothing was raised."""
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            work()
            status = 0
        finally:
            os._exit(status)
    return pid


def ended_well(pid: int) -> bool:
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


# ---------------------------------------------------------------- forks


def test_forked_child_continues_after_its_parent_closed_the_file(
    store: SQLiteStore, path: str
) -> None:
    append(store, "of the parent")
    go, closed = os.pipe()

    def child() -> None:
        append(store, "first")
        os.read(go, 1)
        append(store, *[f"later{number}" for number in range(20)])

    pid = in_child(child)
    while len(ids_in(store)) < 2:
        pass
    store.close()
    os.write(closed, b"x")
    assert ended_well(pid)
    again = SQLiteStore(path)
    assert ids_in(again) == ["of the parent", "first", *[f"later{number}" for number in range(20)]]
    again.close()


def test_forks_during_writes_lose_nothing_and_never_hang(path: str) -> None:
    store = SQLiteStore(path, timeout=PATIENCE)  # seven write at once
    stop = threading.Event()
    written: list[str] = []

    def write() -> None:
        while not stop.is_set():
            append(store, f"parent{len(written)}")
            written.append(f"parent{len(written)}")

    thread = threading.Thread(target=write)
    thread.start()
    try:
        pids = [
            in_child(lambda n=n: append(store, *[f"child{n}.{number}" for number in range(5)]))  # type: ignore[misc]
            for n in range(6)
        ]
        ended = [ended_well(pid) for pid in pids]
        assert all(ended)
    finally:
        stop.set()
        thread.join()
    found = ids_in(store)
    assert [name for name in found if name.startswith("parent")] == written
    for n in range(6):
        own = [f"child{n}.{number}" for number in range(5)]
        assert [name for name in found if name.startswith(f"child{n}.")] == own
    store.close()


def test_forked_child_opens_the_file_once_it_can(store: SQLiteStore, path: str) -> None:
    append(store, "a")

    def child() -> None:
        other = sqlite3.connect(path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreBusy):
            append(store, "b")
        other.execute("ROLLBACK")
        other.close()
        append(store, "b")

    assert ended_well(in_child(child))
    assert ids_in(store) == ["a", "b"]


def test_relative_path_means_the_file_that_was_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    store = SQLiteStore("chat.db")
    append(store, "a")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    assert ended_well(in_child(lambda: append(store, "of the child")))
    store._look_at = 0
    append(store, "b")
    assert ids_in(store) == ["a", "of the child", "b"]
    assert list(elsewhere.iterdir()) == []
    store.close()


def test_database_in_memory_is_copied_to_a_forked_child() -> None:
    store = SQLiteStore(":memory:")
    append(store, "a")

    def child() -> None:
        append(store, "b")
        assert ids_in(store) == ["a", "b"]

    assert ended_well(in_child(child))
    assert ids_in(store) == ["a"]
    store.close()


def test_fork_outside_python_keeps_the_parents_connection(
    store: SQLiteStore,
) -> None:
    append(store, "a")
    held = store._open
    store.in_child()
    assert store._open is None
    append(store, "b")
    assert store._open is not held
    assert ids_in(store) == ["a", "b"]


# ---------------------------------------------------------------- a file that disappears


@pytest.mark.parametrize("end", ["", "-wal", "-shm"])
def test_moved_file_is_detected_and_works_again_when_back(
    store: SQLiteStore, path: str, end: str
) -> None:
    append(store, "a")
    store._look_at = 0  # otherwise it is a second later
    Path(path + end).rename(path + ".away")
    for _ in range(2):
        with pytest.raises(StoreError, match=r"moved, deleted or replaced .* nothing was changed"):
            append(store, "b")
    Path(path + ".away").rename(path + end)
    append(store, "b")
    assert ids_in(store) == ["a", "b"]


def test_replaced_file_is_detected_and_neither_is_written(store: SQLiteStore, path: str) -> None:
    append(store, "a")
    with closing(SQLiteStore(path + ".other")) as other:
        append(other, "of the copy")
    Path(path + ".other").replace(path)
    before = Path(path).read_bytes()
    store._look_at = 0
    with pytest.raises(StoreError, match="replaced"):
        append(store, "b")
    assert Path(path).read_bytes() == before


def test_forked_child_does_not_recreate_a_missing_file(store: SQLiteStore, path: str) -> None:
    append(store, "a")
    Path(path).unlink()

    def child() -> None:
        with pytest.raises(StoreError, match="deleted"):
            append(store, "b")

    assert ended_well(in_child(child))
    assert not Path(path).exists()


def test_files_are_checked_once_a_second(
    store: SQLiteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[str] = []
    real = module._identity
    monkeypatch.setattr(module, "_identity", lambda path: looks.append(path) or real(path))
    store._look_at = 0
    append(store, *[f"e{number}" for number in range(20)])
    assert len(looks) <= 3 * 2


# ---------------------------------------------------------------- damage


def test_damaged_file_is_a_typed_error_from_every_method(tmp_path: Path) -> None:
    whole = tmp_path / "whole.db"
    with MemoryManager(whole, counter="chars4", config=COMPRESSING) as memory:
        for number in range(50):
            memory.add_user_message("s", f"message {number} " + "word " * 12)
    sound, rng = whole.read_bytes(), random.Random(5)
    messages = set()
    for number in range(40):
        damaged = bytearray(sound)
        for _ in range(rng.choice([1, 5, 50])):
            damaged[rng.randrange(len(damaged))] = rng.randrange(256)
        path = tmp_path / f"{number}.db"
        path.write_bytes(damaged[: rng.randrange(len(damaged))] if number % 8 == 0 else damaged)
        messages |= {type(error).__name__ for error in used(path)}
    assert "StoreError" in messages


def test_damaged_metadata_of_a_summary_is_a_typed_error(tmp_path: Path) -> None:
    path = tmp_path / "chat.db"
    summarizer = ScriptedSummarizer("They said words.")
    with MemoryManager(path, counter="chars4", config=COMPRESSING, summarizer=summarizer) as memory:
        for number in range(20):
            memory.add_user_message("s", f"message {number} " + "word " * 12)
        assert memory.get_summaries("s")
    with closing(sqlite3.connect(path)) as db, db:
        db.execute(
            """UPDATE record SET payload = CAST(replace(payload, '"start":"2', '"start":"x') AS BLOB)"""
        )
    with MemoryManager(path, counter="chars4", config=COMPRESSING, summarizer=summarizer) as memory:
        for number in range(20):
            memory.add_user_message("s", f"message {number} " + "word " * 12, compress=False)
        with pytest.raises(StoreError, match="metadata cannot be read") as caught:
            memory.compress("s")
    assert caught.value.__cause__ is None


def used(path: Path) -> Iterator[MemmanError]:
    """Return the errors of every kind of method on a file; other errors are raised."""
    try:
        memory = MemoryManager(path, counter="chars4", config=COMPRESSING)
    except StoreError as error:
        yield error
        return
    with memory:
        for verb in (
            "get_entries", "get_active_entries", "get_stats", "export_session", "explain",
            "compress", "undo_compression", "clear_session", "delete_session",
        ):  # fmt: skip
            try:
                getattr(memory, verb)("s")
                memory.add_user_message("s", "more")
            except MemmanError as error:
                yield error


def test_missing_record_is_an_error(store: SQLiteStore) -> None:
    append(store, "a", "b", "c")
    assert store._open is not None
    store._open.execute("DELETE FROM record WHERE seq = 2")
    for read in (
        lambda: store.read("s"),
        lambda: store.load("s"),
    ):
        with pytest.raises(StoreError, match="is damaged"):
            read()


def test_error_about_damage_quotes_no_payload(store: SQLiteStore) -> None:
    store.append("s", (added("a", "the canary sings"),))
    assert store._open is not None
    broken = b'{"kind":"added","entry":{"id":"canary \xff'
    store._open.execute("UPDATE record SET payload = ?", (broken,))
    with pytest.raises(StoreError, match="is damaged") as caught:
        store.read("s")
    assert "canary" not in repr(caught.value)
    assert caught.value.__cause__ is None


@pytest.mark.parametrize(
    ("old", "new", "field"),
    [
        (b'"kind":"added"', b'"kind":"of the canary"', "$.kind"),
        (b'"role":"user"', b'"role":5', "role"),
    ],
)
def test_error_names_record_and_field_of_a_newer_version(
    store: SQLiteStore, old: bytes, new: bytes, field: str
) -> None:
    append(store, "a", "b")
    assert store._open is not None
    [(payload,)] = store._open.execute("SELECT payload FROM record WHERE seq = 2")
    store._open.execute("UPDATE record SET payload = ? WHERE seq = 2", (payload.replace(old, new),))
    with pytest.raises(StoreError, match=r"record #2 cannot be read at \$") as caught:
        store.read("s")
    assert field in str(caught.value)
    assert "use the newest version" in str(caught.value)
    assert "canary" not in repr(caught.value)


# ---------------------------------------------------------------- the disk and its permissions


_LIMITED = """
import resource, sys
from memman import StoreFull
from memman.stores import SQLiteStore
from memman.testing.stores import added
store = SQLiteStore(sys.argv[1])
store.append("s", (added("first"),))
resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, resource.RLIM_INFINITY))
kept = 1
try:
    for number in range(1_000):
        store.append("s", (added(f"e{number}", "x" * 5_000),))
        kept += 1
except StoreFull as error:
    assert "ulimit -f" in str(error), error
else:
    raise AssertionError("the limit was not met")
assert store.state("s") == (kept, 0) and len(store.read("s")) == kept
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
store.append("s", (added("last"),))
print(kept + 1)
"""


def test_file_size_limit_loses_nothing(path: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _LIMITED, path], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    with closing(SQLiteStore(path)) as store:
        assert len(store.read("s")) == int(done.stdout)


def as_somebody_else(work: Callable[[], object]) -> bool:
    """Return whether `work` raises nothing for a user with only the rights of the files."""
    return ended_well(of_somebody_else(work))


def of_somebody_else(work: Callable[[], object]) -> int:
    """Run `work` as such a user."""

    def restricted() -> None:
        if os.geteuid() == 0:
            os.setgid(NOBODY)
            os.setuid(NOBODY)
        work()

    return in_child(restricted)


@pytest.fixture
def open_folder(tmp_path: Path) -> Iterator[Path]:
    """Return a folder that every user can reach."""
    folder = Path("/tmp") / f"memman-{os.getpid()}-{tmp_path.name}"  # noqa: S108 - pytest's own is private
    folder.mkdir()
    yield folder
    folder.chmod(0o755)
    shutil.rmtree(folder)


def test_store_refuses_a_read_only_file_unchanged(open_folder: Path) -> None:
    file = open_folder / "chat.db"
    with closing(SQLiteStore(file)) as store:
        append(store, "a")
    file.chmod(0o444)
    open_folder.chmod(0o777)
    before = file.read_bytes()

    def work() -> None:
        with pytest.raises(StoreError, match=r"may only be read.*work on a copy|cannot open"):
            append(SQLiteStore(file), "b")

    assert as_somebody_else(work)
    assert file.read_bytes() == before


def test_store_refuses_a_read_only_folder(open_folder: Path) -> None:
    file = open_folder / "chat.db"
    with closing(SQLiteStore(file)) as store:
        append(store, "a")
    file.chmod(0o666)
    open_folder.chmod(0o555)

    def work() -> None:
        for path in (file, open_folder / "new.db"):
            with pytest.raises(StoreError, match=r"cannot open|may only be read"):
                append(SQLiteStore(path), "b")

    assert as_somebody_else(work)
    assert [found.name for found in open_folder.iterdir()] == ["chat.db"]


def read_only(file: Path, driver: str = "sqlite3") -> Store:
    return open_store(f"sqlite:///{file}?driver={driver}", shared_plugins, create=False)


@pytest.mark.parametrize("driver", ["sqlite3", "apsw"])
@pytest.mark.parametrize(
    ("file_mode", "folder_mode"), [(0o444, 0o555), (0o444, 0o777), (0o666, 0o555)]
)
def test_reader_creates_no_files(
    open_folder: Path, file_mode: int, folder_mode: int, driver: str
) -> None:
    file = open_folder / "what? 100%.db"
    with closing(SQLiteStore(file)) as store:
        append(store, "a", "b")
    before = file.read_bytes()
    file.chmod(file_mode)
    open_folder.chmod(folder_mode)

    def work() -> None:
        # In a URL, a question mark of the path must be quoted.
        with closing(read_only(open_folder / "what%3F 100%25.db", driver)) as store:
            assert [record.id for _, record in store.read("s")] == ["a", "b"]
            with pytest.raises(StoreError, match="may only be read; nothing was changed"):
                store.append("s", (added("c"),))
            assert len(store.read("s")) == 2
            assert [found.name for found in open_folder.iterdir()] == [file.name]

    assert as_somebody_else(work)
    assert [found.name for found in open_folder.iterdir()] == [file.name]
    assert file.read_bytes() == before


def test_reader_sees_concurrent_writes(open_folder: Path) -> None:
    """Run a writer that opens, appends, truncates its log, closes, and opens again."""
    file = open_folder / "chat.db"
    with closing(SQLiteStore(file)) as store:
        append(store, "0")
    file.chmod(0o644)  # a new database has the rights of its owner alone
    (asks, asked), (says, said) = os.pipe(), os.pipe()

    def work() -> None:
        with closing(read_only(file)) as store:
            assert len(store.read("s")) == 1
            for wanted in range(2, 8):
                os.write(said, b"?")
                assert os.read(asks, 1) == b"!"
                assert len(store.read("s")) == wanted

    def write() -> None:
        open_now = None
        for number in range(6):
            os.read(says, 1)
            open_now = open_now or SQLiteStore(file)
            append(open_now, str(number + 1))
            if number in (1, 2, 4):
                open_now.close()
                open_now = None
            os.write(asked, b"!")

    reader = of_somebody_else(work)
    writer = threading.Thread(target=write, daemon=True)
    writer.start()
    assert ended_well(reader)
    writer.join(PATIENCE)
    for end in (asks, asked, says, said):
        os.close(end)


@pytest.mark.parametrize(
    ("end", "mode", "message"),
    [
        ("-wal", None, "cannot be read without .*-shm: let the owner open"),
        ("-wal", 0o600, "may not read .*chat.db-wal: ask its owner"),
        ("", 0o600, "may not read .*chat.db: ask its owner"),
    ],
)
def test_unreadable_file_error_names_permission(
    open_folder: Path, end: str, mode: int | None, message: str
) -> None:
    file = open_folder / "chat.db"
    with closing(SQLiteStore(open_folder / "live.db")) as store:
        append(store, "a")
        for part in ("", "-wal") if end else ("",):
            shutil.copy(open_folder / f"live.db{part}", f"{file}{part}")
            Path(f"{file}{part}").chmod(0o644)  # a new database has the rights of its owner alone
    if mode is not None:
        Path(f"{file}{end}").chmod(mode)
    open_folder.chmod(0o555)

    def work() -> None:
        with pytest.raises(StoreError, match=message):
            read_only(file)

    assert as_somebody_else(work)


def test_empty_file_that_may_only_be_read_is_refused(open_folder: Path) -> None:
    file = open_folder / "chat.db"
    with closing(sqlite3.connect(file)) as db:
        db.execute("PRAGMA journal_mode = WAL")
        db.commit()
    open_folder.chmod(0o555)

    def work() -> None:
        with pytest.raises(StoreError, match="has no tables yet, and this user may only read it"):
            read_only(file)

    assert as_somebody_else(work)


def test_folder_closed_while_the_file_is_open_is_an_error(
    open_folder: Path,
) -> None:
    if os.geteuid() == 0:
        os.chown(open_folder, NOBODY, NOBODY)

    def work() -> None:
        store = SQLiteStore(open_folder / "chat.db")
        append(store, "a")
        open_folder.chmod(0o000)
        store._look_at = 0
        with pytest.raises(StoreError, match="nothing was changed"):
            append(store, "b")
        open_folder.chmod(0o755)
        append(store, "b")
        assert ids_in(store) == ["a", "b"]

    assert as_somebody_else(work)


def test_file_without_permissions_is_an_error(open_folder: Path) -> None:
    file = open_folder / "chat.db"
    with closing(SQLiteStore(file)) as store:
        append(store, "a")
    file.chmod(0o000)
    open_folder.chmod(0o755)

    def work() -> None:
        with pytest.raises(StoreError, match="cannot open"):
            SQLiteStore(file)

    assert as_somebody_else(work)


@pytest.mark.parametrize("given", ["", "a\0b"])
def test_empty_path_and_nul_are_refused(given: str) -> None:
    with pytest.raises(StoreError, match="not a path"):
        MemoryManager(given)


@pytest.mark.parametrize(("durability", "waits"), [("full", True), ("fast", False)])
def test_full_durability_waits_for_the_disk(
    path: str, tmp_path: Path, durability: str, waits: bool
) -> None:
    strace = shutil.which("strace")
    if strace is None:
        pytest.skip("strace is not installed")
    code = (
        "import sys; from memman.stores import SQLiteStore; from memman.testing.stores import added\n"
        "store = SQLiteStore(sys.argv[1], durability=sys.argv[2])\n"
        "store.append('s', (added('first'),)); print('begun', flush=True)\n"
        "for n in range(20): store.append('s', (added(f'e{n}'),))\n"
        "print('done', flush=True)"
    )
    calls = tmp_path / "calls"
    done = subprocess.run(
        [strace, "-f", "-e", "trace=fsync,fdatasync,write", "-o", calls, sys.executable, "-c", code,
         path, durability],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if "ptrace" in done.stderr:
        pytest.skip("strace may not trace here")
    assert done.returncode == 0, done.stderr
    between = calls.read_text().partition("begun")[2].partition("done")[0]
    syncs = between.count("sync(")
    assert syncs >= 20 if waits else syncs == 0


# ---------------------------------------------------------------- the clock


@pytest.mark.parametrize("leap", [timedelta(hours=-1), timedelta(days=366)])
def test_leaping_clock_changes_no_order(path: str, leap: timedelta) -> None:
    now = [datetime(2026, 5, 1, tzinfo=UTC)]
    given: list[str] = []
    with MemoryManager(path, clock=lambda: now[0]) as memory:
        for number in range(6):
            if number == 3:
                now[0] += leap
            given.append(memory.add_user_message("s", f"n{number}").id)
    with MemoryManager(path) as memory:
        assert [entry.id for entry in memory.get_entries("s")] == given
        assert [entry.text for entry in memory.get_active_entries("s")] == [
            f"n{n}" for n in range(6)
        ]


# ---------------------------------------------------------------- the life of a store


def test_process_that_ends_without_close_loses_nothing(path: str) -> None:
    code = (
        "import sys; from memman import MemoryManager\n"
        "memory = MemoryManager(sys.argv[1]); memory.add_user_message('s', 'kept')\n"
    )
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code, path],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    with MemoryManager(path) as memory:
        assert [entry.text for entry in memory.get_entries("s")] == ["kept"]


@pytest.mark.parametrize("driver", ["sqlite3", "apsw"])
def test_dropped_manager_closes_its_file(path: str, driver: Driver) -> None:
    store = SQLiteStore(path, driver=driver)
    memory = MemoryManager(store)
    memory.add_user_message("s", "kept")
    connection = store._open
    assert connection is not None
    del store, memory
    gc.collect()
    with pytest.raises((sqlite3.ProgrammingError, apsw.ConnectionClosedError)):
        connection.execute("SELECT 1")
    with MemoryManager(path) as memory:
        assert [entry.text for entry in memory.get_entries("s")] == ["kept"]


def test_store_and_manager_cannot_be_pickled_or_copied(store: SQLiteStore) -> None:
    for one in (store, MemoryManager(store)):
        with pytest.raises(TypeError, match="pickle"):
            pickle.dumps(one)
        with pytest.raises(TypeError, match="pickle"):
            copy.deepcopy(one)


def test_every_method_of_a_closed_manager_raises(path: str) -> None:
    memory = MemoryManager(path)
    memory.add_user_message("s", "x", id="a")
    memory.close()
    memory.close()
    for verb, *args in (
        ("add_user_message", "s", "y"), ("get_entries", "s"), ("get_entry", "s", "a"),
        ("build_context", "s"), ("clear_session", "s"), ("delete_session", "s"),
        ("export_session", "s"), ("list_sessions",),
    ):  # fmt: skip
        with pytest.raises(StoreError, match="closed"):
            getattr(memory, verb)(*args)
