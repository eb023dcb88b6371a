"""The scripts for the owner of a database: tables divided by hash, and row-level security."""

from __future__ import annotations

import random
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import postgres_servers as servers
import psycopg
import pytest
from memman_postgres import PostgresStore
from memman_postgres.tables import schema as script
from postgres_kits import EmptiedKit, ids_in

from memman import InvalidInput, MemoryManager, SessionNotFound, StoreError
from memman.protocols import StoredItem
from memman.records import Cleared
from memman.testing.stores import AT, added, erase_entries

pytestmark = pytest.mark.service


class TestPartitioned(EmptiedKit):
    """The laws on tables that are divided by a hash of the session."""

    @pytest.fixture(autouse=True, scope="class")
    @classmethod
    def _database(cls) -> Iterator[None]:
        schema = servers.new_schema()
        cls.url = cls.owner = servers.server_url(schema=schema)
        servers.run_sql(script(partitions=64), cls.url)
        yield
        servers.drop(schema)


@pytest.fixture(scope="module")
def role() -> Iterator[str]:
    """A user with no rights but those of a worker."""
    name = f"memman_{uuid.uuid4().hex}"
    servers.run_sql(f"CREATE ROLE {name} LOGIN")
    yield name
    servers.run_sql(f"DROP OWNED BY {name}; DROP ROLE {name}")


def grants(schema: str, role: str) -> str:
    """Return the grants of a worker, as in the guide."""
    return (
        f"GRANT USAGE ON SCHEMA {schema} TO {role};"
        "GRANT SELECT, INSERT, UPDATE, DELETE ON memman_session, memman_record, memman_mention,"
        f" memman_word, memman_indexed TO {role};"
        f"GRANT SELECT, UPDATE (first_epoch) ON memman_store TO {role}"
    )


def as_tenant(schema: str, role: str, tenant: str | None) -> str:
    """The URL of a worker of a tenant; None sets nothing."""
    setting = "" if tenant is None else f"%20-cmemman.tenant%3D{tenant}"
    return f"postgresql://{role}@{servers.HOST}/test?options=-csearch_path%3D{schema}{setting}"


class TestTenant(EmptiedKit):
    """The laws for a tenant."""

    @pytest.fixture(autouse=True, scope="class")
    @classmethod
    def _database(cls, role: str) -> Iterator[None]:
        schema = servers.new_schema()
        cls.owner = servers.server_url(schema=schema)
        servers.run_sql(script(tenants=True) + grants(schema, role), cls.owner)
        # The other tenant's sessions have the same ids, and more in them.
        cls.url = as_tenant(schema, role, "acme")
        yield
        servers.drop(schema)


@pytest.fixture
def divided(schema: str, url: str, role: str) -> str:
    """A schema with partitions and tenants."""
    servers.run_sql(script(partitions=4, tenants=True) + grants(schema, role), url)
    return schema


# ---------------------------------------------------------------- partitions


def test_command_prints_64_partitions(url: str) -> None:
    command = [sys.executable, "-m", "memman_postgres", "--partitions"]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert printed == script(64)
    servers.run_sql(printed, url)
    servers.run_sql(printed, url)  # as every statement may be run again
    with psycopg.connect(url) as connection:
        for table in ("memman_mention", "memman_record", "memman_word"):
            [(counted,)] = connection.execute(
                "SELECT count(*) FROM pg_inherits WHERE inhparent = %s::regclass", (table,)
            ).fetchall()
            assert counted == 64


def test_session_is_in_one_partition_and_sessions_in_many(url: str) -> None:
    servers.run_sql(script(8), url)
    store = PostgresStore(url, create=False)
    for session in range(30):
        store.append(f"s{session}", [added(f"e{n}") for n in range(3)])
        store.append(f"s{session}", (added("e3"),))
    store.close()
    with psycopg.connect(url) as connection:
        found = connection.execute(
            "SELECT tableoid, session, count(*) FROM memman_record GROUP BY 1, 2"
        ).fetchall()
    assert [rows for _, _, rows in found] == [4] * 30
    assert len({table for table, _, _ in found}) > 4


@pytest.mark.parametrize("partitions", [-1, 10_001])
def test_number_of_partitions_out_of_range_is_refused(partitions: int) -> None:
    with pytest.raises(InvalidInput, match="must be between 0 and 10,000"):
        script(partitions)


