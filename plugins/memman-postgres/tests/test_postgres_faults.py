"""Faults of a server: lost answers, restarts, refused connections. No entry is lost or doubled."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

import postgres_servers as servers
import psycopg
import pytest
from memman_postgres import AsyncPostgresStore, PostgresStore
from postgres_kits import EmptiedKit, ids_in

from memman import MemoryConfig, MemoryManager, StoreError
from memman.errors import StoreBusy, StoreFull
from memman.log import History
from memman.testing.stores import added
from tests.patience import PATIENCE

pytestmark = pytest.mark.service

CONFIG = MemoryConfig(
    max_tokens=400, min_entries_to_compress=2, recent_window=2, auto_compress=False
)
SECRET = "correct horse battery staple"  # noqa: S105 - of this test, and must never be printed
_IN_URL = SECRET.replace(" ", "%20")


@pytest.fixture(scope="module")
def database(server: servers.Server) -> str:
    """A database of the own server with the tables in it."""
    server.sql("CREATE DATABASE chat")
    PostgresStore(server.url(database="chat")).close()
    return server.url(database="chat")


# ---------------------------------------------------------------- answers that are lost


def _appended(memory: MemoryManager) -> None:
    memory.add_user_message("s", "one more")


def _named(memory: MemoryManager) -> None:
    memory.add_user_message("s", "one more", id="new")


def _batch(memory: MemoryManager) -> None:
    said = [{"role": "user", "content": f"of a batch {n}"} for n in range(3)]
    memory.add_messages("s", said, format="openai-chat")


def _compressed(memory: MemoryManager) -> None:
    assert memory.compress("s").compression_id is not None


def _cleared(memory: MemoryManager) -> None:
    memory.clear_session("s")


def _erased(memory: MemoryManager) -> None:
    memory.delete_entries("s", [memory.get_entries("s")[0].id])


def _imported(memory: MemoryManager) -> None:
    memory.import_session(memory.export_session("s"), on_conflict="new_session")


def _deleted(memory: MemoryManager) -> None:
    memory.delete_session("s")


OPERATIONS = (_appended, _named, _batch, _compressed, _cleared, _erased, _imported, _deleted)


@pytest.mark.parametrize("operation", OPERATIONS)
def test_lost_answer_is_retried_without_duplicates(
    schema: str, operation: Callable[[MemoryManager], None]
) -> None:
    expected = None
    wire = servers.Wire()
    store = PostgresStore(servers.server_url(wire.port, schema))
    memory = MemoryManager(store, counter="chars4", config=CONFIG, summarizer=_short)
    try:
        for cut_after in count(0):  # 0 cuts nothing and gives the expected outcome
            _begin_again(memory)
            wire.cuts = 0
            if cut_after:
                wire.cut_after_statements(cut_after)
            operation(memory)
            wire.mend()
            outcome = _outcome(memory, store)
            expected = expected or outcome
            assert outcome == expected, f"with the answer to statement {cut_after} lost"
            if cut_after and not wire.cuts:
                break
    finally:
        memory.close()
        wire.close()
    assert cut_after > 1


def _short(_prompt: str) -> str:
    return "what was said, in short"


def _begin_again(memory: MemoryManager) -> None:
    for session_id in [info.session_id for info in memory.list_sessions()]:
        memory.delete_session(session_id)
    said = [{"role": "user", "content": f"message {n} " + "word " * 24} for n in range(8)]
    memory.add_messages("s", said, format="openai-chat")


def _outcome(memory: MemoryManager, store: PostgresStore) -> Any:
    """Return each session's kinds of records and window; check for gaps and compare with the fold."""
    outcome = []
    for session_id in [info.session_id for info in memory.list_sessions()]:
        log = store.read(session_id)
        assert [seq for seq, _ in log] == list(range(1, len(log) + 1))
        shown = [entry.text for entry in memory.get_active_entries(session_id)]
        assert [item.entry.text for item in History.of(log).items] == shown
        outcome.append(([type(record).__name__ for _, record in log], shown))
    return outcome


