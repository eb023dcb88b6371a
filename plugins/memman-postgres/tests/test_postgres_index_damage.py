"""A search index that is damaged, locked, full or not to be written: nothing but the index is concerned."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any

import postgres_servers as servers
import psycopg
import pytest
from memman_postgres import AsyncPostgresStore, PostgresStore
from memman_postgres.tables import schema as script

from memman import MemoryManager, StoreError
from memman.display import warn_once
from memman.protocols import SearchRequest
from memman.testing.stores import added

pytestmark = pytest.mark.service

WORDS = ("kappa", "omega", "sigma", "theta")
CANARY = "qanaria"
SILENT = (
    "null words",
    "missing rows",
)  # a search of a session finds them, one of all sessions does not
VERBS = ("search", "recall", "delete entries", "delete session", "add")
DAMAGES = {
    "no words": "DROP TABLE memman_word",
    "no state": "DROP TABLE memman_indexed",
    "no tables": "DROP TABLE memman_word, memman_indexed",
    "empty words": "TRUNCATE memman_word",
    "empty state": "TRUNCATE memman_indexed",
    "other column of words": "ALTER TABLE memman_word RENAME words TO other",
    "other column of state": "ALTER TABLE memman_indexed RENAME upto TO other",
    "other type of words": "ALTER TABLE memman_word ALTER session TYPE text",
    "other type of state": "ALTER TABLE memman_indexed ALTER entries TYPE text",
    "null words": (
        "ALTER TABLE memman_word ALTER words DROP NOT NULL;"
        "UPDATE memman_word SET words = NULL WHERE seq % 3 = 0"
    ),
    "null state": (
        "ALTER TABLE memman_indexed ALTER upto DROP NOT NULL, ALTER entries DROP NOT NULL;"
        "UPDATE memman_indexed SET upto = NULL, entries = NULL"
    ),
    "missing rows": "DELETE FROM memman_word WHERE seq % 2 = 0",
    "rows of nobody": "INSERT INTO memman_word SELECT session + 1000, seq, words FROM memman_word",
    "rows twice": (
        "ALTER TABLE memman_word DROP CONSTRAINT memman_word_pkey;"
        "INSERT INTO memman_word SELECT * FROM memman_word"
    ),
    "state ahead": "UPDATE memman_indexed SET upto = upto + 1000 WHERE session <> 0",
    "state behind": "UPDATE memman_indexed SET upto = 3 WHERE session <> 0",
    "negative state": "UPDATE memman_indexed SET upto = -5, entries = -5",
    "huge state": "UPDATE memman_indexed SET upto = 9e18, entries = 9e18",
    "no text configuration": "DROP TEXT SEARCH CONFIGURATION memman_english",
    "invalid indexes": (
        "UPDATE pg_index SET indisvalid = false"
        " WHERE indrelid IN ('memman_word'::regclass, 'memman_indexed'::regclass)"
    ),
    "no indexes": (
        "ALTER TABLE memman_indexed DROP CONSTRAINT memman_indexed_pkey;"
        "DROP INDEX memman_word_words, memman_word_parts"
    ),
}


FILES = (
    "memman_word",
    "memman_word_pkey",
    "memman_word_words",
    "memman_word_parts",
    "memman_indexed",
)
KINDS = ("zeros", "noise", "gone")
PENDING = "words of deleted entries"


@contextmanager
def opened(url: str, kind: str = "sync", **settings: Any) -> Iterator[MemoryManager]:
    """A memory over a store of a kind."""
    store = PostgresStore if kind == "sync" else AsyncPostgresStore
    with MemoryManager(store(url, **settings), async_ports=kind == "async") as memory:
        yield memory


def made(url: str) -> None:
    """Make two sessions and a search index."""
    store = PostgresStore(url)
    about = [CANARY if number == 7 else WORDS[number % 4] for number in range(60)]
    store.append("s", [added(f"e{n}", f"note {n} about {word}") for n, word in enumerate(about)])
    store.append("t", [added("t0", f"another session has {CANARY}")])
    store.search(SearchRequest(terms=("kappa",)))
    store.close()


def found(memory: MemoryManager, query: str = "kappa", session_id: str | None = "s") -> set[str]:
    return {hit.entry.id for hit in memory.search(session_id, query, limit=200)}


def canaries(url: str) -> int:
    """The rows of the index with the deleted word; none if there is no such table."""
    if not servers.asked("SELECT to_regclass('memman_word') IS NOT NULL", url):
        return 0
    rows = "SELECT count(*) FROM memman_word AS its WHERE its::text ~ 'qanaria'"
    return int(servers.asked(rows, url))


def check(url: str, verb: str, kind: str, **settings: Any) -> None:
    """Do one thing with a damaged index, and look for the rest."""
    kappas = {f"e{n}" for n in range(0, 60, 4)}
    with opened(url, kind, **settings) as memory:
        if verb == "search":
            assert found(memory, session_id=None) == kappas
        elif verb == "recall":
            assert "note 58 about sigma" in str(memory.recall_tool("s")({"query": "sigma"}))
        elif verb == "delete entries":
            memory.delete_entries("s", ["e7"])
        elif verb == "delete session":
            memory.delete_session("s")
            kappas = set()
        else:
            memory.add_user_message("s", "one more kappa", id="more")
            kappas |= {"more"}
        for scope in ("s", None):
            assert found(memory, session_id=scope) == kappas
        hits = memory.search("t", CANARY)
        assert [hit.entry.content for hit in hits] == [f"another session has {CANARY}"]
        if verb.startswith("delete"):
            memory.delete_session("t")
            assert found(memory, CANARY, None) == set()
    if verb.startswith("delete"):
        assert canaries(url) == 0


# ---------------------------------------------------------------- tables and rows


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("damage", DAMAGES)
def test_damage_of_the_index_makes_nothing_fail(url: str, damage: str, verb: str) -> None:
    made(url)
    servers.run_sql(DAMAGES[damage], url)
    if damage in SILENT:
        with opened(url) as memory:
            assert len(found(memory)) == 15
    check(url, verb, "async" if len(damage + verb) % 2 else "sync")


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_damage_while_a_store_is_open_makes_nothing_fail(url: str, kind: str) -> None:
    made(url)
    with opened(url, kind) as memory:
        for damage in DAMAGES.values():
            servers.run_sql(damage, url)
            assert len(found(memory)) == 15
            assert len(found(memory, session_id=None)) == 15
            assert len(found(memory, session_id=None)) == 15  # if the one before found the damage
            assert (
                servers.asked("SELECT count(*) FROM memman_word WHERE words IS NOT NULL", url) >= 61
            )
        servers.run_sql(DAMAGES["no words"], url)
        memory.delete_entries("s", ["e7"])
        assert found(memory, CANARY, None) == {"t0"}
    assert canaries(url) == 1


def test_index_that_was_made_again_is_complete(url: str, caplog: pytest.LogCaptureFixture) -> None:
    warn_once.cache_clear()
    made(url)
    before = _shape(url)
    servers.run_sql(DAMAGES["no tables"], url)
    with opened(url) as memory:
        found(memory, session_id=None)
        found(memory, session_id=None)
    assert _shape(url) == before
    assert [each.message for each in caplog.records if "search index is damaged" in each.message]


def _shape(url: str) -> Any:
    columns = (
        "SELECT array_agg(concat_ws(' ', table_name, column_name, data_type, is_nullable))"
        " FROM information_schema.columns WHERE table_schema = current_schema()"
    )
    indexes = "SELECT array_agg(indexdef) FROM pg_indexes WHERE schemaname = current_schema()"
    return [sorted(servers.asked(each, url)) for each in (columns, indexes)]


def test_erased_entries_leave_the_count_exact(url: str, caplog: pytest.LogCaptureFixture) -> None:
    warn_once.cache_clear()
    made(url)
    with opened(url) as memory:
        memory.delete_entries("s", ["e7", "e8"])
        memory.delete_session("t")
        assert len(found(memory)) == 14
    rows = servers.asked("SELECT count(*) FROM memman_word", url)
    assert rows == servers.asked("SELECT entries FROM memman_indexed WHERE session = 0", url) == 58
    assert not [each.message for each in caplog.records if "damaged" in each.message]


def test_search_of_dropped_tables_makes_no_new_ones(url: str) -> None:
    made(url)
    store = PostgresStore(url)
    servers.run_sql(
        "DROP TABLE memman_word, memman_indexed, memman_record, memman_mention, memman_session", url
    )
    with pytest.raises(StoreError, match="Its tables are missing"):
        store.search(SearchRequest(terms=("kappa",)))
    assert servers.asked("SELECT to_regclass('memman_session')", url) is None
    store.close()


# ---------------------------------------------------------------- files


@pytest.fixture
def database(server: servers.Server) -> Iterator[str]:
    """A database of the server of one's own."""
    server.sql("CREATE DATABASE chat")
    yield server.url(database="chat")
    server.sql("DROP DATABASE chat WITH (FORCE)")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("relation", FILES)
