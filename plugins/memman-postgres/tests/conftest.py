"""A schema of PostgreSQL for each test, ways to it, and a server and a pooler for a module."""

from __future__ import annotations

from collections.abc import Iterator

import postgres_servers as servers
import pytest
from memman_postgres import PostgresStore


@pytest.fixture
def schema() -> Iterator[str]:
    """An empty schema of the test database."""
    name = servers.new_schema()
    yield name
    servers.drop(name)


@pytest.fixture
def url(schema: str) -> str:
    """The way to the schema."""
    return servers.server_url(schema=schema)


@pytest.fixture
def store(url: str) -> Iterator[PostgresStore]:
    """A store in the schema."""
    opened = PostgresStore(url)
    yield opened
    opened.close()


@pytest.fixture
def wire() -> Iterator[servers.Wire]:
    """A way to the server that can be cut."""
    opened = servers.Wire()
    yield opened
    opened.close()


@pytest.fixture(scope="module")
def server() -> Iterator[servers.Server]:
    """A server of one's own."""
    opened = servers.Server()
    yield opened
    opened.close()


@pytest.fixture(scope="module")
def pooler() -> Iterator[servers.Pooler]:
    """A pooler in transaction mode before the test database."""
    opened = servers.Pooler()
    yield opened
    opened.close()
