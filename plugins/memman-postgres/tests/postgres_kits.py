"""The laws of a store, on PostgreSQL: with a schema for each store, or with one that is emptied."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from typing import Any, ClassVar

import postgres_servers as servers
import pytest
from memman_postgres import AsyncPostgresStore, PostgresStore

from memman.testing import StoreConformance


class Kit(StoreConformance):
    """The laws with a new schema for each store."""

    lives = 4

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


class EmptiedKit(StoreConformance):
    """The laws on one database, made once and emptied for each store: where making it takes long."""

    lives = 2
    url: ClassVar[str]
    owner: ClassVar[str]  # the role that may empty it

    @pytest.fixture(autouse=True)
    def _stores(self) -> Iterator[None]:
        self.stores: list[Any] = []
        yield
        for store in self.stores:
            store.close()

    def make_store(self) -> Any:
        servers.run_sql(
            "DELETE FROM memman_record; DELETE FROM memman_mention; DELETE FROM memman_word;"
            "DELETE FROM memman_indexed; DELETE FROM memman_session;"
            "UPDATE memman_store SET first_epoch = 0",
            self.owner,
        )
        return self.reopen(None)

    def reopen(self, _store: Any) -> Any:
        self.stores.append(self.opened())
        return self.stores[-1]

    def opened(self) -> Any:
        return PostgresStore(self.url, create=False)


class Facade:
    """An async store whose every call is run to its end, in a loop of its own on another thread."""

    def __init__(self, url: str, **settings: Any) -> None:
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self.thread.start()
        self.store = AsyncPostgresStore(url, **settings)

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


def ids_in(store: Any, session_id: str = "s") -> list[str]:
    """The ids of a session's log, in order."""
    return [record.id for _, record in store.read(session_id, 0, 10**6)]
