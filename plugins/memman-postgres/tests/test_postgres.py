"""The store in PostgreSQL: every law of the protocol in both doors, and what only a server can do to it."""

from __future__ import annotations

import asyncio
import importlib.util
import multiprocessing
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from memman_postgres import AsyncPostgresStore, PostgresStore
from memman_postgres.database import schema as schema_script

from memman import (
    AsyncMemoryManager,
    MemoryConfig,
    MemoryManager,
    StoreError,
)
from memman.testing import StoreConformance
from memman.testing.stores import added

_found = importlib.util.spec_from_file_location("servers", Path(__file__).with_name("servers.py"))
assert _found is not None
assert _found.loader is not None
servers = importlib.util.module_from_spec(_found)
_found.loader.exec_module(servers)

pytestmark = pytest.mark.service


class _Kit(StoreConformance):
    @pytest.fixture(autouse=True)
    def _schemas(self) -> Iterator[None]:
        self.stores: list[Any] = []
        self.schemas: list[str] = []
        yield
        for store in self.stores:
            store.close()
        for schema in self.schemas:
            servers.drop(schema)

    def make_store(self) -> Any:
        self.schemas.append(servers.new_schema())
        return self.reopen(None)

    def reopen(self, _store: Any) -> Any:
        self.stores.append(self.opened(servers.server_url(schema=self.schemas[-1])))
        return self.stores[-1]

    def opened(self, url: str) -> Any:
        raise NotImplementedError


class TestPostgresStore(_Kit):
    def opened(self, url: str) -> PostgresStore:
        return PostgresStore(url)


class Facade:
    """An async store whose every call is run to its end, in a loop of its own on another thread."""

    def __init__(self, url: str) -> None:
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self.thread.start()
        self.store = AsyncPostgresStore(url)

    def __getattr__(self, name: str) -> Any:
        method = getattr(self.store, name)
        return lambda *given, **named: asyncio.run_coroutine_threadsafe(
            method(*given, **named), self.loop
        ).result(30)

    def close(self) -> None:
        asyncio.run_coroutine_threadsafe(self.store.close(), self.loop).result(30)
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join()
        self.loop.close()


class TestAsyncPostgresStore(_Kit):
    def opened(self, url: str) -> Facade:
        return Facade(url)


@pytest.fixture
def schema() -> Iterator[str]:
    name = servers.new_schema()
    yield name
    servers.drop(name)


@pytest.fixture
def url(schema: str) -> str:
    return str(servers.server_url(schema=schema))


@pytest.fixture
def store(url: str) -> Iterator[PostgresStore]:
    opened = PostgresStore(url)
    yield opened
    opened.close()


@pytest.fixture
def wire() -> Iterator[Any]:
    opened = servers.Wire()
    yield opened
    opened.close()


def ids_in(store: Any) -> list[str]:
    return [record.id for _, record in store.read("s")]


# ---------------------------------------------------------------- the manager


def test_a_url_is_all_that_a_user_writes(url: str) -> None:
    config = MemoryConfig(max_tokens=400, min_entries_to_compress=2, recent_window=2)
    with MemoryManager(url, counter="chars4", config=config) as memory:
        for number in range(40):
            memory.add_user_message("s", f"message {number} NUL \x00 " + "word " * 12)
        shown = memory.get_context_for_llm("s")
    with MemoryManager(url, counter="chars4", config=config) as memory:
        assert memory.get_context_for_llm("s") == shown
        memory.undo_compression("s")
        assert len(memory.get_entries("s")) == 40
        memory.delete_session("s")
        assert memory.list_sessions() == []


def test_the_async_door_uses_either_store(url: str) -> None:
    async def talk() -> list[str]:
        async with AsyncMemoryManager(AsyncPostgresStore(url)) as memory:
            await memory.add_user_message("s", "one")
        async with AsyncMemoryManager(url) as memory:
            await memory.add_assistant_message("s", "two")
            return [entry.text for entry in await memory.get_entries("s")]

    assert asyncio.run(talk()) == ["one", "two"]


def test_two_managers_share_a_session(url: str) -> None:
    with MemoryManager(url) as first, MemoryManager(url) as second:
        first.add_user_message("s", "one")
        second.add_assistant_message("s", "two")
        assert [entry.text for entry in first.get_active_entries("s")] == ["one", "two"]
        second.clear_session("s")
        assert first.get_active_entries("s") == []


# ---------------------------------------------------------------- faults


@pytest.mark.parametrize("word", ["UPDATE memman_session SET head", "COMMIT"])
def test_a_connection_that_breaks_after_the_write_was_sent_adds_nothing_twice(
    schema: str, wire: Any, word: str
) -> None:
    store = PostgresStore(servers.server_url(wire.port, schema))
    store.append("s", (added("a"),))
    wire.cut_after(word)
    batch = (added("b"), added("c")) if word == "COMMIT" else (added("b"),)
    store.append("s", batch)
    assert wire.cuts == 1
    assert ids_in(store) == ["a", *[record.id for record in batch]]
    store.close()


def test_the_async_store_mends_a_broken_connection_too(schema: str, wire: Any) -> None:
    async def talk() -> list[str]:
        store = AsyncPostgresStore(servers.server_url(wire.port, schema))
        await store.append("s", (added("a"),))
        wire.cut_after("UPDATE memman_session SET head")
        await store.append("s", (added("b"),))
        found = [record.id for _, record in await store.read("s")]
        await store.close()
        return found

    assert asyncio.run(talk()) == ["a", "b"]
    assert wire.cuts == 1


