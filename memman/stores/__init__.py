"""Stores: where the logs live. A store is small on purpose: the log is the memory."""

from memman.stores.memory import MemoryStore
from memman.stores.sqlite import SQLiteStore
from memman.stores.urls import is_url, no_store, open_store, without_password

__all__ = [
    "MemoryStore", "SQLiteStore", "is_url", "no_store", "open_store", "without_password",
]  # fmt: skip
