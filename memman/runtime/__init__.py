"""Runtimes: locks, calls of ports, timeouts and background work, with threads or with asyncio.

Every method of a manager is one coroutine over a `Runtime`. `AsyncMemoryManager` awaits it; `MemoryManager`
runs it with `SyncRuntime.run`, which needs no event loop, since no coroutine suspends over sync ports.
"""

from memman.runtime.sync_runtime import SyncRuntime

__all__ = ["SyncRuntime"]
