"""Sessions of memman in PostgreSQL: `MemoryManager("postgresql://user@host/database")`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from memman import hookimpl

if TYPE_CHECKING:
    from memman_postgres.async_store import AsyncPostgresStore
    from memman_postgres.store import PostgresStore

__all__ = ["AsyncPostgresStore", "PostgresStore", "memman_cli_commands", "memman_store"]


@hookimpl
def memman_store(url: str, create: bool) -> PostgresStore | None:
    """Open a `postgresql://` or `postgres://` URL; with `create` False its tables must exist."""
    if not url.startswith(("postgresql://", "postgres://")):
        return None
    from memman_postgres.store import PostgresStore

    return PostgresStore(url, create=create)


@hookimpl
def memman_cli_commands(group: Any) -> None:
    """Add `memman postgres`."""
    from memman_postgres.commands import postgres

    group.add_command(postgres)


def __getattr__(name: str) -> Any:
    # The driver is imported with the first store, not with the plugin.
    if name == "PostgresStore":
        from memman_postgres.store import PostgresStore

        return PostgresStore
    if name == "AsyncPostgresStore":
        from memman_postgres.async_store import AsyncPostgresStore

        return AsyncPostgresStore
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
