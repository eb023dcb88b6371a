"""Stores: where the logs live. A store is small on purpose: the log is the memory."""

from memman.stores.memory import MemoryStore

__all__ = ["MemoryStore"]
