"""Runtimes: locks, calls of ports, timeouts and background work, with threads or with asyncio.

Every method of a manager is one coroutine over a `Runtime`. `AsyncMemoryManager` awaits it; `MemoryManager`
runs it with `SyncRuntime.run`, which needs no event loop, since no coroutine suspends over sync ports.
"""

from memman.runtime.async_runtime import AsyncLock, AsyncRuntime, LoopFlag
from memman.runtime.base import (
    USE_ASYNC,
    Lock,
    Runtime,
    SummarizerBusy,
    SummarizerCancelled,
    SummarizerTimeout,
    await_receiver,
    awaited,
    close_awaitable,
    drive,
    is_async_callable,
    is_cancellation,
    refuse_async_port,
    skip,
)
from memman.runtime.observation import Observer, Operation, observed
from memman.runtime.sync_runtime import SyncLock, SyncRuntime

__all__ = [
    "USE_ASYNC",
    "AsyncLock",
    "AsyncRuntime",
    "Lock",
    "LoopFlag",
    "Observer",
    "Operation",
    "Runtime",
    "SummarizerBusy",
    "SummarizerCancelled",
    "SummarizerTimeout",
    "SyncLock",
    "SyncRuntime",
    "await_receiver",
    "awaited",
    "close_awaitable",
    "drive",
    "is_async_callable",
    "is_cancellation",
    "observed",
    "refuse_async_port",
    "skip",
]