@pytest.mark.parametrize("verb", ["search", "delete entries", "delete session"])
def test_damaged_file_of_the_index_makes_nothing_fail(
    server: servers.Server, database: str, relation: str, kind: str, verb: str
) -> None:
    made(database)
    path = Path(server._data, servers.asked(f"SELECT pg_relation_filepath('{relation}')", database))
    server.stop()
    data = path.read_bytes()
    # PostgreSQL itself reads an empty first page of a GIN index for ever.
    kept = 8_192 if kind == "zeros" and relation.endswith("s") else 0
    if kind == "gone":
        path.unlink()
    else:
        noise = Random(f"{relation} {verb}").randbytes(len(data))
        rest = bytes(len(data)) if kind == "zeros" else noise
        path.write_bytes(data[:kept] + rest[kept:])
    server.start()
    check(database, verb, "sync")


# ---------------------------------------------------------------- locks, room and rights


@pytest.mark.parametrize("kind", ["sync", "async"])
@pytest.mark.parametrize("table", ["memman_word", "memman_indexed"])
def test_locked_index_delays_and_fails_nothing(
    url: str, kind: str, table: str, caplog: pytest.LogCaptureFixture
) -> None:
    made(url)
    with opened(url, kind) as memory, psycopg.connect(url) as holder:
        memory.add_user_message("s", "the newest kappa", id="newest")
        holder.execute(f"LOCK TABLE {table} IN ACCESS EXCLUSIVE MODE".encode())
        begin = time.monotonic()
        assert len(found(memory)) == 16
        assert "note 58 about sigma" in str(memory.recall_tool("s")({"query": "sigma"}))
        memory.add_user_message("s", "one more kappa", id="more")
        memory.delete_entries("s", ["e7"])
        memory.delete_session("t")
        assert time.monotonic() - begin < 20
        assert PENDING in caplog.text
        assert found(memory, CANARY, None) == set()
        holder.rollback()
        assert canaries(url) == 2
        assert found(memory, CANARY, None) == set()
        assert len(found(memory)) == 17
        memory.delete_entries("s", ["e8"])
        assert canaries(url) == 0
        assert len(found(memory, session_id=None)) == len(found(memory)) == 16
        assert servers.asked("SELECT count(*) FROM memman_mention WHERE id = ''", url) == 0


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_full_disk_of_the_index_fails_nothing(
    url: str, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    made(url)
    servers.run_sql(
        "CREATE FUNCTION no_room() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
        " RAISE EXCEPTION 'could not extend file: No space left on device' USING ERRCODE = '53100';"
        " END $$;"
        "CREATE TRIGGER full_disk BEFORE INSERT OR DELETE ON memman_word"
        " FOR EACH ROW EXECUTE FUNCTION no_room()",
        url,
    )
    with opened(url, kind) as memory:
        memory.add_user_message("s", "the newest kappa", id="newest")
        assert len(found(memory)) == 16
        memory.delete_entries("s", ["e7"])
        assert PENDING in caplog.text
        assert found(memory, CANARY, None) == {"t0"}
        servers.run_sql("DROP TRIGGER full_disk ON memman_word", url)
        memory.delete_session("t")
        assert canaries(url) == 0


@pytest.fixture
def role(schema: str, url: str) -> Iterator[str]:
    """A worker's role with all rights in the log, and SELECT alone in the index."""
    made(url)
    name = f"memman_{uuid.uuid4().hex}"
    servers.run_sql(
        f"CREATE ROLE {name} LOGIN; GRANT USAGE ON SCHEMA {schema} TO {name};"
        f"GRANT SELECT, INSERT, UPDATE, DELETE ON memman_session, memman_record, memman_mention TO {name};"
        f"GRANT SELECT ON memman_word, memman_indexed TO {name};"
        f"GRANT SELECT, UPDATE (first_epoch) ON memman_store TO {name}",
        url,
    )
    yield name
    servers.run_sql(f"DROP OWNED BY {name}; DROP ROLE {name}")


def as_role(role: str, schema: str, setting: str = "") -> str:
    return f"postgresql://{role}@{servers.HOST}/test?options=-csearch_path%3D{schema}{setting}"


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_role_that_only_reads_the_index_does_everything(
    url: str, schema: str, role: str, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    with opened(as_role(role, schema), kind, create=False) as memory:
        memory.add_user_message("s", "the newest kappa", id="newest")
        assert len(found(memory)) == len(found(memory, session_id=None)) == 16
        memory.delete_entries("s", ["e7"])
        memory.delete_session("t")
        assert PENDING in caplog.text
        assert found(memory, CANARY, None) == set()
    assert canaries(url) == 2
    with opened(url, kind) as memory:
        memory.delete_entries("s", ["e8"])
        assert canaries(url) == 0


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize(
    "damage", ["no words", "missing rows", "other column of words", "rows twice"]
)
def test_worker_survives_damage_that_its_owner_must_repair(
    url: str, schema: str, role: str, damage: str, verb: str
) -> None:
    servers.run_sql(f"GRANT ALL ON memman_word, memman_indexed TO {role}", url)
    servers.run_sql(f"REVOKE TRUNCATE ON memman_word, memman_indexed FROM {role}", url)
    servers.run_sql(DAMAGES[damage], url)
    check(as_role(role, schema), verb, "sync", create=False)
    servers.run_sql(DAMAGES["no state"], url)
    with opened(url) as memory:
        memory.search(None, "kappa")
    with opened(as_role(role, schema), create=False) as memory:
        memory.add_user_message("new", "a kappa", id="new")
        assert "new" in found(memory, session_id=None)
    assert servers.asked("SELECT count(*) FROM memman_indexed", url) >= 2, "the worker may write it"


@pytest.mark.parametrize("verb", VERBS)
def test_index_with_partitions_and_tenants_is_made_again(url: str, schema: str, verb: str) -> None:
    tenant = f"{url}%20-cmemman.tenant%3Dacme"
    servers.run_sql(script(partitions=4, tenants=True), tenant)
    made(tenant)
    before = _shape(url)
    servers.run_sql("DROP TABLE memman_word", url)
    check(tenant, verb, "sync")
    assert _shape(url) == before
    forced = (
        "SELECT count(*) FROM pg_class WHERE relname IN ('memman_word', 'memman_indexed')"
        " AND relforcerowsecurity AND relnamespace = current_schema()::regnamespace"
    )
    assert servers.asked(forced, url) == 2