def test_async_store_replaces_a_broken_connection(schema: str, wire: servers.Wire) -> None:
    async def talk() -> list[str]:
        store = AsyncPostgresStore(servers.server_url(wire.port, schema))
        await store.append("s", (added("a"),))
        for cut_after in (1, 4):
            wire.cut_after_statements(cut_after)
            await store.append("s", (added(f"b{cut_after}"), added(f"c{cut_after}")))
        wire.cut_after("COMMIT")
        assert await store.delete("s")
        await store.append("s", (added("d"),))
        found = [record.id for _, record in await store.read("s")]
        await store.close()
        return found

    assert asyncio.run(talk()) == ["d"]
    assert wire.cuts == 3


# ---------------------------------------------------------------- servers that never answer


def test_silent_server_at_connect_is_an_error_in_time(
    wire: servers.Wire,
) -> None:
    wire.fall_silent()
    began = time.monotonic()
    with pytest.raises(StoreError, match=r"cannot connect to .*timeout"):
        PostgresStore(servers.server_url(wire.port), timeout=1)
    assert time.monotonic() - began < PATIENCE


@pytest.mark.parametrize("operation", [_appended, _batch, _compressed, _deleted])
def test_silent_server_at_a_statement_is_an_error_in_time(
    schema: str, wire: servers.Wire, operation: Callable[[MemoryManager], None]
) -> None:
    url = servers.server_url(wire.port, schema)
    store = PostgresStore(url, timeout=0.5, answer_timeout=0.3)
    memory = MemoryManager(store, counter="chars4", config=CONFIG, summarizer=_short)
    _begin_again(memory)
    wire.fall_silent()
    began = time.monotonic()
    with pytest.raises(StoreError, match=r"did not answer within 0\.3 s.*may be made again"):
        operation(memory)
    assert time.monotonic() - began < PATIENCE
    memory.close()
    with MemoryManager(servers.server_url(schema=schema), counter="chars4", config=CONFIG) as again:
        found = _outcome(again, again._core.shared.store.port)
    assert all(len(kinds) >= 8 for kinds, _ in found), "a part of what was there is gone"


def test_async_store_gives_up_a_silent_server(schema: str, wire: servers.Wire) -> None:
    async def talk() -> list[str]:
        url = servers.server_url(wire.port, schema)
        store = AsyncPostgresStore(url, timeout=0.5, answer_timeout=0.3)
        await store.append("s", (added("a"),))
        wire.fall_silent()
        with pytest.raises(StoreError, match=r"did not answer within 0\.3 s"):
            await store.append("s", (added("b"),))
        await store.close()
        again = AsyncPostgresStore(servers.server_url(schema=schema))
        await again.append("s", (added("b"),))
        found = [record.id for _, record in await again.read("s")]
        await again.close()
        return found

    assert asyncio.run(talk()) == ["a", "b"]


@pytest.mark.parametrize("store", [PostgresStore, AsyncPostgresStore])
@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"url": 7}, "7 is not a URL: write postgresql://"),
        ({"url": b"postgresql://db/chat"}, "is not a URL: write postgresql://"),
        ({"durability": ["full"]}, r"durability=\['full'\] is neither"),
        ({"pool_size": "8"}, "pool_size='8' must be a whole number, at least 1"),
        ({"pool_size": True}, "pool_size=True must be a whole number"),
        ({"pool_size": 0}, "pool_size=0 must be a whole number, at least 1"),
        ({"timeout": "10"}, "timeout='10' must be a number of seconds, from 0"),
        ({"timeout": float("inf")}, "timeout=inf must be a number of seconds"),
        ({"answer_timeout": None}, "answer_timeout=None must be a number of seconds, above 0"),
        ({"answer_timeout": float("nan")}, "answer_timeout=nan must be a number of seconds"),
        ({"create": "no"}, "create='no' must be True or False"),
    ],
    ids=repr,
)
def test_wrong_argument_is_refused_before_connecting(
    store: Any, given: dict[str, Any], told: str
) -> None:
    with pytest.raises(StoreError, match=f"^{told}" if "is not a URL" not in told else told):
        store(**({"url": "postgresql://nobody.invalid/chat"} | given))