def test_work_goes_on_when_the_server_ends_every_connection(store: PostgresStore) -> None:
    store.append("s", (added("first"),))
    stop = threading.Event()

    def end_them() -> None:
        with psycopg.connect(servers.server_url(), autocommit=True) as connection:
            while not stop.is_set():
                connection.execute(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                    " WHERE datname = 'test' AND pid <> pg_backend_pid()"
                    " AND query LIKE '%memman_%'"
                )
                time.sleep(0.3)

    ender = threading.Thread(target=end_them)
    ender.start()
    try:
        for number in range(300):
            assert store.append("s", (added(f"e{number}"),)).seqs == (number + 2,)
            time.sleep(0.003)
    finally:
        stop.set()
        ender.join()
    assert ids_in(store) == ["first", *[f"e{number}" for number in range(300)]]


def _writer(url: str, name: str, notes: str) -> None:
    store = PostgresStore(url, pool_size=1)
    with Path(notes).open("a", buffering=1) as told:
        for number in range(100_000):
            store.append("s", (added(f"{name}-{number}", "text " * 50),))
            told.write(f"{name}-{number}\n")


_WRITER = """
import importlib.util, sys
found = importlib.util.spec_from_file_location("t", sys.argv[1])
module = importlib.util.module_from_spec(found)
found.loader.exec_module(module)
module._writer(*sys.argv[2:])
"""


def test_killed_writers_lose_and_double_nothing(url: str, tmp_path: Path) -> None:
    noted: list[str] = []
    for round_number in range(2):
        names = [f"{round_number}.{writer}" for writer in range(3)]
        notes = [tmp_path / name for name in names]
        writers = [
            subprocess.Popen([sys.executable, "-c", _WRITER, __file__, url, name, str(note)])
            for name, note in zip(names, notes, strict=True)
        ]
        deadline = time.monotonic() + 30
        while not all(note.exists() and note.stat().st_size > 50 for note in notes):
            assert time.monotonic() < deadline, "the writers did not begin"
            time.sleep(0.01)
        for writer in writers:
            writer.kill()
            writer.wait()
        noted += [line for note in notes for line in note.read_text().split("\n")[:-1]]
    store = PostgresStore(url)
    log = store.read("s", 0, 10**6)
    ids = [record.id for _, record in log]
    assert [seq for seq, _ in log] == list(range(1, len(log) + 1))
    assert len(set(ids)) == len(ids)
    assert set(noted) <= set(ids)
    store.close()


def test_a_forked_child_connects_for_itself(store: PostgresStore) -> None:
    store.append("s", (added("a"),))
    child = multiprocessing.get_context("fork").Process(
        target=lambda: store.append("s", (added("of the child"),))
    )
    child.start()
    child.join(20)
    assert child.exitcode == 0
    store.append("s", (added("b"),))
    assert ids_in(store) == ["a", "of the child", "b"]


def test_the_examples_of_the_readme_run(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    page = Path(__file__).parents[1].joinpath("README.md").read_text(encoding="utf-8")
    examples = re.findall(r"^```python\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
    assert len(examples) == 2
    names: dict[str, Any] = {}
    for example in examples:
        assert servers.server_url() in example
        exec(compile(example.replace(servers.server_url(), url), "README.md", "exec"), names)  # noqa: S102
    shown = capsys.readouterr().out
    assert "User: Plan three days in Lisbon.\nAssistant: Day 1: Alfama." in shown


# ---------------------------------------------------------------- what cannot be opened


def test_a_server_that_is_away_is_told_with_its_place_and_without_the_password() -> None:
    with pytest.raises(StoreError, match=r"database 'chat' at 127\.0\.0\.1") as caught:
        MemoryManager("postgresql://ada:secret@127.0.0.1:1/chat")
    assert "secret" not in str(caught.value)


def test_a_database_that_is_not_there_is_named() -> None:
    with pytest.raises(StoreError, match="no_such_database"):
        PostgresStore(f"postgresql://postgres@{servers.HOST}/no_such_database")


def test_a_user_that_is_not_there_is_told(url: str) -> None:
    with pytest.raises(StoreError, match="nobody_here"):
        PostgresStore(f"postgresql://nobody_here:secret@{servers.HOST}/test")


def test_a_url_of_nonsense_is_a_typed_error() -> None:
    with pytest.raises(StoreError, match="cannot be read") as caught:
        PostgresStore("postgresql://ada:secret@h/d?no_such_option=1")
    assert "secret" not in str(caught.value)


def test_tables_of_a_newer_version_are_refused(store: PostgresStore, url: str, schema: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("UPDATE memman_store SET version = 99")
    with pytest.raises(StoreError, match="version 99 and this plugin knows up to 2"):
        PostgresStore(url)


def test_without_create_the_tables_must_be_there(url: str) -> None:
    with pytest.raises(StoreError, match="memman_store"):
        PostgresStore(url, create=False)
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(schema_script().encode())
    store = PostgresStore(url, create=False)
    store.append("s", (added("a"),))
    assert ids_in(store) == ["a"]
    store.close()


def test_a_closed_store_says_so(store: PostgresStore) -> None:
    store.close()
    with pytest.raises(StoreError, match="is closed"):
        store.state("s")


@pytest.mark.parametrize("settings", [{"durability": "maybe"}, {"pool_size": 0}])
def test_a_setting_out_of_range_is_named(url: str, settings: Any) -> None:
    with pytest.raises(StoreError, match=next(iter(settings))):
        PostgresStore(url, **settings)


def test_fast_durability_does_not_wait_for_the_disk(url: str) -> None:
    for durability, expected in (("fast", "off"), ("full", "on")):
        store = PostgresStore(url, durability=durability)
        with store._connected().connection() as connection:
            assert connection.execute("SHOW synchronous_commit").fetchone() == (expected,)
        store.append("s", (added(durability),))
        store.close()
