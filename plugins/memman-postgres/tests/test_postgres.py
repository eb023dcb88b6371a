"""The store in PostgreSQL: every law of the protocol, sync and async, and faults of a server."""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import re
from pathlib import Path
from typing import Any

import postgres_servers as servers
import psycopg
import pytest
from click.testing import CliRunner, Result
from memman_cli.app import memman
from memman_postgres import AsyncPostgresStore, PostgresStore
from memman_postgres.tables import schema as schema_script
from postgres_kits import Facade, Kit, ids_in

from memman import (
    AsyncMemoryManager,
    MemoryConfig,
    MemoryManager,
    StoreError,
)
from memman.testing.stores import added

pytestmark = pytest.mark.service


class TestPostgresStore(Kit):
    def opened(self, url: str) -> PostgresStore:
        return PostgresStore(url)


class TestAsyncPostgresStore(Kit):
    def opened(self, url: str) -> Facade:
        return Facade(url)


# ---------------------------------------------------------------- the manager


def test_url_opens_the_store(url: str) -> None:
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


def test_async_manager_uses_either_store(url: str) -> None:
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


def test_forked_child_has_its_own_connection(store: PostgresStore) -> None:
    store.append("s", (added("a"),))
    child = multiprocessing.get_context("fork").Process(
        target=lambda: store.append("s", (added("of the child"),))
    )
    child.start()
    child.join(20)
    assert child.exitcode == 0
    store.append("s", (added("b"),))
    assert ids_in(store) == ["a", "of the child", "b"]


def test_examples_of_the_readme_run(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    page = Path(__file__).parents[1].joinpath("README.md").read_text(encoding="utf-8")
    examples = re.findall(r"^```python\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
    assert len(examples) == 2
    names: dict[str, Any] = {}
    for example in examples:
        assert servers.server_url() in example
        exec(compile(example.replace(servers.server_url(), url), "README.md", "exec"), names)  # noqa: S102 - our own page
    shown = capsys.readouterr().out
    assert "User: Plan three days in Lisbon.\nAssistant: Day 1: Alfama." in shown


def test_open_without_create_requires_tables(url: str) -> None:
    with pytest.raises(StoreError, match="memman_store"):
        PostgresStore(url, create=False)
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(schema_script().encode())
    store = PostgresStore(url, create=False)
    store.append("s", (added("a"),))
    assert ids_in(store) == ["a"]
    store.close()


def test_closed_store_raises(store: PostgresStore) -> None:
    store.close()
    with pytest.raises(StoreError, match="is closed"):
        store.state("s")


@pytest.mark.parametrize("settings", [{"durability": "maybe"}, {"pool_size": 0}])
def test_error_names_an_argument_out_of_range(url: str, settings: Any) -> None:
    with pytest.raises(StoreError, match=next(iter(settings))):
        PostgresStore(url, **settings)


def test_fast_durability_does_not_wait_for_the_disk(url: str) -> None:
    for durability, expected in (("fast", "off"), ("full", "on")):
        store = PostgresStore(url, durability=durability)
        with store._connect().connection() as connection:
            assert connection.execute("SHOW synchronous_commit").fetchone() == (expected,)
        store.append("s", (added(durability),))
        store.close()


def test_command_reads_and_writes_sessions_in_postgresql(url: str, tmp_path: Path) -> None:
    def command(*arguments: str) -> Result:
        return CliRunner().invoke(memman, list(arguments))

    assert command("sessions", url).exit_code == 3
    with psycopg.connect(url) as connection:
        assert connection.execute("SELECT to_regclass('memman_store')").fetchone() == (None,)
    log = tmp_path / "log.jsonl"
    log.write_text(
        "".join(f'{{"role": "user", "content": "No. {n} {"x " * 99}"}}\n' for n in range(40))
    )
    assert command("import", str(log), "--into", url, "--session", "s").exit_code == 0
    assert "s" in command("sessions", url).stdout.split()
    assert json.loads(command("stats", url, "--json").stdout)["stats"]["total_entries"] == 40
    assert command("compress", url, "--target", "500", "--in-place").exit_code == 0
    window = json.loads(command("show", url, "--active", "--json").stdout)["entries"]
    assert len(window) < 40
    assert len(json.loads(command("show", url, "--json").stdout)["entries"]) == 40