def test_answer_timeout_of_zero_is_refused(url: str) -> None:
    with pytest.raises(StoreError, match="answer_timeout=0 must be a number of seconds, above 0"):
        PostgresStore(url, answer_timeout=0)


# ---------------------------------------------------------------- servers that go away


@pytest.mark.parametrize("mode", ["fast", "immediate"])
def test_work_continues_through_a_restart_of_the_server(
    server: servers.Server, database: str, mode: str
) -> None:
    restarted = threading.Event()
    failed: list[BaseException] = []
    store = PostgresStore(database, timeout=30)

    def write(writer: int) -> int:
        for number in count():
            store.append(mode, (added(f"{writer}-{number}"),))
            if restarted.is_set() and number > 20:
                return number + 1
        return 0

    def guarded(writer: int) -> None:
        try:
            written[writer] = write(writer)
        except BaseException as error:
            failed.append(error)

    written: dict[int, int] = {}
    writers = [threading.Thread(target=guarded, args=(writer,)) for writer in range(4)]
    for thread in writers:
        thread.start()
    try:
        time.sleep(0.3)
        server.stop(mode)
        server.start()
    finally:
        restarted.set()
        for thread in writers:
            thread.join()
    assert not failed
    log = ids_in(store, mode)
    store.close()
    for writer in range(4):
        mine = [name for name in log if name.startswith(f"{writer}-")]
        assert mine == [f"{writer}-{number}" for number in range(written[writer])]


def test_absent_server_is_an_error_in_time(server: servers.Server, database: str) -> None:
    store = PostgresStore(database, timeout=1)
    store.append("away", (added("a"),))
    server.stop()
    try:
        for _ in range(2):
            began = time.monotonic()
            with pytest.raises(StoreError, match="may be made again") as caught:
                store.append("away", (added("b"),))
            assert time.monotonic() - began < PATIENCE
            assert "'chat' at 127.0.0.1" in str(caught.value)
            assert "pool_size" not in str(caught.value)
    finally:
        server.start()
    ends = time.monotonic() + PATIENCE
    while True:
        try:
            assert store.append("away", (added("b"),)).head == 2
            break
        except StoreBusy:  # the pool connects again after a pause of its own
            assert time.monotonic() < ends
    assert ids_in(store, "away") == ["a", "b"]
    store.close()


def test_work_continues_after_the_server_ended_connections(
    server: servers.Server, database: str
) -> None:
    store = PostgresStore(database)
    stop = threading.Event()

    def end_them() -> None:
        while not stop.is_set():
            server.sql(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                " WHERE datname = 'chat' AND pid <> pg_backend_pid()"
            )
            time.sleep(0.1)

    ender = threading.Thread(target=end_them)
    ender.start()
    try:
        for number in range(150):
            assert store.append("ended", (added(f"e{number}"),)).seqs == (number + 1,)
    finally:
        stop.set()
        ender.join()
    assert ids_in(store, "ended") == [f"e{number}" for number in range(150)]
    store.close()


# ---------------------------------------------------------------- collisions


class TestSerializable(EmptiedKit):
    """The server lets transactions fail rather than wait, as some clusters always do."""

    @pytest.fixture(autouse=True, scope="class")
    @classmethod
    def _database(cls) -> Iterator[None]:
        schema = servers.new_schema()
        cls.owner = servers.server_url(schema=schema)
        cls.url = f"{cls.owner}%20-cdefault_transaction_isolation%3Dserializable"
        PostgresStore(cls.url).close()
        yield
        servers.drop(schema)