# ---------------------------------------------------------------- tenants


_TABLES = (
    "memman_session", "memman_record", "memman_mention", "memman_word", "memman_indexed",
)  # fmt: skip


def _rows(url: str, tenant: str) -> Any:
    """All that a tenant has, seen by a superuser."""
    with psycopg.connect(url) as connection:
        return [
            connection.execute(
                f"SELECT * FROM {table} WHERE tenant = %s ORDER BY 1, 2".encode(),  # noqa: S608 - our own names
                (tenant,),
            ).fetchall()
            for table in _TABLES
        ]


def test_tenants_cannot_see_or_change_each_other(divided: str, url: str, role: str) -> None:
    acme, other = (
        PostgresStore(as_tenant(divided, role, tenant), create=False)
        for tenant in ("acme", "other")
    )
    sessions = [f"s{number}" for number in range(5)]
    for session in sessions:
        acme.append(session, (added("a", "of acme"), added("b", "of acme")))
        acme.append(session, (added("c", "of acme"),))
    before = _rows(url, "acme")
    draw = random.Random(0)
    ids = ["a", "b", "c", "x", "y"]

    def call(session: str) -> object:
        state = other.state(session) or (0, 0)
        calls: list[Callable[[], object]] = [
            lambda: other.append(session, (added(draw.choice(ids), "of other"),)),
            lambda: other.append(session, (added("x", "of other"), added("y", "of other"))),
            lambda: other.commit(
                session, state[1], (Cleared(id=uuid.uuid4().hex, at=AT),), (StoredItem(0, -1, 1),)[:0],
                state[0],
            ) if state[0] else None,
            lambda: erase_entries(other, session, *ids) if state[0] else None,
            lambda: other.delete(session),
            lambda: other.lease(session, "other", 10),
            lambda: other.load(session),
            lambda: other.read(session),
            lambda: other.find(session, ids),
            lambda: list(other.sessions()),
            lambda: other.feed(),
        ]  # fmt: skip
        return draw.choice(calls)()

    for _ in range(150):
        assert "of acme" not in repr(call(draw.choice(sessions)))
    assert _rows(url, "acme") == before
    for session in sessions:
        assert ids_in(acme, session) == ["a", "b", "c"]
        other.delete(session)
    assert [list(other.sessions()), list(other.feed())] == [[], []]
    acme.close()
    other.close()


def test_two_tenants_have_sessions_of_the_same_name(divided: str, role: str) -> None:
    for tenant in ("acme", "other"):
        with MemoryManager(as_tenant(divided, role, tenant)) as memory:
            assert memory.list_sessions() == []
            with pytest.raises(SessionNotFound):
                memory.get_entries("s")
            memory.add_user_message("s", f"of {tenant}")
            assert [entry.text for entry in memory.get_entries("s")] == [f"of {tenant}"]


@pytest.mark.parametrize("tenant", [None, ""])
def test_store_without_a_tenant_does_not_open(divided: str, role: str, tenant: str | None) -> None:
    with pytest.raises(StoreError, match="tenant"):
        MemoryManager(as_tenant(divided, role, tenant))


def test_role_may_be_bound_to_its_tenant(divided: str, url: str, role: str) -> None:
    servers.run_sql(f"ALTER ROLE {role} SET memman.tenant = 'bound'")
    with MemoryManager(as_tenant(divided, role, None)) as memory:
        memory.add_user_message("s", "text")
    servers.run_sql(f"ALTER ROLE {role} RESET memman.tenant")
    assert [len(rows) for rows in _rows(url, "bound")] == [
        1,
        2,
        0,
        0,
        0,
    ]  # the opening and the entry


def test_existing_sessions_become_those_of_the_set_tenant(schema: str, url: str, role: str) -> None:
    with MemoryManager(url) as memory:
        memory.add_user_message("s", "from before")
    with pytest.raises(psycopg.Error, match=r"memman\.tenant"):
        servers.run_sql(script(tenants=True), url)
    servers.run_sql(script(tenants=True) + grants(schema, role), f"{url}%20-cmemman.tenant%3Dfirst")
    with MemoryManager(as_tenant(schema, role, "first")) as memory:
        assert [entry.text for entry in memory.get_entries("s")] == ["from before"]
