"""Stores: where the logs live. A store is small on purpose: the log is the memory."""

from memman.stores.memory import MemoryStore
from memman.stores.opening import no_store, sqlite_store
from memman.stores.sqlite import SQLiteStore

__all__ = ["MemoryStore", "SQLiteStore", "no_store", "sqlite_store"]