# ---------------------------------------------------------------- refusals


def _ada(server: servers.Server, given: str) -> str:
    """Return the URL of a user with a password."""
    server.sql(f"DROP ROLE IF EXISTS ada; CREATE ROLE ada LOGIN SUPERUSER PASSWORD '{SECRET}'")
    return server.url(f"ada:{given}", "chat")


def _told(error: BaseException) -> str:
    return "".join(traceback.format_exception(error))


def test_wrong_password_error_has_no_password(
    server: servers.Server, database: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    url = _ada(server, f"not%20the%20{_IN_URL}")
    with pytest.raises(StoreError, match=r"cannot connect to .* authentication failed") as caught:
        MemoryManager(url)
    assert SECRET not in _told(caught.value) + caplog.text
    assert _IN_URL not in _told(caught.value) + caplog.text


def test_changed_password_error_has_no_password(
    server: servers.Server, database: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    url = _ada(server, _IN_URL)
    store = PostgresStore(url, timeout=1)
    server.sql("ALTER ROLE ada PASSWORD 'another'")
    server.sql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'ada'")
    with pytest.raises(StoreError) as caught:
        store.append("s", (added("a"),))
    store.close()
    assert (
        "authentication failed" in caplog.text
    )  # of the pool, with the reason for the missing connection
    printed = _told(caught.value) + caplog.text + repr(store)
    assert SECRET not in printed
    assert _IN_URL not in printed


_MAY_READ = "GRANT SELECT ON memman_store, memman_session, memman_record, memman_mention TO bob"


@pytest.mark.parametrize("granted", ["", _MAY_READ])
def test_missing_rights_error_names_the_grants(
    server: servers.Server, database: str, granted: str
) -> None:
    servers.run_sql(f"CREATE ROLE bob LOGIN; {granted}", database)
    before = _sizes(database)
    try:
        with pytest.raises(StoreError, match=r"permission denied .*Nothing was changed\. Grant"):
            _write_as(server.url("bob", "chat"))
    finally:
        servers.run_sql("DROP OWNED BY bob; DROP ROLE bob", database)
    assert _sizes(database) == before


def test_error_names_the_script_if_tables_cannot_be_created(server: servers.Server) -> None:
    server.sql("CREATE DATABASE bare")
    server.sql("CREATE ROLE eve LOGIN")
    with pytest.raises(StoreError, match=r"permission denied for schema public.*memman_postgres"):
        PostgresStore(server.url("eve", "bare"))


def test_read_only_server_can_be_read(server: servers.Server, database: str) -> None:
    with MemoryManager(database) as memory:
        memory.add_user_message("kept", "to be read")
    read_only = f"{database}?options=-cdefault_transaction_read_only%3Don"
    with MemoryManager(read_only) as memory:
        assert [entry.text for entry in memory.get_active_entries("kept")] == ["to be read"]
        for change in (
            lambda: memory.add_user_message("kept", "more"),
            lambda: memory.add_user_message("begun", "first"),
            lambda: memory.clear_session("kept"),
            lambda: memory.delete_session("kept"),
        ):
            with pytest.raises(StoreError, match=r"read-only.*give the URL of the primary"):
                change()
        assert [entry.text for entry in memory.get_active_entries("kept")] == ["to be read"]
    with pytest.raises(StoreError, match="read-only"):
        PostgresStore(f"{server.url()}?options=-cdefault_transaction_read_only%3Don")


def test_work_continues_after_a_full_disk(server: servers.Server, database: str) -> None:
    # The server's own error text, raised by a trigger, because filling a disk needs a separate disk.
    servers.run_sql(
        "CREATE SEQUENCE tries;"
        "CREATE FUNCTION no_room() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
        " PERFORM nextval('tries');"
        " RAISE EXCEPTION 'could not extend file: No space left on device' USING ERRCODE = '53100';"
        " END $$;"
        "CREATE TRIGGER full_disk BEFORE INSERT ON memman_record EXECUTE FUNCTION no_room()",
        database,
    )
    with MemoryManager(database) as memory:
        try:
            with pytest.raises(StoreFull, match="no room in database 'chat'"):
                memory.add_user_message("full", "first", id="a")
            tries = servers.asked("SELECT last_value FROM tries", database)
            assert tries == 1, "nothing is gained by trying again"
        finally:
            servers.run_sql("DROP TRIGGER full_disk ON memman_record", database)
        memory.add_user_message("full", "first", id="a")
        assert [entry.id for entry in memory.get_entries("full")] == ["a"]


def test_session_locked_for_too_long_is_busy(database: str) -> None:
    store = PostgresStore(f"{database}?options=-clock_timeout%3D200")
    store.append("held", (added("a"),))
    with psycopg.connect(database) as holder:
        holder.execute("SELECT FROM memman_session WHERE id = 'held' FOR UPDATE")
        with pytest.raises(StoreBusy, match="nothing was changed"):
            store.append("held", (added("b"),))
    store.append("held", (added("c"),))
    assert ids_in(store, "held") == ["a", "c"]
    store.close()


def test_full_pool_and_absent_server_have_different_errors(database: str) -> None:
    store = PostgresStore(database, pool_size=1, timeout=1)
    store.append("busy", (added("a"),))
    with psycopg.connect(database) as holder:
        holder.execute("SELECT FROM memman_session WHERE id = 'busy' FOR UPDATE")
        waiting = threading.Thread(target=lambda: store.append("busy", (added("b"),)))
        waiting.start()
        while not store._in_use:
            time.sleep(0.001)
        with pytest.raises(StoreBusy, match=r"all 1 of the pool are in use.*pool_size"):
            store.append("other", (added("c"),))
    waiting.join(PATIENCE)
    assert ids_in(store, "busy") == ["a", "b"]
    store.close()


def test_too_many_connections_is_an_error(server: servers.Server, database: str) -> None:
    server.sql("CREATE ROLE crowd LOGIN CONNECTION LIMIT 0")
    with pytest.raises(StoreError, match="too many connections for role"):
        PostgresStore(server.url("crowd", "chat"))


def _sizes(database: str) -> Any:
    with psycopg.connect(database) as connection:
        return [
            connection.execute(f"SELECT count(*) FROM {table}".encode()).fetchone()  # noqa: S608 - our own names
            for table in ("memman_session", "memman_record", "memman_mention")
        ]


def _write_as(url: str) -> None:
    with MemoryManager(url) as memory:
        memory.add_user_message("s", "text")


# ---------------------------------------------------------------- what cannot be opened


def test_absent_server_error_has_host_and_no_password() -> None:
    with pytest.raises(
        StoreError, match=r"database 'chat' at 127\.0\.0\.1.* Is the server running"
    ) as caught:
        MemoryManager("postgresql://ada:secret@127.0.0.1:1/chat")
    assert "secret" not in str(caught.value)


def test_error_names_a_missing_database() -> None:
    with pytest.raises(StoreError, match="no_such_database"):
        PostgresStore(f"postgresql://postgres@{servers.HOST}/no_such_database")


def test_error_names_a_missing_user(url: str) -> None:
    with pytest.raises(StoreError, match="nobody_here"):
        PostgresStore(f"postgresql://nobody_here:secret@{servers.HOST}/test")


def test_malformed_url_is_a_typed_error() -> None:
    with pytest.raises(StoreError, match="cannot be read") as caught:
        PostgresStore("postgresql://ada:secret@h/d?no_such_option=1")
    assert "secret" not in str(caught.value)


def test_tables_of_a_newer_version_are_refused(store: PostgresStore, url: str, schema: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("UPDATE memman_store SET version = 99")
    with pytest.raises(StoreError, match="version 99, and this plugin knows version 1"):
        PostgresStore(url)
