"""The kinds of stores under test: in memory, in a SQLite file, in PostgreSQL (marked `service`)."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any, Protocol

import postgres_servers as servers
import pytest
from memman_postgres import PostgresStore

from memman.stores import MemoryStore, SQLiteStore

# Tests kill processes, not machines; waiting for the disk would only make them slow.
_QUICK = "/dev/shm" if Path("/dev/shm").is_dir() else None  # noqa: S108 - a folder of its own is made in it


class Kind(Protocol):
    """A kind of store. `open` returns another store on the same logs."""

    url: str

    def open(self, store: Any = None) -> Any: ...
    def remove(self) -> None: ...


class InMemory:
    """Stores in memory; another store on the logs is the same object."""

    url = ""

    def __init__(self) -> None:
        self._store: Any = None

    def open(self, store: Any = MemoryStore) -> Any:
        self._store = self._store or store()
        return self._store

    def remove(self) -> None:
        self._store = None


class InFile:
    """A SQLite file in its own folder."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(dir=_QUICK)
        self.url = f"{self._folder.name}/chat.db"

    def open(self, store: Any = SQLiteStore) -> Any:
        return store(self.url)

    def remove(self) -> None:
        self._folder.cleanup()


class InPostgres:
    """A schema of the test database."""

    def __init__(self) -> None:
        self._schema = servers.new_schema()
        self.url = servers.server_url(schema=self._schema)

    def open(self, store: Any = None) -> Any:
        return (store or PostgresStore)(self.url, pool_size=2)

    def remove(self) -> None:
        servers.drop(self._schema)


IN_FILES = [
    pytest.param(InFile, id="sqlite"),
    pytest.param(InPostgres, id="postgres", marks=pytest.mark.service),
]
