"""Stores of logs: in memory, in SQLite, and by URL."""

from typing import TYPE_CHECKING

from memman.lazy_imports import on_first_use
from memman.stores.memory import MemoryStore

if TYPE_CHECKING:
    from memman.stores.sqlite import SQLiteStore
    from memman.stores.urls import is_url, no_store, open_store, without_password
else:
    __getattr__ = on_first_use(
        "memman.stores",
        {"sqlite": "SQLiteStore", "urls": "is_url no_store open_store without_password"},
    )

__all__ = [
    "MemoryStore", "SQLiteStore", "is_url", "no_store", "open_store", "without_password",
]  # fmt: skip
