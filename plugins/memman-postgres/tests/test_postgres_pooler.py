"""Behind a pgbouncer in transaction mode, where each transaction may be on another connection."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from typing import Any

import postgres_servers as servers
import pytest
from memman_postgres import AsyncPostgresStore, PostgresStore
from postgres_kits import EmptiedKit, Facade

from memman import AsyncMemoryManager, MemoryConfig, MemoryManager

pytestmark = pytest.mark.service

CONFIG = MemoryConfig(max_tokens=400, min_entries_to_compress=2, recent_window=2)


class Pooled(EmptiedKit):
    """One schema for the class, seen through the pooler."""

    @pytest.fixture(autouse=True, scope="class")
    @classmethod
    def _pooled(cls, pooler: servers.Pooler) -> Iterator[None]:
        schema = servers.new_schema()
        pooler.serve([schema])
        cls.url, cls.owner = pooler.url(schema), servers.server_url(schema=schema)
        PostgresStore(cls.url).close()
        yield
        servers.drop(schema)


class TestPooled(Pooled):
    pass


class TestAsyncPooled(Pooled):
    def opened(self) -> Any:
        return Facade(self.url, create=False)


@pytest.fixture
def pooled(pooler: servers.Pooler, schema: str) -> str:
    """The schema, through the pooler."""
    pooler.serve([schema])
    return pooler.url(schema)


def test_managers_share_a_session_through_few_connections(pooled: str) -> None:
    managers = [MemoryManager(pooled, counter="chars4", config=CONFIG) for _ in range(4)]

    def talk(number: int) -> None:
        for turn in range(15):
            managers[number].add_user_message("s", f"{number}.{turn} " + "word " * 12)

    talkers = [threading.Thread(target=talk, args=(number,)) for number in range(len(managers))]
    for talker in talkers:
        talker.start()
    for talker in talkers:
        talker.join()
    shown = [memory.get_context_for_llm("s") for memory in managers]
    said = [entry.text.split()[0] for entry in managers[0].get_entries("s")]
    for memory in managers:
        memory.close()
    assert len(set(shown)) == 1
    for number in range(4):
        assert [name for name in said if name.startswith(f"{number}.")] == [
            f"{number}.{turn}" for turn in range(15)
        ]


def test_async_manager_works_behind_the_pooler(pooled: str) -> None:
    async def talk() -> list[str]:
        async with AsyncMemoryManager(
            AsyncPostgresStore(pooled), counter="chars4", config=CONFIG
        ) as memory:
            for turn in range(15):
                await asyncio.gather(
                    *[memory.add_user_message(f"s{n}", f"{turn} " + "word " * 20) for n in range(8)]
                )
            return [entry.text.split()[0] for entry in await memory.get_entries("s7")]

    assert asyncio.run(talk()) == [str(turn) for turn in range(15)]
